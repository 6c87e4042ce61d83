//! Records of jobs: which session and project each belongs to, and what was asked for. One small file
//! a job, outside every jail. Slurm itself holds no mark of ours (decision 0012).

#![allow(
    clippy::disallowed_methods,
    reason = "effects: the records of jobs, and their time"
)]

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, DirEntryExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_sandbox_wire::order::Scope;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::cluster;
use super::ledger::{Entry, Ledger};
use crate::cache::{Cache, Known};
use crate::refusal::Refusal;
use crate::session::Session;

/// A record is removed when it is this old. Slurm itself forgets numbers of jobs later than that.
const KEPT: Duration = Duration::from_secs(60 * 24 * 3600);

/// Records, and files of messages, that are kept at most; the oldest go first.
const MOST: usize = 20_000;

/// Old ones are looked for after so many new ones, and with each job whose number is a multiple of
/// this: most sessions have few jobs.
const LOOK_EVERY: u32 = 64;

/// The largest record, in bytes: some paths of 4096 each.
const LARGEST: u64 = 256 << 10;

/// Two times of a job's submission that are further apart than this, in seconds, are of two jobs:
/// numbers come round again.
const SAME: u64 = 600;

/// A directory that was changed this shortly before it was read may have changed again without a
/// new time: time stamps of file systems are coarser than their changes, those of NFS most.
const UNSETTLED: Duration = Duration::from_secs(3);

/// Bytes that are usually text, as JSON: a string, or a list of numbers if they are no UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text(pub Vec<u8>);

impl<T: Into<Vec<u8>>> From<T> for Text {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => to.serialize_str(text),
            Err(_) => to.collect_seq(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Text(String),
            Bytes(Vec<u8>),
        }
        Ok(match Either::deserialize(from)? {
            Either::Text(text) => Self(text.into_bytes()),
            Either::Bytes(bytes) => Self(bytes),
        })
    }
}

/// What made a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `sbatch`
    Batch,
    /// `srun`
    Srun,
    /// `salloc`
    Salloc,
}

/// What Slurm says in place of a script's path where a job has none.
pub const NO_SCRIPT: &str = "(null)";

/// A job, as it was submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The session's id.
    pub session: String,
    /// The project directory, its real path.
    pub project: Text,
    /// When, in seconds since 1970-01-01 00:00 UTC.
    pub submitted: u64,
    /// By what.
    pub kind: Kind,
    /// The script's path as Slurm shows it (`Command=`), made absolute; [`NO_SCRIPT`] if it has none.
    pub command: Text,
    /// The directory in which the job starts.
    pub cwd: Text,
    /// `--output` as asked for; `None`: the default.
    pub output: Option<Text>,
    /// `--error` as asked for; `None`: where the output goes.
    pub error: Option<Text>,
    /// `--input` as asked for; `None`: `/dev/null`.
    pub input: Option<Text>,
    /// Whether it is an array, so that the default of the output is `slurm-%A_%a.out`.
    pub array: bool,
    /// Its hours, as they were counted before it was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<Entry>,
}

impl Record {
    /// A record of this session and this moment, of a job that asked for nothing.
    pub fn new(session: &Session, kind: Kind) -> Self {
        Self {
            session: session.order.snapshot.session.clone(),
            project: session.order.snapshot.project.clone().into(),
            submitted: now(),
            kind,
            command: Text::from(NO_SCRIPT),
            cwd: Text::default(),
            output: None,
            error: None,
            input: None,
            array: false,
            hours: None,
        }
    }

    /// Whether it is that of a job submitted at this time, in seconds since 1970-01-01 00:00 UTC.
    /// Numbers of jobs come round again.
    pub fn is_of(&self, submitted: u64) -> bool {
        self.submitted.abs_diff(submitted) <= SAME
    }
}

/// A record, as it is to be written. It is made before Slurm gets the job.
///
/// # Errors
/// It is too large.
pub fn draft(record: &Record) -> Result<Vec<u8>, Refusal> {
    let wrong = |why: &str| Refusal::mistake(format!("the job cannot be recorded: {why}"));
    let text = serde_json::to_vec(record).map_err(|error| wrong(&error.to_string()))?;
    if text.len() as u64 >= LARGEST {
        return Err(wrong("its paths are too long"));
    }
    Ok(text)
}

/// The time, in seconds since 1970-01-01 00:00 UTC.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// The directory of what is known of the cluster's jobs.
///
/// # Errors
/// The cluster's name is unknown.
pub async fn of_cluster(session: &Session) -> Result<PathBuf, Refusal> {
    let cluster = cluster::name(session).await?;
    Ok(of_slurm(session).join(cluster))
}

