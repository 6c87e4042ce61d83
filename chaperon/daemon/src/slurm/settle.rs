//! What Slurm says of the jobs in the ledger, in place of what was estimated: which of them are in the queue, by `squeue`, and
//! how long they ran and with what, by `sacct`. Of a job in its first run, of one size all along, `squeue` says that as well,
//! and the accounts, which take longer, are not asked. What Slurm does not say stays as it was counted.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::rc::Rc;

use agent_sandbox_wire::budget::Amounts;
use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;

use super::ask::ask;
use super::bounds::{array_tasks, total_gpus};
use super::cluster;
use super::ledger::{self, Entry, Ledger};
use super::records;
use crate::refusal::Refusal;
use crate::session::Session;

/// Two times of a job's submission that are further apart than this, in seconds, are of two jobs: numbers come round again.
const SAME: u64 = 600;
/// How long after the end of its time limit the accounts may be without a job's end, in seconds.
const LATE: u64 = 24 * 3600;
/// Jobs that are asked for at once: a word of a command line has 128 KiB at most (`execve(2)`).
const MOST_AT_ONCE: usize = 8000;
/// What `squeue` is asked about jobs in the queue. Each column is wider than what stands in it; the last has no width, as it may
/// be long.
const COLUMNS: &str = "--Format=ArrayJobID:12,ArrayTaskID:12,HetJobID:12,RestartCnt:12,ResizeTime:12,TimeUsed:24,\
                       SubmitTime:24,tres-alloc:0";
/// What `sacct` says where a cluster has no accounts.
const DISABLED: &str = "accounting storage is disabled";

/// A run of a job or of a task, as `sacct` tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    job: u32,
    /// Tasks that it stands for: of those that never ran, one line tells.
    tasks: u64,
    seconds: u64,
    /// CPUs, GPUs and nodes that it had, as far as Slurm counts them.
    had: [Option<u64>; 3],
    submitted: u64,
    /// None: it waits or runs.
    ended: Option<u64>,
    /// Whether another cluster of a federation runs it: this one's accounts say nothing of its hours.
    elsewhere: bool,
}

/// What Slurm says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Answer {
    /// By the job, how many of its tasks are in the queue.
    queue: BTreeMap<u32, u64>,
    /// By the job, its only run, of which nothing has to be asked for.
    first: BTreeMap<u32, Run>,
    /// None where there are no accounts.
    runs: Option<Vec<Run>>,
}

/// Puts what Slurm says in place of what was estimated.
///
/// # Errors
/// Slurm cannot be asked, or the ledger cannot be read or written.
pub async fn settle(session: &Rc<Session>) -> Result<(), Refusal> {
    let directory = records::of_slurm(session);
    let ledger = Ledger::new(&directory);
    let failed = |error: std::io::Error| {
        let place = ledger.path();
        Refusal::mistake(format!(
            "cannot count hours in `{}`: {error}",
            place.display()
        ))
    };
    let entries = ledger.read().map_err(failed)?;
    let open: Vec<Entry> = entries
        .into_iter()
        .filter(|entry| entry.over.is_none() && !entry.void)
        .collect();
    if open.is_empty() {
        return Ok(());
    }
    let cluster = cluster::name(session).await?.to_owned();
    let jobs = open.iter().filter(|entry| entry.cluster == cluster);
    let jobs: Vec<u32> = jobs.map(|entry| entry.job).collect();
    let answer = match jobs.is_empty() {
        true => Answer::default(),
        false => asked(session, &jobs).await?,
    };
    let now = ledger::now();
    let changed = |entry: &Entry| {
        if entry.job == 0 {
            let over = entry.came_to_nothing(&directory);
            return over.then(|| Entry {
                void: true,
                ..entry.clone()
            });
        }
        let known = (entry.cluster == cluster).then(|| answer.about(entry, now));
        known.flatten().filter(|new| new != entry)
    };
    let changes: Vec<(Entry, Entry)> = open
        .into_iter()
        .filter_map(|entry| changed(&entry).map(|new| (entry, new)))
        .collect();
    if changes.is_empty() {
        return Ok(());
    }
    let locked = ledger
        .lock(session.order.budgets.days)
        .await
        .map_err(failed)?;
    let there: BTreeMap<u64, &Entry> = locked.entries.iter().map(|one| (one.id, one)).collect();
    // What others changed meanwhile is newer.
    let same = |(old, new): (Entry, Entry)| (there.get(&old.id) == Some(&&old)).then_some(new);
    let new: Vec<Entry> = changes.into_iter().filter_map(same).collect();
    locked.write(&new).map_err(failed)
}

