//! The iterator over tasks, which is run by reading its pin, and what the kernel says of programs.

#![allow(clippy::disallowed_methods, reason = "effects: reads pins and /proc")]

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};

use super::maps::{ForeignSweep, SELF_TEST, Sweep, SweepWhat, foreign_traces};
use super::pins::Pins;

/// The name of the iterator.
pub(crate) const SWEEP: &str = "sweep_tasks";

/// Runs it once over all tasks.
pub(crate) fn run(pins: &Pins) -> io::Result<()> {
    let mut file = File::open(pins.links().join(SWEEP))?;
    let mut nothing = [0; 64];
    loop {
        match file.read(&mut nothing) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // After a million of tasks it wants to be asked again (kernel/bpf/bpf_iter.c).
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether a task is left that a trace of these pins is about. What cannot be understood counts as alive.
pub(crate) fn is_alive(pins: &Pins) -> bool {
    if pins.is_unfinished() {
        return false;
    }
    let Some(traces) = foreign_traces(&pins.maps()) else {
        return true;
    };
    let traces = traces.into_iter().filter(|id| *id != SELF_TEST);
    let mut sweep = None;
    for trace in traces {
        if sweep.is_none() {
            sweep = ForeignSweep::open(&pins.maps());
        }
        let counted = sweep.as_mut().map(|sweep| count(pins, sweep, trace));
        if !matches!(counted, Some(Ok(0))) {
            return true;
        }
    }
    false
}

fn count(pins: &Pins, sweep: &mut ForeignSweep, trace: u32) -> io::Result<u64> {
    sweep.begin(&Sweep {
        what: SweepWhat::Count,
        trace,
        from: trace,
        uid: u32::MAX,
    })?;
    run(pins)?;
    sweep.swept()
}

/// How often a program was not run, as it was running on that processor already (`bpf_prog_get_info`, shown
/// since Linux 5.12).
pub(crate) fn recursion_misses(program: &OwnedFd) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).ok()?;
    field(&text, "recursion_misses:")
}

fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "prog_type:\t26\nrun_cnt:\t7\nrecursion_misses:\t12\nverified_insns:\t3\n";
        assert_eq!(field(text, "recursion_misses:"), Some(12));
        assert_eq!(field(text, "misses:"), None);
    }
}
