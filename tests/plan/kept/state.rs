//! `[profile.state]`: what becomes of it with each kind of state, under the site's bounds.

use std::path::Path;

use agent_sandbox::plan::model::persistent::Make;
use agent_sandbox::plan::{Access, Mount, Plan};

use super::places::{STORE, at};
use crate::host;
use crate::scenario::Scenario;
use crate::tree::Tree;

const PROFILE: &str = r#"
[profile]
commands = ["tool"]
[profile.state]
directories = ["~/.tool", "~/.local/share/tool"]
files = ["~/.tool.json"]
login = ["~/.tool/auth.json", "~/.tool-token"]
settings = ["~/.tool/settings.json", "~/.tool/plugins"]
initial = { "~/.tool.json" = "{}" }
[[profile.state.seed]]
from = "~/.tool.json"
to = "~/.tool/.tool.json"
keys = ["account", "theme"]
[profile.state.variables]
TOOL_HOME = "~/.tool"
TOOL_MODE = "quiet"
[files]
hide = ["~/.tool/history"]
"#;
const SHARED: &str = "agents.state = \"shared\"";

fn tree() -> Tree {
    host::plain()
        .file("/home/ada/.tool/settings.json", "{}")
        .file("/home/ada/.tool/plugins/one.js", "")
        .file("/home/ada/.tool/auth.json", "{}")
        .file("/home/ada/.tool/history", "")
        .file("/home/ada/.tool.json", "{}")
}

fn scenario(tree: Tree, user: &str) -> Scenario {
    let scenario = Scenario::new(tree).profile("tool.toml", PROFILE);
    scenario.policy(user)
}

fn planned(tree: Tree, user: &str) -> Plan {
    let scenario = scenario(tree, user);
    scenario.text();
    scenario.plan().unwrap()
}

fn access(plan: &Plan, path: &str) -> Option<Access> {
    match at(plan, path) {
        Some(Mount::Bind { access, .. }) => Some(*access),
        _ => None,
    }
}

fn is_kept(plan: &Plan, path: &str) -> bool {
    matches!(at(plan, path), Some(Mount::Kept { .. }))
}

fn value<'p>(plan: &'p Plan, name: &str) -> Option<&'p str> {
    let found = plan.variables.iter().find(|variable| variable.name == name);
    found.and_then(|variable| variable.value.to_str())
}

fn made(plan: &Plan) -> Vec<(&str, Option<&str>)> {
    let in_home = plan.keeping.makes.iter().filter(|make| make.is_in_home());
    let each = in_home.map(|make| match make {
        Make::File { path, text, .. } => (path.to_str().unwrap(), Some(text.as_str())),
        other => (other.path().to_str().unwrap(), None),
    });
    each.collect()
}

#[test]
fn as_text() {
    scenario(tree(), "").snapshot("state_project");
    scenario(tree(), SHARED).snapshot("state_shared");
}

#[test]
fn a_project_has_a_state_of_its_own() {
    let plan = planned(tree(), "");
    for kept in ["/home/ada/.tool", "/home/ada/.local/share/tool"] {
        assert!(is_kept(&plan, kept), "{kept}");
    }
    assert_eq!(
        access(&plan, "/home/ada/.tool/settings.json"),
        Some(Access::Read)
    );
    assert_eq!(access(&plan, "/home/ada/.tool/plugins"), Some(Access::Read));
    assert_eq!(
        access(&plan, "/home/ada/.tool/auth.json"),
        Some(Access::Write)
    );
    assert!(at(&plan, "/home/ada/.tool.json").is_none());
    assert!(at(&plan, "/home/ada/.tool/history").is_none());
    assert_eq!(value(&plan, "TOOL_HOME"), Some("/home/ada/.tool"));
    assert_eq!(value(&plan, "TOOL_MODE"), Some("quiet"));
    let [seed] = plan.keeping.seeds.as_slice() else {
        panic!("{:?}", plan.keeping.seeds);
    };
    assert_eq!(seed.from, Path::new("/home/ada/.tool.json"));
    assert_eq!(seed.to, Path::new(STORE).join("home/.tool/.tool.json"));
    assert_eq!(seed.keys, ["account", "theme"]);
    assert_eq!(plan.keeping.logins, []);
    assert_eq!(made(&plan), []);
}

