//! The only unsafe code: inherited descriptors, and what a child does between fork and exec.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::unistd::{SysconfVar, getpid, gettid, sysconf};

use crate::closing::Received;
pub(crate) use exec_filter::FilteredProgram;

mod exec_filter;

/// The most descriptors in one message: the three standard streams.
const MOST_DESCRIPTORS: usize = 3;

/// Digits of a process id in an intent: more than the largest has.
pub(crate) const PID_DIGITS: usize = 10;

/// Signals that do not end the chaperon: those that are meant for a whole job.
const IGNORED: [i32; 9] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGPIPE,
    libc::SIGTSTP,
];

/// Takes over a descriptor that the launcher passed under a number agreed on.
///
/// # Errors
/// `EBADF` if nothing is open under that number.
#[allow(unsafe_code)]
pub(crate) fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD only asks.
    if number <= 2 || unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it is open, and by the agreement with the launcher nobody else here owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Prepares a child: a session of its own, so that it has no controlling terminal and job control
/// does not stop it (and so that Slurm's `alloc_sid` is its pid); no memory image when it crashes; an
/// end with the chaperon's end.
/// The descriptors `kept` stay open in it. Into `intent`, which stays open as well, it writes its process id. A `filtered` program takes the place of the command's.
#[allow(unsafe_code)]
pub(crate) fn detach(
    command: &mut tokio::process::Command,
    umask: u32,
    kept: Vec<RawFd>,
    intent: Option<RawFd>,
    filtered: Option<FilteredProgram>,
) {
    let filtered = filtered.map(FilteredProgram::prepare);
    // SAFETY: setsid(2), umask(2), prctl(2), getrlimit(2), setrlimit(2), fcntl(2), getppid(2), pwrite(2),
    // dup(2), close(2) and execve(2) are system calls and no more; nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            for &number in &kept {
                if libc::fcntl(number, libc::F_SETFD, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            libc::setsid();
            // What the chaperon ignores its children do not.
            for signal in IGNORED {
                libc::signal(signal, libc::SIG_DFL);
            }
            libc::umask(umask as libc::mode_t);
            // A memory image would be a file of Slurm's choosing. The hard limit stays: Slurm hands
            // the soft one on to the job, which may raise it.
            let mut limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            if libc::getrlimit(libc::RLIMIT_CORE, &mut limit) != 0 {
                return Err(io::Error::last_os_error());
            }
            limit.rlim_cur = 0;
            if libc::setrlimit(libc::RLIMIT_CORE, &limit) != 0 {
                return Err(io::Error::last_os_error());
            }
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The chaperon may have ended before the signal was asked for.
            if libc::getppid() == 1 {
                libc::_exit(1);
            }
            // Who the command is stands in its intent before it can ask Slurm for anything.
            if let Some(number) = intent {
                let mut digits = [b'0'; PID_DIGITS];
                let mut rest = libc::getpid();
                for digit in digits.iter_mut().rev() {
                    *digit = b'0' + (rest % 10) as u8;
                    rest /= 10;
                }
                let text = digits.as_ptr().cast();
                if libc::pwrite(number, text, PID_DIGITS, 0) != PID_DIGITS as isize {
                    return Err(io::Error::last_os_error());
                }
                // Closing any of its descriptors is what makes NFS write it (nfs(5), close-to-open).
                let again = libc::dup(number);
                if again < 0 || libc::close(again) < 0 || libc::fcntl(number, libc::F_SETFD, 0) < 0
                {
                    return Err(io::Error::last_os_error());
                }
            }
            // All else is done: descriptors, the signal mask and the directory come before.
            match &filtered {
                Some(filtered) => Err(filtered.enter()),
                None => Ok(()),
            }
        });
    }
}

/// How far calls below the one that waits have used the stack, at most, in bytes. A request's go some 80 KiB deep.
const DEPTH: usize = 256 << 10;

/// Gives back to the kernel what the last request took and the next one may need in an hour: memory that the allocator keeps
/// (`malloc_trim(3)`), and pages of the stack.
#[allow(unsafe_code)]
pub(crate) fn release_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
    release_stack();
}

/// Gives back the pages of the stack that deeper calls have left (`madvise(2)`).
#[inline(never)]
#[allow(unsafe_code)]
fn release_stack() {
    let Ok(Some(page)) = sysconf(SysconfVar::PAGE_SIZE) else {
        return;
    };
    let page = usize::try_from(page).unwrap_or(usize::MAX);
    // Below the first thread's stack the kernel keeps a gap; below another's anything may be.
    if gettid() != getpid() || !page.is_power_of_two() || page > DEPTH {
        return;
    }
    let here = 0u8;
    let end = (std::ptr::from_ref(&here).addr() & !(page - 1)) - page;
    // SAFETY: this function is not inlined, so that `here` is in the innermost frame but that of the call itself, for which more than
    // a page is left. What lies further down is of calls that are over.
    unsafe {
        libc::madvise(
            std::ptr::without_provenance_mut(end - DEPTH),
            DEPTH,
            libc::MADV_DONTNEED,
        );
    }
}

/// Receives bytes, and adds descriptors that come with them to `fds`.
///
/// # Errors
/// What `recvmsg(2)` answers; `InvalidData` for more descriptors than any message has.
#[allow(unsafe_code)]
pub(crate) fn receive(
    socket: &impl AsRawFd,
    buffer: &mut [u8],
    fds: &mut Vec<Received>,
) -> io::Result<usize> {
    let mut space = nix::cmsg_space!([RawFd; MOST_DESCRIPTORS]);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    // The kernel closes what has no room; what arrived is owned before anything can fail.
    for control in message.cmsgs().into_iter().flatten() {
        if let ControlMessageOwned::ScmRights(numbers) = control {
            for number in numbers {
                // SAFETY: the kernel has just made this descriptor for this process.
                fds.push(unsafe { OwnedFd::from_raw_fd(number) }.into());
            }
        }
    }
    if fds.len() > MOST_DESCRIPTORS {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(message.bytes)
}

/// Makes this process one that processes of the same user cannot trace, lets it have as many
/// descriptors as it may, and has signals meant for a whole job (`SIGTERM` at its time limit) not
/// end it before the jail that it serves.
///
/// # Errors
/// What `prctl(2)` answers.
#[allow(unsafe_code)]
pub(crate) fn harden() -> io::Result<()> {
    nix::sys::prctl::set_dumpable(false)?;
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the calls read and write one structure, to which they get a pointer; ignoring a
    // signal runs no code.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
        for signal in IGNORED {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
    Ok(())
}
