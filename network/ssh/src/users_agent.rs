//! The user's own agent, outside.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: connects to a socket, reads the clock"
)]

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Uid;

use crate::encoding::{Malformed, Reader, Writer};
use crate::message::{read_message, write_message};
use crate::request::{IDENTITIES_ANSWER, Request, SIGN_ANSWER, SUCCESS};

/// How long it may take: it may ask the user whether a key is used (`ssh-add -c`), or for a touch of it.
const PATIENCE: Duration = Duration::from_secs(120);
/// Keys that it may have.
const MOST_KEYS: u32 = 256;
/// The longest comment of a key that is told, in bytes.
const LONGEST_COMMENT: usize = 256;
/// The longest signature, in bytes: RSA of 16384 bits has 2 KiB.
const LONGEST_SIGNATURE: usize = 8 << 10;

/// A key of the user's.
pub(crate) struct Identity {
    pub(crate) key: Vec<u8>,
    pub(crate) comment: String,
}

/// A connection to it.
pub(crate) struct UsersAgent(UnixStream);

impl UsersAgent {
    /// Connects to it.
    ///
    /// # Errors
    /// What `connect(2)` answers; another user listens there.
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        // Who listened there when the socket was made (unix(7)). Somebody else's agent has none of the user's keys.
        let peer = Uid::from_raw(getsockopt(&stream, PeerCredentials)?.uid());
        if peer != Uid::effective() && !peer.is_root() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "another user listens there",
            ));
        }
        Ok(Self(stream))
    }

    /// The keys that it has.
    ///
    /// # Errors
    /// It does not answer, or nothing that could be one.
    pub(crate) fn identities(&mut self) -> io::Result<Vec<Identity>> {
        let answer = self.ask(&Request::Identities)?;
        identities(&answer).map_err(io::Error::other)
    }

    /// Tells it of the host as well: it may have keys that are for some hosts only (`ssh-add -h`).
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn bind(&mut self, request: &Request<'_>) -> io::Result<bool> {
        Ok(self.ask(request)? == [SUCCESS])
    }

    /// A signature, as messages have it.
    ///
    /// # Errors
    /// It makes none, or does not answer.
    pub(crate) fn sign(&mut self, request: &Request<'_>) -> io::Result<Vec<u8>> {
        let answer = self.ask(request)?;
        signature(&answer).map_err(|_| io::Error::other("it made no signature"))
    }

    fn ask(&mut self, request: &Request<'_>) -> io::Result<Vec<u8>> {
        let end = Instant::now() + PATIENCE;
        write_message(&mut self.0, &request.written(), end)?;
        read_message(&mut self.0, end)
    }
}

fn identities(answer: &[u8]) -> Result<Vec<Identity>, Malformed> {
    let mut rest = Reader::new(answer);
    if rest.byte()? != IDENTITIES_ANSWER {
        return Err(Malformed);
    }
    let count = rest.number()?;
    if count > MOST_KEYS {
        return Err(Malformed);
    }
    let mut all = Vec::new();
    for _ in 0..count {
        let (key, comment) = (rest.string()?, rest.string()?);
        let comment = String::from_utf8_lossy(comment);
        let plain = comment.chars().filter(|c| !c.is_control());
        all.push(Identity {
            key: key.to_vec(),
            comment: plain.take(LONGEST_COMMENT).collect(),
        });
    }
    rest.end()?;
    Ok(all)
}

fn signature(answer: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut rest = Reader::new(answer);
    if rest.byte()? != SIGN_ANSWER {
        return Err(Malformed);
    }
    let signature = rest.string()?;
    rest.end()?;
    // An algorithm and a text; keys on devices have two numbers behind them.
    let mut parts = Reader::new(signature);
    if parts.string()?.is_empty() || parts.string()?.is_empty() {
        return Err(Malformed);
    }
    match signature.len() {
        0..=LONGEST_SIGNATURE => Ok(Writer::of(SIGN_ANSWER).string(signature).done()),
        _ => Err(Malformed),
    }
}
