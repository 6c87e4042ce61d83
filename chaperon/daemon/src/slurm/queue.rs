//! `slurm.limits.jobs`: how many jobs of the scope are in the queue, counted by everybody who shares it:
//! sessions, jobs and steps have chaperons of their own.
//!
//! Who submits locks a file, writes what is about to be submitted ([`intents`]), and counts: what Slurm
//! has, and every intent, also its own. So of two at the same time one sees the other. Where the file
//! system has no locks both see each other, and one of them may be refused too much, but none gets too
//! much.

#![allow(clippy::disallowed_methods, reason = "effects: a lock file")]

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::rc::Rc;
use std::time::Duration;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::ids::{Selector, leading};
use super::parse::Parsed;
use super::{intents, limits, records, scope, submitted};
use crate::intent::Intent;
use crate::locks;
use crate::query_queue::Captured;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::spawn::{self, Start};

/// How long to wait for commands that are about to get a job, before the queue is counted again.
const AGAIN: Duration = Duration::from_millis(200);

/// How long an intent may be without a job before it counts as one that has to wait for its job, in
/// seconds.
const YOUNG: u64 = 2;

/// How often the lock is tried for.
const TURN: Duration = Duration::from_millis(10);

/// How long another session may hold it. It asks Slurm once meanwhile.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long jobs may be judged while others wait for the lock: each may be asked about, at the pace of the session.
const JUDGING: Duration = Duration::from_secs(30);

/// The most jobs that are judged for one change.
const MOST_JUDGED: usize = 100;

/// A lock of the user's jobs on this cluster.
struct Locked<'a> {
    _here: MutexGuard<'a, ()>,
    /// `None`: the file system has no locks.
    _file: Option<File>,
}

/// That of the queue, while jobs are counted.
async fn lock(session: &Session) -> Result<Locked<'_>, Refusal> {
    lock_file(session, &session.submitting, "jobs.lock").await
}

async fn lock_file<'a>(
    session: &Session,
    here: &'a Mutex<()>,
    name: &str,
) -> Result<Locked<'a>, Refusal> {
    let here = here.lock().await;
    let directory = records::of_cluster(session).await?;
    let path = directory.join(name);
    let failed = |error: io::Error| {
        let path = path.display();
        Refusal::mistake(format!(
            "cannot lock `{path}` for jobs that are there: {error}"
        ))
    };
    let open = || {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)?;
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&path)
    };
    let file = open().map_err(failed)?;
    let deadline = Instant::now() + PATIENCE;
    let file = loop {
        match locks::try_lock(&file) {
            Ok(true) => break Some(file),
            Ok(false) if Instant::now() > deadline => {
                return Err(failed(io::ErrorKind::TimedOut.into()));
            }
            Ok(false) => tokio::time::sleep(TURN).await,
            Err(_) => break None,
        }
    };
    Ok(Locked {
        _here: here,
        _file: file,
    })
}

/// Writes what is about to be submitted, when there is room for it. `draft` is what [`records::draft`]
/// gave, `batch` whether sbatch submits it.
///
/// # Errors
/// There are too many jobs, Slurm does not say, or it cannot be written.
pub async fn enter(
    session: &Rc<Session>,
    parsed: &Parsed,
    draft: &[u8],
    batch: bool,
) -> Result<Intent, Refusal> {
    let limit = &session.order.limits.jobs;
    let Some(new) = limits::check_array(limit, parsed)? else {
        let new = limits::jobs_of(parsed).unwrap_or(1);
        return intents::write(session, draft, batch, new).await;
    };
    loop {
        submitted::resolve(session).await?;
        session.limiter.turn().await;
        let locked = lock(session).await?;
        let intent = intents::write(session, draft, batch, new).await?;
        let (coming, changes) = coming(session).await?;
        let old = active(session).await?.len() as u64;
        if let Err(refusal) = limits::check_jobs(old + coming, limit) {
            drop(intent);
            drop(locked);
            if !changes {
                let others = old + coming - new;
                let hint =
                    format!("{others} jobs of this scope are in the queue or on their way there");
                return Err(refusal.hint(hint));
            }
            tokio::time::sleep(AGAIN).await;
            continue;
        }
        return Ok(intent);
    }
}

/// How many jobs are on their way to the queue, and whether that is about to change.
async fn coming(session: &Session) -> Result<(u64, bool), Refusal> {
    let now = records::now();
    let mut all = intents::all(session).await?;
    all.retain(|one| one.is_within(session) && (one.alive || one.pid != 0));
    // What nothing came of is settled soon, on its own node; what of it cannot be recorded stays.
    let own = intents::own_host();
    let settles = |one: &intents::StoredIntent| submitted::is_asked_for(session, &one.name);
    all.retain(|one| one.alive || one.header.host == own || settles(one));
    let count = all.iter().map(|one| one.header.jobs).sum();
    let changes = |one: &intents::StoredIntent| match one.alive {
        true => now <= one.header.since + YOUNG,
        false => settles(one),
    };
    // This one is among them.
    Ok((count, all.iter().filter(|one| changes(one)).count() > 1))
}

/// The jobs of the scope that are in the queue: a line for each task of an array, with the array's
/// number.
async fn active(session: &Rc<Session>) -> Result<Vec<Line>, Refusal> {
    lines(session, &["--me", "--all", "--noheader", "--array", FORMAT]).await
}

/// A job's number, an array's for its tasks, and the task's.
type Line = (u32, Option<u32>);

const FORMAT: &str = "--format=%F %K";

