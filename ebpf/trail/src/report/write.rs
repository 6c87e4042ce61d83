//! `agent-sandbox report`: asks for trails, and prints what they come to.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: looks at the clock and waits"
)]

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_sandbox_events::ask::{Ask, Untraced};

use super::{OneTrail, Summary, markdown, text};
use crate::fault::Fault;
use crate::link::{Link, Meant, Reading};
use crate::model::{Model, TableLimits};

/// A trail that has just begun or gone on may be about to have more: records are written within a second.
const FRESH: f64 = 2.0;
/// After so long they are there.
const WRITTEN: Duration = Duration::from_millis(1200);

/// Prints a report.
///
/// # Errors
/// The tracer cannot be asked, there is no such trail, or standard output cannot be written.
pub fn report(ask: &Ask, word: Option<&str>, as_markdown: bool) -> Result<u8, Fault> {
    let link = Link::of(ask);
    let meant = link.which(word, ask.uid)?;
    let (mut reading, mut model) = read(&link, &meant)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    if now.is_ok_and(|now| model.trails.any_is_fresh(now.as_secs_f64(), FRESH)) {
        std::thread::sleep(WRITTEN);
        (reading, model) = read(&link, &meant)?;
    }
    if let Some(fault) = reading.several(&meant) {
        return Err(fault);
    }
    let mut summary = Summary::new(&model, reading.unreadable());
    summary.unseen.untraced = untraced(&ask.untraced, &summary.trails);
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

/// Of these steps those that belong to the report: of its sessions, or of the one job that it is about.
fn untraced(all: &[Untraced], trails: &[OneTrail]) -> Vec<Untraced> {
    let job = trails.first().and_then(|first| first.job);
    let job = job.filter(|job| trails.iter().all(|one| one.job == Some(*job)));
    let belongs = |step: &&Untraced| {
        // Of another user's session nobody notes anything.
        let session = |one: &OneTrail| {
            one.session.as_deref() == Some(step.session.as_str())
                && step.uid.is_none_or(|uid| uid == one.uid)
        };
        trails.iter().any(session) && job.is_none_or(|job| job == step.job)
    };
    all.iter().filter(belongs).cloned().collect()
}

/// Reads all that there is of trails.
fn read(link: &Link, meant: &Meant) -> Result<(Reading, Model), Fault> {
    let mut reading = link.read_meant(meant)?;
    let mut model = Model::new(TableLimits::REPORT);
    loop {
        let records = reading.take().map_err(|error| link.fault(error))?;
        if records.is_empty() {
            return Ok((reading, model));
        }
        for (record, _) in &records {
            model.take(record);
        }
    }
}

/// A report as data.
#[must_use]
pub fn json(summary: &Summary) -> String {
    // There is nothing in it that JSON could not hold.
    let text = serde_json::to_string_pretty(summary).unwrap_or_default();
    format!("{}\n", agent_sandbox_wire::text::json(&text))
}
