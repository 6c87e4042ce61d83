//! The files of trails: `RECORDS/UID/NAME`, directories 0700 and files 0600, of whoever the tracer runs as.
//!
//! All is done relative to descriptors of directories, no link is followed, and a file is only ever made
//! anew (`O_EXCL`) or added to. Room is bounded for each user and for all; files go by age, too: whole ones, the oldest
//! first. The first file of a trail goes after all others, as who floods a trail may want to be rid of its beginning.

mod look;
mod name;

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use agent_sandbox_events::record::Trail;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, ftruncate, geteuid, unlinkat};

use super::clock::{Now, SECOND};

/// How much room trails take. On a directory that nodes share, each node counts its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// A file is not longer, in bytes; then the next one begins.
    pub file_bytes: u64,
    /// The trails of one user, in bytes.
    pub user_bytes: u64,
    /// All trails, in bytes.
    pub total_bytes: u64,
    /// Files that nothing was added to for so many days are removed.
    pub days: u32,
}

impl Default for StoreLimits {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            // A report reads one in a second.
            file_bytes: 16 * MIB,
            // About four million records.
            user_bytes: 1024 * MIB,
            total_bytes: 16 * 1024 * MIB,
            days: 90,
        }
    }
}

/// A user has as many files on a node at most: to list them takes milliseconds.
const FILES: u64 = 2048;

/// A file takes at least a block.
const BLOCK: u64 = 4096;

/// After nothing could be removed it is not tried again for so long, in nanoseconds: it takes time.
const PAUSE: u64 = 10 * SECOND;

/// Files are looked at for their age so often, in nanoseconds.
const SWEEP: u64 = 3600 * SECOND;

/// Where trails are kept.
#[derive(Debug)]
pub(super) struct Store {
    root: OwnedFd,
    records: PathBuf,
    node: String,
    limits: StoreLimits,
    users: BTreeMap<u32, Used>,
    /// Files that are being written.
    current: HashSet<(u32, String)>,
    /// Users whose files are to be looked at for their age, and when the next round begins.
    aging: Vec<u32>,
    next_round: u64,
}

/// What a user's trails take on this node.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    bytes: u64,
    files: u64,
    /// Nothing can be removed: not tried again before this time since the boot.
    stuck: u64,
}

/// Where a trail ended when the last tracer did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Last {
    /// When the trail began.
    pub(super) began: f64,
    /// So many files there are of that name.
    pub(super) files: u32,
    /// The number of its last record.
    pub(super) seq: u64,
    /// What it had lost by then.
    pub(super) lost: u64,
    /// The time of that record.
    pub(super) time: f64,
}

/// What could not be written.
#[derive(Debug)]
pub(super) struct Unwritten {
    /// Bytes of whole lines that were.
    pub(super) written: usize,
    /// Why it ended there.
    pub(super) why: io::Error,
}

impl From<io::Error> for Unwritten {
    fn from(why: io::Error) -> Self {
        Self { written: 0, why }
    }
}

impl Store {
    /// Opens the directory, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be made or read, or others than we could change it.
    pub(super) fn open(records: &Path, node: &str, limits: StoreLimits) -> io::Result<Self> {
        make_directory(records)?;
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let root = nix::fcntl::open(records, flags, Mode::empty())?;
        private(&root)?;
        let mut store = Self {
            root,
            records: records.to_path_buf(),
            node: node.to_string(),
            limits,
            users: BTreeMap::new(),
            current: HashSet::new(),
            aging: Vec::new(),
            next_round: 0,
        };
        for uid in store.uids()? {
            store.measure(uid)?;
        }
        Ok(store)
    }

