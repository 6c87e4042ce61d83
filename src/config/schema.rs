//! The shape of a policy file. Every table refuses keys that it does not know, and every value
//! keeps its span, so that later messages can point at it. Nothing here decides anything; what
//! the keys mean stands in `profiles/default.toml`.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

mod profile;

pub use profile::{
    GivenSection, InstructionsSection, ProfileSection, QuirkSection, SeedSection, StateSection,
};

/// A list of strings, each with its own span.
pub type Strings = Vec<Spanned<String>>;

/// A table that holds sections of a policy, beside keys of its own.
macro_rules! with_sections {
    (
        $(#[$about:meta])*
        pub struct $name:ident {
            $($(#[$doc:meta])* pub $key:ident: $kind:ty,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$doc])* pub $key: $kind,)*
            /// `[project]`
            pub project: Option<ProjectSection>,
            /// `[home]`
            pub home: Option<HomeSection>,
            /// `[files]`
            pub files: Option<FilesSection>,
            /// `[env]`
            pub env: Option<EnvSection>,
            /// `[devices]`
            pub devices: Option<DevicesSection>,
            /// `[jail]`
            pub jail: Option<JailSection>,
            /// `[landlock]`
            pub landlock: Option<LandlockSection>,
            /// `[network]`
            pub network: Option<NetworkSection>,
            /// `[slurm]`
            pub slurm: Option<SlurmSection>,
            /// `[trace]`
            pub trace: Option<TraceSection>,
            /// `[modules]`
            pub modules: Option<ModulesSection>,
            /// `[agents]`
            pub agents: Option<AgentsSection>,
        }

        impl $name {
            /// Takes the sections out.
            pub fn take_sections(&mut self) -> Sections {
                Sections {
                    project: self.project.take(),
                    home: self.home.take(),
                    files: self.files.take(),
                    env: self.env.take(),
                    devices: self.devices.take(),
                    jail: self.jail.take(),
                    landlock: self.landlock.take(),
                    network: self.network.take(),
                    slurm: self.slurm.take(),
                    trace: self.trace.take(),
                    modules: self.modules.take(),
                    agents: self.agents.take(),
                }
            }

            /// Whether none of the sections stands in it.
            pub fn is_empty(&self) -> bool {
                self.project.is_none()
                    && self.home.is_none()
                    && self.files.is_none()
                    && self.env.is_none()
                    && self.devices.is_none()
                    && self.jail.is_none()
                    && self.landlock.is_none()
                    && self.network.is_none()
                    && self.slurm.is_none()
                    && self.trace.is_none()
                    && self.modules.is_none()
                    && self.agents.is_none()
            }
        }
    };
}

with_sections! {
    /// The sections that any layer may hold.
    pub struct Sections {}
}

with_sections! {
    /// One policy file: the sections, and sections that hold for one project (in the user's own
    /// file) or under a condition (in the site's).
    pub struct Document {
        /// `[profile]`: only in profile files.
        pub profile: Option<Spanned<ProfileSection>>,
        /// `[projects."PATH"]`: only in the user's `config.toml`.
        pub projects: Option<Spanned<BTreeMap<Spanned<String>, Sections>>>,
        /// `[[when]]`: only in the site's files.
        #[serde(default)]
        pub when: Vec<Spanned<WhenSection>>,
    }
}

with_sections! {
    /// `[[when]]`: conditions, and sections that hold where all of them are met.
    pub struct WhenSection {
        /// Names of groups, one of which the user is in.
        pub group: Option<Spanned<Patterns>>,
        /// Names of hosts, one of which this one has.
        pub host: Option<Spanned<Patterns>>,
        /// Partitions of Slurm's, in one of which the job runs.
        pub partition: Option<Spanned<Patterns>>,
        /// Names of users, one of which is the user's.
        pub user: Option<Spanned<Patterns>>,
    }
}

/// A pattern of names, or a list of them.
#[derive(Debug, Default)]
pub struct Patterns(pub Vec<String>);

impl<'de> Deserialize<'de> for Patterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;

        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Patterns;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of them")
            }

            fn visit_str<E: de::Error>(self, one: &str) -> Result<Patterns, E> {
                Ok(Patterns(vec![one.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Patterns, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = list.next_element()? {
                    all.push(one);
                }
                Ok(Patterns(all))
            }
        }

        deserializer.deserialize_any(OneOrMore)
    }
}

/// `[project]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProjectSection {
    /// Directories below which a project must lie; empty: anywhere.
    pub parents: Option<Strings>,
    /// `"protect"` or `"writable"`: git's hooks and configuration.
    pub git: Option<Spanned<String>>,
    /// `"protect"` or `"writable"`: settings that programs outside obey.
    pub settings: Option<Spanned<String>>,
}

/// `[home]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HomeSection {
    /// `"tmpfs"`, `"restricted"`, `"read"` or `"write"`.
    pub mode: Option<Spanned<String>>,
    /// Paths below home that are readable.
    pub read: Option<Strings>,
    /// Paths below home that are writable.
    pub write: Option<Strings>,
    /// Paths below home of which the jail gets a private writable copy.
    pub seed: Option<Strings>,
    /// Paths below home that are the jail's own, and stay for later sessions of the project.
    pub keep: Option<Strings>,
    /// Paths below home that are never writable.
    pub protect: Option<Strings>,
}

