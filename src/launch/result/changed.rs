//! How much of the project a session changed: the files in it that changed after the start, whoever changed them.
//!
//! The kernel counts what a process writes by process or device, not by directory, and counts what stays in a cache of
//! a network file system otherwise on each of them. So the files are looked at once, at the end. What says that one
//! changed is its ctime, which nobody without root's rights can set, compared with that of a file made at the start:
//! both are by the clock of the file system. The tree is hostile ground: directories are opened by name in the one
//! before, no link is followed, and nothing is opened but directories.

use std::collections::HashSet;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::dir::{Dir, OwningIter};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::launch::ways::{self, Missing};
use crate::session;
use crate::sys::paths::by_descriptor;

/// The caller waits for it.
const PATIENCE: Duration = Duration::from_secs(10);
/// More are not looked at.
const MOST_ENTRIES: u64 = 1_000_000;
/// Each level holds a descriptor, of which a process has 1024 as a rule.
const DEEPEST: usize = 200;

/// A project, and when it was begun with.
#[derive(Debug)]
pub(super) struct Before {
    directory: OwnedFd,
    at: PathBuf,
    /// By the clock of its file system, in seconds and nanoseconds.
    since: (i64, i64),
}

/// What changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// Regular files; one of several names counts once.
    pub(super) files: u64,
    /// Their sizes together.
    pub(super) bytes: u64,
}

impl Before {
    /// # Errors
    /// Nobody will know what changed, and why.
    pub(super) fn new(project: &Path) -> Result<Self, String> {
        let directory = ways::directory(project, Missing::Stays, |_| false)
            .map_err(|blocked| blocked.to_string())?;
        let made = now(&directory);
        let since = made.map_err(|errno| {
            format!(
                "the project's file system did not tell its time: {}",
                errno.desc()
            )
        })?;
        Ok(Self {
            directory,
            at: project.to_owned(),
            since,
        })
    }

    /// Looks through the project.
    ///
    /// # Errors
    /// Why nobody knows.
    pub(super) fn changed(&self) -> Result<Changed, String> {
        let until = Instant::now() + PATIENCE;
        let device = fstat(&self.directory).map_err(told(&self.at))?.st_dev;
        let mut all = Changed::default();
        let mut seen = HashSet::new();
        let mut entries = 0u64;
        let first = listed(&self.directory, c".").map_err(told(&self.at))?;
        let mut levels: Vec<(OwnedFd, OwningIter)> = vec![first];
        loop {
            let depth = levels.len();
            let Some((directory, names)) = levels.last_mut() else {
                return Ok(all);
            };
            let Some(entry) = names.next() else {
                levels.pop();
                continue;
            };
            let entry = entry.map_err(told(&self.at))?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            entries += 1;
            if entries > MOST_ENTRIES {
                return Err(format!(
                    "there are more than {MOST_ENTRIES} files in the project"
                ));
            }
            if Instant::now() > until {
                let seconds = PATIENCE.as_secs();
                return Err(format!(
                    "looking through the project took more than {seconds} s"
                ));
            }
            let found = match fstatat(&*directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(found) => found,
                // Gone meanwhile.
                Err(Errno::ENOENT) => continue,
                Err(errno) => return Err(told(&self.at)(errno)),
            };
            // What is mounted below is none of the project.
            if found.st_dev != device {
                continue;
            }
            match SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits()) {
                SFlag::S_IFDIR if depth == DEEPEST => {
                    return Err(format!("the project is deeper than {DEEPEST} directories"));
                }
                SFlag::S_IFDIR => match listed(&*directory, name) {
                    Ok(level) => levels.push(level),
                    // Gone, or something else by now.
                    Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => {}
                    Err(errno) => return Err(told(&self.at)(errno)),
                },
                SFlag::S_IFREG
                    if self.is_later(&found)
                        && (found.st_nlink == 1 || seen.insert(found.st_ino)) =>
                {
                    all.files += 1;
                    all.bytes += u64::try_from(found.st_size).unwrap_or(0);
                }
                _ => {}
            }
        }
    }

    fn is_later(&self, found: &FileStat) -> bool {
        (found.st_ctime, found.st_ctime_nsec) > self.since
    }
}

