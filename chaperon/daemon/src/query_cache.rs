//! Answers of Slurm's that all sessions of a user on a node share for a short time: of many who ask the same,
//! one asks Slurm, and the others wait for its answer.
//!
//! They stand in files of a directory that no jail has. What is shared is what Slurm said, before it is filtered: each
//! session filters it for its own scope. An answer is taken only for the very question that it was given to: command,
//! arguments and the whole environment stand in the file. Where anything is not as it should be, each asks Slurm.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: files that chaperons share, and the time"
)]

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, SystemTime};

use agent_sandbox_wire::message::End;
use agent_sandbox_wire::order;
use bstr::ByteSlice;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat, mkdirat};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{LinkatFlags, UnlinkatFlags, linkat, unlinkat};
use serde::{Deserialize, Serialize};

use crate::locks;

/// The directory below the user's own on this node.
const DIRECTORY: &str = "queries";
/// One byte of it is locked for each question that is asked.
const LOCK: &str = "lock";
/// What stands in it differs after each change.
const CHANGES: &str = "changes";
/// Makes names of files and numbers of locks, which others can see, say nothing of what is asked.
const KEY: &str = "key";
/// Its length in bytes.
const KEY_LENGTH: usize = 16;

/// A longer answer is not shared, in bytes: some 50,000 lines of squeue.
const LONGEST: usize = 8 << 20;
/// What all answers may take, in bytes.
const MOST_BYTES: u64 = 64 << 20;
/// How many there may be.
const MOST_ANSWERS: usize = 1000;
/// An answer that is this much older than it may be is removed.
const KEPT: Duration = Duration::from_secs(60);

/// How long to wait for another's answer. It may take as long as Slurm takes; whoever was stopped is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks for it, first and then.
const AGAIN: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// An answer as it is kept.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    question: Vec<u8>,
    /// What stands between its columns: each session has its own.
    mark: String,
    /// What stood in [`CHANGES`] when it was asked.
    changes: u64,
    /// When it was asked, in microseconds since this boot.
    asked: u64,
    /// How the command ended.
    pub end: End,
    /// How long both are; they stand behind the rest.
    lengths: [usize; 2],
    /// Its standard output.
    #[serde(skip)]
    pub output: Vec<u8>,
    /// Its standard error.
    #[serde(skip)]
    pub error: Vec<u8>,
}

/// What [`QueryCache::find`] found.
pub enum Found {
    /// An answer that is good enough.
    Answer(Answer),
    /// None: Slurm has to be asked, and then the others may be told.
    Nothing(Option<Place>),
}

/// A place for an answer. Others wait for it as long as it is held.
pub struct Place {
    question: Vec<u8>,
    name: String,
    asked: Option<(u64, u64)>,
    _lock: File,
}

/// The answers.
#[derive(Debug)]
pub struct QueryCache {
    shared: Option<Shared>,
    mark: String,
    /// When the session began, and when it last changed something, since this boot.
    begun: Duration,
    changed: Cell<Option<Duration>>,
}

#[derive(Debug)]
struct Shared {
    directory: OwnedFd,
    key: Vec<u8>,
    age: Duration,
    /// Names this boot: times are of it.
    boot: Vec<u8>,
}

impl QueryCache {
    /// By the launcher's order. Without one, or where there can be none, nothing is shared. `mark` is what this session
    /// asks to stand between columns.
    pub fn new(order: Option<&order::QueryCache>, uid: u32, mark: &str) -> Self {
        let shared = order.and_then(|order| {
            Shared::open(order, uid)
                .inspect_err(
                    |error| tracing::debug!(target: "slurm", %error, "answers are not shared"),
                )
                .ok()
        });
        Self {
            shared,
            mark: mark.to_owned(),
            begun: now(),
            changed: Cell::default(),
        }
    }

