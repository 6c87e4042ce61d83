//! What the chaperons recorded: one line of JSON for each request, and what Slurm itself said about
//! jobs whose jail did not start.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it reads records from files"
)]

mod begun;
pub mod files;
pub mod line;
pub mod shares;
pub mod tally;

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

pub use begun::{Begun, SESSION, now};

/// Where the chaperons of all nodes keep their records, below the state directory.
pub const RECORDS: &str = "audit";
/// Where Slurm writes what it says about jobs, below the state directory.
const MESSAGES: &str = "slurm/logs";
/// Chaperons begin a new file long before this many bytes.
const LARGEST_FILE: u64 = 64 << 20;
/// A longer message of Slurm's is cut off, in bytes.
const LONGEST_MESSAGE: u64 = 1 << 20;

/// A request of Slurm's commands from inside a jail. Never its arguments: people put secrets there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub time: f64,
    /// The session's id.
    pub session: String,
    /// The name of the node.
    pub host: String,
    /// The process that asked, as the node numbers it.
    #[serde(default)]
    pub pid: i32,
    /// The command's name.
    pub command: String,
    /// `allowed`, `refused` or `failed`.
    pub verdict: String,
    /// Why it was refused or failed.
    #[serde(default)]
    pub reason: Option<String>,
    /// `asked`, `approved`, `denied` or `withdrawn`, if it needed the user's approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<String>,
    /// The jobs that it made or touched.
    #[serde(default)]
    pub jobs: Vec<u32>,
    /// Jobs beyond those, which were too many to be named.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_jobs: u64,
    /// Refused and failed requests before this one of which there is no record, because there were
    /// too many at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suppressed: u64,
}

/// A host that a session with a filtered network wanted to reach, which the filter records once; or what its ssh agent signed for
/// a host, or did not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// [`NETWORK`] or [`SSH`].
    pub kind: String,
    /// Seconds since 1970-01-01 00:00 UTC.
    pub time: f64,
    /// The session's id.
    pub session: String,
    /// The name of the node.
    pub host: String,
    /// Whom: a name or an address. Whoever is inside chose it.
    pub name: String,
    /// Where; none: its name was looked up.
    pub port: Option<u16>,
    /// `allowed`, `refused` or `failed`.
    pub verdict: String,
    /// The rule that allows it, or why it was not reached.
    pub reason: String,
    /// The change that would open it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

/// The [`Connection::kind`] of what a filter judged. A line about something else, in the same file, says what it is about.
pub const NETWORK: &str = "network";
/// That of what an ssh agent did.
pub const SSH: &str = "ssh";

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A file with what Slurm said about a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Its path.
    pub file: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
}

impl Message {
    /// Whether a word between `-`, `_` and `.` of the file's name is this one.
    pub fn is_about(&self, word: &str) -> bool {
        let name = self.file.file_name().unwrap_or_default().to_string_lossy();
        name.split(['-', '_', '.']).any(|part| part == word)
    }

    /// What it says, cut off if it is very long.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn text(&self) -> io::Result<String> {
        let mut text = Vec::new();
        open(&self.file)?
            .take(LONGEST_MESSAGE)
            .read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Every request that was recorded, oldest first. Lines that are no records are skipped: a node may
/// have died while it wrote one.
///
/// # Errors
/// The directory exists and cannot be read.
pub fn requests(state: &Path) -> Result<Vec<Request>> {
    let mut all = records(state, |line| serde_json::from_slice::<Request>(line).ok())?;
    all.sort_by(|a, b| a.time.total_cmp(&b.time));
    Ok(all)
}

/// Every host that the filters of networks and the ssh agents recorded, oldest first.
///
/// # Errors
/// As [`requests`].
pub fn connections(state: &Path) -> Result<Vec<Connection>> {
    let mut all = records(state, |line| {
        let one: Connection = serde_json::from_slice(line).ok()?;
        [NETWORK, SSH].contains(&one.kind.as_str()).then_some(one)
    })?;
    all.sort_by(|a, b| a.time.total_cmp(&b.time));
    Ok(all)
}

/// The lines of all files of records that `read` makes something of.
fn records<T>(state: &Path, read: impl Fn(&[u8]) -> Option<T>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    for path in entries(&state.join(RECORDS))? {
        if path
            .extension()
            .is_none_or(|extension| extension != "jsonl")
        {
            continue;
        }
        let Ok(file) = open(&path) else { continue };
        let lines = BufReader::new(file.take(LARGEST_FILE)).split(b'\n');
        all.extend(
            lines
                .map_while(io::Result::ok)
                .filter_map(|line| read(&line)),
        );
    }
    Ok(all)
}

/// What Slurm said, job by job; files in which nothing stands are left out.
///
/// # Errors
/// The directory exists and cannot be read.
pub fn messages(state: &Path) -> Result<Vec<Message>> {
    let mut all = Vec::new();
    for file in entries(&state.join(MESSAGES))? {
        let bytes = std::fs::symlink_metadata(&file)
            .map_or(0, |meta| if meta.is_file() { meta.len() } else { 0 });
        if bytes > 0 {
            all.push(Message { file, bytes });
        }
    }
    Ok(all)
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        // A home that is no directory (`/dev/null`) has no records either.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => bail!("cannot read `{}`: {error}", directory.display()),
    };
    let mut all: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    all.sort_unstable();
    Ok(all)
}