async fn lines(session: &Rc<Session>, words: &[&str]) -> Result<Vec<Line>, Refusal> {
    // Partitions may be hidden.
    let words = words.iter().map(OsString::from).collect();
    let said = spawn::capture(session, Start::query(Command::Squeue, words), &[]).await?;
    if said.end != End::SUCCESS {
        return Err(Refusal::mistake(format!(
            "cannot count the jobs in the queue: {}",
            String::from_utf8_lossy(&said.error).trim()
        )));
    }
    // What was recorded meanwhile is no intent any more: it is looked for behind the queue.
    let own = scope::known(session).await?;
    let line = |line: &[u8]| {
        let mut words = line
            .split(|&byte| byte == b' ')
            .filter(|word| !word.is_empty());
        let job = leading(words.next()?)?;
        Some((job, words.next().and_then(leading)))
    };
    Ok(said
        .output
        .split(|&byte| byte == b'\n')
        .filter_map(line)
        .filter(|(job, _)| own.recorded().contains(job))
        // The allocation in which the session was started is none of its jobs.
        .filter(|(job, _)| !session.order.snapshot.allocation.contains(job))
        .collect())
}

/// Whether so many jobs may be judged for one change: others' changes wait meanwhile.
///
/// # Errors
/// They are too many.
pub fn check_few(session: &Session, jobs: usize) -> Result<(), Refusal> {
    match are_judged(session) && jobs > MOST_JUDGED {
        true => Err(too_many(jobs)),
        false => Ok(()),
    }
}

fn too_many(jobs: usize) -> Refusal {
    Refusal::rule(
        format!(
            "{jobs} jobs at once: where the policy bounds jobs or their hours, {MOST_JUDGED} are changed at once"
        ),
        "name fewer jobs, several times; an array is one job",
    )
}

fn are_judged(session: &Session) -> bool {
    !session.order.bounds.are_none() || session.order.budgets.are_counted()
}

/// Judges and changes jobs that are there while no other session of the user's does: two changes that are allowed one by one
/// could be too much together. The lock is held until Slurm has done it, whatever becomes of who asked; so nobody waits for the
/// session's pace with it, except for what is judged, and that has an end.
///
/// # Errors
/// What `judge` and `work` say; the lock cannot be had; it takes too long to judge.
pub async fn one_at_a_time(
    session: &Rc<Session>,
    judge: impl Future<Output = Result<(), Refusal>> + 'static,
    work: impl Future<Output = Result<Captured, Refusal>> + 'static,
) -> Result<Captured, Refusal> {
    session.limiter.turn().await;
    if !are_judged(session) {
        judge.await?;
        return work.await;
    }
    let session = Rc::clone(session);
    let work = async move {
        let _locked = lock_file(&session, &session.changing, "changes.lock").await?;
        in_time(JUDGING, judge).await?;
        work.await
    };
    let lost = |_| Refusal::mistake("the request to Slurm was given up");
    tokio::task::spawn_local(work).await.map_err(lost)?
}

async fn in_time(
    most: Duration,
    judge: impl Future<Output = Result<(), Refusal>>,
) -> Result<(), Refusal> {
    let late = |_| {
        let text = format!(
            "the jobs could not be held against the policy in {} seconds",
            most.as_secs()
        );
        Refusal::mistake(text)
            .hint("name fewer jobs at once, or wait until fewer queries of this session do")
    };
    tokio::time::timeout(most, judge).await.map_err(late)?
}

/// Has jobs requeued, if there is room for those of them that are over. The lock is held until Slurm
/// has done it, whatever becomes of who asked, who waited for the pace and had what is on its way looked up.
///
/// # Errors
/// There are too many jobs, or Slurm cannot be asked.
pub async fn requeue(
    session: &Rc<Session>,
    jobs: Vec<Selector>,
    start: Start,
) -> Result<Captured, Refusal> {
    if session.order.limits.jobs.most == 0 {
        return spawn::capture(session, start, &[]).await;
    }
    let session = Rc::clone(session);
    let work = async move {
        let _locked = lock(&session).await?;
        let (coming, _) = coming(&session).await?;
        let active = active(&session).await?;
        let every = [
            "--me",
            "--all",
            "--noheader",
            "--array",
            "--states=all",
            FORMAT,
        ];
        let every = lines(&session, &every).await?;
        let again = |lines: &[Line]| lines.iter().filter(|line| names(&jobs, line)).count();
        let back = again(&every).saturating_sub(again(&active)) as u64;
        let old = active.len() as u64 + coming;
        if back > 0 {
            limits::check_jobs(old + back, &session.order.limits.jobs).map_err(|refusal| {
                refusal.hint(format!(
                    "{old} jobs of this scope are in the queue or on their way there"
                ))
            })?;
        }
        spawn::capture(&session, start, &[]).await
    };
    let lost = |_| Refusal::mistake("the request to Slurm was given up");
    tokio::task::spawn_local(work).await.map_err(lost)?
}

/// Whether one of them names the job, or the task. Of several tasks in one name all of the array's are
/// counted.
fn names(jobs: &[Selector], &(job, task): &Line) -> bool {
    jobs.iter().filter(|one| one.job == job).any(|one| {
        let number = one
            .rest
            .strip_prefix('_')
            .and_then(|rest| rest.parse::<u32>().ok());
        number.is_none() || number == task
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;

    #[test]
    fn who_judges_keeps_nobody_waiting_for_long() {
        assert!(too_many(MOST_JUDGED + 1).message.contains("101 jobs"));
        assert!(JUDGING * 3 < PATIENCE);
        let run = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        run.unwrap().block_on(async {
            let short = Duration::from_millis(20);
            let late = in_time(short, std::future::pending()).await;
            assert!(late.unwrap_err().message.contains("could not be held"));
            let said = in_time(short, async { Err(Refusal::mistake("no")) }).await;
            assert_eq!(said.unwrap_err().message, "no");
            assert!(in_time(short, async { Ok(()) }).await.is_ok());
        });
    }
}