#[test]
fn a_login_that_is_missing_is_carried_out() {
    let plan = planned(tree().without("/home/ada/.tool/auth.json"), "");
    let [login] = plan.keeping.logins.as_slice() else {
        panic!("{:?}", plan.keeping.logins);
    };
    assert_eq!(login.host, Path::new("/home/ada/.tool/auth.json"));
    assert_eq!(login.kept, Path::new(STORE).join("home/.tool/auth.json"));
    // Never over what is protected or hidden, and nowhere where the site lets nothing be written.
    for (user, enforced) in [
        ("home.protect = [\"~/.tool/auth.json\"]", ""),
        ("home.protect = [\"~/.tool\"]", ""),
        ("files.hide = [\"~/.tool\"]", ""),
        ("", "[home]\nwrite = []\n"),
        ("", "[home]\nprotect = [\"~/.tool\"]\n"),
        ("", "[files]\nhide = [\"~/.tool/auth.json\"]\n"),
        ("", "[home]\nkeep = []\n"),
    ] {
        let tree = tree().without("/home/ada/.tool/auth.json");
        let plan = scenario(tree, user).enforced(enforced).plan().unwrap();
        assert_eq!(plan.keeping.logins, [], "{user}{enforced}");
    }
    // A link that an earlier session may have made leads it nowhere.
    let tree = tree()
        .without("/home/ada/.tool")
        .link("/home/ada/.tool", "project/planted")
        .directory("/home/ada/project/planted");
    assert_eq!(planned(tree, "").keeping.logins, []);
}

#[test]
fn shared_state_is_the_users_own() {
    let plan = planned(tree(), SHARED);
    assert_eq!(access(&plan, "/home/ada/.tool"), Some(Access::Write));
    assert_eq!(access(&plan, "/home/ada/.tool.json"), Some(Access::Write));
    assert_eq!(
        access(&plan, "/home/ada/.tool/settings.json"),
        Some(Access::Read)
    );
    assert_eq!(access(&plan, "/home/ada/.tool/plugins"), Some(Access::Read));
    assert!(matches!(
        at(&plan, "/home/ada/.tool/history"),
        Some(Mount::HideFile)
    ));
    assert_eq!(value(&plan, "TOOL_HOME"), None);
    assert_eq!(plan.keeping.seeds, []);
    assert_eq!(plan.keeping.logins, []);
    assert_eq!(made(&plan), [("/home/ada/.local/share/tool", None)]);
    let plan = planned(host::plain(), SHARED);
    assert_eq!(
        made(&plan),
        [
            ("/home/ada/.tool", None),
            ("/home/ada/.local/share/tool", None),
            ("/home/ada/.tool.json", Some("{}")),
        ]
    );
    // What is made is not left out.
    let left = plan
        .omitted
        .iter()
        .filter(|omitted| omitted.path == "~/.tool.json");
    assert_eq!(left.count(), 0);
}

#[test]
fn what_the_site_enforces_holds_for_state() {
    // A user's wish for shared state does not hold, and that is said.
    let plan = scenario(tree(), SHARED)
        .enforced("agents.state = \"project\"")
        .plan()
        .unwrap();
    assert!(is_kept(&plan, "/home/ada/.tool"));
    assert_eq!(access(&plan, "/home/ada/.tool.json"), None);
    let told = plan.clamped.iter().find(|one| one.key == "agents.state");
    assert!(told.is_some_and(|one| one.is_users() && one.allowed.value == "project"));
    // Shared state lies within home.write, and nothing is made beyond it.
    for tree in [tree(), host::plain()] {
        let plan = scenario(tree, SHARED)
            .enforced("[home]\nwrite = [\"~/.tool.json\"]\n")
            .plan()
            .unwrap();
        assert_ne!(access(&plan, "/home/ada/.tool"), Some(Access::Write));
        let made = made(&plan);
        assert!(
            made.iter().all(|(path, _)| *path == "/home/ada/.tool.json"),
            "{made:?}"
        );
    }
    // What may not be kept is not; settings and login need a right of their own.
    let plan = scenario(tree(), "")
        .enforced("[home]\nkeep = []\nread = []\nwrite = []\n")
        .plan()
        .unwrap();
    let shown = |path: &str| at(&plan, path).is_some();
    assert!(!shown("/home/ada/.tool") && !shown("/home/ada/.tool/settings.json"));
    assert!(!shown("/home/ada/.tool/auth.json"));
    assert_eq!(plan.keeping.seeds, []);
}

