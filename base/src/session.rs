//! Sessions: their ids, and the record of those that run on this node.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it keeps records in files"
)]

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::kill;
use nix::unistd::{Pid, geteuid};
use serde::{Deserialize, Serialize};

/// Letters and digits that are not mistaken for one another (Crockford's base 32).
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// 40 bits: among a thousand sessions of one user two alike are one in two million.
const ID_LENGTH: usize = 8;
/// No record is longer; a longer file is none of ours.
const LONGEST_RECORD: u64 = 64 * 1024;

/// Held while sessions are counted, beside their records.
const LOCK: &str = "lock";

/// What the name of a session's socket ends in: on it somebody outside asks something of the session while it runs.
pub const SOCKET: &str = "socket";

/// A new session id.
///
/// # Errors
/// `/dev/urandom` cannot be read.
pub fn new_id() -> Result<String> {
    let mut random = [0u8; ID_LENGTH];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .context("cannot read /dev/urandom")?;
    Ok(random
        .iter()
        .map(|&byte| char::from(ALPHABET[usize::from(byte % 32)]))
        .collect())
}

/// 128 random bits, as hexadecimal digits.
///
/// # Errors
/// As [`new_id`].
pub fn random_letters() -> Result<String> {
    let mut random = [0u8; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .context("cannot read /dev/urandom")?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What is recorded of a session. Arguments of the command are not: people put secrets there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The session's id.
    pub id: String,
    /// The launcher's pid.
    pub pid: u32,
    /// When the launcher was started, in clock ticks since boot (`proc_pid_stat(5)`, field 22);
    /// with the pid it names one process.
    pub start_ticks: u64,
    /// The kernel's id of this boot (`/proc/sys/kernel/random/boot_id`): says which node, too.
    pub boot: String,
    /// The name of the node.
    pub host: String,
    /// Seconds since 1970-01-01 00:00 UTC.
    pub started: u64,
    /// The project directory.
    pub project: PathBuf,
    /// The command's name.
    pub command: String,
    /// Sockets at which ports inside are reached.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub forward: BTreeMap<u16, PathBuf>,
}

/// What a launcher knows of its session.
#[derive(Debug)]
pub struct Running<'a> {
    /// The session's id.
    pub id: &'a str,
    /// The project directory.
    pub project: &'a Path,
    /// The command's name.
    pub command: &'a str,
    /// Sockets at which ports inside are reached.
    pub forward: BTreeMap<u16, PathBuf>,
}

/// The directory of the records: `$XDG_RUNTIME_DIR`, which is the node's own and in memory, else
/// the state directory.
pub fn directory(uid: u32, state: &Path) -> PathBuf {
    let runtime = PathBuf::from(format!("/run/user/{uid}"));
    match std::fs::metadata(&runtime) {
        Ok(meta) if meta.is_dir() && meta.uid() == uid && meta.mode() & 0o077 == 0 => {
            runtime.join("agent-sandbox/sessions")
        }
        _ => state.join("sessions"),
    }
}

/// A record that is removed when the session ends.
#[derive(Debug)]
pub struct Registered {
    path: PathBuf,
}

impl Registered {
    /// Records this process as the launcher of a session, if no more than `most` run on this node then; else those that
    /// do are the answer.
    ///
    /// # Errors
    /// The directory or the file cannot be written, or be locked to count.
    pub fn within(
        most: u32,
        directory: &Path,
        new: Running<'_>,
    ) -> Result<std::result::Result<Self, Vec<Record>>> {
        let _alone = lock(directory)?;
        let others = running(directory)?;
        if others.len() >= usize::try_from(most).unwrap_or(usize::MAX) {
            return Ok(Err(others));
        }
        Ok(Ok(Self::new(directory, new)?))
    }

