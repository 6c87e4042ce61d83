//! Messages with a descriptor on a local socket (`unix(7)`, `SCM_RIGHTS`).

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Sends one message, with a descriptor if there is one. Never raises `SIGPIPE`.
///
/// # Errors
/// What `sendmsg(2)` answers.
pub fn send(socket: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let numbers: Vec<RawFd> = fd.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    let control = if numbers.is_empty() { &[][..] } else { &rights };
    sendmsg::<()>(
        socket.as_fd().as_raw_fd(),
        &[IoSlice::new(bytes)],
        control,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(())
}

/// Receives one message into `buffer`: its length, and the descriptor that came with it,
/// close-on-exec. Descriptors beyond the first are closed.
///
/// # Errors
/// What `recvmsg(2)` answers; `EMSGSIZE` for a message that was cut off.
pub fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    flags: MsgFlags,
) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = cmsg_space!([RawFd; 1]);
    let mut parts = [IoSliceMut::new(buffer)];
    let message = recvmsg::<()>(
        socket.as_fd().as_raw_fd(),
        &mut parts,
        Some(&mut space),
        flags | MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    let mut first = None;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = control {
            for number in numbers {
                // SAFETY: the kernel has just made this descriptor for this process; nobody else
                // knows its number yet.
                let fd = unsafe { OwnedFd::from_raw_fd(number) };
                first.get_or_insert(fd);
            }
        }
    }
    if message.flags.contains(MsgFlags::MSG_TRUNC) {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    Ok((message.bytes, first))
}
