//! What the test suites share: waiting with a deadline, running commands to their end, and terminals. Tests alone use it.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test that panics has failed
#![allow(clippy::disallowed_methods)] // effects: starts processes, opens terminals

pub mod process;
pub mod terminal;
pub mod waiting;

/// Says what this machine cannot show; `tests/run` counts the line as a skipped test.
pub fn not_checked(what: &str, why: &str) {
    println!("not checked: {what}: {why}");
}
