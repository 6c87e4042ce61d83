//! Looking at files: the kernel's path walk done step by step, so that symbolic links are seen, and
//! so that it can stop before it touches a file system that may not answer.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, access};
use serde::{Deserialize, Serialize};

use super::files::{Entry, Found, Kind, Look};

/// As many symbolic links as the kernel follows in one path (`path_resolution(7)`).
const MOST_LINKS: usize = 40;
/// More entries than this in one directory are not granted one by one.
const MOST_ENTRIES: usize = 20_000;

/// File systems of this machine alone, which always answer (`filesystems(5)`). Any other may wait
/// for a server, or for a daemon.
const LOCAL: [&str; 27] = [
    "bpf",
    "btrfs",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "erofs",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "hugetlbfs",
    "mqueue",
    "overlay",
    "proc",
    "pstore",
    "ramfs",
    "securityfs",
    "squashfs",
    "sysfs",
    "tmpfs",
    "tracefs",
    "xfs",
    "zfs",
];

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
    known: HashSet<OsString>,
    /// Mount points of file systems that may not answer.
    may_hang: HashSet<PathBuf>,
}

impl Walker {
    /// Touches everything.
    pub fn everywhere() -> Self {
        Self {
            known: HashSet::new(),
            may_hang: HashSet::new(),
        }
    }

    /// Touches file systems of this machine alone, by `/proc/self/mountinfo`.
    pub fn local() -> Self {
        let may_hang = match std::fs::read("/proc/self/mountinfo") {
            Ok(text) => text
                .split(|&byte| byte == b'\n')
                .filter_map(not_local)
                .collect(),
            // Nothing is known, so nothing is touched.
            Err(_) => HashSet::from([PathBuf::from("/")]),
        };
        Self {
            known: HashSet::new(),
            may_hang,
        }
    }

    /// Answers a question.
    ///
    /// # Errors
    /// The walk would leave the file systems that this walker may touch.
    pub fn answer(&mut self, question: &Question) -> Result<Answer, MayHang> {
        let found = match self.resolve(question.path()) {
            Ok(found) => Ok(found),
            Err(Stop::Failed(error)) => Err(error),
            Err(Stop::MayHang(there)) => return Err(there),
        };
        Ok(match question {
            Question::Look(_) => Answer::Look(match found {
                Ok(found) => Look::Found(found),
                Err(error) => match error.raw_os_error() {
                    Some(libc::ENOENT | libc::ENOTDIR) => Look::Missing,
                    Some(errno) => Look::Denied(errno),
                    None => Look::Denied(libc::EIO),
                },
            }),
            Question::Entries(_) => Answer::Entries(found.and_then(|found| list(&found.real)).ok()),
            Question::SmallFile(path, most) => Answer::SmallFile(small_file(path, *most)),
        })
    }

    fn stay(&self, here: &Path) -> Result<(), Stop> {
        if !self.may_hang.is_empty() && self.may_hang.contains(here) {
            return Err(Stop::MayHang(MayHang(here.to_path_buf())));
        }
        Ok(())
    }

    /// Walks a path component by component, as the kernel does (`path_resolution(7)`), and notes
    /// the symbolic links.
    fn resolve(&mut self, path: &Path) -> Result<Found, Stop> {
        self.stay(Path::new("/"))?;
        let mut real = PathBuf::from("/");
        let mut links = Vec::new();
        // Components still to walk, the next one last.
        let mut rest: Vec<OsString> = Vec::new();
        push_components(&mut rest, path);
        let mut last = None;
        while let Some(name) = rest.pop() {
            last = None;
            if name == ".." {
                real.pop();
                continue;
            }
            let here = real.join(&name);
            if !rest.is_empty() && self.known.contains(here.as_os_str()) {
                real = here;
                continue;
            }
            self.stay(&here)?;
            let meta = std::fs::symlink_metadata(&here)?;
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
            last = Some(meta);
        }
        let meta = match last {
            Some(meta) => meta,
            None => std::fs::symlink_metadata(&real)?,
        };
        // With the dot an automount happens now, as it will when the path is bound. File systems
        // that always answer are not automounted over.
        let meta = match meta.is_dir() && self.may_hang.is_empty() {
            true => std::fs::symlink_metadata(real.join(".")).unwrap_or(meta),
            false => meta,
        };
        let search = meta.is_dir() && access(&real, AccessFlags::X_OK).is_ok();
        let readable = search || access(&real, AccessFlags::R_OK).is_ok();
        Ok(Found {
            kind: kind(meta.file_type()),
            id: (meta.dev(), meta.ino()),
            uid: meta.uid(),
            real,
            readable,
            links,
        })
    }
}

/// The mount point of a line of `/proc/PID/mountinfo` (`proc_pid_mountinfo(5)`), unless its file
/// system is local. A line that cannot be read counts for nothing: the kernel writes none.
fn not_local(line: &[u8]) -> Option<PathBuf> {
    let separator = line.windows(3).position(|part| part == b" - ")?;
    let kind = line[separator + 3..].split(|&byte| byte == b' ').next()?;
    if LOCAL.iter().any(|local| local.as_bytes() == kind) {
        return None;
    }
    let at = line[..separator].split(|&byte| byte == b' ').nth(4)?;
    Some(PathBuf::from(OsString::from_vec(unescape(at))))
}

/// Undoes the octal escapes of blanks and backslashes.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                all.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => {
                all.push(*first);
                rest = tail;
            }
        }
    }
    all
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

fn list(directory: &Path) -> io::Result<Vec<Entry>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory)? {
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
    all.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
    Ok(all)
}

/// Opens each component with `O_NOFOLLOW`: between two looks, somebody inside a running jail may
/// replace any of them by a link.
fn small_file(path: &Path, most: usize) -> Option<Vec<u8>> {
    let quiet = OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let mut here = open(
        "/",
        quiet | OFlag::O_PATH | OFlag::O_DIRECTORY,
        Mode::empty(),
    )
    .ok()?;
    let parent = path.parent()?.strip_prefix("/").ok()?;
    for component in parent.components() {
        let Component::Normal(name) = component else {
            return None;
        };
        here = openat(
            &here,
            name,
            quiet | OFlag::O_PATH | OFlag::O_DIRECTORY,
            Mode::empty(),
        )
        .ok()?;
    }
    let flags = quiet | OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = std::fs::File::from(openat(&here, path.file_name()?, flags, Mode::empty()).ok()?);
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.len() > most as u64 {
        return None;
    }
    let mut content = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut content).ok()?;
    (content.len() <= most).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_that_may_hang() {
        let line = b"36 35 98:0 / /mnt/with\\040blank rw,noatime master:1 - nfs4 server:/x rw";
        assert_eq!(not_local(line), Some(PathBuf::from("/mnt/with blank")));
        assert_eq!(not_local(b"22 1 8:1 / / rw - ext4 /dev/sda1 rw"), None);
        assert_eq!(not_local(b""), None);
    }
}
