//! The few files that commands touch on this side of the jail: the chaperon's own.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: makes a directory and asks the kernel"
)]

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// This process's program.
const PROGRAM: &str = "/proc/self/exe";

/// The chaperon's own program, under a path that holds for other processes.
///
/// # Errors
/// What `readlink(2)` answers.
pub(crate) fn own_program() -> io::Result<PathBuf> {
    std::fs::read_link(PROGRAM)
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
