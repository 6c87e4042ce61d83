//! Packets with descriptors.
#![allow(unsafe_code)]

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

/// As many descriptors the kernel lets travel with one message (`SCM_MAX_FD`, Linux 2.6.38). There is room
/// for all of them: what finds none would be reported as an error, with those that did stay open for ever.
const MOST_DESCRIPTORS: usize = 253;

/// Receives one packet, and adds the descriptors that come with it to `descriptors`.
///
/// Returns its length, which is 0 at the end of the conversation. A packet that is longer than `buffer` is
/// cut off, and said to be longer than the buffer.
///
/// # Errors
/// What `recvmsg(2)` answers; with `MSG_DONTWAIT` in `flags`, `WouldBlock` if there is no packet.
pub fn receive(
    socket: &impl AsRawFd,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
    flags: MsgFlags,
) -> nix::Result<usize> {
    let room = buffer.len();
    let mut space = nix::cmsg_space!([RawFd; MOST_DESCRIPTORS]);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | flags;
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

/// That this process has no descriptors left.
pub(crate) fn no_descriptors_left() -> io::Error {
    nix::errno::Errno::EMFILE.into()
}
