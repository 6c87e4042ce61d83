//! `[slurm.bounds]` as the chaperon judges a job by it: what always holds, and what holds for jobs in some
//! partitions and accounts, which are known when a job is submitted.

use agent_sandbox_wire::bounds::{
    BoundSet, Bounds, JobCondition, NameBound, NameKey, SizeBound, SizeKey,
};

use super::bounds::ConditionalBounds;
use super::clamp::Single;
use super::merged::{Policy, SlurmBounds};
use super::names::NameList;
use super::values::{JobMemory, Limit};
use crate::config::source::Sourced;

impl Policy {
    /// What bounds a job.
    pub fn job_bounds(&self) -> Bounds {
        let conditional = self.bounds.jobs.iter().map(ConditionalBounds::set);
        let mut sets = vec![self.slurm.bounds.set()];
        sets.extend(conditional);
        Bounds { sets }
    }
}

/// The most of something and its place, where there is a most.
type Most = Option<Sourced<u64>>;

impl SlurmBounds {
    fn set(&self) -> BoundSet {
        let number = |key, value: &Sourced<u32>| {
            let most = value.clone().map(u64::from);
            (key, (most.value > 0).then_some(most))
        };
        let memory = self.memory.value.bytes();
        let memory = memory.map(|bytes| self.memory.clone().map(|_| bytes));
        let lists = [
            (NameKey::Partitions, &self.partitions),
            (NameKey::Accounts, &self.accounts),
            (NameKey::Qos, &self.qos),
            (NameKey::Reservations, &self.reservations),
            (NameKey::Constraints, &self.constraints),
            (NameKey::Licenses, &self.licenses),
            (NameKey::Options, &self.options),
        ];
        let lists = lists.into_iter();
        set(
            JobCondition::default(),
            lists.flat_map(|(key, lists)| lists.iter().map(move |list| (key, list))),
            &self.deny_options,
            [
                number(SizeKey::Nodes, &self.nodes),
                number(SizeKey::Gpus, &self.gpus),
                number(SizeKey::Cpus, &self.cpus),
                (SizeKey::Memory, memory),
                number(SizeKey::Minutes, &self.minutes),
                number(SizeKey::Array, &self.array),
            ],
        )
    }
}

impl ConditionalBounds {
    /// As the chaperon gets it.
    pub fn set(&self) -> BoundSet {
        let bounds = &self.bounds;
        let number = |key, value: &Single<Limit>| {
            let most = value.get().map(|most| most.clone().map(Limit::written));
            (key, most.filter(|most| most.value > 0))
        };
        let memory = bounds.memory.get().and_then(|memory| {
            let bytes = JobMemory::bytes(memory.value)?;
            Some(memory.clone().map(|_| bytes))
        });
        let lists = [
            (NameKey::Partitions, &bounds.partitions),
            (NameKey::Accounts, &bounds.accounts),
            (NameKey::Qos, &bounds.qos),
            (NameKey::Reservations, &bounds.reservations),
            (NameKey::Constraints, &bounds.constraints),
            (NameKey::Licenses, &bounds.licenses),
            (NameKey::Options, &bounds.options),
        ];
        let lists = lists.into_iter();
        set(
            self.when.clone(),
            lists.flat_map(|(key, names)| names.lists().map(move |list| (key, list))),
            bounds.deny_options.entries(),
            [
                number(SizeKey::Nodes, &bounds.nodes),
                number(SizeKey::Gpus, &bounds.gpus),
                number(SizeKey::Cpus, &bounds.cpus),
                (SizeKey::Memory, memory),
                number(SizeKey::Minutes, &bounds.minutes),
                number(SizeKey::Array, &bounds.array),
            ],
        )
    }
}

fn set<'a>(
    when: JobCondition,
    lists: impl Iterator<Item = (NameKey, &'a Sourced<NameList>)>,
    denied: &[Sourced<String>],
    sizes: [(SizeKey, Most); 6],
) -> BoundSet {
    let lists = lists.filter(|(_, list)| !list.value.is_any());
    let sizes = sizes.into_iter().filter_map(|(key, most)| {
        let most = most?;
        Some(SizeBound {
            key,
            most: most.value,
            source: most.source.to_string(),
        })
    });
    let denied = denied.iter();
    BoundSet {
        when,
        names: lists
            .map(|(key, list)| NameBound {
                key,
                allowed: list.value.entries().to_vec(),
                source: list.source.to_string(),
            })
            .collect(),
        denied: denied
            .map(|one| (one.value.clone(), one.source.to_string()))
            .collect(),
        sizes: sizes.collect(),
    }
}
