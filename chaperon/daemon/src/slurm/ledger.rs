//! The hours that jobs of a user's sessions took and may take, on all nodes and clusters: a line of one file for each change
//! of a job. The last line of a job's counts. Who submits writes one before the real command starts, while it holds the
//! lock under which it counted; [`super::settle`] puts in place of an estimate what Slurm says.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: a file that chaperons share, and the time"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use agent_sandbox_wire::budget::{Amounts, Budgets, Holder, HourLimit, Resource};
use serde::{Deserialize, Serialize};

use super::lines::{Held, LineFile, random};

/// The lines.
const FILE: &str = "ledger";
/// Lines that no longer count are left out when there are so many of them, and no fewer than the others.
const OLD_LINES: usize = 1024;

const DAY: u64 = 24 * 3600;

/// A job, an array with all its tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// A number of its own.
    pub id: u64,
    /// When it was submitted, in seconds since 1970-01-01 00:00 UTC.
    pub at: u64,
    /// The session.
    pub session: String,
    /// The project, as people read it.
    pub project: String,
    /// Where it was submitted; empty as long as the job is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// Its number; 0 as long as it is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub job: u32,
    /// The intent of the command that may get it, below the directory of what is known of clusters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub intent: String,
    /// How much one task of it gets; nothing where no hours were counted.
    #[serde(default)]
    pub size: Amounts,
    /// For so long at most.
    #[serde(default)]
    pub minutes: u64,
    /// Its tasks; 1 without an array.
    pub tasks: u64,
    /// How often one was put back into the queue.
    #[serde(default)]
    pub again: u64,
    /// What was used, in seconds.
    #[serde(default)]
    pub used: Amounts,
    /// What it may still use, likewise.
    #[serde(default)]
    pub held: Amounts,
    /// When it ended; none: it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<u64>,
    /// It was none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub void: bool,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Entry {
    /// One run of one task takes so much at most, in seconds.
    pub fn each(&self) -> Amounts {
        self.size.times(self.minutes.saturating_mul(60))
    }

    /// What it has and may have.
    pub fn whole(&self) -> Amounts {
        self.used.plus(self.held)
    }

    /// Whether hours were counted when it was submitted.
    pub fn is_counted(&self) -> bool {
        self.size != Amounts::default()
    }

    /// Whether its job is not known and its intent gone, so that none can come. `directory` is that of what is known of
    /// clusters; where it cannot be read, nobody knows.
    pub fn came_to_nothing(&self, directory: &Path) -> bool {
        let gone = |intent: &str| {
            let found = fs::symlink_metadata(directory.join(intent));
            found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        self.job == 0 && !self.intent.is_empty() && gone(&self.intent)
    }

    fn counts(&self, since: u64) -> bool {
        !self.void && self.over.is_none_or(|over| over > since)
    }

    fn is_of(&self, holder: Holder, whose: &Whose<'_>) -> bool {
        match holder {
            Holder::User => true,
            Holder::Project => self.project == whose.project,
            Holder::Session => self.session == whose.session,
        }
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Whose<'a> {
    /// The session; empty: none.
    pub session: &'a str,
    /// The project.
    pub project: &'a str,
}

/// What was used, and what jobs that wait or run may still use, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// What was used.
    pub used: Amounts,
    /// What may be.
    pub held: Amounts,
}

/// A budget in which something has no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    /// Which.
    pub limit: HourLimit,
    /// What is gone of it.
    pub sum: Sum,
    /// What was asked for, in seconds.
    pub asked: u64,
}

impl Over {
    /// What is left of it, in seconds.
    pub fn left(&self) -> u64 {
        let gone = self.sum.used.plus(self.sum.held).of(self.limit.resource);
        seconds(&self.limit).saturating_sub(gone)
    }
}

fn seconds(limit: &HourLimit) -> u64 {
    limit.hours.saturating_mul(3600)
}

/// The entries.
#[derive(Clone, Debug)]
pub struct Ledger {
    file: LineFile,
}

