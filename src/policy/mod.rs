//! What is allowed: every layer merged into one [`Policy`], each value with the place that set it.
//! Pure: no file, process, clock or environment variable is touched here. The keys themselves are
//! the rows of [`crate::config::keys`].

pub mod bounds;
pub mod handouts;
pub mod merge;
pub mod merged;
pub mod narrowing;
pub mod paths;
pub mod state;
pub mod stated;
pub mod trace;
pub mod typed;
pub mod values;

pub use bounds::Bounds;
pub use handouts::Handout;
pub use merged::{Policy, SlurmLimits, Trace};
pub use narrowing::Narrowed;
pub use paths::PathSpec;
pub use trace::TraceMode;
pub use values::{
    AgentState, Demand, Git, HomeMode, Instructions, NetworkMode, Settings, ShmSize, SlurmMode,
    Users,
};
