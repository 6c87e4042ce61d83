//! Packets with descriptors.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

/// As many descriptors the kernel lets travel with one message (`SCM_MAX_FD`, Linux 2.6.38). There is room
/// for all of them: what finds none would be reported as an error, with those that did stay open for ever.
const MOST_DESCRIPTORS: usize = 253;

/// Receives one packet, and adds the descriptors that come with it to `descriptors`. Does not block.
///
/// Returns its length, which is 0 at the end of the conversation. A packet that is longer than `buffer` is
/// cut off, and said to be longer than the buffer.
///
/// # Errors
/// What `recvmsg(2)` answers; `WouldBlock` if there is no packet.
#[allow(unsafe_code)]
pub(crate) fn receive(
    socket: &impl AsRawFd,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let room = buffer.len();
    let mut space = nix::cmsg_space!([RawFd; MOST_DESCRIPTORS]);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    for control in message.cmsgs().into_iter().flatten() {
        if let ControlMessageOwned::ScmRights(numbers) = control {
            for number in numbers {
                // SAFETY: the kernel has just made this descriptor for this process, and nobody else knows it.
                descriptors.push(unsafe { OwnedFd::from_raw_fd(number) });
            }
        }
    }
    if message.flags.contains(MsgFlags::MSG_TRUNC) {
        return Ok(room + 1);
    }
    Ok(message.bytes)
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
