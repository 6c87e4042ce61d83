//! Which jobs the session may see in full and touch: `[slurm] scope`.

use std::collections::BTreeSet;
use std::rc::Rc;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::order::Scope;

use super::ids::{self, Selector};
use super::query::ask;
use super::{records, submitted};
use crate::refusal::Refusal;
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
    let mut jobs = records::ids(session).await?;
    jobs.extend(session.order.job.iter().map(|job| job.id));
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
    if view.jobs.contains(&job) {
        return Ok(true);
    }
    // A task of an array has a number of its own besides that of the array.
    Ok(match owner(session, job).await? {
        Some((first, uid)) => view.shows(first, uid),
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

/// A job outside the scope, and the rule.
pub type Outside = (Selector, Refusal);

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

/// The refusal for a job that is not in the scope. It says the same of jobs that do not exist.
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
}

/// The number under which the job was submitted, and the user's id.
async fn owner(session: &Rc<Session>, job: u32) -> Result<Option<(u32, u32)>, Refusal> {
    let arguments = [
        "--noheader",
        "--all",
        "--states=all",
        &format!("--jobs={job}"),
        &format!("--format=%A{BETWEEN}%F{BETWEEN}%U"),
    ];
    let arguments = arguments.map(Into::into).to_vec();
    let said = ask(session, Command::Squeue, arguments, Vec::new()).await?;
    if let Some(found) = named(&said.output, job) {
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
    fn another_users_job_of_a_recorded_number_is_not_shown() {
        let view = View::of(&[7], false, 2001);
        assert!(view.shows(7, 2001));
        assert!(!view.shows(7, 2002));
        assert!(!view.shows(8, 2001));
        assert!(View::of(&[], true, 2001).shows(8, 2001));
        assert!(!View::of(&[], true, 2001).shows(8, 2002));
    }
}
