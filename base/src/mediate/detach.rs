//! A mediator's process leaves what its launcher has.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{chdir, setsid};

use crate::sys::fds;

/// Leaves everything that is the launcher's: its descriptors, streams, directory, session.
pub fn detach(null: &OwnedFd, open: &[RawFd]) -> io::Result<()> {
    for number in 0..=2 {
        fds::become_standard(null, number)?;
    }
    fds::close_all_but(open)?;
    // Not in the process group that a shell kills, so that somebody is left to end the jail. The
    // attendant and the command stay in it.
    setsid()?;
    chdir("/")?;
    // Handlers give files the mode that the caller's mask leaves.
    umask(Mode::empty());
    // One thread for each call, with some descriptors each.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
    Ok(())
}

/// The standard streams are open, so this is never needed; but a listener that is taken for one would
/// be lost.
pub fn away_from_streams(fd: OwnedFd) -> Option<OwnedFd> {
    if fd.as_raw_fd() > 2 {
        return Some(fd);
    }
    let number = fcntl(&fd, FcntlArg::F_DUPFD_CLOEXEC(3)).ok()?;
    fds::inherited(number).ok()
}
