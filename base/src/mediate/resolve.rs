//! Paths of a caller, resolved to objects that the mediator holds open.
//!
//! All parts of a path but the last are the kernel's to resolve, in one call; the last part is
//! looked up in the directory found, and a link there is followed from what it says. What comes out is
//! held with `O_PATH`, so that nobody can put another object in its place, and its path is what the
//! kernel then says it is.
//!
//! Links that are no text (`/proc/PID/cwd` and the like) are not followed, and `/proc/self` would be
//! the mediator. So nothing of a `/proc` comes out of here ([`Stop::Proc`]), with one exception: an entry
//! of the directory of the caller's own descriptors, which `/dev/fd` and `/dev/stdin` lead to as well,
//! is the caller's descriptor.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::readlinkat;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, stat};
use nix::unistd::{geteuid, getpid};

use super::caller::Caller;
use crate::sys::paths;

/// The most links that are followed in the last part of a path, as in the kernel
/// (`path_resolution(7)`).
const MOST_LINKS: usize = 40;

/// What follows the path of a file that has lost its name (`proc_pid_fd(5)`).
const DELETED: &[u8] = b" (deleted)";

/// The process whose path it is.
pub trait Process {
    /// A copy of one of its descriptors.
    ///
    /// # Errors
    /// `EBADF`.
    fn descriptor(&self, number: i32) -> io::Result<OwnedFd>;

    /// Its current directory.
    ///
    /// # Errors
    /// `ESRCH` if it is gone.
    fn directory(&self) -> io::Result<OwnedFd>;

    /// Its umask.
    ///
    /// # Errors
    /// `ESRCH` if it is gone.
    fn umask(&self) -> io::Result<u32>;

    /// Whether `/proc/NUMBER` is this process or one of its threads.
    fn is_called(&self, number: i32) -> bool;

    /// Whether it still waits for what it asked for.
    fn waits(&self) -> bool;
}

impl Process for Caller {
    fn descriptor(&self, number: i32) -> io::Result<OwnedFd> {
        Caller::descriptor(self, number)
    }

    fn directory(&self) -> io::Result<OwnedFd> {
        Caller::directory(self)
    }

    fn umask(&self) -> io::Result<u32> {
        Caller::umask(self)
    }

    fn is_called(&self, number: i32) -> bool {
        let thread = self.call.thread;
        let among = format!("/proc/{number}/task/{thread}");
        number == thread || stat(among.as_str()).is_ok()
    }

    fn waits(&self) -> bool {
        self.is_waiting()
    }
}

/// A path as a call gives it.
#[derive(Clone, Copy, Debug)]
pub struct PathArgument<'a> {
    /// The descriptor of the directory in which a relative path begins; `AT_FDCWD`: the current one.
    pub directory: i32,
    /// The path.
    pub path: &'a [u8],
}

/// How a path is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// Whether a link in the last part is followed.
    pub follow: bool,
    /// Whether an empty path means the descriptor itself (`AT_EMPTY_PATH`).
    pub empty: bool,
}

/// Following the last link.
pub const FOLLOW: How = How {
    follow: true,
    empty: false,
};

/// Why there is no object and no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The path runs through a `/proc`, or a link that is no text.
    Proc,
    /// An entry was looked for, and the path ends with this.
    Special(Special),
    /// The kernel's answer, or what it would be.
    Errno(Errno),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Errno(errno(&error))
    }
}

/// The number of an error of the system.
#[must_use]
pub fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

/// What stands in the place of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// Nothing: the path is made of slashes.
    Root,
    /// `.`
    Dot,
    /// `..`
    DotDot,
}

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// At this real path.
    Path(PathBuf),
    /// Nowhere any more, or not yet (`O_TMPFILE`): it has no name. Its last one, or the directory in
    /// which it was made and something.
    Unlinked(PathBuf),
    /// In no directory: a pipe, a socket and such, as `/proc` calls it.
    Outside(OsString),
}

/// Something that exists, held open.
#[derive(Debug)]
pub struct Object {
    /// It. Not always an `O_PATH` descriptor: it may be the copy of one of the caller's.
    pub fd: OwnedFd,
    /// Where it is.
    pub at: At,
    /// What kind of file it is (`S_IFMT`, `inode(7)`).
    pub kind: SFlag,
    /// Device and inode.
    pub id: (u64, u64),
    /// Whether it was named by a descriptor of the caller's (`/dev/stdout`), and not by its path.
    pub by_descriptor: bool,
}

