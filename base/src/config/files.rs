//! Opens policy files, with distrust.
#![allow(clippy::disallowed_methods)] // effects: reads the policy files; those of the site are opened in `site`

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::diagnostic::ConfigError;

/// The largest policy file that is read. A policy is written by hand; anything larger is a
/// mistake (a log, a core file), and reading it would stall every launch.
const LARGEST: u64 = 1024 * 1024;

/// The bytes of a policy file; `None` if there is no such file.
///
/// Symbolic links are followed (people keep their configuration in a repository); what counts is
/// the file at the end, which must be a regular one that nobody but the user and root can change.
pub(super) fn read(path: &Path, shown: &str) -> Result<Option<Vec<u8>>, ConfigError> {
    let unreadable = |error: &io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied => format!("make it readable: chmod u+r {shown}"),
            _ => "a policy that cannot be read is never skipped".to_owned(),
        };
        ConfigError::plain(&format!("cannot read {shown}: {error}"), Some(hint))
    };
    // A FIFO without a writer blocks an ordinary open for ever, a terminal would become ours.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match fs::symlink_metadata(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(unreadable(&error)),
                Ok(_) => {
                    let message = format!("{shown} is a symbolic link to a file that is missing");
                    Err(ConfigError::plain(
                        &message,
                        Some("restore its target, or remove the link".to_owned()),
                    ))
                }
            };
        }
        // What open(2) says of a socket.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Err(irregular(shown)),
        Err(error) => return Err(unreadable(&error)),
    };
    let status = file.metadata().map_err(|error| unreadable(&error))?;
    if !status.is_file() {
        return Err(irregular(shown));
    }
    if let Some((message, hint)) = distrust(
        status.uid(),
        status.mode(),
        nix::unistd::getuid().as_raw(),
        shown,
    ) {
        return Err(ConfigError::plain(&message, Some(hint)));
    }
    let bytes = read_limited(file).map_err(|error| unreadable(&error))?;
    bytes.map(Some).ok_or_else(|| too_large(shown))
}

pub(super) fn too_large(shown: &str) -> ConfigError {
    let message = format!("{shown} is larger than 1 MiB");
    let hint = "a policy file holds a few lines; is this the right file?".to_owned();
    ConfigError::plain(&message, Some(hint))
}

fn irregular(shown: &str) -> ConfigError {
    let message = format!("{shown} is not a regular file");
    ConfigError::plain(
        &message,
        Some("move it away, or put a text file in its place".to_owned()),
    )
}

/// Everything in the file, unless that is too much. The size in its status is not asked: a file
/// can grow, and some file systems report none.
pub(super) fn read_limited(file: File) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= LARGEST).then_some(bytes))
}

/// Why a file with this owner and mode cannot be the policy of user `me`.
fn distrust(owner: u32, mode: u32, me: u32, shown: &str) -> Option<(String, String)> {
    if owner != me && owner != 0 {
        let message = format!("{shown} belongs to another user (uid {owner})");
        let hint = format!(
            "whoever owns it decides what your agents may do; take it over: chown {me} {shown}"
        );
        return Some((message, hint));
    }
    let who = writers(mode)?;
    Some((
        format!("{shown} can be changed by {who}"),
        format!("chmod go-w {shown}"),
    ))
}

/// Who may write beside the owner.
pub(super) fn writers(mode: u32) -> Option<&'static str> {
    match mode & 0o022 {
        0 => None,
        0o020 => Some("its group"),
        0o002 => Some("other users"),
        _ => Some("its group and other users"),
    }
}

/// The text of a policy file.
pub(super) fn decode(shown: &str, bytes: Vec<u8>) -> Result<String, ConfigError> {
    String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        let message = format!("{shown}:{line}: not UTF-8 text");
        ConfigError::plain(&message, Some("save the file as UTF-8".to_owned()))
    })
}

/// The names of the files in the directory of profiles; none if there is no such directory.
pub(super) fn names(directory: &Path, shown: &str) -> Result<Vec<OsString>, ConfigError> {
    let unreadable = |error: io::Error| {
        ConfigError::plain(
            &format!("cannot read {shown}: {error}"),
            Some("a profile that cannot be read is never skipped".to_owned()),
        )
    };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut names = entries
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<io::Result<Vec<_>>>()
        .map_err(unreadable)?;
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::distrust;

    #[test]
    fn only_the_user_and_root_may_change_a_policy() {
        let trusted = |owner, mode| distrust(owner, mode, 1000, "F").is_none();
        assert!(trusted(1000, 0o100_644));
        assert!(trusted(0, 0o100_600));
        assert!(!trusted(1001, 0o100_600));
        assert!(!trusted(1000, 0o100_664));
        assert!(!trusted(1000, 0o100_646));
        assert!(!trusted(0, 0o100_666));
    }
}
