//! Descriptors of processes.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// A descriptor of the process, which stays that process's whoever gets its number later
/// (`pidfd_open(2)`, Linux 5.3).
///
/// # Errors
/// What `pidfd_open(2)` answers: there is no such process, or the number is a thread's.
#[allow(unsafe_code)]
pub(crate) fn open(process: u32) -> io::Result<OwnedFd> {
    let process = i32::try_from(process).map_err(|_| io::ErrorKind::NotFound)?;
    // SAFETY: the call takes two numbers and touches no memory of this process.
    let number = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    let number = RawFd::try_from(number).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just made this descriptor for this process, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
