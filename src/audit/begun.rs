//! The line that says what runs in a session. It is written when the session begins; lines about requests name the session alone.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::RECORDS;

/// The `kind` of such a line.
pub const SESSION: &str = "session";

/// A session that begins.
#[derive(Clone, Debug)]
pub struct Begun {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub time: f64,
    /// Its id.
    pub session: String,
    /// The command's name.
    pub agent: String,
    /// The project directory.
    pub project: String,
}

/// Its line.
#[derive(Debug, Serialize)]
pub struct Line<'a> {
    session: &'a str,
    host: &'a str,
    time: f64,
    kind: &'a str,
    agent: &'a str,
    project: &'a str,
}

impl Begun {
    /// The line about it, on this node.
    pub fn line<'a>(&'a self, host: &'a str) -> Line<'a> {
        Line {
            session: &self.session,
            host,
            time: self.time,
            kind: SESSION,
            agent: &self.agent,
            project: &self.project,
        }
    }

    /// Writes it into this node's file of the record below the state directory. The chaperon begins new files.
    ///
    /// # Errors
    /// The directory cannot be made, or the file not be written.
    pub fn write(&self, state: &Path) -> io::Result<()> {
        let host = nix::unistd::gethostname()?;
        let host = host.to_string_lossy();
        let mut text = serde_json::to_vec(&self.line(&host))?;
        text.push(b'\n');
        let directory = state.join(RECORDS);
        let path = directory.join(format!("{host}.jsonl"));
        let mut file = match open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut builder = DirBuilder::new();
                builder.recursive(true).mode(0o700).create(&directory)?;
                open(&path)?
            }
            opened => opened?,
        };
        file.write_all(&text)
    }
}

/// `O_NONBLOCK`: what stands there may be no file.
fn open(path: &Path) -> io::Result<File> {
    File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// Seconds since 1970-01-01 00:00 UTC.
pub fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}
