//! What is done now and then: lost events are counted, traces without tasks end.

use std::collections::BTreeSet;

use agent_sandbox_events::protocol::Lifetime;

use super::{BUDGET, Check, Core, FIRST_WAIT, SECOND, SLICE};
use crate::service::kernel::Kernel;
use crate::service::limits::COSTLY;
use crate::service::process::Holding;
use crate::service::registry::{Named, Trace};
use crate::service::scope;
use crate::trail::Now;

/// So many times in a row no task must be found before a trace has ended: a sweep can miss a task that is
/// being started while it goes by.
pub(super) const NONE: u32 = 2;
/// The same of tasks that still have the mark of a trace that has ended.
const NONE_LEFT: u32 = 3;
/// Sweeps over all tasks in one tick at most, of each kind: one takes about a millisecond with ten thousand
/// tasks.
const SWEEPS: usize = 4;
/// The same for those that have ended: who begins and ends traces all the time must not be faster than this.
const SWEEPS_LEFT: usize = 16;
/// A trace whose tasks go on without its process is looked at again after so many ticks at the latest.
const LONGEST_WAIT: u64 = 10 * SECOND;
impl<K: Kernel> Core<K> {
    /// About five times a second.
    pub fn upkeep(&mut self) {
        self.trails.tick(Now::read());
        self.look_for_ends();
        self.look_for_the_left();
        self.mark_cgroups_again();
        if self.tick.is_multiple_of(SECOND) {
            self.count_lost();
            self.lock.touch();
        }
        if self.tick.is_multiple_of(60 * SECOND) {
            self.kernel.tidy();
        }
    }

    /// What the kernel counts goes into the trails.
    pub fn count_lost(&mut self) {
        for (id, _) in self.registry.iter() {
            if let Ok(counts) = self.kernel.counts(id) {
                self.trails.lost(id, counts.lost);
            }
        }
    }

    /// Whether the trace can have no task any more without that anything tells.
    pub(super) fn may_have_ended(&mut self, id: u32) -> bool {
        let Some(trace) = self.registry.get(id) else {
            return false;
        };
        let cgroup = trace.cgroup;
        let mut lives = false;
        if let Some(held) = self.held.get_mut(&id) {
            held.retain(Holding::lives);
            lives = !held.is_empty();
            let named: BTreeSet<Named> = held.iter().map(|process| process.named).collect();
            if let Some(trace) = self.registry.get_mut(id) {
                trace.processes.retain(|process| named.contains(process));
            }
        }
        if lives {
            return false;
        }
        match (cgroup, &mut self.cgroups) {
            // As long as it is there, tasks can come to it.
            (Some(cgroup), Some(cgroups)) => matches!(cgroups.get(cgroup), Ok(None)),
            _ => true,
        }
    }

    fn look_for_ends(&mut self) {
        let due: Vec<u32> = self
            .checks
            .iter()
            .filter(|(_, check)| check.next <= self.tick)
            .map(|(id, _)| *id)
            .collect();
        let mut sweeps = 0;
        let mut ended = Vec::new();
        for id in due {
            if sweeps == SWEEPS {
                break;
            }
            let may_have_ended = self.may_have_ended(id);
            let tick = self.tick;
            let Some(check) = self.checks.get_mut(&id) else {
                continue;
            };
            if !may_have_ended {
                *check = Check::after(tick);
                continue;
            }
            sweeps += 1;
            match scope::count(&mut self.kernel, id) {
                Ok(0) => {
                    check.none += 1;
                    check.next = tick + 1;
                    if check.none >= NONE {
                        ended.push(id);
                    }
                }
                // Whether it has ended is not known: it goes on.
                Ok(_) | Err(_) => {
                    check.none = 0;
                    check.wait = (check.wait * 2).clamp(FIRST_WAIT, LONGEST_WAIT);
                    check.next = tick + check.wait;
                }
            }
        }
        if !ended.is_empty() {
            // What they did before they ended may not have been read yet, and a task that writes has not ended.
            self.drain(BUDGET, SLICE);
        }
        for id in ended {
            if self.checks.get(&id).is_some_and(|check| check.none >= NONE) {
                self.end(id, "all tasks have ended");
            }
        }
    }

    /// Tasks that a sweep has missed when their trace ended.
    fn look_for_the_left(&mut self) {
        let mut forgotten = false;
        for id in self.registry.ended_in_turn(SWEEPS_LEFT) {
            forgotten |= self.is_forgotten(id);
        }
        if forgotten {
            self.remember();
        }
    }

    /// Forgets at once what has ended of a user's traces, as many as that, if no task of it is found.
    pub(super) fn forget_ended(&mut self, uid: u32, most: usize) {
        let own = self.registry.ended().iter();
        let own = own.filter(|(_, ended)| ended.uid == Some(uid));
        let ids: Vec<u32> = own.map(|(id, _)| *id).take(most).collect();
        let mut forgotten = false;
        for id in ids {
            self.usage.asked(uid, COSTLY);
            forgotten |= (0..NONE_LEFT).any(|_| self.is_forgotten(id));
        }
        if forgotten {
            self.remember();
        }
    }

    /// Looks for tasks of a trace that has ended. Whether it is forgotten: none was found so often that there are
    /// none.
    fn is_forgotten(&mut self, id: u32) -> bool {
        let Some(ended) = self.registry.ended().get(&id).copied() else {
            return false;
        };
        let found = scope::hand_over_once(&mut self.kernel, id, None);
        let none = match found {
            Ok(0) => ended.none + 1,
            _ => 0,
        };
        if none < NONE_LEFT {
            if let Some(ended) = self.registry.ended().get_mut(&id) {
                ended.none = none;
            }
            return false;
        }
        if ended.forbade {
            let pardoned = self.kernel.pardon(id);
            self.complain("forbidden files cannot be forgotten", pardoned);
        }
        let removed = self.kernel.remove_trace(id);
        self.complain("a trace cannot be forgotten", removed);
        self.registry.forget(id);
        if let Some(uid) = ended.uid {
            self.usage.untraced(uid, ended.files);
        }
        true
    }

    /// Threads of a process that was moved to a cgroup as one are marked only so, and what came by ways that the
    /// probes do not see. One cgroup each time.
    fn mark_cgroups_again(&mut self) {
        let with_cgroup = |(id, trace): (u32, &Trace)| Some((id, trace.cgroup?, trace.trail.uid));
        let all: Vec<_> = self.registry.iter().filter_map(with_cgroup).collect();
        let Ok(turn) = usize::try_from(self.tick) else {
            return;
        };
        let Some((id, cgroup, uid)) = all.get(turn % all.len().max(1)).copied() else {
            return;
        };
        let marked = scope::mark_cgroup_again(&mut self.kernel, cgroup, (id, 0, uid));
        self.complain("a cgroup's tasks cannot be marked", marked.map(drop));
    }

    /// Whether a trace outlives a restart.
    pub(super) fn outlives(trace: &Trace) -> bool {
        trace.lifetime == Lifetime::Tasks
    }
}
