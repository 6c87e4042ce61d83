//! Looking at files: the kernel's path walk done step by step, so that symbolic links are seen, and
//! so that it can stop before it touches a file system that may not answer.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, access, faccessat, geteuid};
use serde::{Deserialize, Serialize};

use super::found::{Entry, Found, Kind, Look, is_plain};
use super::mount_table::MountTable;
use crate::sys::paths::by_descriptor;

/// As many symbolic links as the kernel follows in one path (`path_resolution(7)`).
const MOST_LINKS: usize = 40;
/// More entries than this in one directory are not granted one by one.
const MOST_ENTRIES: usize = 20_000;

/// A question about the host's files.
#[derive(Serialize, Deserialize)]
pub enum Question {
    /// What a path leads to.
    Look(PathBuf),
    /// The names in a directory.
    Entries(PathBuf),
    /// The content of a file of at most so many bytes.
    SmallFile(PathBuf, usize),
}

impl Question {
    /// The path that it is about.
    pub fn path(&self) -> &Path {
        match self {
            Self::Look(path) | Self::Entries(path) | Self::SmallFile(path, _) => path,
        }
    }
}

/// The answer to a [`Question`], of the same kind.
#[derive(Serialize, Deserialize)]
pub enum Answer {
    /// To `Look`.
    Look(Look),
    /// To `Entries`.
    Entries(Option<Vec<Entry>>),
    /// To `SmallFile`.
    SmallFile(Option<Vec<u8>>),
}

/// The walk would touch a file system that may not answer, mounted here.
pub struct MayHang(pub PathBuf);

enum Stop {
    Failed(io::Error),
    /// In this directory of the caller's own nothing may be looked up.
    Closed(PathBuf),
    MayHang(MayHang),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Walks paths.
pub struct Walker {
    /// Directories that are known to be no symbolic links. They are looked at once: a launch takes
    /// milliseconds, and init compares what was mounted with what was seen.
    known: HashSet<OsString, foldhash::fast::RandomState>,
    /// Paths at which nothing stands: of a missing directory many entries are asked for.
    missing: HashSet<OsString, foldhash::fast::RandomState>,
    /// Mount points of file systems that may not answer.
    may_hang: HashSet<PathBuf>,
    /// Whether it stays on file systems of this machine.
    local: bool,
    /// Effective user id.
    uid: u32,
}

impl Walker {
    /// Touches everything.
    pub fn everywhere() -> Self {
        Self {
            known: HashSet::default(),
            missing: HashSet::default(),
            may_hang: HashSet::new(),
            local: false,
            uid: geteuid().as_raw(),
        }
    }

    /// Touches file systems of this machine alone.
    pub fn local(mounts: &MountTable) -> Self {
        Self {
            may_hang: mounts.may_hang(),
            local: true,
            ..Self::everywhere()
        }
    }

    /// Answers a question.
    ///
    /// # Errors
    /// The walk would leave the file systems that this walker may touch.
    pub fn answer(&mut self, question: &Question) -> Result<Answer, MayHang> {
        let held = match self.resolve(question.path()) {
            Ok(held) => Ok(held),
            Err(Stop::Failed(error)) => Err(error),
            Err(Stop::Closed(directory)) => {
                return Ok(match question {
                    Question::Look(_) => Answer::Look(Look::Closed(directory)),
                    Question::Entries(_) => Answer::Entries(None),
                    Question::SmallFile(..) => Answer::SmallFile(None),
                });
            }
            Err(Stop::MayHang(there)) => return Err(there),
        };
        Ok(match question {
            Question::Look(_) => Answer::Look(look(held)),
            Question::Entries(_) => Answer::Entries(held.and_then(|held| list(&held.file)).ok()),
            Question::SmallFile(path, most) => Answer::SmallFile(small_file(path, *most)),
        })
    }

    /// Answers the most frequent question: what a path leads to.
    ///
    /// # Errors
    /// As [`Walker::answer`].
    pub fn look(&mut self, path: &Path) -> Result<Look, MayHang> {
        match self.resolve(path) {
            Ok(held) => Ok(look(Ok(held))),
            Err(Stop::Failed(error)) => Ok(look(Err(error))),
            Err(Stop::Closed(directory)) => Ok(Look::Closed(directory)),
            Err(Stop::MayHang(there)) => Err(there),
        }
    }

