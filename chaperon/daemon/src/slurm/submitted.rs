//! Jobs of real commands that do not say their ids, found by the process that asked for them
//! (`alloc_sid`), so that each job is recorded, also that of a command which was ended early, and that of
//! a chaperon which is gone ([`intents`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::rc::Rc;
use std::time::Duration;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;

use super::ask::ask;
use super::intents::{self, StoredIntent};
use super::records;
use crate::intent::Intent;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::spawn::{self, Start};
use crate::submitters::Submitter;

/// How far the clocks of this machine and of slurmctld's may differ, in seconds.
const SLACK: u64 = 2;

/// How long a request of a command that was ended may be on its way, in seconds, and how long after its intent a job of
/// a chaperon that is gone may have been submitted: slurmctld takes the requests that came first (`_throttle_start`,
/// src/slurmctld/proc_req.c), and makes the job of an sbatch that has gone. Process ids come round again.
const LATE: u64 = 60;

/// A command that took so long, in seconds, may have ended because Slurm did not answer: MessageTimeout,
/// slurm.conf(5).
const UNANSWERED: u64 = 10;

/// How long an intent of another node's stays that no job was found for, in seconds.
const FORGOTTEN: u64 = 24 * 3600;

/// How long what became of such an intent is asked for, in seconds.
const ASKED_FOR: u64 = 10;

/// Slurm's name of a host whose address is its loopback (clusters on one machine).
const LOOPBACK: &str = "localhost";

/// A job, as squeue tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Job {
    id: u32,
    pid: u32,
    /// In seconds since 1970-01-01 00:00 UTC.
    submitted: u64,
    uid: u32,
    batch: bool,
    host: String,
}

/// A real command was started that may get a job. `record` is what [`records::draft`] gave.
pub fn begun(session: &Session, pid: u32, batch: bool, record: Vec<u8>, mut intent: Intent) -> u64 {
    intent.start();
    session.submitters.borrow_mut().add(Submitter {
        pid,
        batch,
        since: records::now(),
        until: None,
        late: LATE,
        record,
        job: None,
        intent: Some(intent),
    })
}

/// The job of this command has its record.
pub fn recorded(session: &Session, number: u64) {
    let mut submitters = session.submitters.borrow_mut();
    let one = submitters.all.get_mut(&number);
    if let Some(intent) = one.and_then(|one| one.intent.take()) {
        intent.over();
    }
}

/// Whether an sbatch runs, which may be about to get a job.
pub fn is_submitting(session: &Session) -> bool {
    let submitters = session.submitters.borrow();
    let mut all = submitters.all.values();
    all.any(|one| one.batch && one.until.is_none())
}

/// The command said its job's id.
pub fn said(session: &Session, number: u64, job: u32) {
    let mut submitters = session.submitters.borrow_mut();
    submitters.say(job);
    if let Some(submitter) = submitters.all.get_mut(&number) {
        submitter.job = Some(job);
    }
}

/// The command has ended. Its job is looked for, if it is not known, while the caller goes on.
pub fn over(session: &Rc<Session>, number: u64, end: &End) {
    if !ended(session, number, end) {
        return;
    }
    let session = Rc::clone(session);
    tokio::task::spawn_local(async move {
        let late = |after| {
            let submitters = session.submitters.borrow();
            let one = submitters.all.get(&number);
            one.is_some_and(|one| one.late > after)
        };
        // What cannot be found out now is looked for with the next request.
        for (after, pause) in [(0, SLACK + 1), (SLACK, LATE)] {
            if late(after) {
                tokio::time::sleep(Duration::from_secs(pause)).await;
            }
            let _ = resolve(&session).await;
        }
    });
}

/// As [`over`], but waits for what can be found out at once.
///
/// # Errors
/// Slurm cannot be asked, or the job cannot be recorded.
pub async fn over_and_recorded(
    session: &Rc<Session>,
    number: u64,
    end: &End,
) -> Result<(), Refusal> {
    ended(session, number, end);
    let found = resolve(session).await;
    over(session, number, end);
    found
}

/// Notes the end. Whether the job is to be looked for.
fn ended(session: &Session, number: u64, end: &End) -> bool {
    end_of(&mut session.submitters.borrow_mut().all, number, end)
}

fn end_of(all: &mut BTreeMap<u64, Submitter>, number: u64, end: &End) -> bool {
    let Some(submitter) = all.get_mut(&number) else {
        return false;
    };
    if submitter.job.is_some() && submitter.intent.is_none() {
        all.remove(&number);
        return false;
    }
    // A job that could not be recorded while its command ran may outlive it.
    submitter.job = None;
    let until = *submitter.until.get_or_insert_with(records::now);
    let answered = matches!(end, End::Code(_)) && until < submitter.since + UNANSWERED;
    submitter.late = match answered {
        _ if *end == End::SUCCESS => 0,
        true => SLACK,
        false => LATE,
    };
    true
}

