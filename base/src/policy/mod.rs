//! What is allowed: every layer merged into one [`Policy`], each value with the place that set it.
//! Pure: no file, process, clock or environment variable is touched here. The keys themselves are
//! the rows of [`crate::config::keys`].

pub mod bounds;
pub mod budgets;
pub mod clamp;
pub mod credentials;
pub mod hosts;
pub mod injected_files;
pub mod job_bounds;
pub mod merge;
pub mod merged;
pub mod names;
pub mod paths;
pub mod ssh;
pub mod state;
pub mod stated;
pub mod trace;
pub mod typed;
pub mod values;

pub use bounds::Bounds;
pub use clamp::Clamped;
pub use credentials::{Credential, ValueSource};
pub use injected_files::InjectedFile;
pub use merged::{Policy, SlurmLimits, Trace};
pub use paths::PathSpec;
pub use ssh::{SshKey, SshKeys};
pub use trace::TraceMode;
pub use values::{
    AgentState, Exchange, Git, HomeMode, Instructions, JobsNetwork, NetworkMode, Requirement,
    Settings, ShmSize, SlurmMode, Users,
};
