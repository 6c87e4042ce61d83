//! The audit record: one line of JSON for each request. Never arguments, script bodies or values of
//! variables: people put secrets there.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: writes the audit record, reads the clock"
)]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use agent_sandbox_wire::message::Call;
use serde::Serialize;

/// A file of this many bytes is set aside for a new one.
const ROTATE_AT: u64 = 4 << 20;
/// Files that were set aside and are kept, per node.
const KEPT: usize = 4;
/// The longest name of a command and the longest reason in a record, in bytes. With both a record
/// stays below `PIPE_BUF`, so that lines of several chaperons do not mix.
const LONGEST_TEXT: usize = 1024;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It was carried out.
    Allowed,
    /// A rule forbids it.
    Refused,
    /// It made no sense, or could not be carried out.
    Failed,
}

/// A request, as it is recorded.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub time: f64,
    /// The process that asked, as the host numbers it.
    pub pid: i32,
    /// The command's name.
    pub command: String,
    /// What became of it.
    pub verdict: Verdict,
    /// Why it was refused or failed.
    pub reason: Option<String>,
    /// The jobs that it made or touched.
    pub jobs: Vec<u32>,
}

impl Entry {
    /// A request that has just arrived.
    pub fn new(call: &Call, pid: i32) -> Self {
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |since| since.as_secs_f64());
        Self {
            time,
            pid,
            command: String::from_utf8_lossy(&call.command).into_owned(),
            verdict: Verdict::Allowed,
            reason: None,
            jobs: Vec::new(),
        }
    }
}

/// A record of one node's requests in one session.
#[derive(Debug)]
pub struct Audit {
    directory: PathBuf,
    session: String,
    host: String,
}

#[derive(Serialize)]
struct Line<'a> {
    session: &'a str,
    host: &'a str,
    #[serde(flatten)]
    entry: &'a Entry,
}

impl Audit {
    /// The record in `directory`, of the session with this id.
    pub fn new(directory: PathBuf, session: String) -> Self {
        let host = nix::unistd::gethostname()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        Self {
            directory,
            session,
            host,
        }
    }

    /// Writes a line. A record that cannot be written (a full disk) stops no request; it is said
    /// where the chaperon's own messages go.
    pub fn write(&self, entry: &Entry) {
        if let Err(error) = self.try_write(entry) {
            eprintln!(
                "agent-sandbox-chaperon: cannot write the audit record in `{}`: {error}",
                self.directory.display()
            );
        }
    }

    fn try_write(&self, entry: &Entry) -> io::Result<()> {
        let mut entry = entry.clone();
        entry.command = shortened(&entry.command);
        entry.reason = entry.reason.as_deref().map(shortened);
        let line = Line {
            session: &self.session,
            host: &self.host,
            entry: &entry,
        };
        let mut text = serde_json::to_string(&line)?;
        text.push('\n');
        let path = self.directory.join(format!("{}.jsonl", self.host));
        let mut file = match open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(&self.directory)?;
                open(&path)?
            }
            other => other?,
        };
        if file.metadata()?.len() > ROTATE_AT {
            self.rotate(&path)?;
            file = open(&path)?;
        }
        file.write_all(text.as_bytes())
    }

    /// Two chaperons that rotate at the same time lose an old file at worst.
    fn rotate(&self, path: &Path) -> io::Result<()> {
        let aside = |number: usize| self.directory.join(format!("{}.{number}.jsonl", self.host));
        for number in (1..KEPT).rev() {
            match fs::rename(aside(number), aside(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(path, aside(1))
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

fn shortened(text: &str) -> String {
    let mut end = text.len().min(LONGEST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
