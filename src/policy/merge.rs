//! Layers become one [`Policy`]. Two verbs, one per key and layer: *prefer* (the later layer
//! wins, lists grow) for every layer but the last, *narrow* (the result allows no more than either)
//! for the site's enforced layers. What they do with each key stands in [`super::stated`].

use std::time::Duration;

use agent_sandbox_events::protocol::SOCKET;
use agent_sandbox_wire::order::{Allocation, Queries, Scope};

use super::bounds::{self, Bounds};
use super::handouts;
use super::narrowing::{Narrowed, Single};
use super::state::{self, Wanted};
use super::stated::Stated;
use super::trace::{Events, Recorded, Sampling, Trace, TraceMode};
use super::values::{Bytes, Limit, Words};
use super::{
    AgentState, Agents, Demand, Devices, Env, Files, Git, Home, HomeMode, Instructions, Jail,
    Landlock, Modules, Network, NetworkMode, Paths, Patterns, Policy, Project, Settings, ShmSize,
    Slurm, SlurmLimits, SlurmMode, Users,
};
use crate::config::diagnostic::ConfigError;
use crate::config::load::RawLayer;
use crate::config::source::{Layer, Sourced};

/// What options of the command line add to the layers, already typed.
#[derive(Clone, Debug, Default)]
pub struct Additions {
    /// `--read PATH`
    pub read: Paths,
    /// `--write PATH`
    pub write: Paths,
    /// `--hide PATH`
    pub hide: Paths,
    /// `--env NAME`
    pub pass: Patterns,
    /// `--env NAME=VALUE`
    pub set: Vec<Sourced<(String, String)>>,
    /// `--home MODE`
    pub home: Option<Sourced<HomeMode>>,
}

/// The words of `[home] mode` and `--home`.
pub const HOME_MODES: &[(&str, HomeMode)] = HomeMode::WORDS;

/// Merges the layers, weakest first, and the options of the command line. Enforced layers come last,
/// wherever they stand; among themselves they keep their order.
///
/// # Errors
/// A value that does not mean anything, with its file, line and the nearest valid word.
pub fn merge(layers: &[RawLayer], additions: &Additions) -> Result<Policy, ConfigError> {
    let (enforced, open): (Vec<_>, Vec<_>) = layers
        .iter()
        .partition(|layer| layer.layer == Layer::SiteEnforced);
    let read = |layers: &[&RawLayer]| -> Result<Vec<Stated>, ConfigError> {
        layers.iter().map(|layer| Stated::read(layer)).collect()
    };
    let (mut each, mut enforced) = (read(&open)?, read(&enforced)?);
    let whose = state::whose(each.iter(), enforced.iter());
    let mut wanted = Wanted::default();
    for (raw, layer) in open.iter().zip(&mut each) {
        if let Some(agent) = &raw.profile {
            wanted.expand(&agent.state, whose, layer);
        }
    }
    let mut stated = Stated::default();
    for layer in each {
        stated.prefer(layer);
    }
    stated.add(additions);
    let mut narrowed = Vec::new();
    bounds::settle(&mut stated, &mut enforced, &mut narrowed);
    for layer in &enforced {
        stated.narrow(layer, &mut narrowed);
    }
    let bounds = Bounds { layers: enforced };
    let mut policy = stated.into_policy(bounds, narrowed);
    policy.agents.handouts = handouts::of_layers(layers);
    policy.agents.wanted = wanted;
    Ok(policy)
}

impl Stated {
    fn add(&mut self, additions: &Additions) {
        let Additions {
            read,
            write,
            hide,
            pass,
            set,
            home,
        } = additions;
        self.read.list().extend(read.iter().cloned());
        self.write.list().extend(write.iter().cloned());
        self.hide.list().extend(hide.iter().cloned());
        self.pass.list().extend(pass.iter().cloned());
        for pair in set {
            self.set.set(pair.clone());
        }
        if let Some(mode) = home {
            self.home_mode.set(mode.clone());
        }
    }

    fn into_policy(self, bounds: Bounds, narrowed: Vec<Narrowed>) -> Policy {
        let bytes = |one: Single<Bytes>| one.or(Bytes(1 << 30)).map(|Bytes(bytes)| bytes);
        let limit =
            |one: Single<Limit>, default| one.or(Limit::new(default)).map(Limit::written_short);
        Policy {
            project: Project {
                parents: self.parents.into_list(),
                git: self.git.or(Git::Protect),
                settings: self.settings.or(Settings::Protect),
            },
            home: Home {
                mode: self.home_mode.or(HomeMode::Tmpfs),
                read: self.home_read.into_list(),
                write: self.home_write.into_list(),
                seed: self.seed.into_list(),
                keep: self.keep.into_list(),
                protect: self.protect.into_list(),
            },
            files: Files {
                read: self.read.into_list(),
                write: self.write.into_list(),
                hide: self.hide.into_list(),
                unhide: self.unhide.into_list(),
                timeout_ms: self.timeout.or(Duration::from_secs(2)),
            },
            env: Env {
                pass: self.pass.into_list(),
                hide: self.env_hide.into_list(),
                hide_values: self.hide_values.into_list(),
                set: self.set.into_list(),
            },
            devices: Devices {
                allow: self.allow.into_list(),
                deny: self.deny.into_list(),
            },
            jail: Jail {
                tmp_size: bytes(self.tmp_size),
                shm_size: self.shm_size.or(ShmSize::Bytes(1 << 30)),
                home_size: bytes(self.home_size),
                max_processes: self.max_processes.or(Limit::new(4096)).map(Limit::written),
                users: self.users.or(Users::Filtered),
                nested: self.nested.or(false),
                keyctl: self.keyctl.or(false),
            },
            landlock: Landlock {
                sizes: self.landlock_sizes.or(Demand::Auto),
                users: self.landlock_users.or(Demand::Auto),
            },
            network: Network {
                mode: self.network.or(NetworkMode::Open),
            },
            slurm: Slurm {
                mode: self.slurm.or(SlurmMode::Auto),
                scope: self.scope.or(Scope::Project),
                queries: self.queries.or(Queries::Counts),
                allocation: self.allocation.or(Allocation::Steps),
                directories: self.directories.into_list(),
                limits: SlurmLimits {
                    queries_per_minute: limit(self.queries_per_minute, 240),
                    jobs: limit(self.jobs, 0),
                    nodes: limit(self.nodes, 0),
                    gpus: limit(self.gpus, 0),
                    minutes: limit(self.minutes, 0),
                },
            },
            trace: Trace {
                mode: self.trace.or(TraceMode::On),
                events: self.events.or(Events::all()),
                missing: self.missing.or(Recorded(false)).map(Recorded::value),
                every: self.every.or(Sampling(1)).map(Sampling::value),
                redact: self.redact.into_list(),
                enforce: self.enforce.or(Recorded(false)).map(Recorded::value),
                audit: self.audit.or(Recorded(false)).map(Recorded::value),
                socket: self.socket.or(SOCKET.into()),
            },
            modules: Modules {
                load: self.modules.into_list(),
            },
            agents: Agents {
                state: self.agent_state.or(AgentState::Project),
                instructions: self.instructions.or(Instructions::Given),
                handouts: Vec::new(),
                wanted: Wanted::default(),
            },
            bounds,
            narrowed,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
