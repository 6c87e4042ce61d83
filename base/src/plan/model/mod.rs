//! The plan as data: what is mounted where and in which order, which variables exist, which system calls
//! are answered how. Nothing here knows how a plan is made.

pub mod bounds;
pub mod devices;
mod error;
pub mod git;
pub mod hides;
pub mod injected_files;
mod invocation;
mod java_store;
pub mod limits;
pub mod network;
pub mod other_homes;
pub mod persistent;
mod plan;
pub mod protect;
pub mod slurm;
pub mod ssh;
pub mod stage;
pub mod state;
mod step;
pub mod syscalls;
pub mod trace;

pub use error::PlanError;
pub use invocation::{Invocation, Job};
pub use plan::{HiddenVariable, KeptLink, Omitted, Plan, Variable};
pub use step::{Access, GIT_SSH, INIT, INPUT, Mount, NAMED, OWN, Step, Why};
