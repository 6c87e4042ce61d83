//! Pseudo-terminals (`pts(4)`, `ioctl_tty(2)`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Opens the other side of a pseudo-terminal's master, without its path (`TIOCGPTPEER`, Linux 4.13).
/// `flags` are those of `open(2)`.
///
/// # Errors
/// `EIO` for a file that is no master; what opening a terminal answers.
pub fn peer(master: impl AsFd, flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the command takes a number and touches no memory; on a file that is no master it is
    // another command or none, which the caller rules out.
    let number = unsafe { libc::ioctl(master.as_fd().as_raw_fd(), libc::TIOCGPTPEER, flags) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
