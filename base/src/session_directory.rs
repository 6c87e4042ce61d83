//! A directory of a session on this node: of one that has Landlock as its jail, in which stands what mounts would show
//! elsewhere; or for the sockets of ports that are forwarded. It is the launcher's for as long as that lives, and holds a lock to say
//! so; what a killed launcher left is removed by a later one.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it makes and removes the directory"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::failure;
use crate::own_directory::{self, LOCK, is_at, open_below, take_lock};
use crate::session;

/// How often a directory is made again because another launcher took it for one that was left behind. Where dozens of launches begin at
/// once on a node that stalls, eight were not enough.
const MOST_ATTEMPTS: u32 = 100;
/// How long the removal of a session's own directory may take. An agent may have made any number of
/// files.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a launch may take to remove what others left.
const PATIENCE_FOR_OTHERS: Duration = Duration::from_secs(1);
/// The most directories of others that one launch looks at.
const MOST_OTHERS: usize = 64;

/// A session's directory. It is removed when this is dropped.
#[derive(Debug)]
pub struct SessionDirectory {
    base: OwnedFd,
    directory: OwnedFd,
    name: String,
    path: PathBuf,
    _lock: Flock<OwnedFd>,
}

impl SessionDirectory {
    /// Where one would stand, for who only asks.
    ///
    /// # Errors
    /// There is no place for it on this node.
    pub fn would_be(uid: u32, kind: &str, of: &str) -> Result<PathBuf> {
        let base = own_directory::would_be(uid, &own_directory::parents())
            .context("there is no place for the session's directory on this node")?;
        Ok(base.join(name(kind, of)?))
    }

    /// Makes one of a kind, for a session or one of its jobs, empty; and removes those of this kind that killed launchers left.
    /// The kind ends with a plus, which no name of a job's directory has (`share::join_socket::names`).
    ///
    /// # Errors
    /// There is no place for it on this node, or it cannot be made.
    pub fn new(uid: u32, kind: &str, of: &str) -> Result<Self> {
        let base = own_directory::open_for(uid, &own_directory::parents(), "").map_err(|why| {
            anyhow::anyhow!("there is no place for the session's directory on this node: {why}")
        })?;
        sweep(&base, kind);
        for _ in 0..MOST_ATTEMPTS {
            if let Some(made) = Self::attempt(uid, &base, name(kind, of)?)? {
                return Ok(made);
            }
        }
        bail!("the session's directory keeps being removed while it is made")
    }

    /// `None` if another launcher took it for one that was left behind, before it had its lock.
    fn attempt(uid: u32, base: &OwnedFd, name: String) -> Result<Option<Self>> {
        let failed = || format!("cannot make the session's directory `{name}`");
        mkdirat(base, name.as_str(), Mode::S_IRWXU).with_context(failed)?;
        let directory = match open_below(base, &name) {
            Ok(directory) => directory,
            Err(Errno::ENOENT) => return Ok(None),
            Err(errno) => return Err(errno).with_context(failed),
        };
        // A directory may pass its set-group-ID bit on, or a default ACL (inode(7), acl(5)).
        fchmod(&directory, Mode::S_IRWXU).with_context(failed)?;
        own_directory::own(uid, &directory).map_err(|why| anyhow::anyhow!("`{name}` {why}"))?;
        let lock = match take_lock(&directory) {
            Ok(Ok(lock)) => lock,
            Ok(Err(_)) => return Ok(None),
            Err(error) if error.downcast_ref() == Some(&Errno::ENOENT) => return Ok(None),
            Err(error) => return Err(error).with_context(failed),
        };
        if !is_at(base, &name, &directory) {
            return Ok(None);
        }
        let path = std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))
            .with_context(failed)?;
        Ok(Some(Self {
            base: base.try_clone().with_context(failed)?,
            directory,
            name,
            path,
            _lock: lock,
        }))
    }

    /// The directory itself.
    pub fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Its real path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SessionDirectory {
    fn drop(&mut self) {
        let until = Instant::now() + PATIENCE;
        if let Err(error) = remove(&self.base, &self.name, &self.directory, until) {
            failure::say(&format!(
                "agent-sandbox: note: `{}` could not be removed: {error}; a later launch tries again\n",
                self.path.display()
            ));
        }
    }
}

fn name(prefix: &str, of: &str) -> Result<String> {
    Ok(format!("{prefix}{of}.{}", session::new_id()?))
}

/// Removes the directories of one kind whose launchers are gone. That nothing can be removed disturbs nobody.
fn sweep(base: &OwnedFd, prefix: &str) {
    let until = Instant::now() + PATIENCE_FOR_OTHERS;
    let names = names(base).unwrap_or_default();
    let left = names.iter().filter_map(|name| name.to_str());
    for name in left
        .filter(|name| name.starts_with(prefix))
        .take(MOST_OTHERS)
    {
        let Ok(directory) = open_below(base, name) else {
            continue;
        };
        if let Ok(Ok(_lock)) = take_lock(&directory) {
            let _ = remove(base, name, &directory, until);
        }
    }
}

