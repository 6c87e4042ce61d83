//! Which jobs the session may see in full and touch: `[slurm] scope`.

use std::collections::BTreeSet;
use std::rc::Rc;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;
use agent_sandbox_wire::order::{Queries, Scope};

use super::ask::ask;
use super::ids::{self, Selector};
use super::{records, submitted};
use crate::refusal::{Reason, Refusal};
use crate::session::Session;

/// Between the fields of what is asked for here. It is in no number.
const BETWEEN: &str = "|";

/// The jobs in the scope, as of now.
#[derive(Clone, Debug)]
pub struct View {
    jobs: BTreeSet<u32>,
    /// All of the user's.
    all: bool,
    uid: u32,
}

impl View {
    /// Whether a job is in the scope. `job` is its number, of an array task the array's; `uid` is
    /// whose it is. Numbers come round again: another user's job is never in the scope, even if a
    /// record has its number.
    pub fn shows(&self, job: u32, uid: u32) -> bool {
        uid == self.uid && self.has(job)
    }

    /// Whether one of the user's jobs is in the scope.
    pub fn has(&self, job: u32) -> bool {
        self.all || self.jobs.contains(&job)
    }

    /// The recorded jobs of the scope; with scope `user` there are more.
    pub fn recorded(&self) -> &BTreeSet<u32> {
        &self.jobs
    }

    /// Whether every job of the user is in the scope.
    pub fn is_user(&self) -> bool {
        self.all
    }

    /// The user.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    #[cfg(test)]
    pub(crate) fn of(jobs: &[u32], all: bool, uid: u32) -> Self {
        Self {
            jobs: jobs.iter().copied().collect(),
            all,
            uid,
        }
    }
}

/// The jobs in the scope.
///
/// # Errors
/// The records cannot be read, or Slurm does not answer.
pub async fn view(session: &Rc<Session>) -> Result<View, Refusal> {
    submitted::resolve(session).await?;
    known(session).await
}

/// The same without asking Slurm what became of commands that ended early.
///
/// # Errors
/// The records cannot be read.
pub async fn known(session: &Rc<Session>) -> Result<View, Refusal> {
    let mut jobs = records::ids(session).await?;
    if let Some(job) = &session.order.job {
        jobs.insert(job.id);
        let ours = &session.order.snapshot.allocation;
        jobs.extend(ours.iter().filter(|_| ours.contains(&job.id)));
    }
    jobs.extend(session.allocations.borrow().keys());
    jobs.extend(submitted::jobs(session));
    Ok(View {
        jobs,
        all: session.order.scope == Scope::User,
        uid: session.order.uid,
    })
}

/// Whether the session may see and touch a job.
///
/// # Errors
/// The records cannot be read, or Slurm does not answer.
pub async fn holds(session: &Rc<Session>, job: u32) -> Result<bool, Refusal> {
    held(session, &view(session).await?, job).await
}

async fn held(session: &Rc<Session>, view: &View, job: u32) -> Result<bool, Refusal> {
    // Where the session was started in a task of an array, that task alone is its own: not the array, and not the other tasks.
    let allocation = &session.order.snapshot.allocation;
    let task = allocation.first();
    let of_array = |number: u32| !view.all && task != Some(&job) && allocation.contains(&number);
    if of_array(job) {
        return Ok(false);
    }
    if view.jobs.contains(&job) {
        return Ok(true);
    }
    // A task of an array has a number of its own besides that of the array.
    Ok(match owner(session, job).await? {
        Some((first, uid)) => view.shows(first, uid) && !of_array(first),
        None => false,
    })
}

/// Checks that every job is in the scope.
///
/// # Errors
/// The first that is not, with the rule.
pub async fn check(session: &Rc<Session>, selectors: &[Selector]) -> Result<(), Refusal> {
    let view = view(session).await?;
    let mut seen = BTreeSet::new();
    for selector in selectors {
        if seen.insert(selector.job) && !held(session, &view, selector.job).await? {
            return Err(outside(session, selector));
        }
    }
    Ok(())
}

/// Checks that every job is in the scope and may be changed.
///
/// # Errors
/// The first that is not, with the rule.
pub async fn check_change(session: &Rc<Session>, selectors: &[Selector]) -> Result<(), Refusal> {
    check(session, selectors).await?;
    let protected = selectors.iter().find(|one| session.protects(one.job));
    protected.map_or(Ok(()), |one| Err(protection(one)))
}

/// As [`divide`], of jobs that are to be changed. A step of the allocation in which the session was
/// started may be, if the session runs it.
///
/// # Errors
/// The records cannot be read, or Slurm does not answer.
pub async fn divide_change(
    session: &Rc<Session>,
    selectors: &[Selector],
) -> Result<(Vec<Selector>, Vec<Outside>), Refusal> {
    let (held, mut refused) = divide(session, selectors).await?;
    let mut inside = Vec::new();
    for one in held {
        match kept_back(session, &one).await? {
            None => inside.push(one),
            Some(refusal) => refused.push((one, refusal)),
        }
    }
    Ok((inside, refused))
}

