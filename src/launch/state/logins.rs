//! Login files of agents. The user's own is shown in a kept directory by a link. An agent that writes
//! it anew by renaming puts a file in the link's place, and one that the user has not logged in makes
//! the file: either is carried to where the user has it, at the end of the session, or at the next start
//! if the launcher was killed.
//!
//! The content is an agent's word, as it is in a file that the jail may write. It is not looked at.

use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::launch::store::{self, last};
use crate::launch::ways::{self, Missing, Regular};
use crate::plan::{Access, Mount, Plan};

/// The largest file that is taken for a login, in bytes. Those of known agents have less than 20 kB.
const LARGEST: u64 = 1 << 20;

/// A login file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Login {
    /// The kept directory, by its path in the store.
    pub(super) kept: PathBuf,
    /// The file's place below it.
    pub(super) below: PathBuf,
    /// Where the user has it, or would have it.
    pub(super) host: PathBuf,
    /// Whether the user had it when the session was planned.
    pub(super) exists: bool,
}

/// What became of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carried {
    /// There is nothing to carry.
    Nothing,
    /// The user has a login now, and had none.
    New,
    /// The user's file says now what the kept one says.
    Renewed,
    /// It is no file that would be carried: too large, or it has more than one name.
    Unfit,
}

/// The login files of a plan: those that it shows writable below kept directories, and those that the
/// user has none of.
pub(super) fn of_plan(plan: &Plan) -> Vec<Login> {
    let mut all = Vec::new();
    for (at, kept) in plan.kept() {
        let shown = plan.steps.iter().filter_map(|step| match &step.mount {
            Mount::Bind {
                from,
                access: Access::Write,
                ..
            } => Some((step.at.strip_prefix(at).ok()?, from)),
            _ => None,
        });
        let missing = plan.keeping.logins.iter();
        let missing =
            missing.filter_map(|login| Some((login.kept.strip_prefix(kept).ok()?, &login.host)));
        let login = |(below, host): (&Path, &PathBuf), exists| Login {
            kept: kept.to_path_buf(),
            below: below.to_path_buf(),
            host: host.clone(),
            exists,
        };
        all.extend(shown.map(|one| login(one, true)));
        all.extend(missing.map(|one| login(one, false)));
    }
    all.retain(|login| !login.below.as_os_str().is_empty());
    all
}

impl Login {
    /// Opens the kept file; `None` where there is a link, as there should be, or nothing.
    pub(super) fn kept_file(&self, kept: &OwnedFd) -> Option<Regular> {
        let directory = ways::around(kept, &self.below, Missing::Stays).ok()?;
        ways::regular(directory, last(&self.below), OFlag::O_RDONLY)
            .ok()
            .flatten()
    }

    /// Carries the kept file to the user's place, if it is newer than what is there.
    ///
    /// # Errors
    /// What reading or writing a file answers.
    pub(super) fn carry(&self, kept: &OwnedFd) -> io::Result<Carried> {
        let uid = nix::unistd::getuid().as_raw();
        let Some(file) = self.kept_file(kept) else {
            return Ok(Carried::Nothing);
        };
        if file.is.st_uid != uid || file.is.st_nlink != 1 {
            return Ok(Carried::Unfit);
        }
        let content = match file.content(LARGEST)? {
            None => return Ok(Carried::Unfit),
            Some(content) if content.is_empty() => return Ok(Carried::Nothing),
            Some(content) => content,
        };
        let Some(above) = self.host.parent() else {
            return Ok(Carried::Nothing);
        };
        let above = ways::directory(above, Missing::Made, |_| false).map_err(io::Error::other)?;
        match ways::regular(&above, last(&self.host), OFlag::O_RDWR) {
            // The user logged out while the session ran.
            Err(Errno::ENOENT) if self.exists => Ok(Carried::Nothing),
            Err(Errno::ENOENT) => self.write(&above, &content).map(|()| Carried::New),
            Err(errno) => Err(errno.into()),
            // Something that nobody takes for a login file.
            Ok(None) => Ok(Carried::Nothing),
            Ok(Some(own)) if own.is.st_uid != uid || own.modified() >= file.modified() => {
                Ok(Carried::Nothing)
            }
            Ok(Some(own)) => {
                if own.content(LARGEST)?.as_ref() == Some(&content) {
                    return Ok(Carried::Nothing);
                }
                overwrite(own, &content).map(|()| Carried::Renewed)
            }
        }
    }

    /// Makes the user's file.
    fn write(&self, above: &OwnedFd, content: &[u8]) -> io::Result<()> {
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let name = last(&self.host);
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let mut file = std::fs::File::from(openat(above, name, flags, mode)?);
        let written = file.write_all(content);
        if written.is_err() {
            // Half a login would be none, and keep the whole one away.
            let _ = unlinkat(above, name, UnlinkatFlags::NoRemoveDir);
        }
        written
    }

    /// Removes the kept file of a login that has been carried out. Another one is made again from it by
    /// nobody, also when the user logs out.
    pub(super) fn forget(&self, kept: &OwnedFd) {
        if let Ok(directory) = ways::around(kept, &self.below, Missing::Stays) {
            let _ = unlinkat(directory, last(&self.below), UnlinkatFlags::NoRemoveDir);
        }
    }

    /// Opens the kept directory again.
    pub(super) fn kept_directory(&self, stores: &Path) -> Option<OwnedFd> {
        store::existing(&self.kept, stores)
    }
}

