//! What every handler of a call is given, and what it answers.

use crate::backend::landlock::access::MediatorConfig;
use nix::unistd::Pid;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

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
    Lead(Led),
    /// The kernel judges it, with the caller's own rights. No verdict, see the module.
    Kernel,
}

impl Answer {
    /// A failure of a call of the mediator's own, passed on.
    pub fn failed(error: &std::io::Error) -> Self {
        Self::Fail(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// What every handler of a call is given.
#[derive(Debug)]
pub struct Context {
    /// By which it decides.
    pub charge: MediatorConfig,
    /// Held from a decision about a tree of directories until it is carried out.
    pub changing: Mutex<()>,
    /// Device and inode of the files that this jail made in a region of its own
    /// ([`crate::backend::landlock::access::Permission::Own`]).
    pub made: Mutex<HashSet<(u64, u64)>>,
    /// The process that stands by the command: a descendant of the mediator that is not of the jail.
    pub attendant: Pid,
    /// Who is told of the calls of a run that is watched (`sight`).
    pub witness: Option<OwnedFd>,
}

impl Context {
    /// With nothing made yet.
    #[must_use]
    pub fn new(charge: MediatorConfig, attendant: Pid) -> Self {
        Self {
            charge,
            changing: Mutex::default(),
            made: Mutex::default(),
            attendant,
            witness: None,
        }
    }
}

/// Another program that a call to execute is led to.
#[derive(Debug)]
pub struct Led {
    /// The program, open for reading.
    pub(super) program: OwnedFd,
    /// Where an empty string stands in the caller's memory: the end of the path.
    pub(super) empty: u64,
}
