//! What the service remembers, and how it goes on where the last one ended.
#![allow(clippy::disallowed_methods, reason = "effects: reads the clock")]

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use agent_sandbox_events::record::Trail;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::{Check, Core, SHORT};
use crate::kernel::SELF_TEST;
use crate::logging::TARGET;
use crate::service::files;
use crate::service::kernel::Kernel;
use crate::service::process::{Holding, Process, is_short};
use crate::service::registry::{Named, Registry, Trace};
use crate::trail::{Now, Redaction};

/// Another layout is not read.
const LAYOUT: u32 = 1;

/// For so long events are read before the tracer ends; what is left is the next one's.
const LAST: Duration = Duration::from_secs(1);

/// What is remembered.
#[derive(Debug, Serialize)]
struct Remembers<'a> {
    layout: u32,
    boot: &'a str,
    registry: &'a Registry,
}

#[derive(Debug, Deserialize)]
struct Remembered {
    layout: u32,
    boot: String,
    registry: Registry,
}

/// Why nothing is taken over.
fn usable(text: &str, boot: &str) -> Result<Registry, &'static str> {
    let remembered: Remembered =
        serde_json::from_str(text).map_err(|_| "what the last tracer left is not understood")?;
    if remembered.layout != LAYOUT {
        return Err("another version has left what is there");
    }
    if remembered.boot != boot {
        return Err("the node was booted meanwhile");
    }
    Ok(remembered.registry)
}

/// The names are not remembered: those of all traces together would be megabytes.
const FORGOTTEN: &str =
    "the tracer was restarted: attempts on what is hidden are recorded where something is there";

impl<K: Kernel> Core<K> {
    /// Writes what must be known after a restart.
    pub(super) fn remember(&mut self) {
        let all = Remembers {
            layout: LAYOUT,
            boot: &self.boot,
            registry: &self.registry,
        };
        let written = match serde_json::to_vec(&all) {
            Ok(text) => files::remember(&self.config.state, &text),
            Err(error) => Err(error.into()),
        };
        self.complain("a restart will not go on with the traces", written);
    }

    /// Goes on with the traces that the last tracer left. `away`: for how long nobody was there.
    ///
    /// # Errors
    /// What it left can be another's.
    pub(super) fn take_over(&mut self, away: Duration) -> Result<()> {
        let left = match files::remembered(&self.config.state)? {
            None => Err("no tracer was here before"),
            Some(text) => usable(&text, &self.boot),
        };
        let known = self.kernel.traces().unwrap_or_default();
        let known: Vec<u32> = known.into_iter().filter(|id| *id != SELF_TEST).collect();
        match left {
            Ok(registry) => self.registry = registry,
            Err(why) if known.is_empty() => info!(target: TARGET, "{why}"),
            Err(why) => {
                // Tasks may have marks of traces of which nothing is known: no new trace gets such a number.
                let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
                let jump = u32::try_from(seconds.as_secs() & 0x3fff_ffff).unwrap_or(0);
                self.registry.skip_to(jump);
                warn!(
                    target: TARGET,
                    "{why}: {} traces of the last tracer end",
                    known.len()
                );
            }
        }
        for id in known {
            self.registry.skip_to(id);
            if self.registry.get(id).is_none() && !self.registry.ended().contains_key(&id) {
                self.registry.unknown(id);
            }
        }
        for ended in self.registry.ended().values() {
            if let Some(uid) = ended.uid {
                self.usage.traced(uid);
                self.usage.forbade(uid, ended.files);
            }
        }
        let all: Vec<u32> = self.registry.iter().map(|(id, _)| id).collect();
        for id in all {
            self.go_on(id, away);
        }
        self.remember();
        Ok(())
    }

