//! Ways to files that nobody can bend: every directory is opened by its name in the one before, and no
//! symbolic link is followed. What stands in a kept directory was written by hostile commands, which
//! may still be running; what is held by a descriptor stays what it is.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, mkdirat};

use crate::sys::paths::by_descriptor;

/// `S_IRWXU`, and nothing else.
const PRIVATE: u32 = 0o700;
/// The permission bits, with set-ID and sticky bits (`inode(7)`).
const PERMISSIONS: u32 = 0o7777;

/// What becomes of a directory that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// It is made, mode 0700.
    Made,
    /// `ENOENT`.
    Stays,
}

/// Opens a directory by its name in another one, with `O_PATH`.
///
/// # Errors
/// What `openat(2)` answers: `ENOTDIR` also for a symbolic link.
pub(super) fn enter(directory: impl AsFd, name: &OsStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(directory, name, flags, Mode::empty())
}

/// The same, after making it if it is missing and has to be.
///
/// # Errors
/// What `openat(2)` or `mkdirat(2)` answer.
pub(super) fn enter_or_make(
    directory: impl AsFd,
    name: &OsStr,
    missing: Missing,
) -> nix::Result<OwnedFd> {
    match enter(&directory, name) {
        Err(Errno::ENOENT) if missing == Missing::Made => {}
        done => return done,
    }
    match mkdirat(&directory, name, Mode::S_IRWXU) {
        // Somebody else was faster: another launch of the same user's, as a rule.
        Ok(()) | Err(Errno::EEXIST) => enter(directory, name),
        Err(errno) => Err(errno),
    }
}

/// Why a way ends before its end.
#[derive(Debug, thiserror::Error)]
#[error("`{at}` {why}")]
pub(super) struct Blocked {
    /// The directory.
    at: String,
    /// What is wrong with it, to go on after its name.
    why: String,
    /// What the kernel said, if it was the kernel.
    pub(super) errno: Option<Errno>,
}

impl Blocked {
    pub(super) fn new(at: &Path, why: impl Into<String>) -> Self {
        Self {
            at: at.display().to_string(),
            why: why.into(),
            errno: None,
        }
    }

    pub(super) fn by(at: &Path, errno: Errno) -> Self {
        let why = match errno {
            Errno::ENOTDIR | Errno::ELOOP => "is no directory, or a symbolic link".to_owned(),
            errno => format!("cannot be used: {}", errno.desc()),
        };
        Self {
            errno: Some(errno),
            ..Self::new(at, why)
        }
    }
}

/// Opens a directory by its real path. `private` says which of the directories have to be the user's,
/// and for nobody else: those are closed to others if they are not.
///
/// # Errors
/// The first directory on the way that cannot be used.
pub(super) fn directory(
    path: &Path,
    missing: Missing,
    private: impl Fn(&Path) -> bool,
) -> Result<OwnedFd, Blocked> {
    let uid = nix::unistd::getuid().as_raw();
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut at = Path::new("/").to_path_buf();
    let mut held =
        open(at.as_path(), flags, Mode::empty()).map_err(|errno| Blocked::by(&at, errno))?;
    for part in path.components() {
        let name = match part {
            Component::RootDir => continue,
            Component::Normal(name) => name,
            _ => return Err(Blocked::new(path, "is not a plain path")),
        };
        at.push(name);
        held = enter_or_make(&held, name, missing).map_err(|errno| Blocked::by(&at, errno))?;
        if private(&at) {
            make_private(&held, uid, &at)?;
        }
    }
    Ok(held)
}

/// Makes sure that a directory is the user's alone.
///
/// # Errors
/// It belongs to somebody else, or its mode cannot be changed.
pub(super) fn make_private(directory: &OwnedFd, uid: u32, at: &Path) -> Result<(), Blocked> {
    let found = fstat(directory).map_err(|errno| Blocked::by(at, errno))?;
    if found.st_uid != uid {
        return Err(Blocked::new(
            at,
            format!("belongs to user {}", found.st_uid),
        ));
    }
    if found.st_mode & PERMISSIONS != PRIVATE {
        // The agent is its owner, too, and may have closed it or opened it to everybody.
        set_mode(directory, PRIVATE).map_err(|error| Blocked::new(at, error.to_string()))?;
    }
    Ok(())
}

/// Sets the permissions of what is held, with `O_PATH` too, for which `fchmod(2)` is not.
///
/// # Errors
/// What `chmod(2)` answers.
pub(super) fn set_mode(file: impl AsFd, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(by_descriptor(file), Permissions::from_mode(mode))
}

