//! The site's policy files, opened so that nobody but root can have a say in what is read.
//!
//! Every component of the path is opened by itself (`openat(2)` with `O_PATH|O_NOFOLLOW`), and its
//! owner and mode are those of the descriptor that the next step uses. Nothing is looked up by name
//! a second time. Symbolic links are followed by hand, only root's, and what they lead over has to
//! meet the same demands.
#![allow(clippy::disallowed_methods)] // effects: opens the site's files

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat};

use super::diagnostic::ConfigError;
use super::files::{decode, read_limited, too_large, writers};

/// The directory of the site's policy. It is decided when the program is built, and nothing that a
/// user can set moves it.
pub const DIRECTORY: &str = match option_env!("AGENT_SANDBOX_SITE_DIR") {
    Some(directory) => directory,
    None => "/etc/agent-sandbox",
};

const _: () = assert!(
    is_plain(DIRECTORY.as_bytes()),
    "AGENT_SANDBOX_SITE_DIR must be an absolute path without `.`, `..` and empty components"
);

/// Links in one path (`path_resolution(7)`: Linux follows as many).
const MOST_LINKS: usize = 40;

/// One of the site's two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteFile {
    /// What users may override.
    Defaults,
    /// What users may only narrow.
    Enforced,
}

impl SiteFile {
    /// Its name in the site's directory.
    pub fn name(self) -> &'static str {
        match self {
            Self::Defaults => "defaults.toml",
            Self::Enforced => "enforced.toml",
        }
    }
}

/// Where the site's policy is, and who is trusted with it.
#[derive(Clone, Debug)]
pub struct Site {
    directory: PathBuf,
    /// The directory in which `directory` begins. `/`, but in tests.
    root: PathBuf,
    /// The user who may own what is read. 0, but in tests.
    owner: u32,
}

impl Site {
    /// The site of this build.
    pub fn of_this_build() -> Self {
        Self::in_directory(PathBuf::from(DIRECTORY))
    }

    /// A site in another directory, which has to be root's all the same. For tests.
    pub fn in_directory(directory: PathBuf) -> Self {
        Self {
            directory,
            root: PathBuf::from("/"),
            owner: 0,
        }
    }

    /// The site in the directory `/site` of a tree that begins at `root` and belongs to `owner`.
    #[cfg(any(test, feature = "testing"))]
    pub fn of_tree(root: &Path, owner: u32) -> Self {
        Self {
            directory: PathBuf::from("/site"),
            root: root.to_owned(),
            owner,
        }
    }

    /// Whether user id 0 is the system's root here: only root can make another user namespace in
    /// which every id is itself.
    fn knows_root(&self) -> bool {
        self.owner != 0 || is_whole(&fs::read_to_string("/proc/self/uid_map").unwrap_or_default())
    }

    /// The path of one of the files.
    pub fn path(&self, file: SiteFile) -> PathBuf {
        self.directory.join(file.name())
    }

    /// The text of one of the files; `None` if there is none.
    ///
    /// # Errors
    /// Somebody but root could have written the file, or it cannot be read or is no text. That
    /// there is none is believed only where nobody but root could have removed it.
    pub fn read(&self, file: SiteFile) -> Result<Option<String>, ConfigError> {
        self.text(&self.path(file))
    }

    /// The path of the profile of this name.
    pub fn profile_path(&self, name: &str) -> PathBuf {
        self.profiles_path().join(format!("{name}.toml"))
    }

    fn profiles_path(&self) -> PathBuf {
        self.directory.join("profiles")
    }

    /// The text of the profile of this name, which has to be plain; `None` if there is none.
    ///
    /// # Errors
    /// As [`Site::read`].
    pub fn profile(&self, name: &str) -> Result<Option<String>, ConfigError> {
        self.text(&self.profile_path(name))
    }

