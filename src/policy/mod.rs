//! What is allowed: every layer merged into one [`Policy`], each value with the place that set it.
//! Pure: no file, process, clock or environment variable is touched here.

pub mod bounds;
pub mod handouts;
pub mod merge;
pub mod narrowing;
pub mod paths;
pub mod state;
pub mod stated;
pub mod trace;
pub mod typed;
pub mod values;

use std::collections::BTreeSet;
use std::time::Duration;

use agent_sandbox_wire::order::{Allocation, Limits, Queries, Scope};
use serde::{Serialize, Serializer};

use crate::config::source::Sourced;
pub use bounds::Bounds;
pub use handouts::Handout;
pub use narrowing::Narrowed;
pub use paths::PathSpec;
pub use trace::{Trace, TraceMode};

/// The merged policy. What each key means, and its unit, stands in `profiles/default.toml`.
#[derive(Clone, Debug, Serialize)]
pub struct Policy {
    /// `[project]`
    pub project: Project,
    /// `[home]`
    pub home: Home,
    /// `[files]`
    pub files: Files,
    /// `[env]`
    pub env: Env,
    /// `[devices]`
    pub devices: Devices,
    /// `[jail]`
    pub jail: Jail,
    /// `[landlock]`
    pub landlock: Landlock,
    /// `[network]`
    pub network: Network,
    /// `[slurm]`
    pub slurm: Slurm,
    /// `[trace]`
    pub trace: Trace,
    /// `[modules]`
    pub modules: Modules,
    /// `[agents]`
    pub agents: Agents,
    /// What the site's enforced layers bound.
    #[serde(skip)]
    pub bounds: Bounds,
    /// What they took away of what other layers ask for, as far as the policy alone tells; the rest
    /// is judged in the plan.
    #[serde(skip)]
    pub narrowed: Vec<Narrowed>,
}

impl Policy {
    /// The variables that its paths begin with, each once.
    pub fn path_variables(&self) -> BTreeSet<&str> {
        let (home, files) = (&self.home, &self.files);
        let lists: [&Paths; 13] = [
            &self.project.parents,
            &home.read,
            &home.write,
            &home.seed,
            &home.keep,
            &home.protect,
            &files.read,
            &files.write,
            &files.hide,
            &files.unhide,
            &self.devices.allow,
            &self.devices.deny,
            &self.slurm.directories,
        ];
        let paths = lists.into_iter().flatten();
        paths.filter_map(|path| path.value.variable()).collect()
    }
}

/// A list of paths, each with its place.
pub type Paths = Vec<Sourced<PathSpec>>;
/// A list of `*` patterns over names or values, each with its place.
pub type Patterns = Vec<Sourced<String>>;

/// `[project]`: which directories may be projects.
#[derive(Clone, Debug, Serialize)]
pub struct Project {
    /// A project must lie below one of these; empty: anywhere.
    pub parents: Paths,
    /// What happens to git's hooks and configuration.
    pub git: Sourced<Git>,
    /// What happens to settings in it that programs outside obey.
    pub settings: Sourced<Settings>,
}

/// `[project] settings`
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Settings {
    /// Those that exist are read-only inside, and new ones are set aside at the end: they name programs.
    Protect,
    /// They are writable and stay. What is new or changed is said all the same.
    Writable,
}

/// `[project] git`
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Git {
    /// Hooks and configuration are read-only inside: they run code when git is used outside.
    Protect,
    /// They are writable like the rest of the project.
    Writable,
}

/// `[home]`
#[derive(Clone, Debug, Serialize)]
pub struct Home {
    /// How much of the home directory appears.
    pub mode: Sourced<HomeMode>,
    /// Readable entries.
    pub read: Paths,
    /// Writable entries.
    pub write: Paths,
    /// Entries of which the jail gets a private copy.
    pub seed: Paths,
    /// Entries that are the jail's own and stay for later sessions of the project.
    pub keep: Paths,
    /// Entries that are never writable.
    pub protect: Paths,
}

