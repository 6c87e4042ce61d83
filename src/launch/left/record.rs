//! What is known of a project between its sessions: which files that programs outside obey stood there
//! before any of its sessions began, what an agent's notes replaced, and what was set aside. It stands in the
//! project's store, outside of every jail.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, openat, renameat};
use nix::sys::stat::Mode;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::look::Mark;
use crate::launch::ways;
use crate::plan::build::obeyed::Care;
use crate::session;
use crate::sys::paths::by_descriptor;

/// Its name in the store.
const NAME: &str = "left.json";
/// Held while a record is read, and written anew.
const LOCK: &str = "left.lock";
/// How long a launch waits for another one that looks. On a file system whose locks hang it goes on without.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// No record is larger, in bytes: as many files as a walk finds, and as are kept, with their paths. A byte of a path
/// takes up to six.
const LARGEST: u64 = 64 << 20;
/// Another version's record is none.
const VERSION: u32 = 1;

/// A path below the project, as JSON: a text, or a list of numbers where it is no UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Below(pub(super) PathBuf);

impl Serialize for Below {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => to.serialize_str(text),
            None => to.collect_seq(self.0.as_os_str().as_bytes()),
        }
    }
}

impl<'de> Deserialize<'de> for Below {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Text(String),
            Bytes(Vec<u8>),
        }
        let bytes = match Either::deserialize(from)? {
            Either::Text(text) => text.into_bytes(),
            Either::Bytes(bytes) => bytes,
        };
        Ok(Self(OsString::from_vec(bytes).into()))
    }
}

/// The user's own text in the place of an agent's notes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Own {
    pub(super) path: Below,
    pub(super) text: String,
    pub(super) mode: u32,
    /// When the user changed it, in seconds and nanoseconds.
    pub(super) modified: (i64, i64),
}

impl Own {
    /// The same as the system has it.
    fn changed(&self) -> Option<SystemTime> {
        let (seconds, more) = self.modified;
        let since = Duration::new(seconds.try_into().ok()?, more.try_into().ok()?);
        Some(UNIX_EPOCH + since)
    }

    /// Writes it where it stood, as old as it was: the newer of it and an agent's notes counts.
    ///
    /// # Errors
    /// As [`replace`].
    pub(super) fn write(&self, directory: &OwnedFd, name: &OsStr) -> Result<()> {
        let (text, mode) = (self.text.as_bytes(), self.mode);
        write_new(directory, name, text, (mode, self.changed()))
    }
}

/// A session that has begun and not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Open {
    pub(super) id: String,
    /// The node's boot, by [`session::boot`].
    pub(super) boot: String,
    /// When it began, in seconds since 1970-01-01 00:00 UTC.
    pub(super) since: u64,
    /// Its launcher: the pid, and when that process began, as [`session::Record`] has it.
    #[serde(default)]
    pub(super) launcher: (u32, u64),
}

impl Open {
    /// This launcher's session.
    pub(super) fn own(id: &str) -> Self {
        let pid = std::process::id();
        Self {
            id: id.to_owned(),
            boot: session::boot(),
            since: session::now(),
            launcher: (pid, session::start_ticks(pid).unwrap_or(0)),
        }
    }

    /// Whether its launcher runs, of a session of this node. It begins here before it is recorded as one that runs.
    pub(super) fn runs(&self) -> bool {
        let (pid, began) = self.launcher;
        pid != 0 && session::start_ticks(pid) == Some(began)
    }
}

/// The record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) version: u32,
    /// Sessions that have begun here and not ended.
    pub(super) open: Vec<Open>,
    /// What stood there before they began.
    pub(super) known: Vec<(Below, Mark)>,
    /// Directories that did not open to the launcher then.
    pub(super) closed: Vec<Below>,
    /// Whether `known` is all of it.
    pub(super) complete: bool,
    /// Of directories that lie less deep than this, it is; the project itself lies 0 deep.
    #[serde(default)]
    pub(super) levels: usize,
    /// When they began, in seconds since 1970-01-01 00:00 UTC.
    pub(super) since: u64,
    /// What is put back when they end.
    pub(super) own: Vec<Own>,
    /// What was set aside, by the name that it had.
    pub(super) aside: Vec<Below>,
    /// Whether there was more that is only said than `known` has.
    #[serde(default)]
    pub(super) more: bool,
    /// When the last session ended that had jobs, in seconds since 1970-01-01 00:00 UTC; 0 for none. They may run
    /// on, and what is new may be theirs.
    #[serde(default)]
    pub(super) jobs_since: u64,
    /// Of what was set aside, what was put back for the sessions that are open.
    pub(super) restored: Vec<(Below, Mark)>,
}

