//! `connect(2)`, `bind(2)` where it makes a socket's name in a guarded directory, and `listen(2)` where the network is filtered.
//!
//! A call is carried out on a copy of the caller's socket, which is the same open file: whatever the
//! caller does meanwhile with the number of its descriptor, with the address in its memory or with
//! the path in that address, what was decided on is what is connected. A local socket with a name is
//! reached by its object, held open, and not by its path again.
//!
//! Once connected, a socket takes no other address: `sendmsg(2)` with one answers EISCONN on a stream
//! and ignores it on sequenced packets. Datagram sockets, which take any, cannot be made inside. So
//! descriptors and credentials in messages (`SCM_RIGHTS`, `SCM_CREDENTIALS`) go only to where a
//! connection was let through. Whoever is connected to sees the right user as its peer, and the
//! mediator's pid (`SO_PEERCRED`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::{UnixAddr, getsockname};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat};

use super::context::{Answer, Context, locked};
use super::decide::{Who, who_changes};
use crate::access::Permission;
use agent_sandbox_base::mediate::caller::Caller;
use agent_sandbox_base::mediate::resolve::{self, FOLLOW, PathArgument, Special, Stop};
use agent_sandbox_base::sys::{paths, sockets};

/// No address is longer (`struct sockaddr_storage`).
const LONGEST_ADDRESS: usize = 128;
/// `struct sockaddr_un`, unix(7): two bytes for the family, then the path.
const LONGEST_LOCAL: usize = size_of::<libc::sockaddr_un>();
const FAMILY_BYTES: usize = size_of::<libc::sa_family_t>();
/// The first ABI by which Landlock keeps abstract sockets of processes outside from the mediator.
const SCOPES: i32 = 6;

/// Answers the call.
pub fn connect(context: &Context, caller: &Caller) -> Answer {
    match try_connect(context, caller) {
        Ok(()) => Answer::Done(0),
        Err(error) => Answer::failed(&error),
    }
}

/// Answers the call. Where Landlock judges who makes sockets the kernel goes on, and with it for every
/// address that names no file.
pub fn bind(context: &Context, caller: &Caller) -> Answer {
    match try_bind(context, caller) {
        Ok(answer) => answer,
        Err(error) => Answer::failed(&error),
    }
}

/// A local address.
#[derive(Debug, PartialEq, Eq)]
enum Local<'a> {
    /// A path, without the 0 behind it.
    Path(&'a [u8]),
    /// A name that is no path.
    Abstract,
    /// None that a local socket could be connected to: the kernel says which error that is.
    Nowhere,
}

/// What the kernel takes an address for that is given to a local socket (net/unix/af_unix.c,
/// `unix_validate_addr` and `unix_mkname_bsd`).
fn local(address: &[u8]) -> Local<'_> {
    let Some((family, name)) = address.split_first_chunk::<FAMILY_BYTES>() else {
        return Local::Nowhere;
    };
    let is_local = i32::from(libc::sa_family_t::from_ne_bytes(*family)) == libc::AF_UNIX;
    if !is_local || address.len() > LONGEST_LOCAL {
        return Local::Nowhere;
    }
    match name.first() {
        None => Local::Nowhere,
        Some(0) => Local::Abstract,
        Some(_) => Local::Path(name.split(|&byte| byte == 0).next().unwrap_or_default()),
    }
}

/// A local address with this path.
fn with_path(path: &[u8]) -> io::Result<Vec<u8>> {
    let family = libc::sa_family_t::try_from(libc::AF_UNIX).map_err(io::Error::other)?;
    let address = [&family.to_ne_bytes()[..], path, &[0]].concat();
    if address.len() > LONGEST_LOCAL {
        return Err(Errno::ENAMETOOLONG.into());
    }
    Ok(address)
}

