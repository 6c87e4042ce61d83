//! `[slurm.budget]`: whether there are hours enough for a job. Each is written down before its command starts, with its size
//! times its time limit; where that is too much, Slurm is asked first what was used in fact.

use std::io;
use std::rc::Rc;

use agent_sandbox_wire::budget::{Holder, Hours, Resource};

use super::bounds::JobSize;
use super::cluster;
use super::ledger::{self, Entry, Hold, Ledger, Locked, Over, Whose};
use super::records;
use super::settle::settle;
use crate::intent::Intent;
use crate::refusal::{Reason, Refusal};
use crate::session::Session;

/// Where people find what is gone.
const SHOWN: &str = "agent-sandbox budget shows what was used, and what is left";

/// Of so many submissions that are not counted one reads the ledger.
const LOOK_EVERY: u64 = 64;

/// Who asks, as the ledger has it.
struct Asker {
    session: String,
    project: String,
}

impl Asker {
    fn of(session: &Session) -> Self {
        let snapshot = &session.order.snapshot;
        Self {
            session: snapshot.session.clone(),
            project: String::from_utf8_lossy(&snapshot.project).into_owned(),
        }
    }

    fn whose(&self) -> Whose<'_> {
        Whose {
            session: &self.session,
            project: &self.project,
        }
    }
}

/// The entry of a job that is about to be submitted, which is not written yet.
///
/// # Errors
/// The system gives no number.
pub fn draft(session: &Session, size: Option<&JobSize>) -> Result<Entry, Refusal> {
    let Asker {
        session: id,
        project,
    } = Asker::of(session);
    let entry = Entry {
        id: ledger::new_id().map_err(|error| failed(session, &error))?,
        at: ledger::now(),
        session: id,
        project,
        tasks: size.map_or(1, |size| size.tasks),
        size: size.map(|size| size.size).unwrap_or_default(),
        minutes: size.map_or(0, |size| size.minutes),
        ..Entry::default()
    };
    let held = entry.each().times(entry.tasks);
    Ok(Entry { held, ..entry })
}

fn failed(session: &Session, error: &io::Error) -> Refusal {
    let place = Ledger::new(&records::of_slurm(session)).path();
    Refusal::mistake(format!(
        "cannot count hours in `{}`: {error}",
        place.display()
    ))
}

/// Whether there would be room for a job, before it waits for anything.
///
/// # Errors
/// There is none; or the ledger cannot be read.
pub async fn check(session: &Rc<Session>, size: &JobSize) -> Result<(), Refusal> {
    within(session, &draft(session, Some(size))?).await?;
    Ok(())
}

/// Writes a job down, if there is room for it.
///
/// # Errors
/// There is none; or the ledger cannot be read or written.
pub async fn hold(
    session: &Rc<Session>,
    mut entry: Entry,
    intent: &Intent,
) -> Result<Hold, Refusal> {
    let directory = records::of_slurm(session);
    let place = intent.path().strip_prefix(&directory);
    let place = place.map_err(|_| Refusal::mistake("the intent is in another place"))?;
    entry.intent = place.to_string_lossy().into_owned();
    let ledger = Ledger::new(&directory);
    // Reading all of it leaves out what is old, which has to be done now and then.
    let written = match entry.is_counted() || entry.id.is_multiple_of(LOOK_EVERY) {
        true => within(session, &entry)
            .await?
            .write(std::slice::from_ref(&entry)),
        false => ledger.write(&entry).await,
    };
    written.map_err(|error| failed(session, &error))?;
    Ok(Hold::new(ledger, entry))
}

/// The ledger, locked, with room for an entry that is not in it, or for what it has more than before.
async fn within(session: &Rc<Session>, entry: &Entry) -> Result<Locked, Refusal> {
    let budgets = &session.order.budgets;
    let asker = Asker::of(session);
    let ledger = Ledger::new(&records::of_slurm(session));
    let mut asked = false;
    loop {
        let locked = ledger.lock(budgets.days).await;
        let locked = locked.map_err(|error| failed(session, &error))?;
        let mut others = locked.entries.iter();
        let before = others.find(|one| one.id == entry.id);
        let before = before.map(Entry::whole).unwrap_or_default();
        let more = entry.whole().minus(before);
        let over = ledger::judge(&locked.entries, budgets, &asker.whose(), more);
        let Some(over) = over else { return Ok(locked) };
        drop(locked);
        if asked {
            return Err(refused(&over, entry, budgets.days));
        }
        // What Slurm does not say now counts as it was estimated.
        if let Err(refusal) = settle(session).await {
            tracing::info!(target: "slurm", %refusal, "hours not settled");
        }
        asked = true;
    }
}

