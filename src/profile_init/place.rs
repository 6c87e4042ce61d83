//! A new file in the directory of profiles: there as a whole or not at all, and never in the place of
//! another.

#![allow(clippy::disallowed_methods, reason = "effects: writes the new profile")]

use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use crate::session;

/// Whether something stands there, a link that leads nowhere included.
///
/// # Errors
/// What `lstat(2)` answers, unless that is "no".
pub(super) fn is_taken(path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes it, for the user alone. The directory is made if it is missing.
///
/// # Errors
/// `AlreadyExists` if something stands there; whatever else keeps it from being written.
pub(super) fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    // Hidden files are no profiles (`config::profiles`).
    let random = session::new_id().map_err(io::Error::other)?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{random}"));
    let hidden = directory.join(hidden);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&hidden)?;
    let written = file
        .write_all(text)
        .and_then(|()| file.sync_all())
        .and_then(|()| take_name(&hidden, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&hidden);
    }
    written
}

/// Gives the file its name, which nothing must have: a second name is put in the place of no other.
fn take_name(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::hard_link(from, to)?;
    std::fs::remove_file(from)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_new_file_is_whole_and_replaces_nothing() {
        let world = tempfile::tempdir().expect("a directory");
        let path = world.path().join("a/profiles/x.toml");
        write_new(&path, b"one").expect("a file");
        let mode = |path: &Path| std::fs::metadata(path).expect("it").permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().expect("above")), 0o700);
        let again = write_new(&path, b"two").expect_err("a refusal");
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).expect("the first"), b"one");
        // A link that leads nowhere is something as well.
        let link = path.with_file_name("y.toml");
        std::os::unix::fs::symlink(world.path().join("elsewhere"), &link).expect("a link");
        assert!(write_new(&link, b"three").is_err());
        let left = std::fs::read_dir(path.parent().expect("above")).expect("a listing");
        assert_eq!(left.count(), 2, "nothing half written is left");
    }
}