/// A copy of the socket that a call names first, and the address that it gives.
fn arguments(caller: &Caller) -> io::Result<(OwnedFd, Vec<u8>)> {
    let socket = caller.descriptor(caller.int(0))?;
    let length = usize::try_from(caller.int(2)).unwrap_or(usize::MAX);
    if length > LONGEST_ADDRESS {
        return Err(Errno::EINVAL.into());
    }
    let address = caller.read(caller.argument(1), length)?;
    Ok((socket, address))
}

fn try_connect(context: &Context, caller: &Caller) -> io::Result<()> {
    let (socket, address) = arguments(caller)?;
    // What the socket is decides which addresses it takes, and not what the address says.
    let domain = sockets::option(socket.as_raw_fd(), libc::SO_DOMAIN)?;
    match &context.way_out {
        _ if domain == libc::AF_UNIX => {}
        None => return caller.patiently(|| sockets::connect(&socket, &address)),
        Some(way_out) => return way_out.lead(caller, &socket, domain, &address),
    }
    if sockets::option(socket.as_raw_fd(), libc::SO_TYPE)? == libc::SOCK_DGRAM {
        return Err(Errno::EACCES.into());
    }
    let path = match local(&address) {
        Local::Path(path) => path,
        // Landlock, which holds the mediator as well, tells those of the jail from others.
        Local::Abstract if context.config.abi >= SCOPES => {
            return caller.patiently(|| sockets::connect(&socket, &address));
        }
        Local::Abstract => return Err(Errno::EPERM.into()),
        Local::Nowhere => return sockets::connect(&socket, &address),
    };
    let given = PathArgument {
        directory: libc::AT_FDCWD,
        path,
    };
    let object = resolve::object(caller, given, FOLLOW).map_err(refused)?;
    let resolve::At::Path(at) = &object.at else {
        return Err(Errno::EACCES.into());
    };
    may_connect(context, at, object.id, fstat(&object.fd)?.st_nlink)?;
    if object.kind != SFlag::S_IFSOCK {
        return Err(Errno::ECONNREFUSED.into());
    }
    let address = with_path(paths::by_descriptor(&object.fd).as_bytes())?;
    caller.patiently(|| sockets::connect(&socket, &address))
}

/// Lets pass what stands where the jail may write. A socket with more than one name stands somewhere
/// else as well, which may be outside.
fn may_connect(
    context: &Context,
    at: &Path,
    id: (u64, u64),
    names: libc::nlink_t,
) -> io::Result<()> {
    let reached = match context.config.access_map.permission(at) {
        Permission::Write => true,
        Permission::Own => context.has_made(id),
        Permission::None | Permission::Read => false,
    };
    match (reached, names) {
        (true, 1) => Ok(()),
        _ => Err(Errno::EACCES.into()),
    }
}

/// Answers the call, where the network is filtered: who listens at the host's loopback, or at an abstract name, is reached by every
/// user of the host.
pub fn listen(_: &Context, caller: &Caller) -> Answer {
    match try_listen(caller) {
        Ok(()) => Answer::Done(0),
        Err(error) => Answer::failed(&error),
    }
}

fn try_listen(caller: &Caller) -> io::Result<()> {
    let socket = caller.descriptor(caller.int(0))?;
    match sockets::option(socket.as_raw_fd(), libc::SO_DOMAIN)? {
        libc::AF_UNIX => {}
        libc::AF_INET | libc::AF_INET6 => return Err(Errno::EACCES.into()),
        _ => return Err(Errno::EOPNOTSUPP.into()),
    }
    // A name stays for as long as the socket does, and without one the kernel lets nobody listen.
    let name: UnixAddr = getsockname(socket.as_raw_fd())?;
    match name.path() {
        Some(_) => sockets::listen(&socket, caller.int(1)),
        None if name.as_abstract().is_some() => Err(Errno::EACCES.into()),
        None => Err(Errno::EINVAL.into()),
    }
}

