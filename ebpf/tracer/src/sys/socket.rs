//! What nix's calls for sockets lack.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Whether the other end has not yet received all that was sent to it (`SIOCOUTQ`, `unix(7)`).
#[allow(unsafe_code)]
pub(crate) fn unreceived(socket: &impl AsRawFd) -> bool {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call writes one int, and there is one.
    let told = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    told == 0 && bytes > 0
}

/// A connection that `accept4(2)` has just given.
#[allow(unsafe_code)]
pub(crate) fn accepted(number: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just made this descriptor for this process, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// `listen(2)`, for at most `waiting` connections that nobody has accepted yet, less where
/// `net.core.somaxconn` is less. nix's own call refuses more than the `SOMAXCONN` of the C library, which
/// is no limit of the kernel's: 128 in musl.
///
/// # Errors
/// What `listen(2)` answers.
#[allow(unsafe_code)]
pub(crate) fn listen(socket: &impl AsRawFd, waiting: libc::c_int) -> io::Result<()> {
    // SAFETY: the call touches no memory.
    if unsafe { libc::listen(socket.as_raw_fd(), waiting) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
