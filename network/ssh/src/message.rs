//! Messages on a socket: a length, and then as many bytes, for which somebody has so much time and no more.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads and writes sockets, reads the clock"
)]

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The longest message, in bytes: what OpenSSH's agent takes (`AGENT_MAX_LEN`).
pub const LONGEST_MESSAGE: usize = 256 << 10;

/// Reads a message whose first byte comes within one time, and all others within another; `None` at the end of the connection.
pub(crate) fn read_message_after(
    silence: Duration,
    patience: Duration,
    stream: &mut UnixStream,
) -> io::Result<Option<Vec<u8>>> {
    stream.set_read_timeout(Some(silence))?;
    let mut first = [0];
    if stream.read(&mut first)? == 0 {
        return Ok(None);
    }
    read_rest(stream, &first, Instant::now() + patience).map(Some)
}

/// Reads a message until a moment.
pub(crate) fn read_message(stream: &mut UnixStream, end: Instant) -> io::Result<Vec<u8>> {
    read_rest(stream, &[], end)
}

/// The same of one that begins with these bytes, at most four.
fn read_rest(stream: &mut UnixStream, begins: &[u8], end: Instant) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    let (begun, rest) = length.split_at_mut(begins.len());
    begun.copy_from_slice(begins);
    fill(stream, rest, end)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if !(1..=LONGEST_MESSAGE).contains(&length) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length];
    fill(stream, &mut message, end)?;
    Ok(message)
}

fn fill(stream: &mut UnixStream, mut rest: &mut [u8], end: Instant) -> io::Result<()> {
    while !rest.is_empty() {
        stream.set_read_timeout(Some(left(end)?))?;
        match stream.read(rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => rest = &mut rest[more..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes a message, with its length before it, until a moment.
pub(crate) fn write_message(
    stream: &mut UnixStream,
    message: &[u8],
    end: Instant,
) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    let all = [&length.to_be_bytes(), message].concat();
    let mut rest = all.as_slice();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(end)?))?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(some) => rest = &rest[some..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The time until a moment, which is not over.
fn left(end: Instant) -> io::Result<Duration> {
    match end.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}
