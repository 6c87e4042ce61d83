//! What went wrong, as people read it.

use std::io;

use crate::{streams, sys};

/// An error that ends the command, and what to do about it.
#[derive(Debug)]
pub(crate) struct Trouble {
    message: String,
    hint: Option<String>,
}

impl Trouble {
    /// What was attempted and why it failed: one line.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    /// A system call failed.
    pub(crate) fn system(attempt: &str, error: impl Into<io::Error>) -> Self {
        Self::new(format!("{attempt}: {}", error.into()))
    }

    /// Adds what to do: one line.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Writes it to standard error the way Slurm's commands do.
    pub(crate) fn report(&self, name: &str) {
        let mut text = format!("{name}: error: {}\n", self.message);
        if let Some(hint) = &self.hint {
            text.push_str(&format!("hint: {hint}\n"));
        }
        streams::write_all(sys::standard(sys::ERROR), text.as_bytes());
    }
}
