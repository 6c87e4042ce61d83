//! Writing to the standard streams, in pieces that never make the process wait.

use std::os::fd::BorrowedFd;

use agent_sandbox_wire::message::Stream;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::write;

use crate::sys;

/// What a pipe that polls as writable takes without waiting (`PIPE_BUF`, `pipe(7)`).
const PIECE: usize = 4096;

/// Output on its way.
pub(crate) struct Outgoing {
    stream: Stream,
    bytes: Vec<u8>,
    written: usize,
    /// Bytes in one call.
    piece: usize,
}

impl Outgoing {
    pub(crate) fn new(stream: Stream, bytes: Vec<u8>) -> Self {
        let mut outgoing = Self {
            stream,
            bytes,
            written: 0,
            piece: PIECE,
        };
        let regular = fstat(outgoing.fd())
            .is_ok_and(|file| file.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits());
        if regular {
            outgoing.piece = usize::MAX;
        }
        outgoing
    }

    /// Writes a piece to the stream, which polled as writable. `true` when all is written.
    ///
    /// # Errors
    /// What `write(2)` answers.
    pub(crate) fn advance(&mut self) -> nix::Result<bool> {
        let rest = &self.bytes[self.written..];
        if !rest.is_empty() {
            match write(self.fd(), &rest[..rest.len().min(self.piece)]) {
                Ok(bytes) => self.written += bytes,
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.written == self.bytes.len())
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'static> {
        match self.stream {
            Stream::Output => sys::standard(sys::OUTPUT),
            Stream::Error => sys::standard(sys::ERROR),
        }
    }

    pub(crate) fn stream(&self) -> Stream {
        self.stream
    }
}

/// Writes all of a short text, as far as that is possible.
pub(crate) fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match write(to, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                // Only a wrong argument fails here, and the next write says more.
                let _ = poll(
                    &mut [PollFd::new(to, PollFlags::POLLOUT)],
                    PollTimeout::NONE,
                );
            }
            Err(_) => return,
        }
    }
}
