//! Whether a file could be written: with the rights and the view of the caller, and without making anything.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: looks at files, opens without changing them"
)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use agent_sandbox_wire::message::FromShim;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, access};

/// Looks at a file's directory, and at the file if it has a name and exists.
pub(crate) fn look(directory: &[u8], file: Option<&[u8]>) -> FromShim {
    let asked = Path::new(OsStr::from_bytes(directory));
    let mut missing: &[u8] = b"";
    for at in asked.ancestors() {
        // Of a relative path the current directory is left in the end.
        let at = match at.as_os_str().is_empty() {
            true => Path::new("."),
            false => at,
        };
        match std::fs::canonicalize(at) {
            Ok(real) if real.is_dir() || !missing.is_empty() => {
                let file = file.filter(|_| missing.is_empty());
                let refused = writes(&real, file).err().map_or(0, |errno| errno as i32);
                return FromShim::Looked {
                    directory: real.as_os_str().as_bytes().to_vec(),
                    missing: missing.to_vec(),
                    refused,
                };
            }
            Ok(_) => return FromShim::Failed(libc::ENOTDIR),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                missing = at.file_name().map_or(missing, OsStr::as_bytes);
            }
            Err(error) => return FromShim::Failed(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
    FromShim::Failed(libc::ENOENT)
}

fn writes(directory: &Path, file: Option<&[u8]>) -> nix::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    if let Some(file) = file.map(|name| directory.join(OsStr::from_bytes(name)))
        && std::fs::symlink_metadata(&file).is_ok()
    {
        return open(&file, flags, Mode::empty()).map(drop);
    }
    // A file without a name, which goes at once. It is asked of the kernel and not only of the directory's mode:
    // access(2) does not know of Landlock.
    match open(
        directory,
        flags | OFlag::O_TMPFILE,
        Mode::S_IRUSR | Mode::S_IWUSR,
    ) {
        Ok(_) => Ok(()),
        // Not every file system has such files (open(2)).
        Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::EINVAL | Errno::ENOENT | Errno::ENOSYS) => {
            access(directory, AccessFlags::W_OK | AccessFlags::X_OK)
        }
        Err(errno) => Err(errno),
    }
}
