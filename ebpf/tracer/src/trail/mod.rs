//! Trails: from what the probes see to records that are kept, and read back.
//!
//! An event waits up to a second for others that are alike ([`fold`]), becomes a record without secrets
//! ([`what`], [`redact`]), gets its number when it is written ([`writer`]), and is kept in files that only the
//! tracer reads ([`store`]). Nothing that fails here stops the tracer, and nothing is lost without being counted.

mod allowance;
mod clock;
mod fold;
mod hidden;
mod line;
mod out;
mod reading;
mod redact;
mod sinks;
mod store;
mod what;
mod words;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent_sandbox_events::protocol::{HiddenNames, Listed, Which};
use agent_sandbox_events::raw::Event;
use agent_sandbox_events::record::{Header, Trail};
use thiserror::Error;

use hidden::Hidden;

pub use clock::Now;
pub use reading::Reader;
pub use redact::{BadPattern, PATTERN_BYTES, PATTERN_STARS, PATTERNS, Redaction};
pub use store::StoreLimits;

use clock::SECOND;
use fold::Fold;
use out::Out;
use sinks::Sink;
use store::Store;
use writer::Writer;

/// How trails are kept.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The directory.
    pub records: PathBuf,
    /// The node's name, for names of files.
    pub node: String,
    /// How much room they take.
    pub limits: StoreLimits,
    /// Patterns of arguments that are secrets, beside those that are known.
    pub redact: Vec<String>,
    /// Records go to journald, too.
    pub journald: bool,
    /// Records go to syslog, too.
    pub syslog: bool,
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
    /// journald or syslog.
    #[error("cannot make a socket for journald or syslog")]
    Sink(#[source] io::Error),
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

/// An event is written to so many trails: its trace's and those above it. There are mostly two: a session's and
/// what a user starts in it. The service refuses traces that are deeper; should there be one all the same, the
/// trails beyond say that they lost its events.
pub(crate) const ABOVE: usize = 8;

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
        let mut sinks = Vec::new();
        if settings.journald {
            sinks.push(Sink::journald().map_err(Error::Sink)?);
        }
        if settings.syslog {
            sinks.push(Sink::syslog().map_err(Error::Sink)?);
        }
        Ok(Self {
            site,
            fold: Fold::new(),
            out: Out::new(store, sinks, settings.command_milliseconds, now),
            ended: Vec::new(),
            events: 0,
        })
    }

    /// As [`Settings::command_milliseconds`], from now on.
    pub fn limit_commands(&mut self, milliseconds: u32) {
        self.out.limit_commands(milliseconds);
    }

    /// A trail begins: its header is written. `trail.trace` is the trace's id; the events of traces whose
    /// `parent` it is come to it, too. The header's command holds no secrets: the caller keeps it as well, and has hidden
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
        parent: Option<u32>,
        now: Now,
    ) -> io::Result<()> {
        self.out.pass(now);
        let redaction = self.site.clone().and(&redaction);
        let writer = Writer::new(trail, header, redaction, parent, &now);
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
    #[expect(clippy::too_many_arguments, reason = "as begin, and for how long")]
    pub fn resume(
        &mut self,
        trace: u32,
        trail: Trail,
        header: Header,
        redaction: Redaction,
        parent: Option<u32>,
        away: f64,
        now: Now,
    ) -> io::Result<()> {
        self.out.pass(now);
        let redaction = self.site.clone().and(&redaction);
        let mut writer = Writer::new(trail, header, redaction, parent, &now);
        let files = self.out.store.of(&writer.trail)?;
        let mut since = None;
        if let Some(last) = files.last() {
            // Its header at least was read.
            let record = self.out.store.last(last);
            let (seq, lost, time) = record.unwrap_or((last.first, 0, last.began));
            since = Some(time);
            // Files that were removed had numbers, too: a new one takes the next that is free.
            let number = u32::try_from(files.len()).unwrap_or(u32::MAX);
            writer.goes_on(last.began, seq, lost, number);
            // Of what was removed nobody knows any more: it is missing behind the first file.
            let first = files.first().and_then(|first| self.out.store.last(first));
            if let (Some((end, ..)), Some(second)) = (first, files.get(1))
                && end + 1 < second.first
            {
                writer.misses(end + 1, second.first - 1);
            }
        }
        writer.was_away(away.max(0.0), since, &now);
        self.out.start(trace, writer)
    }

    /// Takes an event in.
    pub fn event(&mut self, event: &Event<'_>) {
        self.events += 1;
        let own = event.head.trace;
        let mut next = Some(own);
        for _ in 0..ABOVE {
            let Some(trace) = next else { return };
            let Some(writer) = self.out.writers.get_mut(&trace) else {
                return;
            };
            next = writer.parent;
            if !writer.wants(event, trace == own) {
                continue;
            }
            let Err(hash) = self.fold.count(trace, event) else {
                continue;
            };
            while !self.fold.room(event) {
                let out = &mut self.out;
                if !self
                    .fold
                    .oldest(u64::MAX, &mut |waited| out.record(&waited))
                {
                    break;
                }
            }
            if !self.fold.keep(trace, event, hash) {
                // It is longer than all the room there is, which the parser does not let through.
                self.out.lost(trace, 1);
            }
        }
        if let Some(beyond) = next {
            self.out.lost(beyond, 1);
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
        // What happens below it goes on to who is above it.
        for below in self.out.writers.values_mut() {
            if below.parent == Some(trace) {
                below.parent = writer.parent;
            }
        }
        // What is removed to make room for the last records is said before the very last.
        let _ = self.out.write_one(&mut writer);
        self.out.tell_removals(Some(&mut writer));
        writer.end(why, skipped, &now);
        let written = self.out.write_one(&mut writer);
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

    /// Whether anybody follows: lines are kept for [`Trails::live`] only then.
    pub fn watch(&mut self, anybody: bool) {
        self.out.followed.watch(anybody);
    }

    /// The lines that were written since the last call, each with its trail, which may have ended since.
    pub fn live(&mut self, take: &mut dyn FnMut(&Trail, &[u8])) {
        self.out.followed.take(take);
    }

    /// Reads what is written now, of the trails that the viewer may see (everybody their own, root all). With
    /// [`Trails::live`] emptied before, what comes there is just what is not in this.
    ///
    /// # Errors
    /// The trails cannot be read.
    pub fn reader(&mut self, viewer: u32, which: &Which) -> io::Result<Reader> {
        let which = match which {
            Which::Newest => match self.newest(viewer)? {
                Some(newest) => newest,
                // There is nothing: nor is there of a session without a name.
                None => Which::Session(String::new()),
            },
            which => which.clone(),
        };
        Reader::new(&self.out.store, viewer, &which)
    }

    /// What there is to read for that viewer: the newest thousand, the newest first.
    ///
    /// # Errors
    /// The trails cannot be read, or there are too many.
    pub fn list(&self, viewer: u32) -> io::Result<Vec<Listed>> {
        let writers = &self.out.writers;
        let live = |file: &store::TrailFile| {
            let writer = writers.get(&file.trail.trace);
            writer.is_some_and(|writer| {
                *writer.trail == file.trail && clock::same(writer.header.began, file.began)
            })
        };
        reading::list(&self.out.store, viewer, &live)
    }

    /// What [`Which::Newest`] is for that viewer; none if there is nothing.
    ///
    /// # Errors
    /// As [`Trails::list`].
    pub fn newest(&self, viewer: u32) -> io::Result<Option<Which>> {
        reading::newest(&self.out.store, viewer)
    }

    /// Whether a trail is among those that are asked for by that viewer. [`Which::Newest`] has to be said
    /// otherwise before ([`Trails::newest`]).
    #[must_use]
    pub fn takes(&self, viewer: u32, which: &Which, trail: &Trail) -> bool {
        reading::takes(viewer, which, self.out.store.node(), trail)
    }

    /// How it goes.
    #[must_use]
    pub fn state(&self) -> State {
        State {
            events: self.events,
            lost: self.out.lost,
            trouble: self.out.trouble(),
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