/// Removes a directory with everything in it. Under its lock, which ends with it: whoever comes
/// between the two last removals makes a new lock file, and the rest is left to them.
fn remove(base: &OwnedFd, name: &str, directory: &OwnedFd, until: Instant) -> io::Result<()> {
    clear(directory, until)?;
    if !is_at(base, name, directory) {
        return Ok(());
    }
    unlinkat(directory, LOCK, UnlinkatFlags::NoRemoveDir)?;
    match unlinkat(base, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT | Errno::ENOTEMPTY | Errno::EEXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes everything but the lock. What is deep is moved up first, so that neither descriptors nor
/// the stack have to be as many as the directories are deep. No symbolic link is followed, and
/// directories without permissions get some.
fn clear(top: &OwnedFd, until: Instant) -> io::Result<()> {
    let mut moved = 0u64;
    loop {
        let all = names(top)?;
        let mut left = all.iter().filter(|name| *name != LOCK).peekable();
        if left.peek().is_none() {
            return Ok(());
        }
        for name in left {
            if is_removed(top, name)? {
                continue;
            }
            let directory = opened(top, name)?;
            for inner in names(&directory)? {
                if Instant::now() >= until {
                    return Err(io::Error::other("it holds too much"));
                }
                if is_removed(&directory, &inner)? {
                    continue;
                }
                // A directory that gets another parent must be writable itself (rename(2)).
                drop(opened(&directory, &inner)?);
                loop {
                    moved += 1;
                    let to = format!("removed.{moved}");
                    match renameat(&directory, inner.as_os_str(), top, to.as_str()) {
                        Ok(()) => break,
                        Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
            }
            is_removed(top, name)?;
        }
    }
}

/// Removes a file or an empty directory; `false` for a directory with something in it.
fn is_removed(directory: &OwnedFd, name: &std::ffi::OsStr) -> io::Result<bool> {
    match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => return Ok(true),
        Err(Errno::EISDIR | Errno::EPERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    match unlinkat(directory, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(true),
        Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Opens a directory in which everything can be changed then, whatever its mode was.
fn opened(directory: &OwnedFd, name: &std::ffi::OsStr) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let held = openat(directory, name, flags, Mode::empty())?;
    let path = format!("/proc/self/fd/{}", held.as_fd().as_raw_fd());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))?;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok(nix::fcntl::open(path.as_str(), flags, Mode::empty())?)
}

fn names(directory: &OwnedFd) -> io::Result<Vec<std::ffi::OsString>> {
    let entries = std::fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()))?;
    entries.map(|entry| Ok(entry?.file_name())).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    fn made() -> SessionDirectory {
        let uid = nix::unistd::getuid().as_raw();
        SessionDirectory::new(uid, "test+", "test").unwrap()
    }

    #[test]
    fn it_is_the_users_alone_and_goes_with_everything_in_it() {
        let directory = made();
        let path = directory.path().to_owned();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
        std::os::unix::fs::symlink("/etc", path.join("link")).unwrap();
        drop(directory);
        assert!(std::fs::symlink_metadata(&path).is_err());
        assert!(Path::new("/etc/passwd").exists());
    }

    #[test]
    fn what_is_deep_or_closed_is_removed_and_what_links_lead_to_stays() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("kept"), "").unwrap();
        let directory = made();
        let path = directory.path().to_owned();
        let mut deep = path.join("deep");
        for _ in 0..40 {
            deep.push("x".repeat(60));
        }
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("file"), "").unwrap();
        let closed = path.join("closed");
        std::fs::create_dir_all(closed.join("in/it")).unwrap();
        std::os::unix::fs::symlink(outside.path(), closed.join("in/link")).unwrap();
        // A name that the removal gives to what it moves.
        std::fs::create_dir_all(path.join("removed.1/x")).unwrap();
        for directory in [closed.join("in"), closed.clone()] {
            std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o000)).unwrap();
        }
        drop(directory);
        assert!(std::fs::symlink_metadata(&path).is_err());
        assert!(outside.path().join("kept").exists());
    }

    #[test]
    fn what_a_killed_launcher_left_is_removed_and_what_lives_stays() {
        let living = made();
        let left = std::mem::ManuallyDrop::new(made());
        std::fs::create_dir_all(left.path().join("home/x")).unwrap();
        assert!(left.path().exists());
        // As the kernel does for a process that is killed: the lock ends.
        nix::unistd::close(left._lock.as_raw_fd()).unwrap();
        let next = made();
        assert!(!left.path().exists());
        assert!(living.path().exists());
        assert!(next.path().exists());
    }
}
