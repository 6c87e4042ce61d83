//! Seccomp user notifications: receiving a call that a filter has handed over, and answering it
//! (`seccomp_unotify(2)`; structures and numbers: include/uapi/linux/seccomp.h).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::{seccomp_notif, seccomp_notif_addfd, seccomp_notif_resp, seccomp_notif_sizes};

/// The [`Call::arch`] of the calls that this program's own architecture makes
/// (include/uapi/linux/audit.h).
#[cfg(target_arch = "x86_64")]
pub const NATIVE_ARCH: u32 = 0xc000_003e;
/// The [`Call::arch`] of the calls that this program's own architecture makes
/// (include/uapi/linux/audit.h).
#[cfg(target_arch = "aarch64")]
pub const NATIVE_ARCH: u32 = 0xc000_00b7;

/// A call that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// What the kernel calls it; goes back with the answer.
    pub id: u64,
    /// The thread that called, in the pid namespace of whoever received the call; 0 if it is not in it.
    pub thread: i32,
    /// The number of the system call.
    pub number: i32,
    /// The `AUDIT_ARCH_*` of the caller's instruction (include/uapi/linux/audit.h).
    pub arch: u32,
    /// The arguments, as the caller's registers held them.
    pub arguments: [u64; 6],
}

impl Call {
    /// Length of [`Self::bytes`].
    pub const BYTES: usize = 72;

    /// The call as another process of ours understands it, which has its listener, too.
    #[must_use]
    pub fn bytes(&self) -> [u8; Self::BYTES] {
        let numbers = [self.number, self.thread].map(|number| u64::from(number.cast_unsigned()));
        let [number, thread] = numbers;
        let head = [self.id, number << 32 | thread, self.arch.into()];
        let mut bytes = [0; Self::BYTES];
        let words = head.into_iter().chain(self.arguments);
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// The call of [`Self::bytes`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let mut words = [0; Self::BYTES / 8];
        for (word, from) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*from);
        }
        let [id, who, arch, arguments @ ..] = words;
        Self {
            id,
            thread: (who as u32).cast_signed(),
            number: ((who >> 32) as u32).cast_signed(),
            arch: arch as u32,
            arguments,
        }
    }
}

/// Buffers for the kernel's structures, which may have grown since this program was built.
pub struct Buffers {
    call: Vec<u64>,
    answer: Vec<u64>,
}