/// The entries while nobody else writes.
#[derive(Debug)]
pub struct Locked {
    file: LineFile,
    /// As they are, the oldest first.
    pub entries: Vec<Entry>,
    _held: Held,
}

impl Ledger {
    /// That of a state directory's part for Slurm.
    pub fn new(directory: &Path) -> Self {
        Self {
            file: LineFile::new(directory, FILE),
        }
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.file.path()
    }

    /// The entries that are there.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read(&self) -> io::Result<Vec<Entry>> {
        Ok(latest(self.file.read()?))
    }

    /// The entries, to be added to.
    ///
    /// # Errors
    /// They cannot be locked or read.
    pub async fn lock(&self, days: u32) -> io::Result<Locked> {
        let held = self.file.lock().await?;
        self.locked(held, days)
    }

    fn locked(&self, held: Held, days: u32) -> io::Result<Locked> {
        let lines: Vec<Entry> = self.file.read()?;
        let count = lines.len();
        let mut entries = latest(lines);
        let since = begin(days.max(MOST_DAYS));
        // What was not counted, and nobody asked about for so long, nobody will.
        entries.retain(|entry| {
            entry.counts(since) && (entry.is_counted() || entry.over.is_some() || entry.at > since)
        });
        let old = count - entries.len();
        if old >= OLD_LINES && old * 2 >= count {
            self.file.replace(&held, &entries)?;
        }
        Ok(Locked {
            file: self.file.clone(),
            entries,
            _held: held,
        })
    }

    /// Adds a line without looking at the others.
    ///
    /// # Errors
    /// It cannot be locked or written.
    pub async fn write(&self, entry: &Entry) -> io::Result<()> {
        let _held = self.file.lock().await?;
        match entry.is_counted() {
            true => self.file.append([entry]),
            // No limit is about it.
            false => self.file.append_loosely(entry),
        }
    }

    /// The job of an entry is known.
    ///
    /// # Errors
    /// It cannot be locked or written.
    pub async fn bind(&self, entry: &Entry, cluster: &str, job: u32) -> io::Result<()> {
        let entry = Entry {
            job,
            cluster: cluster.to_owned(),
            intent: String::new(),
            ..entry.clone()
        };
        self.write(&entry).await
    }

    /// Adds a line where nothing else can be done meanwhile.
    fn write_now(&self, entry: &Entry) -> io::Result<()> {
        let _held = self.file.lock_now()?;
        self.file.append([entry])
    }
}

/// What ended earlier is in no budget: the longest that a policy may have.
const MOST_DAYS: u32 = 366;

impl Locked {
    /// Adds lines.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write(&self, entries: &[Entry]) -> io::Result<()> {
        match entries {
            [] => Ok(()),
            all => self.file.append(all),
        }
    }

    /// The entry of a job.
    pub fn of_job(&self, cluster: &str, job: u32) -> Option<&Entry> {
        // Numbers come round again.
        let mut all = self.entries.iter().rev();
        all.find(|entry| entry.job == job && entry.cluster == cluster && !entry.void)
    }
}

/// The last of each, in the order of the first ones.
fn latest(lines: Vec<Entry>) -> Vec<Entry> {
    let mut places: BTreeMap<u64, usize> = BTreeMap::new();
    let mut all: Vec<Entry> = Vec::with_capacity(lines.len());
    for line in lines {
        match places.get(&line.id) {
            Some(&place) => all[place] = line,
            None => {
                places.insert(line.id, all.len());
                all.push(line);
            }
        }
    }
    all
}

/// The time from which on hours count, in seconds since 1970-01-01 00:00 UTC.
fn begin(days: u32) -> u64 {
    now().saturating_sub(u64::from(days) * DAY)
}

/// The time, in seconds since 1970-01-01 00:00 UTC.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// What is gone of a budget.
pub fn sum(entries: &[Entry], days: u32, holder: Holder, whose: &Whose<'_>) -> Sum {
    let since = begin(days);
    let its = entries
        .iter()
        .filter(|entry| entry.counts(since) && entry.is_of(holder, whose));
    its.fold(Sum::default(), |sum, entry| Sum {
        used: sum.used.plus(entry.used),
        held: sum.held.plus(entry.held),
    })
}

