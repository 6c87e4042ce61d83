//! What a session may take of its node, by the policy, and whether it starts where that cannot be enforced.

use std::time::Duration;

use crate::config::source::{Source, Sourced};
use crate::plan::model::limits::{Demand, Limits};
use crate::policy::clamp::Single;
use crate::policy::stated::Stated;
use crate::policy::values::{Limit, Memory, Stricter};
use crate::policy::{Policy, Requirement};

/// The limits of a session. Slurm limits a job.
pub fn of_session(policy: &Policy, in_job: bool) -> Limits {
    if in_job {
        return Limits::default();
    }
    let limits = &policy.limits;
    let number = |value: &Sourced<u32>| (value.value > 0).then(|| value.clone());
    Limits {
        memory: limits.memory.value.map(|bytes| Demand {
            most: limits.memory.clone().map(|_| bytes),
            required: required(policy, &limits.memory.source, |layer| {
                is_stated(&layer.limits.memory, Memory::NONE)
            }),
        }),
        cpus: number(&limits.cpus).map(|most| Demand {
            required: required(policy, &most.source, |layer| {
                is_stated(&layer.limits.cpus, Limit::new(0))
            }),
            most,
        }),
        io_weight: number(&limits.io_weight).map(|most| Demand {
            required: required(policy, &most.source, |layer| {
                is_stated(&layer.limits.io_weight, Limit::new(0))
            }),
            most,
        }),
        sessions: number(&limits.sessions),
        idle: number(&limits.idle_minutes)
            .map(|minutes| minutes.map(|minutes| Duration::from_secs(60 * u64::from(minutes)))),
    }
}

/// The place at which a layer states a limit, if that is one.
fn is_stated<T: Stricter>(stated: &Single<T>, none: T) -> Option<&Source> {
    let stated = stated.get()?;
    (stated.value != none).then_some(&stated.source)
}

/// Who demands a limit that `source` set: a site that enforces it, unless the same layer says that less will do; then who
/// the answer in `limits.cgroup` says.
fn required(
    policy: &Policy,
    source: &Source,
    stated: impl Fn(&Stated) -> Option<&Source>,
) -> Option<Source> {
    let layers = policy.bounds.layers.iter();
    let mut enforced = layers.filter_map(|layer| {
        let answer = layer.limits.cgroup.get().map(|answer| answer.value);
        let demands = answer != Some(Requirement::Degraded);
        stated(layer).filter(|_| demands).cloned()
    });
    let answer = &policy.limits.cgroup;
    enforced.next().or_else(|| match answer.value {
        Requirement::Refuse => Some(answer.source.clone()),
        Requirement::Auto => source.is_users().then(|| source.clone()),
        Requirement::Degraded => None,
    })
}
