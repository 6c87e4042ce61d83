//! Trails: from what the probes see to records that are kept.
//!
//! An event waits up to a second for others that are alike ([`fold`]), becomes a record without secrets
//! ([`what`], [`redact`]), gets its number when it is written ([`writer`]), and is kept in files that only the
//! tracer reads ([`store`]). Nothing that fails here stops the tracer, and nothing is lost without being counted.

mod allowance;
mod audit;
mod clock;
mod fold;
mod hidden;
mod journal;
mod line;
mod out;
mod redact;
mod store;
mod what;
mod words;
mod writer;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_sandbox_events::audit::Handed;
use agent_sandbox_events::protocol::{HiddenNames, TrailFile, Which};
use agent_sandbox_events::raw::Event;
use agent_sandbox_events::record::{Header, Trail};
use thiserror::Error;

use hidden::Hidden;

pub use clock::Now;
pub use redact::{BadPattern, PATTERN_BYTES, PATTERN_STARS, PATTERNS, Redaction};
pub use store::StoreLimits;

use audit::AuditRecord;
use clock::SECOND;
use fold::Fold;
use journal::Journal;
use out::Out;
use store::Store;
use writer::Writer;

/// How trails are kept.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The directory.
    pub records: PathBuf,
    /// The directory of the audit record; none if it is empty.
    pub audit: PathBuf,
    /// The node's name, for names of files.
    pub node: String,
    /// How much room they take.
    pub limits: StoreLimits,
    /// Patterns of arguments that are secrets, beside those that are known.
    pub redact: Vec<String>,
    /// Records go to journald, too.
    pub journald: bool,
    /// Milliseconds of the processor in a second that searching one user's commands for secrets may take.
    pub command_milliseconds: u32,
}

