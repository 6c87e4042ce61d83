//! What is said on standard output.

use crate::failure::{self};
use anyhow::{Context, Result};
use std::io::{self, Write};

/// Prints to standard output, for a person.
pub(super) fn print(text: &str) -> Result<()> {
    write(&failure::visible(text))
}

/// Prints to standard output, for a program.
pub(super) fn print_json(value: &serde_json::Value) -> Result<()> {
    write(&agent_sandbox_wire::text::json(&format!("{value:#}\n")))
}

/// Standard output for what is long: it is written in pieces, and ends when nobody reads it any more.
pub(super) struct Output {
    text: String,
    is_closed: bool,
}

/// A piece has so many bytes.
const PIECE: usize = 32 << 10;

impl Output {
    pub(super) fn new() -> Self {
        Self {
            text: String::new(),
            is_closed: false,
        }
    }

    /// Prints, for a person; whether more is wanted.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn print(&mut self, text: &str) -> Result<bool> {
        self.text.push_str(text);
        if self.text.len() >= PIECE {
            self.put()?;
        }
        Ok(!self.is_closed)
    }

    fn put(&mut self) -> Result<()> {
        let text = std::mem::take(&mut self.text);
        if self.is_closed {
            return Ok(());
        }
        match io::stdout()
            .lock()
            .write_all(failure::visible(&text).as_bytes())
        {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            written => written.context("cannot write to standard output"),
        }
    }

    /// Prints what is left.
    ///
    /// # Errors
    /// As [`Output::print`].
    pub(super) fn finish(mut self) -> Result<()> {
        self.put()
    }
}

/// Writes to standard output. A reader that closed the pipe has seen enough.
fn write(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}
