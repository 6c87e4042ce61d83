//! `[slurm.budget]` and `[slurm.confirm]`: how many hours there are, as the chaperon counts them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The name under which `agent-sandbox budget` calls the chaperon from inside, in place of one of Slurm's commands.
pub const CALL: &str = "agent-sandbox-budget";

/// What hours are bounded by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budgets {
    /// What counts are the hours of so many days.
    pub days: u32,
    /// The most hours; none: they are not bounded.
    pub limits: Vec<HourLimit>,
    /// Above these a job waits for the user's approval.
    pub thresholds: Vec<Threshold>,
    /// For so many minutes.
    pub patience: u32,
}

impl Budgets {
    /// Whether a job's hours have to be known before it is submitted.
    pub fn are_counted(&self) -> bool {
        !self.limits.is_empty() || !self.thresholds.is_empty()
    }

    /// The key and the place of what has them counted.
    pub fn reason(&self) -> Option<(&'static str, &str)> {
        let limits = self.limits.iter().map(|limit| (limit.key(), &limit.source));
        let thresholds = self.thresholds.iter();
        let thresholds = thresholds.map(|one| (one.of.key(), &one.source));
        let mut all = limits.chain(thresholds);
        all.next().map(|(key, source)| (key, source.as_str()))
    }
}

/// The most hours of something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HourLimit {
    /// Whose.
    pub holder: Holder,
    /// Of what.
    pub resource: Resource,
    /// How many.
    pub hours: u64,
    /// The file and line, or the option, that say so.
    pub source: String,
}

impl HourLimit {
    /// The key, with its section.
    pub fn key(&self) -> &'static str {
        match (self.holder, self.resource) {
            (Holder::User, Resource::Cpu) => "slurm.budget.cpu_hours",
            (Holder::User, Resource::Gpu) => "slurm.budget.gpu_hours",
            (Holder::User, Resource::Node) => "slurm.budget.node_hours",
            (Holder::Project, Resource::Cpu) => "slurm.budget.project_cpu_hours",
            (Holder::Project, Resource::Gpu) => "slurm.budget.project_gpu_hours",
            (Holder::Project, Resource::Node) => "slurm.budget.project_node_hours",
            (Holder::Session, Resource::Cpu) => "slurm.budget.session_cpu_hours",
            (Holder::Session, Resource::Gpu) => "slurm.budget.session_gpu_hours",
            (Holder::Session, Resource::Node) => "slurm.budget.session_node_hours",
        }
    }
}

/// Whose hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Holder {
    /// All sessions of the user.
    User,
    /// All sessions of the user in the project.
    Project,
    /// One session.
    Session,
}

impl Holder {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::User, Self::Project, Self::Session];

    /// Its name, in a table and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
            Self::Session => "session",
        }
    }
}

/// What is had for hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resource {
    /// A CPU, as Slurm counts them.
    Cpu,
    /// A GPU of any type.
    Gpu,
    /// A node, or a part of it.
    Node,
}

impl Resource {
    /// Every one, in the order of [`Amounts`].
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Gpu, Self::Node];

    /// What an hour of it is called.
    pub fn hours(self) -> &'static str {
        match self {
            Self::Cpu => "CPU-hours",
            Self::Gpu => "GPU-hours",
            Self::Node => "node-hours",
        }
    }
}

/// Of each [`Resource`] so much; hours are counted in seconds of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts(pub [u64; 3]);

impl Amounts {
    /// That of one.
    pub fn of(self, resource: Resource) -> u64 {
        self.0[resource as usize]
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// Without the other.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub)
    }

    /// So often.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self(self.0.map(|one| one.saturating_mul(count)))
    }

    fn with(self, other: Self, each: impl Fn(u64, u64) -> u64) -> Self {
        let pairs = Resource::ALL.map(|one| each(self.of(one), other.of(one)));
        Self(pairs)
    }
}

/// Above which a job waits for the user's approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Threshold {
    /// Of what.
    pub of: Measure,
    /// How much needs no approval: hours, or minutes.
    pub most: u64,
    /// The file and line, or the option, that say so.
    pub source: String,
}

/// What of a job has a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// Its hours of something.
    Hours(Resource),
    /// Its wall time in minutes.
    Minutes,
}

impl Measure {
    /// The key, with its section.
    pub fn key(self) -> &'static str {
        match self {
            Self::Hours(Resource::Cpu) => "slurm.confirm.cpu_hours",
            Self::Hours(Resource::Gpu) => "slurm.confirm.gpu_hours",
            Self::Hours(Resource::Node) => "slurm.confirm.node_hours",
            Self::Minutes => "slurm.confirm.minutes",
        }
    }
}

/// Seconds as hours, with as many digits as say something: `0.02`, `1.5`, `1200`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours(pub u64);

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded up: what is left over is no less than it seems.
        let hundredths = self.0.div_ceil(36);
        let (whole, part) = (hundredths / 100, hundredths % 100);
        match part {
            0 => write!(f, "{whole}"),
            tenths if tenths % 10 == 0 => write!(f, "{whole}.{}", tenths / 10),
            _ => write!(f, "{whole}.{part:02}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_short_and_never_too_few() {
        let shown = |seconds| Hours(seconds).to_string();
        let all = [0, 1, 36, 360, 3600, 5400, 3601, 4_320_000].map(shown);
        assert_eq!(
            all,
            ["0", "0.01", "0.01", "0.1", "1", "1.5", "1.01", "1200"]
        );
    }

    #[test]
    fn each_limit_has_a_key_of_its_own() {
        let mut keys = Vec::new();
        for holder in Holder::ALL {
            for resource in Resource::ALL {
                let source = String::new();
                let limit = HourLimit {
                    holder,
                    resource,
                    hours: 1,
                    source,
                };
                keys.push(limit.key());
            }
        }
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 9);
    }
}
