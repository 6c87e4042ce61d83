//! The audit record: one line of JSON for each request. Never arguments, script bodies or values of
//! variables: people put secrets there. Why a request was refused stands there as a code ([`Reason`]),
//! whose type has no room for what was asked for.
//!
//! A record is an event ([`AUDIT`]) that a layer of its own writes, beside the log and unfiltered. Where that layer
//! is not, the record is written all the same. Where a tracer runs, what is recorded is handed to it as well, for a record
//! that is root's ([`agent_sandbox_events::handover`]). It is never waited for.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: writes the audit record, reads the clock"
)]

mod handing;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use agent_sandbox_wire::logging::AUDIT;
use agent_sandbox_wire::message::Call;
use serde::{Serialize, Serializer};
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer};

use crate::refusal::Reason;
use handing::{Recorded, Tracer};

/// A file of this many bytes is set aside for a new one.
const ROTATE_AT: u64 = 4 << 20;
/// Files that were set aside and are kept, per node.
const KEPT: usize = 4;
/// The longest name of a command in a record, in bytes as JSON writes them. With it, and with
/// [`MOST_JOBS`] jobs, a record stays below `PIPE_BUF`, so that lines of several chaperons do not mix.
const LONGEST_NAME: usize = 64;
/// Jobs that a record names; of more it says how many they are.
const MOST_JOBS: usize = 64;
/// Requests that were not carried out and are recorded one by one, each second. Of more a record
/// says how many they were: whoever asks for nonsense again and again does not push what was done
/// out of the record.
const MOST_FAILED: u32 = 20;

/// What a [`Connection`] is about.
const NETWORK: &str = "network";
const SSH: &str = "ssh";

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

/// What became of a job that needs the user's approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Approval {
    /// It waits.
    Asked,
    /// The user approved it.
    Approved,
    /// The user denied it.
    Denied,
    /// Its time was over, or who submitted it ended.
    Withdrawn,
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
    /// Why it was refused or failed, as a code.
    #[serde(serialize_with = "as_code")]
    pub reason: Option<Reason>,
    /// Whether the user approved it, if that was needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// The jobs that it made or touched.
    pub jobs: Vec<u32>,
    /// Jobs beyond those, if they are too many to be named.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_jobs: usize,
    /// Refused and failed requests before this one of which there is no record.
    #[serde(skip_serializing_if = "is_zero")]
    pub suppressed: usize,
}

fn as_code<S: Serializer>(reason: &Option<Reason>, to: S) -> Result<S::Ok, S::Error> {
    match reason {
        Some(reason) => to.collect_str(reason),
        None => to.serialize_none(),
    }
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Entry {
    /// A request that has just arrived.
    pub fn new(call: &Call, pid: i32) -> Self {
        Self {
            time: now(),
            pid,
            command: String::from_utf8_lossy(&call.command).into_owned(),
            verdict: Verdict::Allowed,
            reason: None,
            approval: None,
            jobs: Vec::new(),
            more_jobs: 0,
            suppressed: 0,
        }
    }

    /// The command's name, of which no more is shown than a record holds.
    pub fn name(&self) -> String {
        cut(&self.command, LONGEST_NAME)
    }
}

/// A record of one node's requests in one session.
#[derive(Debug)]
pub struct Audit {
    file: Arc<AuditFile>,
    session: String,
    failed: Cell<Failed>,
    tracer: Option<RefCell<Tracer>>,
}

/// Requests that were not carried out.
#[derive(Clone, Copy, Debug, Default)]
struct Failed {
    /// The second that is counted, since 1970-01-01 00:00 UTC.
    second: u64,
    /// Those of this second.
    count: u32,
    /// Those that were not recorded, since the last record.
    suppressed: usize,
}

#[derive(Serialize)]
struct Line<'a, T> {
    session: &'a str,
    host: &'a str,
    #[serde(flatten)]
    entry: &'a T,
}

/// What the network's filter judged, or the ssh agent. Names of hosts are what is inside chose; the filter bounds them and their number.
#[derive(Debug, Serialize)]
pub struct Connection<'a> {
    time: f64,
    kind: &'static str,
    name: &'a str,
    port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inside: Option<Ipv4Addr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<&'a str>,
    verdict: Verdict,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<&'a str>,
}

