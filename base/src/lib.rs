//! What a jail is planned from, and what backends make it with: the policy, the plan, what is known of the host, filters of
//! system calls, what mediators are made of, and the system calls themselves.
//!
//! The launcher has these modules under the same names.

#![deny(unsafe_code)]

pub mod config;
pub mod env_vars;
pub mod failure;
pub mod host;
pub mod mediate;
pub mod missing;
pub mod own_directory;
pub mod plan;
pub mod policy;
pub mod seccomp;
pub mod session;
pub mod session_directory;
pub mod sys;