/// The jobs of commands that run.
pub fn jobs(session: &Session) -> BTreeSet<u32> {
    let submitters = session.submitters.borrow();
    submitters
        .all
        .values()
        .filter_map(|submitter| submitter.job)
        .collect()
}

/// How many commands there are whose job, if they get one, is not known; and whether that is about
/// to change.
pub fn unknown(session: &Session) -> (u64, bool) {
    let submitters = session.submitters.borrow();
    let now = records::now();
    let open = submitters.all.values().filter(|one| one.job.is_none());
    let (mut count, mut changes) = (0, false);
    for submitter in open {
        count += 1;
        changes |= submitter.until.is_some() || now <= submitter.since + SLACK;
    }
    (count, changes)
}

/// Finds out the jobs that are not known yet, and records them.
///
/// # Errors
/// Slurm cannot be asked, or a job that was left over cannot be recorded.
pub async fn resolve(session: &Rc<Session>) -> Result<(), Refusal> {
    let left = left(session).await?;
    if unknown(session).0 == 0 && left.is_empty() {
        return Ok(());
    }
    let began = records::now();
    let asked_for = ended_ones(&session.submitters.borrow().all);
    let arguments = [
        "--noheader",
        "--all",
        "--states=all",
        &format!("--user={}", session.order.uid),
        "--Format=JobID:.12,AllocSID:.12,SubmitTime:.24,UserID:.12,BatchFlag:.4,AllocNodes:.70",
    ];
    let arguments = arguments.map(Into::into).to_vec();
    let seconds = vec![("SLURM_TIME_FORMAT".into(), "%s".into())];
    let said = ask(session, Command::Squeue, arguments, seconds).await?;
    if said.end != End::SUCCESS {
        return Ok(());
    }
    let jobs = read(&said.output);
    let hosts = hosts(&jobs, &session.submitters.borrow().said);
    adopt(session, &left, &jobs, &hosts).await;
    let mut lost = Ok(());
    for job in &jobs {
        if job.uid != session.order.uid || !hosts.contains(&job.host) {
            continue;
        }
        let record = records::find(session, job.id).await;
        if record.is_some_and(|record| record.is_of(job.submitted)) {
            continue;
        }
        let found = {
            let mut submitters = session.submitters.borrow_mut();
            let of_it = submitters.all.iter_mut().find(|(_, one)| owns(one, job));
            of_it.map(|(number, submitter)| {
                submitter.job = Some(job.id);
                (submitter.record.clone(), submitter.until.is_some(), *number)
            })
        };
        let Some((record, ended, number)) = found else {
            continue;
        };
        match (records::record(session, job.id, &record).await, ended) {
            (Ok(()), _) => recorded(session, number),
            // That of a command which runs is known as long as it does; then it is looked for again.
            (Err(_), false) => {}
            (Err(reason), true) => lost = Err(take_back(session, job.id, reason).await),
        }
    }
    forget(&mut session.submitters.borrow_mut().all, &asked_for, began);
    lost
}

/// The commands that have ended.
fn ended_ones(all: &BTreeMap<u64, Submitter>) -> BTreeSet<u64> {
    all.iter()
        .filter(|(_, one)| one.until.is_some())
        .map(|(number, _)| *number)
        .collect()
}

/// Forgets the commands whose job is recorded or will not come. Slurm was asked at `began`, when `asked_for` had ended:
/// of one that ended while Slurm answered, the answer may be too old to hold the job.
fn forget(all: &mut BTreeMap<u64, Submitter>, asked_for: &BTreeSet<u64>, began: u64) {
    all.retain(|number, one| {
        let stays = match one.until {
            None => true,
            Some(_) if one.job.is_none() && !asked_for.contains(number) => true,
            Some(until) => one.job.is_none() && one.late != 0 && began <= until + one.late,
        };
        // One with a job that has no record is left for the next session to find.
        if let (false, None, Some(intent)) = (stays, one.job, one.intent.take_if(|_| !stays)) {
            intent.over();
        }
        stays
    });
}

/// The intents of chaperons that are gone, as long as something can become of them.
async fn left(session: &Session) -> Result<Vec<StoredIntent>, Refusal> {
    let found = intents::left(session).await?;
    let mut submitters = session.submitters.borrow_mut();
    let now = records::now();
    let names: BTreeSet<_> = found.iter().map(|one| one.name.clone()).collect();
    submitters.left.retain(|name, _| names.contains(name));
    let own = intents::own_host();
    let asked_for = |one: &StoredIntent| {
        let first = *submitters.left.entry(one.name.clone()).or_insert(now);
        // Those of this node are removed at last.
        one.header.host == own || now <= first + ASKED_FOR
    };
    Ok(found.into_iter().filter(asked_for).collect())
}