/// The budget in which there is the least room for so much more, if there is none in one.
pub fn judge(
    entries: &[Entry],
    budgets: &Budgets,
    whose: &Whose<'_>,
    asked: Amounts,
) -> Option<Over> {
    let over = budgets.limits.iter().filter_map(|limit| {
        let asked = asked.of(limit.resource);
        let sum = sum(entries, budgets.days, limit.holder, whose);
        let gone = sum.used.plus(sum.held).of(limit.resource);
        // What takes nothing of it is in nobody's way.
        (asked > 0 && gone.saturating_add(asked) > seconds(limit)).then(|| Over {
            limit: limit.clone(),
            sum,
            asked,
        })
    });
    over.min_by_key(Over::left)
}

/// A number for a new entry.
///
/// # Errors
/// The system gives none.
pub fn new_id() -> io::Result<u64> {
    random()
}

/// An entry that counts. Dropped before its command is started, it does no more.
#[derive(Debug)]
pub struct Hold {
    ledger: Ledger,
    entry: Entry,
    started: bool,
}

impl Hold {
    /// What was written, to be taken back.
    pub fn new(ledger: Ledger, entry: Entry) -> Self {
        Self {
            ledger,
            entry,
            started: false,
        }
    }

    /// Its command was started: it counts.
    pub fn started(mut self) {
        self.started = true;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.started {
            self.entry.void = true;
            // What cannot be taken back counts, until it is seen that nothing came of its intent.
            let _ = self.ledger.write_now(&self.entry);
        }
    }
}

/// What of something a resource's limit leaves for each task, in minutes.
pub fn minutes_left(over: &Over, size: Amounts, tasks: u64) -> u64 {
    let each = size.of(over.limit.resource).saturating_mul(tasks).max(1);
    over.left() / each / 60
}