    /// Tells a directory of the caller's own that is closed from any other error.
    fn closed(&self, error: io::Error, directory: &Path) -> Stop {
        let own = || std::fs::symlink_metadata(directory).is_ok_and(|meta| meta.uid() == self.uid);
        if error.raw_os_error() == Some(libc::EACCES) && own() {
            return Stop::Closed(directory.to_path_buf());
        }
        Stop::Failed(error)
    }

    fn stay(&self, here: &Path) -> Result<(), Stop> {
        if !self.may_hang.is_empty() && self.may_hang.contains(here) {
            return Err(Stop::MayHang(MayHang(here.to_path_buf())));
        }
        Ok(())
    }

    /// Walks a path component by component, as the kernel does (`path_resolution(7)`), and notes
    /// the symbolic links.
    fn resolve(&mut self, path: &Path) -> Result<Held, Stop> {
        if self.local
            && let Some(whole) = self.without_links(path)
        {
            return whole;
        }
        self.stay(Path::new("/"))?;
        let mut real = PathBuf::from("/");
        let mut links = Vec::new();
        // Components still to walk, the next one last.
        let mut rest: Vec<OsString> = Vec::new();
        push_components(&mut rest, path);
        while let Some(name) = rest.pop() {
            if name == ".." {
                real.pop();
                continue;
            }
            let here = real.join(&name);
            if !rest.is_empty() && self.known.contains(here.as_os_str()) {
                real = here;
                continue;
            }
            if self.missing.contains(here.as_os_str()) {
                return Err(io::Error::from_raw_os_error(libc::ENOENT).into());
            }
            self.stay(&here)?;
            let meta = match std::fs::symlink_metadata(&here) {
                Ok(meta) => meta,
                Err(error) => {
                    if error.raw_os_error() == Some(libc::ENOENT) {
                        self.missing.insert(here.into());
                    }
                    return Err(self.closed(error, &real));
                }
            };
            if meta.file_type().is_symlink() {
                if links.len() == MOST_LINKS {
                    return Err(io::Error::from_raw_os_error(libc::ELOOP).into());
                }
                let target = std::fs::read_link(&here)?;
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                push_components(&mut rest, &target);
                links.push((here, target));
                continue;
            }
            if meta.is_dir() {
                self.known.insert(here.clone().into());
            } else if !rest.is_empty() {
                return Err(io::Error::from_raw_os_error(libc::ENOTDIR).into());
            }
            real = here;
        }
        // What was seen so far may have been replaced since. What counts is what is held now: the
        // file at `real`, reached without any link.
        let file = hold(&real)?;
        self.held(real, file, links)
    }

    /// The whole walk in one system call, for a path without symbolic links on file systems of this
    /// machine; `None` if it takes a closer look.
    fn without_links(&self, path: &Path) -> Option<Result<Held, Stop>> {
        let may_hang = || path.ancestors().any(|above| self.may_hang.contains(above));
        if !is_plain(path) || (!self.may_hang.is_empty() && may_hang()) {
            return None;
        }
        match open_plain(path, OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW) {
            // A link at the end is opened as such (openat2(2)), and refused by `held`.
            Ok(file) => match self.held(path.to_path_buf(), file, Vec::new()) {
                Err(_) => None,
                held => Some(held),
            },
            // No component before the missing one is a link: that would have been ELOOP.
            Err(Errno::ENOENT) => Some(Err(io::Error::from(Errno::ENOENT).into())),
            Err(_) => None,
        }
    }