    /// Slurm is about to be told to change something, or was told: what was said before is no answer any more.
    pub fn change(&self) {
        let Some(shared) = &self.shared else { return };
        self.changed.set(Some(now()));
        if let Err(error) = shared.change() {
            tracing::debug!(target: "slurm", %error, "other sessions are told late of a change");
        }
    }

    /// Looks for an answer, and waits while somebody else asks.
    pub async fn find<'a>(
        &self,
        command: &OsStr,
        arguments: &[OsString],
        environment: impl Iterator<Item = (&'a OsStr, &'a OsStr)>,
    ) -> Found {
        let Some(shared) = &self.shared else {
            return Found::Nothing(None);
        };
        let question = shared.question(command, arguments, environment, &self.mark);
        let mut hasher = DefaultHasher::new();
        hasher.write(&shared.key);
        hasher.write(&question);
        let hash = hasher.finish();
        let name = format!("{hash:016x}");
        let Ok(file) = shared.lock_file() else {
            return Found::Nothing(None);
        };
        let begun = now();
        let mut pause = AGAIN;
        let mut locked = false;
        let mut seen = None;
        loop {
            // Looked for once more under the lock: it may have come before that. What was none will be none.
            let answer = shared.read(&name, &mut seen).ok().flatten();
            let good = |answer: &Answer| answer.question == question && self.is_good(answer, begun);
            if let Some(answer) = answer.filter(good) {
                return Found::Answer(answer.between(&self.mark));
            }
            if locked {
                return Found::Nothing(Some(Place {
                    question,
                    name,
                    asked: None,
                    _lock: file,
                }));
            }
            // An offset is no negative number.
            match locks::try_lock_byte(&file, (hash >> 2).cast_signed()) {
                Ok(true) => locked = true,
                Ok(false) if now().saturating_sub(begun) < PATIENCE => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                _ => return Found::Nothing(None),
            }
        }
    }

    /// Whether an answer is one for who asks since `begun`: it was asked for after that, or is young enough; and nobody
    /// has changed anything since it was asked.
    fn is_good(&self, answer: &Answer, begun: Duration) -> bool {
        let Some(shared) = &self.shared else {
            return false;
        };
        let now = now();
        let asked = Duration::from_micros(answer.asked);
        let young = |since: Duration| now.saturating_sub(since) <= shared.age;
        // A job that this session asked for may come after the command that asked began. Nor does a session see what was
        // before it: its job may have been pending then.
        let before = asked >= self.begun && !self.changed.get().is_some_and(young);
        let in_time = asked >= begun || before && young(asked);
        asked <= now && in_time && shared.changes().is_ok_and(|now| now == answer.changes)
    }

    /// Slurm is asked now.
    pub fn asked(&self, place: &mut Place) {
        let changes = self.shared.as_ref().map(Shared::changes);
        let asked = u64::try_from(now().as_micros()).unwrap_or(u64::MAX);
        place.asked = changes.and_then(Result::ok).map(|changes| (changes, asked));
    }

    /// The session is over. Who still wants an answer asks again; nothing is left of the last session.
    pub fn clear(&self) {
        if let Some(shared) = &self.shared {
            let _ = shared.clean(true);
        }
    }

    /// Whether an answer of so many bytes would be shared.
    pub fn takes(bytes: usize) -> bool {
        bytes <= LONGEST
    }

    /// Keeps what was said.
    pub fn keep(&self, place: Place, end: End, output: Vec<u8>, error: Vec<u8>) {
        let (Some(shared), Some((changes, asked))) = (&self.shared, place.asked) else {
            return;
        };
        // How a command was stopped is not what Slurm said.
        if !matches!(end, End::Code(_)) || !Self::takes(output.len() + error.len()) {
            return;
        }
        let answer = Answer {
            question: place.question,
            mark: self.mark.clone(),
            changes,
            asked,
            end,
            lengths: [output.len(), error.len()],
            output,
            error,
        };
        if let Err(error) = shared.write(&place.name, &answer) {
            tracing::debug!(target: "slurm", %error, "an answer is not shared");
        }
    }
}

