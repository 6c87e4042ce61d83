//! Other processes: their memory, descriptors, limits and scheduling, by the number of a thread or
//! by a descriptor of it.
//!
//! A number may come to mean another process. Each caller says how it knows that it has not.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::PidfdGetfdFlags;

/// `PIDFD_THREAD`, include/uapi/linux/pidfd.h.
const PIDFD_THREAD: libc::c_int = libc::O_EXCL;

/// Reads the memory of the process of `thread` from `address` on into `buffer`: how much could be read,
/// which is less than asked for where what follows is not mapped.
///
/// # Errors
/// What `process_vm_readv(2)` answers: `EFAULT`, `EPERM`, `ESRCH`.
pub fn read(thread: i32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let remote = part(address, buffer.len())?;
    // SAFETY: the kernel writes to the buffer alone, as far as it is long; the other address is the
    // other process's.
    length(unsafe { libc::process_vm_readv(thread, &raw const local, 1, &raw const remote, 1, 0) })
}

/// Writes `bytes` to the memory of the process of `thread`, where that process may write itself.
///
/// # Errors
/// What `process_vm_writev(2)` answers: `EFAULT`, also if only a part could be written; `EPERM`,
/// `ESRCH`.
pub fn write(thread: i32, address: u64, bytes: &[u8]) -> io::Result<()> {
    let local = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let remote = part(address, bytes.len())?;
    // SAFETY: the kernel only reads the bytes; the other address is the other process's.
    let done = length(unsafe {
        libc::process_vm_writev(thread, &raw const local, 1, &raw const remote, 1, 0)
    })?;
    if done == bytes.len() {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EFAULT))
    }
}

fn part(address: u64, length: usize) -> io::Result<libc::iovec> {
    let address =
        usize::try_from(address).map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))?;
    Ok(libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address),
        iov_len: length,
    })
}

fn length(answer: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// A descriptor of a thread (`pidfd_open(2)`, `PIDFD_THREAD`, Linux 6.9). On an older kernel one of its
/// process, if `thread` is the first of it.
///
/// # Errors
/// `ESRCH`; on an older kernel `EINVAL` or `ENOENT` for a thread that is not the first.
pub fn descriptor_of_thread(thread: i32) -> io::Result<OwnedFd> {
    static KNOWS_NO_THREADS: AtomicBool = AtomicBool::new(false);
    if !KNOWS_NO_THREADS.load(Ordering::Relaxed) {
        match pidfd_open(thread, PIDFD_THREAD) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && thread > 0 => {
                KNOWS_NO_THREADS.store(true, Ordering::Relaxed);
            }
            answer => return answer,
        }
    }
    pidfd_open(thread, 0)
}

fn pidfd_open(process: i32, flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call touches no memory.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, process, flags) })
}

/// A copy of the descriptor `number` of a process: the same open file, close-on-exec
/// (`pidfd_getfd(2)`, Linux 5.6).
///
/// # Errors
/// `EBADF`, `EPERM`, `ESRCH`.
pub fn descriptor_from(process: impl AsFd, number: RawFd) -> io::Result<OwnedFd> {
    // The number is the caller's word; rustix takes none below zero for a descriptor, and ends a debug build at it.
    if number < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    let none = PidfdGetfdFlags::empty();
    Ok(rustix::process::pidfd_getfd(process, number, none)?)
}

fn owned(answer: libc::c_long) -> io::Result<OwnedFd> {
    let number = RawFd::try_from(done(answer)?).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made it, nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn done(answer: libc::c_long) -> io::Result<i64> {
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}

/// What follows a signal that was sent with a value (`sigqueue(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// Who shall have sent it.
    pub sender: i32,
    /// Whose it is.
    pub user: u32,
    /// The value: a pointer or a number, as the receiver understands it.
    pub value: u64,
}

impl Queued {
    /// `siginfo_t` with `SI_QUEUE`, as both architectures lay it out (include/uapi/asm-generic/siginfo.h).
    fn info(self, signal: i32) -> [u64; 16] {
        let mut bytes = [0u8; 128];
        let mut put = |at: usize, what: &[u8]| {
            if let Some(place) = bytes.get_mut(at..at + what.len()) {
                place.copy_from_slice(what);
            }
        };
        put(0, &signal.to_ne_bytes());
        put(8, &libc::SI_QUEUE.to_ne_bytes());
        put(16, &self.sender.to_ne_bytes());
        put(20, &self.user.to_ne_bytes());
        put(24, &self.value.to_ne_bytes());
        let (words, _) = bytes.as_chunks::<8>();
        let mut info = [0; 16];
        for (to, from) in info.iter_mut().zip(words) {
            *to = u64::from_ne_bytes(*from);
        }
        info
    }
}

/// Sends a signal to the process of a descriptor, or to the thread of one of a thread
/// (`pidfd_send_signal(2)`, Linux 5.1).
///
/// # Errors
/// `EINVAL` for no signal and for no such descriptor, `EPERM`, `ESRCH`.
pub fn signal(to: impl AsFd, signal: i32, queued: Option<Queued>) -> io::Result<()> {
    let info = queued.map(|queued| queued.info(signal));
    let info = info.as_ref().map_or(std::ptr::null(), |info| info.as_ptr());
    // SAFETY: the kernel reads a siginfo_t, 128 bytes, if it is given one.
    done(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            to.as_fd().as_raw_fd(),
            signal,
            info,
            0,
        )
    })?;
    Ok(())
}