fn open(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// A time as `2025-06-01T09:30:00Z` (RFC 3339). What is no time of a record, before 1970 or after the year 9999, is the nearest that is.
pub fn rfc3339(seconds: f64) -> String {
    // The cast saturates, and makes 0 of what is no number.
    let time = jiff::Timestamp::from_second(seconds.max(0.0) as i64);
    time.unwrap_or(jiff::Timestamp::MAX)
        .strftime("%FT%TZ")
        .to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (seconds, text) in [
            (0.0, "1970-01-01T00:00:00Z"),
            (951_782_399.9, "2000-02-28T23:59:59Z"),
            (951_782_400.0, "2000-02-29T00:00:00Z"),
            (1_735_689_599.0, "2024-12-31T23:59:59Z"),
            (4_107_542_400.0, "2100-03-01T00:00:00Z"),
            (-1.0, "1970-01-01T00:00:00Z"),
            (f64::INFINITY, "9999-12-30T22:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn records_of_all_nodes_in_order_and_nothing_else() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(requests(state.path()).unwrap(), []);
        let directory = state.path().join(RECORDS);
        std::fs::create_dir(&directory).unwrap();
        let line = |time: u32, host: &str| {
            format!(
                "{{\"session\":\"s1\",\"host\":\"{host}\",\"time\":{time}.5,\"pid\":7,\"command\":\"sbatch\",\
                 \"verdict\":\"allowed\",\"reason\":null,\"jobs\":[12]}}\n"
            )
        };
        let first = line(3, "n1") + &line(1, "n1") + "{\"session\":\"cut o";
        std::fs::write(directory.join("n1.jsonl"), first).unwrap();
        std::fs::write(directory.join("n2.1.jsonl"), line(2, "n2")).unwrap();
        std::fs::write(directory.join("n2.txt"), line(9, "n2")).unwrap();
        std::os::unix::fs::symlink("n1.jsonl", directory.join("n3.jsonl")).unwrap();
        let all = requests(state.path()).unwrap();
        let times: Vec<_> = all.iter().map(|request| request.time).collect();
        assert_eq!(times, [1.5, 2.5, 3.5]);
        assert_eq!(all[0].jobs, [12]);
        assert_eq!(connections(state.path()).unwrap(), []);
    }

    #[test]
    fn hosts_and_requests_stand_in_one_file() {
        let state = tempfile::tempdir().unwrap();
        let directory = state.path().join(RECORDS);
        std::fs::create_dir(&directory).unwrap();
        let begins = r#"{"session":"s1","host":"n1","time":2.5,"verdict":"refused""#;
        let lines = [
            format!(r#"{begins},"pid":7,"command":"sbatch","reason":null,"jobs":[]}}"#),
            format!(r#"{begins},"kind":"network","name":"a.org","port":null,"reason":"why"}}"#),
            format!(r#"{begins},"kind":"ssh","name":"a.org","port":22,"reason":"why"}}"#),
            format!(r#"{begins},"kind":"other","name":"a.org","port":443,"reason":"why"}}"#),
        ];
        std::fs::write(directory.join("n1.jsonl"), lines.join("\n")).unwrap();
        let found = connections(state.path()).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].kind, SSH);
        assert_eq!((found[0].name.as_str(), found[0].port), ("a.org", None));
        assert_eq!(requests(state.path()).unwrap().len(), 1);
    }

    #[test]
    fn messages_belong_to_jobs_by_their_names() {
        let state = tempfile::tempdir().unwrap();
        let directory = state.path().join(MESSAGES);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("s1-12.out"), "slurmstepd: error\n").unwrap();
        std::fs::write(directory.join("s1-13.out"), "").unwrap();
        let all = messages(state.path()).unwrap();
        assert_eq!(all.len(), 1);
        assert!(all[0].is_about("12") && all[0].is_about("s1"));
        assert!(!all[0].is_about("1") && !all[0].is_about("2"));
        assert_eq!(all[0].text().unwrap(), "slurmstepd: error\n");
    }
}