impl Object {
    /// Looks at what is held.
    ///
    /// # Errors
    /// [`Stop::Proc`]; `ESTALE` if the path by which it was opened is its path no more, while it has
    /// others; what the calls answer.
    pub fn new(fd: OwnedFd) -> Result<Self, Stop> {
        if paths::is_of_proc(&fd)? {
            return Err(Stop::Proc);
        }
        // The path first: what loses its name in between is none with a name for that.
        let path = paths::path_of(&fd)?;
        let status = fstat(&fd)?;
        Ok(Self {
            at: at(path, &status)?,
            kind: kind(&status),
            id: id(&status),
            by_descriptor: false,
            fd,
        })
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.kind == SFlag::S_IFDIR
    }
}

/// A name in a directory that is held open.
#[derive(Debug)]
pub struct Entry {
    /// The directory.
    pub parent: OwnedFd,
    /// Device and inode of the directory.
    pub parent_id: (u64, u64),
    /// Its real path.
    pub parent_path: PathBuf,
    /// The name: one part of a path, neither `.` nor `..`.
    pub name: OsString,
    /// Whether a slash follows it.
    pub slash: bool,
}

impl Entry {
    /// Its real path.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.parent_path.join(&self.name)
    }

    /// The name as calls take it that do not follow it: with the slash, if there is one.
    #[must_use]
    pub fn slashed(&self) -> OsString {
        let mut name = self.name.clone();
        if self.slash {
            name.push("/");
        }
        name
    }
}

/// What a path leads to.
#[derive(Debug)]
pub enum Resolved {
    /// Something that exists.
    Object(Object),
    /// A place where nothing is.
    Missing(Entry),
}

/// Finds what a path of a process leads to.
///
/// # Errors
/// See [`Stop`]; never [`Stop::Special`].
pub fn find(process: &dyn Process, given: PathArgument<'_>, how: How) -> Result<Resolved, Stop> {
    if given.path.is_empty() {
        if !how.empty {
            return Err(Errno::ENOENT.into());
        }
        let fd = start(process, given)?;
        return Ok(Resolved::Object(Object::new(fd)?));
    }
    let mut text = given.path.to_vec();
    let mut begin = start(process, given)?;
    let mut must_be_directory = false;
    for _ in 0..=MOST_LINKS {
        let (parent, last) = split(&text);
        let Last::Name { name, slash } = last else {
            let fd = pin(&begin, &text)?;
            return Ok(Resolved::Object(Object::new(fd)?));
        };
        must_be_directory |= slash;
        let parent = hold_parent(begin, parent)?;
        if paths::is_of_proc(&parent)? {
            return own_descriptor(process, &parent, name, how.follow || must_be_directory)
                .and_then(|object| checked(object, must_be_directory))
                .map(Resolved::Object);
        }
        let fd = match paths::pin_entry(&parent, name) {
            Ok(fd) => fd,
            Err(Errno::ENOENT) => {
                return Ok(Resolved::Missing(held(parent, name, must_be_directory)?));
            }
            Err(errno) => return Err(errno.into()),
        };
        let status = fstat(&fd)?;
        if kind(&status) != SFlag::S_IFLNK || !(how.follow || must_be_directory) {
            return checked(Object::new(fd)?, must_be_directory).map(Resolved::Object);
        }
        if paths::is_of_proc(&fd)? {
            return Err(Stop::Proc);
        }
        may_follow(&status, &fstat(&parent)?)?;
        text = readlinkat(&fd, "")?.as_bytes().to_vec();
        begin = match text.first() {
            None => return Err(Errno::ENOENT.into()),
            Some(b'/') => paths::pin_plain("/")?,
            Some(_) => parent,
        };
    }
    Err(Errno::ELOOP.into())
}

/// Finds the place that a path of a process names: for what is to be made, removed or renamed. No
/// link is followed in the last part.
///
/// # Errors
/// See [`Stop`].
pub fn entry(process: &dyn Process, given: PathArgument<'_>) -> Result<Entry, Stop> {
    if given.path.is_empty() {
        return Err(Errno::ENOENT.into());
    }
    let (parent, last) = split(given.path);
    match last {
        Last::Name { name, slash } => {
            let parent = hold_parent(start(process, given)?, parent)?;
            if paths::is_of_proc(&parent)? {
                return Err(Stop::Proc);
            }
            held(parent, name, slash)
        }
        Last::Special(special) => {
            // What does not exist is said first.
            pin(start(process, given)?, given.path)?;
            Err(Stop::Special(special))
        }
    }
}