impl<'a> Connection<'a> {
    /// One that was judged just now, from a session or a step of a job of it; without a port its name was looked up.
    pub fn new(
        (name, port): (&'a str, Option<u16>),
        step: Option<&'a (u32, String)>,
        verdict: Verdict,
        reason: String,
    ) -> Self {
        Self {
            time: now(),
            kind: NETWORK,
            name,
            port,
            inside: None,
            job: step.map(|(job, _)| *job),
            step: step.map(|(_, name)| name.as_str()),
            verdict,
            reason,
            change: None,
        }
    }

    /// With the address that stands for its host inside, if one does.
    #[must_use]
    pub fn known_as(self, inside: Option<Ipv4Addr>) -> Self {
        Self { inside, ..self }
    }

    /// Of the ssh agent's: what it signed, or did not.
    #[must_use]
    pub fn of_ssh(self) -> Self {
        Self { kind: SSH, ..self }
    }

    /// With the change that would open it, if there is one.
    #[must_use]
    pub fn changed_by(self, change: Option<&'a str>) -> Self {
        Self { change, ..self }
    }
}

impl Audit {
    /// The record in `directory`, of the session with this id.
    pub fn new(directory: PathBuf, session: String) -> Self {
        let host = nix::unistd::gethostname()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let taken = AtomicU64::default();
        Self {
            file: Arc::new(AuditFile {
                directory,
                host,
                taken,
            }),
            session,
            failed: Cell::default(),
            tracer: None,
        }
    }

    /// Hands over what it records to the tracer at this socket, if there is one.
    #[must_use]
    pub fn handed_to(self, socket: Option<&[u8]>) -> Self {
        let tracer = socket.map(|socket| Tracer::at(Path::new(OsStr::from_bytes(socket))));
        Self {
            tracer: tracer.map(RefCell::new),
            ..self
        }
    }

    /// The layer that writes it.
    pub fn layer(&self) -> AuditLayer {
        AuditLayer(Arc::clone(&self.file))
    }

    /// Writes a line. A record that cannot be written (a full disk) stops no request; it is said
    /// where the chaperon's own messages go.
    pub fn write(&self, entry: &Entry) {
        let mut entry = shortened(entry);
        if self.is_one_too_many(&entry) {
            return;
        }
        let mut failed = self.failed.get();
        entry.suppressed = std::mem::take(&mut failed.suppressed);
        self.failed.set(failed);
        self.put(&entry);
    }

    /// Says how many requests there is no record of, if any; for the end of the session.
    pub fn close(&self) {
        let suppressed = self.failed.take().suppressed;
        if suppressed > 0 {
            self.put(&Entry {
                time: now(),
                pid: 0,
                command: String::new(),
                verdict: Verdict::Failed,
                reason: None,
                approval: None,
                jobs: Vec::new(),
                more_jobs: 0,
                suppressed,
            });
        }
    }

    /// Counts requests that were not carried out.
    fn is_one_too_many(&self, entry: &Entry) -> bool {
        if entry.verdict == Verdict::Allowed {
            return false;
        }
        let mut failed = self.failed.get();
        let second = now() as u64;
        if failed.second != second {
            failed.second = second;
            failed.count = 0;
        }
        failed.count = failed.count.saturating_add(1);
        let over = failed.count > MOST_FAILED;
        failed.suppressed += usize::from(over);
        self.failed.set(failed);
        over
    }

    /// Writes a line about a connection.
    pub fn note(&self, connection: &Connection<'_>) {
        self.put(connection);
    }

    fn put<T: Recorded>(&self, entry: &T) {
        if let Some(tracer) = &self.tracer {
            tracer.borrow_mut().hand(&self.session, entry);
        }
        let line = Line {
            session: &self.session,
            host: &self.file.host,
            entry,
        };
        let record = match serde_json::to_string(&line) {
            Ok(record) => record,
            Err(error) => return self.file.complain(&error.into()),
        };
        let before = self.file.taken.load(Ordering::Relaxed);
        tracing::info!(target: AUDIT, record = record.as_str());
        if self.file.taken.load(Ordering::Relaxed) == before {
            self.file.write(&record);
        }
    }
}

/// Writes records.
#[derive(Debug)]
pub struct AuditLayer(Arc<AuditFile>);

impl<S: Subscriber> Layer<S> for AuditLayer {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        event.record(&mut Written(&self.0));
    }
}

/// Takes the record out of an event.
struct Written<'a>(&'a AuditFile);

impl Visit for Written<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "record" {
            self.0.write(value);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

/// The file of a record, on this node.
#[derive(Debug)]
struct AuditFile {
    directory: PathBuf,
    host: String,
    /// Records that were taken.
    taken: AtomicU64,
}

impl AuditFile {
    fn write(&self, record: &str) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.try_write(record) {
            self.complain(&error);
        }
    }

    fn complain(&self, error: &io::Error) {
        // Standard error may be on the same full disk. `eprintln!` would end the chaperon at that.
        let _ = writeln!(
            io::stderr(),
            "agent-sandbox-chaperon: cannot write the audit record in `{}`: {error}",
            self.directory.display()
        );
    }

