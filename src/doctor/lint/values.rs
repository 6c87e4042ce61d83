//! Conditions that nobody meets, defaults outside of their own bounds, sections that narrow nothing.

use super::{Kind, Known, Level, Remark};
use crate::config::draft::{Draft, DraftSection};
use crate::config::site::SiteFile;
use crate::config::source::{Layer, Source};
use crate::policy::Policy;
use crate::policy::merge::{Additions, merge};
use crate::policy::paths::glob;

/// Conditions that are never met, as far as can be told.
pub(super) fn conditions(section: &DraftSection, known: &dyn Known, all: &mut Vec<Remark>) {
    let at = Source::in_file(
        section.layer.layer,
        std::sync::Arc::clone(&section.layer.file),
        section.line,
    );
    for (about, patterns) in &section.conditions {
        // One that matches is enough.
        if patterns
            .iter()
            .all(|pattern| has(about, pattern, known) == Some(false))
        {
            let whose = match *about {
                "group" => "the user database has no such group",
                "user" => "the user database has no such user",
                "host" => "neither this host nor a node of Slurm's is called so",
                "partition" => "Slurm has no such partition",
                _ => "Slurm has no such account",
            };
            let what = format!(
                "this section is never in force: {about} {}: {whose}",
                patterns.join(" or ")
            );
            let fix = "correct the name, or take the section out";
            all.push(Remark::new(Level::Warning, &at, what, fix));
        }
    }
}

/// Whether something matches; `None`: that cannot be told.
fn has(about: &str, pattern: &str, known: &dyn Known) -> Option<bool> {
    let slurm = |kind| {
        let names = known.of_slurm(kind)?;
        Some(names.iter().any(|name| matches(pattern, name)))
    };
    let is_pattern = pattern.contains('*');
    match about {
        // Who is in a directory service is not listed: a site may have a hundred thousand.
        "group" | "user" if is_pattern => None,
        "group" => known.has_group(pattern),
        "user" => known.has_user(pattern),
        "host" if known.hosts().iter().any(|host| matches(pattern, host)) => Some(true),
        "host" => slurm(Kind::Node),
        "partition" => slurm(Kind::Partition),
        _ => slurm(Kind::Account),
    }
}

/// Whether a pattern is a name of accounts and hosts, of which capitals do not matter, or of partitions.
fn matches(pattern: &str, name: &str) -> bool {
    let lower = |text: &str| text.to_ascii_lowercase();
    glob(lower(pattern).as_bytes(), lower(name).as_bytes())
}

/// Values of the site's defaults that the site's own bounds do not allow.
pub(super) fn defaults(policy: &Policy, all: &mut Vec<Remark>) {
    for one in &policy.clamped {
        if one.asked.source.layer != Layer::SiteDefaults {
            continue;
        }
        let what = format!(
            "the default {} `{}` is not allowed by {}, which has {}",
            one.key, one.asked.value, one.allowed.source, one.allowed.value
        );
        let fix = "nobody ever gets this default: say one that is allowed";
        all.push(Remark::new(Level::Warning, &one.asked.source, what, fix));
    }
}

/// Sections of an enforced file that ask for more than what always holds in it: each narrows, and none gives back.
pub(super) fn without_effect(again: Draft, all: &mut Vec<Remark>) {
    if again.file != SiteFile::Enforced {
        return;
    }
    let always = again.always;
    let mut layers = vec![always];
    for section in again.sections {
        let mut layer = section.layer;
        if layer.jobs.is_some() {
            continue;
        }
        // As if somebody had asked for it: what is taken away from it is what has no effect.
        layer.layer = Layer::User;
        layers.insert(0, layer);
        // A value that means something in a bound alone is no wish.
        if let Ok(policy) = merge(&layers, &Additions::default()) {
            for one in policy.clamped {
                let what = format!(
                    "{} `{}` has no effect: {} has {} for everybody, and no section gives back",
                    one.key, one.asked.value, one.allowed.source, one.allowed.value
                );
                let fix = "write the widest value for everybody, and narrow it in sections";
                all.push(Remark::new(Level::Warning, &one.asked.source, what, fix));
            }
        }
        layers.remove(0);
    }
}
