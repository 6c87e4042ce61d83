//! The tracer on a real cluster: root runs it, ordinary users run sessions and jobs, and what their trails
//! say is compared with what they did.
//!
//! `tests/run tracer` runs this as root, beside a Slurm cluster (`tests/slurm/cluster`); the nodes and the
//! users' own commands here are those of a second one, whose site's policy is the tests'. Without a cluster
//! each test prints `not checked: …`.
#![allow(clippy::unwrap_used)] // a test that panics has failed
#![allow(clippy::disallowed_methods)] // effects: starts processes, makes throw-away projects

mod attest;
mod attested;
mod deeds;
mod ends;
mod forged;
mod jobs;
mod kept;
mod nodes;
mod profiles;
mod rules;
mod service;
mod sessions;
mod shares;
mod site;
mod unit;
mod users;
mod without_jail;

/// Scripts of a user's, inside and outside.
#[allow(dead_code)] // here less is asked of it
#[path = "../slurm/call.rs"]
mod call;
#[allow(dead_code)] // here less is asked of it
#[path = "../confine/chosen.rs"]
mod chosen;
#[allow(dead_code)] // here less is asked of it
#[path = "../slurm/cluster.rs"]
mod cluster;
#[allow(dead_code)] // here less is asked of it
#[path = "../slurm/own.rs"]
mod own;
#[allow(dead_code, unused_imports)] // here less is asked of it
#[path = "../slurm/world.rs"]
mod world;