    fn try_write(&self, record: &str) -> io::Result<()> {
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
        file.write_all(format!("{record}\n").as_bytes())
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

/// Seconds since 1970-01-01 00:00 UTC.
pub(crate) fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

/// The entry as it has room in a line. What a request holds does not tell how long it is there.
fn shortened(entry: &Entry) -> Entry {
    let mut seen = BTreeSet::new();
    let first = entry.jobs.iter().filter(|&&job| seen.insert(job));
    let jobs: Vec<u32> = first.copied().take(MOST_JOBS).collect();
    let all: BTreeSet<u32> = entry.jobs.iter().copied().collect();
    Entry {
        command: cut(&entry.command, LONGEST_NAME),
        more_jobs: all.len() - jobs.len(),
        jobs,
        ..*entry
    }
}

/// The beginning of a text of which JSON makes so many bytes.
fn cut(text: &str, most: usize) -> String {
    let mut bytes = 0;
    let fits = |c: &char| {
        bytes += match c {
            '"' | '\\' => 2,
            // `\u0001`, at most.
            c if c.is_control() => 6,
            c => c.len_utf8(),
        };
        bytes <= most
    };
    text.chars().take_while(fits).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;

    fn entry(verdict: Verdict) -> Entry {
        Entry {
            time: now(),
            pid: 1,
            command: "squeue".into(),
            verdict,
            reason: None,
            approval: None,
            jobs: Vec::new(),
            more_jobs: 0,
            suppressed: 0,
        }
    }

    struct ScratchDirectory(PathBuf);

    impl ScratchDirectory {
        fn new(name: &str) -> Self {
            let name = format!("chaperon-audit-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn lines(&self) -> Vec<serde_json::Value> {
            let mut text = String::new();
            for file in fs::read_dir(&self.0).unwrap() {
                text += &fs::read_to_string(file.unwrap().path()).unwrap();
            }
            text.lines()
                .map(|line| {
                    assert!(line.len() < libc::PIPE_BUF, "{}", line.len());
                    serde_json::from_str(line).unwrap()
                })
                .collect()
        }
    }

    impl Drop for ScratchDirectory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_record_is_short_whatever_is_asked() {
        let place = ScratchDirectory::new("short");
        let audit = Audit::new(place.0.clone(), "s1".into());
        let mut long = entry(Verdict::Refused);
        long.command = "\u{1}".repeat(1 << 20);
        long.reason = Some(Reason::Limit("queries_per_minute"));
        long.jobs = (0..1_000_000)
            .map(|job| 4_000_000_000 + job % 5000)
            .collect();
        audit.write(&long);
        let lines = place.lines();
        let jobs = lines[0]["jobs"].as_array().unwrap();
        assert_eq!((jobs.len(), &lines[0]["more_jobs"]), (64, &4936.into()));
        assert_eq!(lines[0]["command"].as_str().unwrap().len(), 10);
    }

    #[test]
    fn what_fails_again_and_again_is_counted() {
        let place = ScratchDirectory::new("count");
        let audit = Audit::new(place.0.clone(), "s1".into());
        for _ in 0..1000 {
            audit.write(&entry(Verdict::Failed));
        }
        audit.write(&entry(Verdict::Allowed));
        let lines = place.lines();
        // The clock may go on to another second or two meanwhile.
        assert!((21..=81).contains(&lines.len()), "{}", lines.len());
        let suppressed: u64 = lines
            .iter()
            .filter_map(|line| line["suppressed"].as_u64())
            .sum();
        assert_eq!(suppressed as usize + lines.len(), 1001);
        audit.close();
        assert_eq!(place.lines().len(), lines.len());
    }

    #[test]
    fn each_request_is_recorded_once_whatever_is_logged() {
        use tracing_subscriber::filter::{LevelFilter, Targets};
        use tracing_subscriber::layer::SubscriberExt;

        let place = ScratchDirectory::new("layer");
        let audit = Audit::new(place.0.clone(), "s1".into());
        let write = |level| {
            let off = tracing_subscriber::fmt::layer().with_filter(Targets::new());
            let only = Targets::new().with_target(AUDIT, level);
            let all = tracing_subscriber::registry().with(off);
            let all = all.with(audit.layer().with_filter(only));
            tracing::subscriber::with_default(all, || audit.write(&entry(Verdict::Allowed)));
        };
        // By the layer; by hand where the layer is filtered out, and where there is none.
        write(LevelFilter::INFO);
        write(LevelFilter::OFF);
        audit.write(&entry(Verdict::Allowed));
        assert_eq!(place.lines().len(), 3);
    }
}