/// Which resources an amount has something of.
pub fn resources(amounts: Amounts) -> impl Iterator<Item = Resource> {
    let all = Resource::ALL.into_iter();
    all.filter(move |resource| amounts.of(*resource) > 0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use std::time::Instant;

    use super::*;

    const WHOSE: Whose<'_> = Whose {
        session: "s",
        project: "/p",
    };

    fn entry(id: u64, held: u64) -> Entry {
        Entry {
            id,
            at: now(),
            session: "s".into(),
            project: "/p".into(),
            cluster: "c".into(),
            job: u32::try_from(id).unwrap(),
            size: Amounts([2, 0, 1]),
            minutes: 60,
            tasks: 1,
            held: Amounts([held * 3600, 0, 0]),
            ..Entry::default()
        }
    }

    fn budgets(holder: Holder, hours: u64) -> Budgets {
        Budgets {
            days: 30,
            limits: vec![HourLimit {
                holder,
                resource: Resource::Cpu,
                hours,
                source: "user.toml:3".into(),
            }],
            thresholds: Vec::new(),
            patience: 0,
        }
    }

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ledger-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_is_used_and_what_is_held_count_for_whom_they_are() {
        let mut all = vec![entry(1, 3), entry(2, 4), entry(3, 5)];
        all[1].session = "t".into();
        all[2].project = "/q".into();
        all[2].session = "u".into();
        all[0].used = Amounts([3600, 0, 0]);
        let asked = Amounts([2 * 3600, 0, 0]);
        let over = |holder, hours| judge(&all, &budgets(holder, hours), &WHOSE, asked);
        assert_eq!(over(Holder::Session, 6), None);
        assert_eq!(over(Holder::Session, 5).unwrap().left(), 3600);
        assert_eq!(over(Holder::Project, 10), None);
        assert_eq!(over(Holder::Project, 9).unwrap().left(), 3600);
        assert_eq!(over(Holder::User, 15), None);
        let over = over(Holder::User, 14).unwrap();
        assert_eq!((over.left(), over.asked), (3600, 7200));
        assert_eq!(minutes_left(&over, Amounts([2, 0, 1]), 3), 10);
        // What asks for none of it is in no budget's way.
        let full = budgets(Holder::User, 1);
        assert_eq!(judge(&all, &full, &WHOSE, Amounts([0, 9, 9])), None);
    }

    #[test]
    fn what_ended_long_ago_and_what_never_was_count_no_more() {
        let mut all = vec![entry(1, 0), entry(2, 4), entry(3, 5)];
        all[0].used = Amounts([7200, 0, 0]);
        all[0].over = Some(now() - 31 * DAY);
        all[1].void = true;
        // One that waits counts, however long.
        all[2].at = 0;
        let sum = |days| sum(&all, days, Holder::User, &WHOSE);
        assert_eq!(sum(30).used.0[0] + sum(30).held.0[0], 5 * 3600);
        assert_eq!(sum(32).used.0[0], 7200);
    }

    #[test]
    fn the_last_line_of_a_job_counts_and_the_others_are_left_out() {
        let place = Place::new("last");
        let ledger = Ledger::new(&place.0);
        let run = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        run.unwrap().block_on(async {
            for round in 0..3 {
                let all: Vec<Entry> = (1..=600).map(|id| entry(id, round)).collect();
                ledger.lock(30).await.unwrap().write(&all).unwrap();
            }
            let entries = ledger.read().unwrap();
            assert_eq!((entries.len(), entries[7].held.0[0]), (600, 7200));
            // Where the file system has no locks, all lines stay.
            assert_eq!(ledger.locked(None, 30).unwrap().entries, entries);
            assert_eq!(ledger.file.read::<Entry>().unwrap().len(), 1800);
            drop(ledger.lock(30).await.unwrap());
            assert_eq!(ledger.file.read::<Entry>().unwrap(), entries);
            let hold = Hold::new(ledger.clone(), entries[0].clone());
            drop(hold);
            assert!(ledger.read().unwrap()[0].void);
            let unknown = |intent: &str| Entry {
                job: 0,
                intent: intent.into(),
                ..entry(1, 1)
            };
            assert!(unknown("c/gone").came_to_nothing(&place.0));
            assert!(!unknown(FILE).came_to_nothing(&place.0), "it may come");
            assert!(!unknown("").came_to_nothing(&place.0));
            assert!(!unknown(&format!("{FILE}/x")).came_to_nothing(&place.0));
            assert_eq!(ledger.lock(30).await.unwrap().entries.len(), 599);
        });
    }

    #[test]
    fn of_many_at_once_as_many_go_as_may() {
        let place = Place::new("once");
        let all: Vec<_> = (1..=50)
            .map(|id| {
                let place = place.0.clone();
                std::thread::spawn(move || {
                    let run = tokio::runtime::Builder::new_current_thread()
                        .enable_time()
                        .build();
                    run.unwrap().block_on(async {
                        let locked = Ledger::new(&place).lock(30).await.unwrap();
                        let new = entry(id, 1);
                        let budgets = budgets(Holder::User, 20);
                        let goes = judge(&locked.entries, &budgets, &WHOSE, new.held).is_none();
                        if goes {
                            locked.write(&[new]).unwrap();
                        }
                        goes
                    })
                })
            })
            .collect();
        let went = all.into_iter().map(|one| one.join().unwrap());
        assert_eq!(went.filter(|went| *went).count(), 20);
        assert_eq!(Ledger::new(&place.0).read().unwrap().len(), 20);
    }

    /// A build for debugging; the whole command is measured in `bench`.
    #[test]
    fn ten_thousand_jobs_are_summed_at_once() {
        let place = Place::new("many");
        let ledger = Ledger::new(&place.0);
        let all: Vec<Entry> = (1..=10_000).map(|id| entry(id, 1)).collect();
        ledger
            .file
            .replace(&ledger.file.lock_now().unwrap(), &all)
            .unwrap();
        let begun = Instant::now();
        let sum = sum(&ledger.read().unwrap(), 30, Holder::Project, &WHOSE);
        let took = begun.elapsed();
        assert_eq!(sum.held.0[0], 10_000 * 3600);
        assert!(took.as_millis() < 2000, "{took:?}");
    }
}
