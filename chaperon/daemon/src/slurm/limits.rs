//! `[slurm.limits]`: how many jobs there may be at the same time.

use super::bounds::array_tasks;
use super::parse::Parsed;
use crate::refusal::{Reason, Refusal};

/// Checks that a job alone is not more jobs than there may be; how many it is. `None` without a limit.
///
/// # Errors
/// It is an array of more tasks, or their number cannot be told.
pub fn check_array(most: u32, parsed: &Parsed) -> Result<Option<u64>, Refusal> {
    if most == 0 {
        return Ok(None);
    }
    let new = match parsed.value("array") {
        None => 1,
        Some(text) => array_tasks(text).ok_or_else(unclear)?,
    };
    check_jobs(new, most)?;
    Ok(Some(new))
}

/// Checks that so many jobs may be in the queue.
///
/// # Errors
/// They are too many.
pub fn check_jobs(jobs: u64, most: u32) -> Result<(), Refusal> {
    if jobs <= u64::from(most) {
        return Ok(());
    }
    Err(Refusal::rule(
        format!("{jobs} jobs in the queue: the policy allows {most} (`slurm.limits.jobs`)"),
        "ask for less, or have the limit raised in the policy",
    )
    .because(Reason::Limit("jobs")))
}

fn unclear() -> Refusal {
    Refusal::rule(
        "the value of --array is not understood, and the policy has a limit (`slurm.limits.jobs`)",
        "write plain numbers",
    )
    .because(Reason::Limit("jobs"))
}
