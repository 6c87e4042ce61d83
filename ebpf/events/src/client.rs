//! The asking end of the tracer's socket: one packet out, packets in. It blocks.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::sockopt::{PeerCredentials, ReceiveTimeout, SendTimeout};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, getsockopt,
    sendmsg, setsockopt, socket,
};
use nix::sys::time::TimeVal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::protocol::{DESCRIPTORS, PACKET_BYTES, Request, Response};
use crate::sys;

/// A connection to the tracer.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
}

/// Why an answer was not had.
#[derive(Debug, Error)]
pub enum Unanswered {
    /// There is no tracer, or it is not to be reached.
    #[error("cannot reach the tracer")]
    Connect(#[source] io::Error),
    /// The conversation broke off.
    #[error("the tracer does not answer")]
    Broken(#[source] io::Error),
    /// It says what is not understood: another version.
    #[error("the tracer's answer is not understood: is it of another version?")]
    Strange,
    /// It refuses.
    #[error("the tracer refuses: {why}")]
    Refused {
        /// The reason, as the tracer gives it.
        why: String,
        /// What to do instead.
        hint: Option<String>,
    },
}

impl Connection {
    /// Connects; each answer may take as long as `patience`.
    ///
    /// # Errors
    /// [`Unanswered::Connect`].
    pub fn open(path: &Path, patience: Duration) -> Result<Self, Unanswered> {
        let connected = || -> nix::Result<OwnedFd> {
            let socket = socket(
                AddressFamily::Unix,
                SockType::SeqPacket,
                SockFlag::SOCK_CLOEXEC,
                None,
            )?;
            limit(&socket, patience)?;
            connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
            Ok(socket)
        };
        match connected() {
            Ok(socket) => Ok(Self { socket }),
            Err(error) => Err(Unanswered::Connect(error.into())),
        }
    }

    /// Each answer may take so long from now on.
    ///
    /// # Errors
    /// [`Unanswered::Broken`].
    pub fn wait_for(&self, patience: Duration) -> Result<(), Unanswered> {
        let set = limit(&self.socket, patience);
        set.map_err(|error| Unanswered::Broken(error.into()))
    }

    /// Who answers: the real user id of the process that listens (`SO_PEERCRED`, `unix(7)`).
    ///
    /// # Errors
    /// [`Unanswered::Broken`].
    pub fn peer(&self) -> Result<u32, Unanswered> {
        getsockopt(&self.socket, PeerCredentials)
            .map(|peer| peer.uid())
            .map_err(|error| Unanswered::Broken(error.into()))
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// There is none, or it is a refusal.
    pub fn ask(&self, request: &Request) -> Result<Response, Unanswered> {
        self.ask_with(request, &[])
    }

    /// Asks, with at most [`DESCRIPTORS`] descriptors, and waits for the answer.
    ///
    /// # Errors
    /// There is none, or it is a refusal.
    pub fn ask_with(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Response, Unanswered> {
        match self.send_with(request, descriptors) {
            // Whoever is cut off has been told why before this was sent.
            Err(Unanswered::Broken(cut)) if is_cut_off(&cut) => match self.next() {
                Err(Unanswered::Broken(_)) => Err(Unanswered::Broken(cut)),
                said => said,
            },
            sent => sent.and_then(|()| self.next()),
        }
    }

    /// Asks, and does not wait for the answer.
    ///
    /// # Errors
    /// [`Unanswered::Broken`].
    pub fn send(&self, request: &Request) -> Result<(), Unanswered> {
        self.send_with(request, &[])
    }

    fn send_with(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Unanswered> {
        let packet = encode(request).map_err(Unanswered::Broken)?;
        let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        if raw.len() > DESCRIPTORS {
            return Err(Unanswered::Broken(io::ErrorKind::InvalidInput.into()));
        }
        let rights = [ControlMessage::ScmRights(&raw)];
        let rights = if raw.is_empty() { &[][..] } else { &rights[..] };
        let packet = [IoSlice::new(&packet)];
        whole(|| {
            sendmsg::<UnixAddr>(
                self.socket.as_raw_fd(),
                &packet,
                rights,
                MsgFlags::MSG_NOSIGNAL,
                None,
            )
        })?;
        Ok(())
    }

    /// The next answer.
    ///
    /// # Errors
    /// There is none, or it is a refusal.
    pub fn next(&self) -> Result<Response, Unanswered> {
        self.next_with(&mut Vec::new())
    }

    /// The next answer, and the descriptors that come with it.
    ///
    /// # Errors
    /// As [`Connection::next`].
    pub fn next_with(&self, descriptors: &mut Vec<OwnedFd>) -> Result<Response, Unanswered> {
        let mut packet = vec![0; PACKET_BYTES];
        let mut receive =
            || whole(|| sys::receive(&self.socket, &mut packet, descriptors, MsgFlags::empty()));
        let length = match receive() {
            // What was sent and never read is an error once (`sock_error`), in front of what was said before.
            Err(Unanswered::Broken(cut)) if is_cut_off(&cut) => receive()?,
            received => received?,
        };
        if length == 0 {
            return Err(Unanswered::Broken(io::ErrorKind::UnexpectedEof.into()));
        }
        match packet.get(..length).and_then(decode) {
            Some(Response::Refused { why, hint }) => Err(Unanswered::Refused { why, hint }),
            Some(response) => Ok(response),
            None => Err(Unanswered::Strange),
        }
    }
}

/// Does it again where a signal broke it off. On a socket with a time limit, `SIGSTOP` and `SIGCONT` do so even where
/// nobody handles them (`signal(7)`): Ctrl-Z at the right moment must not end the conversation.
fn whole(mut call: impl FnMut() -> nix::Result<usize>) -> Result<usize, Unanswered> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            done => return done.map_err(|error| Unanswered::Broken(error.into())),
        }
    }
}

/// Whether the other end has closed the connection.
fn is_cut_off(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    code == Some(Errno::EPIPE as i32) || code == Some(Errno::ECONNRESET as i32)
}

fn limit(socket: &OwnedFd, patience: Duration) -> nix::Result<()> {
    let seconds = i64::try_from(patience.as_secs()).unwrap_or(i64::MAX);
    let time = TimeVal::new(seconds, i64::from(patience.subsec_micros()));
    setsockopt(socket, ReceiveTimeout, &time)?;
    setsockopt(socket, SendTimeout, &time)
}

impl AsFd for Connection {
    /// For `poll(2)`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A message as a packet.
///
/// # Errors
/// It is longer than [`PACKET_BYTES`].
pub fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let packet = postcard::to_allocvec(message).map_err(io::Error::other)?;
    if packet.len() > PACKET_BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(packet)
}

/// The message of a packet, if it is one and nothing follows it.
#[must_use]
pub fn decode<T: DeserializeOwned>(packet: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(packet) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}