async fn asked(session: &Rc<Session>, jobs: &[u32]) -> Result<Answer, Refusal> {
    let unanswered = |error: &[u8]| {
        let text = String::from_utf8_lossy(error).trim().to_owned();
        Refusal::mistake(format!("cannot ask Slurm which hours were used: {text}"))
    };
    let user = format!("--user={}", session.order.uid);
    let words = ["--noheader", "--all", "--array", "--format=%F", &user];
    let words = words.map(OsString::from).to_vec();
    let said = ask(session, Command::Squeue, words, Vec::new()).await?;
    if said.end != End::SUCCESS {
        return Err(unanswered(&said.error));
    }
    let mut answer = Answer::default();
    for line in String::from_utf8_lossy(&said.output).lines() {
        if let Ok(job) = line.trim().parse() {
            *answer.queue.entry(job).or_default() += 1;
        }
    }
    let seconds = || vec![("SLURM_TIME_FORMAT".into(), "%s".into())];
    let live = jobs.iter().filter(|job| answer.queue.contains_key(job));
    let live: Vec<u32> = live.copied().collect();
    for some in live.chunks(MOST_AT_ONCE) {
        let named = format!("--jobs={}", list(some));
        let words = ["--noheader", "--all", COLUMNS, &user, &named];
        let words = words.map(OsString::from).to_vec();
        let said = ask(session, Command::Squeue, words, seconds()).await?;
        // Where the last of them has just ended it fails, and the accounts are asked.
        let text = String::from_utf8_lossy(&said.output);
        let runs = text.lines().filter_map(first_run);
        answer.first.extend(runs.map(|run| (run.job, run)));
    }
    let jobs = jobs.iter().filter(|job| !answer.first.contains_key(job));
    let jobs: Vec<u32> = jobs.copied().collect();
    let mut runs = Vec::new();
    for some in jobs.chunks(MOST_AT_ONCE) {
        let words = [
            "--noheader",
            "--allocations",
            "--duplicates",
            "--parsable2",
            "--format=JobID,ElapsedRaw,AllocTRES,Submit,End,State",
            &format!("--jobs={}", list(some)),
        ];
        let words = words.map(OsString::from).to_vec();
        let said = ask(session, Command::Sacct, words, seconds()).await?;
        if said.end != End::SUCCESS {
            let text = String::from_utf8_lossy(&said.error).to_lowercase();
            return match text.contains(DISABLED) {
                true => Ok(answer),
                false => Err(unanswered(&said.error)),
            };
        }
        runs.extend(
            String::from_utf8_lossy(&said.output)
                .lines()
                .filter_map(run),
        );
    }
    answer.runs = Some(runs);
    Ok(answer)
}

/// A line of sacct's.
fn run(line: &str) -> Option<Run> {
    let mut fields = line.trim().split('|');
    let name = fields.next()?;
    let end = name.find(['_', '+']).unwrap_or(name.len());
    let tasks = name[end..].strip_prefix("_[");
    let tasks = tasks.and_then(|list| array_tasks(list.trim_end_matches(']').as_ref()));
    let seconds = fields.next()?.parse().ok()?;
    let had = sizes(fields.next()?);
    Some(Run {
        job: name[..end].parse().ok()?,
        tasks: tasks.unwrap_or(1),
        seconds,
        had,
        submitted: fields.next()?.parse().ok()?,
        ended: fields.next()?.parse().ok(),
        elsewhere: fields.next() == Some("REVOKED"),
    })
}