/// Whether something can still become of an intent of a chaperon that is gone.
pub fn is_asked_for(session: &Session, name: &OsStr) -> bool {
    let submitters = session.submitters.borrow();
    let first = submitters.left.get(name);
    first.is_none_or(|first| records::now() <= first + ASKED_FOR)
}

/// Records the jobs of chaperons that are gone.
async fn adopt(session: &Session, left: &[StoredIntent], jobs: &[Job], hosts: &BTreeSet<String>) {
    let own = intents::own_host();
    for one in left {
        let is_own = one.header.host == own;
        let here = |job: &Job| one.header.host == job.host || is_own && hosts.contains(&job.host);
        let uid = session.order.uid;
        let mut its = jobs.iter().filter(|job| job.uid == uid && here(job));
        if let Some(job) = its.find(|job| is_of(one, job)) {
            let known = records::find(session, job.id).await;
            if known.is_some_and(|record| record.is_of(job.submitted))
                || records::record(session, job.id, &one.draft).await.is_ok()
            {
                intents::remove(session, &one.name).await;
            }
            continue;
        }
        let first = session.submitters.borrow().left.get(&one.name).copied();
        let now = records::now();
        let settled = first.is_some_and(|first| now >= first + ASKED_FOR / 2);
        // What another node calls itself may not be what Slurm calls it: that node will know. And where locks hold on one node
        // alone, its chaperon may live.
        let old = now > one.header.since + FORGOTTEN;
        if is_own && (one.pid == 0 || settled) || old {
            intents::remove(session, &one.name).await;
        }
    }
}

/// Whether a job is that of an intent whose chaperon is gone.
fn is_of(intent: &StoredIntent, job: &Job) -> bool {
    let since = intent.header.since;
    intent.pid == job.pid
        && intent.pid != 0
        && intent.header.batch == job.batch
        && (since.saturating_sub(SLACK)..=since + LATE).contains(&job.submitted)
}

/// Whether a job is this command's. Process ids come round again, and other hosts have the same.
fn owns(submitter: &Submitter, job: &Job) -> bool {
    let earliest = submitter.since.saturating_sub(SLACK);
    let latest = |until| until + submitter.late.max(SLACK);
    let latest = submitter.until.map_or(u64::MAX, latest);
    submitter.job.is_none()
        && submitter.pid == job.pid
        && submitter.batch == job.batch
        && (earliest..=latest).contains(&job.submitted)
}

/// Slurm's names of this host: its own short one, that of a loopback address, and what Slurm shows
/// of jobs that are surely from here.
fn hosts(jobs: &[Job], sure: &BTreeSet<u32>) -> BTreeSet<String> {
    let own = nix::unistd::gethostname().unwrap_or_default();
    let own = own.to_string_lossy();
    let short = own.split('.').next().unwrap_or_default().to_owned();
    jobs.iter()
        .filter(|job| sure.contains(&job.id))
        .map(|job| job.host.clone())
        .chain([short, LOOPBACK.to_owned()])
        .collect()
}

fn read(output: &[u8]) -> Vec<Job> {
    let text = String::from_utf8_lossy(output);
    let line = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        Some(Job {
            id: fields.next()?.parse().ok()?,
            pid: fields.next()?.parse().ok()?,
            submitted: fields.next()?.parse().ok()?,
            uid: fields.next()?.parse().ok()?,
            batch: match fields.next()? {
                "0" => false,
                "1" => true,
                _ => return None,
            },
            host: fields.next()?.to_owned(),
        })
    };
    text.lines().filter_map(line).collect()
}

/// Takes a job back that cannot be recorded: nobody inside could reach it.
///
/// # Errors
/// scancel does not do it.
pub async fn cancel(session: &Session, job: u32) -> Result<(), Refusal> {
    let arguments = vec![OsString::from(job.to_string())];
    let said = spawn::capture(session, Start::query(Command::Scancel, arguments), &[]).await?;
    if said.end == End::SUCCESS {
        return Ok(());
    }
    Err(Refusal::mistake(format!(
        "cannot cancel job {job}: {}",
        String::from_utf8_lossy(&said.error).trim().escape_debug()
    )))
}