fn told(at: &Path) -> impl Fn(Errno) -> String {
    move |errno| {
        format!(
            "a directory in `{}` cannot be listed: {}",
            at.display(),
            errno.desc()
        )
    }
}

/// A directory, held twice: to look at what is in it, and to list it.
fn listed(above: impl AsFd, name: &CStr) -> nix::Result<(OwnedFd, OwningIter)> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let held = openat(above, name, flags, Mode::empty())?;
    let entries = Dir::openat(&held, c".", flags, Mode::empty())?;
    Ok((held, entries.into_iter()))
}

/// The time of a directory's file system: the ctime of a file that is made there, without a name where that is possible.
fn now(directory: &OwnedFd) -> nix::Result<(i64, i64)> {
    let private = Mode::S_IRUSR | Mode::S_IWUSR;
    let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let here = by_descriptor(directory);
    let file = match open(here.as_str(), flags | OFlag::O_TMPFILE, private) {
        Ok(file) => file,
        Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::EINVAL) => {
            let id = session::new_id().map_err(|_| Errno::EIO)?;
            let name = format!(".agent-sandbox.{id}");
            let flags = flags | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
            let file = openat(directory, name.as_str(), flags, private)?;
            let _ = unlinkat(directory, name.as_str(), UnlinkatFlags::NoRemoveDir);
            file
        }
        Err(errno) => return Err(errno),
    };
    let found = fstat(&file)?;
    Ok((found.st_ctime, found.st_ctime_nsec))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn later() {
        // Times of files are by a clock that ticks.
        std::thread::sleep(Duration::from_millis(20));
    }

    #[test]
    fn what_is_new_or_changed_counts_and_nothing_else() {
        let project = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let at = project.path().canonicalize().unwrap();
        fs::create_dir(at.join("src")).unwrap();
        fs::write(at.join("old"), "old").unwrap();
        fs::write(at.join("src/changed"), "0123456789").unwrap();
        later();
        let before = Before::new(&at).unwrap();
        assert_eq!(before.changed(), Ok(Changed::default()));
        later();
        fs::write(outside.path().join("far"), vec![0; 4096]).unwrap();
        symlink(outside.path(), at.join("link")).unwrap();
        symlink(outside.path().join("far"), at.join("file-link")).unwrap();
        fs::write(at.join("src/changed"), "01234567").unwrap();
        fs::write(at.join("new"), "01").unwrap();
        fs::hard_link(at.join("new"), at.join("src/again")).unwrap();
        nix::unistd::mkfifo(&at.join("fifo"), Mode::S_IRWXU).unwrap();
        assert_eq!(
            before.changed(),
            Ok(Changed {
                files: 2,
                bytes: 10
            })
        );
    }

    #[test]
    fn a_time_that_was_set_back_does_not_hide_a_file() {
        let project = tempfile::tempdir().unwrap();
        let at = project.path().canonicalize().unwrap();
        let before = Before::new(&at).unwrap();
        later();
        let file = fs::File::create(at.join("new")).unwrap();
        file.set_len(7).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(before.changed(), Ok(Changed { files: 1, bytes: 7 }));
    }

    #[test]
    fn what_cannot_be_seen_is_not_counted_as_nothing() {
        let project = tempfile::tempdir().unwrap();
        let at = project.path().canonicalize().unwrap();
        let before = Before::new(&at).unwrap();
        let deep = at.join("d/".repeat(DEEPEST));
        fs::create_dir_all(deep).unwrap();
        assert!(before.changed().unwrap_err().contains("deeper"));
        fs::remove_dir_all(at.join("d")).unwrap();
        // Root may list everything.
        if nix::unistd::geteuid().is_root() {
            return agent_sandbox_support::not_checked(
                "a directory that cannot be listed",
                "root lists all",
            );
        }
        let closed = at.join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        assert!(before.changed().unwrap_err().contains("cannot be listed"));
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    }
}