/// The directory of what is known of clusters.
pub fn of_slurm(session: &Session) -> PathBuf {
    session.state().join("slurm")
}

async fn directory(session: &Session) -> Result<PathBuf, Refusal> {
    Ok(of_cluster(session).await?.join("jobs"))
}

/// Keeps the record of a job, as [`draft`] made it.
///
/// # Errors
/// It cannot be written.
pub async fn record(session: &Session, job: u32, record: &[u8]) -> Result<(), Refusal> {
    let directory = directory(session).await?;
    write(&directory, job, record).map_err(|error| {
        Refusal::mistake(format!(
            "cannot record job {job} in `{}`: {error}",
            directory.display()
        ))
    })?;
    let hours = serde_json::from_slice::<Record>(record).ok();
    if let Some(entry) = hours.and_then(|record| record.hours) {
        let ledger = Ledger::new(&of_slurm(session));
        let cluster = cluster::name(session).await?;
        let bound = ledger.bind(&entry, cluster, job).await;
        bound.map_err(|error| {
            let place = ledger.path();
            Refusal::mistake(format!(
                "cannot count the hours of job {job} in `{}`: {error}",
                place.display()
            ))
        })?;
    }
    let mut cache = session.records.borrow_mut();
    cache.settled = None;
    cache.added += 1;
    if cache.added > LOOK_EVERY || job.is_multiple_of(LOOK_EVERY) {
        cache.added = 0;
        drop(cache);
        prune(&directory, MOST);
        prune(&logs(session), MOST);
        prune(&session.paces(), MOST);
    }
    Ok(())
}

/// The directory of what slurmstepd itself has to say of jobs.
pub fn logs(session: &Session) -> PathBuf {
    session.state().join("slurm").join("logs")
}

fn write(directory: &Path, job: u32, text: &[u8]) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    // Whole or not at all: others read it at any time.
    let aside = directory.join(format!(".{job}.{}", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&aside)
        .and_then(|mut file| file.write_all(text))
        .and_then(|()| fs::rename(&aside, path(directory, job)));
    if written.is_err() {
        let _ = fs::remove_file(&aside);
    }
    written
}

fn path(directory: &Path, job: u32) -> PathBuf {
    directory.join(format!("{job}.json"))
}

