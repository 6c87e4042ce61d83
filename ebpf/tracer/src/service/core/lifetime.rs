//! How a trace begins and how it ends.

use std::collections::BTreeSet;
use std::io;

use agent_sandbox_events::protocol::Lifetime;
use tracing::debug;

use super::register::Registered;
use super::{BUDGET, Check, Core, Ending, SLICE};
use crate::logging::TARGET;
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

/// The trace that has a process or a cgroup already, and what becomes of it.
#[derive(Clone, Copy, Debug)]
enum Holder {
    /// It only lasts as long as a connection: a session, a job or a step that begins takes its tasks along.
    Gives(u32),
    /// It keeps them.
    Keeps(u32),
}

/// A task has one trace: this one has it already.
fn kept(id: u32, other: Option<&Trace>) -> Refusal {
    let session = other.and_then(|other| other.trail.session.as_ref());
    let of = session.map_or(String::new(), |session| format!(" of session {session}"));
    let word = session.map_or(format!("trace:{id}"), Clone::clone);
    instead(
        format!("this is recorded already, in trace {id}{of}"),
        &format!("read that: `agent-sandbox watch {word}`"),
    )
}

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
        let cgroup = registered.register.scope.cgroup;
        let mut trace = self.trace_of(registered);
        let holder = self.holder(mark, &trace);
        let allowed = |id| !matches!(holder, Some(Holder::Keeps(other)) if other != id);
        let joined = self.registry.joined_by(&trace.trail, &trace);
        let mut joined = joined.filter(|id| !self.ending.contains_key(id) && allowed(*id));
        let gives = match holder {
            Some(Holder::Gives(id)) => self.registry.get(id),
            _ => None,
        };
        if let Some(outer) = gives {
            trace.coverage = trace.coverage.and(&outer.coverage);
            trace.forbidden.extend(&outer.forbidden);
        }
        let count = u32::try_from(trace.forbidden.len()).unwrap_or(u32::MAX);
        if joined.is_none() && self.usage.crowded(uid, u32::from(registered.joins), count) {
            joined = self.stand_in(&trace, allowed);
        }
        if let (None, Some(Holder::Keeps(id))) = (joined, holder) {
            let other = self.registry.get(id);
            // A step of a job in the trace of the job, for example.
            if !other.is_some_and(|other| other.stands_in_for(&trace)) {
                return Err(kept(id, other));
            }
            joined = Some(id);
        }
        if let Some(joined) = joined {
            self.join(joined, mark, trace, registered.process.take())?;
            self.give_up(registered);
            return Ok(joined);
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
        let started = self.start(id, mark, &trace);
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
            let begun = self.trails.begin(id, trail, header, redaction, Now::read());
            begun.map_err(|error| no(format!("the records cannot be written: {error}")))
        });
        if let Err(refusal) = written {
            self.undo(id, mark);
            return Err(refusal);
        }
        if let Some(Holder::Gives(outer)) = holder
            && let Some(outer) = self.registry.get_mut(outer)
            && outer.cgroup == cgroup
        {
            outer.cgroup = None;
        }
        self.trails.hides(id, &registered.register.hidden);
        debug!(target: TARGET, "trace {id} of user {uid} begins");
        self.hold(id, registered.process.take());
        Ok(id)
    }

    /// The trace of this user's that has the process already, by its mark, or the cgroup. Another user's is none:
    /// nothing of this one's tasks is recorded there, and nothing of them will be.
    fn holder(&self, mark: u32, trace: &Trace) -> Option<Holder> {
        let of_cgroup = trace
            .cgroup
            .and_then(|cgroup| self.registry.of_cgroup(cgroup));
        // One that keeps its tasks counts before one that gives them, whichever of the two the process or the cgroup has.
        let mut gives = None;
        for id in [Some(mark), of_cgroup].into_iter().flatten() {
            let Some(other) = self.registry.get(id) else {
                continue;
            };
            if other.trail.uid != trace.trail.uid || self.ending.contains_key(&id) {
                continue;
            }
            let lasts = |trace: &Trace| trace.lifetime == Lifetime::Tasks;
            if !lasts(trace) || lasts(other) {
                return Some(Holder::Keeps(id));
            }
            gives = gives.or(Some(Holder::Gives(id)));
        }
        gives
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
    fn start(&mut self, id: u32, mark: u32, trace: &Trace) -> Result<u64, Refusal> {
        let kernel = |error: io::Error| no(format!("the kernel does not take it: {error}"));
        let uid = trace.trail.uid;
        self.counted = 0;
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
        let entry = trace.coverage.entry(uid);
        self.kernel.set_trace(id, &entry)?;
        if let Some(cgroup) = trace.cgroup {
            self.kernel.add_cgroup(cgroup, id)?;
        }
        self.mark(id, mark, trace)
    }

    /// Marks the tasks of a trace: those of its processes that have `mark`, and of its cgroup those that have it and those
    /// without one. Those of other traces stay there.
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
        self.forbid_in(id, &more.forbidden)?;
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

    /// Tasks that come to this cgroup belong to no trace, or to the one that gave it.
    fn leave_cgroup(&mut self, cgroup: u64, id: u32) {
        if let Some(trace) = self.registry.get_mut(id) {
            trace.cgroup = None;
        }
        let done = match self.registry.of_cgroup(cgroup) {
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

    /// Ends a trace: its tasks belong to none.
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
        let Some(trace) = self.registry.get(id) else {
            return false;
        };
        // No task of it comes to the trace any more.
        if let Some(cgroup) = trace.cgroup {
            self.leave_cgroup(cgroup, id);
        }
        let handed = scope::hand_over(&mut self.kernel, id, None);
        self.complain("marks cannot be taken away", handed.map(drop));
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
        debug!(target: TARGET, "trace {id} ends: {why}");
        // It still takes a place in the kernel, and one of the user's, until it is forgotten there.
        self.registry.end(id);
        self.held.remove(&id);
        self.checks.remove(&id);
        self.remember();
    }
}
