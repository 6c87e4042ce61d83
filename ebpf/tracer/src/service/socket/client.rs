//! One connection: what it has asked, and what waits for it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use agent_sandbox_events::client::encode;
use agent_sandbox_events::protocol::{Request, Response, Which};
use agent_sandbox_events::record::Trail;
use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};
use nix::sys::socket::{MsgFlags, getsockopt, send};

use crate::service::core::register::Registered;
use crate::service::process::Process;
use crate::sys::{pidfd, socket};
use crate::trail::Reader;

/// As many bytes of lines travel in one packet: what is around them fits into `PACKET_BYTES`.
pub const LINES_BYTES: usize = 60_000;
/// Live lines are sent when there are so many bytes of them, or at the next tick.
const BATCH_BYTES: usize = 32_768;

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

/// Whose records somebody follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    /// Which trails.
    pub which: Which,
}

/// What is sent when there is room.
#[derive(Debug, Default)]
struct Outbox {
    packets: VecDeque<Vec<u8>>,
    /// Packets of live lines, until all that was recorded before is read.
    later: VecDeque<Vec<u8>>,
    /// Live lines that are no packet yet.
    batch: Vec<u8>,
    /// Lines that were left out since the last packet.
    dropped: u64,
    bytes: usize,
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    /// Who it is.
    pub peer: Peer,
    /// Its trace.
    pub tracing: Tracing,
    /// A request that looks at records: it waits for its turn.
    pub deferred: Option<Request>,
    /// Records that are being read for it.
    pub reader: Option<Reader>,
    /// Records that it gets as they come.
    pub follow: Option<Follow>,
    /// Whether it is told that all is read when it is.
    pub done_after_reading: bool,
    /// Nothing is read from it any more; it is closed when the outbox is empty.
    pub closing: bool,
    /// The tick at which it last asked.
    pub last: u64,
    /// What it is waited for.
    pub interest: EpollFlags,
    /// Whether something can be sent as soon as the other end takes something.
    pub blocked: bool,
    outbox: Outbox,
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
            tracing: Tracing::None,
            deferred: None,
            reader: None,
            follow: None,
            done_after_reading: false,
            closing: false,
            last: tick,
            interest: EpollFlags::empty(),
            blocked: false,
            outbox: Outbox::default(),
        })
    }

    /// The process that connected, if it lives: by `SO_PEERPIDFD` (Linux 6.5), else by its number.
    ///
    /// # Errors
    /// It has ended.
    pub fn process(&self) -> io::Result<Process> {
        let handle = match getsockopt(&self.socket, PeerPidfd) {
            Ok(handle) => handle,
            Err(Errno::ENOPROTOOPT) => pidfd::open(self.peer.pid)?,
            Err(error) => return Err(error.into()),
        };
        Process::held(self.peer.pid, handle)
    }

    /// Its connection, which is to be closed.
    pub fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// Takes a packet, if there is one.
    pub fn receive(&self, buffer: &mut [u8]) -> Received {
        let mut descriptors = Vec::new();
        match socket::receive(&self.socket, buffer, &mut descriptors) {
            // A packet without a byte looks like the end, but can bring descriptors: they are not closed here.
            Ok(0) if descriptors.is_empty() => Received::End,
            Ok(length) => Received::Packet(length, descriptors),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Received::Nothing,
                _ => Received::End,
            },
        }
    }

    /// Answers.
    pub fn answer(&mut self, response: &Response) {
        self.close_batch();
        self.push(response);
    }

    fn push(&mut self, response: &Response) {
        if let Some(packet) = self.packet(response) {
            self.outbox.packets.push_back(packet);
        }
    }

    /// The answer as a packet that waits. What the service says itself is shorter than a packet, and lists are
    /// cut before they come here; a longer one would end the connection.
    fn packet(&mut self, response: &Response) -> Option<Vec<u8>> {
        let packet = encode(response).ok();
        match &packet {
            Some(packet) => self.outbox.bytes += packet.len(),
            None => self.closing = true,
        }
        packet
    }

    fn push_live(&mut self, response: &Response) {
        if let Some(packet) = self.packet(response) {
            if self.reader.is_some() {
                self.outbox.later.push_back(packet);
            } else {
                self.outbox.packets.push_back(packet);
            }
        }
    }

    /// Whether a record of this trail is for it.
    #[must_use]
    pub fn follows(&self, trail: &Trail) -> bool {
        let Some(follow) = &self.follow else {
            return false;
        };
        if self.peer.uid != 0 && self.peer.uid != trail.uid {
            return false;
        }
        match &follow.which {
            Which::All | Which::Newest => true,
            Which::Session(session) => trail.session.as_ref() == Some(session),
            Which::Job(job) => trail.job == Some(*job),
            Which::Trace(trace) => trail.trace == *trace,
        }
    }

    /// A live line for it. It is left out, and counted, if `room` bytes wait already.
    pub fn line(&mut self, line: &[u8], room: usize) {
        if self.outbox.bytes + line.len() > room || line.len() > LINES_BYTES {
            self.outbox.dropped += 1;
            return;
        }
        if self.outbox.dropped > 0 || self.outbox.batch.len() + line.len() > LINES_BYTES {
            self.close_batch();
        }
        self.outbox.batch.extend_from_slice(line);
        self.outbox.bytes += line.len();
        if self.outbox.batch.len() >= BATCH_BYTES {
            self.close_batch();
        }
    }

    /// Makes a packet of the lines that there are, and says how many were left out behind them.
    fn close_batch(&mut self) {
        let batch = std::mem::take(&mut self.outbox.batch);
        if !batch.is_empty() {
            self.outbox.bytes -= batch.len();
            self.push_live(&Response::Lines(batch));
        }
        let lines = std::mem::take(&mut self.outbox.dropped);
        if lines > 0 {
            self.push_live(&Response::Dropped { lines });
        }
    }

    /// Bytes that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.outbox.bytes
    }

    /// Whether something is to be sent, or to be read for it.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let reads = self.reader.is_some() || self.deferred.is_some();
        self.outbox.bytes > 0 || self.outbox.dropped > 0 || reads
    }

    /// Whether nothing is expected of it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let begun = matches!(self.tracing, Tracing::Begun(_));
        let reads = self.reader.is_some() || self.deferred.is_some();
        !begun && self.follow.is_none() && !reads
    }

    /// Whether it may ask now: who does not take the answers gets no more of them.
    #[must_use]
    pub fn may_ask(&self) -> bool {
        let reads = self.reader.is_some() || self.deferred.is_some();
        !self.closing && !reads && self.outbox.bytes < 2 * LINES_BYTES
    }

    /// Reads a piece of history, if there is room for it. Whether it can take another one is known when this one
    /// is sent.
    ///
    /// # Errors
    /// The records cannot be read.
    pub fn read(&mut self) -> io::Result<()> {
        let Some(reader) = &mut self.reader else {
            return Ok(());
        };
        if !self.outbox.packets.is_empty() {
            return Ok(());
        }
        match reader.next(LINES_BYTES)? {
            Some(lines) if lines.is_empty() => {}
            Some(lines) => self.push(&Response::Lines(lines)),
            None => {
                self.reader = None;
                if self.done_after_reading {
                    self.push(&Response::Done);
                }
                let later = std::mem::take(&mut self.outbox.later);
                self.outbox.packets.extend(later);
            }
        }
        Ok(())
    }

    /// Sends what can be sent. History comes before live lines.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn pump(&mut self) -> io::Result<Pumped> {
        if self.reader.is_none() && self.outbox.packets.is_empty() {
            // Only then: whoever never reads gets no more packets that say how much was left out.
            self.close_batch();
        }
        while let Some(packet) = self.outbox.packets.front() {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            match send(self.socket.as_raw_fd(), packet, flags) {
                Ok(_) => {
                    self.outbox.bytes -= packet.len();
                    self.outbox.packets.pop_front();
                }
                Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS) => return Ok(Pumped::Full),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(if self.reader.is_some() || self.deferred.is_some() {
            Pumped::More
        } else {
            Pumped::Empty
        })
    }
}

/// How far sending has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pumped {
    /// All is sent.
    Empty,
    /// All is sent, and there is more to read.
    More,
    /// The other end has to take something first.
    Full,
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
