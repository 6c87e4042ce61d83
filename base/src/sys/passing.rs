//! Messages with descriptors on a local socket (`unix(7)`, `SCM_RIGHTS`).

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair,
};

/// The most descriptors that one message carries.
pub const MOST_DESCRIPTORS: usize = 16;

/// Two sockets that speak with each other in messages (`socketpair(2)`, `SOCK_SEQPACKET`), and with
/// nobody else; close-on-exec.
///
/// # Errors
/// What `socketpair(2)` answers.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?)
}

/// Sends one message, with a descriptor if there is one. Never raises `SIGPIPE`.
///
/// # Errors
/// What `sendmsg(2)` answers.
pub fn send(socket: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    send_many(socket, bytes, fd.as_slice())
}

/// Sends one message, as [`send`], without waiting for room.
///
/// # Errors
/// As [`send`]; `EAGAIN` if there is no room.
pub fn send_now(socket: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    send_with(socket, bytes, fd.as_slice(), MsgFlags::MSG_DONTWAIT)
}

/// Sends one message with up to [`MOST_DESCRIPTORS`]. Never raises `SIGPIPE`.
///
/// # Errors
/// `EINVAL` for more; what `sendmsg(2)` answers.
pub fn send_many(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with(socket, bytes, fds, MsgFlags::empty())
}