/// Runs `find` for calls that need something to be there.
///
/// # Errors
/// See [`find`]; `ENOENT`.
pub fn object(process: &dyn Process, given: PathArgument<'_>, how: How) -> Result<Object, Stop> {
    match find(process, given, how)? {
        Resolved::Object(object) => Ok(object),
        Resolved::Missing(_) => Err(Errno::ENOENT.into()),
    }
}

/// Where a path begins.
fn start(process: &dyn Process, given: PathArgument<'_>) -> Result<OwnedFd, Stop> {
    if given.path.first() == Some(&b'/') {
        // Nobody inside has another root: chroot(2) and namespaces are refused.
        return Ok(paths::pin_plain("/")?);
    }
    if given.directory == libc::AT_FDCWD {
        return Ok(process.directory()?);
    }
    Ok(process.descriptor(given.directory)?)
}

fn pin(begin: impl AsFd, text: &[u8]) -> Result<OwnedFd, Stop> {
    let begin = begin.as_fd();
    paths::pin(begin, text).map_err(|errno| match errno {
        // Too many links, or one that is no text.
        Errno::ELOOP => Stop::Proc,
        // The mediator's `/proc/self` may lack what the caller's has.
        Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES if ends_in_proc(begin, text) => Stop::Proc,
        errno => errno.into(),
    })
}

/// Whether a path that leads nowhere is lost in a `/proc`: where its longest beginning leads that leads
/// anywhere. Resolved by halving, for a path may have two thousand parts.
fn ends_in_proc(begin: BorrowedFd<'_>, text: &[u8]) -> bool {
    let ends: Vec<usize> = (1..text.len())
        .filter(|&at| text[at] == b'/' && text[at - 1] != b'/')
        .collect();
    let there = |&end: &usize| paths::pin(begin, &text[..end]);
    let count = ends.partition_point(|end| there(end).is_ok());
    let last = count.checked_sub(1).and_then(|last| ends.get(last));
    last.is_some_and(|end| {
        there(end)
            .and_then(paths::is_of_proc)
            .is_ok_and(|is_of_proc| is_of_proc)
    })
}

/// The directory that all but the last part lead to.
fn hold_parent(begin: OwnedFd, parent: &[u8]) -> Result<OwnedFd, Stop> {
    let parent = if parent.is_empty() {
        begin
    } else {
        pin(begin, parent)?
    };
    if kind(&fstat(&parent)?) == SFlag::S_IFDIR {
        Ok(parent)
    } else {
        Err(Errno::ENOTDIR.into())
    }
}

fn held(parent: OwnedFd, name: &OsStr, slash: bool) -> Result<Entry, Stop> {
    let Object { fd, at, id, .. } = Object::new(parent)?;
    let At::Path(parent_path) = at else {
        // Nothing can be made in a directory that is gone.
        return Err(Errno::ENOENT.into());
    };
    Ok(Entry {
        parent: fd,
        parent_id: id,
        parent_path,
        name: name.to_owned(),
        slash,
    })
}

fn checked(object: Object, must_be_directory: bool) -> Result<Object, Stop> {
    if must_be_directory && !object.is_directory() {
        return Err(Errno::ENOTDIR.into());
    }
    Ok(object)
}

/// The last part of a path.
#[derive(Debug, PartialEq, Eq)]
enum Last<'a> {
    Name { name: &'a OsStr, slash: bool },
    Special(Special),
}

/// Everything before the last part, empty if there is nothing, and the last part.
fn split(path: &[u8]) -> (&[u8], Last<'_>) {
    let end = path
        .iter()
        .rposition(|&byte| byte != b'/')
        .map_or(0, |at| at + 1);
    let begin = path[..end]
        .iter()
        .rposition(|&byte| byte == b'/')
        .map_or(0, |at| at + 1);
    let last = match &path[begin..end] {
        b"" => Last::Special(Special::Root),
        b"." => Last::Special(Special::Dot),
        b".." => Last::Special(Special::DotDot),
        name => Last::Name {
            name: OsStr::from_bytes(name),
            slash: end < path.len(),
        },
    };
    (&path[..begin], last)
}

