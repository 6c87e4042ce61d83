//! What `agent-sandbox explain` says of what is kept.

use std::path::Path;

use agent_sandbox::plan::explain::change::Ways;
use agent_sandbox::plan::explain::{self, Explanation, Visibility};

use super::places::STORE;
use crate::host;
use crate::scenario::Scenario;

const PROFILE: &str = "[profile]\n[profile.state]\ndirectories = [\"~/.tool\"]\n\
    settings = [\"~/.tool/settings.json\"]\n";

fn asked(enforced: &str, path: &str) -> Explanation {
    let tree = host::plain()
        .file("/home/ada/.tool/settings.json", "")
        .file("/home/ada/.tool/notes", "")
        .directory("/scratch/cache")
        .link("/home/ada/.cache", "/scratch/cache")
        .file(&format!("{STORE}/home/.tool/x"), "");
    let scenario = Scenario::new(tree)
        .profile("tool.toml", PROFILE)
        .policy("home.keep = [\"~/.npm\"]")
        .enforced(enforced);
    let (plan, policy) = (scenario.plan().unwrap(), scenario.merged());
    let ways = Ways {
        policy: &policy,
        config: "config.toml",
        places: Some((&plan.site_bounds, &scenario.tree)),
    };
    explain::path(&plan, &scenario.tree, Path::new(path), &ways)
}

#[test]
fn where_it_is_kept_and_how_to_share_it() {
    let answer = asked("", "/home/ada/.tool/notes");
    assert_eq!(answer.verdict, Visibility::Kept);
    assert_eq!(
        answer.notes,
        [
            format!("kept for this project in `{STORE}/home/.tool`"),
            "what stands there outside is not shown, and stays as it is".to_owned()
        ]
    );
    assert!(
        answer
            .why
            .to_string()
            .starts_with("home.keep `~/.tool` (tool.toml:")
    );
    assert!(
        answer.change.text.contains("--set agents.state=shared"),
        "{answer:?}"
    );
    let answer = asked("agents.state = \"project\"", "/home/ada/.tool");
    let site = answer.change.site.unwrap();
    assert!(site.starts_with("agents.state (enforced.toml"), "{site}");
    // What the user keeps gives way to a list of the user's.
    let answer = asked("", "/home/ada/.npm/x");
    assert_eq!((answer.verdict, answer.exists), (Visibility::Kept, false));
    assert!(
        answer.change.text.contains("--write /home/ada/.npm"),
        "{answer:?}"
    );
    // A link of the host's leads nowhere inside.
    let answer = asked("", "/home/ada/.cache/pip");
    assert_eq!(answer.verdict, Visibility::Kept);
}

#[test]
fn what_is_shown_below_it_and_where_it_really_is() {
    let answer = asked("", "/home/ada/.tool/settings.json");
    assert_eq!(answer.verdict, Visibility::ReadOnly);
    let answer = asked("", &format!("{STORE}/home/.tool/x"));
    assert_eq!(answer.verdict, Visibility::Hidden);
    assert_eq!(
        answer.why.to_string(),
        "what jails keep from session to session"
    );
    assert!(!answer.change.possible);
    let answer = asked("", "/home/ada/.other");
    assert_eq!(answer.verdict, Visibility::Absent);
}
