//! What the service needs of the kernel, as a trait: tests have a kernel of their own.

use std::io;
use std::os::fd::BorrowedFd;

use crate::kernel::{About, Counts, Probes, Sweep, TraceEntry};

/// The probes and their maps.
pub trait Kernel {
    /// Writes what the probes know of a trace. What they have counted of it stays.
    ///
    /// # Errors
    /// The map is full, or what `bpf(2)` answers; so with all of these.
    fn set_trace(&mut self, id: u32, entry: &TraceEntry) -> io::Result<()>;
    /// The counters of a trace.
    ///
    /// # Errors
    /// There is none.
    fn counts(&self, id: u32) -> io::Result<Counts>;
    /// Forgets a trace. That it is not there is no error.
    ///
    /// # Errors
    /// What `bpf(2)` answers.
    fn remove_trace(&mut self, id: u32) -> io::Result<()>;
    /// Tasks in and below this cgroup belong to the trace as they come; another trace's cgroup is replaced.
    ///
    /// # Errors
    /// As [`Kernel::set_trace`].
    fn add_cgroup(&mut self, cgroup: u64, id: u32) -> io::Result<()>;
    /// Forgets a cgroup.
    ///
    /// # Errors
    /// What `bpf(2)` answers.
    fn remove_cgroup(&mut self, cgroup: u64) -> io::Result<()>;
    /// Forbids a directory with all in it, or a file.
    ///
    /// # Errors
    /// As [`Kernel::set_trace`].
    fn forbid(&mut self, id: u32, device: u32, inode: u64) -> io::Result<()>;
    /// What the kernel calls a file: its device and its inode, which `fstat(2)` does not always tell.
    ///
    /// # Errors
    /// What reading the iterator answers.
    fn identify(&mut self, file: BorrowedFd<'_>) -> io::Result<(u32, u64)>;
    /// Nothing is forbidden any more.
    ///
    /// # Errors
    /// What `bpf(2)` answers.
    fn pardon(&mut self, id: u32) -> io::Result<()>;
    /// Goes over all tasks; returns how many were marked or counted.
    ///
    /// # Errors
    /// What reading the iterator answers.
    fn sweep(&mut self, sweep: &Sweep) -> io::Result<u64>;
    /// The trace that a process belongs to, by a descriptor of it (`pidfd_open(2)`); 0 if to none.
    ///
    /// # Errors
    /// What `bpf(2)` answers.
    fn mark(&self, process: BorrowedFd<'_>) -> io::Result<u32>;
    /// Becomes readable when there are events.
    fn ring(&self) -> BorrowedFd<'_>;
    /// Takes at most `budget` events; returns how many there were.
    fn drain(&mut self, budget: usize, each: &mut dyn FnMut(&[u8])) -> usize;
    /// Events that belong to no trace for lack of a buffer, and programs that did not run, since the probes
    /// were loaded.
    fn misses(&self) -> u64;
    /// The traces that the probes know.
    ///
    /// # Errors
    /// What `bpf(2)` answers.
    fn traces(&self) -> io::Result<Vec<u32>>;
    /// What the probes are.
    fn about(&self) -> &About;
    /// Removes what older probes left behind, if no task needs it any more; returns how many of them stay.
    fn tidy(&mut self) -> usize;
}

impl Kernel for Probes {
    fn set_trace(&mut self, id: u32, entry: &TraceEntry) -> io::Result<()> {
        Probes::set_trace(self, id, entry)
    }

    fn counts(&self, id: u32) -> io::Result<Counts> {
        Probes::counts(self, id)
    }

    fn remove_trace(&mut self, id: u32) -> io::Result<()> {
        Probes::remove_trace(self, id)
    }

    fn add_cgroup(&mut self, cgroup: u64, id: u32) -> io::Result<()> {
        Probes::add_cgroup(self, cgroup, id)
    }

    fn remove_cgroup(&mut self, cgroup: u64) -> io::Result<()> {
        Probes::remove_cgroup(self, cgroup)
    }

    fn forbid(&mut self, id: u32, device: u32, inode: u64) -> io::Result<()> {
        Probes::forbid(self, id, device, inode)
    }

    fn identify(&mut self, file: BorrowedFd<'_>) -> io::Result<(u32, u64)> {
        Probes::identify(self, file)
    }

    fn pardon(&mut self, id: u32) -> io::Result<()> {
        Probes::pardon(self, id)
    }

    fn sweep(&mut self, sweep: &Sweep) -> io::Result<u64> {
        Probes::sweep(self, sweep)
    }

    fn mark(&self, process: BorrowedFd<'_>) -> io::Result<u32> {
        Probes::mark(self, process)
    }

    fn ring(&self) -> BorrowedFd<'_> {
        self.ring_fd()
    }

    fn drain(&mut self, budget: usize, each: &mut dyn FnMut(&[u8])) -> usize {
        Probes::drain(self, budget, each)
    }

    fn misses(&self) -> u64 {
        Probes::misses(self)
    }

    fn traces(&self) -> io::Result<Vec<u32>> {
        Probes::traces(self)
    }

    fn about(&self) -> &About {
        Probes::about(self)
    }

    fn tidy(&mut self) -> usize {
        Probes::tidy(self)
    }
}
