//! Which files there are, and what they are about: by the header that each begins with.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use agent_sandbox_events::protocol::Which;
use agent_sandbox_events::record::{LINE_BYTES, Record, Trail, What};
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstatat};

use super::super::clock::same;
use super::{Evicted, Store, name, names};

/// A first line is mostly shorter, in bytes.
const HEADER: usize = 4096;

/// The last line of a trail that has ended is shorter, in bytes.
const END: u64 = 2048;

/// More files of one user are not looked at at a time: it would take seconds, in which nothing else is done. They
/// are asked for by session or job then. A node keeps fewer of a user; nodes that share a directory have more.
const LOOKED_AT: usize = 20_000;
/// The same of all users, of whom root alone asks: a launch waits for longer than this takes.
const LOOKED_AT_ALL: usize = 100_000;

/// A file of a trail.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::trail) struct TrailFile {
    pub(in crate::trail) uid: u32,
    pub(in crate::trail) name: String,
    pub(in crate::trail) bytes: u64,
    /// When something was added to it last, in seconds since 1970.
    modified: f64,
    pub(in crate::trail) trail: Trail,
    /// When its trail began.
    pub(in crate::trail) began: f64,
    /// The number of its first record.
    pub(in crate::trail) first: u64,
}

impl TrailFile {
    /// Whether both are of one trail.
    pub(in crate::trail) fn same(&self, other: &TrailFile) -> bool {
        self.trail == other.trail && same(self.began, other.began)
    }
}

/// What a header says that is needed to find a file.
#[derive(Clone, Debug)]
pub(super) struct Head {
    trail: Trail,
    began: f64,
    first: u64,
}

/// Headers that were read, by user, name and inode: whoever asks again and again takes little time.
pub(super) type Heads = RefCell<HashMap<(u32, String, u64), Head>>;

/// So many are kept: more than are looked at of one user at a time.
const HEADS: usize = 32_768;

/// Files, by trail and then by their order in it.
#[derive(Debug)]
pub(in crate::trail) struct Survey {
    pub(in crate::trail) files: Vec<TrailFile>,
}

impl Survey {
    /// In the order in which they are to be removed: the oldest first, but the first file of each trail only
    /// after all others.
    pub(super) fn victims(&self) -> Vec<&TrailFile> {
        let first = |at: usize| at == 0 || !self.files[at - 1].same(&self.files[at]);
        let mut victims: Vec<(bool, &TrailFile)> = self
            .files
            .iter()
            .enumerate()
            .map(|(at, file)| (first(at), file))
            .collect();
        victims.sort_by(|(a_first, a), (b_first, b)| {
            let order = a_first.cmp(b_first).then(a.modified.total_cmp(&b.modified));
            order.then(a.first.cmp(&b.first))
        });
        victims.into_iter().map(|(_, file)| file).collect()
    }

    /// The records that go with that file: up to the next one's of its trail.
    pub(super) fn loss(&self, file: &TrailFile) -> Option<Evicted> {
        let at = self
            .files
            .iter()
            .position(|other| std::ptr::eq(other, file))?;
        let next = self.files.get(at + 1).filter(|next| next.same(file))?;
        Some(Evicted {
            trail: file.trail.clone(),
            began: file.began,
            first: file.first,
            last: next.first.saturating_sub(1),
        })
    }

    /// The files of each trail.
    pub(in crate::trail) fn trails(&self) -> impl Iterator<Item = &[TrailFile]> {
        self.files.chunk_by(TrailFile::same)
    }
}

