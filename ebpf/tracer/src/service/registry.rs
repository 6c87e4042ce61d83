//! The traces that there are. A task belongs to one of them.

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

/// A process by its number. What tells it from a later one of the same number is a descriptor, and after a restart its
/// mark: when it started stands in `/proc/PID/stat` alone, and to read that can take for ever (docs/decisions/0060).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Named {
    /// Its number.
    pub pid: u32,
}

/// A trace that goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Its trail.
    pub trail: Trail,
    /// What it records and denies. Traces that an older tracer kept have it under this name.
    #[serde(rename = "wish")]
    pub coverage: Coverage,
    /// What its tasks must not touch.
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

    /// The trace of a cgroup.
    #[must_use]
    pub fn of_cgroup(&self, cgroup: u64) -> Option<u32> {
        let mut all = self.iter();
        all.find(|(_, trace)| trace.cgroup == Some(cgroup))
            .map(|(id, _)| id)
    }

    /// The trace that another task of the same step, or of the same job, joins.
    #[must_use]
    pub fn joined_by(&self, trail: &Trail, like: &Trace) -> Option<u32> {
        let mut all = self.iter();
        all.find(|(_, trace)| trace.is_joined_by(trail, like))
            .map(|(id, _)| id)
    }

    /// The probes know a trace that nobody else knows: its tasks belong to none.
    pub fn unknown(&mut self, id: u32) {
        let ended = Ended {
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

    /// A trace has ended. Tasks of it may still be found.
    pub fn end(&mut self, id: u32) -> Option<Trace> {
        let trace = self.traces.remove(&id)?;
        let ended = Ended {
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
}

#[cfg(test)]
mod tests {
    use agent_sandbox_events::protocol::Enforce;

    use super::*;

    pub(super) fn trace(cgroup: Option<u64>) -> Trace {
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
        registry.insert(1, trace(None));
        registry.insert(2, trace(None));
        registry.end(2);
        assert_eq!(
            registry.fresh(),
            3,
            "one goes on, of the other tasks may be found"
        );
    }

    #[test]
    fn those_that_have_ended_are_looked_at_in_turn() {
        let mut registry = Registry::default();
        for id in 1..=5 {
            let mut one = trace(None);
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
        let mut known = trace(None);
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
        let mut first = trace(Some(9));
        first.forbidden.insert((8 << 20 | 1, 1 << 40));
        first.trail.session = Some("k3v9x2m1".to_owned());
        registry.insert(7, first);
        registry.insert(8, trace(None));
        registry.end(8);
        let text = serde_json::to_string(&registry).unwrap();
        assert_eq!(serde_json::from_str::<Registry>(&text).unwrap(), registry);
    }
}