fn refused(over: &Over, entry: &Entry, days: u32) -> Refusal {
    let Over { limit, sum, asked } = over;
    let (of, key) = (limit.resource, limit.key());
    let whose = match limit.holder {
        Holder::User => "you",
        Holder::Project => "this project",
        Holder::Session => "this session",
    };
    let message = format!(
        "{} {} asked for, and {} are left: the policy allows {whose} {} in {days} days, of which {} were used and {} are held \
         by jobs that wait or run (`{key}`, {})",
        Hours(*asked),
        of.hours(),
        Hours(over.left() / 36 * 36),
        limit.hours,
        Hours(sum.used.of(of)),
        Hours(sum.held.of(of)),
        limit.source
    );
    let minutes = ledger::minutes_left(over, entry.size, entry.tasks);
    let hint = match minutes {
        0 => format!(
            "a job of this size has room when others have ended, or their hours are {days} days old"
        ),
        minutes => format!("the longest that has room now: --time={minutes}"),
    };
    Refusal::rule(message, hint)
        .hint(SHOWN)
        .because(Reason::Key(key))
}

/// Counts a job that is there for so many minutes, at least for those that it had. It is not taken back where Slurm's command
/// fails: `slurmctld` may have set the time limit before it refused another key, or changed some tasks of an array.
///
/// # Errors
/// It is not in the ledger, there is no room for it, or it needs the user's approval.
pub async fn lengthen(session: &Rc<Session>, job: u32, minutes: u64) -> Result<(), Refusal> {
    let mut entry = known(session, job).await?;
    if minutes <= entry.minutes {
        return Ok(());
    }
    let before = entry.each();
    entry.minutes = minutes;
    let more = entry.each().minus(before);
    let runs = entry.tasks.saturating_add(entry.again);
    entry.held = entry.held.plus(more.times(runs));
    change(session, entry).await
}

/// Counts a job that is put back into the queue once more, or all of its tasks, whatever Slurm says: it may have done so with
/// some of them. What it did not do comes back when the job ends.
///
/// # Errors
/// See [`lengthen`].
pub async fn again(session: &Rc<Session>, job: u32, whole: bool) -> Result<(), Refusal> {
    let mut entry = known(session, job).await?;
    let runs = if whole { entry.tasks } else { 1 };
    entry.again = entry.again.saturating_add(runs);
    entry.held = entry.held.plus(entry.each().times(runs));
    entry.over = None;
    change(session, entry).await
}

/// The most nodes that a job was counted with.
///
/// # Errors
/// It is not in the ledger.
pub async fn nodes(session: &Rc<Session>, job: u32) -> Result<u64, Refusal> {
    Ok(known(session, job).await?.size.of(Resource::Node))
}

async fn known(session: &Rc<Session>, job: u32) -> Result<Entry, Refusal> {
    let cluster = cluster::name(session).await?.to_owned();
    let ledger = Ledger::new(&records::of_slurm(session));
    let locked = ledger.lock(session.order.budgets.days).await;
    let locked = locked.map_err(|error| failed(session, &error))?;
    let entry = locked
        .of_job(&cluster, job)
        .filter(|entry| entry.is_counted());
    let (key, source) = session
        .order
        .budgets
        .reason()
        .unwrap_or(("slurm.budget", "policy"));
    entry.cloned().ok_or_else(|| {
        Refusal::rule(
            format!("the hours of job {job} were not counted when it was submitted, and the policy counts them (`{key}`, {source})"),
            "submit the job again; name a task of an array as ARRAY_TASK",
        )
        .because(Reason::Key(key))
    })
}

async fn change(session: &Rc<Session>, entry: Entry) -> Result<(), Refusal> {
    let size = JobSize {
        size: entry.size,
        minutes: entry.minutes,
        tasks: entry.tasks,
    };
    if let Some(threshold) = super::approval::needed(&session.order.budgets, &size) {
        return Err(Refusal::rule(
            format!(
                "job {} would take what needs the user's approval (`{}`, {})",
                entry.job,
                threshold.of.key(),
                threshold.source
            ),
            "submit the job again: it then waits for the approval",
        )
        .because(Reason::Key(threshold.of.key())));
    }
    let locked = within(session, &entry).await?;
    let written = locked.write(std::slice::from_ref(&entry));
    written.map_err(|error| failed(session, &error))
}
