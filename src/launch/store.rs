//! A project's store: opened and made for the user alone, by its real path. The directories down to a
//! kept one were never in a jail's hands; if one is not as it was made, nothing starts.

use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Result;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fstat};

use super::ways::{self, Blocked, Missing};
use crate::failure::Failure;
use crate::own_directory;

/// The file in a store that says whose it is, for people.
const PROJECT: &str = "project";

/// A project's store, held open.
pub(super) struct Store<'a> {
    path: &'a Path,
    stores: &'a Path,
    held: OwnedFd,
}

impl<'a> Store<'a> {
    /// Opens a project's store, and makes it if it is missing. `stores` is the directory of all.
    ///
    /// # Errors
    /// A directory on the way is none, is a link, or is not the user's.
    pub(super) fn open(path: &'a Path, stores: &'a Path, project: &Path) -> Result<Self> {
        let held = ways::directory(path, Missing::Made, |at| is_ours(at, stores))
            .map_err(|blocked| refused(&blocked))?;
        let store = Self { path, stores, held };
        store.sign(project);
        Ok(store)
    }

    /// The store itself.
    pub(super) fn held(&self) -> &OwnedFd {
        &self.held
    }

    /// Says once for which project it is. That this fails harms nobody.
    fn sign(&self, project: &Path) {
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        if let Ok(file) = openat(&self.held, PROJECT, flags, mode) {
            let text = [project.as_os_str().as_bytes(), b"\n"].concat();
            let _ = std::fs::File::from(file).write_all(&text);
        }
    }

    /// Opens a directory of the store, and makes it if it is missing.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub(super) fn directory(&self, at: &Path) -> Result<OwnedFd> {
        let failed = |blocked: Blocked| refused(&blocked);
        let below = at.strip_prefix(self.path);
        let below = below.map_err(|_| failed(Blocked::new(at, "is not in the project's store")))?;
        let uid = nix::unistd::getuid().as_raw();
        let mut held = None;
        let mut path = self.path.to_path_buf();
        for name in below.components().map(|part| part.as_os_str()) {
            path.push(name);
            let above = held.as_ref().unwrap_or(&self.held);
            let next = ways::enter_or_make(above, name, Missing::Made)
                .map_err(|errno| failed(Blocked::by(&path, errno)))?;
            ways::make_private(&next, uid, &path).map_err(failed)?;
            held = Some(next);
        }
        held.ok_or_else(|| {
            failed(Blocked::new(
                self.stores,
                "is no place for a kept directory",
            ))
        })
    }
}

/// Opens a project's store for what is noted of the project, and makes it if it is missing.
///
/// # Errors
/// As [`Store::open`].
pub(super) fn of_project(path: &Path, stores: &Path, project: &Path) -> Result<OwnedFd> {
    Ok(Store::open(path, stores, project)?.held)
}

/// Device and inode.
///
/// # Errors
/// What `fstat(2)` answers.
pub(super) fn id(directory: &OwnedFd) -> Result<(u64, u64)> {
    Ok(own_directory::id(&fstat(directory)?))
}

/// Whether a directory on the way to a store has to be the user's alone: the one of all stores, what is
/// in it, and the state directory around it, in which it could be replaced.
fn is_ours(at: &Path, stores: &Path) -> bool {
    at.starts_with(stores) || Some(at) == stores.parent()
}

fn refused(blocked: &Blocked) -> anyhow::Error {
    Failure::new(format!("cannot keep the state of this project: {blocked}"))
        .hint("move it away, or point XDG_STATE_HOME to a directory of your own; agents.state = \"shared\" and an empty home.keep do without")
        .into()
}

/// Opens a kept directory that must be there already; `None` where it is not, or is not as it was made.
pub(super) fn existing(path: &Path, stores: &Path) -> Option<OwnedFd> {
    ways::directory(path, Missing::Stays, |at| is_ours(at, stores)).ok()
}

/// The last part of a path below a kept directory.
pub(super) fn last(below: &Path) -> &OsStr {
    below.file_name().unwrap_or_default()
}