fn send_with(
    socket: impl AsFd,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    flags: MsgFlags,
) -> io::Result<()> {
    if fds.len() > MOST_DESCRIPTORS {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let numbers: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    let control = if numbers.is_empty() { &[][..] } else { &rights };
    sendmsg::<()>(
        socket.as_fd().as_raw_fd(),
        &[IoSlice::new(bytes)],
        control,
        flags | MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(())
}

/// Receives one message into `buffer`: its length, and the descriptor that came with it,
/// close-on-exec. Descriptors beyond the first are closed.
///
/// # Errors
/// As [`receive_many`].
pub fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    flags: MsgFlags,
) -> io::Result<(usize, Option<OwnedFd>)> {
    let (length, fds) = receive_many(socket, buffer, flags)?;
    Ok((length, fds.into_iter().next()))
}

/// Receives one message into `buffer`: its length, and the descriptors that came with it, in their
/// order, close-on-exec.
///
/// # Errors
/// What `recvmsg(2)` answers. `EMSGSIZE` for a message that was cut off, and for one whose
/// descriptors were: there were more than [`MOST_DESCRIPTORS`], or this process may open no more;
/// those that arrived are closed.
pub fn receive_many(
    socket: impl AsFd,
    buffer: &mut [u8],
    flags: MsgFlags,
) -> io::Result<(usize, Vec<OwnedFd>)> {
    // SAFETY: it only computes.
    const SPACE: usize = unsafe {
        libc::CMSG_SPACE((MOST_DESCRIPTORS * size_of::<RawFd>()) as libc::c_uint) as usize
    };
    // In units that are aligned as a header has to be.
    let mut control = [0u64; SPACE.div_ceil(size_of::<u64>())];
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: all zeroes is a header without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = SPACE as _;
    // SAFETY: the header points to one part and to room for control data, of the lengths stated.
    let length = unsafe {
        libc::recvmsg(
            socket.as_fd().as_raw_fd(),
            &raw mut message,
            (flags | MsgFlags::MSG_CMSG_CLOEXEC).bits(),
        )
    };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has filled the header in just now, and nobody has taken from it before.
    let fds = unsafe { take_descriptors(&message) };
    if message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    Ok((length, fds))
}

/// Takes over the descriptors of a message, also of one that was cut off: what the kernel installed
/// is open, and would stay so.
///
/// # Safety
/// `message` must be as `recvmsg(2)` left it, and be given here once.
unsafe fn take_descriptors(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the kernel wrote the control data and its length.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: the two macros only lead to headers that lie in the control data.
        let header = unsafe { &*next };
        if (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: it only computes.
            let head = unsafe { libc::CMSG_LEN(0) } as usize;
            // The type differs between C libraries.
            #[allow(clippy::unnecessary_cast)]
            let length = header.cmsg_len as usize;
            let count = length.saturating_sub(head) / size_of::<RawFd>();
            // SAFETY: the data of a header begins right behind it.
            let data = unsafe { libc::CMSG_DATA(next) }.cast::<RawFd>();
            for index in 0..count {
                // SAFETY: the kernel wrote this many numbers of descriptors that it has just made
                // for this process; nobody else knows them yet.
                fds.push(unsafe { OwnedFd::from_raw_fd(data.add(index).read_unaligned()) });
            }
        }
        // SAFETY: as for the first.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    fds
}

#[cfg(test)]
mod tests {
    use std::io::pipe;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .unwrap()
    }

    fn raw_send(socket: &OwnedFd, bytes: &[u8], fd: &OwnedFd, count: usize) {
        let numbers = vec![fd.as_raw_fd(); count];
        sendmsg::<()>(
            socket.as_raw_fd(),
            &[IoSlice::new(bytes)],
            &[ControlMessage::ScmRights(&numbers)],
            MsgFlags::empty(),
            None,
        )
        .unwrap();
    }

    /// Whether the other end of a pipe is closed everywhere: nobody kept a copy. Children of other
    /// tests may have one for a moment.
    fn ended(reader: &OwnedFd, within: u16) -> bool {
        let mut asked = [nix::poll::PollFd::new(
            reader.as_fd(),
            nix::poll::PollFlags::empty(),
        )];
        nix::poll::poll(&mut asked, within).unwrap() == 1
    }

    #[test]
    fn descriptors_arrive_in_their_order_and_close_on_exec() {
        let (one, other) = pair();
        let pipes: Vec<_> = (0..MOST_DESCRIPTORS / 2).map(|_| pipe().unwrap()).collect();
        let lent: Vec<_> = pipes
            .iter()
            .flat_map(|(reader, writer)| [reader.as_fd(), writer.as_fd()])
            .collect();
        send_many(&one, b"many", &lent).unwrap();
        let mut buffer = [0; 8];
        let (length, fds) = receive_many(&other, &mut buffer, MsgFlags::empty()).unwrap();
        assert_eq!(&buffer[..length], b"many");
        assert_eq!(fds.len(), lent.len());
        for (sent, got) in lent.iter().zip(&fds) {
            let (sent, got_stat) = (
                nix::sys::stat::fstat(sent).unwrap(),
                nix::sys::stat::fstat(got).unwrap(),
            );
            assert_eq!(sent.st_ino, got_stat.st_ino);
            let flags = nix::fcntl::fcntl(got, nix::fcntl::FcntlArg::F_GETFD).unwrap();
            assert_eq!(flags, libc::FD_CLOEXEC);
        }
    }

    #[test]
    fn more_than_the_most_are_not_sent() {
        let (one, _other) = pair();
        let lent = [one.as_fd(); MOST_DESCRIPTORS + 1];
        let error = send_many(&one, b"", &lent).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn descriptors_that_were_cut_off_are_an_error_and_closed() {
        let (one, other) = pair();
        let (reader, writer) = pipe().unwrap();
        let writer = OwnedFd::from(writer);
        raw_send(&one, b"x", &writer, MOST_DESCRIPTORS + 1);
        drop(writer);
        let error = receive_many(&other, &mut [0; 8], MsgFlags::empty()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        assert!(ended(&reader.into(), 5000));
    }

    #[test]
    fn a_message_that_was_cut_off_is_an_error_and_its_descriptors_are_closed() {
        let (one, other) = pair();
        let (reader, writer) = pipe().unwrap();
        send(&one, b"too long", Some(writer.as_fd())).unwrap();
        drop(writer);
        let error = receive_many(&other, &mut [0; 3], MsgFlags::empty()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        assert!(ended(&reader.into(), 5000));
    }

    #[test]
    fn of_many_the_first_is_received_and_the_others_are_closed() {
        let (one, other) = pair();
        let (reader, writer) = pipe().unwrap();
        let writer = OwnedFd::from(writer);
        raw_send(&one, b"x", &writer, 3);
        drop(writer);
        let (length, first) = receive(&other, &mut [0; 8], MsgFlags::empty()).unwrap();
        assert_eq!(length, 1);
        let first = first.unwrap();
        let reader = OwnedFd::from(reader);
        assert!(!ended(&reader, 0));
        drop(first);
        assert!(ended(&reader, 5000));
    }

    #[test]
    fn without_descriptors_there_are_none() {
        let (one, other) = pair();
        send(&one, b"plain", None).unwrap();
        let (length, fds) = receive_many(&other, &mut [0; 8], MsgFlags::empty()).unwrap();
        assert_eq!((length, fds.len()), (5, 0));
        drop(one);
        let (length, fds) = receive_many(&other, &mut [0; 8], MsgFlags::empty()).unwrap();
        assert_eq!((length, fds.len()), (0, 0));
    }
}
