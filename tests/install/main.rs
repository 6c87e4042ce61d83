//! The installation: real make, real shells, real Lmod, below throw-away directories. Runs as an
//! ordinary user, on the programs that the other suites test.
#![allow(clippy::unwrap_used)] // a test that panics has failed
#![allow(clippy::disallowed_methods)] // effects: starts processes, makes throw-away directories

mod builds;
mod completions;
mod formula;
mod links;
mod modules;
mod pages;
mod prefix;
mod recipes;
mod service;
mod statically;
mod upgrades;
mod world;
mod wrappers;
