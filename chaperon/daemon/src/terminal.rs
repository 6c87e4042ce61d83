//! What is said on the standard error of a session.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// How long a terminal that takes nothing is waited for, in milliseconds.
const PATIENCE_MS: u16 = 500;

/// The bell, if that is a terminal. The line behind it begins at the left, whatever stands there: what runs inside may have set the
/// terminal so that a newline does not lead there.
pub(crate) fn ring(errors: &OwnedFd) {
    if errors.as_fd().is_terminal() {
        write(errors, b"\x07\r\n");
    }
}

/// A line on the session's standard error.
pub(crate) fn say(errors: &OwnedFd, why: &str, hint: Option<&str>) {
    let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
    let end = if errors.as_fd().is_terminal() {
        "\r\n"
    } else {
        "\n"
    };
    write(
        errors,
        format!("agent-sandbox: {why}{hint}{end}").as_bytes(),
    );
}

fn write(errors: &OwnedFd, text: &[u8]) {
    let mut ready = [PollFd::new(errors.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut ready, PollTimeout::from(PATIENCE_MS)).is_ok_and(|ready| ready > 0)
        && let Ok(errors) = errors.try_clone()
    {
        // A terminal that is gone needs no line.
        let _ = File::from(errors).write_all(text);
    }
}
