//! `[slurm.bounds]`: what one job may ask for, as the chaperon judges it. What bounds nothing is not in it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Everything that bounds a job. Each set bounds on its own: what one says, no other takes back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// What always holds first; then what holds for some jobs.
    pub sets: Vec<BoundSet>,
}

impl Bounds {
    /// Whether nothing bounds anything.
    pub fn are_none(&self) -> bool {
        self.sets.iter().all(BoundSet::is_empty)
    }
}

impl BoundSet {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.denied.is_empty() && self.sizes.is_empty()
    }
}

/// What bounds the jobs that it is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundSet {
    /// Which jobs those are.
    pub when: JobCondition,
    /// Names that a job may use; several of one kind: what all of them allow.
    pub names: Vec<NameBound>,
    /// Patterns of options that it may not use, with the place of each.
    pub denied: Vec<(String, String)>,
    /// How large it may be.
    pub sizes: Vec<SizeBound>,
}

/// Which jobs: those that ask for such a partition and such an account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCondition {
    /// Patterns of partitions; `None`: any.
    pub partitions: Option<Vec<String>>,
    /// Patterns of accounts; `None`: any.
    pub accounts: Option<Vec<String>>,
}

impl JobCondition {
    /// Whether it is about every job.
    pub fn is_always(&self) -> bool {
        self.partitions.is_none() && self.accounts.is_none()
    }
}

impl fmt::Display for JobCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let both = [("partition", &self.partitions), ("account", &self.accounts)];
        let each = both.iter().filter_map(|(what, patterns)| {
            let patterns = patterns.as_ref()?;
            Some(format!("{what} {}", patterns.join(" or ")))
        });
        f.write_str(&each.collect::<Vec<_>>().join(", "))
    }
}

/// Names that are allowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameBound {
    /// Of what.
    pub key: NameKey,
    /// Names, and patterns with `*`; the first name is what a job gets that names none.
    pub allowed: Vec<String>,
    /// The file and line, or the option, that say so.
    pub source: String,
}

/// A size that is not exceeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeBound {
    /// Of what.
    pub key: SizeKey,
    /// The largest, in the unit of [`SizeKey`].
    pub most: u64,
    /// The file and line, or the option, that say so.
    pub source: String,
}

/// The keys of `[slurm.bounds]` that hold names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameKey {
    /// `--partition`
    Partitions,
    /// `--account`
    Accounts,
    /// `--qos`
    Qos,
    /// `--reservation`
    Reservations,
    /// `--constraint`, `--prefer`, `--batch`
    Constraints,
    /// `--licenses`
    Licenses,
    /// Every option, by its long name.
    Options,
}

impl NameKey {
    /// The key, with its section.
    pub fn name(self) -> &'static str {
        match self {
            Self::Partitions => "slurm.bounds.partitions",
            Self::Accounts => "slurm.bounds.accounts",
            Self::Qos => "slurm.bounds.qos",
            Self::Reservations => "slurm.bounds.reservations",
            Self::Constraints => "slurm.bounds.constraints",
            Self::Licenses => "slurm.bounds.licenses",
            Self::Options => "slurm.bounds.options",
        }
    }
}

/// The keys of `[slurm.bounds]` that hold numbers, each of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SizeKey {
    /// Nodes.
    Nodes,
    /// GPUs.
    Gpus,
    /// CPUs.
    Cpus,
    /// Bytes of memory on all its nodes.
    Memory,
    /// Minutes of wall time.
    Minutes,
    /// Tasks of an array.
    Array,
}

impl SizeKey {
    /// Every one.
    pub const ALL: [Self; 6] = [
        Self::Nodes,
        Self::Gpus,
        Self::Cpus,
        Self::Memory,
        Self::Minutes,
        Self::Array,
    ];

    /// The key, with its section.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nodes => "slurm.bounds.nodes",
            Self::Gpus => "slurm.bounds.gpus",
            Self::Cpus => "slurm.bounds.cpus",
            Self::Memory => "slurm.bounds.memory",
            Self::Minutes => "slurm.bounds.minutes",
            Self::Array => "slurm.bounds.array",
        }
    }
}

/// The key of the options that a job may not use.
pub const DENIED: &str = "slurm.bounds.deny_options";