    fn go_on(&mut self, id: u32, away: Duration) {
        let Some(trace) = self.registry.get(id).cloned() else {
            return;
        };
        let uid = trace.trail.uid;
        self.usage.traced(uid);
        let files = u32::try_from(trace.forbidden.len()).unwrap_or(u32::MAX);
        self.usage.forbade(uid, files);
        let alive = self.held_again(id, &trace);
        // The last one ended before it had written it there, or other probes were loaded then.
        if self.kernel.counts(id).is_err() {
            let entered = self.enter_again(id, &trace, &alive);
            self.complain("a trace of the last tracer does not go on", entered);
        }
        // What could not be held is looked for among all tasks.
        if let Some(trace) = self.registry.get_mut(id) {
            trace.processes = alive.iter().map(|process| process.named).collect();
        }
        self.held.insert(id, alive);
        self.checks.insert(id, Check::after(self.tick));
        let resumed = self.resume(id, &trace, away);
        self.complain("a trail of the last tracer does not go on", resumed);
        if !Self::outlives(&trace) {
            // The connection has gone with the last tracer.
            self.end(id, "whoever asked has gone");
        }
    }

    /// Takes hold of the processes of a trace, as many as may be held.
    fn held_again(&mut self, id: u32, trace: &Trace) -> Vec<Holding> {
        let mut alive = Vec::new();
        let named: BTreeSet<Named> = trace.processes.iter().copied().collect();
        for named in named {
            // The first one is held in any case, as when the trace began.
            if alive.len() >= self.config.limits.processes_per_user as usize
                || (!alive.is_empty() && !self.may_hold(trace.trail.uid))
            {
                break;
            }
            match Process::open(named.pid, 0) {
                Ok(process) if self.is_its(id, trace, &process) => alive.push(process.keep()),
                Err(error) if is_short(&error) => {
                    self.complain(SHORT, Err::<(), _>(error));
                    break;
                }
                _ => {}
            }
        }
        alive
    }

    /// Whether a process with the number of one of a trace's is that one, and no later one: by its mark. Where other probes
    /// are loaded and know no mark, it is if it is the same user's.
    fn is_its(&self, id: u32, trace: &Trace, process: &Process) -> bool {
        let marked =
            self.kernel.counts(id).is_err() || self.kernel.mark(process.handle()).ok() == Some(id);
        marked && process.uids[0] == trace.trail.uid
    }

    /// Marks again what is still to be found: the processes that it began with and what they have started,
    /// and what is in the cgroup.
    fn enter_again(&mut self, id: u32, trace: &Trace, alive: &[Holding]) -> Result<()> {
        for (device, inode) in &trace.forbidden {
            self.kernel.forbid(id, *device, *inode)?;
        }
        let found = Trace {
            processes: alive.iter().map(|process| process.named).collect(),
            descendants: true,
            ..trace.clone()
        };
        self.enter(id, 0, &found)?;
        Ok(())
    }

    fn resume(&mut self, id: u32, trace: &Trace, away: Duration) -> Result<()> {
        let mut header = trace.header(self.kernel.about());
        if trace.coverage.hidden {
            header.blind.push(FORGOTTEN.to_owned());
        }
        let redaction = Redaction::new(&trace.redact)?;
        let trail: Trail = trace.trail.clone();
        let seconds = away.as_secs_f64();
        self.trails
            .resume(id, trail, header, redaction, seconds, Now::read())?;
        Ok(())
    }

    /// Reads and writes what has been seen up to now.
    pub fn finish_reading(&mut self) {
        self.drain(usize::MAX, LAST);
        self.end_those_read();
        self.count_lost();
        self.trails.tick(Now::read());
        self.trails.flush(Now::read());
    }

    /// Leaves everything to the next tracer: traces go on in the kernel. A trace of a connection ends when that one
    /// finds that nobody asks for it any more.
    pub fn leave(&mut self) {
        self.lock.touch();
        self.remember();
        // What a thread hangs in keeps this process, and whatever it has open, for as long.
        self.lock.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_boot_or_another_version_left_is_not_taken_over() {
        let registry = Registry::default();
        let text = |layout, boot| {
            serde_json::to_string(&Remembers {
                layout,
                boot,
                registry: &registry,
            })
            .unwrap()
        };
        assert_eq!(usable(&text(LAYOUT, "a"), "a"), Ok(Registry::default()));
        assert!(
            usable(&text(LAYOUT, "a"), "b")
                .unwrap_err()
                .contains("booted")
        );
        assert!(
            usable(&text(LAYOUT + 1, "a"), "a")
                .unwrap_err()
                .contains("version")
        );
        assert!(usable("{", "a").is_err());
    }
}
