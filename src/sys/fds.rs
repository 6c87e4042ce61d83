//! File descriptors: closing what was inherited, memory files, inheritance by a child.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::fcntl::{FcntlArg, FdFlag, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Marks every descriptor from `first` on close-on-exec, so that no program started from here
/// inherits what the caller happened to have open.
///
/// # Errors
/// What `close_range(2)` (Linux 5.9, the flag 5.11) or, on older kernels, `/proc/self/fd` answers.
pub fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    // SAFETY: the call changes flags of descriptors, closes none and touches no memory.
    let done = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if done == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if !matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) {
        return Err(error);
    }
    for fd in open_descriptors()? {
        if fd >= first {
            // SAFETY: F_SETFD changes a flag; a descriptor that is gone by now answers EBADF.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

fn open_descriptors() -> io::Result<Vec<RawFd>> {
    let mut all = Vec::new();
    #[allow(
        clippy::disallowed_methods,
        reason = "the fallback of a system call that the kernel lacks"
    )]
    for entry in std::fs::read_dir("/proc/self/fd")? {
        if let Some(fd) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        {
            all.push(fd);
        }
    }
    Ok(all)
}

/// A sealed memory file that holds `content`, positioned at its start, close-on-exec.
///
/// # Errors
/// What `memfd_create(2)`, `write(2)` or `fcntl(2)` answer.
pub fn memory_file(name: &CStr, content: &[u8]) -> io::Result<OwnedFd> {
    let fd = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    let mut file = File::from(fd);
    file.write_all(content)?;
    file.seek(SeekFrom::Start(0))?;
    let seals = SealFlag::F_SEAL_WRITE
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file.into())
}

/// Lets programs started from here inherit `fd`.
///
/// # Errors
/// What `fcntl(2)` answers.
pub fn inheritable(fd: impl AsFd) -> io::Result<()> {
    fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(())
}

/// Takes over a descriptor that a parent process passed under a number agreed on.
///
/// # Errors
/// `EBADF` if nothing is open under that number.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD only asks.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and by the agreement with the parent nobody else in this process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Makes `fd` the standard stream `number` (0, 1 or 2) of this process.
///
/// # Errors
/// `EINVAL` for another number; what `dup2(2)` answers.
pub fn become_standard(fd: impl AsFd, number: RawFd) -> io::Result<()> {
    if !(0..=2).contains(&number) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: the standard streams belong to the process as a whole; dup2 replaces one atomically.
    if unsafe { libc::dup2(fd.as_fd().as_raw_fd(), number) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