/// Why a job of the scope may not be changed, if it may not.
async fn kept_back(session: &Rc<Session>, one: &Selector) -> Result<Option<Refusal>, Refusal> {
    let may = !session.protects(one.job) || (one.is_step() && runs(session, one).await?);
    Ok((!may).then(|| protection(one)))
}

/// The refusal for the allocation in which the session was started, and for steps of others in it.
pub fn protection(selector: &Selector) -> Refusal {
    let what = match selector.is_step() {
        true => "is no step that this session runs",
        false => "is the allocation in which this session was started",
    };
    Refusal::rule(
        format!("job {selector} {what} (`slurm.allocation` is `steps`)"),
        "a session cancels its own steps there, by their numbers: squeue --me --steps; the rest is the user's, outside the jail",
    )
}

/// Whether this chaperon's own srun runs a step: Slurm knows which process asked for it.
async fn runs(session: &Rc<Session>, step: &Selector) -> Result<bool, Refusal> {
    let words = ["--oneliner", "show", "step", &step.to_string()];
    let said = ask(
        session,
        Command::Scontrol,
        words.map(Into::into).to_vec(),
        Vec::new(),
    )
    .await?;
    let host = nix::unistd::gethostname().unwrap_or_default();
    let host = host.to_string_lossy();
    let pid = asker(&String::from_utf8_lossy(&said.output), step, &host);
    Ok(pid.is_some_and(|pid| session.steps.borrow().contains(&pid)))
}

/// The process on this host that asked for a step, in what `scontrol show step` says of it.
fn asker(said: &str, step: &Selector, host: &str) -> Option<u32> {
    let of_it = |line: &&str| {
        let mut words = line.split_ascii_whitespace();
        words.next() == Some(&format!("StepId={step}"))
    };
    let mut lines = said.lines().filter(of_it);
    let line = lines.next().filter(|_| lines.next().is_none())?;
    // A name or a path that a user gave may hold the same words, in front of Slurm's or, since 25.05, behind them.
    let (before, asker) = line.split_once(" SrunHost:Pid=")?;
    if before.contains("SrunHost:Pid=") || asker.contains("SrunHost:Pid=") {
        return None;
    }
    let (on, pid) = asker.split_ascii_whitespace().next()?.rsplit_once(':')?;
    let short = |name: &str| name.split('.').next().map(str::to_owned);
    (short(on) == short(host)).then_some(pid.parse().ok()?)
}

/// A job outside the scope, and the rule.
pub type Outside = (Selector, Refusal);

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Membership {
    /// In the scope.
    Inside,
    /// Outside, by this rule.
    Outside(Refusal),
    /// In no queue: slurmctld does not know it, or no more. Where other users' jobs are hidden these
    /// are [`Self::Outside`] as well: nobody learns which are there.
    Nowhere,
}

/// Where each of the jobs stands that are to be changed.
///
/// # Errors
/// The records cannot be read, or Slurm does not answer.
pub async fn memberships(
    session: &Rc<Session>,
    selectors: &[Selector],
) -> Result<Vec<Membership>, Refusal> {
    let view = view(session).await?;
    let mut all = Vec::with_capacity(selectors.len());
    for selector in selectors {
        let job = selector.job;
        all.push(if held(session, &view, job).await? {
            match kept_back(session, selector).await? {
                None => Membership::Inside,
                Some(refusal) => Membership::Outside(refusal),
            }
        } else if session.order.queries != Queries::None && queued(session, job).await?.is_none() {
            Membership::Nowhere
        } else {
            Membership::Outside(outside(session, selector))
        });
    }
    Ok(all)
}

/// Those of the jobs that are in the scope, and those that are not.
///
/// # Errors
/// The records cannot be read, or Slurm does not answer.
pub async fn divide(
    session: &Rc<Session>,
    selectors: &[Selector],
) -> Result<(Vec<Selector>, Vec<Outside>), Refusal> {
    let view = view(session).await?;
    let (mut inside, mut refused) = (Vec::new(), Vec::new());
    for selector in selectors {
        if held(session, &view, selector.job).await? {
            inside.push(selector.clone());
        } else {
            refused.push((selector.clone(), outside(session, selector)));
        }
    }
    Ok((inside, refused))
}

/// The jobs of the scope that are not over.
///
/// # Errors
/// The records cannot be read, or Slurm does not answer.
pub async fn active(session: &Rc<Session>) -> Result<Vec<Selector>, Refusal> {
    let view = view(session).await?;
    let uid = session.order.uid;
    let arguments = [
        "--noheader",
        "--all",
        &format!("--user={uid}"),
        "--format=%F",
    ];
    let arguments = arguments.map(Into::into).to_vec();
    let said = ask(session, Command::Squeue, arguments, Vec::new()).await?;
    if said.end != End::SUCCESS {
        let text = String::from_utf8_lossy(&said.error).trim().to_owned();
        return Err(Refusal::mistake(text));
    }
    let text = String::from_utf8_lossy(&said.output);
    let mut jobs: Vec<u32> = text
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .filter(|&job| view.shows(job, uid))
        .collect();
    jobs.sort_unstable();
    jobs.dedup();
    Ok(jobs.into_iter().map(Selector::job).collect())
}