/// Sends a signal to a thread of a process, by their numbers (`tgkill(2)`, `rt_tgsigqueueinfo(2)`).
///
/// # Errors
/// `EINVAL`, `EPERM`, `ESRCH`; `EAGAIN` if too many are queued.
pub fn signal_thread(
    process: i32,
    thread: i32,
    signal: i32,
    queued: Option<Queued>,
) -> io::Result<()> {
    let answer = match queued.map(|queued| queued.info(signal)) {
        // SAFETY: the call touches no memory.
        None => unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) },
        // SAFETY: the kernel reads a siginfo_t, 128 bytes, which this is.
        Some(info) => unsafe {
            libc::syscall(
                libc::SYS_rt_tgsigqueueinfo,
                process,
                thread,
                signal,
                info.as_ptr(),
            )
        },
    };
    done(answer)?;
    Ok(())
}

/// A limit: soft and hard, `u64::MAX` for none.
pub type Limit = (u64, u64);

/// Sets a limit of a process, if there is one to set, and gives the one before (`prlimit(2)`).
/// `resource` is a `RLIMIT_*`, which have another type with each C library.
///
/// # Errors
/// `EINVAL`, `EPERM`, `ESRCH`.
pub fn limit(process: i32, resource: u32, new: Option<Limit>) -> io::Result<Limit> {
    let new = new.map(|(soft, hard)| [soft, hard]);
    let new = new.as_ref().map_or(std::ptr::null(), |new| new.as_ptr());
    let mut old = [0u64; 2];
    // SAFETY: the kernel reads and writes a struct rlimit64 each: two u64.
    done(unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            process,
            resource,
            new,
            old.as_mut_ptr(),
        )
    })?;
    Ok((old[0], old[1]))
}

/// The nice value of a process (`getpriority(2)`); 0 is the caller.
///
/// # Errors
/// `ESRCH`.
pub fn nice(process: i32) -> io::Result<i32> {
    // SAFETY: the call touches no memory. It answers 20 less the nice value, so that no answer is an error's.
    let answer =
        done(unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, process) })?;
    Ok(20 - i32::try_from(answer).unwrap_or(20))
}

/// Sets the nice value of a thread (`setpriority(2)`, `PRIO_PROCESS`).
///
/// # Errors
/// `EACCES`, `EPERM`, `ESRCH`.
pub fn set_nice(thread: i32, nice: i32) -> io::Result<()> {
    // SAFETY: the call touches no memory.
    done(unsafe { libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, thread, nice) })?;
    Ok(())
}

/// Sets the i/o priority of a thread (`ioprio_set(2)`, `IOPRIO_WHO_PROCESS`).
///
/// # Errors
/// `EINVAL`, `EPERM`, `ESRCH`.
pub fn set_io_priority(thread: i32, priority: i32) -> io::Result<()> {
    /// include/uapi/linux/ioprio.h.
    const IOPRIO_WHO_PROCESS: i32 = 1;
    // SAFETY: the call touches no memory.
    done(unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, thread, priority) })?;
    Ok(())
}

/// Sets on which processors a thread runs: a bit for each, from the lowest on
/// (`sched_setaffinity(2)`).
///
/// # Errors
/// `EINVAL`, `EPERM`, `ESRCH`.
pub fn set_affinity(thread: i32, mask: &[u64]) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as it is told, which are there.
    done(unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            thread,
            size_of_val(mask),
            mask.as_ptr(),
        )
    })?;
    Ok(())
}

/// Sets how a thread is scheduled: with a policy (`sched_setscheduler(2)`), or its priority under the
/// one that it has (`sched_setparam(2)`).
///
/// # Errors
/// `EINVAL`, `EPERM`, `ESRCH`.
pub fn set_scheduler(thread: i32, policy: Option<i32>, priority: i32) -> io::Result<()> {
    let priority = &raw const priority;
    let answer = match policy {
        // SAFETY: the kernel reads a struct sched_param: one int.
        Some(policy) => unsafe {
            libc::syscall(libc::SYS_sched_setscheduler, thread, policy, priority)
        },
        // SAFETY: as above.
        None => unsafe { libc::syscall(libc::SYS_sched_setparam, thread, priority) },
    };
    done(answer)?;
    Ok(())
}

/// `struct sched_attr` with the fields of Linux 5.3, which are as many as there are today
/// (include/uapi/linux/sched/types.h).
pub const SCHEDULING_BYTES: usize = 56;

/// Sets how a thread is scheduled (`sched_setattr(2)`). The first 32 bits of `attributes` are replaced by
/// its length.
///
/// # Errors
/// `EINVAL`, `EPERM`, `ESRCH`.
pub fn set_scheduling(
    thread: i32,
    mut attributes: [u8; SCHEDULING_BYTES],
    flags: u32,
) -> io::Result<()> {
    let [a, b, c, d, ..] = &mut attributes;
    [*a, *b, *c, *d] = (SCHEDULING_BYTES as u32).to_ne_bytes();
    // SAFETY: the kernel reads as many bytes as the structure says it has, which are there.
    done(unsafe { libc::syscall(libc::SYS_sched_setattr, thread, attributes.as_ptr(), flags) })?;
    Ok(())
}
