//! Locks on files of the state directory, which sessions on several nodes share: open file description
//! locks (`F_OFD_SETLK`, `fcntl(2)`), which NFS carries to its server as well. One holds until the last
//! descriptor of the file that was opened is closed, so that a command that inherits one keeps it.

use std::fs::File;
use std::io;

use nix::fcntl::{FcntlArg, fcntl};

/// The whole file, for itself alone.
fn whole() -> libc::flock {
    part(0, 0)
}

/// A part of a file, which need not be that long.
fn part(start: i64, length: i64) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        l_pid: 0,
    }
}

/// Locks a file that is open for writing, without waiting; whether that succeeded.
///
/// # Errors
/// The file system has no locks.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    try_to(file, &whole())
}

/// The same of one byte of it, so that one file has locks for many things.
///
/// # Errors
/// The file system has no locks.
pub(crate) fn try_lock_byte(file: &File, at: i64) -> io::Result<bool> {
    try_to(file, &part(at, 1))
}

fn try_to(file: &File, lock: &libc::flock) -> io::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(lock)) {
        Ok(_) => Ok(true),
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether somebody else holds the lock.
///
/// # Errors
/// The file system has no locks.
pub(crate) fn is_locked(file: &File) -> io::Result<bool> {
    let mut lock = whole();
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock))?;
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
}