    /// Records this process as the launcher of a session.
    ///
    /// # Errors
    /// The directory or the file cannot be written.
    pub fn new(directory: &Path, running: Running<'_>) -> Result<Self> {
        let failed = || format!("cannot record the session in `{}`", directory.display());
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .with_context(failed)?;
        let pid = std::process::id();
        let record = Record {
            id: running.id.to_owned(),
            pid,
            start_ticks: start_ticks(pid).unwrap_or(0),
            boot: boot(),
            host: nix::unistd::gethostname()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default(),
            started: now(),
            project: running.project.to_string_lossy().into_owned().into(),
            command: running.command.to_owned(),
            forward: running.forward,
        };
        // A project's name need not be UTF-8, and a record that fails leaves no file behind.
        let text = serde_json::to_string(&record)?;
        let path = directory.join(format!("{}.json", running.id));
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .with_context(failed)?;
        let registered = Self { path };
        file.write_all(text.as_bytes()).with_context(failed)?;
        Ok(registered)
    }
}

/// Waits until nobody else counts the sessions. The lock goes with the answer, and with the process.
fn lock(directory: &Path) -> Result<Flock<std::fs::File>> {
    let failed = || format!("cannot count the sessions in `{}`", directory.display());
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .with_context(failed)?;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(directory.join(LOCK))
        .with_context(failed)?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .with_context(failed)
}

impl Drop for Registered {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(self.path.with_extension(SOCKET));
    }
}

/// The sessions of this process's user that run on this node, oldest first. Records of launchers of this node that are
/// gone, or another user's process, are removed: who reads for somebody else becomes that user before.
///
/// # Errors
/// The directory exists and cannot be read.
pub fn running(directory: &Path) -> Result<Vec<Record>> {
    let mut all = Vec::new();
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        // A home that is no directory (`/dev/null`) has no records either.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(all);
        }
        Err(error) => bail!("cannot read `{}`: {error}", directory.display()),
    };
    let boot = boot();
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let Some(record) = read(&path) else { continue };
        if record.boot == boot {
            match launcher(&record) {
                Launcher::Runs => all.push(record),
                Launcher::Unknown => {}
                Launcher::Gone => {
                    let _ = std::fs::remove_file(&path);
                    let _ = std::fs::remove_file(path.with_extension(SOCKET));
                }
            }
        }
    }
    all.sort_unstable_by_key(|record| (record.started, record.pid));
    Ok(all)
}

/// What is known of the process that a record names.
enum Launcher {
    Runs,
    Gone,
    /// Another user's has its number, or it cannot be signalled from here.
    Unknown,
}

/// `/proc` may not show it (`hidepid`, `proc(5)`; no descriptor left to read it with): then the kernel is asked by a signal that
/// is none (`kill(2)`).
fn launcher(record: &Record) -> Launcher {
    // The number can be another user's process by now.
    if real_user(record.pid).is_some_and(|uid| uid != geteuid().as_raw()) {
        return Launcher::Gone;
    }
    match start_ticks(record.pid) {
        Some(ticks) if ticks == record.start_ticks => return Launcher::Runs,
        Some(_) => return Launcher::Gone,
        None => {}
    }
    let pid = i32::try_from(record.pid).ok().filter(|pid| *pid > 0);
    match pid.map(|pid| kill(Pid::from_raw(pid), None)) {
        Some(Ok(())) => Launcher::Runs,
        None | Some(Err(Errno::ESRCH)) => Launcher::Gone,
        Some(Err(_)) => Launcher::Unknown,
    }
}

fn read(path: &Path) -> Option<Record> {
    let mut text = Vec::new();
    std::fs::File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .ok()?
        .take(LONGEST_RECORD)
        .read_to_end(&mut text)
        .ok()?;
    serde_json::from_slice(&text).ok()
}

/// Seconds since 1970-01-01 00:00 UTC.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// The kernel's id of this boot: says which node, too.
pub fn boot() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

impl Record {
    /// Whether the process that a record names is that user's, who wrote the record and may name any. When it started is
    /// not looked at: the user can name any of the own ones, and can keep whoever reads that waiting ([`start_ticks`]).
    pub fn is_of(&self, uid: u32) -> bool {
        real_user(self.pid) == Some(uid)
    }
}

/// The real user id of a process (`proc_pid_status(5)`); `None` if there is none.
fn real_user(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().next()?.parse().ok()
}

/// When a process was started, in clock ticks since boot: field 22 of `/proc/PID/stat` (proc_pid_stat(5)); `None` if there
/// is none. The second field, the command, may hold spaces and parentheses. The kernel does not say it while the process executes
/// a program, and a file system's server can make that take for ever (docs/decisions/0060): only one's own processes are asked.
pub fn start_ticks(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}
