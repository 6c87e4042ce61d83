//! `agent-sandbox report`: asks for trails, and prints what they come to.

use std::io::{self, Write};

use agent_sandbox_events::ask::Ask;

use super::{Summary, markdown, text};
use crate::fault::Fault;
use crate::link::{Came, Link};
use crate::model::{Limits, Model};

/// Prints a report.
///
/// # Errors
/// The tracer cannot be asked, there is no such trail, or standard output cannot be written.
pub fn report(ask: &Ask, word: Option<&str>, as_markdown: bool) -> Result<u8, Fault> {
    let link = Link::new(&ask.socket);
    let meant = link.which(word)?;
    let mut reading = link.read_meant(&meant, false)?;
    let mut model = Model::new(Limits::REPORT);
    loop {
        match reading.take() {
            Ok(Came::Records(records)) => {
                for (record, _) in &records {
                    model.take(record);
                }
            }
            Ok(Came::Dropped(lines)) => model.dropped(lines),
            Ok(Came::Done) => break,
            Err(error) => return Err(link.fault(error)),
        }
    }
    if let Some(fault) = reading.several(&meant) {
        return Err(fault);
    }
    let summary = Summary::new(&model, reading.unreadable);
    let text = match (ask.json, as_markdown) {
        (true, _) => json(&summary),
        (false, true) => markdown::markdown(&summary),
        (false, false) => text::text(&summary),
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Fault::new(format!(
            "cannot write to standard output: {error}"
        ))),
        _ => Ok(0),
    }
}

/// A report as data.
#[must_use]
pub fn json(summary: &Summary) -> String {
    // There is nothing in it that JSON could not hold.
    let text = serde_json::to_string_pretty(summary).unwrap_or_default();
    format!("{}\n", agent_sandbox_wire::text::json(&text))
}
