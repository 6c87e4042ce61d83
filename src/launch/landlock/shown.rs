//! What is said of a jail that Landlock makes, and how it is shown beside the plan.

use std::path::Path;

use serde_json::json;

use super::{Made, Planned, Reason};
use crate::backend::landlock::Thing;
use crate::backend::landlock::access::Permission;
use crate::backend::missing::MissingFeature;
use crate::failure::one_line;

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
    let Made { fenced, missing } = made;
    let instead = instead.map(|reason| &reason.what);
    let regions = fenced.charge.territory.regions().iter();
    let parts = vec![
        ("instead_of_bwrap", json!(instead)),
        ("lacks", json!(missing)),
        ("landlock_abi", json!(fenced.abi)),
        (
            "rules",
            fenced
                .rules
                .iter()
                .map(|rule| json!({ "path": shown(rule.path()), "right": rule.right }))
                .collect(),
        ),
        (
            "territory",
            regions
                .map(|region| {
                    json!({ "at": shown(region.path()), "reach": region.reach,
                            "direct": region.direct, "listed": region.listed })
                })
                .collect(),
        ),
        (
            "staged",
            fenced
                .staged
                .iter()
                .map(|one| json!({ "at": shown(&one.at), "what": thing(&one.what) }))
                .collect(),
        ),
    ];
    Planned {
        plan: fenced.plan,
        parts,
        text,
    }
}

fn text(made: &Made) -> String {
    let fenced = &made.fenced;
    let mut all = String::new();
    let mut line = |text: String| {
        all.push_str(&one_line(&text));
        all.push('\n');
    };
    line(String::new());
    line(format!("rules of Landlock (ABI {})", fenced.abi));
    for rule in &fenced.rules {
        let right = format!("{:?}", rule.right).to_lowercase();
        line(format!("  {right:<9} {}", shown(rule.path())));
    }
    line(String::new());
    line("access map, by which the mediator decides".into());
    for region in fenced.charge.territory.regions() {
        let reach = format!("{:?}", region.reach).to_lowercase();
        let guarded = match (region.reach, region.direct) {
            (Permission::Write, false) => "  [by the mediator alone]",
            _ => "",
        };
        line(format!("  {reach:<9} {}{guarded}", shown(region.path())));
    }
    line(String::new());
    line("made in the session's directory".into());
    for one in &fenced.staged {
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
    }
}