impl Buffers {
    /// Asks the kernel for the sizes of its structures (Linux 5.0).
    ///
    /// # Errors
    /// `EINVAL` or `ENOSYS` on a kernel without notifications.
    pub fn new() -> io::Result<Self> {
        let mut sizes = seccomp_notif_sizes {
            seccomp_notif: 0,
            seccomp_notif_resp: 0,
            seccomp_data: 0,
        };
        // SAFETY: the kernel writes one such structure to the address of a local one.
        let done = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_GET_NOTIF_SIZES,
                0,
                &mut sizes,
            )
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        let words = |kernel: u16, ours: usize| usize::from(kernel).max(ours).div_ceil(8);
        Ok(Self {
            call: vec![0; words(sizes.seccomp_notif, size_of::<seccomp_notif>())],
            answer: vec![0; words(sizes.seccomp_notif_resp, size_of::<seccomp_notif_resp>())],
        })
    }

    /// Takes the next call from `listener`. It waits if there is none. Of many threads that wait, each
    /// with a buffers of its own, one gets a call. Who must not wait calls it when `poll(2)` has reported
    /// `POLLIN`, as the only reader of the listener: then the kernel's count of calls is above zero,
    /// and a call that has gone meanwhile is an error, not a wait.
    ///
    /// # Errors
    /// `ENOENT` if the caller was killed or interrupted meanwhile, and (Linux 6.11) if no process is
    /// left under the filter, see [`is_deserted`]; `EINTR`; `ENOTTY` for a descriptor that is no
    /// listener.
    pub fn receive(&mut self, listener: impl AsFd) -> io::Result<Call> {
        // The kernel refuses a buffer that is not zero throughout.
        self.call.fill(0);
        let buffer = self.call.as_mut_ptr();
        // SAFETY: the buffer is at least as long as the kernel's structure.
        unsafe { ioctl(&listener, libc::SECCOMP_IOCTL_NOTIF_RECV, buffer.cast())? };
        // SAFETY: the buffer is at least as long as our structure, aligned to 8 bytes as it is, and
        // any bytes make a valid one.
        let call = unsafe { &*buffer.cast::<seccomp_notif>() };
        Ok(Call {
            id: call.id,
            thread: call.pid.cast_signed(),
            number: call.data.nr,
            arch: call.data.arch,
            arguments: call.data.args,
        })
    }

    /// Lets the call with this id fail with `errno` (positive). Zero, which would be a success
    /// without a result, becomes `ENOSYS`.
    ///
    /// # Errors
    /// `ENOENT` if the caller is no longer waiting.
    pub fn refuse(&mut self, listener: impl AsFd, id: u64, errno: i32) -> io::Result<()> {
        self.send(
            listener,
            seccomp_notif_resp {
                id,
                val: 0,
                error: if errno > 0 { -errno } else { -libc::ENOSYS },
                flags: 0,
            },
        )
    }

    /// Lets the call with this id return `value`.
    ///
    /// # Errors
    /// `ENOENT` if the caller is no longer waiting.
    pub fn complete(&mut self, listener: impl AsFd, id: u64, value: i64) -> io::Result<()> {
        self.send(
            listener,
            seccomp_notif_resp {
                id,
                val: value,
                error: 0,
                flags: 0,
            },
        )
    }

    /// Lets the kernel carry out the call with this id, as if nobody had listened (Linux 5.5). The
    /// caller may have changed what its arguments point to.
    ///
    /// # Errors
    /// `ENOENT` if the caller is no longer waiting.
    pub fn let_go_on(&mut self, listener: impl AsFd, id: u64) -> io::Result<()> {
        self.send(
            listener,
            seccomp_notif_resp {
                id,
                val: 0,
                error: 0,
                // The constant is 1; the field has 32 bits.
                flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
            },
        )
    }

    fn send(&mut self, listener: impl AsFd, answer: seccomp_notif_resp) -> io::Result<()> {
        self.answer.fill(0);
        let buffer = self.answer.as_mut_ptr();
        // SAFETY: the buffer is at least as long as our structure and aligned as it is.
        unsafe { buffer.cast::<seccomp_notif_resp>().write(answer) };
        uninterrupted(|| {
            // SAFETY: the buffer is at least as long as the kernel's structure.
            unsafe { ioctl(&listener, libc::SECCOMP_IOCTL_NOTIF_SEND, buffer.cast()) }
        })
    }
}

/// Whether the caller still waits for the answer to the call with this id. While it does, its thread
/// lives and keeps its number: what was opened or read by that number before is the caller's.
///
/// # Errors
/// `ENOENT` if it does not.
pub fn still_waits(listener: impl AsFd, id: u64) -> io::Result<()> {
    let mut id = id;
    uninterrupted(|| {
        // SAFETY: the kernel reads one u64, which this is.
        unsafe {
            ioctl(
                &listener,
                libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
                (&raw mut id).cast(),
            )
        }
    })
}

/// Whether no process is left under the filter of this listener: no call will come any more.
pub fn is_deserted(listener: impl AsFd) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut asked = [PollFd::new(listener.as_fd(), PollFlags::empty())];
    matches!(poll(&mut asked, PollTimeout::ZERO), Ok(1..))
}

/// Has the kernel wake the listening thread on the caller's processor, and the caller on the
/// thread's: one of them always waits for the other (Linux 6.6).
///
/// # Errors
/// `EINVAL` or `ENOTTY` on an older kernel: nothing is lost then but time.
pub fn wake_on_the_same_processor(listener: impl AsFd) -> io::Result<()> {
    /// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`, include/uapi/linux/seccomp.h.
    const SYNC_WAKE_UP: usize = 1;
    // The kernel takes the flags as the argument itself.
    let flags = std::ptr::without_provenance_mut(SYNC_WAKE_UP);
    // SAFETY: the kernel does not look behind the argument.
    unsafe { ioctl(&listener, libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, flags) }
}

