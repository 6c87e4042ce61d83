//! What stands in the directory of a session whose jail this is: what mounts would show elsewhere.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it makes what stands in the directory"
)]

use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result};
use nix::sys::statvfs::{FsFlags, statvfs};

use super::contents::{Staged, Thing};

/// The kind of these directories (`SessionDirectory::new`).
pub const KIND: &str = "landlock+";

/// Makes what stands in the directory at this path.
///
/// # Errors
/// Something cannot be made; a sentence with its name.
pub fn fill(directory: &Path, staged: &[Staged]) -> Result<()> {
    for one in staged {
        let at = directory.join(&one.at);
        make(&at, &one.what).with_context(|| format!("cannot make `{}`", at.display()))?;
    }
    Ok(())
}

fn make(at: &Path, what: &Thing) -> io::Result<()> {
    match what {
        Thing::Directory(mode) => {
            std::fs::DirBuilder::new().mode(0o700).create(at)?;
            // Whatever the umask says.
            std::fs::set_permissions(at, std::fs::Permissions::from_mode(*mode))
        }
        Thing::Link(target) => std::os::unix::fs::symlink(target, at),
        Thing::File(mode, content) => {
            let mut file = create(at)?;
            file.write_all(content)?;
            file.set_permissions(std::fs::Permissions::from_mode(*mode))
        }
        Thing::Program(from) => match std::fs::File::open(from) {
            Ok(mut program) if is_executable(at)? => {
                let mut file = create(at)?;
                io::copy(&mut program, &mut file)?;
                file.set_permissions(std::fs::Permissions::from_mode(0o500))
            }
            // Where nothing may be executed, or the program may not be read, a link to what an upgrade replaces has to do.
            _ => std::os::unix::fs::symlink(from, at),
        },
    }
}

/// Whether the file system lets programs at this place be executed, of which the directory above is there.
fn is_executable(at: &Path) -> io::Result<bool> {
    let flags = statvfs(at.parent().unwrap_or(at))?.flags();
    Ok(!flags.contains(FsFlags::ST_NOEXEC))
}

fn create(at: &Path) -> io::Result<std::fs::File> {
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(at)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_has_its_mode_and_its_contents() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fill(
            path,
            &[
                Staged {
                    at: "home".into(),
                    what: Thing::Directory(0o755),
                },
                Staged {
                    at: "home/link".into(),
                    what: Thing::Link("/etc".into()),
                },
                Staged {
                    at: "home/file".into(),
                    what: Thing::File(0o640, b"text".to_vec()),
                },
                Staged {
                    at: "program".into(),
                    what: Thing::Program("/bin/true".into()),
                },
            ],
        )
        .unwrap();
        let file = path.join("home/file");
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640);
        assert_eq!(std::fs::read(&file).unwrap(), b"text");
        assert_eq!(
            std::fs::read_link(path.join("home/link")).unwrap(),
            Path::new("/etc")
        );
        let program = path.join("program");
        let mode = std::fs::symlink_metadata(&program)
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o500);
        let same = std::fs::read("/bin/true").unwrap();
        assert_eq!(std::fs::read(&program).unwrap(), same);
    }
}
