//! The user's own directory on this node: which one, whether it is the user's alone, and locks in
//! it. In it tasks of jobs meet (`share::join_socket`), and the directories of sessions that have
//! Landlock as their jail stand (`agent-sandbox-landlock`).

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat, fstatat, mkdirat};

use crate::host;

/// `S_IRWXU`, and nothing else.
const PRIVATE: u32 = 0o700;
/// The name of a lock file.
pub const LOCK: &str = "lock";
/// The permission bits, with set-ID and sticky bits (`inode(7)`).
const PERMISSIONS: u32 = 0o7777;

/// What stands in one of the parents.
enum Candidate {
    Usable(OwnedFd),
    Missing(OwnedFd),
}

/// The directories in which it may stand, best first.
pub fn parents() -> Vec<PathBuf> {
    host::NODE_LOCAL.iter().map(PathBuf::from).collect()
}

/// The user's directory: the one that has something of this name in it, else the first that is or
/// can be made.
///
/// # Errors
/// A sentence for each of the parents: why not there.
pub fn open_for(
    uid: u32,
    parents: &[PathBuf],
    having: &str,
) -> std::result::Result<OwnedFd, String> {
    let name = host::join_directory_name(uid);
    let mut reasons = Vec::new();
    let mut all = Vec::new();
    for parent in parents {
        match look(uid, parent, &name) {
            Ok(Candidate::Usable(base)) => {
                if fstatat(&base, having, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok() {
                    return Ok(base);
                }
                all.push((parent, Candidate::Usable(base)));
            }
            Ok(missing) => all.push((parent, missing)),
            Err(why) => reasons.push(format!("`{}` {why}", parent.join(&name).display())),
        }
    }
    for (parent, candidate) in all {
        match made(uid, candidate, &name) {
            Ok(base) => return Ok(base),
            Err(why) => reasons.push(format!("`{}` {why}", parent.join(&name).display())),
        }
    }
    Err(reasons.join("; "))
}

/// Where [`open_for`] would find or make it, without making it; `None`: nowhere.
pub fn would_be(uid: u32, parents: &[PathBuf]) -> Option<PathBuf> {
    let name = host::join_directory_name(uid);
    let usable = |parent: &&PathBuf| look(uid, parent, &name).is_ok();
    parents.iter().find(usable).map(|parent| parent.join(&name))
}

fn look(uid: u32, parent: &Path, name: &str) -> std::result::Result<Candidate, String> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let around = open(parent, flags, Mode::empty())
        .map_err(|errno| format!("stands in no directory: {}", errno.desc()))?;
    let found = fstat(&around).map_err(|errno| errno.desc().to_owned())?;
    if found.st_uid != 0 && found.st_uid != uid {
        return Err("stands in a directory of somebody else's".to_owned());
    }
    // Who may write a directory without the sticky bit may rename what is in it (inode(7)).
    if found.st_mode & 0o022 != 0 && found.st_mode & libc::S_ISVTX == 0 {
        return Err("stands in a directory in which others may rename it".to_owned());
    }
    match open_below(&around, name) {
        Ok(base) => own(uid, &base).map(|()| Candidate::Usable(base)),
        Err(Errno::ENOENT) => Ok(Candidate::Missing(around)),
        Err(Errno::ENOTDIR | Errno::ELOOP) => Err("is not a directory".to_owned()),
        Err(errno) => Err(format!("cannot be opened: {}", errno.desc())),
    }
}

fn made(uid: u32, candidate: Candidate, name: &str) -> std::result::Result<OwnedFd, String> {
    let around = match candidate {
        Candidate::Usable(base) => return Ok(base),
        Candidate::Missing(around) => around,
    };
    let mine = match mkdirat(&around, name, Mode::S_IRWXU) {
        Ok(()) => true,
        Err(Errno::EEXIST) => false,
        Err(errno) => return Err(format!("cannot be made: {}", errno.desc())),
    };
    let base =
        open_below(&around, name).map_err(|errno| format!("cannot be opened: {}", errno.desc()))?;
    if mine && fstat(&base).is_ok_and(|found| found.st_uid == uid) {
        // A directory may pass its set-group-ID bit on, or a default ACL (inode(7), acl(5)).
        fchmod(&base, Mode::S_IRWXU).map_err(|errno| errno.desc().to_owned())?;
    }
    own(uid, &base).map(|()| base)
}

/// Whether a directory is the user's alone.
///
/// # Errors
/// What is not as it should be, to go on after its name.
pub fn own(uid: u32, directory: &OwnedFd) -> std::result::Result<(), String> {
    let found = fstat(directory).map_err(|errno| errno.desc().to_owned())?;
    if found.st_uid != uid {
        return Err(format!("belongs to user {}", found.st_uid));
    }
    match found.st_mode & PERMISSIONS {
        PRIVATE => Ok(()),
        mode => Err(format!("has the mode {mode:04o} and not {PRIVATE:04o}")),
    }
}

/// Opens a directory by a name that is no symbolic link.
///
/// # Errors
/// What `openat(2)` answers.
pub fn open_below(directory: &OwnedFd, name: &str) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(directory, name, flags, Mode::empty())
}

/// Device and inode.
pub fn id(found: &FileStat) -> (u64, u64) {
    (found.st_dev, found.st_ino)
}

/// Whether a name still leads to an open file.
pub fn is_at(directory: &OwnedFd, name: &str, file: impl AsFd) -> bool {
    let there = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW);
    matches!((there, fstat(file)), (Ok(there), Ok(open)) if id(&there) == id(&open))
}

/// Somebody has the lock, or a queue is full: to be tried again.
pub struct Busy(pub String);

/// Locks a directory, without waiting. A lock file is removed only by who holds it, so
/// whoever gets a lock looks whether it is still the one of the directory.
///
/// # Errors
/// `ENOENT` if the directory was removed; what `open(2)` or `flock(2)` answer.
pub fn take_lock(directory: &OwnedFd) -> Result<std::result::Result<Flock<OwnedFd>, Busy>> {
    let failed = "cannot open the lock of a directory";
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let file = openat(directory, LOCK, flags, mode).context(failed)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) if is_at(directory, LOCK, &*lock) => {
            sign(&lock);
            Ok(Ok(lock))
        }
        Ok(_) => Ok(Err(Busy("the lock keeps being removed".to_owned()))),
        Err((file, Errno::EWOULDBLOCK | Errno::EINTR)) => Ok(Err(Busy(format!(
            "{} holds the lock of the directory",
            holder(file)
        )))),
        Err((_, errno)) => Err(errno).context("cannot lock a directory"),
    }
}

/// Notes in the lock file who holds it: for messages alone.
fn sign(lock: &OwnedFd) {
    if let Ok(copy) = lock.try_clone() {
        let _ =
            std::fs::File::from(copy).write_all(format!("{:>10}", std::process::id()).as_bytes());
    }
}

fn holder(file: OwnedFd) -> String {
    let mut text = String::new();
    let _ = std::fs::File::from(file).take(10).read_to_string(&mut text);
    match text.trim().parse::<u32>() {
        Ok(pid) => format!("process {pid}"),
        Err(_) => "another process".to_owned(),
    }
}
