//! Slurm from inside, on a real cluster: the real commands, outside and in a jail, with the same
//! scripts; and attacks that try to read a planted secret or to write where the jail cannot.
//!
//! `tests/run slurm` starts the cluster (`tests/slurm/cluster`) and runs this as root, which becomes
//! the cluster's two ordinary users. Without a cluster each test prints `not checked: slurm: WHY`.
#![allow(clippy::unwrap_used)] // a test that panics has failed
#![allow(clippy::disallowed_methods)] // effects: starts processes, makes throw-away projects

mod admin;
mod agent;
mod allocation;
mod answers;
mod attacks;
mod authority;
mod batch;
mod bounds;
mod call;
#[path = "../confine/chosen.rs"]
mod chosen;
mod cluster;
mod containers;
mod control;
mod credentials;
mod daily;
mod doctor;
mod documents;
mod ends;
mod environment;
mod escape;
mod failure;
mod files;
mod forgery;
mod forward;
mod gpus;
mod group;
mod handing;
mod hours;
mod inherited;
mod injection;
mod intents;
mod joining;
mod kept;
mod limits;
mod mpi;
mod network;
mod older;
mod orphans;
mod own;
mod paths;
mod pmi;
mod processes;
mod protocol;
mod query;
mod record;
mod same;
mod scope;
mod script;
mod shared;
mod site;
mod step;
mod steps;
mod terminal;
mod upgrade;
mod world;

/// Sessions in documents.
#[path = "../cli/transcript.rs"]
mod transcript;
