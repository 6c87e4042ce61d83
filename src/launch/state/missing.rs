//! What is missing in the home directory and has to stand there: the state that an agent shares with
//! the ones outside. It is made for the user alone, never over anything, and through no link.

use std::io::Write;

use anyhow::Result;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use crate::failure::Failure;
use crate::launch::store::last;
use crate::launch::ways::{self, Blocked, Missing};
use crate::plan::model::persistent::Make;

/// Makes something in the home directory. What stands there already is left alone.
///
/// # Errors
/// It cannot be made: the path, and why.
pub(super) fn make(what: &Make) -> Result<()> {
    let made = match what {
        Make::Directory { path, .. } => ways::directory(path, Missing::Made, |_| false).map(drop),
        Make::File { path, text, .. } => {
            let above = path.parent().unwrap_or(path);
            ways::directory(above, Missing::Made, |_| false)
                .and_then(|above| file(&above, path, text))
        }
        Make::Kept { .. } => Ok(()),
    };
    made.map_err(|blocked| {
        let path = what.path().display();
        Failure::new(format!("cannot make `{path}` for an agent's state: {blocked}"))
            .hint("make it yourself, or let the project have state of its own: agents.state = \"project\"")
            .into()
    })
}

fn file(above: &std::os::fd::OwnedFd, path: &std::path::Path, text: &str) -> Result<(), Blocked> {
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    match openat(above, last(path), flags, mode) {
        Ok(file) => std::fs::File::from(file)
            .write_all(text.as_bytes())
            .map_err(|error| Blocked::new(path, error.to_string())),
        Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(Blocked::by(path, errno)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    use std::os::unix::fs::{PermissionsExt, symlink};

    use crate::plan::Why;

    const WHY: Why = Why::Every("a test");

    #[test]
    fn state_is_made_once_for_the_user_alone() {
        let top = tempfile::tempdir().unwrap();
        let home = top.path().canonicalize().unwrap();
        let directory = Make::Directory {
            path: home.join(".config/tool"),
            why: WHY,
        };
        let text = |text: &str| Make::File {
            path: home.join(".tool.json"),
            text: text.to_owned(),
            why: WHY,
        };
        for what in [directory, text("{}"), text("another")] {
            make(&what).unwrap();
        }
        let mode = |name: &str| {
            let meta = std::fs::metadata(home.join(name)).unwrap();
            meta.permissions().mode() & 0o7777
        };
        assert_eq!(mode(".config/tool"), 0o700);
        assert_eq!(mode(".tool.json"), 0o600);
        assert_eq!(
            std::fs::read_to_string(home.join(".tool.json")).unwrap(),
            "{}"
        );
    }

    #[test]
    fn nothing_is_made_through_a_link() {
        let top = tempfile::tempdir().unwrap();
        let home = top.path().canonicalize().unwrap();
        symlink(home.join("elsewhere"), home.join(".tool.json")).unwrap();
        symlink("/etc", home.join(".tool")).unwrap();
        make(&Make::File {
            path: home.join(".tool.json"),
            text: "{}".to_owned(),
            why: WHY,
        })
        .unwrap();
        assert!(!home.join("elsewhere").exists());
        let error = make(&Make::Directory {
            path: home.join(".tool/state"),
            why: WHY,
        })
        .unwrap_err();
        let expected = format!(
            "cannot make `{0}/.tool/state` for an agent's state: `{0}/.tool` is no directory, or a symbolic link",
            home.display()
        );
        assert_eq!(error.to_string(), expected);
    }
}
