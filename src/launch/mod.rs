//! The ordered effects of one launch: look, plan, record the session, build the jail, wait.

#![allow(clippy::disallowed_methods, reason = "the effect module of a launch")]

mod absent;
mod activity;
pub mod agents;
pub mod allocation;
pub mod allow;
pub mod announcements;
pub mod backend;
pub mod bubblewrap;
pub mod cgroup;
pub mod chaperon;
pub mod choice;
mod companion;
pub mod company;
mod credentials;
pub mod deadline;
pub mod diagnose;
pub mod ending;
pub mod finish;
pub mod forward;
mod jail;
pub mod join_directories;
pub mod landlock;
pub mod left;
mod limits;
pub mod measured;
pub mod modules;
pub mod network;
pub mod not_found;
pub mod observed;
pub mod on_call;
pub mod options;
pub mod orders;
pub mod prepare;
pub mod prepared;
pub mod replay;
pub mod result;
pub mod session;
mod slurm_commands;
pub mod snapshot;
mod ssh_agent;
pub mod start_messages;
pub mod state;
mod store;
pub mod supervisor;
pub mod traced;
pub mod tracer;
pub mod trail;
pub mod untraced;
mod ways;

pub use options::{current_directory, locations, normal};
pub use orders::{confinement, environment, filter, mediated_terms, search_path};
pub use prepare::{prepare, prepare_from_snapshot};
pub use prepared::{FIRST_TIMEOUT, JobRequest, Prepared};
pub use session::{Course, refuse_unsafe_start, run};