impl Store {
    /// The files of these users whose names are wanted.
    ///
    /// # Errors
    /// Directories cannot be read, or there are too many files.
    pub(in crate::trail) fn survey(
        &self,
        uids: &[u32],
        wanted: &dyn Fn(&str) -> bool,
    ) -> io::Result<Survey> {
        let mut files = Vec::new();
        let mut all = 0;
        for uid in uids {
            let mut looked = 0;
            let directory = match self.user_there(*uid) {
                Ok(directory) => directory,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for name in names(&directory)? {
                if !name::ours(&name) || !wanted(&name) {
                    continue;
                }
                looked += 1;
                all += 1;
                if looked > LOOKED_AT {
                    return Err(too_many(&format!("user {uid} has")));
                }
                if all > LOOKED_AT_ALL {
                    return Err(too_many("all users together have"));
                }
                // What is no trail, or was removed meanwhile, is left out.
                files.extend(self.look(&directory, *uid, name));
            }
        }
        files.sort_by(|a, b| {
            let order = a
                .began
                .total_cmp(&b.began)
                .then_with(|| place(a).cmp(&place(b)));
            order.then(a.first.cmp(&b.first))
        });
        Ok(Survey { files })
    }

    /// The files of that user, of which `which` can be asked for.
    ///
    /// # Errors
    /// As [`Store::survey`].
    pub(in crate::trail) fn find(&self, viewer: u32, which: &Which) -> io::Result<Survey> {
        let uids = if viewer == 0 {
            self.uids()?
        } else {
            vec![viewer]
        };
        self.survey(&uids, &|name| name::may_be(name, which, &self.node))
    }

    /// The files of this node's trail of that name and id, the newest beginning.
    ///
    /// # Errors
    /// As [`Store::survey`].
    pub(in crate::trail) fn of(&self, trail: &Trail) -> io::Result<Vec<TrailFile>> {
        let stem = name::stem(trail);
        let survey = self.survey(&[trail.uid], &|name| name.starts_with(&stem))?;
        let newest = survey
            .trails()
            .filter(|files| files[0].trail == *trail)
            .last();
        Ok(newest.unwrap_or_default().to_vec())
    }

    /// Whether the last record of a file is that of an end.
    pub(in crate::trail) fn ended(&self, file: &TrailFile) -> bool {
        let tail = self.tail(file, END).unwrap_or_default();
        contains(&tail, b"\"event\":\"end\"")
    }

    /// The last record of a file: its number, what its trail had lost by then, its time.
    pub(in crate::trail) fn last(&self, file: &TrailFile) -> Option<(u64, u64, f64)> {
        let tail = self.tail(file, LINE_BYTES as u64 + END)?;
        let line = tail.strip_suffix(b"\n").unwrap_or(&tail);
        let record: Record = serde_json::from_slice(line).ok()?;
        Some((record.seq, record.lost, record.time))
    }

    /// The last whole line within so many bytes of the end of the file.
    fn tail(&self, file: &TrailFile, bytes: u64) -> Option<Vec<u8>> {
        let directory = self.user_there(file.uid).ok()?;
        let there = read(&directory, &file.name).ok()?;
        let length = there.metadata().ok()?.len();
        let mut tail = vec![0; usize::try_from(length.min(bytes)).ok()?];
        let from = length - tail.len() as u64;
        there.read_exact_at(&mut tail, from).ok()?;
        let end = tail.iter().rposition(|byte| *byte == b'\n')?;
        tail.truncate(end + 1);
        let begin = tail[..end]
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        tail.drain(..begin);
        Some(tail)
    }

    /// Reads of a file, from there on.
    ///
    /// # Errors
    /// It is gone, or cannot be read.
    pub(in crate::trail) fn read(
        root: &OwnedFd,
        file: &TrailFile,
        at: u64,
        into: &mut [u8],
    ) -> io::Result<usize> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let directory = openat(root, file.uid.to_string().as_str(), flags, Mode::empty())?;
        read(&directory, &file.name)?.read_at(into, at)
    }

    fn look(&self, directory: &OwnedFd, uid: u32, name: String) -> Option<TrailFile> {
        let there = fstatat(directory, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        let key = (uid, name, there.st_ino);
        let known = self.heads.borrow().get(&key).cloned();
        let Head {
            trail,
            began,
            first,
        } = match known {
            Some(head) => head,
            None => {
                let head = head(directory, &key.1)?;
                let mut heads = self.heads.borrow_mut();
                if heads.len() >= HEADS {
                    // Any one: were all forgotten, each look at all of them would read all of them.
                    let one = heads.keys().next().cloned();
                    one.and_then(|one| heads.remove(&one));
                }
                heads.insert(key.clone(), head.clone());
                head
            }
        };
        // A directory is one user's, whatever a file in it says.
        (trail.uid == uid).then_some(TrailFile {
            uid,
            name: key.1,
            bytes: u64::try_from(there.st_size).unwrap_or(0),
            modified: seconds(there.st_mtime),
            trail,
            began,
            first,
        })
    }

    /// A descriptor of the directory of all trails.
    ///
    /// # Errors
    /// There are none left.
    pub(in crate::trail) fn root(&self) -> io::Result<OwnedFd> {
        self.root.try_clone()
    }
}

fn too_many(who: &str) -> io::Error {
    let why = format!("{who} too many trails to look at all: ask for a session or a job");
    io::Error::new(io::ErrorKind::QuotaExceeded, why)
}

/// What tells trails apart that began at the same time.
fn place(file: &TrailFile) -> (u32, &str, u32, Option<&str>, Option<u32>, Option<&str>) {
    let trail = &file.trail;
    let session = trail.session.as_deref();
    (
        file.uid,
        &trail.node,
        trail.trace,
        session,
        trail.job,
        trail.step.as_deref(),
    )
}

fn read(directory: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    Ok(File::from(openat(directory, name, flags, Mode::empty())?))
}

/// What the header of a file says. It never changes.
fn head(directory: &OwnedFd, name: &str) -> Option<Head> {
    let file = read(directory, name).ok()?;
    let mut line = vec![0; HEADER];
    let mut held = file.read_at(&mut line, 0).ok()?;
    let newline = |bytes: &[u8]| bytes.iter().position(|byte| *byte == b'\n');
    if newline(&line[..held]).is_none() {
        line.resize(LINE_BYTES, 0);
        held = file.read_at(&mut line, 0).ok()?;
    }
    line.truncate(newline(&line[..held])?);
    let record: Record = serde_json::from_slice(&line).ok()?;
    let What::Header(header) = record.what else {
        return None;
    };
    Some(Head {
        trail: record.trail,
        began: header.began,
        first: record.seq,
    })
}

fn contains(text: &[u8], what: &[u8]) -> bool {
    memchr::memmem::find(text, what).is_some()
}

/// Whole seconds since 1970.
#[expect(clippy::cast_precision_loss, reason = "exact for 285 million years")]
pub(super) fn seconds(time: i64) -> f64 {
    time as f64
}
