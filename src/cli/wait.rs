//! `agent-sandbox wait`: jobs, and for how long.

use std::time::Duration;

use clap::Parser;

use super::Call;
use super::run::duration;

/// A job, as it is asked for and as Slurm prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    number: u32,
    /// `_3`, of a heterogeneous job `+1`; `_[4-9]` are printed for tasks that never began.
    part: String,
}

impl Job {
    /// Reads `12`, `12_3` or `12+1`.
    ///
    /// # Errors
    /// It names no job.
    pub fn parse(text: &str) -> Result<Self, String> {
        let job = Self::printed(text).filter(|job| {
            let rest = job.part.get(1..).unwrap_or("0");
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
        });
        job.ok_or_else(|| "is no job: write 12, an array's task as 12_3".into())
    }

    /// Reads what Slurm prints.
    pub fn printed(text: &str) -> Option<Self> {
        let end = text.find(['_', '+']).unwrap_or(text.len());
        let (number, part) = text.split_at(end);
        let plain = number.bytes().all(|byte| byte.is_ascii_digit());
        Some(Self {
            number: number.parse().ok().filter(|&job| plain && job > 0)?,
            part: part.to_owned(),
        })
    }

    /// Whether it is no task and no component.
    pub fn is_whole(&self) -> bool {
        self.part.is_empty()
    }

    /// Whether something that Slurm prints is it, or one of its tasks; `own` is the number that the task has besides.
    pub fn is(&self, printed: &Self, own: Option<u32>) -> bool {
        let whole = self.is_whole();
        let same = self.number == printed.number;
        same && (whole || self.part == printed.part || printed.part.starts_with("_["))
            || whole && own == Some(self.number)
    }
}

impl std::fmt::Display for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.number, self.part)
    }
}

/// What is waited for.
#[derive(Clone, Debug)]
pub struct WaitCall {
    /// The jobs, each once.
    pub jobs: Vec<Job>,
    /// For how long at most.
    pub timeout: Option<Duration>,
}

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
    let timeout = words.timeout;
    Call::Wait(WaitCall { jobs, timeout })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_named_as_slurm_names_them() {
        for text in ["12", "12_3", "12+1"] {
            assert_eq!(Job::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "", "0", "x", "-1", "12_", "12_x", "12_[1-3]", "12.0", "12,13", "+1", "12_3_4",
        ] {
            assert!(Job::parse(text).is_err(), "{text}");
        }
        let is = |asked: &str, printed: &str, own| {
            Job::parse(asked)
                .unwrap()
                .is(&Job::printed(printed).unwrap(), Some(own))
        };
        assert!(
            is("12", "12", 12)
                && is("12", "12_3", 14)
                && is("12_3", "12_3", 14)
                && is("14", "12_3", 14)
        );
        assert!(is("12_5", "12_[4-9%2]", 12) && is("12", "12+1", 13) && is("13", "12+1", 13));
        assert!(!is("12_3", "12_4", 15) && !is("1", "12", 12) && !is("12+0", "12+1", 13));
    }
}
