//! What stands somewhere on the host's file systems, as data.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Look {
    /// Nothing there.
    Missing,
    /// Something there.
    Found(Found),
    /// A directory on the way may not be searched, or another error: its number.
    Denied(i32),
    /// This directory on the way may not be searched, and belongs to the caller: whoever acts as
    /// the caller can open it again.
    Closed(PathBuf),
    /// No answer in time.
    Hung,
}

/// An existing file, by its real path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The path without symbolic links.
    pub real: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// Device and inode.
    pub id: (u64, u64),
    /// Owner.
    pub uid: u32,
    /// Permission bits, with set-ID and sticky bits (`inode(7)`).
    pub mode: u32,
    /// Whether the caller may read it, or search it if it is a directory (`access(2)`).
    pub readable: bool,
    /// The symbolic links that were followed: where each stands (its directory by its real path),
    /// and what it says.
    pub links: Vec<(PathBuf, PathBuf)>,
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link (only in listings).
    Link,
    /// A character or block device.
    Device,
    /// A socket, a FIFO.
    Other,
    /// Something that did not say in time what it is.
    Hung,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The name.
    pub name: OsString,
    /// Its kind; links are not followed.
    pub kind: Kind,
    /// What a symbolic link says.
    pub target: Option<PathBuf>,
}

/// Whether a path is absolute, and written as its real path would be.
pub fn is_plain(path: &Path) -> bool {
    let Some(below) = path.as_os_str().as_bytes().strip_prefix(b"/") else {
        return false;
    };
    let mut parts = below.split(|&byte| byte == b'/');
    below.is_empty() || parts.all(|part| !matches!(part, b"" | b"." | b".."))
}