/// The only run of a job, in a line of squeue's with [`COLUMNS`].
fn first_run(line: &str) -> Option<Run> {
    let mut fields = line.split_ascii_whitespace();
    let job = fields.next()?.parse().ok()?;
    // A task of an array, or a part of a heterogeneous job, is one of several. One that was requeued has had a run before, and
    // one whose size was changed had another one.
    for none in ["N/A", "N/A", "0", "N/A"] {
        if fields.next()? != none {
            return None;
        }
    }
    Some(Run {
        job,
        tasks: 1,
        seconds: elapsed(fields.next()?)?,
        submitted: fields.next()?.parse().ok()?,
        had: sizes(fields.next()?),
        ended: None,
        elsewhere: false,
    })
}

fn list(jobs: &[u32]) -> String {
    let names: Vec<String> = jobs.iter().map(u32::to_string).collect();
    names.join(",")
}

/// CPUs, GPUs and nodes in what Slurm says of a job's resources: `billing=4,cpu=4,gres/gpu=2,mem=1G,node=1`.
fn sizes(tres: &str) -> [Option<u64>; 3] {
    let part = |name: &str| {
        let mut parts = tres.split(',');
        parts.find_map(|one| one.strip_prefix(name)?.parse::<u64>().ok())
    };
    let gpus = tres.contains("gres/gpu").then(|| total_gpus(tres.as_ref()));
    [part("cpu="), gpus.flatten(), part("node=")]
}

/// A time as squeue prints how long a job has run, in seconds: `1-02:03:04`, `2:03:04`, `3:04`.
fn elapsed(text: &str) -> Option<u64> {
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let day = days.parse::<u64>().ok()?.checked_mul(24 * 3600)?;
    let seconds = clock.split(':').try_fold(0_u64, |sum, part| {
        sum.checked_mul(60)?.checked_add(part.parse().ok()?)
    });
    day.checked_add(seconds?)
}

impl Run {
    /// What it used. What Slurm does not count it had as it was estimated.
    fn used(&self, entry: &Entry) -> Amounts {
        let had = std::array::from_fn(|at| self.had[at].unwrap_or(entry.size.0[at]));
        Amounts(had).times(self.seconds)
    }
}

