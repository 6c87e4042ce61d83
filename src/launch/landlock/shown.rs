//! What is said of a jail that Landlock makes, and how it is shown beside the plan.

use std::path::Path;

use serde_json::json;

use super::{Made, Planned, Reason};
use crate::backend::missing::MissingFeature;
use crate::failure::one_line;
use agent_sandbox_landlock::Thing;
use agent_sandbox_landlock::access::Permission;

/// That Landlock makes the jail, and where to read what that means: one line.
pub(super) fn weaker(missing: &[MissingFeature]) -> String {
    format!(
        "agent-sandbox: weaker jail: Landlock, {} differences: agent-sandbox explain --backend\n",
        missing.len()
    )
}

/// What a jail of Landlock's lacks of one of bubblewrap's, a line each.
pub(super) fn missing(missing: &[MissingFeature]) -> Vec<String> {
    let line =
        |one: &MissingFeature| format!("agent-sandbox: Landlock: {}: {}\n", one.id, one.sentence);
    missing.iter().map(line).collect()
}

/// The jail as it would be. `instead` is why it is none of bubblewrap's, if nobody asked for it.
pub(super) fn planned(made: Made, instead: Option<&Reason>) -> Planned {
    let text = text(&made);
    let Made {
        translated,
        missing,
    } = made;
    let instead = instead.map(|reason| &reason.what);
    let entries = translated.config.access_map.entries().iter();
    let parts = vec![
        ("instead_of_bwrap", json!(instead)),
        ("missing", json!(missing)),
        ("landlock_abi", json!(translated.abi)),
        (
            "rules",
            translated
                .rules
                .iter()
                .map(|rule| json!({ "path": shown(rule.path()), "right": rule.right }))
                .collect(),
        ),
        (
            "access_map",
            entries
                .map(|entry| {
                    json!({ "at": shown(entry.path()), "permission": entry.permission,
                            "direct": entry.direct, "listed": entry.listed })
                })
                .collect(),
        ),
        (
            "staged",
            translated
                .staged
                .iter()
                .map(|one| json!({ "at": shown(&one.at), "what": thing(&one.what) }))
                .collect(),
        ),
    ];
    Planned {
        plan: translated.plan,
        parts,
        text,
    }
}

fn text(made: &Made) -> String {
    let translated = &made.translated;
    let mut all = String::new();
    let mut line = |text: String| {
        all.push_str(&one_line(&text));
        all.push('\n');
    };
    line(String::new());
    line(format!("rules of Landlock (ABI {})", translated.abi));
    for rule in &translated.rules {
        let right = format!("{:?}", rule.right).to_lowercase();
        line(format!("  {right:<9} {}", shown(rule.path())));
    }
    line(String::new());
    line("access map, by which the mediator decides".into());
    for entry in translated.config.access_map.entries() {
        let permission = format!("{:?}", entry.permission).to_lowercase();
        let guarded = match (entry.permission, entry.direct) {
            (Permission::Write, false) => "  [by the mediator alone]",
            _ => "",
        };
        line(format!(
            "  {permission:<9} {}{guarded}",
            shown(entry.path())
        ));
    }
    line(String::new());
    line("made in the session's directory".into());
    for one in &translated.staged {
        line(format!("  {:<9} {}", thing(&one.what), shown(&one.at)));
    }
    for line in missing(&made.missing) {
        all.push_str(&format!("\n{line}"));
    }
    all
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn thing(what: &Thing) -> String {
    match what {
        Thing::Directory(_) => "directory".to_owned(),
        Thing::Link(target) => format!("link to {}", target.display()),
        Thing::File(..) => "file".to_owned(),
        Thing::Program(from) => format!("copy of {}", from.display()),
    }
}