/// `[files]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesSection {
    /// Readable paths.
    pub read: Option<Strings>,
    /// Writable paths.
    pub write: Option<Strings>,
    /// Hidden paths.
    pub hide: Option<Strings>,
    /// Exact exceptions from `hide`.
    pub unhide: Option<Strings>,
    /// How long one path may take to answer, in milliseconds.
    pub timeout_ms: Option<Spanned<i64>>,
}

/// `[env]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvSection {
    /// Patterns of names that pass although `hide` matches them.
    pub pass: Option<Strings>,
    /// Patterns of names that never pass.
    pub hide: Option<Strings>,
    /// Patterns of values that never pass, whatever their name.
    pub hide_values: Option<Strings>,
    /// Variables that are set inside.
    pub set: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
}

/// `[devices]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DevicesSection {
    /// Patterns of device nodes that appear inside where the host has them.
    pub allow: Option<Strings>,
    /// Patterns of device nodes that never appear; wins over `allow`.
    pub deny: Option<Strings>,
}

/// `[jail]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JailSection {
    /// Size of the private `/tmp` and `/var/tmp`, for example `"4G"`.
    pub tmp_size: Option<Spanned<String>>,
    /// Size of the private `/dev/shm`, or `"auto"`.
    pub shm_size: Option<Spanned<String>>,
    /// Size of the private home.
    pub home_size: Option<Spanned<String>>,
    /// The most processes and threads; 0: no limit.
    pub max_processes: Option<Spanned<i64>>,
    /// `"filtered"` or `"host"`: who appears in the user database.
    pub users: Option<Spanned<String>>,
    /// Whether user namespaces may be created inside.
    pub nested: Option<Spanned<bool>>,
    /// Whether the kernel's key rings may be used inside.
    pub keyctl: Option<Spanned<bool>>,
}

/// `[landlock]`: whether a jail starts without what Landlock cannot give; `"refuse"`, `"auto"` or `"degraded"` each.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LandlockSection {
    /// The limits of `[jail] tmp_size`, `home_size` and `shm_size`.
    pub sizes: Option<Spanned<String>>,
    /// `[jail] users = "filtered"`.
    pub users: Option<Spanned<String>>,
}

/// `[network]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSection {
    /// `"open"` or `"isolated"`.
    pub mode: Option<Spanned<String>>,
}

/// `[slurm]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlurmSection {
    /// `"auto"` or `"off"`.
    pub mode: Option<Spanned<String>>,
    /// `"session"`, `"project"` or `"user"`: which jobs are seen and touched.
    pub scope: Option<Spanned<String>>,
    /// `"none"`, `"counts"` or `"names"`: what is shown of other jobs.
    pub queries: Option<Spanned<String>>,
    /// `"off"`, `"steps"` or `"control"`: what a session may do with the allocation in which it is
    /// started.
    pub allocation: Option<Spanned<String>>,
    /// Directories in which Slurm's commands are looked for.
    pub directories: Option<Strings>,
    /// `[slurm.limits]`
    pub limits: Option<SlurmLimitsSection>,
}

/// `[slurm.limits]`; 0 stands for "no limit".
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlurmLimitsSection {
    /// Queries a minute that reach Slurm.
    pub queries_per_minute: Option<Spanned<i64>>,
    /// Jobs of a session that are in the queue at the same time.
    pub jobs: Option<Spanned<i64>>,
    /// Nodes of one job.
    pub nodes: Option<Spanned<i64>>,
    /// GPUs of one job.
    pub gpus: Option<Spanned<i64>>,
    /// Wall time of one job, in minutes.
    pub minutes: Option<Spanned<i64>>,
}

/// `[trace]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceSection {
    /// `"off"`, `"on"` or `"required"`: whether a tracer records what the jail does.
    pub mode: Option<Spanned<String>>,
    /// The kinds of events that are recorded.
    pub events: Option<Spanned<Strings>>,
    /// Whether opens of what does not exist are recorded.
    pub missing: Option<Spanned<bool>>,
    /// Of the opens that are allowed, each so manieth is recorded.
    pub every: Option<Spanned<i64>>,
    /// Patterns of arguments that are secrets.
    pub redact: Option<Strings>,
    /// Whether the tracer denies what the plan hides, besides.
    pub enforce: Option<Spanned<bool>>,
    /// Whether it records what it would deny.
    pub audit: Option<Spanned<bool>>,
    /// Where the tracer listens; the site's to say.
    pub socket: Option<Spanned<String>>,
}

/// `[modules]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModulesSection {
    /// Lmod modules that are loaded before the launch.
    pub load: Option<Strings>,
}

/// `[agents]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentsSection {
    /// `"project"` or `"shared"`: whose an agent's state is.
    pub state: Option<Spanned<String>>,
    /// `"given"` or `"off"`: whether agents are told of the jail.
    pub instructions: Option<Spanned<String>>,
}