fn try_bind(context: &Context, caller: &Caller) -> io::Result<Answer> {
    // Whatever is wrong with them, the kernel says.
    let Ok((socket, address)) = arguments(caller) else {
        return Ok(Answer::Kernel);
    };
    let path = match local(&address) {
        Local::Path(path)
            if sockets::option(socket.as_raw_fd(), libc::SO_DOMAIN)? == libc::AF_UNIX =>
        {
            path
        }
        _ => return Ok(Answer::Kernel),
    };
    let given = PathArgument {
        directory: libc::AT_FDCWD,
        path,
    };
    // Nobody moves the directory between the decision and the act.
    let _unchanged = locked(&context.changing);
    let entry = match resolve::entry(caller, given) {
        // Where nothing new can be made.
        Err(Stop::Special(Special::Root | Special::Dot | Special::DotDot)) => {
            return Err(Errno::EADDRINUSE.into());
        }
        found => found.map_err(refused)?,
    };
    let permission = context.config.access_map.permission(&entry.path());
    if who_changes(context, &entry)? == Who::Kernel && permission == Permission::Write {
        return Ok(Answer::Kernel);
    }
    // The name of something closed that is not there, or a place where somebody outside may have moved
    // a directory to which Landlock gives everything.
    // In a shared directory the jail makes files alone.
    if permission != Permission::Write {
        return Err(Errno::EACCES.into());
    }
    let name = [
        paths::by_descriptor(&entry.parent).as_bytes(),
        b"/",
        entry.slashed().as_bytes(),
    ]
    .concat();
    let address = with_path(&name)?;
    narrow(caller, &socket)?;
    sockets::bind(&socket, &address)?;
    Ok(Answer::Done(0))
}

/// Takes the bits of the caller's umask from the mode of the socket, which becomes that of its name
/// (net/unix/af_unix.c, `unix_bind_bsd`); the mediator's own umask is another.
fn narrow(caller: &Caller, socket: &OwnedFd) -> io::Result<()> {
    let mode = Mode::from_bits_truncate(fstat(socket)?.st_mode);
    let umask = Mode::from_bits_truncate(caller.umask()?);
    if mode.intersects(umask) {
        fchmod(socket, mode - umask)?;
    }
    Ok(())
}

/// What a path that leads nowhere is answered with.
fn refused(stop: Stop) -> io::Error {
    match stop {
        Stop::Errno(errno) => errno.into(),
        Stop::Proc | Stop::Special(_) => Errno::EACCES.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(family: i32, rest: &[u8]) -> Vec<u8> {
        let family = libc::sa_family_t::try_from(family).expect("a family");
        [&family.to_ne_bytes()[..], rest].concat()
    }

    #[test]
    fn an_address_is_what_the_kernel_takes_it_for() {
        let unix = |rest: &[u8]| address(libc::AF_UNIX, rest);
        assert_eq!(local(&unix(b"/a/b\0c")), Local::Path(b"/a/b"));
        assert_eq!(local(&unix(b"a")), Local::Path(b"a"));
        assert_eq!(local(&unix(&[b'x'; 108])), Local::Path(&[b'x'; 108]));
        assert_eq!(local(&unix(&[b'x'; 109])), Local::Nowhere);
        assert_eq!(local(&unix(b"\0name")), Local::Abstract);
        assert_eq!(local(&unix(b"\0")), Local::Abstract);
        for nowhere in [
            unix(b""),
            vec![],
            vec![1],
            address(libc::AF_UNSPEC, b"/a"),
            address(libc::AF_INET, b"/a"),
        ] {
            assert_eq!(local(&nowhere), Local::Nowhere, "{nowhere:?}");
        }
    }

    #[test]
    fn a_path_that_fits_ends_with_0() {
        assert_eq!(
            with_path(b"/proc/self/fd/3").expect("it fits"),
            address(libc::AF_UNIX, b"/proc/self/fd/3\0")
        );
        assert!(with_path(&[b'x'; 107]).is_ok());
        assert!(with_path(&[b'x'; 108]).is_err());
    }
}
