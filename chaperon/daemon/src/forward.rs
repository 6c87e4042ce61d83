//! Ports inside for the user outside: a process of its own, which the launcher starts in the jail's network and gives the listeners
//! of the user's sockets. It ends with the launcher.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;

use agent_sandbox_wire::network::{COMPLETE, READY, read_forwarded};
use nix::sys::socket::{MsgFlags, send};

use crate::closing::Received;
use crate::sys;

/// No message of the launcher's is longer.
const LONGEST_MESSAGE: usize = 2;

/// Forwards until the launcher is gone. The argument is the number of the inherited socket on which the launcher passes listeners.
///
/// # Errors
/// A descriptor is not what it should be.
pub fn forward(life: i32) -> io::Result<()> {
    let life = sys::inherited(life)?;
    sys::harden()?;
    let listeners = receive(&life)?;
    send(life.as_raw_fd(), &[READY], MsgFlags::MSG_NOSIGNAL)?;
    agent_sandbox_filter::forward(listeners, life)
}

/// The listeners with their ports, which the launcher passes one by one.
fn receive(launcher: &OwnedFd) -> io::Result<Vec<(u16, UnixListener)>> {
    let mut all = Vec::new();
    loop {
        let (mut message, mut fds) = ([0; LONGEST_MESSAGE], Vec::new());
        let length = sys::receive(launcher, &mut message, &mut fds)?;
        let message = &message[..length];
        if message == [COMPLETE] {
            return Ok(all);
        }
        let fd = fds.pop().map(|fd| OwnedFd::from(Received::into_file(fd)));
        match (read_forwarded(message), fd) {
            (Some(port), Some(fd)) => all.push((port, UnixListener::from(fd))),
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
