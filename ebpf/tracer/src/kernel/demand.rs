//! The one program of the second layer that each open of each task would pay for: it is attached as long as
//! something is forbidden to a trace. The others are at calls that are rare.

#![allow(clippy::disallowed_methods, reason = "effects: the BPF file system")]

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use agent_sandbox_events::raw::trace_flags;

use super::pins::Pins;
use crate::sys::bpf;

/// Its name, of which its pins are.
const OPENS: &str = "deny_open";

/// As long nobody has needed it before it is detached: whoever begins and ends traces has it come and go no faster.
pub(crate) const REST: Duration = Duration::from_secs(60);

/// The kernel detaches a program some time after its link is gone, and refuses to attach it again before that.
const AGAIN: Duration = Duration::from_millis(5);
const AGAIN_MAX: u32 = 400;

/// The traces to which something is forbidden.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    traces: BTreeSet<u32>,
    /// When the last of them went.
    idle: Option<Instant>,
}

impl Demand {
    /// As a map has them that is taken over.
    pub(crate) fn of(traces: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let forbid = traces.into_iter().filter(|(_, flags)| forbids(*flags));
        Self {
            traces: forbid.map(|(id, _)| id).collect(),
            idle: Some(Instant::now()),
        }
    }

    /// A trace is about to have these flags.
    ///
    /// # Errors
    /// The program cannot be attached: nothing may rely on it.
    pub(crate) fn before(&mut self, id: u32, flags: u32, pins: &Pins) -> io::Result<()> {
        if forbids(flags) {
            attach(pins)?;
            self.traces.insert(id);
        }
        Ok(())
    }

    /// A trace has these flags, or is gone and has none.
    pub(crate) fn after(&mut self, id: u32, flags: u32) {
        if !forbids(flags) && self.traces.remove(&id) && self.traces.is_empty() {
            self.idle = Some(Instant::now());
        }
    }

    /// Detaches the program if nobody has needed it for as long.
    pub(crate) fn rest(&mut self, long: Duration, pins: &Pins) {
        let idle = self.idle.is_some_and(|since| since.elapsed() >= long);
        if idle && self.traces.is_empty() {
            self.idle = None;
            // What stays attached costs time and nothing else.
            let _ = fs::remove_file(pins.links().join(OPENS));
        }
    }
}

fn forbids(flags: u32) -> bool {
    flags & (trace_flags::ENFORCE | trace_flags::AUDIT) != 0
}

/// Attaches the program, if it is not attached. Without it (no LSM programs here) there is nothing to attach, and
/// nobody was told otherwise.
///
/// # Errors
/// The kernel's.
pub(crate) fn attach(pins: &Pins) -> io::Result<()> {
    let link = pins.links().join(OPENS);
    let program = pins.programs().join(OPENS);
    if link.try_exists()? || !program.try_exists()? {
        return Ok(());
    }
    let program = bpf::pinned(&program)?;
    let mut tries = 0;
    let attached = loop {
        match bpf::attach(program.as_fd()) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && tries < AGAIN_MAX => {
                tries += 1;
                thread::sleep(AGAIN);
            }
            other => break other?,
        }
    };
    bpf::pin(attached.as_fd(), &link)
}
