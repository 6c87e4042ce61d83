//! Errors of a launch with their hints, and the one way to standard error.

use std::fmt;
use std::io::{self, Write};

pub use agent_sandbox_wire::text::{one_line, visible};

/// agent-sandbox itself failed; as `env(1)`, `timeout(1)` and `docker run` have it.
pub const FAILED: u8 = 125;

/// An error of a launch, with what can be done about it.
#[derive(Debug)]
pub struct Failure {
    message: String,
    /// Ways out, a sentence each.
    pub hints: Vec<String>,
    /// The exit code.
    pub code: u8,
}

impl Failure {
    /// A message: what was attempted on what.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hints: Vec::new(),
            code: FAILED,
        }
    }

    /// Adds a way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Sets the exit code, 125 unless said.
    #[must_use]
    pub fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Writes to standard error.
pub fn say(text: &str) {
    // There is nowhere left to report a closed standard error to.
    let _ = io::stderr().lock().write_all(visible(text).as_bytes());
}