    /// The names of the entries in the directory of profiles, sorted; none if there is no such directory.
    ///
    /// # Errors
    /// As [`Site::read`], of the directory: whoever may write there decides what profiles there are.
    pub fn profile_files(&self) -> Result<Vec<OsString>, ConfigError> {
        let path = self.profiles_path();
        let about = |problem: Problem| problem.about(&path.display().to_string());
        let mut walk = Walk::new(self).map_err(about)?;
        let Some(directory) = walk.directory(&path).map_err(about)? else {
            return Ok(Vec::new());
        };
        // The directory that was looked at, by its descriptor (proc(5), /proc/pid/fd).
        let entries = fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let names = entries.and_then(|entries| {
            let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
            names.collect::<std::io::Result<Vec<_>>>()
        });
        let mut names = names.map_err(|error| about(Problem::of(&path, error)))?;
        names.sort_unstable();
        Ok(names)
    }

    /// Makes sure that nobody but root can put anything into a directory, or into one above it.
    ///
    /// # Errors
    /// Somebody else can, it is no directory, or it cannot be read.
    pub fn only_root_changes(&self, directory: &Path) -> Result<(), ConfigError> {
        let shown = directory.display().to_string();
        let found = Walk::new(self).and_then(|mut walk| walk.directory(directory));
        match found.map_err(|problem| problem.about(&shown))? {
            Some(_) => Ok(()),
            None => {
                let missing = Problem::new(directory, "does not exist", "make it, as root");
                Err(missing.about(&shown))
            }
        }
    }

    fn text(&self, path: &Path) -> Result<Option<String>, ConfigError> {
        let shown = path.display().to_string();
        let found = Walk::new(self).and_then(|mut walk| walk.to(path));
        let file = match found.map_err(|problem| problem.about(&shown))? {
            Some(file) => file,
            None => return Ok(None),
        };
        let bytes = read_limited(file).map_err(|error| Problem::of(path, error).about(&shown))?;
        let Some(bytes) = bytes else {
            return Err(too_large(&shown).for_site());
        };
        decode(&shown, bytes)
            .map(Some)
            .map_err(ConfigError::for_site)
    }
}

/// Whether the bytes are an absolute path that names no directory in a second way.
const fn is_plain(path: &[u8]) -> bool {
    if path.len() < 2 || path[0] != b'/' || path[path.len() - 1] == b'/' {
        return false;
    }
    let mut at = 0;
    // Where the component began, and whether it holds anything but dots.
    let (mut start, mut named) = (1, true);
    while at <= path.len() {
        if at == path.len() || path[at] == b'/' {
            if at > 0 && (at == start || (!named && at - start <= 2)) {
                return false;
            }
            start = at + 1;
            named = false;
        } else if path[at] != b'.' {
            named = true;
        }
        at += 1;
    }
    true
}

/// Why a path was not walked to its end.
#[derive(Debug)]
struct Problem {
    /// The component.
    at: PathBuf,
    /// What it is, as a phrase that completes "`at` …".
    what: String,
    /// What an administrator can do.
    remedy: String,
}

impl Problem {
    fn new(at: &Path, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            at: at.to_owned(),
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    fn of(at: &Path, error: impl fmt::Display) -> Self {
        let what = format!("cannot be read: {error}");
        Self::new(at, what, "a site's policy must be readable for everybody")
    }

    /// The error about the file that the path leads to.
    fn about(&self, file: &str) -> ConfigError {
        let Self { at, what, remedy } = self;
        let at = at.display().to_string();
        let message = if at == file {
            format!("{at} {what}")
        } else {
            format!("{file}: {at}, on the way to it, {what}")
        };
        ConfigError::plain(&message, Some(remedy.clone())).for_site()
    }
}

/// A component that still has to be walked over.
struct Step {
    name: OsString,
    /// It stands in a link, which says that there is something.
    promised: bool,
}

impl Step {
    /// Behind the last name of a directory: what is looked for is the directory.
    fn itself() -> Self {
        Self {
            name: OsString::from("."),
            promised: false,
        }
    }
}

/// On the way from the root to a file.
struct Walk<'a> {
    site: &'a Site,
    /// The directories down to the present one, and their paths.
    trail: Vec<(OwnedFd, PathBuf)>,
    /// The first directory that somebody else could change.
    doubt: Option<Problem>,
}

