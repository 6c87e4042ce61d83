//! Where records go: to the writers of their trails, from there to files and journald.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

use agent_sandbox_events::raw::About;
use agent_sandbox_events::record::Trail;

use super::allowance::Allowance;
use super::clock::Now;
use super::fold::Waited;
use super::journal::Journal;
use super::store::Store;
use super::what::{denied, what};
use super::writer::Writer;

/// Lines wait to be written up to so many bytes, of all trails together.
const WAITING: usize = 1024 * 1024;

/// Where records go.
#[derive(Debug)]
pub(super) struct Out {
    /// Trails that go on, by their traces.
    pub(super) writers: HashMap<u32, Writer>,
    /// Of those, the ones that something waits to be written of.
    dirty: BTreeSet<u32>,
    /// So many bytes do.
    waiting: usize,
    pub(super) store: Store,
    journal: Option<Journal>,
    /// Events that were lost, of all trails.
    pub(super) lost: u64,
    /// The last error of a write, by user; gone when one succeeds.
    failing: BTreeMap<u32, String>,
    /// Why old files cannot be removed.
    aging: Option<String>,
    /// What users' commands may still take of the tracer's time.
    allowance: Allowance,
    pub(super) now: Now,
}

impl Out {
    pub(super) fn new(
        store: Store,
        journal: Option<Journal>,
        command_milliseconds: u32,
        now: Now,
    ) -> Self {
        Self {
            writers: HashMap::new(),
            dirty: BTreeSet::new(),
            waiting: 0,
            store,
            journal,
            lost: 0,
            failing: BTreeMap::new(),
            aging: None,
            allowance: Allowance::new(command_milliseconds),
            now,
        }
    }

    /// As [`super::Settings::command_milliseconds`], from now on.
    pub(super) fn limit_commands(&mut self, milliseconds: u32) {
        self.allowance.set(milliseconds);
    }

    /// A trail begins, or goes on: what it has to say first is written.
    pub(super) fn start(&mut self, trace: u32, mut writer: Writer) -> io::Result<()> {
        writer.header();
        let written = self.write_one(&mut writer);
        self.writers.insert(trace, writer);
        written
    }

    /// The trail of a trace, which is not written here any more.
    pub(super) fn take(&mut self, trace: u32) -> Option<Writer> {
        let writer = self.writers.remove(&trace)?;
        if self.dirty.remove(&trace) {
            self.waiting = self.waiting.saturating_sub(writer.waits());
        }
        Some(writer)
    }

    /// Events become a record.
    pub(super) fn record(&mut self, waited: &Waited<'_>) {
        let Some(writer) = self.writers.get_mut(&waited.trail) else {
            return;
        };
        let before = writer.waits();
        let uid = writer.trail.uid;
        let what = if texts(&waited.event.about) {
            let redaction = self.allowance.has(uid).then_some(&writer.redaction);
            let begun = Now::of_this_thread();
            let what = what(&waited.event, redaction, &writer.hidden, waited.count);
            let taken = Now::of_this_thread().saturating_sub(begun);
            self.allowance.take(uid, taken);
            what
        } else {
            what(
                &waited.event,
                Some(&writer.redaction),
                &writer.hidden,
                waited.count,
            )
        };
        writer.denied = writer.denied.saturating_add(denied(&what));
        writer.add(self.now.at(waited.event.head.time), &what, waited.count);
        self.waiting += writer.waits() - before;
        self.dirty.insert(waited.trail);
        if self.waiting > WAITING {
            self.write();
        }
    }

    /// The clock is there: what has passed since it was read last is given back to users.
    pub(super) fn pass(&mut self, now: Now) {
        self.allowance.pass(now.boot.saturating_sub(self.now.boot));
        self.now = now;
    }

    /// More events of a trace are lost.
    pub(super) fn lost(&mut self, trace: u32, more: u64) {
        self.lost += more;
        if let Some(writer) = self.writers.get_mut(&trace).filter(|_| more > 0) {
            writer.lose(more);
            self.dirty.insert(trace);
        }
    }

    /// Writes what waits.
    pub(super) fn write(&mut self) {
        self.waiting = 0;
        for trace in std::mem::take(&mut self.dirty) {
            if let Some(mut writer) = self.writers.remove(&trace) {
                if self.write_one(&mut writer).is_err() {
                    // What was lost is to be told, as soon as that can be done.
                    self.dirty.insert(trace);
                }
                self.writers.insert(trace, writer);
            }
        }
    }

    /// Writes what waits of one trail.
    pub(super) fn write_one(&mut self, writer: &mut Writer) -> io::Result<()> {
        let Self {
            store,
            journal,
            now,
            ..
        } = self;
        let trail = writer.trail.clone();
        let written = writer.write(store, now, &mut |line| {
            if let Some(journal) = &mut *journal {
                journal.send(&trail, line);
            }
        });
        match written {
            Ok(()) => {
                self.failing.remove(&trail.uid);
                Ok(())
            }
            Err((lost, why)) => {
                self.lost += lost;
                self.failing
                    .insert(trail.uid, format!("user {}: {why}", trail.uid));
                Err(io::Error::other(why))
            }
        }
    }

    /// A line of the audit record goes to journald, too.
    pub(super) fn journal(&mut self, trail: &Trail, line: &[u8]) {
        if let Some(journal) = &mut self.journal {
            journal.send(trail, line);
        }
    }

    /// Time goes on.
    pub(super) fn age(&mut self) {
        let aged = self.store.age(&self.now);
        self.aging = aged
            .err()
            .map(|error| format!("old trails cannot be removed: {error}"));
        if let Some(journal) = &mut self.journal {
            journal.go_on();
        }
    }

    /// What is wrong, a sentence each.
    pub(super) fn trouble(&self) -> Vec<String> {
        let mut trouble: Vec<String> = self.failing.values().cloned().collect();
        trouble.extend(self.aging.clone());
        trouble.extend(self.journal.as_ref().and_then(Journal::trouble));
        trouble
    }
}

/// Whether an event has texts of which a user chooses how long it takes to find secrets in them. A name of a file is
/// gone through once.
fn texts(about: &About<'_>) -> bool {
    matches!(about, About::Exec { .. } | About::Operation { .. })
}
