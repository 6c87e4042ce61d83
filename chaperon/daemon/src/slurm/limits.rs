//! `[slurm.limits]`: how many jobs there may be at the same time.

use agent_sandbox_wire::order::Limit;

use super::bounds::array_tasks;
use super::parse::Parsed;
use crate::refusal::{Reason, Refusal};

/// Checks that a job alone is not more jobs than there may be; how many it is. `None` without a limit.
///
/// # Errors
/// It is an array of more tasks, or their number cannot be told.
pub fn check_array(limit: &Limit, parsed: &Parsed) -> Result<Option<u64>, Refusal> {
    if limit.most == 0 {
        return Ok(None);
    }
    let new = jobs_of(parsed).ok_or_else(|| unclear(limit))?;
    check_jobs(new, limit)?;
    Ok(Some(new))
}

/// How many jobs a submission makes; `None`: its array is not understood.
pub fn jobs_of(parsed: &Parsed) -> Option<u64> {
    parsed.value("array").map_or(Some(1), array_tasks)
}

/// Checks that so many jobs may be in the queue.
///
/// # Errors
/// They are too many.
pub fn check_jobs(jobs: u64, limit: &Limit) -> Result<(), Refusal> {
    let Limit { most, source } = limit;
    if jobs <= u64::from(*most) {
        return Ok(());
    }
    Err(Refusal::rule(
        format!(
            "{jobs} jobs in the queue: the policy allows {most} (`slurm.limits.jobs`, {source})"
        ),
        "ask for less, or have the limit raised in the policy",
    )
    .because(Reason::Limit("jobs")))
}

fn unclear(limit: &Limit) -> Refusal {
    let source = &limit.source;
    Refusal::rule(
        format!("the value of --array is not understood, and the policy has a limit (`slurm.limits.jobs`, {source})"),
        "write plain numbers",
    )
    .because(Reason::Limit("jobs"))
}
