//! What is said on the standard error of a session.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// How long a terminal that takes nothing is waited for, in milliseconds.
const PATIENCE_MS: u16 = 500;

/// A line on the session's standard error.
pub(crate) fn say(errors: &OwnedFd, why: &str, hint: Option<&str>) {
    let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
    let mut ready = [PollFd::new(errors.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut ready, PollTimeout::from(PATIENCE_MS)).is_ok_and(|ready| ready > 0)
        && let Ok(errors) = errors.try_clone()
    {
        // A terminal that is gone needs no line.
        let _ = File::from(errors).write_all(format!("agent-sandbox: {why}{hint}\n").as_bytes());
    }
}