/// The refusal for a job that is not in the scope.
pub fn outside(session: &Session, selector: &Selector) -> Refusal {
    let (whose, rule) = match session.order.scope {
        Scope::Session => ("this session's", "session"),
        Scope::Project => ("this project's", "project"),
        Scope::User => ("yours", "user"),
    };
    let jobs = if session.order.scope == Scope::User {
        format!("job {selector} is not {whose}")
    } else {
        format!("job {selector} is not one of {whose} jobs")
    };
    Refusal::rule(
        format!("{jobs} (`slurm.scope` is `{rule}`)"),
        "squeue and sacct show the jobs within reach; for others use a shell outside the jail",
    )
    .because(Reason::Key("slurm.scope"))
}

/// The number under which a job was submitted that slurmctld knows, and the user's id.
async fn queued(session: &Rc<Session>, job: u32) -> Result<Option<(u32, u32)>, Refusal> {
    let arguments = [
        "--noheader",
        "--all",
        "--states=all",
        &format!("--jobs={job}"),
        &format!("--format=%A{BETWEEN}%F{BETWEEN}%U"),
    ];
    let arguments = arguments.map(Into::into).to_vec();
    let said = ask(session, Command::Squeue, arguments, Vec::new()).await?;
    Ok(named(&said.output, job))
}

/// The same of any job that was.
async fn owner(session: &Rc<Session>, job: u32) -> Result<Option<(u32, u32)>, Refusal> {
    if let Some(found) = queued(session, job).await? {
        return Ok(Some(found));
    }
    // slurmctld forgets jobs soon (`MinJobAge`, `slurm.conf(5)`); the accounts do not.
    if session.command(Command::Sacct).is_none() {
        return Ok(None);
    }
    let arguments = [
        "--noheader",
        "--allocations",
        "--parsable2",
        &format!("--delimiter={BETWEEN}"),
        &format!("--jobs={job}"),
        "--format=JobIDRaw,JobID,UID",
    ];
    let arguments = arguments.map(Into::into).to_vec();
    let said = ask(session, Command::Sacct, arguments, Vec::new()).await?;
    Ok(named(&said.output, job))
}

/// Looks for the job in lines of its own number, the number that it was submitted under, and the
/// user's id.
fn named(output: &[u8], job: u32) -> Option<(u32, u32)> {
    let text = String::from_utf8_lossy(output);
    text.lines().find_map(|line| {
        let mut fields = line.split(BETWEEN);
        let own: u32 = fields.next()?.trim().parse().ok()?;
        let first = ids::leading(fields.next()?.trim().as_bytes())?;
        let uid = fields.next()?.trim().parse().ok()?;
        (own == job || first == job).then_some((first, uid))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_task_is_found_by_its_own_number() {
        let squeue = b"18|16|2001\n19|16|2001\n16|16|2001\n";
        assert_eq!(named(squeue, 19), Some((16, 2001)));
        assert_eq!(named(squeue, 16), Some((16, 2001)));
        assert_eq!(named(squeue, 17), None);
        let sacct = b"18|16_1|2001\n";
        assert_eq!(named(sacct, 18), Some((16, 2001)));
        assert_eq!(named(b"\n|\nx|y|z\n", 18), None);
    }

    #[test]
    fn who_asked_for_a_step_is_what_slurm_says() {
        let step = Selector {
            job: 7,
            rest: ".0".into(),
        };
        let line =
            "StepId=7.0 UserId=1003 State=RUNNING Nodes=1 Name=sleep SrunHost:Pid=login1:387";
        assert_eq!(asker(line, &step, "login1.site"), Some(387));
        assert_eq!(asker(line, &step, "login2"), None);
        let named = line.replace("Name=sleep", "Name=a SrunHost:Pid=login1:1");
        assert_eq!(asker(&named, &step, "login1"), None, "who said it?");
        let behind = format!("{line} StdOut=/a SrunHost:Pid=login1:1");
        assert_eq!(asker(&behind, &step, "login1"), None, "who said it?");
        let other = line.replace("7.0", "7.01");
        assert_eq!(asker(&other, &step, "login1"), None);
        assert_eq!(asker("Job step 7.0 not found", &step, "login1"), None);
    }

    #[test]
    fn another_users_job_of_a_recorded_number_is_not_shown() {
        let view = View::of(&[7], false, 2001);
        assert!(view.shows(7, 2001));
        assert!(!view.shows(7, 2002));
        assert!(!view.shows(8, 2001));
        assert!(View::of(&[], true, 2001).shows(8, 2001));
        assert!(!View::of(&[], true, 2001).shows(8, 2002));
    }
}
