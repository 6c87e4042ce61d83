//! Init of a jail that outlives its commands: it hands its namespaces out, reaps what is left to it,
//! and ends with its launcher.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;

use super::control::{Control, FAILED};
use crate::handoff::Report;
use crate::sys::namespaces::{self, Kind};
use crate::sys::process;

/// The namespaces that processes which join enter, in the order of [`Report::Namespaces`].
const HANDED_OUT: [Kind; 6] = [
    Kind::User,
    Kind::Ipc,
    Kind::Uts,
    Kind::Mount,
    Kind::Pid,
    Kind::Network,
];

/// Orphans that are reaped before the launcher is looked for again.
pub(super) const REAPED_AT_ONCE: u32 = 64;

/// Keeps the jail until the launcher is gone; the exit code.
///
/// # Errors
/// A sentence: a namespace cannot be handed out.
pub(super) fn keep(control: &Control, signals: &SignalFd) -> Result<i32, String> {
    let all: Vec<OwnedFd> = HANDED_OUT
        .into_iter()
        .map(namespaces::own)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("cannot open the jail's namespaces: {error}"))?;
    let lent: Vec<BorrowedFd<'_>> = all.iter().map(AsFd::as_fd).collect();
    control
        .send_many(&Report::Namespaces, &lent)
        .map_err(|error| format!("cannot hand the jail's namespaces out: {error}"))?;
    drop(all);
    control.send(&Report::Ready);
    loop {
        let mut ready = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(control.0.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return Ok(FAILED),
        }
        let [signalled, asked] = ready.map(|one| one.any().unwrap_or(false));
        if signalled {
            // One alone: what is left makes the next poll return at once.
            let _ = signals.read_signal();
            // Some at a time: a storm of orphans must not keep init from seeing its launcher go.
            for _ in 0..REAPED_AT_ONCE {
                if !matches!(process::next_change(), Ok(Some(_))) {
                    break;
                }
            }
        }
        // The launcher asks nothing of an init without a command: it is gone, and so is the jail.
        if asked && control.receive().is_none() {
            return Ok(0);
        }
    }
}