/// Takes a job back that could not be recorded for this reason, and says so.
pub async fn take_back(session: &Session, job: u32, reason: Refusal) -> Refusal {
    match cancel(session, job).await {
        Ok(()) => Refusal::mistake(format!(
            "{}; it was cancelled again, since nothing here could reach it",
            reason.message
        )),
        Err(failed) => Refusal::mistake(format!("{}; {}", reason.message, failed.message))
            .hint("cancel it with scancel in a shell outside the jail"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    const SQUEUE: &str = "  17   12926  1795259638  2001  0  login1\n\
        18 12927 1795259000 2001 1 localhost\n19 12928 1795259640 2002 0 other\n\
        20 12929 1795259640 2002 x other\nnonsense\n";

    fn submitter() -> Submitter {
        Submitter {
            pid: 12926,
            batch: false,
            since: 1_795_259_637,
            until: Some(1_795_259_640),
            late: 0,
            record: Vec::new(),
            job: None,
            intent: None,
        }
    }

    #[test]
    fn lines_of_squeue_are_read() {
        let jobs = read(SQUEUE.as_bytes());
        assert_eq!(
            jobs.iter().map(|job| job.id).collect::<Vec<_>>(),
            [17, 18, 19]
        );
        assert_eq!(
            jobs[0],
            Job {
                id: 17,
                pid: 12926,
                submitted: 1_795_259_638,
                uid: 2001,
                batch: false,
                host: "login1".into(),
            }
        );
        assert!(jobs[1].batch);
    }

    #[test]
    fn a_job_is_found_by_its_process_and_its_time() {
        let job = &read(SQUEUE.as_bytes())[0];
        let with = |change: fn(&mut Submitter)| {
            let mut one = submitter();
            change(&mut one);
            owns(&one, job)
        };
        assert!(with(|_| {}));
        assert!(with(|one| one.until = None));
        assert!(with(|one| one.since = 1_795_259_640));
        assert!(!with(|one| one.since = 1_795_259_641), "before it began");
        assert!(
            !with(|one| one.until = Some(1_795_259_635)),
            "after its end"
        );
        assert!(!with(|one| one.pid = 1));
        assert!(!with(|one| one.batch = true));
        assert!(!with(|one| one.job = Some(5)), "it has one already");
    }

    #[test]
    fn an_answer_that_was_asked_for_before_a_command_ended_does_not_forget_it() {
        let mut all = BTreeMap::from([(1, submitter())]);
        let before = ended_ones(&BTreeMap::from([(
            1,
            Submitter {
                until: None,
                ..submitter()
            },
        )]));
        forget(&mut all, &before, 1_795_259_639);
        assert!(all.contains_key(&1), "its job may have come since");
        let after = ended_ones(&all);
        forget(&mut all, &after, 1_795_259_640);
        assert!(all.is_empty(), "Slurm had answered it, and knows no job");
    }

    #[test]
    fn a_job_that_was_not_recorded_is_looked_for_when_its_command_has_ended() {
        let known = |intent| Submitter {
            job: Some(17),
            until: None,
            intent,
            ..submitter()
        };
        let (file, _) = std::io::pipe().unwrap();
        let mut intent = Intent::new(OwnedFd::from(file).into(), "".into());
        intent.start();
        let mut all = BTreeMap::from([(1, known(None)), (2, known(Some(intent)))]);
        assert!(!end_of(&mut all, 1, &End::Signal(9)));
        assert!(end_of(&mut all, 2, &End::Code(1)));
        assert_eq!(all.keys().collect::<Vec<_>>(), [&2]);
        assert!(all[&2].job.is_none() && all[&2].until.is_some());
    }

    #[test]
    fn a_command_that_slurm_did_not_answer_may_get_its_job_late() {
        let late = |end: End, took: u64| {
            let one = Submitter {
                until: None,
                since: records::now() - took,
                ..submitter()
            };
            let mut all = BTreeMap::from([(1, one)]);
            assert!(end_of(&mut all, 1, &end));
            all[&1].late
        };
        assert_eq!(late(End::SUCCESS, 100), 0);
        assert_eq!(late(End::Code(1), 1), SLACK, "a refusal of Slurm's");
        assert_eq!(late(End::Code(1), UNANSWERED), LATE);
        assert_eq!(late(End::Signal(15), 0), LATE);
        let killed = Submitter {
            late: LATE,
            ..submitter()
        };
        let (until, asked_for) = (killed.until.unwrap(), BTreeSet::from([1]));
        let mut all = BTreeMap::from([(1, killed)]);
        forget(&mut all, &asked_for, until + LATE);
        let job = Job {
            submitted: until + LATE,
            ..read(SQUEUE.as_bytes()).remove(0)
        };
        assert!(owns(&all[&1], &job));
        forget(&mut all, &asked_for, until + LATE + 1);
        assert!(all.is_empty());
    }

    #[test]
    fn other_hosts_have_the_same_process_ids() {
        let jobs = read(SQUEUE.as_bytes());
        let none = hosts(&jobs, &BTreeSet::new());
        assert!(none.contains("localhost") && !none.contains("login1") && !none.contains("other"));
        assert!(hosts(&jobs, &BTreeSet::from([17])).contains("login1"));
    }
}
