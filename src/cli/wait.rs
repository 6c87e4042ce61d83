//! `agent-sandbox wait`: jobs, and for how long.

use std::time::Duration;

use clap::Parser;

use super::Call;
use super::run::duration;
use crate::wait::Job;

/// Wait until jobs have ended, inside a jail as outside: a line for each with its state and exit code. Costs Slurm far less
/// than a loop of squeue
#[derive(Debug, Parser)]
#[command(
    name = "agent-sandbox wait",
    after_help = "Exit status: 0 if every job is COMPLETED, else that of the first that is not: its own, 128+N if signal N ended\n\
                  it, 1 if it never began, was cancelled or ran out of time. 124 if --timeout was over."
)]
pub(super) struct WaitWords {
    /// A job, an array for all of its tasks, or one of them (12_3)
    #[arg(value_name = "JOBID", required = true, value_parser = Job::parse)]
    jobs: Vec<Job>,
    /// Wait no longer: 90s, 10m, 1.5h, 2d
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
}

pub(super) fn read(words: WaitWords) -> Call {
    let mut jobs = words.jobs;
    let mut seen = Vec::new();
    jobs.retain(|job| {
        let new = !seen.contains(job);
        seen.push(job.clone());
        new
    });
    Call::Wait {
        jobs,
        timeout: words.timeout,
    }
}
