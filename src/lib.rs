//! `agent-sandbox`: runs AI coding agents on HPC login nodes without handing them the user's keys.
//!
//! This library is the launcher behind the binary of the same name; it is a library so that tests
//! and fuzzers can reach its pure parts. Modules stand in the order in which they may use each
//! other: [`sys`], [`config`], [`policy`], [`host`], [`plan`], [`backend`], [`launch`]. Those that backends build on are the
//! crate `agent-sandbox-base`, so that the backend Landlock can be a crate as well.

#![deny(unsafe_code)]

pub mod audit;
pub mod backend;
pub mod cli;
pub mod doctor;
pub mod handoff;
pub mod init;
pub mod inside;
pub mod job;
pub mod launch;
pub mod logging;
pub mod notice;
pub mod observe;
pub mod profile_init;
pub mod report;
pub mod share;
pub mod users;
pub mod wait;

pub use agent_sandbox_base::{
    config, env_vars, failure, host, mediate, own_directory, plan, policy, seccomp, session,
    session_directory, sys,
};
