//! What every handler of a call is given, and what it answers.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::unistd::Pid;

use super::way_out::WayOut;
use crate::access::MediatorConfig;

/// What a call is answered with.
#[derive(Debug)]
#[must_use]
pub enum Answer {
    /// It is done, and this is its result.
    Done(i64),
    /// It fails with this `errno`, which is positive.
    Fail(i32),
    /// It is done, and its result is a new descriptor for this file.
    Give {
        /// The file.
        file: OwnedFd,
        /// Whether the caller's descriptor is closed on exec.
        close_on_exec: bool,
    },
    /// A program is executed in the place of the one that the call names.
    Redirect(Redirect),
    /// The kernel judges it, with the caller's own rights. No verdict, see the module.
    Kernel,
}

impl Answer {
    /// A failure of a call of the mediator's own, passed on.
    pub fn failed(error: &std::io::Error) -> Self {
        Self::Fail(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<Errno> for Answer {
    fn from(errno: Errno) -> Self {
        Self::Fail(errno as i32)
    }
}

/// What every handler of a call is given.
#[derive(Debug)]
pub struct Context {
    /// By which it decides.
    pub config: MediatorConfig,
    /// Held from a decision about a tree of directories until it is carried out.
    pub changing: Mutex<()>,
    /// Device and inode of the files that this jail made in a shared directory
    /// ([`crate::access::Permission::Own`]).
    pub made: Mutex<HashSet<(u64, u64)>>,
    /// The process that stands by the command: a descendant of the mediator that is not of the jail.
    pub attendant: Pid,
    /// Who is told of the calls of a run that is watched (`sight`).
    pub recorder: Option<OwnedFd>,
    /// By whom connections leave the jail, where the network is filtered.
    pub way_out: Option<WayOut>,
}

impl Context {
    /// With nothing made yet.
    #[must_use]
    pub fn new(config: MediatorConfig, attendant: Pid) -> Self {
        Self {
            config,
            changing: Mutex::default(),
            made: Mutex::default(),
            attendant,
            recorder: None,
            way_out: None,
        }
    }

    /// Whether this jail made the file in a shared directory.
    #[must_use]
    pub fn has_made(&self, id: (u64, u64)) -> bool {
        locked(&self.made).contains(&id)
    }
}

/// Holds a lock. One that was held by a thread that ended in a panic guards nothing that could be
/// half done.
pub(super) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Another program that a call to execute is led to.
#[derive(Debug)]
pub struct Redirect {
    /// The program, open for reading.
    pub(super) program: OwnedFd,
    /// Where an empty string stands in the caller's memory: the end of the path.
    pub(super) empty: u64,
}
