//! Whether the kernel, and whoever filters its calls, lets a process do what a mediator has to:
//! found by trying, without an effect.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use super::process::{self, Side};

/// Filters that hand calls over, whose callers only a fatal signal interrupts while somebody
/// answers (`seccomp(2)`, `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`, Linux 5.19). The kernel looks at
/// the flags before it looks at the program, which is none.
///
/// # Errors
/// `EINVAL` or `ENOSYS`: it does not know them.
pub fn killable_notifications() -> io::Result<()> {
    filters(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
}

/// Filters that hand calls over (`seccomp(2)`, `SECCOMP_FILTER_FLAG_NEW_LISTENER`, Linux 5.0).
///
/// # Errors
/// `EINVAL` or `ENOSYS`: it does not know them.
pub fn notifications() -> io::Result<()> {
    filters(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)
}

fn filters(flags: libc::c_ulong) -> io::Result<()> {
    // SAFETY: without a program the call installs nothing; the kernel cannot read address 0.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            std::ptr::null::<libc::sock_fprog>(),
        )
    };
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EFAULT) if done < 0 => Ok(()),
        _ => Err(error),
    }
}

/// Paths that are followed without the links of `/proc` (`openat2(2)`, Linux 5.6).
///
/// # Errors
/// `ENOSYS`, or whatever a filter answers.
pub fn guarded_paths() -> io::Result<()> {
    // SAFETY: all zeroes is a valid value of this structure of numbers.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: the path ends in 0, and the kernel reads as much of the structure as it is long.
    let number = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            libc::AT_FDCWD,
            c"/".as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    close(number)
}

/// Copies of other processes' descriptors (`pidfd_getfd(2)`, Linux 5.6), tried on this one.
///
/// # Errors
/// `ENOSYS`, or whatever a filter answers.
pub fn copies_of_descriptors() -> io::Result<()> {
    let own = process::descriptor_of(nix::unistd::getpid())?;
    let number = own.as_raw_fd();
    // SAFETY: the call touches no memory.
    close(unsafe { libc::syscall(libc::SYS_pidfd_getfd, number, number, 0) })
}

/// Reading other processes' memory (`process_vm_readv(2)`), tried on this one.
///
/// # Errors
/// `ENOSYS`, or whatever a filter answers.
pub fn memory_of_others() -> io::Result<()> {
    let from = [1u8];
    let mut to = [0u8];
    let local = libc::iovec {
        iov_base: to.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let remote = libc::iovec {
        iov_base: from.as_ptr().cast_mut().cast(),
        iov_len: 1,
    };
    // SAFETY: one byte is copied from one local array to another.
    let read = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    match read {
        1 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Processes that nobody may trace in `/proc`, where `hidepid` hides them (`proc(5)`), tried on a child.
///
/// # Errors
/// `ENOENT` or `EPERM`: they are hidden.
#[allow(clippy::disallowed_methods, reason = "what is read is the answer")]
pub fn untraceable_processes() -> io::Result<()> {
    let (mut ours, mut theirs) = UnixStream::pair()?;
    match process::fork()? {
        Side::Child => {
            drop(ours);
            let _ = nix::sys::prctl::set_dumpable(false);
            let _ = theirs.write_all(&[0]);
            // Until the other side is closed.
            let _ = theirs.read(&mut [0]);
            process::exit_now(0)
        }
        Side::Parent(child) => {
            drop(theirs);
            let seen = ours
                .read_exact(&mut [0])
                .and_then(|()| std::fs::read(format!("/proc/{child}/stat")));
            drop(ours);
            process::wait(child)?;
            seen.map(drop)
        }
    }
}

/// Closes the descriptor that a call answered, or says what it answered instead.
fn close(answer: libc::c_long) -> io::Result<()> {
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    let number = RawFd::try_from(answer).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for this process.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    Ok(())
}

#[cfg(test)]
mod tests {
    /// The kernel that the tests run on has all of it: the suites need Landlock's mediator.
    #[test]
    fn what_there_is_is_found() {
        super::killable_notifications().unwrap();
        super::notifications().unwrap();
        super::guarded_paths().unwrap();
        super::copies_of_descriptors().unwrap();
        super::memory_of_others().unwrap();
        super::untraceable_processes().unwrap();
    }
}
