//! The filtered network with a network around it: names, servers and addresses of the test's own, and programs as people have
//! them.
//!
//! Runs as root (tests/run), which makes the network; everything in it is the test user's.

#![allow(clippy::unwrap_used)] // a test that panics has failed
#![allow(clippy::disallowed_methods)] // effects: files, processes

mod agents;
mod attacks;
mod brokered;
#[allow(dead_code)] // here less is asked of it than there
#[path = "../confine/chosen.rs"]
mod chosen;
mod clients;
#[allow(dead_code)] // of the agents fewer are driven here
#[path = "../agents/dialects.rs"]
mod dialects;
mod forward;
#[allow(dead_code)]
#[path = "../agents/messages_api.rs"]
mod messages_api;
mod outside;
mod sshd;
