//! What shim, chaperon and launcher of agent-sandbox say to each other, as types, and the limits that
//! hold for all of it. Both ends of each conversation use this crate; it decides nothing.

#![forbid(unsafe_code)]

pub mod bounds;
pub mod budget;
pub mod capsule;
pub mod command;
pub mod errand;
pub mod explain;
pub mod frame;
pub mod led;
#[cfg(feature = "logging")]
pub mod logging;
pub mod message;
#[cfg(feature = "network")]
pub mod network;
pub mod order;
#[cfg(feature = "ssh")]
pub mod ssh;
pub mod step;
pub mod text;

pub use frame::VERSION;

/// Where the chaperon's socket stands inside the jail. The directory is private to the jail.
pub const SOCKET: &str = "/run/agent-sandbox/slurm/chaperon";

/// Read by the shim: another path for [`SOCKET`], for tests. Whoever sets it speaks for the shim with the
/// rights of the shim's caller, which are its own: it gains nothing.
pub const SOCKET_VARIABLE: &str = "AGENT_SANDBOX_CHAPERON";

/// Where the shims stand inside the jail, under the names of Slurm's commands.
pub const SHIMS: &str = "/run/agent-sandbox/bin";