/// Answers the call with this id with a descriptor: the caller gets a new one for the file of `fd`,
/// under the lowest free number, which is the call's result. Both or nothing (Linux 5.14).
///
/// The caller's side makes the descriptor when it wakes up, and this call waits for that.
///
/// # Errors
/// `ENOENT` or `ESRCH` if the caller is no longer waiting. What the caller's side answers, `EMFILE`
/// at its limit: it goes on waiting.
pub fn give(
    listener: impl AsFd,
    id: u64,
    fd: BorrowedFd<'_>,
    close_on_exec: bool,
) -> io::Result<()> {
    // The constant is small; the field has 32 bits.
    let send = libc::SECCOMP_ADDFD_FLAG_SEND as u32;
    add(listener, id, fd.as_raw_fd(), close_on_exec, send).map(drop)
}

/// Puts a descriptor for the file of `fd` into the caller of the call with this id, under the lowest
/// free number, which is the answer. The caller goes on waiting for its own (Linux 5.9).
///
/// # Errors
/// See [`give`].
pub fn put(
    listener: impl AsFd,
    id: u64,
    fd: BorrowedFd<'_>,
    close_on_exec: bool,
) -> io::Result<i32> {
    add(listener, id, fd.as_raw_fd(), close_on_exec, 0)
}

/// Whether the kernel knows how to [`give`]: it looks at the flags before it looks for the
/// descriptor, and there is none with the number -1.
///
/// # Errors
/// `EINVAL` or `ENOTTY` on a kernel before Linux 5.14, and for a descriptor that is no listener.
pub fn can_give(listener: impl AsFd) -> io::Result<()> {
    match add(listener, 0, -1, false, libc::SECCOMP_ADDFD_FLAG_SEND as u32) {
        Err(error) if error.raw_os_error() == Some(libc::EBADF) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

fn add(
    listener: impl AsFd,
    id: u64,
    fd: RawFd,
    close_on_exec: bool,
    flags: u32,
) -> io::Result<i32> {
    let mut order = seccomp_notif_addfd {
        id,
        flags,
        srcfd: fd.cast_unsigned(),
        newfd: 0,
        newfd_flags: if close_on_exec {
            libc::O_CLOEXEC.cast_unsigned()
        } else {
            0
        },
    };
    let order = (&raw mut order).cast();
    uninterrupted(|| {
        // SAFETY: the request carries the structure's size, and the kernel reads that much of it.
        unsafe { ioctl_number(&listener, libc::SECCOMP_IOCTL_NOTIF_ADDFD, order) }
    })
}

/// Tries again what a signal interrupted: a call that got no answer would wait for ever. The kernel
/// has done nothing by then.
fn uninterrupted<T>(mut answer: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match answer() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Makes a local socket (`socket(2)`, `AF_UNIX`) of the type and protocol that a caller asked for,
/// flags included, as the kernel would judge them from it.
///
/// # Errors
/// What `socket(2)` answers.
pub fn unix_socket(kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call touches no memory.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// # Safety
/// `argument` points to what `request` reads and writes.
unsafe fn ioctl(
    listener: &impl AsFd,
    request: libc::Ioctl,
    argument: *mut libc::c_void,
) -> io::Result<()> {
    // SAFETY: by the caller's promise.
    unsafe { ioctl_number(listener, request, argument) }.map(drop)
}

/// The same for a request that answers with a number.
///
/// # Safety
/// See [`ioctl`].
unsafe fn ioctl_number(
    listener: &impl AsFd,
    request: libc::Ioctl,
    argument: *mut libc::c_void,
) -> io::Result<i32> {
    let fd = listener.as_fd().as_raw_fd();
    // SAFETY: by the caller's promise.
    let number = unsafe { libc::ioctl(fd, request, argument) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::Call;

    #[test]
    fn a_call_is_passed_on_as_it_is() {
        let call = Call {
            id: u64::MAX - 1,
            thread: 4711,
            number: -1,
            arch: super::NATIVE_ARCH,
            arguments: [1, 2, 3, 4, 5, u64::MAX],
        };
        let copy = Call::from_bytes(&call.bytes());
        assert_eq!(format!("{copy:?}"), format!("{call:?}"));
    }
}
