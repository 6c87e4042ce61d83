//! How a trace begins and how it ends.

use std::collections::BTreeSet;
use std::io;

use agent_sandbox_events::protocol::Lifetime;

use super::register::Registered;
use super::{BUDGET, Check, Core, Ending, SLICE};
use crate::service::kernel::Kernel;
use crate::service::limits::Verdict;
use crate::service::process::Process;
use crate::service::refusal::{Refusal, instead, no, room};
use crate::service::registry::Trace;
use crate::service::scope::{self, Tasks};
use crate::trail::{Now, Redaction};

/// An event stands in the ring behind those that were written so long after it, at most, in nanoseconds: a task
/// that writes one can be held up between its look at the clock and its place in the ring.
const HELD_UP: u64 = 100_000_000;

/// Traces are in each other so deep and no deeper: an event of the innermost is for the trails of all.
const DEEPEST: usize = 7;
const _: () = assert!(DEEPEST <= crate::trail::ABOVE);

impl<K: Kernel> Core<K> {
    /// [`agent_sandbox_events::protocol::Request::Begin`]: the trace that `uid` has registered begins, or joins
    /// another one. Returns its id.
    ///
    /// # Errors
    /// It cannot begin; the registration has come to nothing.
    pub fn begin(&mut self, uid: u32, mut registered: Registered) -> Result<u32, Refusal> {
        // It looks at every task of the node, and writes every forbidden file.
        let cost = u32::try_from(registered.forbidden.len() / 64).unwrap_or(u32::MAX);
        self.usage.asked(uid, cost);
        let begun = self.begun(&mut registered);
        if begun.is_err() {
            self.give_up(&registered);
        }
        begun
    }

    /// A registration comes to nothing.
    pub fn give_up(&mut self, registered: &Registered) {
        if !registered.joins {
            self.usage.untraced(registered.uid, 0);
        }
    }

    fn begun(&mut self, registered: &mut Registered) -> Result<u32, Refusal> {
        let ended = || {
            instead(
                "the process has ended meanwhile",
                "keep it alive until the trace has begun",
            )
        };
        let kernel = |error: io::Error| no(format!("the kernel does not take it: {error}"));
        let uid = registered.uid;
        let mark = match &registered.process {
            Some(process) if !process.lives() => return Err(ended()),
            Some(process) => match self.kernel.mark(process.handle()) {
                Ok(mark) => mark,
                Err(_) if !process.lives() => return Err(ended()),
                Err(error) => return Err(kernel(error)),
            },
            None => 0,
        };
        let inside = self.registry.owner(mark);
        let cgroup = registered.register.scope.cgroup;
        // The process's trace; else that of the cgroup. Another user's is none: nothing of this one's tasks is
        // recorded there, and nothing of them will be.
        let parent = inside
            .or_else(|| self.registry.of_cgroup(cgroup?, None))
            .filter(|id| {
                self.registry
                    .get(*id)
                    .is_some_and(|trace| trace.trail.uid == uid)
            });
        let mut trace = self.trace_of(registered, parent);
        let joined = self.registry.joined_by(&trace.trail, &trace);
        if let Some(joined) = joined.filter(|id| !self.ending.contains_key(id)) {
            let outer = self.registry.get(joined).and_then(|trace| trace.parent);
            if parent.is_none() || parent == outer || parent == Some(joined) {
                self.join(joined, mark, trace, registered.process.take())?;
                self.give_up(registered);
                return Ok(joined);
            }
        }
        let outer = parent.and_then(|outer| self.registry.get(outer));
        let count = outer.map_or(trace.forbidden.len(), |outer| {
            trace.forbidden.union(&outer.forbidden).count()
        });
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if self.usage.crowded(uid, u32::from(registered.joins), count) {
            let outer = |id, outer| parent.is_none() || parent == outer || parent == Some(id);
            if let Some(joined) = self.stand_in(&trace, outer) {
                self.join(joined, mark, trace, registered.process.take())?;
                self.give_up(registered);
                return Ok(joined);
            }
        }
        if parent.is_some_and(|outer| self.registry.depth(outer) >= DEEPEST) {
            return Err(instead(
                format!(
                    "this process is in {DEEPEST} traces already, each in another, and there may be no more"
                ),
                "end one of them, or start the trace outside of them",
            ));
        }
        if registered.joins {
            // What it was to join has ended or never begun, or this one belongs elsewhere.
            if self.usage.trace(uid) != Verdict::Room {
                return Err(no("you have too many traces already"));
            }
            self.usage.traced(uid);
            registered.joins = false;
            registered.id = self.registry.fresh();
            trace.trail.trace = registered.id;
        }
        let id = registered.id;
        trace.command = self.without_secrets(&trace)?;
        let started = self.start(id, mark, &mut trace);
        let lives = registered.process.iter().all(|process| process.lives());
        let found = match started {
            Ok(found) => found,
            Err(refusal) => {
                self.undo(id, mark);
                return Err(refusal);
            }
        };
        // A process that lives now was the one that the sweep has found; else it can have been another one
        // that got its number. Of a cgroup there may be no task yet.
        if !lives || (found == 0 && cgroup.is_none()) {
            self.undo(id, mark);
            return Err(ended());
        }
        let redaction = Redaction::new(&trace.redact).map_err(|error| no(error.to_string()));
        let header = trace.header(self.kernel.about());
        let written = redaction.and_then(|redaction| {
            let trail = trace.trail.clone();
            let begun = self
                .trails
                .begin(id, trail, header, redaction, parent, Now::read());
            begun.map_err(|error| no(format!("the records cannot be written: {error}")))
        });
        if let Err(refusal) = written {
            self.undo(id, mark);
            return Err(refusal);
        }
        self.trails.hides(id, &registered.register.hidden);
        self.hold(id, registered.process.take());
        Ok(id)
    }

