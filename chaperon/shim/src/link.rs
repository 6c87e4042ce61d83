//! The connection: frames out, with descriptors, and frames in, without ever waiting for one.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: connects, reads the clock for its patience"
)]

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use agent_sandbox_wire::VERSION;
use agent_sandbox_wire::frame::{self, FrameError, PREFACE};
use agent_sandbox_wire::message::{FromShim, ToShim};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, sendmsg,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

use crate::sys;
use crate::trouble::Trouble;

/// How long the chaperon may take to answer at all, in seconds. The first call of a session starts
/// it, which takes milliseconds; the rest is for a machine under load.
const PATIENCE: u16 = 5;

/// Bytes that are read at once. Nearly all messages are shorter.
const AT_ONCE: usize = 32 << 10;

/// Descriptors that go with a message.
pub(crate) enum With {
    /// None.
    Nothing,
    /// The three standard ones.
    Standard,
    /// A file that was opened for the chaperon.
    File(OwnedFd),
}

struct Packet {
    bytes: Vec<u8>,
    sent: usize,
    with: With,
}

/// A connection to the chaperon.
pub(crate) struct Link {
    socket: OwnedFd,
    out: VecDeque<Packet>,
    arrived: Vec<u8>,
    /// How much of `arrived` was taken out.
    taken: usize,
    /// Nothing more will come.
    ended: bool,
    /// Nothing more can be sent.
    mute: bool,
}

impl Link {
    /// Connects and says who speaks.
    pub(crate) fn open(path: &Path) -> Result<Self, Trouble> {
        let socket = socket(
            AddressFamily::Unix,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .map_err(|error| Trouble::system("cannot make a socket", error))?;
        // It bounds connect(2) as well, which waits while the queue of connections is full.
        setsockopt(
            &socket,
            sockopt::SendTimeout,
            &TimeVal::new(PATIENCE.into(), 0),
        )
        .map_err(|error| Trouble::system("cannot make a socket", error))?;
        let address = UnixAddr::new(path).map_err(|error| unavailable(error, path))?;
        connect(socket.as_raw_fd(), &address).map_err(|error| unavailable(error, path))?;
        let mut link = Self {
            socket,
            out: VecDeque::new(),
            arrived: Vec::new(),
            taken: 0,
            ended: false,
            mute: false,
        };
        link.queue_bytes(PREFACE.to_vec(), With::Nothing);
        link.flush();
        Ok(link)
    }

    /// Waits for the chaperon's first words and checks them.
    pub(crate) fn await_greeting(&mut self) -> Result<(), Trouble> {
        let until = Instant::now() + Duration::from_secs(PATIENCE.into());
        while self.arrived.len() < PREFACE.len() {
            if self.ended {
                return Err(Trouble::new(
                    "the chaperon of this session refused the connection",
                ));
            }
            let left = until.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut polled, timeout) {
                Ok(0) => return Err(silent()),
                // A stop and its end interrupt, and nothing else does: no handler is installed.
                Ok(_) | Err(Errno::EINTR) => self.fill(),
                Err(error) => return Err(Trouble::system("cannot wait for the chaperon", error)),
            }
        }
        let preface = *self.arrived.first_chunk().unwrap_or(&[0; PREFACE.len()]);
        self.taken = PREFACE.len();
        frame::check_preface(preface).map_err(misunderstood)
    }

    /// Puts a message in the queue.
    ///
    /// # Errors
    /// The message is too long.
    pub(crate) fn queue(&mut self, message: &FromShim, with: With) -> Result<(), FrameError> {
        let bytes = frame::encode(message)?;
        self.queue_bytes(bytes, with);
        Ok(())
    }

    fn queue_bytes(&mut self, bytes: Vec<u8>, with: With) {
        if !self.mute {
            self.out.push_back(Packet {
                bytes,
                sent: 0,
                with,
            });
        }
    }

    /// Sends as much of the queue as the socket takes now. What can no longer be sent is dropped:
    /// the chaperon's last words may still be on their way.
    pub(crate) fn flush(&mut self) {
        while let Some(packet) = self.out.front_mut() {
            match packet.send(self.socket.as_raw_fd()) {
                Ok(bytes) => packet.sent += bytes,
                Err(Errno::EAGAIN) => return,
                Err(Errno::EINTR) => {}
                Err(_) => {
                    self.mute = true;
                    self.out.clear();
                    return;
                }
            }
            if packet.sent == packet.bytes.len() {
                self.out.pop_front();
            }
        }
    }

