//! `agent-sandbox`: runs AI coding agents on HPC login nodes without handing them the user's keys.
//!
//! This library is the launcher behind the binary of the same name; it is a library so that tests
//! and fuzzers can reach its pure parts. Modules stand in the order in which they may use each
//! other: [`sys`], [`config`], [`policy`], [`host`], [`plan`], [`backend`], [`launch`].

#![deny(unsafe_code)]

pub mod audit;
pub mod backend;
pub mod cli;
pub mod config;
pub mod doctor;
pub mod env_vars;
pub mod failure;
pub mod handoff;
pub mod host;
pub mod init;
pub mod inside;
pub mod job;
pub mod launch;
pub mod mediate;
pub mod notice;
pub mod observe;
pub mod own_directory;
pub mod plan;
pub mod policy;
pub mod profile_init;
pub mod report;
pub mod session;
pub mod share;
pub mod sys;
pub mod users;