fn read(directory: &Path, job: u32) -> Option<Record> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path(directory, job))
        .ok()?;
    let mut text = Vec::new();
    file.take(LARGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The record of a job, of whatever session and project.
pub async fn find(session: &Session, job: u32) -> Option<Record> {
    read(&directory(session).await.ok()?, job)
}

/// Looks records up without waiting for anything but the disk.
pub struct Reader(PathBuf);

impl Reader {
    /// The record of a job, of whatever session and project.
    pub fn find(&self, job: u32) -> Option<Record> {
        read(&self.0, job)
    }
}

/// A way to look many records up.
///
/// # Errors
/// The cluster's name is unknown.
pub async fn reader(session: &Session) -> Result<Reader, Refusal> {
    Ok(Reader(directory(session).await?))
}

/// The recorded jobs in the session's scope; with scope `user` those of every session.
///
/// # Errors
/// The cluster's name is unknown, or the records cannot be read.
pub async fn ids(session: &Session) -> Result<BTreeSet<u32>, Refusal> {
    let snapshot = &session.order.snapshot;
    let wanted = |known: &Known| match session.order.scope {
        Scope::Session => known.session == snapshot.session && known.project == snapshot.project,
        Scope::Project => known.project == snapshot.project,
        Scope::User => true,
    };
    let directory = directory(session).await?;
    let mut cache = session.records.borrow_mut();
    refresh(&mut cache, &directory).map_err(|error| {
        Refusal::mistake(format!(
            "cannot read the records of jobs in `{}`: {error}",
            directory.display()
        ))
    })?;
    Ok(cache
        .jobs
        .iter()
        .filter(|(_, known)| wanted(known))
        .map(|(&job, _)| job)
        .collect())
}

fn refresh(cache: &mut Cache, directory: &Path) -> io::Result<()> {
    // Opened, not only looked at: what another node has just written in it shows then (nfs(5),
    // close-to-open).
    let opened = fs::File::open(directory).and_then(|directory| directory.metadata());
    let changed = match opened {
        Ok(data) => (data.mtime(), data.mtime_nsec()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            *cache = Cache::default();
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    if cache.settled == Some(changed) {
        return Ok(());
    }
    let mut old = std::mem::take(&mut cache.jobs);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(job) = name
            .to_str()
            .and_then(|name| name.strip_suffix(".json"))
            .and_then(|number| number.parse().ok())
        else {
            continue;
        };
        let known = match old.remove(&job) {
            Some(known) if known.inode == entry.ino() => Some(known),
            _ => read(directory, job).map(|record| Known {
                inode: entry.ino(),
                session: record.session,
                project: record.project.0,
            }),
        };
        cache.jobs.extend(known.map(|known| (job, known)));
    }
    let latest = now().saturating_sub(UNSETTLED.as_secs());
    let settled = u64::try_from(changed.0).is_ok_and(|seconds| seconds < latest);
    cache.settled = settled.then_some(changed);
    Ok(())
}

/// Removes files that are too old, and the oldest beyond so many. What cannot be removed stays.
fn prune(directory: &Path, most: usize) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    let mut all = Vec::new();
    for entry in entries.flatten() {
        let Ok(changed) = entry.metadata().and_then(|data| data.modified()) else {
            continue;
        };
        all.push((changed, entry.path()));
    }
    all.sort();
    let beyond = all.len().saturating_sub(most);
    for (number, (changed, path)) in all.into_iter().enumerate() {
        let old = changed.elapsed().is_ok_and(|age| age > KEPT);
        if old || number < beyond {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(session: &str, output: Option<&[u8]>) -> Record {
        Record {
            session: session.to_owned(),
            project: Text::from("/p"),
            submitted: 1,
            kind: Kind::Batch,
            command: Text::from("/p/job.sh"),
            cwd: Text::from("/p"),
            output: output.map(Text::from),
            error: None,
            input: None,
            array: false,
            hours: None,
        }
    }

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("records-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn bytes_come_back_as_they_were() {
        let directory = Directory::new("bytes");
        let record = some("s", Some(b"/p/\xff out\n"));
        write(&directory.0, 7, &draft(&record).unwrap()).unwrap();
        assert_eq!(read(&directory.0, 7), Some(record));
        assert_eq!(read(&directory.0, 8), None);
    }

    #[test]
    fn a_record_written_anew_is_seen() {
        let directory = Directory::new("anew");
        let mut cache = Cache::default();
        refresh(&mut cache, &directory.0).unwrap();
        assert!(cache.jobs.is_empty());
        write(&directory.0, 7, &draft(&some("one", None)).unwrap()).unwrap();
        refresh(&mut cache, &directory.0).unwrap();
        assert_eq!(cache.jobs[&7].session, "one");
        write(&directory.0, 7, &draft(&some("two", None)).unwrap()).unwrap();
        write(&directory.0, 8, &draft(&some("two", None)).unwrap()).unwrap();
        refresh(&mut cache, &directory.0).unwrap();
        assert_eq!(cache.jobs[&7].session, "two");
        assert_eq!(cache.jobs.len(), 2);
    }

    #[test]
    fn other_files_are_no_records() {
        let directory = Directory::new("others");
        write(&directory.0, 7, &draft(&some("one", None)).unwrap()).unwrap();
        fs::write(directory.0.join("8.json"), "{}").unwrap();
        fs::write(directory.0.join("x.json"), "{}").unwrap();
        std::os::unix::fs::symlink("7.json", directory.0.join("9.json")).unwrap();
        let mut cache = Cache::default();
        refresh(&mut cache, &directory.0).unwrap();
        assert_eq!(cache.jobs.keys().copied().collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn what_could_not_be_read_again_is_not_written() {
        let long = "\u{1}".repeat(60_000);
        let refusal = draft(&some("s", Some(long.as_bytes()))).unwrap_err();
        assert!(refusal.message.contains("too long"), "{refusal}");
    }

    #[test]
    fn a_number_that_came_round_again_is_another_job() {
        let record = some("s", None);
        assert!(record.is_of(1) && record.is_of(601));
        assert!(!record.is_of(602));
    }

    #[test]
    fn the_oldest_go_first() {
        let directory = Directory::new("prune");
        let age = |name: &str, age: u64| {
            let at = SystemTime::now() - Duration::from_secs(age);
            let file = fs::File::open(directory.0.join(name)).unwrap();
            file.set_modified(at).unwrap();
        };
        for job in 1..=6 {
            write(&directory.0, job, b"{}").unwrap();
            age(&format!("{job}.json"), u64::from(job) * 60);
        }
        age("1.json", KEPT.as_secs() + 60);
        prune(&directory.0, 3);
        let names = fs::read_dir(&directory.0).unwrap().flatten();
        let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        names.sort();
        assert_eq!(names, ["2.json", "3.json", "4.json"]);
    }
}