/// An entry of a directory in a `/proc`: the caller's descriptor, or nothing that is given out. Which
/// process's directory it is, the kernel says; by `self` it is this one's, and that means the caller's.
fn own_descriptor(
    process: &dyn Process,
    parent: &OwnedFd,
    name: &OsStr,
    follow: bool,
) -> Result<Object, Stop> {
    let directory = paths::path_of(parent)?;
    let parts: Vec<&[u8]> = directory.as_bytes().split(|&byte| byte == b'/').collect();
    let (pid, rest) = match parts[..] {
        [b"", b"proc", pid, b"fd"] => (pid, None),
        [b"", b"proc", pid, b"task", thread, b"fd"] => (pid, Some(thread)),
        _ => return Err(Stop::Proc),
    };
    let is_number = |part: Option<&[u8]>| part.is_none_or(|part| number(part).is_some());
    let (Some(pid), true, Some(fd)) = (number(pid), is_number(rest), number(name.as_bytes()))
    else {
        return Err(Stop::Proc);
    };
    if !follow || !(pid == getpid().as_raw() || process.is_called(pid)) {
        return Err(Stop::Proc);
    }
    let fd = process.descriptor(fd).map_err(|_| Errno::ENOENT)?;
    Ok(Object {
        by_descriptor: true,
        ..Object::new(fd)?
    })
}

/// A number as `/proc` writes it.
fn number(text: &[u8]) -> Option<i32> {
    let text = std::str::from_utf8(text).ok()?;
    let number: i32 = text.parse().ok()?;
    (number >= 0 && number.to_string() == text).then_some(number)
}

/// Refuses the link of another user in a directory like `/tmp`, as `fs.protected_symlinks`
/// (`proc_sys_fs(5)`) does for links that the kernel follows.
fn may_follow(link: &FileStat, parent: &FileStat) -> Result<(), Errno> {
    let shared = Mode::S_ISVTX | Mode::S_IWOTH;
    let is_shared = Mode::from_bits_truncate(parent.st_mode).contains(shared);
    if !is_shared || link.st_uid == geteuid().as_raw() || link.st_uid == parent.st_uid {
        Ok(())
    } else {
        Err(Errno::EACCES)
    }
}

/// Where the kernel says that something is.
fn at(path: OsString, status: &FileStat) -> Result<At, Stop> {
    if !path.as_bytes().starts_with(b"/") {
        return Ok(At::Outside(path));
    }
    let Some(last) = path.as_bytes().strip_suffix(DELETED) else {
        return Ok(At::Path(path.into()));
    };
    if status.st_nlink == 0 {
        return Ok(At::Unlinked(OsStr::from_bytes(last).into()));
    }
    // Either a name that ends so, or it has lost this name and has another.
    let path = PathBuf::from(path);
    match paths::pin_plain(&path).and_then(fstat) {
        Ok(there) if id(&there) == id(status) => Ok(At::Path(path)),
        _ => Err(Errno::ESTALE.into()),
    }
}

/// Device and inode.
#[must_use]
pub fn id(status: &FileStat) -> (u64, u64) {
    (status.st_dev, status.st_ino)
}

/// The kind of file.
#[must_use]
pub fn kind(status: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(status.st_mode & SFlag::S_IFMT.bits())
}

/// The path of the object, if it has one that decides.
#[must_use]
pub fn deciding(at: &At) -> Option<&Path> {
    match at {
        At::Path(path) | At::Unlinked(path) => Some(path),
        At::Outside(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_before_its_last_part() {
        let name = |name: &'static str, slash| Last::Name {
            name: OsStr::new(name),
            slash,
        };
        for (path, parent, last) in [
            ("a", "", name("a", false)),
            ("a/", "", name("a", true)),
            ("/a", "/", name("a", false)),
            ("//a//", "//", name("a", true)),
            ("a/b", "a/", name("b", false)),
            ("a/../b/", "a/../", name("b", true)),
            ("a/...", "a/", name("...", false)),
            ("/", "", Last::Special(Special::Root)),
            (".", "", Last::Special(Special::Dot)),
            ("a/./", "a/", Last::Special(Special::Dot)),
            ("a/..", "a/", Last::Special(Special::DotDot)),
        ] {
            assert_eq!(split(path.as_bytes()), (parent.as_bytes(), last), "{path}");
        }
    }

    #[test]
    fn a_descriptor_is_a_number_as_proc_writes_it() {
        for (text, value) in [
            ("0", Some(0)),
            ("63", Some(63)),
            ("007", None),
            ("+1", None),
            ("-1", None),
            ("", None),
            ("99999999999", None),
        ] {
            assert_eq!(number(text.as_bytes()), value, "{text}");
        }
    }
}