    fn held(
        &self,
        real: PathBuf,
        file: OwnedFd,
        links: Vec<(PathBuf, PathBuf)>,
    ) -> Result<Held, Stop> {
        let file = File::from(file);
        let meta = file.metadata()?;
        if meta.file_type().is_symlink() {
            return Err(io::Error::from_raw_os_error(libc::ELOOP).into());
        }
        let may = |how| may(&file, how);
        // What belongs to the caller can be made readable.
        let readable = meta.uid() == self.uid
            || may(AccessFlags::R_OK)
            || (meta.is_dir() && may(AccessFlags::X_OK));
        Ok(Held {
            found: Found {
                kind: kind(meta.file_type()),
                id: (meta.dev(), meta.ino()),
                uid: meta.uid(),
                mode: meta.mode() & 0o7777,
                real,
                readable,
                links,
            },
            file,
        })
    }
}

/// What a path leads to, once it was walked.
fn look(held: io::Result<Held>) -> Look {
    match held {
        Ok(held) => Look::Found(held.found),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => Look::Missing,
            Some(errno) => Look::Denied(errno),
            None => Look::Denied(libc::EIO),
        },
    }
}

/// A file that was found, and a descriptor (`O_PATH`) that keeps hold of it.
struct Held {
    found: Found,
    file: File,
}

/// Opens what stands at a path, with `O_PATH`, and fails with `ELOOP` if a symbolic link is on the
/// way. A directory is opened as one, which makes an automount happen now, as it will when the path
/// is bound.
fn hold(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    match open_plain(path, flags | OFlag::O_DIRECTORY) {
        Err(Errno::ENOTDIR) => Ok(open_plain(path, flags)?),
        other => Ok(other?),
    }
}

/// Opens an absolute path of which no component is a symbolic link.
fn open_plain(path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    // Linux 5.6
    let how = OpenHow::new()
        .flags(flags)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    match openat2(AT_FDCWD, path, how) {
        Err(Errno::ENOSYS) => open_step_by_step(path, flags),
        other => other,
    }
}

fn open_step_by_step(path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let step = OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_DIRECTORY;
    let mut here = open("/", step, Mode::empty())?;
    let mut names = path.components().peekable();
    while let Some(component) = names.next() {
        let Component::Normal(name) = component else {
            continue;
        };
        let how = if names.peek().is_some() { step } else { flags };
        here = openat(&here, name, how, Mode::empty())?;
    }
    Ok(here)
}

fn push_components(rest: &mut Vec<OsString>, path: &Path) {
    for component in path.components().rev() {
        match component {
            Component::Normal(name) => rest.push(name.to_owned()),
            Component::ParentDir => rest.push(OsString::from("..")),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
}

fn kind(of: std::fs::FileType) -> Kind {
    if of.is_dir() {
        Kind::Directory
    } else if of.is_file() {
        Kind::File
    } else if of.is_symlink() {
        Kind::Link
    } else if of.is_char_device() || of.is_block_device() {
        Kind::Device
    } else {
        Kind::Other
    }
}

/// Whether the caller may use a file so. Before Linux 5.8 the kernel answers that for paths alone (`faccessat2(2)`).
fn may(file: &File, how: AccessFlags) -> bool {
    match faccessat(file, "", how, AtFlags::AT_EMPTY_PATH) {
        Ok(()) => true,
        Err(Errno::EACCES) => false,
        Err(_) => access(by_descriptor(file).as_str(), how).is_ok(),
    }
}

fn list(directory: &File) -> io::Result<Vec<Entry>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(by_descriptor(directory))? {
        let entry = entry?;
        let kind = kind(entry.file_type()?);
        let target = match kind {
            Kind::Link => Some(std::fs::read_link(entry.path())?),
            _ => None,
        };
        all.push(Entry {
            name: entry.file_name(),
            kind,
            target,
        });
        if all.len() > MOST_ENTRIES {
            return Err(io::Error::from_raw_os_error(libc::E2BIG));
        }
    }
    all.sort_unstable_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
    Ok(all)
}

fn small_file(path: &Path, most: usize) -> Option<Vec<u8>> {
    let flags = OFlag::O_RDONLY
        | OFlag::O_CLOEXEC
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_NOCTTY;
    let file = File::from(open_plain(path, flags).ok()?);
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.len() > most as u64 {
        return None;
    }
    // Room for the end as well: the standard library begins with 32 bytes, and doubles them.
    let mut content = Vec::with_capacity(meta.len() as usize + 1);
    file.take(most as u64 + 1).read_to_end(&mut content).ok()?;
    (content.len() <= most).then_some(content)
}
