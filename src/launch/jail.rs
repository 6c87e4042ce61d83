//! The process of a jail that the launcher waits for.

use std::io;
use std::os::unix::net::UnixStream;
use std::process::Child;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::diagnose;
use crate::sys::process::{self, Change, Usage};

/// The process below the launcher that ends with the command.
#[derive(Debug)]
pub struct Jail {
    pid: Pid,
    /// What bubblewrap says if it gets nowhere, of a jail that it builds.
    complaint: Option<UnixStream>,
    over: Option<Over>,
}

/// How it ended.
#[derive(Clone, Copy, Debug)]
struct Over {
    killed: bool,
    spent: Option<Usage>,
}

impl Jail {
    /// bubblewrap, around init, with what it says if it gets nowhere.
    pub fn built(bwrap: &Child, complaint: UnixStream) -> Self {
        Self {
            // A pid is below 2^22 (proc(5), `pid_max`).
            pid: Pid::from_raw(bwrap.id().cast_signed()),
            complaint: Some(complaint),
            over: None,
        }
    }

    /// The attendant of a command in a jail that was joined.
    pub fn joined(pid: Pid) -> Self {
        Self {
            pid,
            complaint: None,
            over: None,
        }
    }

    pub(super) fn is_over(&mut self) -> io::Result<bool> {
        if self.over.is_none() {
            match process::spent_by(self.pid, false) {
                Ok(None) => {}
                Ok(Some(end)) => self.note(Some(end)),
                // Somebody else has reaped it: it is over all the same.
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => self.note(None),
                Err(error) => return Err(error),
            }
        }
        Ok(self.over.is_some())
    }

    /// The process from which everything of the jail descends.
    pub(super) fn first(&self) -> Option<u32> {
        let running = self.over.is_none();
        running.then(|| self.pid.as_raw().cast_unsigned())
    }

    pub(super) fn wait(&mut self) -> io::Result<()> {
        if self.over.is_none() {
            match process::spent_by(self.pid, true) {
                Ok(end) => self.note(end),
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => self.note(None),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn note(&mut self, end: Option<(Change, Usage)>) {
        self.over = Some(Over {
            killed: matches!(end, Some((Change::Killed(_), _))),
            spent: end.map(|(_, spent)| spent),
        });
    }

    pub(super) fn kill(&mut self) {
        // One that is over needs no signal; it is not reaped before this returns.
        if self.over.is_none() {
            let _ = kill(self.pid, Signal::SIGKILL);
        }
    }

    /// Whether a jail that was joined was ended by a signal.
    pub(super) fn was_killed(&self) -> bool {
        self.complaint.is_none() && self.over.is_some_and(|over| over.killed)
    }

    /// What it has used, with all for which somebody in it waited; `None` while it runs, and where nobody knows.
    pub(super) fn spent(&self) -> Option<Usage> {
        self.over.and_then(|over| over.spent)
    }

    /// What can be said of one that never came to be.
    pub(super) fn complaint(self) -> String {
        self.complaint.map_or_else(String::new, diagnose::complaint)
    }
}