    fn hold(&mut self, id: u32, process: Option<Process>) {
        let held = self.held.entry(id).or_default();
        held.extend(process.map(Process::keep));
        self.checks.insert(id, Check::after(self.tick));
    }

    /// Whether one more process of a user's may be held, for a trace that goes on without it as well.
    pub(super) fn may_hold(&self, uid: u32) -> bool {
        let (mut all, mut own) = (0, 0);
        for (id, held) in &self.held {
            all += held.len();
            if self
                .registry
                .get(*id)
                .is_some_and(|trace| trace.trail.uid == uid)
            {
                own += held.len();
            }
        }
        own < self.config.limits.processes_per_user as usize && all < self.most_held
    }

    /// The command as it may be remembered: a trail hides the same.
    fn without_secrets(&self, trace: &Trace) -> Result<Vec<String>, Refusal> {
        let redaction =
            |patterns: &[String]| Redaction::new(patterns).map_err(|error| no(error.to_string()));
        let redaction = redaction(&self.config.redact.patterns)?.and(&redaction(&trace.redact)?);
        let arguments: Vec<&[u8]> = trace.command.iter().map(String::as_bytes).collect();
        let hidden = redaction.arguments(&arguments, false);
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        Ok(hidden.iter().map(text).collect())
    }

    /// Makes the trace known and marks its tasks. Returns how many there are.
    fn start(&mut self, id: u32, mark: u32, trace: &mut Trace) -> Result<u64, Refusal> {
        let kernel = |error: io::Error| no(format!("the kernel does not take it: {error}"));
        let uid = trace.trail.uid;
        self.counted = 0;
        if let Some(outer) = trace.parent.and_then(|outer| self.registry.get(outer)) {
            trace.applied = trace.coverage.within(&outer.applied);
            trace.forbidden.extend(&outer.forbidden);
        }
        let count = u32::try_from(trace.forbidden.len()).unwrap_or(u32::MAX);
        room(self.usage.forbidden(uid, count), "forbidden files")?;
        self.registry.insert(id, trace.clone());
        // Known after a crash, whatever of the following has been done.
        self.remember();
        self.usage.forbade(uid, count);
        self.counted = count;
        for (device, inode) in &trace.forbidden {
            self.kernel.forbid(id, *device, *inode).map_err(kernel)?;
        }
        self.enter(id, mark, trace).map_err(kernel)
    }

