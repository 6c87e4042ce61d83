//! The mediator of a jail that Landlock makes: a trusted process outside that decides those system
//! calls which Landlock lets through and which reach another process's authority, or files that may
//! not be changed. A filter hands them over (`seccomp_unotify(2)`, `backend::seccomp::mediated`).
//!
//! What it decides it carries out itself, on objects that it has resolved and holds open: the caller
//! may change its memory, its descriptors and every path meanwhile. The kernel is let go on with a
//! call ([`Answer::Kernel`]) only where Landlock, or the kernel itself, refuses whatever must not be:
//! never as a verdict.
//!
//! The mediator keeps to Landlock's rules itself: those of the command, and writing where the jail
//! has it. Everything below a launch is its descendant, since it is a subreaper (`prctl(2)`), which is
//! also what gives it access to their memory and descriptors under Yama's scope 1.

pub mod caller;
pub mod connect;
pub mod ending;
mod family;
mod life;
pub mod modes;
pub mod open;
pub mod place;
pub mod processes;
pub mod serve;
pub mod sight;
pub mod terminals;
pub mod tree;

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use nix::unistd::Pid;

use crate::fence::Charge;

pub use life::{start, start_watched};

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
    pub charge: Charge,
    /// Held from a decision about a tree of directories until it is carried out.
    pub changing: Mutex<()>,
    /// Device and inode of the files that this jail made in a region of its own
    /// ([`crate::fence::Reach::Own`]).
    pub made: Mutex<HashSet<(u64, u64)>>,
    /// The process that stands by the command: a descendant of the mediator that is not of the jail.
    pub attendant: Pid,
    /// Who is told of the calls of a run that is watched ([`sight`]).
    pub witness: Option<OwnedFd>,
}

impl Context {
    /// With nothing made yet.
    #[must_use]
    pub fn new(charge: Charge, attendant: Pid) -> Self {
        Self {
            charge,
            changing: Mutex::default(),
            made: Mutex::default(),
            attendant,
            witness: None,
        }
    }
}