/// `[home] mode`, narrowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HomeMode {
    /// An empty private home with the named entries.
    Tmpfs,
    /// As `Tmpfs`, and every entry that does not begin with a dot, readable.
    Restricted,
    /// Every entry readable.
    Read,
    /// Every entry writable.
    Write,
}

/// `[files]`
#[derive(Clone, Debug, Serialize)]
pub struct Files {
    /// Readable paths.
    pub read: Paths,
    /// Writable paths.
    pub write: Paths,
    /// Hidden paths.
    pub hide: Paths,
    /// Exceptions from `hide`.
    pub unhide: Paths,
    /// How long one path may take to answer.
    pub timeout_ms: Sourced<Duration>,
}

/// `[env]`
#[derive(Clone, Debug, Serialize)]
pub struct Env {
    /// Names that pass although they are hidden.
    pub pass: Patterns,
    /// Names that never pass.
    pub hide: Patterns,
    /// Values that never pass.
    pub hide_values: Patterns,
    /// Variables set inside.
    pub set: Vec<Sourced<(String, String)>>,
}

/// `[devices]`
#[derive(Clone, Debug, Serialize)]
pub struct Devices {
    /// Device nodes that appear where the host has them.
    pub allow: Paths,
    /// Device nodes that never appear.
    pub deny: Paths,
}

/// `[jail]`
#[derive(Clone, Debug, Serialize)]
pub struct Jail {
    /// Bytes that the private `/tmp` may hold; `/var/tmp` has as much again.
    pub tmp_size: Sourced<u64>,
    /// What the private `/dev/shm` may hold.
    pub shm_size: Sourced<ShmSize>,
    /// Bytes that the private home may hold.
    pub home_size: Sourced<u64>,
    /// The most processes and threads; 0: no limit.
    pub max_processes: Sourced<u64>,
    /// Who appears in the user database.
    pub users: Sourced<Users>,
    /// Whether user namespaces may be created inside.
    pub nested: Sourced<bool>,
    /// Whether the kernel's key rings may be used inside.
    pub keyctl: Sourced<bool>,
}

/// `[jail] shm_size`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShmSize {
    /// In a job half of the job's memory on the node; in a session what is usual.
    Auto,
    /// This many bytes.
    Bytes(u64),
    /// As [`ShmSize::Auto`], and never more than this many bytes.
    AutoUpTo(u64),
}

impl ShmSize {
    /// Bytes, where `Auto` stands for `automatic`.
    pub fn bytes(self, automatic: u64) -> u64 {
        match self {
            Self::Auto => automatic,
            Self::Bytes(bytes) => bytes,
            Self::AutoUpTo(most) => automatic.min(most),
        }
    }

    /// What allows no more than either, whatever the memory is.
    #[must_use]
    pub fn narrowed(self, other: Self) -> Self {
        match (self, other) {
            (Self::Bytes(one), Self::Bytes(two)) => Self::Bytes(one.min(two)),
            (Self::Auto, Self::Auto) => Self::Auto,
            (Self::Auto, Self::Bytes(most) | Self::AutoUpTo(most))
            | (Self::Bytes(most) | Self::AutoUpTo(most), Self::Auto) => Self::AutoUpTo(most),
            (Self::Bytes(one) | Self::AutoUpTo(one), Self::Bytes(two) | Self::AutoUpTo(two)) => {
                Self::AutoUpTo(one.min(two))
            }
        }
    }
}

impl Serialize for ShmSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Bytes(bytes) => serializer.serialize_u64(*bytes),
            Self::AutoUpTo(most) => serializer.collect_str(&format_args!("auto, up to {most}")),
        }
    }
}

/// `[jail] users`
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Users {
    /// System users and the caller.
    Filtered,
    /// The host's `/etc/passwd`, `/etc/group` and `/etc/nsswitch.conf` as they are.
    Host,
}

