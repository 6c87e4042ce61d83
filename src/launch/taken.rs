//! Mounts of the host's files for a jail, taken while bubblewrap builds it.
//!
//! bubblewrap reads the whole table of mounts for each bind, and more than once if it changes its flags. A
//! clone of a tree of mounts (`open_tree(2)`) has its flags set at once (`mount_setattr(2)`), and is put into the jail by
//! one call. Cloning takes rights over a mount namespace: a process has them over a copy of the user's, in a user namespace of its own. That
//! process can open nothing that the user could not, and ends when it has handed the clones over.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::MsgFlags;

use crate::backend::bubblewrap::{Act, Rest, Taken, Uses};
use crate::sys::mounts::{self, Lets};
use crate::sys::namespaces::{self, Kind};
use crate::sys::passing::{self, MOST_DESCRIPTORS};
use crate::sys::process;

/// What is to be taken, in the order in which it is shown.
pub(super) fn sources(rest: &Rest) -> Vec<&Taken> {
    let acts = rest.acts.iter();
    acts.filter_map(|act| match act {
        Act::Show(taken) => Some(taken),
        Act::Change(_) | Act::Cover(_) => None,
    })
    .collect()
}

/// Takes them, in this order.
///
/// # Errors
/// What [`mounts::tree_of`] and `unshare(2)` answer.
pub(super) fn take(sources: &[&Taken]) -> io::Result<Vec<OwnedFd>> {
    if sources.is_empty() {
        return Ok(Vec::new());
    }
    let (ours, theirs) = passing::pair()?;
    match process::fork()? {
        process::Side::Child => {
            drop(ours);
            let done = clone_away(sources, &theirs);
            let errno = done
                .err()
                .map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
            let said = passing::send(&theirs, &errno.to_ne_bytes(), None);
            process::exit_now(i32::from(said.is_err()))
        }
        process::Side::Parent(child) => {
            drop(theirs);
            let taken = receive(&ours, sources.len());
            drop(ours);
            // It has nothing left to do but to end.
            let _ = process::wait(child);
            taken
        }
    }
}

fn receive(from: &OwnedFd, count: usize) -> io::Result<Vec<OwnedFd>> {
    let mut taken = Vec::with_capacity(count);
    loop {
        let mut said = [0; size_of::<i32>()];
        let (length, clones) = passing::receive_many(from, &mut said, MsgFlags::empty())?;
        match (length, i32::from_ne_bytes(said)) {
            (1, _) => taken.extend(clones),
            (4, 0) if taken.len() == count => return Ok(taken),
            (4, errno) if errno != 0 => return Err(io::Error::from_raw_os_error(errno)),
            _ => return Err(Errno::EPROTO.into()),
        }
    }
}

fn clone_away(sources: &[&Taken], to: &OwnedFd) -> io::Result<()> {
    namespaces::leave(&[Kind::User, Kind::Mount])?;
    for some in sources.chunks(MOST_DESCRIPTORS) {
        let mut clones = Vec::with_capacity(some.len());
        for taken in some {
            let lets = match taken.uses {
                Uses::Read => Lets::Read,
                Uses::Write => Lets::Write,
                Uses::Device => Lets::Device,
            };
            clones.push(mounts::tree_of(&taken.from, lets)?);
        }
        let clones: Vec<_> = clones.iter().map(AsFd::as_fd).collect();
        passing::send_many(to, b"x", &clones)?;
    }
    Ok(())
}
