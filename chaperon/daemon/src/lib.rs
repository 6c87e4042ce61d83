//! The chaperon of agent-sandbox: one process per session, outside the jail, and the jail's only way
//! to Slurm. It parses each request into types, decides, and writes it anew for the real command.

#![deny(unsafe_code)]

pub mod audit;
pub mod budget;
pub mod cache;
pub mod closing;
pub mod conn;
mod files;
pub mod forward;
pub mod intent;
pub mod limiter;
mod locks;
pub mod logging;
pub mod network;
pub mod query_cache;
pub mod query_queue;
pub mod refusal;
pub mod server;
pub mod session;
pub mod slurm;
pub mod spawn;
pub mod ssh_agent;
pub mod submitters;
mod sys;
mod terminal;
pub mod variables;
