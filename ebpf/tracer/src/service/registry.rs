//! The traces that there are, and which is in which.

use std::collections::{BTreeMap, BTreeSet};

use agent_sandbox_events::protocol::Lifetime;
use agent_sandbox_events::record::{Header, Trail};
use serde::{Deserialize, Serialize};

use super::coverage::Coverage;
use crate::kernel::About;

/// Ids are given out below this one: the self-test's is above, and `UINT_MAX` means "whatever mark".
const IDS: u32 = 1 << 31;

/// A file as the probes know it: device and inode.
pub type File = (u32, u64);

/// A process, whoever gets its number later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Named {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since the boot (`proc_pid_stat(5)`).
    pub start: u64,
}

/// A trace that goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Its trail.
    pub trail: Trail,
    /// The trace that it is in: its events belong to that one as well.
    pub parent: Option<u32>,
    /// What its own trail shows. Traces that an older tracer kept have it under this name.
    #[serde(rename = "wish")]
    pub coverage: Coverage,
    /// What the probes do: with what the traces do that it is in.
    pub applied: Coverage,
    /// What its tasks must not touch, with what they must not for the traces that it is in.
    pub forbidden: BTreeSet<File>,
    /// When it ends.
    pub lifetime: Lifetime,
    /// The processes that it began with: several where the tasks of a step join.
    pub processes: Vec<Named>,
    /// Whether their descendants were meant, too.
    pub descendants: bool,
    /// The cgroup.
    pub cgroup: Option<u64>,
    /// The command, as it was told.
    pub command: Vec<String>,
    /// Patterns of secrets.
    pub redact: Vec<String>,
    /// Whether nothing but its caller's word says of which job it is.
    #[serde(default)]
    pub job_unverified: bool,
}

/// What the header of such a trail says.
const UNVERIFIED: &str =
    "the number of the job is what the user's programs said: no cgroup of Slurm's tells it";

impl Trace {
    /// What its trail says of itself.
    #[must_use]
    pub fn header(&self, about: &About) -> Header {
        let mut header = self.coverage.header(about, &self.command);
        if self.job_unverified {
            header.blind.push(UNVERIFIED.to_owned());
        }
        header
    }

    /// Whether another task of the same step, or of the same job, joins: it asks for the same. Who only says that
    /// it is of the job does not come to what Slurm knows of it.
    #[must_use]
    pub fn is_joined_by(&self, trail: &Trail, like: &Trace) -> bool {
        let name = |trail: &Trail| {
            (
                trail.uid,
                trail.session.clone(),
                trail.job,
                trail.step.clone(),
            )
        };
        trail.job.is_some()
            && name(&self.trail) == name(trail)
            && self.coverage == like.coverage
            && self.redact == like.redact
            && self.cgroup == like.cgroup
            && self.job_unverified == like.job_unverified
            && self.lifetime == Lifetime::Tasks
            && like.lifetime == Lifetime::Tasks
    }
}

/// What has ended and of which tasks may still be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The trace that its tasks belong to now.
    pub heir: Option<u32>,
    /// Whether things were forbidden to it.
    pub forbade: bool,
    /// So many times in a row none was found.
    pub none: u32,
    /// Whose it was: until it is forgotten it takes the place of one of that user's. None if nobody knows.
    #[serde(default)]
    pub uid: Option<u32>,
    /// As many forbidden files the kernel has of it.
    #[serde(default)]
    pub files: u32,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Registry {
    last: u32,
    traces: BTreeMap<u32, Trace>,
    ended: BTreeMap<u32, Ended>,
    /// The one of those that was looked at last.
    #[serde(skip)]
    turn: u32,
}

impl Registry {
    /// An id that no trace has had since the boot.
    #[must_use]
    pub fn fresh(&mut self) -> u32 {
        loop {
            self.last = if self.last + 1 >= IDS {
                1
            } else {
                self.last + 1
            };
            if !self.traces.contains_key(&self.last) && !self.ended.contains_key(&self.last) {
                return self.last;
            }
        }
    }

    /// Ids up to this one have been given out.
    pub fn skip_to(&mut self, last: u32) {
        self.last = self.last.max(last.min(IDS - 1));
    }

    /// A trace begins.
    pub fn insert(&mut self, id: u32, trace: Trace) {
        self.traces.insert(id, trace);
    }

    /// A trace that goes on.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&Trace> {
        self.traces.get(&id)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut Trace> {
        self.traces.get_mut(&id)
    }