/// Opens the directory around a name that stands below `top`, where `below` has one part or more.
///
/// # Errors
/// What `openat(2)` or `mkdirat(2)` answer: `ENOTDIR` also for a symbolic link.
pub(super) fn around(top: &OwnedFd, below: &Path, missing: Missing) -> nix::Result<OwnedFd> {
    let mut held = top.try_clone().map_err(|_| Errno::EMFILE)?;
    for part in below.parent().into_iter().flat_map(Path::components) {
        held = match part {
            Component::Normal(name) => enter_or_make(&held, name, missing)?,
            _ => return Err(Errno::EINVAL),
        };
    }
    Ok(held)
}

/// A regular file that is open, and what it is.
pub(super) struct Regular {
    pub(super) file: File,
    pub(super) is: FileStat,
}

/// Opens a regular file by its name in a directory. No link is followed, a FIFO is not waited for, and
/// a terminal does not become ours; `None` for what is no regular file.
///
/// # Errors
/// What `openat(2)` answers, but for `ELOOP`.
pub(super) fn regular(
    directory: impl AsFd,
    name: &OsStr,
    access: OFlag,
) -> nix::Result<Option<Regular>> {
    let flags = access | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = match openat(directory, name, flags, Mode::empty()) {
        Ok(file) => file,
        // A link; a FIFO without a reader, a socket (open(2)); a directory that is to be written.
        Err(Errno::ELOOP | Errno::ENXIO | Errno::EISDIR) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let is = fstat(&file)?;
    let regular = SFlag::from_bits_truncate(is.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFREG;
    Ok(regular.then(|| Regular {
        file: file.into(),
        is,
    }))
}

impl Regular {
    /// Its content; `None` if that is longer than `most` bytes.
    ///
    /// # Errors
    /// What `read(2)` answers.
    pub(super) fn content(&self, most: u64) -> io::Result<Option<Vec<u8>>> {
        let mut content = Vec::new();
        // It may grow while it is read.
        (&self.file).take(most + 1).read_to_end(&mut content)?;
        Ok((content.len() as u64 <= most).then_some(content))
    }

    /// When it was changed, in seconds and nanoseconds.
    pub(super) fn modified(&self) -> (i64, i64) {
        (self.is.st_mtime, self.is.st_mtime_nsec)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    use std::os::unix::fs::symlink;

    fn real(directory: &tempfile::TempDir) -> std::path::PathBuf {
        directory.path().canonicalize().unwrap()
    }

    #[test]
    fn what_is_missing_is_made_for_the_user_alone_and_what_is_open_is_closed() {
        let top = tempfile::tempdir().unwrap();
        let top = real(&top);
        let at = top.join("a/b/c");
        directory(&at, Missing::Made, |_| false).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&top.join("a")), 0o700);
        for open in [0o777, 0o000, 0o2755] {
            std::fs::set_permissions(&at, Permissions::from_mode(open)).unwrap();
            directory(&at, Missing::Stays, |path| path == at).unwrap();
            assert_eq!(mode(&at), 0o700, "{open:o}");
        }
        let missing = directory(&top.join("x/y"), Missing::Stays, |_| false).unwrap_err();
        assert_eq!(missing.errno, Some(Errno::ENOENT));
        assert!(!top.join("x").exists());
    }

    #[test]
    fn a_link_or_a_file_on_the_way_is_the_end_and_nothing_is_made_behind_it() {
        let (top, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let top = real(&top);
        symlink(other.path(), top.join("link")).unwrap();
        symlink(other.path().join("dangling"), top.join("dangling")).unwrap();
        std::fs::write(top.join("file"), "").unwrap();
        for name in ["link", "dangling", "file"] {
            for way in [top.join(name), top.join(name).join("in")] {
                let blocked = directory(&way, Missing::Made, |_| false).unwrap_err();
                let expected = format!(
                    "`{}` is no directory, or a symbolic link",
                    top.join(name).display()
                );
                assert_eq!(blocked.to_string(), expected);
            }
        }
        assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_regular_files_are_opened_and_nothing_is_waited_for() {
        let top = tempfile::tempdir().unwrap();
        let at = real(&top);
        std::fs::write(at.join("file"), "12345").unwrap();
        symlink("file", at.join("link")).unwrap();
        std::fs::create_dir(at.join("directory")).unwrap();
        nix::unistd::mkfifo(&at.join("fifo"), Mode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at.join("socket")).unwrap();
        let held = directory(&at, Missing::Stays, |_| false).unwrap();
        for access in [OFlag::O_RDONLY, OFlag::O_WRONLY] {
            for name in ["link", "directory", "fifo", "socket"] {
                let found = regular(&held, OsStr::new(name), access).unwrap();
                assert!(found.is_none(), "{name}");
            }
        }
        let file = regular(&held, OsStr::new("file"), OFlag::O_RDONLY)
            .unwrap()
            .unwrap();
        assert_eq!(file.content(4).unwrap(), None);
        let file = regular(&held, OsStr::new("file"), OFlag::O_RDONLY)
            .unwrap()
            .unwrap();
        assert_eq!(file.content(5).unwrap(), Some(b"12345".to_vec()));
    }
}
