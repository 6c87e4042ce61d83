//! Which files there are, those that somebody may read, and where a trail ended.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;

use agent_sandbox_events::protocol::{TrailFile, Which};
use agent_sandbox_events::record::{LINE_BYTES, Record, Trail, What};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstatat};

use super::{Last, Store, StoredFile, name, names};

/// Names of files in one answer take so many bytes at most: it fits into a packet.
const NAMES: usize = 48 * 1024;

impl Store {
    /// The files of one user whose names are wanted.
    pub(super) fn files_of(
        &self,
        uid: u32,
        wanted: &dyn Fn(&str) -> bool,
    ) -> io::Result<Vec<StoredFile>> {
        let directory = match self.user_there(uid) {
            Ok(directory) => directory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut files = Vec::new();
        for name in names(&directory)? {
            if !name::ours(&name) || !wanted(&name) {
                continue;
            }
            // One that was removed meanwhile is left out.
            let there = fstatat(&directory, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
            if let Ok(there) = there {
                files.push(StoredFile {
                    name,
                    bytes: u64::try_from(there.st_size).unwrap_or(0),
                    modified: there.st_mtime,
                });
            }
        }
        Ok(files)
    }

    /// The next files that the viewer may read and that can be asked for by that, in the order of users and names.
    ///
    /// # Errors
    /// Directories cannot be read.
    pub(in crate::trail) fn files(
        &self,
        viewer: u32,
        which: &Which,
        after: Option<&(u32, String)>,
    ) -> io::Result<Vec<TrailFile>> {
        let mut uids = match viewer {
            0 => self.uids()?,
            own => vec![own],
        };
        uids.sort_unstable();
        uids.retain(|uid| after.is_none_or(|(last, _)| uid >= last));
        let mut files = Vec::new();
        let mut room = NAMES;
        for uid in uids {
            let behind = |name: &str| after.is_none_or(|(last, of)| (uid, name) > (*last, of));
            let wanted = |name: &str| behind(name) && name::may_be(name, which, &self.node);
            let mut found = self.files_of(uid, &wanted)?;
            found.sort_by(|one, other| one.name.cmp(&other.name));
            for file in found {
                // With what stands around a name.
                let Some(left) = room.checked_sub(file.name.len() + 32) else {
                    return Ok(files);
                };
                room = left;
                let here = name::of_node(&file.name, &self.node);
                files.push(TrailFile {
                    uid,
                    modified: file.modified,
                    live: here.then(|| self.current.contains(&(uid, file.name.clone()))),
                    name: file.name,
                });
            }
        }
        Ok(files)
    }

    /// Opens a file to be read, if it is there and the viewer may read it.
    ///
    /// # Errors
    /// It may be there, and cannot be opened now: no descriptors are left, for example. Whoever took that for gone would
    /// believe that its records were removed.
    pub(in crate::trail) fn open_file(
        &self,
        viewer: u32,
        uid: u32,
        name: &str,
    ) -> io::Result<Option<OwnedFd>> {
        if (viewer != 0 && viewer != uid) || !name::ours(name) {
            return Ok(None);
        }
        let directory = match self.user_there(uid) {
            Ok(directory) => directory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        match openat(&directory, name, flags, Mode::empty()) {
            Ok(file) => Ok(Some(file)),
            // `ELOOP`: a link, and none of ours.
            Err(Errno::ENOENT | Errno::ESTALE | Errno::ELOOP) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Where this node's newest trail of that name and id ended; none if there is none.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(in crate::trail) fn last(&self, trail: &Trail) -> io::Result<Option<Last>> {
        let stem = name::stem(trail);
        let mut newest: Option<(f64, u64, File)> = None;
        let mut files = 0;
        for found in self.files_of(trail.uid, &|name| name.starts_with(&stem))? {
            let file = self.open_file(trail.uid, trail.uid, &found.name)?;
            let Some(file) = file.map(File::from) else {
                continue;
            };
            let Some((began, seq)) = began(&file, trail) else {
                continue;
            };
            files += 1;
            let newer = |(of, first, _): &(f64, u64, File)| (began, seq) > (*of, *first);
            if newest.as_ref().is_none_or(newer) {
                newest = Some((began, seq, file));
            }
        }
        Ok(newest.map(|(began, first, file)| {
            // Its header at least was read.
            let (seq, lost, time) = last_record(file).unwrap_or((first, 0, began));
            Last {
                began,
                files,
                seq,
                lost,
                time,
            }
        }))
    }
}

/// When the trail began that a file is of, if it is of that one, and the number of the file's first record.
fn began(file: &File, trail: &Trail) -> Option<(f64, u64)> {
    let mut line = Vec::new();
    let bytes = LINE_BYTES as u64;
    let mut reader = BufReader::new(file.take(bytes));
    reader.read_until(b'\n', &mut line).ok()?;
    let record: Record = serde_json::from_slice(&line).ok()?;
    match record.what {
        What::Header(header) if record.trail == *trail => Some((header.began, record.seq)),
        _ => None,
    }
}

/// The last whole record of a file: its number, what its trail had lost by then, its time.
fn last_record(mut file: File) -> Option<(u64, u64, f64)> {
    let length = file.metadata().ok()?.len();
    // The last line may be cut off, behind the longest one.
    let tail = length.min(2 * LINE_BYTES as u64);
    file.seek(SeekFrom::Start(length - tail)).ok()?;
    let mut bytes = Vec::new();
    file.take(tail).read_to_end(&mut bytes).ok()?;
    let end = bytes.iter().rposition(|byte| *byte == b'\n')?;
    let line = bytes[..end].rsplit(|byte| *byte == b'\n').next()?;
    let record: Record = serde_json::from_slice(line).ok()?;
    Some((record.seq, record.lost, record.time))
}