/// Why trails cannot be kept at all.
#[derive(Debug, Error)]
pub enum Error {
    /// The directory.
    #[error("cannot keep trails in `{}`", .0.display())]
    Directory(PathBuf, #[source] io::Error),
    /// A pattern of the site's.
    #[error("cannot read the patterns of what is secret")]
    Pattern(#[source] BadPattern),
    /// journald.
    #[error("cannot make a socket for journald")]
    Journal(#[source] io::Error),
}

/// How it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Events that were taken in.
    pub events: u64,
    /// Events that were lost here, or that the kernel counted as lost.
    pub lost: u64,
    /// What is wrong, a sentence each.
    pub trouble: Vec<String>,
}

/// Trails whose last records cannot be written are tried again so long, in nanoseconds.
const PATIENCE: u64 = 600 * SECOND;

/// So many of them are kept for that.
const ENDED: usize = 1024;

/// Of each tick so much time goes to records, in nanoseconds of a processor: connections and events come in between.
const RELEASE: u64 = SECOND / 50;

/// The clock is looked at after so many records.
const CLOCK: usize = 16;

/// All trails that are being written.
#[derive(Debug)]
pub struct Trails {
    site: Redaction,
    fold: Fold,
    out: Out,
    audit: AuditRecord,
    /// Trails that have ended and whose end is not written yet, and until when it is tried.
    ended: Vec<(Writer, u64)>,
    events: u64,
}

impl Trails {
    /// Opens the directory of the trails.
    ///
    /// # Errors
    /// It cannot be made or read, or others than we can change it.
    pub fn open(settings: &Settings, now: Now) -> Result<Self, Error> {
        let site = Redaction::new(&settings.redact).map_err(Error::Pattern)?;
        let store = Store::open(&settings.records, &settings.node, settings.limits)
            .map_err(|error| Error::Directory(settings.records.clone(), error))?;
        let journal = settings.journald.then(Journal::new);
        let journal = journal.transpose().map_err(Error::Journal)?;
        Ok(Self {
            site,
            fold: Fold::new(),
            audit: AuditRecord::open(&settings.audit, &settings.node, settings.limits),
            out: Out::new(store, journal, settings.command_milliseconds, now),
            ended: Vec::new(),
            events: 0,
        })
    }

    /// As [`Settings::command_milliseconds`], from now on.
    pub fn limit_commands(&mut self, milliseconds: u32) {
        self.out.limit_commands(milliseconds);
    }

    /// A trail begins: its header is written. `trail.trace` is the trace's id. The header's command holds no secrets: the caller keeps it as well, and has hidden
    /// them ([`Redaction::arguments`]).
    ///
    /// # Errors
    /// The header cannot be written. The trail has begun all the same, and is written as soon as that works.
    pub fn begin(
        &mut self,
        trace: u32,
        trail: Trail,
        header: Header,
        redaction: Redaction,
        now: Now,
    ) -> io::Result<()> {
        self.out.pass(now);
        let redaction = self.site.clone().and(&redaction);
        let writer = Writer::new(trail, header, redaction, &now);
        self.out.start(trace, writer)
    }

    /// Opens of these are recorded in the trace's trail and marked, whether anything is there or not.
    pub fn hides(&mut self, trace: u32, names: &[HiddenNames]) {
        if names.is_empty() {
            return;
        }
        let hidden = Hidden::new(names);
        // All steps of a user's jobs send the same: it is kept once.
        let mut others = self.out.writers.values().map(|writer| &writer.hidden);
        let same = others.find(|other| ***other == hidden).cloned();
        if let Some(writer) = self.out.writers.get_mut(&trace) {
            writer.hidden = same.unwrap_or_else(|| Arc::new(hidden));
        }
    }

    /// A trail goes on after the tracer was away, for so many seconds.
    ///
    /// # Errors
    /// As [`Trails::begin`].
    pub fn resume(
        &mut self,
        trace: u32,
        trail: Trail,
        header: Header,
        redaction: Redaction,
        away: f64,
        now: Now,
    ) -> io::Result<()> {
        self.out.pass(now);
        let redaction = self.site.clone().and(&redaction);
        let mut writer = Writer::new(trail, header, redaction, &now);
        let last = self.out.store.last(&writer.trail)?;
        if let Some(last) = last {
            writer.goes_on(&last);
        }
        let since = last.map(|last| last.time);
        writer.was_away(away.max(0.0), since, &now);
        self.out.start(trace, writer)
    }

    /// Takes an event in.
    pub fn event(&mut self, event: &Event<'_>) {
        self.events += 1;
        let trace = event.head.trace;
        let Some(writer) = self.out.writers.get(&trace) else {
            return;
        };
        if !writer.takes(event) {
            return;
        }
        let Err(hash) = self.fold.count(trace, event) else {
            return;
        };
        while !self.fold.room(event) {
            let out = &mut self.out;
            let oldest = self
                .fold
                .oldest(u64::MAX, &mut |waited| out.record(&waited));
            if !oldest {
                break;
            }
        }
        if !self.fold.keep(trace, event, hash) {
            // It is longer than all the room there is, which the parser does not let through.
            self.out.lost(trace, 1);
        }
    }

    /// What the kernel has lost of a trace's events, altogether.
    pub fn lost(&mut self, trace: u32, total: u64) {
        let Some(writer) = self.out.writers.get_mut(&trace) else {
            return;
        };
        let more = writer.kernel_lost(total);
        self.out.lost(trace, more);
    }

    /// Time goes on: what has waited for a second is written. To be called a few times a second.
    pub fn tick(&mut self, now: Now) {
        self.out.pass(now);
        self.release(now.boot.saturating_sub(SECOND), RELEASE);
        self.write_ended();
        self.out.write();
        self.out.age();
        self.audit.pass(&now);
    }

    /// Writes all, whether it has waited or not.
    pub fn flush(&mut self, now: Now) {
        self.out.pass(now);
        self.release(u64::MAX, u64::MAX);
        self.out.write();
    }

    /// Lets go what is from before that time, for so many nanoseconds of this thread's: the rest is let go the next time.
    fn release(&mut self, before: u64, time: u64) {
        let out = &mut self.out;
        let begun = Now::of_this_thread();
        let mut count: usize = 0;
        while self.fold.oldest(before, &mut |waited| out.record(&waited)) {
            count += 1;
            let looks = count.is_multiple_of(CLOCK);
            if looks && Now::of_this_thread().saturating_sub(begun) >= time {
                break;
            }
        }
    }

    /// Keeps what a user has handed over, in the audit record. `trace`: that of the session, if there is one.
    ///
    /// # Errors
    /// It cannot be kept; or that user has had too much kept, of which the next record tells.
    pub fn audit(
        &mut self,
        uid: u32,
        trace: Option<u32>,
        handed: &Handed,
        now: Now,
    ) -> io::Result<()> {
        let line = self.audit.handed(uid, trace, handed, &now)?;
        self.out.journal(&line.0, &line.1);
        Ok(())
    }

    /// A trail ends: its last record is written. `skipped`: opens that the kernel left out, because only
    /// every Nth is recorded.
    ///
    /// # Errors
    /// It cannot be written. That is tried again for some minutes.
    pub fn end(&mut self, trace: u32, why: &str, skipped: u64, now: Now) -> io::Result<()> {
        self.out.pass(now);
        let out = &mut self.out;
        self.fold.all_of(trace, &mut |waited| out.record(&waited));
        let Some(mut writer) = self.out.take(trace) else {
            return Ok(());
        };
        writer.end(why, skipped, &now);
        let written = self.out.write_one(&mut writer);
        if let Some(line) = self.audit.ended(&writer.trail, writer.denied, &now) {
            self.out.journal(&writer.trail, &line);
        }
        if written.is_ok() {
            writer.leave(&mut self.out.store);
        } else if self.ended.len() < ENDED {
            self.ended.push((writer, now.boot.saturating_add(PATIENCE)));
        }
        written
    }

    /// Tries again to write the ends of trails that could not be written.
    fn write_ended(&mut self) {
        let now = self.out.now;
        for (mut writer, until) in std::mem::take(&mut self.ended) {
            writer.end_again(&now);
            if self.out.write_one(&mut writer).is_ok() {
                writer.leave(&mut self.out.store);
            } else if now.boot < until {
                self.ended.push((writer, until));
            }
        }
    }

    /// The next files of trails behind that one, of those that the viewer may read (everybody their own, root all). A
    /// name can only rule a file out.
    ///
    /// # Errors
    /// The directories cannot be read.
    pub fn files(
        &self,
        viewer: u32,
        which: &Which,
        after: Option<&(u32, String)>,
    ) -> io::Result<Vec<TrailFile>> {
        self.out.store.files(viewer, which, after)
    }

    /// Opens a file of a trail to be read, if it is there and the viewer may read it.
    ///
    /// # Errors
    /// It cannot be opened now.
    pub fn open_file(&self, viewer: u32, uid: u32, name: &str) -> std::io::Result<Option<OwnedFd>> {
        self.out.store.open_file(viewer, uid, name)
    }

    /// How it goes.
    #[must_use]
    pub fn state(&self) -> State {
        State {
            events: self.events,
            lost: self.out.lost,
            trouble: self
                .out
                .trouble()
                .into_iter()
                .chain(self.audit.trouble())
                .collect(),
        }
    }

    /// Where the trails are kept.
    #[must_use]
    pub fn records(&self) -> &Path {
        self.out.store.records()
    }
}

#[cfg(test)]
mod tests;