    /// All that go on.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Trace)> {
        self.traces.iter().map(|(id, trace)| (*id, trace))
    }

    /// How many go on.
    #[must_use]
    pub fn len(&self) -> usize {
        self.traces.len()
    }

    /// Whether none goes on and none is being ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.traces.is_empty() && self.ended.is_empty()
    }

    /// Whether a trace goes on, or is being ended, within this one. Until then it has not ended either.
    #[must_use]
    pub fn has_children(&self, id: u32) -> bool {
        let mut parents = self.traces.values().map(|trace| trace.parent);
        let mut heirs = self.ended.values().map(|ended| ended.heir);
        parents.any(|parent| parent == Some(id)) || heirs.any(|heir| heir == Some(id))
    }

    /// This trace and all within it that go on.
    #[must_use]
    pub fn with_descendants(&self, id: u32) -> Vec<u32> {
        let mut found = vec![id];
        let mut at = 0;
        while let Some(outer) = found.get(at).copied() {
            let inner = self.iter().filter(|(_, trace)| trace.parent == Some(outer));
            found.extend(inner.map(|(id, _)| id));
            at += 1;
        }
        found
    }

    /// The trace that tasks of this cgroup come to belong to: of several the innermost, but not `without`.
    #[must_use]
    pub fn of_cgroup(&self, cgroup: u64, without: Option<u32>) -> Option<u32> {
        let all = self.iter().filter(|(id, _)| Some(*id) != without);
        let holders = all.filter(|(_, trace)| trace.cgroup == Some(cgroup));
        holders.map(|(id, _)| id).max_by_key(|id| self.depth(*id))
    }

    /// The trace that another task of the same step, or of the same job, joins.
    #[must_use]
    pub fn joined_by(&self, trail: &Trail, like: &Trace) -> Option<u32> {
        let mut all = self.iter();
        all.find(|(_, trace)| trace.is_joined_by(trail, like))
            .map(|(id, _)| id)
    }

    /// All that go on, outer ones before those in them.
    #[must_use]
    pub fn outer_first(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.traces.keys().copied().collect();
        ids.sort_by_key(|id| self.depth(*id));
        ids
    }

    /// The probes know a trace that nobody else knows: its tasks belong to none.
    pub fn unknown(&mut self, id: u32) {
        let ended = Ended {
            heir: None,
            forbade: true,
            none: 0,
            uid: None,
            files: 0,
        };
        self.ended.insert(id, ended);
    }

    /// A trace that has never begun, or of which no task can be found any more.
    pub fn forget(&mut self, id: u32) {
        self.traces.remove(&id);
        self.ended.remove(&id);
    }

    /// In how many traces a task of this one is: 1 for a trace that is in no other, 0 for one that does not go on.
    #[must_use]
    pub fn depth(&self, id: u32) -> usize {
        let mut at = Some(id);
        let mut depth = 0;
        while let Some(trace) = at.and_then(|id| self.get(id)) {
            at = trace.parent;
            depth += 1;
        }
        depth
    }

    /// A trace has ended: what is in it is in its parent now, and so are tasks that are still found.
    pub fn end(&mut self, id: u32) -> Option<Trace> {
        let trace = self.traces.remove(&id)?;
        for inner in self.traces.values_mut() {
            if inner.parent == Some(id) {
                inner.parent = trace.parent;
            }
        }
        for ended in self.ended.values_mut() {
            if ended.heir == Some(id) {
                ended.heir = trace.parent;
            }
        }
        let ended = Ended {
            heir: trace.parent,
            forbade: !trace.forbidden.is_empty(),
            none: 0,
            uid: Some(trace.trail.uid),
            files: u32::try_from(trace.forbidden.len()).unwrap_or(u32::MAX),
        };
        self.ended.insert(id, ended);
        Some(trace)
    }

    /// Those that have ended and of which tasks may still be found.
    pub fn ended(&mut self) -> &mut BTreeMap<u32, Ended> {
        &mut self.ended
    }

    /// As many of those as that, in turn: none waits for others that are not forgotten.
    pub fn ended_in_turn(&mut self, count: usize) -> Vec<u32> {
        let after = self.ended.range(self.turn.saturating_add(1)..);
        let before = self.ended.range(..=self.turn);
        let ids = after.chain(before).map(|(id, _)| *id).take(count);
        let ids: Vec<u32> = ids.collect();
        self.turn = ids.last().copied().unwrap_or(self.turn);
        ids
    }

    /// The trace whose event it is, if an event says that it is this one's.
    #[must_use]
    pub fn owner(&self, id: u32) -> Option<u32> {
        if self.traces.contains_key(&id) {
            return Some(id);
        }
        self.ended.get(&id).and_then(|ended| ended.heir)
    }
}

