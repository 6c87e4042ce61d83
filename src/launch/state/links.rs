//! The links that a kept directory holds for what is shown below it. Nothing is mounted there: a
//! command that runs in another session of the project could put a link in the mount point's place at
//! the very moment, and bubblewrap, which acts as the user, would follow it.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{readlinkat, renameat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use crate::launch::store::last;
use crate::launch::ways::{self, Missing};
use crate::session;

/// How often a place is tried that somebody keeps changing.
const MOST_ATTEMPTS: u32 = 16;
/// What is appended to the name of what is moved aside.
const ASIDE: &str = ".aside";

/// What becomes of something that stands where a link belongs and is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instead {
    /// It gets another name, beside the link.
    Aside,
    /// A file goes: what it says is known elsewhere, or outdated.
    Dropped,
    /// A file stays, in place of the link.
    Stays,
}

/// Makes the link `below` in a kept directory, which leads to `target`, unless it is there. Directories
/// above it are made. The answer is the new names of what was in the way.
///
/// # Errors
/// What the kernel answers; `EBUSY` if somebody keeps changing the place.
pub(super) fn make(
    kept: &OwnedFd,
    below: &Path,
    target: &Path,
    instead: Instead,
) -> nix::Result<Vec<OsString>> {
    let mut moved = Vec::new();
    let directory = cleared_way(kept, below, &mut moved)?;
    let name = last(below);
    for _ in 0..MOST_ATTEMPTS {
        match readlinkat(&directory, name) {
            Ok(says) if says == target => return Ok(moved),
            // A link holds nothing but its text.
            Ok(_) => remove(&directory, name)?,
            Err(Errno::ENOENT) => {}
            Err(Errno::EINVAL) => match instead {
                Instead::Stays if is_file(&directory, name) => return Ok(moved),
                Instead::Dropped if is_file(&directory, name) => remove(&directory, name)?,
                _ => moved.extend(set_aside(&directory, name)?),
            },
            Err(errno) => return Err(errno),
        }
        match symlinkat(target, &directory, name) {
            Ok(()) => return Ok(moved),
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EBUSY)
}

/// Removes the link `below` in a kept directory, so that a file can be made there; what is no link
/// stays.
///
/// # Errors
/// What the kernel answers.
pub(super) fn remove_link(kept: &OwnedFd, below: &Path) -> nix::Result<()> {
    let mut directory = kept.try_clone().map_err(|_| Errno::EMFILE)?;
    for name in below.parent().into_iter().flat_map(Path::iter) {
        directory = match opened(&directory, name, Missing::Stays) {
            Ok(directory) => directory,
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(()),
            Err(errno) => return Err(errno),
        };
    }
    match readlinkat(&directory, last(below)) {
        Ok(_) => remove(&directory, last(below)),
        Err(Errno::ENOENT | Errno::EINVAL) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// The directory around `below`, made as for [`make`], where only ours is in the way.
///
/// # Errors
/// As [`make`].
pub(super) fn way(top: &OwnedFd, below: &Path) -> nix::Result<OwnedFd> {
    cleared_way(top, below, &mut Vec::new())
}

/// The directory around `below`. What stands on the way and is no directory is moved aside, and
/// directories that were closed are opened again.
fn cleared_way(kept: &OwnedFd, below: &Path, moved: &mut Vec<OsString>) -> nix::Result<OwnedFd> {
    let mut held = kept.try_clone().map_err(|_| Errno::EMFILE)?;
    for name in below.parent().into_iter().flat_map(Path::iter) {
        held = cleared(&held, name, moved)?;
    }
    Ok(held)
}

fn cleared(around: &OwnedFd, name: &OsStr, moved: &mut Vec<OsString>) -> nix::Result<OwnedFd> {
    for _ in 0..MOST_ATTEMPTS {
        match opened(around, name, Missing::Made) {
            Ok(directory) => return Ok(directory),
            Err(Errno::ENOTDIR | Errno::ELOOP) => match readlinkat(around, name) {
                Ok(_) => remove(around, name)?,
                Err(Errno::ENOENT) => {}
                Err(_) => moved.extend(set_aside(around, name)?),
            },
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EBUSY)
}

/// A directory that can be searched and written: the agent is its owner, too, and may have closed it.
fn opened(around: &OwnedFd, name: &OsStr, missing: Missing) -> nix::Result<OwnedFd> {
    let directory = ways::enter_or_make(around, name, missing)?;
    let open = |is: nix::sys::stat::FileStat| is.st_mode & 0o700 == 0o700;
    if !nix::sys::stat::fstat(&directory).is_ok_and(open) {
        ways::set_mode(&directory, 0o700).map_err(|_| Errno::EACCES)?;
    }
    Ok(directory)
}

/// Gives something another name in its directory, that of what was moved aside before, unless it cannot
/// take its place.
///
/// # Errors
/// What `renameat(2)` answers.
pub(super) fn set_aside(directory: &OwnedFd, name: &OsStr) -> nix::Result<Option<OsString>> {
    let mut aside = name.to_owned();
    aside.push(ASIDE);
    match renameat(directory, name, directory, aside.as_os_str()) {
        Ok(()) => return Ok(Some(aside)),
        Err(Errno::ENOENT) => return Ok(None),
        Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::EISDIR | Errno::ENOTDIR) => {}
        Err(errno) => return Err(errno),
    }
    aside.push(".");
    aside.push(session::new_id().map_err(|_| Errno::EIO)?);
    renameat(directory, name, directory, aside.as_os_str())?;
    Ok(Some(aside))
}

fn remove(directory: &OwnedFd, name: &OsStr) -> nix::Result<()> {
    match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        // Somebody put a directory there meanwhile; the next look finds it.
        Err(Errno::EISDIR | Errno::EPERM) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Whether a regular file stands there. One that cannot be opened is none that would be read.
fn is_file(directory: &OwnedFd, name: &OsStr) -> bool {
    matches!(
        ways::regular(directory, name, nix::fcntl::OFlag::O_RDONLY),
        Ok(Some(_))
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use nix::sys::stat::Mode;

    const TARGET: &str = "/run/agent-sandbox/kept/.tool/settings.json";

    /// A kept directory, and something that is not its business.
    struct Fixture {
        _top: tempfile::TempDir,
        kept: std::path::PathBuf,
        outside: std::path::PathBuf,
        held: OwnedFd,
    }

    fn fixture() -> Fixture {
        let top = tempfile::tempdir().unwrap();
        let at = top.path().canonicalize().unwrap();
        let (kept, outside) = (at.join("kept"), at.join("outside"));
        for directory in [&kept, &outside] {
            std::fs::create_dir(directory).unwrap();
        }
        std::fs::write(outside.join("file"), "precious").unwrap();
        let held = ways::directory(&kept, Missing::Stays, |_| false).unwrap();
        Fixture {
            _top: top,
            kept,
            outside,
            held,
        }
    }

    impl Fixture {
        fn link(&self, below: &str, instead: Instead) -> nix::Result<Vec<OsString>> {
            make(&self.held, Path::new(below), Path::new(TARGET), instead)
        }

        fn leads(&self, below: &str) -> bool {
            let says = std::fs::read_link(self.kept.join(below));
            says.is_ok_and(|says| says == Path::new(TARGET))
        }

        /// Nothing outside was touched.
        fn check(&self) {
            let all: Vec<_> = std::fs::read_dir(&self.outside).unwrap().collect();
            assert_eq!(all.len(), 1);
            let text = std::fs::read_to_string(self.outside.join("file")).unwrap();
            assert_eq!(text, "precious");
        }
    }

    #[test]
    fn a_link_is_made_once_and_stays_the_same() {
        let fixture = fixture();
        assert_eq!(
            fixture.link("a/b/settings.json", Instead::Aside).unwrap(),
            [""; 0]
        );
        assert!(fixture.leads("a/b/settings.json"));
        let inode = || {
            let path = fixture.kept.join("a/b/settings.json");
            std::fs::symlink_metadata(path).unwrap().ino()
        };
        let before = inode();
        assert_eq!(
            fixture.link("a/b/settings.json", Instead::Aside).unwrap(),
            [""; 0]
        );
        assert_eq!(inode(), before);
    }

    #[test]
    fn planted_links_are_replaced_and_never_followed() {
        let fixture = fixture();
        let planted = [
            fixture.outside.clone(),
            fixture.outside.join("file"),
            fixture.outside.join("missing"),
            "/".into(),
            "settings.json".into(),
        ];
        for target in planted {
            let name = fixture.kept.join("settings.json");
            let _ = std::fs::remove_file(&name);
            symlink(&target, name).unwrap();
            assert_eq!(
                fixture.link("settings.json", Instead::Aside).unwrap(),
                [""; 0]
            );
            assert!(fixture.leads("settings.json"));

            let _ = std::fs::remove_dir_all(fixture.kept.join("in"));
            symlink(&target, fixture.kept.join("in")).unwrap();
            assert_eq!(fixture.link("in/it", Instead::Aside).unwrap(), [""; 0]);
            assert!(fixture.leads("in/it"));
            fixture.check();
        }
    }

    #[test]
    fn what_is_in_the_way_is_moved_aside() {
        let fixture = fixture();
        let at = fixture.kept.join("settings.json");
        std::fs::write(&at, "one").unwrap();
        assert_eq!(
            fixture.link("settings.json", Instead::Aside).unwrap(),
            ["settings.json.aside"]
        );
        assert!(fixture.leads("settings.json"));
        let aside = fixture.kept.join("settings.json.aside");
        assert_eq!(std::fs::read_to_string(&aside).unwrap(), "one");

        std::fs::remove_file(&at).unwrap();
        std::fs::create_dir(&at).unwrap();
        std::fs::write(at.join("in"), "two").unwrap();
        let moved = fixture.link("settings.json", Instead::Dropped).unwrap();
        assert!(fixture.leads("settings.json"));
        let other = fixture.kept.join(&moved[0]);
        assert_eq!(std::fs::read_to_string(other.join("in")).unwrap(), "two");
        assert_eq!(std::fs::read_to_string(&aside).unwrap(), "one");

        std::fs::remove_file(&at).unwrap();
        nix::unistd::mkfifo(&at, Mode::S_IRWXU).unwrap();
        fixture.link("settings.json", Instead::Stays).unwrap();
        assert!(fixture.leads("settings.json"));

        std::fs::write(fixture.kept.join("in"), "three").unwrap();
        assert_eq!(fixture.link("in/it", Instead::Aside).unwrap(), ["in.aside"]);
        assert!(fixture.leads("in/it"));
        fixture.check();
    }

    #[test]
    fn a_closed_directory_is_opened_and_a_login_file_stays_or_goes() {
        let fixture = fixture();
        std::fs::create_dir(fixture.kept.join("in")).unwrap();
        let closed = std::fs::Permissions::from_mode(0o000);
        std::fs::set_permissions(fixture.kept.join("in"), closed).unwrap();
        fixture.link("in/it", Instead::Aside).unwrap();
        assert!(fixture.leads("in/it"));

        std::fs::write(fixture.kept.join("login"), "token").unwrap();
        assert_eq!(fixture.link("login", Instead::Stays).unwrap(), [""; 0]);
        assert_eq!(std::fs::read(fixture.kept.join("login")).unwrap(), b"token");
        assert_eq!(fixture.link("login", Instead::Dropped).unwrap(), [""; 0]);
        assert!(fixture.leads("login"));
        remove_link(&fixture.held, Path::new("login")).unwrap();
        assert!(!fixture.leads("login"));
        remove_link(&fixture.held, Path::new("not/there")).unwrap();
        // Where the directory above is closed, too, as deep as it goes.
        for mode in [0o000, 0o500] {
            fixture.link("one/two/login", Instead::Stays).unwrap();
            for directory in ["one/two", "one"] {
                let closed = std::fs::Permissions::from_mode(mode);
                std::fs::set_permissions(fixture.kept.join(directory), closed).unwrap();
            }
            remove_link(&fixture.held, Path::new("one/two/login")).unwrap();
            assert!(!fixture.leads("one/two/login"));
        }
        std::fs::write(fixture.kept.join("login"), "token").unwrap();
        remove_link(&fixture.held, Path::new("login")).unwrap();
        assert_eq!(std::fs::read(fixture.kept.join("login")).unwrap(), b"token");
    }

    #[test]
    fn a_place_that_keeps_changing_leads_nowhere_else() {
        let fixture = fixture();
        let (kept, evil) = (fixture.kept.clone(), fixture.outside.join("made"));
        symlink(&evil, kept.join("evil")).unwrap();
        std::fs::write(kept.join("settings.json"), "").unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let held = ways::directory(&kept, Missing::Stays, |_| false).unwrap();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let (one, two) = (OsStr::new("settings.json"), OsStr::new("evil"));
                    let _ =
                        crate::sys::paths::rename(&held, one, &held, two, libc::RENAME_EXCHANGE);
                }
            });
            for _ in 0..2000 {
                match fixture.link("settings.json", Instead::Aside) {
                    Ok(_) | Err(Errno::EBUSY) => {}
                    Err(errno) => panic!("{errno}"),
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        fixture.check();
    }
}
