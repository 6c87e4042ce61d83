//! One connection: what it has asked, and what waits for it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use agent_sandbox_events::client::encode;
use agent_sandbox_events::protocol::{PACKET_BYTES, Request, Response};
use agent_sandbox_events::sys::receive;
use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, getsockopt, sendmsg};

use crate::service::core::register::Registered;
use crate::service::kernel::Kernel;
use crate::service::process::{Process, lives};
use crate::sys::{pidfd, socket};

/// Who asks, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Effective user id when it connected (`SO_PEERCRED`, `unix(7)`).
    pub uid: u32,
    /// The process that connected.
    pub pid: u32,
}

/// What this connection has to do with a trace.
#[derive(Debug, Default)]
pub enum Tracing {
    /// Nothing.
    #[default]
    None,
    /// It is being told what the trace is.
    Registered(Registered),
    /// It has begun the trace of this id.
    Begun(u32),
}

/// An answer, with the descriptors that go with it.
type Packet = (Vec<u8>, Vec<OwnedFd>);

/// One connection.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    /// Who it is.
    pub peer: Peer,
    /// The mark that the process had when the connection was accepted, 0 without one; none if it had ended.
    pub mark: Option<u32>,
    /// Its trace.
    pub tracing: Tracing,
    /// A request that looks through directories: it waits for its turn.
    pub deferred: Option<Request>,
    /// Nothing is read from it any more; it is closed when all answers are sent.
    pub closing: bool,
    /// The tick at which it last asked.
    pub last: u64,
    /// What it is waited for.
    pub interest: EpollFlags,
    /// Answers that wait until there is room for them.
    answers: VecDeque<Packet>,
    bytes: usize,
    /// Descriptors are on their way to it: it gets no more before it has received those.
    lent: bool,
    /// The kernel has no room for what is sent, on any connection: it is tried again at the next tick.
    short: bool,
}

/// What came.
#[derive(Debug)]
pub enum Received {
    /// A packet, with its descriptors.
    Packet(usize, Vec<OwnedFd>),
    /// Nothing yet.
    Nothing,
    /// The other end is closed, or the connection is broken.
    End,
}

impl Client {
    /// A connection that has come.
    ///
    /// # Errors
    /// The kernel does not say who it is.
    pub fn new(socket: OwnedFd, tick: u64) -> io::Result<Self> {
        let peer = getsockopt(&socket, PeerCredentials)?;
        Ok(Self {
            peer: Peer {
                uid: peer.uid(),
                pid: u32::try_from(peer.pid()).unwrap_or(0),
            },
            socket,
            mark: None,
            tracing: Tracing::None,
            deferred: None,
            closing: false,
            last: tick,
            interest: EpollFlags::empty(),
            answers: VecDeque::new(),
            bytes: 0,
            lent: false,
            short: false,
        })
    }

    /// The process that connected, if it lives.
    ///
    /// # Errors
    /// It has ended.
    pub fn process(&self) -> io::Result<Process> {
        Process::held(self.peer.pid, self.handle()?)
    }

    /// The same as a descriptor: by `SO_PEERPIDFD` (Linux 6.5), else by its number.
    fn handle(&self) -> io::Result<OwnedFd> {
        match getsockopt(&self.socket, PeerPidfd) {
            Err(Errno::ENOPROTOOPT) => pidfd::open(self.peer.pid),
            got => Ok(got?),
        }
    }

    /// Notes the mark that the process has now: it can end and leave its connection to another one.
    pub fn note_mark(&mut self, kernel: &impl Kernel) {
        let Ok(handle) = self.handle() else {
            return;
        };
        let mark = kernel.mark(handle.as_fd());
        // Of one that has ended the kernel may say that it has none.
        if lives(&handle) {
            self.mark = mark.ok();
        }
    }

    /// Its connection, which is to be closed.
    pub fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// Takes a packet, if there is one.
    pub fn receive(&self, buffer: &mut [u8]) -> Received {
        let mut descriptors = Vec::new();
        let received = receive(
            &self.socket,
            buffer,
            &mut descriptors,
            MsgFlags::MSG_DONTWAIT,
        );
        match received {
            // A packet without a byte looks like the end, but can bring descriptors: they are not closed here.
            Ok(0) if descriptors.is_empty() => Received::End,
            Ok(length) => Received::Packet(length, descriptors),
            Err(Errno::EAGAIN | Errno::EINTR) => Received::Nothing,
            Err(_) => Received::End,
        }
    }

    /// Answers.
    pub fn answer(&mut self, response: &Response) {
        self.answer_with(response, Vec::new());
    }

    /// Answers, with descriptors. What the service says is shorter than a packet: lists are cut before they come here; a
    /// longer answer would end the connection.
    pub fn answer_with(&mut self, response: &Response, with: Vec<OwnedFd>) {
        match encode(response) {
            Ok(packet) => {
                self.bytes += packet.len();
                self.lent |= !with.is_empty();
                self.answers.push_back((packet, with));
            }
            Err(_) => self.closing = true,
        }
    }

    /// Whether the other end has not received all. To close this end takes none of it back.
    #[must_use]
    pub fn is_owed(&self) -> bool {
        socket::unreceived(&self.socket)
    }

    /// Drops what was not sent yet.
    pub fn forget_answers(&mut self) {
        self.answers.clear();
        self.bytes = 0;
    }

    /// Whether its socket has room and the kernel has not.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.short
    }

    /// Whether answers wait until the other end takes something.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Whether nothing is expected of it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !matches!(self.tracing, Tracing::Begun(_)) && self.deferred.is_none()
    }

    /// Whether it may ask now: who does not take the answers gets no more of them.
    #[must_use]
    pub fn may_ask(&mut self) -> bool {
        self.lent = self.lent && (self.is_blocked() || socket::unreceived(&self.socket));
        !self.closing && !self.lent && self.deferred.is_none() && self.bytes < 2 * PACKET_BYTES
    }

    /// Sends what can be sent.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn pump(&mut self) -> io::Result<()> {
        self.short = false;
        while let Some((packet, with)) = self.answers.front() {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let numbers: Vec<_> = with.iter().map(AsRawFd::as_raw_fd).collect();
            let rights = [ControlMessage::ScmRights(&numbers)];
            let rights = if with.is_empty() {
                &[][..]
            } else {
                &rights[..]
            };
            let parts = [IoSlice::new(packet)];
            let sent = sendmsg::<UnixAddr>(self.socket.as_raw_fd(), &parts, rights, flags, None);
            match sent {
                Ok(_) => {
                    self.bytes -= packet.len();
                    self.answers.pop_front();
                }
                // `ETOOMANYREFS`: root has as many descriptors on their way as it may have (`unix(7)`).
                Err(Errno::ENOBUFS | Errno::ETOOMANYREFS) => {
                    self.short = true;
                    break;
                }
                Err(Errno::EAGAIN | Errno::EINTR) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
