//! Hands things over to the tracer for root's audit record, and never waits for it: what it does not take at once waits
//! within bounds, what finds no room is counted, and what it has not confirmed when it ends is told to the next one.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, send, socket,
};

use crate::audit::Handed;
use crate::client::{decode, encode};
use crate::protocol::{Request, Response};
use crate::sys;

/// Things that wait at most.
const MOST_WAITING: usize = 256;
/// A tracer that was not there is looked for again after so long.
const PAUSE: Duration = Duration::from_secs(2);
/// No answer to one of these is longer, in bytes: that it is done, or why not.
const ANSWER_BYTES: usize = 4096;

/// The way to a tracer.
#[derive(Debug)]
pub struct Handover {
    socket: PathBuf,
    connection: Option<OwnedFd>,
    /// Packets that are not confirmed, of which the first `sent` are on their way.
    waiting: VecDeque<Vec<u8>>,
    sent: usize,
    missed: u64,
    /// When it is tried again.
    again: Option<Instant>,
}

impl Handover {
    /// To the tracer at this socket.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_path_buf(),
            connection: None,
            waiting: VecDeque::new(),
            sent: 0,
            missed: 0,
            again: None,
        }
    }

    /// Hands one thing over, now or later.
    pub fn hand(&mut self, mut handed: Handed, now: Instant) {
        self.go_on(now);
        handed.missed = self.missed;
        match encode(&Request::Audit(Box::new(handed))) {
            Ok(packet) if self.waiting.len() < MOST_WAITING => {
                self.missed = 0;
                self.waiting.push_back(packet);
            }
            _ => self.miss(),
        }
        self.go_on(now);
    }

    /// One thing is not handed over, which the next one says.
    pub fn miss(&mut self) {
        self.missed = self.missed.saturating_add(1);
    }

    /// Whether something is not confirmed yet.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes what is confirmed, and sends what can be sent.
    pub fn go_on(&mut self, now: Instant) {
        self.take_answers();
        while let Some(packet) = self.waiting.get(self.sent) {
            if self.connection.is_none() && self.again.is_none_or(|again| again <= now) {
                self.connection = connected(&self.socket);
                self.again = Some(now + PAUSE);
            }
            let Some(connection) = &self.connection else {
                return;
            };
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            match send(connection.as_raw_fd(), packet, flags) {
                Ok(_) => self.sent += 1,
                Err(nix::errno::Errno::EINTR) => {}
                Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::ENOBUFS) => return,
                Err(_) => self.lose_connection(),
            }
        }
    }

    fn take_answers(&mut self) {
        let mut buffer = [0; ANSWER_BYTES];
        while let Some(connection) = &self.connection {
            let mut with = Vec::new();
            let got = sys::receive(connection, &mut buffer, &mut with, MsgFlags::MSG_DONTWAIT);
            let answer = match got {
                Err(nix::errno::Errno::EINTR) => continue,
                Err(nix::errno::Errno::EAGAIN) => return,
                Ok(0) | Err(_) => return self.lose_connection(),
                Ok(length) => buffer.get(..length).and_then(decode::<Response>),
            };
            if self.sent == 0 {
                return self.lose_connection();
            }
            self.waiting.pop_front();
            self.sent -= 1;
            // One that does not want it, such as an older one, is not asked twice.
            if answer != Some(Response::Done) {
                self.miss();
            }
        }
    }

    fn lose_connection(&mut self) {
        self.connection = None;
        self.sent = 0;
    }
}

/// A connection that never blocks, if somebody listens who has room for it.
fn connected(path: &Path) -> Option<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).ok()?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path).ok()?).ok()?;
    Some(socket)
}