impl<'a> Walk<'a> {
    fn new(site: &'a Site) -> Result<Self, Problem> {
        let path = PathBuf::from("/");
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = open(&site.root, flags, Mode::empty()).map_err(|e| Problem::of(&path, e))?;
        let mut walk = Self {
            site,
            trail: Vec::new(),
            doubt: None,
        };
        let status = fstat(&root).map_err(|error| Problem::of(&path, error))?;
        walk.doubt = walk.distrust(&status, &path);
        walk.trail.push((root, path));
        Ok(walk)
    }

    /// Opens the directory at `path`; `None` if there is nothing.
    fn directory(&mut self, path: &Path) -> Result<Option<File>, Problem> {
        let mut waiting = steps(path, false);
        waiting.insert(0, Step::itself());
        self.along(waiting, path)
    }

    /// Opens the regular file at `path`; `None` if there is nothing.
    fn to(&mut self, path: &Path) -> Result<Option<File>, Problem> {
        self.along(steps(path, false), path)
    }

    /// Opens what the steps lead to, the first of which is the last one of `waiting`.
    fn along(&mut self, mut waiting: Vec<Step>, path: &Path) -> Result<Option<File>, Problem> {
        let mut links = 0;
        while let Some(step) = waiting.pop() {
            if step.name == "." {
                return self.open_directory().map(Some);
            }
            if step.name == ".." {
                // `/..` is `/`.
                if self.trail.len() > 1 {
                    self.trail.pop();
                }
                continue;
            }
            let Some((directory, above)) = self.trail.last() else {
                break;
            };
            let here = above.join(&step.name);
            let entry = match enter(directory, &step.name, !waiting.is_empty()) {
                Ok(entry) => entry,
                Err(Errno::ENOENT) if step.promised => {
                    let remedy = "a link in it leads there: restore its target, or remove the link";
                    return Err(Problem::new(&here, "is missing", remedy));
                }
                Err(Errno::ENOENT) => return self.missing(&here),
                Err(error) => return Err(Problem::of(&here, error)),
            };
            let status = fstat(&entry).map_err(|error| Problem::of(&here, error))?;
            match kind(&status) {
                libc::S_IFLNK => {
                    self.trusted(&status, &here)?;
                    links += 1;
                    if links > MOST_LINKS {
                        let what = format!("is the last of more than {MOST_LINKS} symbolic links");
                        return Err(Problem::new(&here, what, "remove the circle"));
                    }
                    let target =
                        readlinkat(entry.as_fd(), "").map_err(|e| Problem::of(&here, e))?;
                    let target = PathBuf::from(target);
                    if target.is_absolute() {
                        self.trail.truncate(1);
                    }
                    waiting.extend(steps(&target, true));
                }
                libc::S_IFDIR if !waiting.is_empty() => {
                    let doubt = self.distrust(&status, &here);
                    self.doubt = self.doubt.take().or(doubt);
                    self.trail.push((entry, here));
                }
                libc::S_IFREG if waiting.is_empty() => {
                    return self.open_file(&step, &here).map(Some);
                }
                _ => {
                    let expected = if waiting.is_empty() {
                        "regular file"
                    } else {
                        "directory"
                    };
                    let what = format!("is not a {expected}");
                    return Err(Problem::new(
                        &here,
                        what,
                        "put one in its place, or remove it",
                    ));
                }
            }
        }
        let remedy = "put a file in its place, or remove it";
        Err(Problem::new(path, "is not a regular file", remedy))
    }

