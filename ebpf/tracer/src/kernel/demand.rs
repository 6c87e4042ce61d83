//! The one program of the second layer that each open of each task would pay for: it is attached as long as
//! something is forbidden to a trace. The others are at calls that are rare.

#![allow(clippy::disallowed_methods, reason = "effects: the BPF file system")]

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::AsFd as _;

use agent_sandbox_events::raw::trace_flags;

use super::pins::Pins;
use crate::sys::bpf;

/// Its name, of which its pins are.
const OPENS: &str = "deny_open";

/// The traces to which something is forbidden.
#[derive(Debug, Default)]
pub(crate) struct Demand(BTreeSet<u32>);

impl Demand {
    /// As a map has them that is taken over.
    pub(crate) fn of(traces: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let forbid = traces.into_iter().filter(|(_, flags)| forbids(*flags));
        Self(forbid.map(|(id, _)| id).collect())
    }

    /// A trace is about to have these flags.
    ///
    /// # Errors
    /// The program cannot be attached: nothing may rely on it.
    pub(crate) fn before(&mut self, id: u32, flags: u32, pins: &Pins) -> io::Result<()> {
        if forbids(flags) {
            attach(pins)?;
            self.0.insert(id);
        }
        Ok(())
    }

    /// A trace has these flags, or is gone and has none.
    pub(crate) fn after(&mut self, id: u32, flags: u32, pins: &Pins) {
        if !forbids(flags) && self.0.remove(&id) && self.0.is_empty() {
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
    bpf::pin(bpf::attach(program.as_fd())?.as_fd(), &link)
}
