//! File descriptors: closing what was inherited, memory files, inheritance by a child.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

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
    let file = File::from(fd);
    file.write_all_at(content, 0)?;
    let seals = SealFlag::F_SEAL_WRITE
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file.into())
}

/// The content of a memory file that nobody can change any more.
///
/// # Errors
/// `EINVAL` for a file that is none or is not sealed, `EFBIG` for one of more than `most` bytes; what
/// `read(2)` answers.
pub fn read_memory_file(fd: OwnedFd, most: u64) -> io::Result<Vec<u8>> {
    let seals = SealFlag::from_bits_truncate(fcntl(&fd, FcntlArg::F_GET_SEALS)?);
    if !seals.contains(SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut file = File::from(fd);
    if file.metadata()?.len() > most {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let mut content = Vec::new();
    // The sender's position is shared.
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// Lets programs started from here inherit `fd`.
///
/// # Errors
/// What `fcntl(2)` answers.
pub fn inheritable(fd: impl AsFd) -> io::Result<()> {
    fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(())
}

/// Lets programs that this process becomes inherit the descriptor with this number.
///
/// # Errors
/// `EBADF` if nothing is open under that number.
pub fn pass_on(number: RawFd) -> io::Result<()> {
    // SAFETY: F_SETFD changes a flag of a descriptor and touches no memory.
    if unsafe { libc::fcntl(number, libc::F_SETFD, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Whether a stream socket of `unix(7)` is open under that number.
pub fn is_unix_stream(number: RawFd) -> bool {
    let ask = |option| super::sockets::option(number, option).ok();
    ask(libc::SO_DOMAIN) == Some(libc::AF_UNIX) && ask(libc::SO_TYPE) == Some(libc::SOCK_STREAM)
}

/// The terminal among the standard streams, by a descriptor of its own, close-on-exec.
///
/// # Errors
/// What `dup(2)` answers.
pub fn terminal() -> io::Result<Option<OwnedFd>> {
    let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
    let streams = [input.as_fd(), output.as_fd(), error.as_fd()];
    let terminal = streams.into_iter().find(IsTerminal::is_terminal);
    terminal.map(|one| one.try_clone_to_owned()).transpose()
}

/// Closes every descriptor from 3 on but those with these numbers. For a process that goes on
/// alone after a fork: nothing that its parent held open stays open by it.
///
/// # Errors
/// What reading `/proc/self/fd` answers.
pub fn close_all_but(kept: &[RawFd]) -> io::Result<()> {
    for fd in open_descriptors()? {
        if fd > 2 && !kept.contains(&fd) {
            // SAFETY: the caller gives up everything else that it owned, by contract; a number
            // that is closed already answers EBADF.
            unsafe { libc::close(fd) };
        }
    }
    Ok(())
}

/// Closes a descriptor that a parent owned, in a child that was forked and never returns: there its
/// owner is not run any more.
///
/// # Errors
/// What `close(2)` answers.
pub fn close_in_child(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: by contract nobody in this process uses or drops the owner again.
    if unsafe { libc::close(fd.as_raw_fd()) } < 0 {
        return Err(io::Error::last_os_error());
    }
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

/// Takes a write lease (`F_SETLEASE`, fcntl(2)): whoever opens the file waits until it is closed here, 45 s at most
/// (`/proc/sys/fs/lease-break-time`). The caller must ignore `SIGIO`, by which the kernel says that somebody waits.
///
/// # Errors
/// `EAGAIN`: somebody has it open, or, before Linux 5.3, it is mounted somewhere; `EACCES`: it is another user's; `EINVAL`: its
/// file system has no leases, as NFS without delegations.
pub fn lease(file: impl AsFd) -> nix::Result<()> {
    // SAFETY: the call takes a number and touches no memory.
    let taken = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) };
    nix::errno::Errno::result(taken).map(drop)
}
