//! What went wrong, and what can be done about it.

use std::fmt;

use crate::text::shown;

/// agent-sandbox itself failed; as `env(1)`, `timeout(1)` and the launcher have it.
pub const FAILED: u8 = 125;
/// The command cannot be executed.
pub const CANNOT_EXECUTE: u8 = 126;
/// The command was not found.
pub const NOT_FOUND: u8 = 127;

/// An error with its ways out.
#[derive(Debug)]
pub struct Fault {
    message: String,
    hints: Vec<String>,
    /// The exit code.
    pub code: u8,
}

impl Fault {
    /// What was attempted on what, and why it failed.
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

    /// Sets the exit code, [`FAILED`] unless said.
    #[must_use]
    pub fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }
}

impl fmt::Display for Fault {
    /// `error:`, then a `hint:` line each; no line is another's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", shown(&self.message))?;
        for hint in &self.hints {
            writeln!(f, "hint: {}", shown(hint))?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}