#[cfg(test)]
mod tests {
    use agent_sandbox_events::protocol::Enforce;

    use super::*;

    pub(super) fn trace(parent: Option<u32>, cgroup: Option<u64>) -> Trace {
        let coverage = Coverage {
            events: 0,
            every: 1,
            missing: false,
            hidden: false,
            enforce: Enforce::Off,
            no_internet: false,
            no_user_namespace: false,
        };
        Trace {
            trail: Trail::default(),
            parent,
            applied: coverage.clone(),
            coverage,
            forbidden: BTreeSet::new(),
            lifetime: Lifetime::Tasks,
            processes: Vec::new(),
            descendants: false,
            cgroup,
            command: Vec::new(),
            redact: Vec::new(),
            job_unverified: false,
        }
    }

    #[test]
    fn ids_are_not_given_out_twice() {
        let mut registry = Registry::default();
        assert_eq!((registry.fresh(), registry.fresh()), (1, 2));
        registry.skip_to(IDS - 1);
        registry.insert(1, trace(None, None));
        registry.insert(2, trace(None, None));
        registry.end(2);
        assert_eq!(
            registry.fresh(),
            3,
            "one goes on, of the other tasks may be found"
        );
    }

    #[test]
    fn what_is_in_an_ended_trace_is_in_its_parent() {
        let mut registry = Registry::default();
        registry.insert(1, trace(None, Some(9)));
        registry.insert(2, trace(Some(1), Some(9)));
        registry.insert(3, trace(Some(2), None));
        assert_eq!(registry.with_descendants(1), [1, 2, 3]);
        assert_eq!(registry.of_cgroup(9, None), Some(2));
        assert_eq!(registry.of_cgroup(9, Some(2)), Some(1));
        assert_eq!(registry.outer_first(), [1, 2, 3]);
        assert!(registry.has_children(2));
        registry.end(2);
        assert_eq!(registry.of_cgroup(9, None), Some(1));
        assert_eq!(registry.get(3).unwrap().parent, Some(1));
        assert_eq!(
            registry.owner(2),
            Some(1),
            "a late event of its is the parent's"
        );
        registry.end(3);
        assert_eq!(registry.owner(3), Some(1));
        assert!(
            registry.has_children(1),
            "tasks of 2 and 3 may still be found"
        );
        registry.ended().clear();
        assert!(!registry.has_children(1));
        registry.end(1);
        assert_eq!(registry.owner(1), None);
    }

    #[test]
    fn those_that_have_ended_are_looked_at_in_turn() {
        let mut registry = Registry::default();
        for id in 1..=5 {
            let mut one = trace(None, None);
            one.trail.uid = 7;
            one.forbidden.insert((1, u64::from(id)));
            registry.insert(id, one);
            registry.end(id);
        }
        let ended = registry.ended()[&5];
        assert_eq!((ended.uid, ended.files), (Some(7), 1), "it still counts");
        assert_eq!(registry.ended_in_turn(2), [1, 2]);
        assert_eq!(registry.ended_in_turn(2), [3, 4]);
        registry.forget(5);
        assert_eq!(registry.ended_in_turn(3), [1, 2, 3]);
        assert_eq!(registry.ended_in_turn(9), [4, 1, 2, 3]);
    }

    #[test]
    fn what_slurm_knows_and_what_is_said_of_a_job_stay_apart() {
        let mut known = trace(None, None);
        known.trail.job = Some(7);
        let mut said = known.clone();
        assert!(known.is_joined_by(&said.trail, &said));
        said.job_unverified = true;
        assert!(!known.is_joined_by(&said.trail, &said));
        assert!(!said.is_joined_by(&known.trail, &known));
    }

    #[test]
    fn it_outlives_the_service() {
        let mut registry = Registry::default();
        let mut first = trace(None, Some(9));
        first.forbidden.insert((8 << 20 | 1, 1 << 40));
        first.trail.session = Some("k3v9x2m1".to_owned());
        registry.insert(7, first);
        registry.insert(8, trace(Some(7), None));
        registry.end(8);
        let text = serde_json::to_string(&registry).unwrap();
        assert_eq!(serde_json::from_str::<Registry>(&text).unwrap(), registry);
    }
}
