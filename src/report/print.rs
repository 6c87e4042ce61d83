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

/// Writes to standard output. A reader that closed the pipe has seen enough.
fn write(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}
