//! `watch --json`: records as they come, a line each.

use std::io::{self, Write};

use crate::fault::Fault;
use crate::link::{Came, Link, Meant};
use crate::model::{Model, TableLimits};
use crate::text::counted;

/// Prints records until the tracer or the reader ends.
///
/// # Errors
/// The tracer cannot be asked, or standard output cannot be written.
pub fn stream(link: &Link, meant: &Meant, quiet: bool) -> Result<u8, Fault> {
    let mut reading = link.read_meant(meant, true)?;
    let mut output = io::stdout().lock();
    let mut model = Model::new(TableLimits::WATCH);
    let mut told = 0;
    let mut alone = true;
    loop {
        let came = reading.take();
        match came {
            Ok(Came::Records(records)) => {
                for (record, line) in records {
                    model.take(&record);
                    let line = agent_sandbox_wire::text::json(&line);
                    if let Err(error) = writeln!(output, "{line}") {
                        return closed(&error);
                    }
                }
                if let Err(error) = output.flush() {
                    return closed(&error);
                }
            }
            Ok(Came::Dropped(lines)) => model.dropped(lines),
            Ok(Came::Done) => return Ok(0),
            // Nothing happens for a while.
            Err(error) if Link::is_patience(&error) => {}
            Err(error) => return Err(link.fault(error)),
        }
        if alone && let Some(fault) = reading.several(meant) {
            alone = false;
            let _ = write!(io::stderr(), "{fault}");
        }
        let missed = model.missed();
        if missed > told && !quiet {
            let records = counted(missed - told, "record was", "records were");
            // Standard error may be closed; the gap in `seq` is in the records.
            let _ = writeln!(
                io::stderr(),
                "agent-sandbox watch: {records} missed: this reader is too slow"
            );
            told = missed;
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
