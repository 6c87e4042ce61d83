//! Plans as text: one scenario a snapshot, on a host that exists in memory only. Random hosts and
//! policies are judged by rules of their own, written against the finished steps.
#![allow(clippy::unwrap_used)] // a test that panics has failed
#![allow(clippy::disallowed_methods)] // effects: asks where the snapshots stand

mod carried;
mod defects;
mod environment;
mod explain;
mod files;
mod git;
mod home;
mod host;
mod instructions;
mod jail;
mod join_directories;
mod judge;
mod kept;
mod landlock;
mod memory;
mod narrowing;
mod network;
mod other_homes;
mod project;
mod random;
mod scenario;
mod slurm;
mod ssh;
mod trace;
mod tree;
