//! Frames: a length of four bytes (little endian), then a message in postcard's format. Each side
//! begins with a preface that names the version.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Version of the conversation between shim and chaperon. The two come from one installation, but a
/// session may outlive an upgrade.
pub const VERSION: u8 = 1;

/// The longest message, in bytes. `execve(2)` limits arguments and environment of a command to
/// 2 MiB by default; a [`crate::message::Call`] holds both.
pub const LONGEST: usize = 4 << 20;

/// The longest part of a file or an output in one message. Smaller than a socket's buffer.
pub const PART: usize = 128 << 10;

/// What a side says first.
pub const PREFACE: [u8; 4] = [b'a', b's', b'c', VERSION];

/// What a chaperon says first that does not understand its launcher: of a version that no shim speaks, and then nothing.
pub const UPGRADED: [u8; 4] = [b'a', b's', b'c', u8::MAX];

/// What is wrong with a frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The connection failed or ended early.
    #[error("the connection failed")]
    Io(#[from] io::Error),
    /// A message longer than [`LONGEST`].
    #[error("a message of {0} bytes; {LONGEST} may be sent")]
    TooLong(usize),
    /// The bytes are no message.
    #[error("the message makes no sense")]
    Malformed,
    /// The other side speaks another version, or is something else.
    #[error("the other side speaks version {theirs} of the conversation, this one {VERSION}")]
    Version {
        /// Its version; 0 if it did not say one.
        theirs: u8,
    },
}

/// Checks the other side's preface.
///
/// # Errors
/// [`FrameError::Version`].
pub fn check_preface(preface: [u8; 4]) -> Result<(), FrameError> {
    match preface {
        PREFACE => Ok(()),
        [b'a', b's', b'c', theirs] => Err(FrameError::Version { theirs }),
        _ => Err(FrameError::Version { theirs: 0 }),
    }
}

/// A message as a frame.
///
/// # Errors
/// [`FrameError::TooLong`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let body = postcard::to_allocvec(message).map_err(|_| FrameError::Malformed)?;
    let length = length_of(body.len())?;
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&body);
    Ok(frame)
}

fn length_of(length: usize) -> Result<u32, FrameError> {
    match u32::try_from(length) {
        Ok(short) if length <= LONGEST => Ok(short),
        _ => Err(FrameError::TooLong(length)),
    }
}

/// The length that a frame's first four bytes announce.
///
/// # Errors
/// [`FrameError::TooLong`].
pub fn body_length(header: [u8; 4]) -> Result<usize, FrameError> {
    let length = u32::from_le_bytes(header) as usize;
    if length > LONGEST {
        return Err(FrameError::TooLong(length));
    }
    Ok(length)
}

/// A message from a frame's body, all of it.
///
/// # Errors
/// [`FrameError::Malformed`].
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        _ => Err(FrameError::Malformed),
    }
}

/// Sends a message and waits until it is sent.
///
/// # Errors
/// What `write(2)` answers; [`FrameError::TooLong`].
pub fn send<T: Serialize>(to: &mut impl Write, message: &T) -> Result<(), FrameError> {
    to.write_all(&encode(message)?)?;
    Ok(())
}

/// Receives a message. Memory for it is taken as it arrives, not as it is announced.
///
/// # Errors
/// What `read(2)` answers, the end of the connection included; a message that is none.
pub fn receive<T: DeserializeOwned>(from: &mut impl Read) -> Result<T, FrameError> {
    let mut header = [0; 4];
    from.read_exact(&mut header)?;
    let length = body_length(header)?;
    let mut body = Vec::new();
    from.take(length as u64).read_to_end(&mut body)?;
    if body.len() < length {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    decode(&body)
}
