//! `slurm.limits.submissions_per_minute` and `submissions_per_day`: how often a user's sessions, jobs and steps submit or
//! requeue, counted together, on all nodes and clusters.
//!
//! A file of the state directory has a line for each submission. Who submits locks it, counts, and writes a line
//! before the real command starts; who then starts none takes it back. So a chaperon that is killed leaves at most a
//! submission that counts and was none.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: a file that chaperons share, and the time"
)]

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_sandbox_wire::order::{Limit, Limits};
use serde::{Deserialize, Serialize};

use super::ask::{Stop, patiently};
use super::lines::{Held, LineFile, random};
use super::records;
use super::request::Context;
use crate::refusal::{Reason, Refusal};
use crate::session::Session;

/// The lines.
const FILE: &str = "submissions";

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The longest that is waited before submissions are counted again: others may have taken theirs back.
const NEXT: Duration = Duration::from_secs(1);

/// Lines that are too old are left out when there are so many of them, and no fewer than the others.
const OLD_LINES: usize = 1024;

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    /// When, in milliseconds since 1970-01-01 00:00 UTC.
    at: u64,
    /// A number of its own.
    id: u64,
    /// The session.
    session: String,
    /// The submission with this number was none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    void: bool,
}

/// A submission that counts. Dropped, it does no more.
#[derive(Debug)]
pub struct Reservation {
    directory: PathBuf,
    line: Line,
    started: bool,
}

impl Reservation {
    /// Its command was started: it counts.
    pub fn started(mut self) {
        self.started = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.started {
            let line = Line {
                void: true,
                ..self.line.clone()
            };
            // What cannot be taken back counts.
            if let Ok(_lock) = file(&self.directory).lock_now() {
                let _ = file(&self.directory).append([&line]);
            }
        }
    }
}

/// Whether a submission may go.
#[derive(Debug)]
enum Turn {
    /// It may.
    Now(Option<Reservation>),
    /// Not before so long.
    In(Duration),
}

/// Waits until a submission more may go, and writes it down.
///
/// # Errors
/// There were too many today, or they cannot be counted; or the shim ends.
pub async fn wait(context: &mut Context<'_>) -> Result<Option<Reservation>, Stop> {
    let session = Rc::clone(&context.session);
    let mut told = false;
    loop {
        match patiently(context.conn, take(&session)).await?? {
            Turn::Now(reservation) => return Ok(reservation),
            Turn::In(wait) => {
                if !told {
                    told = true;
                    let Limit { most, source } = &session.order.limits.submissions_per_minute;
                    let text = format!(
                        "waiting: the policy allows {most} submissions a minute \
                         (`slurm.limits.submissions_per_minute`, {source})"
                    );
                    context.say(&text).await;
                }
                patiently(context.conn, tokio::time::sleep(wait)).await?;
            }
        }
    }
}

/// Writes a submission down, if there is room for it.
///
/// # Errors
/// There were too many today, or the file cannot be locked, read or written.
async fn take(session: &Session) -> Result<Turn, Refusal> {
    let limits = &session.order.limits;
    if limits.submissions_per_minute.most == 0 && limits.submissions_per_day.most == 0 {
        return Ok(Turn::Now(None));
    }
    let directory = records::of_slurm(session);
    let failed = |error: io::Error| {
        let place = directory.join(FILE);
        Refusal::mistake(format!(
            "cannot count the submissions in `{}`: {error}",
            place.display()
        ))
    };
    let held = file(&directory).lock().await.map_err(failed)?;
    let lines = read(&directory).map_err(failed)?;
    let now = now();
    if let Some(wait) = judge(&lines, limits, now)? {
        return Ok(Turn::In(wait.min(NEXT)));
    }
    let line = Line {
        at: millis(now),
        id: random().map_err(failed)?,
        session: session.order.snapshot.session.clone(),
        void: false,
    };
    renew(&directory, &held, &lines, now).map_err(failed)?;
    file(&directory).append([&line]).map_err(failed)?;
    Ok(Turn::Now(Some(Reservation {
        directory,
        line,
        started: false,
    })))
}