    /// The directory of a user, which is made if it is not there.
    fn user(&self, uid: u32) -> io::Result<OwnedFd> {
        match self.user_there(uid) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let name = uid.to_string();
                match mkdirat(&self.root, name.as_str(), Mode::S_IRWXU) {
                    Ok(()) | Err(Errno::EEXIST) => self.user_there(uid),
                    Err(error) => Err(error.into()),
                }
            }
            there => there,
        }
    }

    fn user_there(&self, uid: u32) -> io::Result<OwnedFd> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let directory = openat(&self.root, uid.to_string().as_str(), flags, Mode::empty())?;
        private(&directory)?;
        Ok(directory)
    }

    /// A new file of the trail, empty. It is its `number`th, or a later one if there are others of that name.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn create(
        &mut self,
        trail: &Trail,
        number: u32,
        now: &Now,
    ) -> io::Result<(String, u32)> {
        self.make_room(trail.uid, 0, 1, now)?;
        let directory = self.user(trail.uid)?;
        let stem = name::stem(trail);
        let flags =
            OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        for number in number..number.saturating_add(u32::try_from(4 * FILES).unwrap_or(u32::MAX)) {
            let name = name::file(&stem, number);
            match openat(
                &directory,
                name.as_str(),
                flags,
                Mode::S_IRUSR | Mode::S_IWUSR,
            ) {
                Ok(_) => {
                    self.current.insert((trail.uid, name.clone()));
                    let used = self.users.entry(trail.uid).or_default();
                    used.files += 1;
                    used.bytes += BLOCK;
                    return Ok((name, number));
                }
                Err(Errno::EEXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Adds whole lines to a file that holds so many bytes.
    ///
    /// # Errors
    /// Not all could be written; the file then ends with a whole line.
    pub(super) fn append(
        &mut self,
        uid: u32,
        name: &str,
        held: u64,
        lines: &[u8],
        now: &Now,
    ) -> Result<(), Unwritten> {
        self.make_room(uid, lines.len() as u64, 0, now)?;
        let directory = self.user(uid)?;
        let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&directory, name, flags, Mode::empty()).map_err(io::Error::from)?;
        let mut file = File::from(file);
        let mut written = 0;
        let failed = loop {
            match file.write(&lines[written..]) {
                Ok(0) => break Some(io::ErrorKind::WriteZero.into()),
                Ok(some) => written += some,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Some(error),
            }
            if written == lines.len() {
                break None;
            }
        };
        let whole = lines[..written]
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let used = self.users.entry(uid).or_default();
        used.bytes += whole as u64;
        let Some(why) = failed else {
            return Ok(());
        };
        let end = held + whole as u64;
        if whole < written {
            // If not even this can be done, readers leave out what is no whole line.
            let _ = ftruncate(&file, i64::try_from(end).unwrap_or(i64::MAX));
        }
        Err(Unwritten {
            written: whole,
            why,
        })
    }

    /// A file is not written any more. One that holds nothing is removed.
    pub(super) fn close(&mut self, uid: u32, name: &str, held: u64) {
        self.current.remove(&(uid, name.to_string()));
        if held == 0 {
            self.remove(uid, name, 0);
        }
    }

    /// Removes a file; one that another node removed meanwhile is gone as well. It is emptied first: who has it open
    /// keeps neither its records nor the room that it took.
    fn remove(&mut self, uid: u32, name: &str, bytes: u64) -> bool {
        let Ok(directory) = self.user_there(uid) else {
            return false;
        };
        let flags = OFlag::O_WRONLY | OFlag::O_TRUNC | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let emptied = openat(&directory, name, flags, Mode::empty());
        if !matches!(emptied, Ok(_) | Err(Errno::ENOENT | Errno::ELOOP)) {
            return false;
        }
        let gone = unlinkat(&directory, name, UnlinkatFlags::NoRemoveDir);
        if !matches!(gone, Ok(()) | Err(Errno::ENOENT)) {
            return false;
        }
        if name::of_node(name, &self.node) {
            let used = self.users.entry(uid).or_default();
            used.files = used.files.saturating_sub(1);
            used.bytes = used.bytes.saturating_sub(bytes + BLOCK);
        }
        true
    }

    /// Makes room by removing the oldest files.
    fn make_room(&mut self, uid: u32, bytes: u64, files: u64, now: &Now) -> io::Result<()> {
        let mut used = self.users.get(&uid).copied().unwrap_or_default();
        let of_user = |used: Used, limits: StoreLimits| {
            (used.bytes + bytes).saturating_sub(limits.user_bytes) > 0 || used.files + files > FILES
        };
        if of_user(used, self.limits) {
            // Some more than needed, so that it does not happen at each write.
            self.evict(
                uid,
                bytes + self.limits.user_bytes / 16,
                files * (FILES / 16),
                now,
            );
            used = self.users.get(&uid).copied().unwrap_or_default();
            if of_user(used, self.limits) {
                return Err(full("the user's trails take all the room that they may"));
            }
        }
        let all = |store: &Self| store.users.values().map(|used| used.bytes).sum::<u64>() + bytes;
        if all(self) > self.limits.total_bytes {
            // Whoever has most of it gives: nobody can push out another's trails with less.
            let most = self.users.iter().max_by_key(|(_, used)| used.bytes);
            let most = most.map_or(uid, |(uid, _)| *uid);
            let more = all(self) - self.limits.total_bytes;
            self.give(most, more + self.limits.total_bytes / 64, 0, now);
            if all(self) > self.limits.total_bytes {
                return Err(full("all trails together take all the room that they may"));
            }
        }
        Ok(())
    }

    /// Removes files of a user until so much is free of what the user may have.
    fn evict(&mut self, uid: u32, bytes: u64, files: u64, now: &Now) {
        let used = self.users.get(&uid).copied().unwrap_or_default();
        let bytes = (used.bytes + bytes).saturating_sub(self.limits.user_bytes);
        let files = (used.files + files).saturating_sub(FILES);
        self.give(uid, bytes, files, now);
    }

    /// Removes files of a user: so many bytes and files.
    fn give(&mut self, uid: u32, mut bytes: u64, mut files_left: u64, now: &Now) {
        let used = self.users.entry(uid).or_default();
        if used.stuck > now.boot {
            return;
        }
        used.stuck = now.boot + PAUSE;
        let Ok(mut files) = self.files_of(uid, &|name| name::of_node(name, &self.node)) else {
            return;
        };
        files.sort_by_key(|file| {
            let number = name::number(&file.name);
            (number == 1, file.modified, number)
        });
        let mut gave = false;
        for file in files {
            if bytes == 0 && files_left == 0 {
                break;
            }
            if self.current.contains(&(uid, file.name.clone())) {
                continue;
            }
            if self.remove(uid, &file.name, file.bytes) {
                gave = true;
                bytes = bytes.saturating_sub(file.bytes + BLOCK);
                files_left = files_left.saturating_sub(1);
            }
        }
        if gave {
            self.users.entry(uid).or_default().stuck = 0;
        }
    }

    /// Looks at the files of one user for their age, if it is time. Files of other nodes go, too: those may be
    /// gone themselves.
    pub(super) fn age(&mut self, now: &Now) -> io::Result<()> {
        if now.boot >= self.next_round {
            self.next_round = now.boot + SWEEP;
            self.aging = self.uids()?;
        }
        let Some(uid) = self.aging.pop() else {
            return Ok(());
        };
        let before = now.wall - f64::from(self.limits.days) * 86_400.0;
        let directory = self.user_there(uid)?;
        for name in names(&directory)? {
            let there = fstatat(&directory, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
            let Ok(there) = there else { continue };
            let old = seconds(there.st_mtime) < before;
            if old && name::ours(&name) && !self.current.contains(&(uid, name.clone())) {
                self.remove(uid, &name, 0);
            }
        }
        // Fails if anything is left in it.
        let _ = unlinkat(
            &self.root,
            uid.to_string().as_str(),
            UnlinkatFlags::RemoveDir,
        );
        self.measure(uid)
    }

    /// Users that there are directories of.
    pub(super) fn uids(&self) -> io::Result<Vec<u32>> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = openat(&self.root, ".", flags, Mode::empty())?;
        Ok(names(&root)?
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect())
    }

    /// Counts what a user's trails take on this node.
    fn measure(&mut self, uid: u32) -> io::Result<()> {
        let mut used = Used::default();
        match self.user_there(uid) {
            Ok(directory) => {
                for name in names(&directory)? {
                    let there = fstatat(&directory, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
                    if let (Ok(there), true) = (there, name::of_node(&name, &self.node)) {
                        used.files += 1;
                        used.bytes += BLOCK + u64::try_from(there.st_size).unwrap_or(0);
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if used.files == 0 {
            self.users.remove(&uid);
        } else {
            self.users.insert(uid, used);
        }
        Ok(())
    }

    /// Where the trails are kept.
    pub(super) fn records(&self) -> &Path {
        &self.records
    }

    /// A file is not longer.
    pub(super) fn file_bytes(&self) -> u64 {
        self.limits.file_bytes
    }
}

/// A file of a user's.
#[derive(Debug)]
struct StoredFile {
    name: String,
    bytes: u64,
    /// When something was added to it last, in seconds since 1970.
    modified: i64,
}

/// Whole seconds since 1970.
#[expect(clippy::cast_precision_loss, reason = "exact for 285 million years")]
fn seconds(time: i64) -> f64 {
    time as f64
}

fn full(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, why)
}

/// Makes the directory; those above it, where they are missing, can be read by all.
fn make_directory(path: &Path) -> io::Result<()> {
    match nix::unistd::mkdir(path, Mode::S_IRWXU) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(Errno::ENOENT) => {
            let above = path.parent().ok_or(Errno::ENOENT)?;
            make_above(above)?;
            match nix::unistd::mkdir(path, Mode::S_IRWXU) {
                Ok(()) | Err(Errno::EEXIST) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
        Err(error) => Err(error.into()),
    }
}

fn make_above(path: &Path) -> io::Result<()> {
    let all = Mode::S_IRWXU | Mode::S_IRGRP | Mode::S_IXGRP | Mode::S_IROTH | Mode::S_IXOTH;
    match nix::unistd::mkdir(path, all) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(Errno::ENOENT) => {
            make_above(path.parent().ok_or(Errno::ENOENT)?)?;
            nix::unistd::mkdir(path, all).map_err(io::Error::from)
        }
        Err(error) => Err(error.into()),
    }
}

/// Refuses a directory that others than we can change or read.
fn private(directory: &OwnedFd) -> io::Result<()> {
    let there = fstat(directory)?;
    if there.st_uid != geteuid().as_raw() {
        let why = "the directory of the trails belongs to another user";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    if there.st_mode & 0o077 != 0 {
        let why = "the directory of the trails is open to others: it must have mode 0700";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}

/// Names in a directory that are text, as all of ours are.
fn names(directory: &OwnedFd) -> io::Result<Vec<String>> {
    // A descriptor of its own: reading moves its offset.
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut open = Dir::openat(directory.as_fd(), ".", flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in open.iter() {
        if let Ok(name) = entry?.file_name().to_str()
            && name != "."
            && name != ".."
        {
            names.push(name.to_string());
        }
    }
    Ok(names)
}
