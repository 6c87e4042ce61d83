//! Which tasks belong to a trace: marks are put and taken by going over all tasks.

use std::io;

use super::kernel::Kernel;
use crate::kernel::{Sweep, SweepWhat};

/// Any user's tasks (`sweep.uid`).
const ANYBODY: u32 = u32::MAX;

/// So many times in a row tasks are looked for that a sweep has missed: one whose number is given out anew
/// while the sweep goes by. Each round finds those that the last one left, or what they have started since, and
/// children of a marked task are marked by the kernel.
const ROUNDS: u32 = 64;

/// Which tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tasks {
    /// The trace.
    pub trace: u32,
    /// The trace that they are taken from; 0: none.
    pub from: u32,
    /// Whose they are.
    pub uid: u32,
    /// The process.
    pub process: Option<u32>,
    /// With what it has started.
    pub descendants: bool,
    /// The cgroup.
    pub cgroup: Option<u64>,
}

/// Marks them. Returns how many there are.
///
/// A task of another trace stays there.
///
/// # Errors
/// What the kernel answers, or there are new ones all the time.
pub fn mark(kernel: &mut dyn Kernel, tasks: &Tasks) -> io::Result<u64> {
    let mut sweep = |what| {
        kernel.sweep(&Sweep {
            what,
            trace: tasks.trace,
            from: tasks.from,
            uid: tasks.uid,
        })
    };
    let mut found = 0;
    if let Some(process) = tasks.process {
        found += until_none(|| sweep(SweepWhat::Process(process)))?;
    }
    if let Some(cgroup) = tasks.cgroup {
        found += until_none(|| sweep(SweepWhat::Cgroup(cgroup)))?;
    }
    if tasks.descendants {
        found += until_none(|| sweep(SweepWhat::Children))?;
    }
    Ok(found)
}

/// Marks again what belongs to a cgroup: one round, and not before `from` is marked otherwise.
///
/// # Errors
/// What the kernel answers.
pub fn mark_cgroup_again(
    kernel: &mut dyn Kernel,
    cgroup: u64,
    tasks: (u32, u32, u32),
) -> io::Result<u64> {
    let (trace, from, uid) = tasks;
    kernel.sweep(&Sweep {
        what: SweepWhat::Cgroup(cgroup),
        trace,
        from,
        uid,
    })
}

/// Gives all tasks of a trace to another one, or to none. Returns how many there were.
///
/// # Errors
/// What the kernel answers, or there are new ones all the time.
pub fn hand_over(kernel: &mut dyn Kernel, from: u32, heir: Option<u32>) -> io::Result<u64> {
    until_none(|| hand_over_once(kernel, from, heir))
}

/// One round of [`hand_over`].
///
/// # Errors
/// What the kernel answers.
pub fn hand_over_once(kernel: &mut dyn Kernel, from: u32, heir: Option<u32>) -> io::Result<u64> {
    kernel.sweep(&Sweep {
        what: SweepWhat::Replace,
        trace: heir.unwrap_or(0),
        from,
        uid: ANYBODY,
    })
}

/// How many tasks a trace has.
///
/// # Errors
/// What the kernel answers.
pub fn count(kernel: &mut dyn Kernel, trace: u32) -> io::Result<u64> {
    kernel.sweep(&Sweep {
        what: SweepWhat::Count,
        trace,
        from: trace,
        uid: ANYBODY,
    })
}

fn until_none(mut round: impl FnMut() -> io::Result<u64>) -> io::Result<u64> {
    let mut all = 0;
    for _ in 0..ROUNDS {
        match round()? {
            0 => return Ok(all),
            some => all += some,
        }
    }
    Err(io::Error::other("its tasks cannot be kept up with"))
}