impl Answer {
    /// With this mark in place of the asker's.
    fn between(mut self, mark: &str) -> Self {
        if self.mark != mark {
            self.output = replaced(&self.output, &self.mark, mark.as_bytes());
            self.error = replaced(&self.error, &self.mark, mark.as_bytes());
        }
        self
    }
}

impl Shared {
    fn open(order: &order::QueryCache, uid: u32) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let above = open(OsStr::from_bytes(&order.directory), flags, Mode::empty())?;
        is_private(&above, uid)?;
        match mkdirat(&above, DIRECTORY, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let directory = openat(&above, DIRECTORY, flags, Mode::empty())?;
        is_private(&directory, uid)?;
        let shared = Self {
            directory,
            key: Vec::new(),
            age: Duration::from_secs(order.seconds.into()),
            boot: std::fs::read("/proc/sys/kernel/random/boot_id")?,
        };
        let shared = Self {
            key: shared.key()?,
            ..shared
        };
        if shared.changes().is_err() {
            shared.change()?;
        }
        Ok(shared)
    }

    /// All that makes an answer what it is. In arguments NUL, which none can hold, stands for the mark.
    fn question<'a>(
        &self,
        command: &OsStr,
        arguments: &[OsString],
        environment: impl Iterator<Item = (&'a OsStr, &'a OsStr)>,
        mark: &str,
    ) -> Vec<u8> {
        let mut all = Vec::new();
        let mut add = |word: &[u8]| {
            all.extend_from_slice(&word.len().to_le_bytes());
            all.extend_from_slice(word);
        };
        add(env!("CARGO_PKG_VERSION").as_bytes());
        add(&self.boot);
        add(command.as_bytes());
        add(&arguments.len().to_le_bytes());
        for word in arguments {
            add(&replaced(word.as_bytes(), mark, b"\0"));
        }
        for (name, value) in environment {
            add(name.as_bytes());
            add(value.as_bytes());
        }
        all
    }

    /// A file of the directory, if it is one that a chaperon may have made.
    fn file(&self, name: &str, flags: OFlag) -> io::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let file = File::from(openat(&self.directory, name, flags, mode)?);
        let found = file.metadata()?;
        let ours = found.is_file()
            && found.uid() == nix::unistd::geteuid().as_raw()
            && found.mode() & 0o077 == 0;
        ours.then_some(file)
            .ok_or(io::ErrorKind::PermissionDenied.into())
    }

    fn lock_file(&self) -> io::Result<File> {
        self.file(LOCK, OFlag::O_RDWR | OFlag::O_CREAT)
    }

    fn changes(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file(CHANGES, OFlag::O_RDONLY)?
            .read_exact_at(&mut bytes, 0)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn change(&self) -> io::Result<()> {
        // Whoever else writes at the same moment writes something new as well.
        let new = RandomState::new().build_hasher().finish();
        self.file(CHANGES, OFlag::O_WRONLY | OFlag::O_CREAT)?
            .write_all_at(&new.to_le_bytes(), 0)
    }

    /// The key of all sessions; a new one if there is none.
    fn key(&self) -> io::Result<Vec<u8>> {
        if let Err(error) = self.file(KEY, OFlag::O_RDONLY) {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(error);
            }
            let half = || RandomState::new().build_hasher().finish().to_le_bytes();
            // It appears whole, and only once.
            let temporary = self.temporary(&[half(), half()].concat())?;
            let linked = linkat(
                &self.directory,
                temporary.as_str(),
                &self.directory,
                KEY,
                LinkatFlags::empty(),
            );
            self.remove(&temporary);
            match linked {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let mut key = vec![0; KEY_LENGTH];
        self.file(KEY, OFlag::O_RDONLY)?.read_exact(&mut key)?;
        Ok(key)
    }

    /// An answer, if it is not the file that was `seen`.
    fn read(&self, name: &str, seen: &mut Option<(u64, u64)>) -> io::Result<Option<Answer>> {
        let file = self.file(name, OFlag::O_RDONLY)?;
        let found = file.metadata()?;
        // The number of a file that was removed comes round again, and hardly so at once.
        let id = (found.ino(), found.ctime_nsec().cast_unsigned());
        // What stands around an answer is its question, which is no longer than a command line.
        let longest = 2 * LONGEST as u64;
        if seen.replace(id) == Some(id) || found.len() > longest {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        file.take(longest).read_to_end(&mut bytes)?;
        let whole = || {
            let (mut answer, rest) = postcard::take_from_bytes::<Answer>(&bytes).ok()?;
            let (output, error) = rest.split_at_checked(answer.lengths[0])?;
            answer.output = output.to_vec();
            answer.error = error.to_vec();
            (error.len() == answer.lengths[1]).then_some(answer)
        };
        Ok(whole())
    }

    fn write(&self, name: &str, answer: &Answer) -> io::Result<()> {
        let failed = |error: postcard::Error| io::Error::other(error.to_string());
        let mut bytes = postcard::to_allocvec(answer).map_err(failed)?;
        bytes.extend_from_slice(&answer.output);
        bytes.extend_from_slice(&answer.error);
        let left = self.clean(false)?;
        if bytes.len() as u64 > left {
            return Ok(());
        }
        let temporary = self.temporary(&bytes)?;
        let moved = renameat(&self.directory, temporary.as_str(), &self.directory, name);
        if let Err(errno) = moved {
            self.remove(&temporary);
            return Err(errno.into());
        }
        Ok(())
    }

    /// A new file with this content; its name.
    fn temporary(&self, content: &[u8]) -> io::Result<String> {
        let name = format!("{:016x}.new", RandomState::new().build_hasher().finish());
        let mut file = self.file(&name, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL)?;
        if let Err(error) = file.write_all(content) {
            self.remove(&name);
            return Err(error);
        }
        Ok(name)
    }

    fn remove(&self, name: &str) {
        let _ = unlinkat(&self.directory, name, UnlinkatFlags::NoRemoveDir);
    }

    /// Removes what is old, or all; how many bytes there is room for.
    fn clean(&self, all: bool) -> io::Result<u64> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut left = MOST_BYTES;
        let mut answers = 0;
        let clock = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        for entry in Dir::openat(&self.directory, ".", flags, Mode::empty())?.iter() {
            let entry = entry?;
            let name = entry.file_name();
            if [LOCK, CHANGES, KEY, ".", ".."]
                .iter()
                .any(|own| own.as_bytes() == name.to_bytes())
            {
                continue;
            }
            let Ok(found) = fstatat(&self.directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) else {
                continue;
            };
            let written = Duration::from_secs(u64::try_from(found.st_mtime).unwrap_or(0));
            // By whatever clock: one that was set only makes room.
            if all || written > clock + KEPT || written + self.age + KEPT < clock {
                let _ = unlinkat(&self.directory, name, UnlinkatFlags::NoRemoveDir);
                continue;
            }
            answers += 1;
            left = left.saturating_sub(u64::try_from(found.st_size).unwrap_or(0));
        }
        Ok(if answers < MOST_ANSWERS { left } else { 0 })
    }
}

/// The text with something else wherever the mark stands.
fn replaced(text: &[u8], mark: &str, by: &[u8]) -> Vec<u8> {
    text.split_str(mark).collect::<Vec<_>>().join(by)
}

/// Whether a directory is the user's alone.
fn is_private(directory: &OwnedFd, uid: u32) -> io::Result<()> {
    let found = fstat(directory)?;
    let directory = found.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits();
    let private = directory && found.st_uid == uid && found.st_mode & 0o7777 == 0o700;
    private
        .then_some(())
        .ok_or(io::ErrorKind::PermissionDenied.into())
}

/// Since this boot, also while the machine slept (`clock_gettime(2)`): nobody sets this clock.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .map(Duration::from)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
