//! `watch --json`: records as they come, a line each.

use std::io::{self, Write};

use crate::fault::Fault;
use crate::link::{Link, Meant, POLL};
use crate::names;

/// Prints records until the tracer or the reader ends.
///
/// # Errors
/// The tracer cannot be asked, or standard output cannot be written.
pub fn stream(link: &Link, meant: &Meant, quiet: bool) -> Result<u8, Fault> {
    let mut reading = link.read_meant(meant)?;
    let mut output = io::stdout().lock();
    let mut alone = !quiet;
    loop {
        let records = reading.follow().map_err(|error| link.fault(error))?;
        if records.is_empty() {
            std::thread::sleep(POLL);
        }
        for (record, line) in records {
            // With the name, where there is one; else as the tracer wrote it.
            let named = names::has(&record).then(|| serde_json::to_string(&record));
            let line = named.and_then(Result::ok).unwrap_or(line);
            let line = agent_sandbox_wire::text::json(&line);
            if let Err(error) = writeln!(output, "{line}") {
                return closed(&error);
            }
        }
        if let Err(error) = output.flush() {
            return closed(&error);
        }
        if alone && let Some(fault) = reading.several(meant) {
            alone = false;
            let _ = write!(io::stderr(), "{fault}");
        }
    }
}

/// A reader that closed the pipe has seen enough.
fn closed(error: &io::Error) -> Result<u8, Fault> {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(0),
        _ => Err(Fault::new(format!(
            "cannot write to standard output: {error}"
        ))),
    }
}
