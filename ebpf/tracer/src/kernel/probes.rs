//! The probes that are loaded: their maps, by which one talks to them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use super::about::About;
use super::demand::{Demand, REST};
use super::iterator;
use super::maps::{Counts, MARK, Maps, SELF_TEST, Sweep, TraceEntry};
use super::pins::{Home, Pins};
use crate::sys::bpf;

/// Of other traces' events as many bytes are kept while the self-test reads the ring.
const KEPT_BYTES: usize = 16 << 20;

/// The probes.
pub struct Probes {
    pub(super) maps: Maps,
    pub(super) pins: Pins,
    pub(super) home: Home,
    pub(super) hash: String,
    pub(super) about: About,
    /// Programs, for what they missed.
    pub(super) programs: Vec<OwnedFd>,
    pub(super) demand: Demand,
    /// Events of others that the self-test came across.
    pub(super) kept: VecDeque<Vec<u8>>,
    pub(super) kept_bytes: usize,
    /// Events that were lost here and not in the kernel.
    pub(super) dropped: u64,
}

impl Probes {
    /// What is known of the probes.
    #[must_use]
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Makes a trace known, or changes one; what is counted goes on. An event that is counted while it is
    /// changed can be missed: a trace that records already is better left alone.
    ///
    /// # Errors
    /// There are too many (`E2BIG`), or what it forbids cannot be denied.
    pub fn set_trace(&mut self, id: u32, entry: &TraceEntry) -> io::Result<()> {
        self.demand.before(id, entry.flags, &self.pins)?;
        self.maps.set_trace(id, entry)?;
        self.demand.after(id, entry.flags);
        Ok(())
    }

    /// What was counted of a trace.
    ///
    /// # Errors
    /// There is none of that number.
    pub fn counts(&self, id: u32) -> io::Result<Counts> {
        self.maps.counts(id)
    }

    /// Forgets a trace. Tasks that still carry its mark are neither recorded nor denied anything.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_trace(&mut self, id: u32) -> io::Result<()> {
        self.maps.remove_trace(id)?;
        self.demand.after(id, 0);
        Ok(())
    }

    /// All traces that the kernel knows.
    ///
    /// # Errors
    /// The kernel's.
    pub fn traces(&self) -> io::Result<Vec<u32>> {
        self.maps.traces()
    }

    /// What comes to be in or below this cgroup belongs to a trace from now on. What is there already, a
    /// sweep marks.
    ///
    /// # Errors
    /// There are too many (`E2BIG`).
    pub fn add_cgroup(&mut self, cgroup: u64, id: u32) -> io::Result<()> {
        self.maps.add_cgroup(cgroup, id)
    }

    /// The opposite.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_cgroup(&mut self, cgroup: u64) -> io::Result<()> {
        self.maps.remove_cgroup(cgroup)
    }

    /// Forbids a file, or a directory with all below it, to the tasks of a trace. Device and inode are those
    /// of [`Probes::identify`].
    ///
    /// # Errors
    /// There are too many (`E2BIG`).
    pub fn forbid(&mut self, trace: u32, device: u32, inode: u64) -> io::Result<()> {
        self.maps.forbid(trace, device, inode)
    }

    /// Nothing is forbidden to a trace any more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn pardon(&mut self, trace: u32) -> io::Result<()> {
        self.maps.pardon(trace)
    }

    /// What the kernel calls a file or directory: its device and its inode, which `fstat(2)` does not always
    /// tell (btrfs, overlayfs).
    ///
    /// # Errors
    /// The kernel's.
    pub fn identify(&mut self, file: BorrowedFd<'_>) -> io::Result<(u32, u64)> {
        let number = u64::try_from(file.as_raw_fd()).map_err(io::Error::other)?;
        self.maps.begin_identify(number)?;
        iterator::run(&self.pins)?;
        self.maps.identified()
    }

    /// Does something to every task that there is. Says to how many.
    ///
    /// # Errors
    /// The kernel's.
    pub fn sweep(&mut self, sweep: &Sweep) -> io::Result<u64> {
        self.maps.begin_sweep(sweep)?;
        iterator::run(&self.pins)?;
        self.maps.swept()
    }

    /// The trace of a process: its mark, 0 without one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn mark(&self, process: BorrowedFd<'_>) -> io::Result<u32> {
        let map = self.maps.marks.fd().as_fd();
        let value = bpf::of_task::<MARK>(map, process)?;
        Ok(value.map_or(0, |value| {
            u32::from_ne_bytes([value[0], value[1], value[2], value[3]])
        }))
    }

    /// The ring buffer, for `epoll(7)`.
    #[must_use]
    pub fn ring_fd(&self) -> BorrowedFd<'_> {
        self.maps.ring.as_fd()
    }

    /// Hands over at most `budget` events, each once. Says how many there were: as many as the budget means
    /// that there are more.
    pub fn drain(&mut self, budget: usize, each: &mut dyn FnMut(&[u8])) -> usize {
        let mut count = 0;
        while count < budget {
            if let Some(event) = self.kept.pop_front() {
                self.kept_bytes -= event.len();
                each(&event);
            } else if let Some(event) = self.maps.ring.next() {
                each(&event);
            } else {
                break;
            }
            count += 1;
        }
        count
    }

    /// Reads the ring for the self-test: its own events are handed over, others' are kept.
    pub(super) fn sort_out(&mut self, each: &mut dyn FnMut(&[u8])) {
        while let Some(event) = self.maps.ring.next() {
            if trace_of(&event) == Some(SELF_TEST) {
                each(&event);
            } else if self.kept_bytes + event.len() <= KEPT_BYTES {
                self.kept_bytes += event.len();
                self.kept.push_back(event.to_vec());
            } else {
                self.dropped += 1;
            }
        }
    }

    /// Events that were lost and that no trace counts: for lack of a buffer, or as a program was interrupted
    /// on its processor by what would have started it again.
    #[must_use]
    pub fn misses(&self) -> u64 {
        let programs = self.programs.iter();
        let recursion = programs.filter_map(iterator::recursion_misses);
        let counted = self.maps.misses().unwrap_or_default();
        recursion.sum::<u64>() + counted + self.dropped
    }

    /// Removes pins of other objects (of an older version) of whose traces no task is left. Says how many
    /// objects stay, as something of theirs is alive.
    pub fn tidy(&mut self) -> usize {
        self.demand.rest(REST, &self.pins);
        let others = self.home.others(&self.hash);
        others
            .iter()
            .filter(|pins| iterator::is_alive(pins) || pins.remove().is_err())
            .count()
    }

    /// Removes everything: nothing is recorded or denied after it.
    ///
    /// # Errors
    /// The pins are not to be removed.
    pub fn unpin(self) -> io::Result<()> {
        self.pins.remove()?;
        self.home.remove();
        Ok(())
    }
}

/// The trace of an event, which stands in `head.trace`.
fn trace_of(event: &[u8]) -> Option<u32> {
    let word = event.get(24..28)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}
