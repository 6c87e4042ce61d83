//! Entries of lists: paths that are not there, names that Slurm does not have, what another entry says already.

use super::{Kind, Known, Level, Remark, There};
use crate::config::parse::RawLayer;
use crate::config::source::{Layer, Sourced};
use crate::policy::names::{NameList, Names};
use crate::policy::paths::glob;
use crate::policy::stated::Stated;
use crate::policy::{PathSpec, Policy};

/// Of each layer by itself, and of what one says beside another.
pub(super) fn layers<'a>(
    layers: impl Iterator<Item = &'a RawLayer>,
    known: &dyn Known,
    all: &mut Vec<Remark>,
) {
    let mut hidden: Vec<Sourced<PathSpec>> = Vec::new();
    for raw in layers {
        // Typed before, or there were no remarks.
        let Ok(stated) = Stated::read(raw) else {
            continue;
        };
        let parents = given(&stated.project.parents);
        for entry in parents {
            parent(entry, raw.layer == Layer::SiteEnforced, known, all);
        }
        let lists = [
            ("project.parents", parents),
            ("files.read", given(&stated.files.read)),
            ("files.write", given(&stated.files.write)),
            ("files.hide", stated.files.hide.entries()),
            ("files.no_walk", stated.files.no_walk.entries()),
        ];
        for (key, entries) in lists {
            entries
                .iter()
                .for_each(|entry| missing(key, entry, known, all));
        }
        for entry in stated.files.hide.entries() {
            again(entry, &hidden, all);
            links(entry, known, all);
            hidden.push(entry.clone());
        }
        if raw.layer == Layer::SiteDefaults {
            for entry in given(&stated.files.unhide) {
                cancels_nothing(entry, &hidden, all);
            }
        }
        let bounds = &stated.slurm.bounds;
        for (kind, names) in [
            (Kind::Partition, &bounds.partitions),
            (Kind::Account, &bounds.accounts),
            (Kind::Qos, &bounds.qos),
            (Kind::Reservation, &bounds.reservations),
            (Kind::Constraint, &bounds.constraints),
            (Kind::License, &bounds.licenses),
        ] {
            unknown(kind, names, known, all);
        }
    }
}

fn given(list: &crate::policy::clamp::Gives<PathSpec>) -> &[Sourced<PathSpec>] {
    list.bound().unwrap_or_default()
}

fn missing(key: &str, entry: &Sourced<PathSpec>, known: &dyn Known, all: &mut Vec<Remark>) {
    if known.there(&entry.value) != There::Nothing {
        return;
    }
    let what = match entry.value.is_pattern() && entry.value.other_homes().is_none() {
        true => format!("{key} `{}` matches nothing on this host", entry.value),
        false => format!("{key} `{}` does not exist on this host", entry.value),
    };
    let fix = match key {
        "files.hide" => {
            "correct the path; what comes into being later is hidden from the next session on"
        }
        _ => "correct the path, or take it out if no node has it",
    };
    all.push(Remark::new(Level::Warning, &entry.source, what, fix));
}

/// A shared directory that may be a project as a whole.
fn parent(entry: &Sourced<PathSpec>, enforced: bool, known: &dyn Known, all: &mut Vec<Remark>) {
    let path = &entry.value;
    if enforced && !path.is_pattern() && known.there(path) == There::Roots {
        let what =
            format!("`{path}` itself may be a project, with all that its user may write there");
        let fix = format!("if only what is in it may be one, write `{path}/*`");
        all.push(Remark::new(Level::Warning, &entry.source, what, &fix));
    }
}

/// What an earlier entry hides already.
fn again(entry: &Sourced<PathSpec>, before: &[Sourced<PathSpec>], all: &mut Vec<Remark>) {
    let text = entry.value.to_string();
    let hides = |other: &&Sourced<PathSpec>| {
        let above = other.value.to_string();
        let below = text.strip_prefix(&above);
        let plain = !other.value.is_pattern() && above != "/";
        plain && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            || other.value == entry.value
    };
    if let Some(other) = before.iter().find(hides) {
        let what = format!(
            "files.hide `{}` is hidden already, by `{}` ({})",
            entry.value, other.value, other.source
        );
        let fix = "take one of them out";
        all.push(Remark::new(Level::Warning, &entry.source, what, fix));
    }
}

