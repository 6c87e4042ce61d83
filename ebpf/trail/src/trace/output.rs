//! Where events are shown, and how.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: the file that was asked for"
)]

use std::fs::File;
use std::io::{self, BufWriter, Write};

use agent_sandbox_events::ask::{Ask, Trace};
use agent_sandbox_events::record::Record;

use crate::fault::Fault;
use crate::line::Line;
use crate::text::shown;

/// Where it is shown.
pub(super) struct Output {
    to: Box<dyn Write>,
    /// Data instead of text.
    json: bool,
    /// Only a report at the end.
    pub(super) report: bool,
    /// Nothing beside the events.
    quiet: bool,
}

impl Output {
    pub(super) fn new(trace: &Trace, ask: &Ask) -> Result<Self, Fault> {
        let to: Box<dyn Write> = match &trace.output {
            None => Box::new(BufWriter::new(io::stderr())),
            Some(path) => {
                let file = File::create(path)
                    .map_err(|error| Fault::new(format!("cannot write to `{path}`: {error}")))?;
                Box::new(BufWriter::new(file))
            }
        };
        Ok(Self {
            to,
            json: ask.json,
            report: trace.report,
            quiet: ask.quiet,
        })
    }

    pub(super) fn record(&mut self, record: &Record, line: &str) {
        if self.report {
            return;
        }
        if self.json {
            let line = agent_sandbox_wire::text::json(line);
            self.write(&format!("{line}\n"));
            return;
        }
        let line = Line::of(record);
        if self.quiet && line.pid.is_none() {
            return;
        }
        self.write(&format!("{}\n", line.text()));
    }

    /// Something about the trace itself.
    pub(super) fn note(&mut self, text: &str) {
        if !self.json && !self.quiet {
            self.write(&format!("# {}\n", shown(text)));
        }
    }

    /// A closed standard error, or a full disk, does not end the command.
    pub(super) fn write(&mut self, text: &str) {
        let _ = self.to.write_all(text.as_bytes());
    }

    pub(super) fn flush(&mut self) {
        let _ = self.to.flush();
    }
}