impl Record {
    /// Whether a file that is not known was not there.
    pub(super) fn knows(&self, path: &Path, care: Care) -> bool {
        let all = self.complete || path.components().count() <= self.levels;
        all && !(self.more && care == Care::Said)
    }

    /// Keeps the record for the caller alone until the answer is dropped: two sessions that end at once would each
    /// leave the look to the other.
    pub(super) fn lock(store: &OwnedFd) -> Option<Flock<OwnedFd>> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut file = openat(store, LOCK, flags, Mode::S_IRUSR | Mode::S_IWUSR).ok()?;
        let until = Instant::now() + LONGEST_WAIT;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Some(lock),
                Err((again, Errno::EWOULDBLOCK | Errno::EINTR)) if Instant::now() < until => {
                    file = again;
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(_) => return None,
            }
        }
    }

    /// Reads it; an empty one where there is none that this version understands.
    pub(super) fn read(store: &OwnedFd) -> Self {
        let file = ways::regular(store, NAME.as_ref(), OFlag::O_RDONLY);
        let Ok(Some(file)) = file else {
            return Self::default();
        };
        let text = file.content(LARGEST).ok().flatten().unwrap_or_default();
        let read: Option<Self> = serde_json::from_slice(&text).ok();
        read.filter(|record| record.version == VERSION)
            .unwrap_or_default()
    }

    /// Writes it.
    ///
    /// # Errors
    /// What writing a file answers.
    pub(super) fn write(&mut self, store: &OwnedFd) -> Result<()> {
        self.version = VERSION;
        let text = serde_json::to_vec(self)?;
        replace(store, NAME.as_ref(), &text).with_context(|| {
            let store = std::fs::read_link(by_descriptor(store)).unwrap_or_default();
            format!(
                "cannot note what stands in the project, in `{}`",
                store.display()
            )
        })
    }

    /// What was known, by its path.
    pub(super) fn marks(&self) -> BTreeMap<&Path, Mark> {
        by_path(&self.known)
    }

    /// What was put back, by its path.
    pub(super) fn put_back(&self) -> BTreeMap<&Path, Mark> {
        by_path(&self.restored)
    }
}

fn by_path(all: &[(Below, Mark)]) -> BTreeMap<&Path, Mark> {
    all.iter()
        .map(|(path, mark)| (path.0.as_path(), *mark))
        .collect()
}

/// Writes a file at once and as a whole, in the place of whatever has the name and is no directory.
///
/// # Errors
/// What the kernel answers.
pub(in crate::launch) fn replace(directory: &OwnedFd, name: &OsStr, text: &[u8]) -> Result<()> {
    write_new(directory, name, text, (0o600, None))
}

fn write_new(
    directory: &OwnedFd,
    name: &OsStr,
    text: &[u8],
    (mode, changed): (u32, Option<SystemTime>),
) -> Result<()> {
    let temporary = format!(".agent-sandbox-{}", session::new_id()?);
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let made = openat(
        directory,
        temporary.as_str(),
        flags,
        Mode::S_IRUSR | Mode::S_IWUSR,
    )?;
    let mut file = std::fs::File::from(made);
    let done = file
        .write_all(text)
        .and_then(|()| ways::set_mode(&file, mode))
        .and_then(|()| changed.map_or(Ok(()), |changed| file.set_modified(changed)))
        .and_then(|()| Ok(renameat(directory, temporary.as_str(), directory, name)?));
    if done.is_err() {
        let flag = nix::unistd::UnlinkatFlags::NoRemoveDir;
        let _ = nix::unistd::unlinkat(directory, temporary.as_str(), flag);
    }
    Ok(done?)
}