    /// Tells the probes of a trace whose forbidden files they know, and marks its tasks.
    pub(super) fn enter(&mut self, id: u32, mark: u32, trace: &Trace) -> io::Result<u64> {
        let uid = trace.trail.uid;
        let entry = trace.applied.entry(uid, trace.parent);
        self.kernel.set_trace(id, &entry)?;
        if let Some(cgroup) = trace.cgroup {
            self.kernel.add_cgroup(cgroup, id)?;
        }
        self.mark(id, mark, trace)
    }

    /// Marks the tasks of a trace: those of its processes that have `mark`, and of its cgroup those without one
    /// and those of the trace that it is in.
    fn mark(&mut self, id: u32, mark: u32, trace: &Trace) -> io::Result<u64> {
        let tasks = Tasks {
            trace: id,
            from: mark,
            uid: trace.trail.uid,
            process: None,
            descendants: false,
            cgroup: None,
        };
        let mut found = 0;
        for process in &trace.processes {
            let tasks = Tasks {
                process: Some(process.pid),
                ..tasks
            };
            found += scope::mark(&mut self.kernel, &tasks)?;
        }
        let mut froms = BTreeSet::from([0, mark]);
        froms.extend(trace.parent);
        froms.remove(&id);
        for from in froms {
            let tasks = Tasks {
                from,
                descendants: trace.descendants && found > 0,
                cgroup: trace.cgroup,
                ..tasks
            };
            found += scope::mark(&mut self.kernel, &tasks)?;
        }
        Ok(found)
    }

    /// Adds tasks to a trace that goes on. Joining again changes nothing, and costs neither a descriptor nor a
    /// line of what is remembered.
    fn join(
        &mut self,
        id: u32,
        mark: u32,
        more: Trace,
        process: Option<Process>,
    ) -> Result<(), Refusal> {
        let kernel = |error: io::Error| no(format!("the kernel does not take it: {error}"));
        let ids = self.registry.with_descendants(id);
        self.forbid_in(&ids, &more.forbidden)?;
        if mark != id {
            self.mark(id, mark, &more).map_err(kernel)?;
        }
        self.checks.insert(id, Check::after(self.tick));
        let uid = more.trail.uid;
        let known = self.registry.get(id).is_some_and(|trace| {
            let mut named = more.processes.iter();
            named.all(|named| trace.processes.contains(named))
        });
        let hold = !known && self.may_hold(uid);
        let mut changed = !more.forbidden.is_empty();
        if let Some(trace) = self.registry.get_mut(id) {
            changed |= trace.descendants != (trace.descendants || more.descendants);
            trace.descendants |= more.descendants;
            if hold {
                changed = true;
                trace.processes.extend(more.processes);
            }
        }
        if hold {
            self.hold(id, process);
        }
        if changed {
            self.remember();
        }
        Ok(())
    }

    /// A trace that could not begin.
    fn undo(&mut self, id: u32, mark: u32) {
        let cgroup = self.registry.get(id).and_then(|trace| trace.cgroup);
        let uid = self.registry.get(id).map(|trace| trace.trail.uid);
        if let Some(cgroup) = cgroup {
            self.leave_cgroup(cgroup, id);
        }
        let heir = (mark != 0).then_some(mark);
        let handed = scope::hand_over(&mut self.kernel, id, heir);
        self.complain("marks cannot be taken away", handed.map(drop));
        self.registry.end(id);
        if let Some(uid) = uid {
            let counted = std::mem::take(&mut self.counted);
            self.usage.pardoned(uid, counted);
        }
        let pardoned = self.kernel.pardon(id);
        self.complain("forbidden files cannot be forgotten", pardoned);
        let removed = self.kernel.remove_trace(id);
        self.complain("a trace cannot be forgotten", removed);
        self.registry.forget(id);
        self.remember();
    }