/// `[landlock]`: whether a jail starts without what Landlock cannot give (`backend::landlock::missing`). What the site
/// enforces is required whatever stands here (`plan::required`).
#[derive(Clone, Debug, Serialize)]
pub struct Landlock {
    /// The limits of `[jail] tmp_size`, `home_size` and `shm_size`.
    pub sizes: Sourced<Demand>,
    /// `[jail] users = "filtered"`.
    pub users: Sourced<Demand>,
}

/// Whether a jail starts without a feature that Landlock does not have, narrowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Demand {
    /// Never: the built-in value is required as well.
    Refuse,
    /// Unless somebody requires it: a user by writing its key.
    Auto,
    /// Also where the user's own policy has its key.
    Degraded,
}

/// `[network]`
#[derive(Clone, Debug, Serialize)]
pub struct Network {
    /// Which network the jail sees.
    pub mode: Sourced<NetworkMode>,
}

/// `[network] mode`
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkMode {
    /// No network but a loopback of its own.
    Isolated,
    /// The host's network.
    Open,
}

/// `[slurm]`
#[derive(Clone, Debug, Serialize)]
pub struct Slurm {
    /// Whether Slurm can be used from inside.
    pub mode: Sourced<SlurmMode>,
    /// Which jobs a session sees and touches.
    pub scope: Sourced<Scope>,
    /// What queries show of other jobs.
    pub queries: Sourced<Queries>,
    /// What a session may do with the allocation in which it is started.
    pub allocation: Sourced<Allocation>,
    /// Directories in which Slurm's commands are looked for, outside.
    pub directories: Paths,
    /// `[slurm.limits]`
    pub limits: SlurmLimits,
}

/// `[slurm] mode`, narrowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SlurmMode {
    /// Slurm's commands do not work inside.
    Off,
    /// They do, where the host has them.
    Auto,
}

/// `[slurm.limits]`; 0 stands for "no limit of ours".
#[derive(Clone, Debug, Serialize)]
pub struct SlurmLimits {
    /// Queries a minute that reach Slurm; more wait.
    pub queries_per_minute: Sourced<u32>,
    /// Jobs of a session that are pending or running at the same time.
    pub jobs: Sourced<u32>,
    /// Nodes of one job.
    pub nodes: Sourced<u32>,
    /// GPUs of one job.
    pub gpus: Sourced<u32>,
    /// Wall time of one job, in minutes.
    pub minutes: Sourced<u32>,
}

impl SlurmLimits {
    /// The numbers alone, as the chaperon gets them.
    pub fn values(&self) -> Limits {
        Limits {
            queries_per_minute: self.queries_per_minute.value,
            jobs: self.jobs.value,
            nodes: self.nodes.value,
            gpus: self.gpus.value,
            minutes: self.minutes.value,
        }
    }
}

/// `[modules]`
#[derive(Clone, Debug, Serialize)]
pub struct Modules {
    /// Lmod modules loaded before the launch, in this order.
    pub load: Patterns,
}

/// `[agents]`: what agents have of their own.
#[derive(Clone, Debug, Serialize)]
pub struct Agents {
    /// Whose an agent's state is.
    pub state: Sourced<AgentState>,
    /// Whether agents are told of the jail.
    pub instructions: Sourced<Instructions>,
    /// Files that the profiles in use give.
    #[serde(skip)]
    pub handouts: Vec<Handout>,
    /// What the state of the profiles in use needs besides the lists.
    #[serde(skip)]
    pub wanted: state::Wanted,
}

/// `[agents] state`, narrowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentState {
    /// Each project has a state of its own; login and settings are the user's.
    Project,
    /// The user's own state, in all projects, inside and outside.
    Shared,
}

/// `[agents] instructions`, narrowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Instructions {
    /// An agent gets a text about its jail.
    Given,
    /// It gets none.
    Off,
}