    /// The regular file `here`, for reading. What it is and whose is asked of the descriptor that
    /// is read.
    fn open_file(&mut self, step: &Step, here: &Path) -> Result<File, Problem> {
        if let Some(doubt) = self.doubt.take() {
            return Err(doubt);
        }
        let Some((directory, _)) = self.trail.last() else {
            return Err(Problem::of(here, Errno::ENOENT));
        };
        // Should root put a FIFO in its place just now, this does not block.
        let flags = OFlag::O_RDONLY
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK
            | OFlag::O_NOCTTY
            | OFlag::O_CLOEXEC;
        let file = openat(directory, step.name.as_os_str(), flags, Mode::empty())
            .map_err(|error| Problem::of(here, error))?;
        let status = fstat(&file).map_err(|error| Problem::of(here, error))?;
        if kind(&status) != libc::S_IFREG {
            let remedy = "put one in its place, or remove it";
            return Err(Problem::new(here, "is not a regular file", remedy));
        }
        self.trusted(&status, here)?;
        self.require_root(here)?;
        Ok(File::from(file))
    }

    fn require_root(&self, here: &Path) -> Result<(), Problem> {
        if self.site.knows_root() {
            return Ok(());
        }
        let what = "cannot be trusted: this user namespace is not the system's, so its root may be anybody";
        let remedy = "or start agent-sandbox outside of the user namespace (unshare, a container)";
        Err(Problem::new(here, what, remedy))
    }

    /// The present directory, for reading what is in it.
    fn open_directory(&mut self) -> Result<File, Problem> {
        if let Some(doubt) = self.doubt.take() {
            return Err(doubt);
        }
        let Some((directory, here)) = self.trail.last() else {
            return Err(Problem::of(Path::new("/"), Errno::ENOENT));
        };
        self.require_root(here)?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = openat(directory, ".", flags, Mode::empty());
        directory
            .map(File::from)
            .map_err(|error| Problem::of(here, error))
    }

    /// There is nothing at `here`. That is the answer where only root can have decided so.
    fn missing(&mut self, here: &Path) -> Result<Option<File>, Problem> {
        match self.doubt.take() {
            // In a container of the user's own, the directories above may well be nobody's.
            Some(doubt) if self.site.knows_root() => {
                let what = format!(
                    "{}, so that there is no {} says nothing",
                    doubt.what,
                    here.display()
                );
                Err(Problem { what, ..doubt })
            }
            _ => Ok(None),
        }
    }

    fn trusted(&self, status: &FileStat, here: &Path) -> Result<(), Problem> {
        self.distrust(status, here).map_or(Ok(()), Err)
    }

    /// Why somebody else has a say in what stands here.
    fn distrust(&self, status: &FileStat, here: &Path) -> Option<Problem> {
        if status.st_uid != self.site.owner {
            let what = format!("does not belong to root (it is uid {}'s)", status.st_uid);
            let remedy = format!("chown -h root {}", here.display());
            return Some(Problem::new(here, what, remedy));
        }
        // The mode of a link says nothing (symlink(7)). A sticky bit does not keep others from
        // making what is missing.
        let writers = (kind(status) != libc::S_IFLNK).then(|| writers(status.st_mode))?;
        let what = format!("can be changed by {}", writers?);
        let remedy = format!("chmod go-w {}", here.display());
        Some(Problem::new(here, what, remedy))
    }
}

/// Opens what has this name without following it; `through` says that it is not the last one.
fn enter(directory: &OwnedFd, name: &OsStr, through: bool) -> nix::Result<OwnedFd> {
    let open = |more: OFlag| {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | more;
        openat(directory, name, flags, Mode::empty())
    };
    if through {
        // Without this flag an automount point is opened as it is, empty, and nothing is mounted
        // (open(2), O_PATH).
        match open(OFlag::O_DIRECTORY) {
            // A link, or something that leads nowhere.
            Err(Errno::ENOTDIR) => {}
            other => return other,
        }
    }
    open(OFlag::empty())
}

/// The type in a status, see `inode(7)`.
fn kind(status: &FileStat) -> libc::mode_t {
    status.st_mode & libc::S_IFMT
}

/// The components of a path, the last first.
fn steps(path: &Path, promised: bool) -> Vec<Step> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut steps: Vec<Step> = names.map(|name| Step { name, promised }).collect();
    steps.reverse();
    steps
}

/// Whether this is the map of a user namespace in which every id is itself
/// (`user_namespaces(7)`).
fn is_whole(map: &str) -> bool {
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests;