/// Writes a file anew in its place: it stays the same file, which other sessions may have mounted.
fn overwrite(own: Regular, content: &[u8]) -> io::Result<()> {
    let mut file = own.file;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(content)?;
    file.set_len(content.len() as u64)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::time::{Duration, SystemTime};

    struct Fixture {
        _top: tempfile::TempDir,
        at: PathBuf,
        kept: OwnedFd,
        login: Login,
    }

    fn fixture() -> Fixture {
        let top = tempfile::tempdir().unwrap();
        let at = top.path().canonicalize().unwrap();
        let kept = at.join("store");
        std::fs::create_dir_all(kept.join("in")).unwrap();
        std::fs::create_dir(at.join("home")).unwrap();
        let login = Login {
            kept: kept.clone(),
            below: "in/login".into(),
            host: at.join("home/.tool/login"),
            exists: false,
        };
        Fixture {
            _top: top,
            kept: ways::directory(&kept, Missing::Stays, |_| false).unwrap(),
            at,
            login,
        }
    }

    impl Fixture {
        fn carry(&self) -> Carried {
            self.login.carry(&self.kept).unwrap()
        }

        fn inside(&self) -> PathBuf {
            self.at.join("store/in/login")
        }

        fn host(&self) -> Option<String> {
            std::fs::read_to_string(&self.login.host).ok()
        }
    }

    fn touch(path: &Path, seconds: u64) {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
            .unwrap();
    }

    #[test]
    fn a_login_that_was_made_inside_is_the_users_and_only_theirs() {
        let fixture = fixture();
        assert_eq!(fixture.carry(), Carried::Nothing);
        std::fs::write(fixture.inside(), "token").unwrap();
        std::fs::set_permissions(fixture.inside(), std::fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(fixture.carry(), Carried::New);
        assert_eq!(fixture.host().as_deref(), Some("token"));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&fixture.login.host), 0o600);
        assert_eq!(mode(fixture.login.host.parent().unwrap()), 0o700);
        assert_eq!(fixture.carry(), Carried::Nothing);
        fixture.login.forget(&fixture.kept);
        assert!(!fixture.inside().exists());
    }

    #[test]
    fn a_newer_login_is_written_into_the_same_file_and_an_older_one_is_not() {
        let fixture = fixture();
        let known = Login {
            exists: true,
            ..fixture.login.clone()
        };
        std::fs::write(fixture.inside(), "new").unwrap();
        // Whoever has logged out meanwhile stays logged out.
        assert_eq!(known.carry(&fixture.kept).unwrap(), Carried::Nothing);
        assert_eq!(fixture.host(), None);
        std::fs::write(&fixture.login.host, "the longer old token").unwrap();
        let inode = std::fs::metadata(&fixture.login.host).unwrap().ino();
        std::fs::write(fixture.inside(), "new").unwrap();
        touch(&fixture.inside(), 1000);
        touch(&fixture.login.host, 2000);
        assert_eq!(fixture.carry(), Carried::Nothing);
        assert_eq!(fixture.host().as_deref(), Some("the longer old token"));
        touch(&fixture.inside(), 3000);
        assert_eq!(fixture.carry(), Carried::Renewed);
        assert_eq!(fixture.host().as_deref(), Some("new"));
        assert_eq!(std::fs::metadata(&fixture.login.host).unwrap().ino(), inode);
    }

    #[test]
    fn what_is_no_login_file_stays_where_it_is() {
        let fixture = fixture();
        let secret = fixture.at.join("secret");
        std::fs::write(&secret, "key").unwrap();
        // A link to the user's key would make a readable copy of it.
        symlink(&secret, fixture.inside()).unwrap();
        assert_eq!(fixture.carry(), Carried::Nothing);
        std::fs::remove_file(fixture.inside()).unwrap();
        std::fs::hard_link(&secret, fixture.inside()).unwrap();
        assert_eq!(fixture.carry(), Carried::Unfit);
        std::fs::remove_file(fixture.inside()).unwrap();
        nix::unistd::mkfifo(&fixture.inside(), Mode::S_IRWXU).unwrap();
        assert_eq!(fixture.carry(), Carried::Nothing);
        std::fs::remove_file(fixture.inside()).unwrap();
        std::fs::write(fixture.inside(), "").unwrap();
        assert_eq!(fixture.carry(), Carried::Nothing);
        std::fs::write(fixture.inside(), vec![b'x'; (1 << 20) + 1]).unwrap();
        assert_eq!(fixture.carry(), Carried::Unfit);
        std::fs::remove_dir_all(fixture.at.join("store/in")).unwrap();
        symlink(fixture.at.join("home"), fixture.at.join("store/in")).unwrap();
        std::fs::write(fixture.at.join("home/login"), "other").unwrap();
        assert_eq!(fixture.carry(), Carried::Nothing);
        assert_eq!(fixture.host(), None);
    }

    #[test]
    fn nothing_but_a_missing_or_a_regular_file_is_written_at_the_users_place() {
        let fixture = fixture();
        std::fs::write(fixture.inside(), "token").unwrap();
        let above = fixture.login.host.parent().unwrap();
        symlink(fixture.at.join("elsewhere"), above).unwrap();
        assert!(fixture.login.carry(&fixture.kept).is_err());
        std::fs::remove_file(above).unwrap();
        std::fs::create_dir(above).unwrap();
        symlink(fixture.at.join("elsewhere"), &fixture.login.host).unwrap();
        assert_eq!(fixture.carry(), Carried::Nothing);
        assert!(!fixture.at.join("elsewhere").exists());
    }
}