impl Answer {
    /// The entry of a job, as it is by now; none: nothing is known.
    fn about(&self, entry: &Entry, now: u64) -> Option<Entry> {
        let live = self.queue.get(&entry.job).copied().unwrap_or(0);
        let mut new = entry.clone();
        let close = |new: &mut Entry, used: Amounts, at: u64| {
            new.used = used;
            new.held = Amounts::default();
            new.over = Some(at);
        };
        let runs = match (self.first.get(&entry.job), &self.runs) {
            (Some(run), _) => std::slice::from_ref(run),
            (None, Some(runs)) => runs,
            (None, None) if live > 0 => return None,
            (None, None) => {
                // Without accounts nobody knows: it had all that it could have.
                close(&mut new, entry.whole(), now);
                return Some(new);
            }
        };
        let its: Vec<&Run> = runs
            .iter()
            .filter(|run| run.job == entry.job && run.submitted + SAME >= entry.at)
            .collect();
        let used = its
            .iter()
            .fold(Amounts::default(), |sum, run| sum.plus(run.used(entry)));
        if live > 0 {
            let ended = its.iter().filter(|run| run.ended.is_some());
            let ended: u64 = ended.map(|run| run.tasks).sum();
            let running = its.iter().filter(|run| run.ended.is_none());
            let running = running.fold(Amounts::default(), |sum, run| sum.plus(run.used(entry)));
            let rest = entry
                .tasks
                .saturating_add(entry.again)
                .saturating_sub(ended);
            new.used = used;
            new.held = entry.each().times(rest.max(live)).minus(running);
            return Some(new);
        }
        let last = its.iter().filter_map(|run| run.ended).max();
        let all = its.iter().all(|run| run.ended.is_some());
        let limit = entry.minutes.saturating_mul(60);
        let late = now > entry.at.saturating_add(limit).saturating_add(LATE);
        match last.filter(|_| all) {
            Some(last) if its.iter().any(|run| run.elsewhere) => {
                close(&mut new, entry.whole(), last)
            }
            Some(last) => close(&mut new, used, last),
            // The accounts lag behind.
            None if !late => return None,
            None if its.is_empty() => close(&mut new, entry.whole(), now),
            None => close(&mut new, used, now),
        }
        Some(new)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;

    const AT: u64 = 1_800_000_000;

    fn entry(tasks: u64) -> Entry {
        Entry {
            id: 1,
            at: AT,
            cluster: "c".into(),
            job: 12,
            size: Amounts([4, 2, 1]),
            minutes: 10,
            tasks,
            held: Amounts([4, 2, 1]).times(600 * tasks),
            ..Entry::default()
        }
    }

    fn answer(live: u64, lines: &[&str]) -> Answer {
        let queue = [(12, live)].into_iter().filter(|(_, live)| *live > 0);
        Answer {
            queue: queue.collect(),
            first: BTreeMap::new(),
            runs: Some(lines.iter().map(|line| run(line).unwrap()).collect()),
        }
    }

    fn about(entry: &Entry, live: u64, lines: &[&str]) -> Option<([u64; 3], [u64; 3], bool)> {
        let new = answer(live, lines).about(entry, AT + 700)?;
        Some((new.used.0, new.held.0, new.over.is_some()))
    }

    #[test]
    fn a_job_that_ended_gives_back_what_it_did_not_use() {
        let whole = "12|60|billing=4,cpu=4,gres/gpu=2,mem=1G,node=1|1800000000|1800000070";
        let used = ([240, 120, 60], [0; 3], true);
        assert_eq!(about(&entry(1), 0, &[whole]), Some(used));
        // Slurm gave more than was asked for, and does not count GPUs.
        let more = "12|60|cpu=8,node=2|1800000000|1800000070";
        let used = ([480, 120, 120], [0; 3], true);
        assert_eq!(about(&entry(1), 0, &[more]), Some(used));
        let cancelled = "12|0||1800000000|1800000005";
        assert_eq!(
            about(&entry(1), 0, &[cancelled]),
            Some(([0; 3], [0; 3], true))
        );
        let elsewhere = "12|0||1800000000|1800000005|REVOKED";
        let all = ([2400, 1200, 600], [0; 3], true);
        assert_eq!(about(&entry(1), 0, &[elsewhere]), Some(all));
        // Another job had the number before.
        let old = "12|9000|cpu=4,node=1|1700000000|1700009000";
        let used = ([240, 120, 60], [0; 3], true);
        assert_eq!(about(&entry(1), 0, &[old, whole]), Some(used));
    }

    #[test]
    fn a_job_that_runs_holds_the_rest() {
        let runs = "12|60|cpu=4,gres/gpu=2,node=1|1800000000|Unknown";
        let some = ([240, 120, 60], [2160, 1080, 540], false);
        assert_eq!(about(&entry(1), 1, &[runs]), Some(some));
        let waits = "12|0||1800000000|Unknown";
        let all = ([0; 3], [2400, 1200, 600], false);
        assert_eq!(about(&entry(1), 1, &[waits]), Some(all));
        assert_eq!(about(&entry(1), 1, &[]), Some(all), "the accounts are late");
        assert_eq!(about(&entry(1), 0, &[waits]), None, "likewise");
        assert_eq!(about(&entry(1), 0, &[]), None, "likewise");
    }

    #[test]
    fn of_a_first_run_the_queue_says_enough() {
        let of = |line: &str| first_run(line).map(|run| run.seconds);
        let runs = "12  N/A  N/A  0  N/A  1-02:03:04  1800000000  cpu=4,mem=1G,node=1,gres/gpu=2";
        assert_eq!(of(runs), Some(26 * 3600 + 184));
        assert_eq!(of("12 N/A N/A 0 N/A 0:00 1800000000 N/A"), Some(0));
        for several in [
            "12 7 N/A 0 N/A 0:09 1800000000 cpu=4,node=1",
            "12 0-9999 N/A 0 N/A 0:09 1800000000 cpu=4,node=1",
            "12 N/A 12 0 N/A 0:09 1800000000 cpu=4,node=1",
            "12 N/A N/A 1 N/A 0:09 1800000000 cpu=4,node=1",
            "12 N/A N/A 0 1:00 0:09 1800000000 cpu=4,node=1",
            "12 N/A N/A 0 N/A INVALID 1800000000 cpu=4,node=1",
            "12 N/A N/A 0 N/A 0:09 N/A cpu=4,node=1",
            "12",
            "",
        ] {
            assert_eq!(of(several), None, "{several}");
        }
        let run = first_run("12 N/A N/A 0 N/A 1:00 1800000000 cpu=4,mem=1G,node=1,gres/gpu=2");
        let answer = Answer {
            queue: BTreeMap::from([(12, 1)]),
            first: BTreeMap::from([(12, run.unwrap())]),
            runs: None,
        };
        let new = answer.about(&entry(1), AT + 700).unwrap();
        let some = ([240, 120, 60], [2160, 1080, 540], None);
        assert_eq!((new.used.0, new.held.0, new.over), some);
    }

    #[test]
    fn tasks_and_runs_count_each() {
        let tasks = [
            "12_0|60|cpu=4,gres/gpu=2,node=1|1800000000|1800000070",
            "12_1|60|cpu=4,gres/gpu=2,node=1|1800000000|Unknown",
            "12_[2-3%1]|0||1800000000|Unknown",
        ];
        let some = (
            [480, 240, 120],
            [4 * 600 * 3 - 240, 2 * 600 * 3 - 120, 600 * 3 - 60],
            false,
        );
        assert_eq!(about(&entry(4), 3, &tasks), Some(some));
        let over = [
            tasks[0],
            "12_1|5|cpu=4,gres/gpu=2,node=1|1800000000|1800000200",
            "12_[2-3%1]|0||1800000000|1800000200",
        ];
        assert_eq!(
            about(&entry(4), 0, &over),
            Some(([260, 130, 65], [0; 3], true))
        );
        // Put back into the queue by Slurm itself, and by somebody who was counted.
        let twice = [
            "12|60|cpu=4,gres/gpu=2,node=1|1800000000|1800000070",
            "12|0||1800000080|Unknown",
        ];
        let once_more = ([240, 120, 60], [2400, 1200, 600], false);
        assert_eq!(about(&entry(1), 1, &twice), Some(once_more));
        let again = Entry {
            again: 1,
            ..entry(1)
        };
        assert_eq!(about(&again, 1, &twice), Some(once_more));
        assert_eq!(
            about(&again, 1, &twice[..1]),
            Some(once_more),
            "sacct is late"
        );
    }

    #[test]
    fn what_nobody_knows_was_used() {
        let now = AT + 600 + LATE + 1;
        let late = answer(0, &[]).about(&entry(1), now).unwrap();
        assert_eq!((late.used.0, late.over), ([2400, 1200, 600], Some(now)));
        let none = Answer {
            queue: BTreeMap::from([(12, 1)]),
            ..Answer::default()
        };
        assert_eq!(none.about(&entry(1), now), None);
        let gone = Answer::default().about(&entry(1), AT + 5).unwrap();
        assert_eq!((gone.used.0, gone.held.0), ([2400, 1200, 600], [0; 3]));
    }
}
