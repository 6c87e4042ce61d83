//! What a session may take of its node.

use std::time::Duration;

use serde::Serialize;

use crate::config::source::{Source, Sourced};

/// A limit, and who demands that nothing starts without it.
#[derive(Clone, Debug, Serialize)]
pub struct Demand<T> {
    /// The limit, with the place that set it.
    pub most: Sourced<T>,
    /// The place that demands it; `None`: something less may stand in for it.
    pub required: Option<Source>,
}

/// The limits of one session; those that are `None` do not exist.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Limits {
    /// Bytes of memory, of all processes together.
    pub memory: Option<Demand<u64>>,
    /// Processors.
    pub cpus: Option<Demand<u32>>,
    /// The share of disks' time.
    pub io_weight: Option<Demand<u32>>,
    /// Sessions of the user on one node.
    pub sessions: Option<Sourced<u32>>,
    /// How long nothing may be done.
    pub idle: Option<Sourced<Duration>>,
}

impl Limits {
    /// Those that a cgroup enforces: each key, the file's controller and the place that set it.
    pub fn of_cgroup(&self) -> Vec<(&'static str, &'static str, &Source, Option<&Source>)> {
        fn row<'a, T>(
            key: &'static str,
            controller: &'static str,
            demand: Option<&'a Demand<T>>,
        ) -> Option<(&'static str, &'static str, &'a Source, Option<&'a Source>)> {
            let demand = demand?;
            Some((
                key,
                controller,
                &demand.most.source,
                demand.required.as_ref(),
            ))
        }
        let rows = [
            row("limits.memory", "memory", self.memory.as_ref()),
            row("limits.cpus", "cpu", self.cpus.as_ref()),
            row("limits.io_weight", "io", self.io_weight.as_ref()),
        ];
        rows.into_iter().flatten().collect()
    }
}