/// Homes that are links to where no rule stands.
fn links(entry: &Sourced<PathSpec>, known: &dyn Known, all: &mut Vec<Remark>) {
    if entry.value.other_homes().is_none() {
        return;
    }
    for directory in known.led_to(&entry.value) {
        let what = format!(
            "links in the directory of `{}` lead into {directory}, where this entry hides nothing",
            entry.value
        );
        let fix = format!("add `{directory}/* but ~` to files.hide");
        all.push(Remark::new(Level::Warning, &entry.source, what, &fix));
    }
}

fn cancels_nothing(entry: &Sourced<PathSpec>, hidden: &[Sourced<PathSpec>], all: &mut Vec<Remark>) {
    let in_home = entry.value.names_home() || entry.value.variable().is_some();
    // The built-in policy hides paths in the home and by variables.
    if !in_home && hidden.iter().all(|rule| rule.value != entry.value) {
        let what = format!(
            "files.unhide `{}` cancels no entry of files.hide in this file",
            entry.value
        );
        let fix = "an exception has the text of the entry that it cancels";
        all.push(Remark::new(Level::Warning, &entry.source, what, fix));
    }
}

fn unknown(kind: Kind, names: &Names, known: &dyn Known, all: &mut Vec<Remark>) {
    let Some(there) = known.of_slurm(kind) else {
        return;
    };
    let is_there = |entry: &str| {
        let lower = |text: &str| text.to_ascii_lowercase();
        let mut there = there.iter();
        there.any(|name| glob(lower(entry).as_bytes(), lower(name).as_bytes()))
    };
    for list in names.lists() {
        for entry in list.value.entries() {
            // Licenses of a server are named with it.
            let name = entry.split('@').next().unwrap_or_default();
            if !is_there(entry) && !is_there(name) {
                let what = match entry.contains('*') {
                    true => format!("Slurm has no {} that `{entry}` matches", kind.word()),
                    false => format!("Slurm has no {} `{entry}`", kind.word()),
                };
                let fix = "correct the name: a job that asks for it is refused by Slurm";
                all.push(Remark::new(Level::Warning, &list.source, what, fix));
            }
        }
    }
}

/// Lists that allow nothing together, though each allows something.
pub(super) fn names_of_nobody(policy: &Policy, all: &mut Vec<Remark>) {
    let bounds = &policy.slurm.bounds;
    for (key, lists) in [
        ("slurm.bounds.partitions", &bounds.partitions),
        ("slurm.bounds.accounts", &bounds.accounts),
        ("slurm.bounds.qos", &bounds.qos),
        ("slurm.bounds.options", &bounds.options),
        ("agents.allowed", &policy.agents.allowed),
    ] {
        let Some(last) = lists.last() else { continue };
        if lists.len() < 2 || lists.iter().any(|list| list.value.entries().is_empty()) {
            continue;
        }
        if !may_share(lists) {
            let other = lists.first().unwrap_or(last);
            let what = format!(
                "{key}: no name is in both {} ({}) and {} ({}), so that none is allowed",
                last.value, last.source, other.value, other.source
            );
            let fix = "say a default that the bound allows";
            all.push(Remark::new(Level::Error, &last.source, what, fix));
        }
    }
}

/// Whether some name may be in all lists. Of two patterns that is taken for granted.
fn may_share(lists: &[Sourced<NameList>]) -> bool {
    let fits = |list: &NameList, name: &str| {
        let mut entries = list.entries().iter();
        entries.any(|entry| glob(entry.as_bytes(), name.as_bytes()))
    };
    let plain = |list: &NameList| list.entries().iter().all(|entry| !entry.contains('*'));
    let Some(named) = lists.iter().find(|list| plain(&list.value)) else {
        return true;
    };
    let mut names = named.value.entries().iter();
    names.any(|name| lists.iter().all(|list| fits(&list.value, name)))
}
