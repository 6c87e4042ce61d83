//! The few files that commands touch on this side of the jail: the chaperon's own.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: makes a directory and asks the kernel"
)]

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// This process's program.
const PROGRAM: &str = "/proc/self/exe";

/// The chaperon's own program, under a path that holds for other processes. After an upgrade that is the new one; what others start
/// of it (`hold`) stays as it is.
///
/// # Errors
/// What `readlink(2)` answers.
pub(crate) fn own_program() -> io::Result<PathBuf> {
    let named = std::fs::read_link(PROGRAM)?.into_os_string();
    // What the kernel adds to the name of a file that was replaced (proc_pid_exe(5)).
    let bytes = named.as_bytes();
    let path = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    Ok(OsStr::from_bytes(path).into())
}

/// Makes a directory for this user alone, and those above it.
///
/// # Errors
/// What `mkdir(2)` answers.
pub(crate) fn make_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}
