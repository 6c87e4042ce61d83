//! What happens near a user's limits. A session can start as many steps as it likes; that must not take the place
//! of the user's next session, and no step may go unseen for it. So from half of a limit on a step joins a trace
//! that its session already has, and a new trace is refused at the limit only.

use agent_sandbox_events::protocol::Lifetime;

use super::upkeep::NONE;
use super::{BUDGET, Core, SLICE};
use crate::service::kernel::Kernel;
use crate::service::limits::COSTLY;
use crate::service::registry::Trace;
use crate::service::scope;

/// So many traces of a user are looked at when there is no room: each costs two sweeps over all tasks.
const LOOKED_AT: usize = 8;

impl Trace {
    /// Whether tasks of another trace can be recorded here as well, and are shown and denied no less: of the same
    /// session of the same user.
    pub(super) fn stands_in_for(&self, other: &Trace) -> bool {
        let (own, its) = (&self.trail, &other.trail);
        its.job.is_some()
            && its.session.is_some()
            && (own.uid, &own.session) == (its.uid, &its.session)
            // What Slurm knows of a job stays apart from what is only said of one.
            && (own.job.is_none() || self.job_unverified == other.job_unverified)
            && self.lifetime == Lifetime::Tasks
            && other.lifetime == Lifetime::Tasks
            && other.coverage.and(&self.coverage) == self.coverage
            && other.redact.iter().all(|one| self.redact.contains(one))
            && (other.cgroup.is_none() || other.cgroup == self.cgroup)
    }
}

impl<K: Kernel> Core<K> {
    /// The trace that a step joins where there is no room for one of its own: of its job, else of the session
    /// itself, else of another job of the session. `allowed` says of a trace whether the step's process may
    /// come to it.
    pub(super) fn stand_in(&self, step: &Trace, allowed: impl Fn(u32) -> bool) -> Option<u32> {
        let fits = |(id, trace): &(u32, &Trace)| {
            !self.ending.contains_key(id) && trace.stands_in_for(step) && allowed(*id)
        };
        let far = |(id, trace): &(u32, &Trace)| {
            let job = trace.trail.job;
            (job != step.trail.job, job.is_some(), *id)
        };
        let all = self.registry.iter().filter(fits);
        all.min_by_key(far).map(|(id, _)| id)
    }

    /// Ends traces of a user's that have no task any more, which else is noticed within a second or two.
    pub(super) fn make_room(&mut self, uid: u32) {
        let own = |(id, trace): (u32, &Trace)| {
            let goes_on = trace.trail.uid == uid && self.checks.contains_key(&id);
            goes_on.then_some(id)
        };
        let ids: Vec<u32> = self.registry.iter().filter_map(own).collect();
        let mut looked_at = 0;
        for id in ids {
            if looked_at == LOOKED_AT {
                break;
            }
            if !self.may_have_ended(id) {
                continue;
            }
            looked_at += 1;
            self.usage.asked(uid, COSTLY);
            let kernel = &mut self.kernel;
            if (0..NONE).all(|_| matches!(scope::count(kernel, id), Ok(0))) {
                self.hand_over(id, "all tasks have ended");
            }
        }
        if looked_at > 0 {
            self.drain(BUDGET, SLICE);
            self.end_those_read();
        }
        self.forget_ended(uid, LOOKED_AT);
    }
}
