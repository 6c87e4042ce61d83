//! git's `rename(".git/config.lock", ".git/config")`, carried out where the second is read-only inside.
//!
//! The lock is read from inside, the configuration is opened by its path outside; only what
//! [`super::rewrite`] made goes from one to the other, into the same file, for inside that is a mount.
//! Nobody reads it at that time, and a writing that is cut short leaves the beginning of a text that was
//! judged: never an end of one text behind the beginning of another, which could be taken for anything.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat};
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, unlinkat};

use super::rewrite;
use crate::mediate::resolve::{Process, errno, id, kind};
use crate::plan::model::git::GitConfig;
use crate::sys::{fds, paths};

/// What git calls the new text until it has its name.
const LOCK: &str = "config.lock";
/// No larger configuration is read, in bytes. Git writes a hundred for a branch.
const LARGEST: usize = 256 * 1024;
/// No longer line is said, in characters, of four bytes each at most.
const LONGEST_LINE: usize = 1000;
/// How often it is tried to have the configuration alone, and the time between: git reads it in less than
/// a millisecond.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(2);

/// Whether a name may be that of a configuration: of all renames, only these are looked at.
#[must_use]
pub fn is_name(path: &[u8]) -> bool {
    path == b"config" || path.ends_with(b"/config")
}

/// Gives the configuration the content of the file `from` in the directory `lock`, if `config` is what
/// stands in the directory `to` by this name. `None`: it is not, and somebody else judges the call.
///
/// # Errors
/// `EBUSY`, as for any mount, if the source is not git's lock beside it; `EPERM` for a content that may not be
/// written, which is said on the caller's standard error; what the calls answer.
pub fn replace(
    process: &dyn Process,
    (lock, from): (&OwnedFd, &OsStr),
    (to, name): (&OwnedFd, &OsStr),
    config: &GitConfig,
) -> Option<Result<(), Errno>> {
    let there = fstatat(to, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
    if id(&there) != config.id {
        return None;
    }
    let same = || nix::Result::Ok(id(&fstat(lock)?) == id(&fstat(to)?));
    if from != LOCK || !same().unwrap_or(false) {
        return Some(Err(Errno::EBUSY));
    }
    Some(carry_over(process, lock, config))
}

fn carry_over(process: &dyn Process, lock: &OwnedFd, config: &GitConfig) -> Result<(), Errno> {
    // Read-only to a jail within this one.
    faccessat(lock, ".", AccessFlags::W_OK, AtFlags::empty())?;
    let new = content(&open(paths::pin_entry(lock, LOCK)?, OFlag::O_RDONLY)?)?;
    let file = open_alone(config).inspect_err(|&errno| {
        let why = match errno {
            Errno::EAGAIN => "another program has it open",
            Errno::EACCES => "it belongs to another user",
            Errno::EINVAL => {
                "its file system has no leases, so that git outside could read half of the change"
            }
            Errno::ESTALE => "another file has taken its place since the session began",
            other => other.desc(),
        };
        say(process, &format_args!("it cannot be written: {why}"));
    })?;
    let old = content(&file)?;
    let text = match rewrite(&old, &new) {
        Ok(text) => text,
        Err(refusal) => {
            // What is said may wait for a reader, and nobody outside for that.
            drop(file);
            say(process, &refusal);
            return Err(Errno::EPERM);
        }
    };
    write(&file, &old, text.as_bytes()).map_err(|error| errno(&error))?;
    unlinkat(lock, LOCK, UnlinkatFlags::NoRemoveDir)
}

/// Opens the configuration when nobody else has it open; whoever opens it meanwhile waits until it is
/// closed. A reader between whose reads the text changed would see the beginning of one and the end of
/// another, and the session chooses both.
fn open_alone(config: &GitConfig) -> Result<File, Errno> {
    for _ in 0..TRIES {
        let pinned = paths::pin_plain(config.path())?;
        if id(&fstat(&pinned)?) != config.id {
            return Err(Errno::ESTALE);
        }
        let file = open(pinned, OFlag::O_RDWR);
        match file.and_then(|file| fds::lease(&file).map(|()| file)) {
            Err(Errno::EAGAIN) => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
    Err(Errno::EAGAIN)
}

/// Opens a regular file without another name, which somebody may have given it for what it gets here.
fn open(pinned: OwnedFd, how: OFlag) -> Result<File, Errno> {
    let is = fstat(&pinned)?;
    if kind(&is) != SFlag::S_IFREG || is.st_nlink != 1 {
        return Err(Errno::EPERM);
    }
    let flags = how | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    paths::open_again(&pinned, flags, Mode::empty()).map(File::from)
}

fn content(file: &File) -> Result<Vec<u8>, Errno> {
    let mut text = Vec::new();
    let read = file.take(LARGEST as u64 + 1).read_to_end(&mut text);
    read.map_err(|error| errno(&error))?;
    match text.len() > LARGEST {
        true => Err(Errno::EFBIG),
        false => Ok(text),
    }
}

/// Writes what differs. If that fails, for want of space, the old text is put back.
fn write(file: &File, old: &[u8], new: &[u8]) -> std::io::Result<()> {
    let same = old
        .iter()
        .zip(new)
        .take_while(|(one, other)| one == other)
        .count();
    let end = |text: &[u8]| {
        file.set_len(same as u64)?;
        file.write_all_at(text.get(same..).unwrap_or_default(), same as u64)
    };
    end(new).inspect_err(|_| {
        let _ = end(old);
    })
}

/// Tells the caller's user why: on its standard error, if that takes it now.
fn say(process: &dyn Process, why: &dyn Display) {
    let Ok(stream) = process.descriptor(2) else {
        return;
    };
    // What is written into a file of `/proc` may mean something.
    if paths::is_of_proc(&stream).unwrap_or(true) {
        return;
    }
    let mut ready = [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
    let polled = poll(&mut ready, PollTimeout::ZERO);
    if polled.is_ok() && ready[0].revents() == Some(PollFlags::POLLOUT) {
        let line = format!("agent-sandbox: .git/config stays as it is: {why}");
        // A pipe that is ready takes so much at once (`PIPE_BUF`, pipe(7)).
        let line: String = line.chars().take(LONGEST_LINE).chain(['\n']).collect();
        let _ = File::from(stream).write_all(line.as_bytes());
    }
}