/// How long the next submission has to wait; none: it may go.
fn judge(lines: &[Line], limits: &Limits, now: Duration) -> Result<Option<Duration>, Refusal> {
    let most = |limit: &Limit| usize::try_from(limit.most).unwrap_or(usize::MAX);
    let (minute, day) = (
        most(&limits.submissions_per_minute),
        most(&limits.submissions_per_day),
    );
    let today = since(lines, now, DAY);
    if day > 0 && today.len() >= day {
        let free = today[today.len() - day].saturating_add(millis(DAY));
        let minutes = free.saturating_sub(millis(now)).div_ceil(60_000);
        return Err(Refusal::rule(
            format!(
                "{} submissions in 24 hours: the policy allows {day} (`slurm.limits.submissions_per_day`, {})",
                today.len(),
                limits.submissions_per_day.source
            ),
            format!("the next may go in {minutes} minutes; an array is one submission"),
        )
        .because(Reason::Limit("submissions_per_day")));
    }
    let latest = since(lines, now, MINUTE);
    if minute == 0 || latest.len() < minute {
        return Ok(None);
    }
    let free = latest[latest.len() - minute].saturating_add(millis(MINUTE));
    Ok(Some(Duration::from_millis(
        free.saturating_sub(millis(now)).max(1),
    )))
}

/// When the submissions of the last while were made, the oldest first. The clock of another node may be ahead: they are
/// of now.
fn since(lines: &[Line], now: Duration, window: Duration) -> Vec<u64> {
    let begin = millis(now.saturating_sub(window));
    let mut all: Vec<u64> = lines
        .iter()
        .map(|line| line.at.min(millis(now)))
        .filter(|at| *at > begin)
        .collect();
    all.sort_unstable();
    all
}

/// The submissions of the file, without those that were none.
fn read(directory: &Path) -> io::Result<Vec<Line>> {
    let lines: Vec<Line> = file(directory).read()?;
    let void = lines.iter().filter(|line| line.void).map(|line| line.id);
    let void: std::collections::BTreeSet<u64> = void.collect();
    Ok(lines
        .into_iter()
        .filter(|line| !void.contains(&line.id))
        .collect())
}

/// Leaves out what is too old to count, if that is much.
fn renew(directory: &Path, held: &Held, lines: &[Line], now: Duration) -> io::Result<()> {
    let begin = millis(now.saturating_sub(DAY));
    let kept = lines.iter().filter(|line| line.at > begin);
    let old = lines.len() - kept.clone().count();
    if old < OLD_LINES || old * 2 < lines.len() {
        return Ok(());
    }
    file(directory).replace(held, kept)
}

