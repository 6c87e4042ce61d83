//! The process of a jail that the launcher waits for.

use std::io;
use std::os::unix::net::UnixStream;
use std::process::Child;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::diagnose;

/// The process below the launcher that ends with the command.
#[derive(Debug)]
pub enum Jail {
    /// bubblewrap, around init.
    Built {
        /// The process.
        bwrap: Child,
        /// What it says if it gets nowhere.
        complaint: UnixStream,
    },
    /// The attendant of a command in a jail that was joined.
    Joined(Pid),
    /// One that has ended.
    Over {
        /// By a signal.
        killed: bool,
    },
}

impl Jail {
    pub(super) fn is_over(&mut self) -> io::Result<bool> {
        match self {
            Self::Built { bwrap, .. } => Ok(bwrap.try_wait()?.is_some()),
            Self::Joined(pid) => {
                let status = waitpid(*pid, Some(WaitPidFlag::WNOHANG));
                let over = !matches!(status, Ok(WaitStatus::StillAlive));
                if over {
                    self.note(status);
                }
                Ok(over)
            }
            Self::Over { .. } => Ok(true),
        }
    }

    /// The process from which everything of the jail descends.
    pub(super) fn first(&self) -> Option<u32> {
        match self {
            Self::Built { bwrap, .. } => Some(bwrap.id()),
            Self::Joined(pid) => u32::try_from(pid.as_raw()).ok(),
            Self::Over { .. } => None,
        }
    }

    pub(super) fn wait(&mut self) -> io::Result<()> {
        match self {
            Self::Built { bwrap, .. } => drop(bwrap.wait()?),
            Self::Joined(pid) => {
                let pid = *pid;
                let status = loop {
                    match waitpid(pid, None) {
                        Err(Errno::EINTR) => {}
                        status => break status,
                    }
                };
                self.note(status);
            }
            Self::Over { .. } => {}
        }
        Ok(())
    }

    fn note(&mut self, status: nix::Result<WaitStatus>) {
        *self = Self::Over {
            killed: matches!(status, Ok(WaitStatus::Signaled(..))),
        };
    }

    pub(super) fn kill(&mut self) {
        // One that is over needs no signal; it is not reaped before this returns.
        match self {
            Self::Built { bwrap, .. } => drop(bwrap.kill()),
            Self::Joined(pid) => drop(kill(*pid, Signal::SIGKILL)),
            Self::Over { .. } => {}
        }
    }

    /// What can be said of one that never came to be.
    pub(super) fn complaint(self) -> String {
        match self {
            Self::Built { complaint, .. } => diagnose::complaint(complaint),
            Self::Joined(_) | Self::Over { .. } => String::new(),
        }
    }
}
