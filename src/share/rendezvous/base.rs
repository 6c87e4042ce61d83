//! The user's directory at the rendezvous: which one, and whether it is the user's alone.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{Mode, fchmod, fstat, fstatat, mkdirat};

use super::directory::open_below;
use crate::host;

/// `S_IRWXU`, and nothing else.
pub(super) const PRIVATE: u32 = 0o700;
/// The permission bits, with set-ID and sticky bits (`inode(7)`).
const PERMISSIONS: u32 = 0o7777;

/// What stands in one of the parents.
enum Candidate {
    Usable(OwnedFd),
    Missing(OwnedFd),
}

/// The user's directory: the one that has the job's, else the first that is or can be made.
pub(super) fn open_for(uid: u32, parents: &[PathBuf], job: &str) -> Result<OwnedFd> {
    let name = host::meeting_name(uid);
    let mut reasons = Vec::new();
    let mut all = Vec::new();
    for parent in parents {
        match look(uid, parent, &name) {
            Ok(Candidate::Usable(base)) => {
                if fstatat(&base, job, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok() {
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
    bail!(
        "the tasks of a job have no place to meet on this node: {}",
        reasons.join("; ")
    )
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
pub(super) fn own(uid: u32, directory: &OwnedFd) -> std::result::Result<(), String> {
    let found = fstat(directory).map_err(|errno| errno.desc().to_owned())?;
    if found.st_uid != uid {
        return Err(format!("belongs to user {}", found.st_uid));
    }
    match found.st_mode & PERMISSIONS {
        PRIVATE => Ok(()),
        mode => Err(format!("has the mode {mode:04o} and not {PRIVATE:04o}")),
    }
}