    /// Reads what has arrived.
    pub(crate) fn fill(&mut self) {
        self.arrived.drain(..self.taken);
        self.taken = 0;
        let before = self.arrived.len();
        self.arrived.resize(before + AT_ONCE, 0);
        let flags = MsgFlags::MSG_DONTWAIT;
        let got = recv(self.socket.as_raw_fd(), &mut self.arrived[before..], flags);
        self.arrived.truncate(before + got.unwrap_or(0));
        if !matches!(got, Ok(1..) | Err(Errno::EAGAIN | Errno::EINTR)) {
            self.ended = true;
        }
    }

    /// The next message, if all of it has arrived.
    pub(crate) fn next(&mut self) -> Result<Option<ToShim>, Trouble> {
        let rest = &self.arrived[self.taken..];
        let Some((header, rest)) = rest.split_first_chunk() else {
            return Ok(None);
        };
        let length = frame::body_length(*header).map_err(misunderstood)?;
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let message = frame::decode(body).map_err(misunderstood)?;
        self.taken += header.len() + length;
        Ok(Some(message))
    }

    /// Whether there is something to send.
    pub(crate) fn has_queue(&self) -> bool {
        !self.out.is_empty()
    }

    /// Whether nothing more will come.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Packet {
    fn send(&self, socket: RawFd) -> nix::Result<usize> {
        let standard = [sys::INPUT, sys::OUTPUT, sys::ERROR];
        let file;
        let descriptors: &[RawFd] = match &self.with {
            // They go with the first byte.
            _ if self.sent > 0 => &[],
            With::Nothing => &[],
            With::Standard => &standard,
            With::File(fd) => {
                file = [fd.as_raw_fd()];
                &file
            }
        };
        let rights = [ControlMessage::ScmRights(descriptors)];
        let rights = if descriptors.is_empty() {
            &rights[..0]
        } else {
            &rights[..]
        };
        sendmsg::<UnixAddr>(
            socket,
            &[IoSlice::new(&self.bytes[self.sent..])],
            rights,
            MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL,
            None,
        )
    }
}

fn unavailable(error: Errno, path: &Path) -> Trouble {
    // The directory of the socket exists where Slurm can be used.
    let switched_off = path.parent().is_some_and(|place| !place.exists());
    match error {
        Errno::ENOENT | Errno::ENOTDIR if switched_off => {
            Trouble::new("Slurm is switched off in this jail (slurm.mode)").hint(
                "run `agent-sandbox policy` outside the jail: it names the file that decided; where it says `auto`, `agent-sandbox -v` tells why this host's Slurm is not used",
            )
        }
        Errno::ENOENT | Errno::ENOTDIR => {
            Trouble::new("Slurm is not available in this jail: it has no chaperon").hint(
                "run `agent-sandbox policy` outside the jail; its section [slurm] says what the session may do",
            )
        }
        Errno::ECONNREFUSED => {
            Trouble::new("Slurm is not available in this jail: its chaperon has ended")
                .hint("leave the jail and start the session again; submitted jobs go on")
        }
        // What connect(2) answers to a timeout.
        Errno::EAGAIN => silent(),
        error => Trouble::system("Slurm is not available in this jail", error),
    }
}

fn silent() -> Trouble {
    Trouble::new("the chaperon of this session does not answer").hint(format!(
        "it was given {PATIENCE} seconds; try again, and if that fails, leave the jail and start the session again"
    ))
}

fn misunderstood(error: FrameError) -> Trouble {
    match error {
        FrameError::Version { theirs: 0 } => {
            Trouble::new("what answers in place of the chaperon is none")
        }
        FrameError::Version { theirs } => {
            let message = match theirs {
                u8::MAX => "the chaperon is of another version of agent-sandbox than this session"
                    .to_owned(),
                _ => format!(
                    "this command speaks version {VERSION} with the chaperon, the chaperon of this session version {theirs}"
                ),
            };
            Trouble::new(message)
                .hint("agent-sandbox was upgraded since the session began: start a new session")
        }
        FrameError::TooLong(_) | FrameError::Malformed | FrameError::Io(_) => {
            Trouble::new("the chaperon sent what makes no sense")
        }
    }
}