    /// Tasks that come to this cgroup belong to the trace that it had before.
    fn leave_cgroup(&mut self, cgroup: u64, id: u32) {
        let done = match self.registry.of_cgroup(cgroup, Some(id)) {
            Some(holder) => self.kernel.add_cgroup(cgroup, holder),
            None => self.kernel.remove_cgroup(cgroup),
        };
        self.complain("a cgroup cannot be forgotten", done);
    }

    /// [`agent_sandbox_events::protocol::Request::End`].
    ///
    /// # Errors
    /// It goes on as long as its tasks do.
    pub fn end_asked(&mut self, id: u32) -> Result<(), Refusal> {
        let Some(trace) = self.registry.get(id) else {
            return Ok(());
        };
        if trace.lifetime != Lifetime::Connection {
            return Err(no(
                "this trace ends when its tasks have ended, and not before",
            ));
        }
        self.end(id, "whoever asked has ended it");
        Ok(())
    }

    /// The connection that began it has been closed.
    pub fn abandoned(&mut self, id: u32) {
        let lifetime = self.registry.get(id).map(|trace| trace.lifetime);
        if lifetime == Some(Lifetime::Connection) {
            self.end(id, "whoever asked has gone");
        }
    }

    /// Ends a trace: its tasks belong to the trace that it was in, or to none. What is in it goes on.
    pub(super) fn end(&mut self, id: u32, why: &str) {
        if !self.hand_over(id, why) {
            return;
        }
        self.drain(BUDGET, SLICE);
        self.end_those_read();
        if self.ending.contains_key(&id) {
            self.remember();
        }
    }

    /// The first half of it: it has no tasks any more, and ends when what they did has been read. Returns whether
    /// it went on until now.
    pub(super) fn hand_over(&mut self, id: u32, why: &str) -> bool {
        if self.ending.contains_key(&id) {
            return false;
        }
        let Some(trace) = self.registry.get_mut(id) else {
            return false;
        };
        let heir = trace.parent;
        // No task of it comes to the trace any more.
        let cgroup = trace.cgroup.take();
        if let Some(cgroup) = cgroup {
            self.leave_cgroup(cgroup, id);
        }
        let handed = scope::hand_over(&mut self.kernel, id, heir);
        self.complain("marks cannot be handed over", handed.map(drop));
        self.checks.remove(&id);
        let why = why.to_owned();
        let since = Now::read().boot;
        self.ending.insert(id, Ending { why, since });
        true
    }

    /// Ends traces of which nothing more waits to be read.
    pub fn end_those_read(&mut self) {
        let (drained, newest) = (self.drained, self.newest);
        let read = |ending: &Ending| drained || newest > ending.since + HELD_UP;
        let all = self.ending.iter().filter(|(_, ending)| read(ending));
        let all: Vec<u32> = all.map(|(id, _)| *id).collect();
        for id in all {
            if let Some(ending) = self.ending.remove(&id) {
                self.finish(id, &ending.why);
            }
        }
    }

    fn finish(&mut self, id: u32, why: &str) {
        if self.registry.get(id).is_none() {
            return;
        }
        let mut skipped = 0;
        if let Ok(counts) = self.kernel.counts(id) {
            self.trails.lost(id, counts.lost);
            skipped = counts.skipped;
        }
        let ended = self.trails.end(id, why, skipped, Now::read());
        self.complain("the end of a trail cannot be written", ended);
        // It still takes a place in the kernel, and one of the user's, until it is forgotten there.
        self.registry.end(id);
        self.held.remove(&id);
        self.checks.remove(&id);
        self.remember();
    }
}
