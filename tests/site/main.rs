//! A site's policy, end to end: root writes the files, an ordinary user starts the real launcher.
//!
//! Runs as root (tests/run). Each launch has a mount namespace of its own, in which the directory of
//! the site's policy and the user's home are the test's.

#![allow(clippy::unwrap_used)] // a test that panics has failed
#![allow(clippy::disallowed_methods)] // effects: files of root's and of the user's, processes

mod doctor;
mod documents;
mod examples;
mod explaining;
mod fake_tracer;
mod files;
mod metrics;
mod mounts;
mod narrowing;
mod other_homes;
mod profiles;
mod standing;
mod state;
mod trace;
mod users;
mod values;
mod view;
mod when;
mod widening;
mod world;

/// Sessions in documents.
#[path = "../cli/transcript.rs"]
mod transcript;
