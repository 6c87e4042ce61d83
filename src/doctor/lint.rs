//! What is likely a mistake in a site's file, though it can be read: names that nobody has, paths that are not there, values
//! that have no effect. Pure: what this host and Slurm have is asked through [`Known`].

mod lists;
mod values;

use serde::Serialize;

use crate::config::draft::Draft;
use crate::config::source::Source;
use crate::policy::{PathSpec, Policy};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// With this file installed something cannot work: the exit status is 1.
    Error,
    /// It holds, and is likely not what was meant.
    Warning,
}

/// One remark. These keys are an interface: scripts read them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Remark {
    /// Where: `FILE:LINE`.
    pub at: String,
    /// How bad it is.
    pub level: Level,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub fix: String,
}

impl Remark {
    fn new(level: Level, at: &Source, what: String, fix: &str) -> Self {
        Self {
            at: at.to_string(),
            level,
            what,
            fix: fix.to_owned(),
        }
    }
}

/// Names that Slurm has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Partitions.
    Partition,
    /// Accounts of its database.
    Account,
    /// QOS of its database.
    Qos,
    /// Reservations.
    Reservation,
    /// Features of nodes.
    Constraint,
    /// Licenses.
    License,
    /// Nodes.
    Node,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Partition,
        Self::Account,
        Self::Qos,
        Self::Reservation,
        Self::Constraint,
        Self::License,
        Self::Node,
    ];

    /// One of them in words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Partition => "partition",
            Self::Account => "account",
            Self::Qos => "QOS",
            Self::Reservation => "reservation",
            Self::Constraint => "feature",
            Self::License => "license",
            Self::Node => "node",
        }
    }
}

/// What stands at a path of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum There {
    /// Nothing, or nothing that a pattern matches.
    Nothing,
    /// A directory of root's.
    Roots,
    /// Something else.
    Something,
    /// That cannot be told: it depends on the user, or does not answer.
    Untold,
}

/// What is known of this host and its cluster.
pub trait Known {
    /// The names of a kind; `None`: they could not be asked for.
    fn of_slurm(&self, kind: Kind) -> Option<&[String]>;
    /// Whether the user database has this group; `None`: it could not be asked.
    fn has_group(&self, name: &str) -> Option<bool>;
    /// Whether the user database has this user; `None`: it could not be asked.
    fn has_user(&self, name: &str) -> Option<bool>;
    /// The names of this host.
    fn hosts(&self) -> &[String];
    /// What stands at a path.
    fn there(&self, spec: &PathSpec) -> There;
    /// Of all in a directory but the home: directories elsewhere into which links in it lead.
    fn led_to(&self, spec: &PathSpec) -> Vec<String>;
}

/// What is remarkable of a file, of which `policy` is what it makes with the one beside it and the user's own. `again` is
/// the same draft once more, to be compared with itself.
pub fn remarks(draft: &Draft, again: Draft, policy: &Policy, known: &dyn Known) -> Vec<Remark> {
    let mut all = Vec::new();
    for section in &draft.sections {
        values::conditions(section, known, &mut all);
    }
    let layers = std::iter::once(&draft.always).chain(draft.sections.iter().map(|one| &one.layer));
    lists::layers(layers, known, &mut all);
    lists::names_of_nobody(policy, &mut all);
    values::defaults(policy, &mut all);
    values::without_effect(again, &mut all);
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests;