/// A login file is an exception from the rule that reads the same, and from nothing else; a seed from
/// a built-in one alone.
#[test]
fn state_opens_nothing_that_the_lists_could_not() {
    let profile = |state: &str| format!("[profile]\n[profile.state]\n{state}\n");
    let tree = || {
        tree()
            .file("/home/ada/.netrc.json", "")
            .file("/home/ada/.tool/key", "")
    };
    for (state, hide, path, open) in [
        (
            "login = [\"~/.ssh/id_rsa\"]",
            "~/.ssh",
            "/home/ada/.ssh/id_rsa",
            false,
        ),
        (
            "login = [\"~/.ssh/id_rsa\"]",
            "~/.ssh/id_*",
            "/home/ada/.ssh/id_rsa",
            false,
        ),
        (
            // What the user hides stays so.
            "login = [\"~/.tool/key\"]",
            "~/.tool/key",
            "/home/ada/.tool/key",
            false,
        ),
        (
            "settings = [\"~/.tool/key\"]",
            "~/.tool/key",
            "/home/ada/.tool/key",
            false,
        ),
    ] {
        let own = "hide = [\"~/.config/agent-sandbox\", \"~/.local/state/agent-sandbox\"";
        let plan = Scenario::new(tree())
            .only_policy(&format!("[files]\n{own}, {hide:?}]\n"))
            .profile("tool.toml", &profile(state))
            .plan()
            .unwrap();
        assert_eq!(at(&plan, path).is_some(), open, "{state} {hide}");
    }
    let built_in = Scenario::new(tree()).profile("tool.toml", &profile("login = [\"~/.netrc\"]"));
    let plan = built_in.plan().unwrap();
    assert!(at(&plan, "/home/ada/.netrc").is_some(), "{plan:?}");
    let seed = "directories = [\"~/.tool\"]\n[[profile.state.seed]]\nfrom = \"~/.netrc\"\n\
        to = \"~/.tool/copy\"\nkeys = [\"x\"]";
    let seeds = |user: &str, enforced: &str| {
        let scenario = Scenario::new(tree()).profile("tool.toml", &profile(seed));
        let plan = scenario.policy(user).enforced(enforced).plan().unwrap();
        plan.keeping.seeds.len()
    };
    assert_eq!(seeds("", ""), 1);
    assert_eq!(seeds("files.hide = [\"~/.netrc\"]", ""), 0);
    assert_eq!(seeds("", "[files]\nhide = [\"~/.netrc\"]\n"), 0);
    assert_eq!(seeds("", "[files]\nunhide = []\n"), 0);
    assert_eq!(seeds("", "[home]\nread = []\n"), 0);
    assert_eq!(seeds("", "[home]\nseed = []\n"), 0);
    assert_eq!(seeds("", "[home]\nseed = [\"~/.netrc\"]\nread = []\n"), 1);
}

/// Settings that stand elsewhere, by links of the user's, appear where the agent looks for them.
#[test]
fn settings_behind_links() {
    let tree = tree()
        .without("/home/ada/.tool")
        .file("/scratch/ada/tool/settings.json", "{}")
        .file("/scratch/ada/tool/auth.json", "{}")
        .file("/scratch/ada/tool/plugins/one.js", "")
        .link("/home/ada/.tool", "/scratch/ada/tool");
    let plan = planned(tree, "");
    assert!(is_kept(&plan, "/home/ada/.tool"));
    let Some(Mount::Bind { from, access, .. }) = at(&plan, "/home/ada/.tool/settings.json") else {
        panic!("no settings");
    };
    assert_eq!(from, Path::new("/scratch/ada/tool/settings.json"));
    assert_eq!(*access, Access::Read);
    assert_eq!(
        self::access(&plan, "/home/ada/.tool/plugins"),
        Some(Access::Read)
    );
    assert_eq!(
        self::access(&plan, "/home/ada/.tool/auth.json"),
        Some(Access::Write)
    );
    // What is protected is not written by another name either.
    let tree = host::plain()
        .file("/scratch/ada/auth.json", "{}")
        .link("/home/ada/.tool/auth.json", "/scratch/ada/auth.json");
    let plan = planned(tree, "home.protect = [\"~/.tool/auth.json\"]");
    assert_eq!(
        self::access(&plan, "/home/ada/.tool/auth.json"),
        Some(Access::Read)
    );
}

/// Two profiles in one jail have both their states, and a value of the profile's own section holds over
/// that of its state.
#[test]
fn several_profiles() {
    let other = "[profile]\n[profile.state]\ndirectories = [\"~/.other\"]\n\
        [profile.state.variables]\nOTHER = \"~/.other\"\n[env.set]\nOTHER = \"mine\"\n";
    let plan = scenario(tree(), "")
        .profile("other.toml", other)
        .plan()
        .unwrap();
    assert!(is_kept(&plan, "/home/ada/.tool") && is_kept(&plan, "/home/ada/.other"));
    assert_eq!(value(&plan, "OTHER"), Some("mine"));
}
