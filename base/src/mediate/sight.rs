//! What a call of the command's is about, for whoever watches the run (`observe`): looked at in the
//! caller's memory before the call goes on.
//!
//! This is a recorder and no defence. A caller can change its arguments after they were looked at, make a
//! call of another kind that does the same, and say of itself whatever it likes: nothing is decided here.

pub mod calls;
pub mod names;

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use nix::fcntl::readlink;
use serde::{Deserialize, Serialize};

use self::calls::{About, Act, From, PathInMemory, about};
use self::names::Peer;
use super::caller::Caller;
use crate::sys::passing;

/// No `struct sockaddr` is longer (`struct sockaddr_storage`).
const LONGEST_ADDRESS: u64 = 128;
/// No question to a name server is longer without EDNS (RFC 1035, section 2.3.4).
const LONGEST_QUESTION: u64 = 512;
/// As many messages of one call are looked at: a resolver asks two questions at once.
const MOST_MESSAGES: u64 = 4;
/// The size of a `struct mmsghdr` (`sendmmsg(2)`) on 64-bit machines, and where in it the pointer to
/// its first `struct iovec` stands.
const MESSAGE: u64 = 64;
const VECTOR_IN_MESSAGE: usize = 16;

/// Something that a call is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sighting {
    /// A path, which is absolute and as the caller wrote it.
    Place(Vec<u8>, Act),
    /// A host and a port.
    Host(IpAddr, u16),
    /// A name that a name server is asked about.
    Name(String),
    /// The arguments could not be read.
    Unread,
}

/// What a call is about.
#[must_use]
pub fn look(caller: &Caller) -> Vec<Sighting> {
    let call = &caller.call;
    let mut all = Vec::new();
    let looked = match about(call.number, &call.arguments) {
        About::PathInMemory(place) => look_at_place(&mut all, caller, place),
        About::Peer(address, length) => look_at_peer(&mut all, caller, address, length),
        About::Message([at, length, address, address_length]) => {
            let asked = look_at_question(&mut all, caller, at, length);
            match asked {
                // Who was asked says less than what.
                Ok(true) => Ok(()),
                _ if address == 0 => asked.map(drop),
                _ => look_at_peer(&mut all, caller, address, address_length),
            }
        }
        About::Messages(at, count) => look_at_messages(&mut all, caller, at, count),
        About::Nothing => Ok(()),
    };
    if looked.is_err() {
        all.push(Sighting::Unread);
    }
    all
}

/// Whether a call is one of those that are watched.
#[must_use]
pub fn is_watched(number: i32) -> bool {
    calls::WATCHED.contains(&i64::from(number))
}

/// Tells the other end of `socket` what a call is about. Nobody need be there any more.
pub fn tell(socket: impl AsFd, caller: &Caller) {
    for sighting in look(caller) {
        if let Ok(text) = postcard::to_allocvec(&sighting) {
            let _ = passing::send(&socket, &text, None);
        }
    }
}

fn look_at_place(all: &mut Vec<Sighting>, caller: &Caller, place: PathInMemory) -> io::Result<()> {
    let path = caller.path(place.address)?;
    if path.is_empty() {
        // About a descriptor (`AT_EMPTY_PATH`), or nothing at all.
        return Ok(());
    }
    let path = PathBuf::from(OsString::from_vec(path));
    let whole = match path.is_absolute() {
        true => path,
        false => start(caller, place.from)?.join(path),
    };
    all.push(Sighting::Place(
        whole.as_os_str().as_bytes().to_vec(),
        place.act,
    ));
    Ok(())
}

/// From where a relative path begins. By its text alone: nothing of the caller's is opened.
fn start(caller: &Caller, from: From) -> io::Result<PathBuf> {
    let thread = caller.call.thread;
    let link = match from {
        From::Current | From::Descriptor(libc::AT_FDCWD) => format!("/proc/{thread}/cwd"),
        From::Descriptor(number) => format!("/proc/{thread}/fd/{number}"),
    };
    let path = PathBuf::from(readlink(link.as_str())?);
    match path.is_absolute() {
        true => Ok(path),
        // A pipe, or something else that is no directory.
        false => Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
    }
}

fn look_at_peer(
    all: &mut Vec<Sighting>,
    caller: &Caller,
    address: u64,
    length: u64,
) -> io::Result<()> {
    let bytes = read(caller, address, length.min(LONGEST_ADDRESS))?;
    match names::peer(&bytes) {
        Some(Peer::Host(host, port)) => all.push(Sighting::Host(host, port)),
        Some(Peer::Path(path)) if path.starts_with(b"/") => {
            all.push(Sighting::Place(path, Act::Open));
        }
        Some(Peer::Path(_)) => {}
        None => {}
    }
    Ok(())
}

/// Whether a message asks a name server about a name, which is told then.
fn look_at_question(
    all: &mut Vec<Sighting>,
    caller: &Caller,
    at: u64,
    length: u64,
) -> io::Result<bool> {
    let message = read(caller, at, length.min(LONGEST_QUESTION))?;
    let name = names::asked(&message);
    let asked = name.is_some();
    if let Some(name) = name {
        all.push(Sighting::Name(name));
    }
    Ok(asked)
}

fn look_at_messages(
    all: &mut Vec<Sighting>,
    caller: &Caller,
    at: u64,
    count: u64,
) -> io::Result<()> {
    let word = |bytes: &[u8], from: usize| -> u64 {
        let bytes = bytes.get(from..).and_then(<[u8]>::first_chunk::<8>);
        bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    };
    for number in 0..count.min(MOST_MESSAGES) {
        let header = read(caller, at.wrapping_add(number * MESSAGE), MESSAGE)?;
        let vector = read(caller, word(&header, VECTOR_IN_MESSAGE), 16)?;
        look_at_question(all, caller, word(&vector, 0), word(&vector, 8))?;
    }
    Ok(())
}

/// Some of the caller's memory.
fn read(caller: &Caller, at: u64, length: u64) -> io::Result<Vec<u8>> {
    caller.read(at, usize::try_from(length).unwrap_or(usize::MAX))
}
