//! A job's directory for join sockets: its lock, its sockets, its end.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::sys::stat::{FileStat, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::names::Door;
use crate::own_directory::{LOCK, is_at, open_below, take_lock};

/// What a killed server left is removed when its directory has not changed for this long.
const LEFT_BEHIND: Duration = Duration::from_secs(3 * 24 * 3600);
/// The most directories of other jobs that one arrival looks at.
const MOST_OTHERS: usize = 64;

/// A path that leads to `name` in the directory, however it is called: a socket's address has 108
/// bytes (`unix(7)`).
pub(super) fn address(directory: &OwnedFd, name: &str) -> Result<UnixAddr> {
    let path = format!("/proc/self/fd/{}/{name}", directory.as_raw_fd());
    UnixAddr::new(path.as_str()).context("cannot address a step's socket")
}

fn is_directory(found: &FileStat) -> bool {
    found.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits()
}

/// The names in a directory.
fn names(directory: &OwnedFd) -> Result<Vec<String>> {
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let entries = std::fs::read_dir(path).context("cannot list a directory of join sockets")?;
    Ok(entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect())
}

/// The sockets in a job's directory, in order.
pub(super) fn doors(directory: &OwnedFd) -> Result<Vec<Door>> {
    let names = names(directory)?;
    let mut all: Vec<Door> = names
        .iter()
        .filter_map(|name| Door::from_name(name))
        .collect();
    all.sort_unstable();
    Ok(all)
}

/// Those of them at which somebody listens; the others are removed. Under the lock.
pub(super) fn living(directory: &OwnedFd) -> Result<Vec<Door>> {
    let mut all = Vec::new();
    for door in doors(directory)? {
        if is_dead(directory, &door.name())? {
            remove(directory, &door.name())?;
        } else {
            all.push(door);
        }
    }
    Ok(all)
}

/// Whether no process has the socket any more. It is asked for a connection of a type that it does
/// not make: `EPROTOTYPE` says that it lives, and its server notices nothing.
fn is_dead(directory: &OwnedFd, name: &str) -> Result<bool> {
    let socket = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        None,
    )
    .context("cannot make a socket")?;
    let answer = connect(socket.as_raw_fd(), &address(directory, name)?);
    Ok(matches!(answer, Err(Errno::ECONNREFUSED | Errno::ENOENT)))
}

/// Removes a file. Under the lock.
pub(super) fn remove(directory: &OwnedFd, name: &str) -> Result<()> {
    match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno).context(format!("cannot remove `{name}`")),
    }
}

/// Removes a job's directory if no step has a server. Under the lock, which ends with it: whoever
/// comes between the two removals makes a new lock file, and the directory stays.
pub(super) fn clear(base: &OwnedFd, name: &str, directory: &OwnedFd) {
    let empty = living(directory).is_ok_and(|doors| doors.is_empty());
    if empty && is_at(base, name, directory) && remove(directory, LOCK).is_ok() {
        let _ = unlinkat(base, name, UnlinkatFlags::RemoveDir);
    }
}

/// Removes what killed servers of other jobs left behind long ago. That nothing can be removed
/// disturbs nobody.
pub(super) fn sweep(base: &OwnedFd, own: &str) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let old = |found: &FileStat| {
        let changed = u64::try_from(found.st_mtime).unwrap_or(0);
        changed.saturating_add(LEFT_BEHIND.as_secs()) < now
    };
    let names = names(base).unwrap_or_default();
    for name in names.iter().filter(|name| *name != own).take(MOST_OTHERS) {
        let found = fstatat(base, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
        if !found.is_ok_and(|found| is_directory(&found) && old(&found)) {
            continue;
        }
        let Ok(directory) = open_below(base, name) else {
            continue;
        };
        if let Ok(Ok(_lock)) = take_lock(&directory) {
            clear(base, name, &directory);
        }
    }
}