fn file(directory: &Path) -> LineFile {
    LineFile::new(directory, FILE)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Since 1970-01-01 00:00 UTC.
fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    use super::super::lines::PATIENCE_BACK;
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn limits(minute: u32, day: u32) -> Limits {
        let limit = |most| Limit {
            most,
            source: "a file:7".to_owned(),
        };
        Limits {
            queries_per_minute: 0,
            jobs: limit(0),
            submissions_per_minute: limit(minute),
            submissions_per_day: limit(day),
        }
    }

    fn line(id: u64, ago: Duration) -> Line {
        Line {
            at: millis(NOW - ago),
            id,
            session: "s".into(),
            void: false,
        }
    }

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("rates-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_last_minute_waits_and_the_last_day_refuses() {
        let ago = |seconds: &[u64]| -> Vec<Line> {
            let each = seconds.iter().enumerate();
            each.map(|(at, &ago)| line(at as u64, Duration::from_secs(ago)))
                .collect()
        };
        let wait = |seconds: &[u64], minute, day| judge(&ago(seconds), &limits(minute, day), NOW);
        assert_eq!(wait(&[], 1, 1).unwrap(), None);
        assert_eq!(wait(&[59, 61], 2, 0).unwrap(), None);
        let seconds = |all| Some(Duration::from_secs(all));
        assert_eq!(wait(&[50, 40, 61], 2, 0).unwrap(), seconds(10));
        assert_eq!(wait(&[50, 40, 30], 2, 0).unwrap(), seconds(20));
        assert_eq!(wait(&[50, 40, 30], 0, 4).unwrap(), None);
        let refusal = wait(&[86_000, 40, 30], 0, 3).unwrap_err();
        assert_eq!(refusal.reason, Reason::Limit("submissions_per_day"));
        assert!(refusal.hints[0].contains("in 7 minutes"), "{refusal:?}");
        assert_eq!(wait(&[86_400, 40, 30], 0, 3).unwrap(), None);
        // Another node's clock is ahead.
        let mut ahead = ago(&[0]);
        ahead[0].at += 3_600_000;
        let held = judge(&ahead, &limits(1, 0), NOW).unwrap();
        assert_eq!(held, seconds(60));
    }

    #[test]
    fn what_was_taken_back_does_not_count_and_torn_lines_harm_nothing() {
        let place = Directory::new("void");
        file(&place.0).append([&line(1, MINUTE)]).unwrap();
        let mut torn = OpenOptions::new()
            .append(true)
            .open(place.0.join(FILE))
            .unwrap();
        torn.write_all(b"{\"at\":17,\"id\":2,\"sess").unwrap();
        file(&place.0).append([&line(3, MINUTE)]).unwrap();
        let reserved = Reservation {
            directory: place.0.clone(),
            line: line(3, MINUTE),
            started: false,
        };
        assert_eq!(read(&place.0).unwrap().len(), 2);
        drop(reserved);
        assert_eq!(read(&place.0).unwrap(), [line(1, MINUTE)]);
    }

    /// Others write the file anew, or read and count, while they hold the lock.
    #[test]
    fn what_is_taken_back_waits_for_the_lock() {
        let place = Directory::new("back");
        file(&place.0).append([&line(1, MINUTE)]).unwrap();
        let held = file(&place.0).lock_now().unwrap();
        let reserved = Reservation {
            directory: place.0.clone(),
            line: line(1, MINUTE),
            started: false,
        };
        let back = std::thread::spawn(move || drop(reserved));
        // Nothing happens for that long.
        std::thread::sleep(PATIENCE_BACK / 5);
        assert_eq!(read(&place.0).unwrap().len(), 1);
        drop(held);
        back.join().unwrap();
        assert!(read(&place.0).unwrap().is_empty());
    }

    #[test]
    fn ten_thousand_lines_are_counted_and_old_ones_left_out() {
        let place = Directory::new("many");
        let ago = |id| Duration::from_secs(if id < 6_000 { 90_000 } else { 600 });
        let all: Vec<Line> = (0..10_000).map(|id| line(id, ago(id))).collect();
        file(&place.0)
            .replace(&file(&place.0).lock_now().unwrap(), &all)
            .unwrap();
        let lines = read(&place.0).unwrap();
        assert_eq!(since(&lines, NOW, DAY).len(), 4_000);
        renew(&place.0, &file(&place.0).lock_now().unwrap(), &lines, NOW).unwrap();
        assert_eq!(read(&place.0).unwrap().len(), 4_000);
    }

    #[test]
    fn of_many_at_once_as_many_go_as_may() {
        let place = Directory::new("once");
        let all: Vec<_> = (0..50)
            .map(|id| {
                let place = place.0.clone();
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_time()
                        .build();
                    runtime.unwrap().block_on(async {
                        let _lock = file(&place).lock().await.unwrap().unwrap();
                        let lines = read(&place).unwrap();
                        if judge(&lines, &limits(0, 20), NOW).is_err() {
                            return false;
                        }
                        file(&place).append([&line(id, MINUTE)]).unwrap();
                        true
                    })
                })
            })
            .collect();
        let went = all.into_iter().map(|one| one.join().unwrap());
        assert_eq!(went.filter(|went| *went).count(), 20);
        assert_eq!(read(&place.0).unwrap().len(), 20);
    }
}
