//! What the launcher says while a jail runs. A terminal that is stopped (`Ctrl-S`, or `tcflow(3)` by what runs inside) keeps
//! whoever writes there, so a child writes: what is due is done all the same.

use std::io;
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};

use crate::failure;
use crate::sys::process::{self, Side};
use crate::sys::{fds, privileges};

/// So long the launcher waits for it, in milliseconds, so that what it says stands in front of what follows.
const PATIENCE: u8 = 200;

/// Who writes.
#[derive(Debug)]
pub(super) struct Writer {
    by_slurm: bool,
    child: Option<Pid>,
}

impl Writer {
    /// In a job or step (`by_slurm`) slurmstepd reads, and no terminal stands behind it; and a child of the launcher of a step that
    /// joined another's jail would be in that jail's pid namespace, where others may stop it.
    pub(super) fn new(by_slurm: bool) -> Self {
        Self {
            by_slurm,
            child: None,
        }
    }

    /// Says it. It is lost where what was said before has not been written.
    pub(super) fn say(&mut self, text: &str) {
        if self.by_slurm {
            failure::say(text);
            return;
        }
        if text.is_empty() || self.is_busy() {
            return;
        }
        let launcher = getpid();
        match process::fork() {
            Ok(Side::Child) => {
                // It may hang for as long as the terminal is stopped: nothing of the launcher's stays open by it.
                let ends = privileges::end_with_parent(Some(launcher));
                if ends.and_then(|()| fds::close_all_but(&[])).is_ok() {
                    failure::say(text);
                }
                process::exit_now(0)
            }
            Ok(Side::Parent(child)) => {
                self.child = Some(child);
                if let Ok(ends) = process::descriptor_of(child) {
                    let _ = poll(
                        &mut [PollFd::new(ends.as_fd(), PollFlags::POLLIN)],
                        PATIENCE,
                    );
                }
                self.is_busy();
            }
            // At a limit of processes.
            Err(_) => {
                let errors = io::stderr();
                let mut ready = [PollFd::new(errors.as_fd(), PollFlags::POLLOUT)];
                if poll(&mut ready, PollTimeout::ZERO) == Ok(1) {
                    failure::say(text);
                }
            }
        }
    }

    fn is_busy(&mut self) -> bool {
        let ended = |child: &mut Pid| {
            let status = waitpid(*child, Some(WaitPidFlag::WNOHANG));
            status != Ok(WaitStatus::StillAlive)
        };
        self.child.take_if(ended);
        self.child.is_some()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.is_busy()
            && let Some(child) = self.child
        {
            // Where a file server keeps it, it ends later, and nobody waits for that.
            let _ = kill(child, Signal::SIGKILL);
            let _ = waitpid(child, Some(WaitPidFlag::WNOHANG));
        }
    }
}
