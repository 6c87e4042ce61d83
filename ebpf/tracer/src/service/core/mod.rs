//! What is traced: the traces, who has how much of what, and what the kernel tells of them. It knows no socket and
//! no connection: whoever asks comes as a user id and a process that is held.
#![allow(clippy::disallowed_methods, reason = "effects: reads the clock")]

mod audit;
mod crowded;
mod lifetime;
pub mod register;
mod restart;
mod upkeep;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use agent_sandbox_events::raw::{self, Kind};
use anyhow::Result;
use nix::sys::resource::{Resource, getrlimit};
use tracing::warn;

use super::cgroups::Cgroups;
use super::config::Config;
use super::files;
use super::kernel::Kernel;
use super::limits::Usage;
use super::process::Holding;
use super::registry::Registry;
use crate::logging::TARGET;
use crate::trail::Trails;

/// Between two calls of [`Core::upkeep`], for which [`Core::tick`] counts.
pub const TICK: Duration = Duration::from_millis(200);
/// Ticks in a second.
pub const SECOND: u64 = 5;
/// Events that are read before requests have their turn, and for how long: what one costs is up to whoever
/// makes it, by long names.
pub const BUDGET: usize = 32_768;
/// For how long.
pub const SLICE: Duration = Duration::from_millis(20);
/// The clock is looked at after so many.
const PIECE: usize = 64;
/// The same complaint is not repeated for so many ticks: what goes wrong can go wrong for each event.
const QUIET: u64 = 60 * SECOND;
/// A trace that had an exit is looked at again after so many ticks; one whose tasks go on without its process, at
/// first.
const FIRST_WAIT: u64 = 2;

/// What is complained of when a call answers `EMFILE`, `ENFILE` or `ENOMEM`.
const SHORT: &str = "the tracer has no descriptors or no memory left";

/// Half of the descriptors that this process may have.
fn half_of_the_descriptors() -> usize {
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    usize::try_from(soft / 2).unwrap_or(usize::MAX)
}

/// When a trace is looked at the next time: whether it has tasks.
#[derive(Clone, Copy, Debug)]
struct Check {
    /// The tick.
    next: u64,
    /// Ticks between that one and the one after it.
    wait: u64,
    /// So many times in a row no task was found.
    none: u32,
}

impl Check {
    /// In a second.
    fn after(tick: u64) -> Self {
        Self {
            next: tick + SECOND,
            wait: 0,
            none: 0,
        }
    }
}

/// A trace that has no task any more. It ends when all events have been read that were written before.
#[derive(Clone, Debug)]
struct Ending {
    why: String,
    /// When its tasks were handed over, in nanoseconds since the boot.
    since: u64,
}

/// What is traced.
#[derive(Debug)]
pub struct Core<K> {
    /// The probes.
    pub kernel: K,
    /// What was recorded.
    pub trails: Trails,
    /// The configuration.
    pub config: Config,
    /// Who has how much of what.
    pub usage: Usage,
    /// The traces.
    pub registry: Registry,
    /// Ticks since the start.
    pub tick: u64,
    node: String,
    boot: String,
    cgroups: Option<Cgroups>,
    /// Processes that traces began with and that live.
    held: BTreeMap<u32, Vec<Holding>>,
    /// So many of them at most: other descriptors are for connections, trails and what is looked at.
    most_held: usize,
    checks: BTreeMap<u32, Check>,
    /// Traces without tasks of which events may still wait to be read.
    ending: BTreeMap<u32, Ending>,
    /// Whether all events have been read that there were.
    pub drained: bool,
    /// When the newest event was written that has been read, in nanoseconds since the boot.
    newest: u64,
    /// Forbidden files of the trace that begins, as they were counted.
    counted: u32,
    /// Events that are none.
    pub unreadable: u64,
    lock: files::Lock,
    said: BTreeMap<&'static str, u64>,
}

impl<K: Kernel> Core<K> {
    /// Goes on where the last one ended.
    ///
    /// # Errors
    /// What it left can be another's.
    pub fn new(
        config: Config,
        node: String,
        lock: files::Lock,
        kernel: K,
        trails: Trails,
    ) -> Result<Self> {
        let away = SystemTime::now()
            .duration_since(lock.last)
            .unwrap_or_default();
        let mut core = Self {
            kernel,
            trails,
            node,
            boot: files::boot_id()?,
            registry: Registry::default(),
            usage: Usage::new(config.limits),
            config,
            cgroups: Cgroups::find().ok(),
            held: BTreeMap::new(),
            most_held: half_of_the_descriptors(),
            checks: BTreeMap::new(),
            ending: BTreeMap::new(),
            drained: true,
            newest: 0,
            counted: 0,
            unreadable: 0,
            tick: 0,
            lock,
            said: BTreeMap::new(),
        };
        core.take_over(away)?;
        core.lock.touch();
        Ok(core)
    }

    /// The node's name.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Goes on by another configuration, as far as it may change.
    pub fn reconfigure(&mut self, config: Config) {
        self.usage.limit(config.limits);
        self.trails
            .limit_commands(config.limits.command_milliseconds);
        self.config.limits = config.limits;
        self.config.demand = config.demand;
    }

    /// Reads events, so many and for so long at most. Returns how many there were.
    pub fn drain(&mut self, budget: usize, time: Duration) -> usize {
        let begin = Instant::now();
        let mut count = 0;
        self.drained = false;
        while count < budget && begin.elapsed() < time {
            let piece = PIECE.min(budget - count);
            let read = self.drain_some(piece);
            count += read;
            if read < piece {
                self.drained = true;
                break;
            }
        }
        count
    }

    fn drain_some(&mut self, budget: usize) -> usize {
        let (registry, trails) = (&self.registry, &mut self.trails);
        let (checks, unreadable, tick) = (&mut self.checks, &mut self.unreadable, self.tick);
        let newest = &mut self.newest;
        let mut last = 0;
        self.kernel
            .drain(budget, &mut |bytes| match raw::parse(bytes) {
                Ok(event) => {
                    *newest = event.head.time.max(*newest);
                    let owner = event.head.trace;
                    // What is nobody's any more was a task's without a trace.
                    if registry.get(owner).is_none() {
                        return;
                    }
                    let exit = event.head.kind == Kind::Exit;
                    if exit || last != owner {
                        last = owner;
                        Self::noticed(checks, owner, exit, tick);
                    }
                    trails.event(&event);
                }
                Err(_) => *unreadable += 1,
            })
    }

    /// An event of a trace came: it has tasks. After an exit it may have none.
    fn noticed(checks: &mut BTreeMap<u32, Check>, id: u32, exit: bool, tick: u64) {
        if let Some(check) = checks.get_mut(&id) {
            check.none = 0;
            if exit {
                check.wait = 0;
                check.next = check.next.min(tick + FIRST_WAIT);
            }
        }
    }

    /// Says what goes wrong, but not all the time.
    pub fn complain<E: std::fmt::Display>(&mut self, what: &'static str, result: Result<(), E>) {
        let Err(error) = result else {
            return;
        };
        let last = self.said.get(what);
        if last.is_none_or(|last| self.tick - last >= QUIET) {
            self.said.insert(what, self.tick);
            warn!(target: TARGET, "{what}: {error:#}");
        }
    }
}
