//! The command as people use it: the real binary, real jails, and of each case its standard output,
//! its standard error and its exit code. Runs as an ordinary user.
#![allow(clippy::unwrap_used)] // a test that panics has failed
#![allow(clippy::disallowed_methods)] // effects: starts processes, makes throw-away homes

mod config;
mod doctor;
mod documents;
mod environment;
mod exits;
mod explaining;
mod jobs;
mod landlock;
mod limits;
mod logging;
mod names;
mod options;
mod places;
mod profile_init;
mod profiles;
mod questions;
mod records;
mod refusals;
mod results;
mod signals;
mod site_file;
mod streams;
mod tools;
mod trail;
mod transcript;
mod world;
