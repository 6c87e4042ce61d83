//! `agent-sandbox wait`: waits until jobs have ended, inside a jail as outside, with Slurm's own commands. One question is
//! for all of the user's jobs, and everybody asks it at the same moments of the clock, so that inside, where answers
//! are shared, many who wait cost one query.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: starts squeue, sacct and scontrol, and sleeps"
)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;
use nix::time::{ClockId, clock_gettime};

use crate::cli::{Job, WaitCall};
use crate::failure::Failure;

/// The longest pause between two looks; sbatch --wait has the same.
const LONGEST_PAUSE: Duration = Duration::from_secs(32);
/// The exit code of one whose time was over, as timeout(1) has it.
const TIME_OVER: u8 = 124;
/// Variables by which the commands would pick or print other things.
const OTHERWISE: [&str; 4] = ["SQUEUE_", "SACCT_", "SCONTROL_", "SLURM_"];
/// Which of these say where Slurm is.
const WHERE: [&str; 2] = ["SLURM_CONF", "SLURM_CONF_SERVER"];
/// States of a job that has not ended (`job state codes`, squeue(1)); the others are ends.
const STATES_BEFORE: [&str; 13] = [
    "COMPLETING",
    "CONFIGURING",
    "PENDING",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "RESIZING",
    "RESV_DEL_HOLD",
    "RUNNING",
    "SIGNALING",
    "SPECIAL_EXIT",
    "STAGE_OUT",
    "SUSPENDED",
];

/// How a job ended, in Slurm's words.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ended {
    job: Job,
    own: Option<u32>,
    state: String,
    /// `CODE:SIGNAL`
    exit: String,
}

impl Ended {
    /// What a shell would say: the code, or 128 and the signal; 1 for a job that did not complete in another way.
    fn code(&self) -> u8 {
        let (code, signal) = self.exit.split_once(':').unwrap_or((&self.exit, "0"));
        let number = |text: &str| text.parse::<u8>().unwrap_or(0);
        match (number(code), number(signal)) {
            (0, 0) => u8::from(self.state != "COMPLETED"),
            (0, signal) => signal.saturating_add(128),
            (code, _) => code,
        }
    }
}

/// Waits for jobs and says a line for each that has ended; the first exit code that is not 0.
///
/// # Errors
/// Slurm cannot be asked, there is no such job, or the time is over.
pub fn wait(call: WaitCall, mut say: impl FnMut(&str) -> Result<()>) -> Result<u8> {
    let WaitCall { mut jobs, timeout } = call;
    let deadline = timeout.map(|timeout| now() + timeout);
    let mut pause = Duration::from_secs(1);
    let mut first = true;
    let mut worst = 0;
    loop {
        match active() {
            Ok(active) => {
                let (waiting, gone): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(|job| {
                    active
                        .iter()
                        .any(|(printed, own)| job.is(printed, Some(*own)))
                });
                jobs = waiting;
                let mut ends = ends(&gone);
                for job in gone {
                    match ends.remove(&job.to_string()) {
                        Some(tasks) if tasks.iter().all(|task| is_end(&task.state)) => {
                            for task in tasks {
                                say(&format!("{} {} {}\n", task.job, task.state, task.exit))?;
                                worst = if worst == 0 { task.code() } else { worst };
                            }
                        }
                        // It is between two states.
                        Some(_) => jobs.push(job),
                        None if first => {
                            return Err(Failure::new(format!("Invalid job id specified: {job}"))
                                .hint("squeue and sacct show the jobs within reach")
                                .code(1)
                                .into());
                        }
                        None => {
                            say(&format!("{job} UNKNOWN\n"))?;
                            worst = worst.max(1);
                        }
                    }
                }
                first = false;
            }
            // Slurm's controller may be away for a while; who asks it for the first time is told.
            Err(error) if first => return Err(error),
            Err(_) => {}
        }
        if jobs.is_empty() {
            return Ok(worst);
        }
        // At the same moments for all: the next whole multiple.
        let now = now();
        let until = Duration::from_secs((now.as_secs() / pause.as_secs() + 1) * pause.as_secs());
        pause = (pause * 2).min(LONGEST_PAUSE);
        match deadline {
            Some(deadline) if deadline <= now => {
                let names: Vec<String> = jobs.iter().map(Job::to_string).collect();
                let text = format!("the time is over, and not ended are: {}", names.join(", "));
                return Err(Failure::new(text).code(TIME_OVER).into());
            }
            deadline => {
                let until = deadline.map_or(until, |deadline| until.min(deadline));
                std::thread::sleep(until.saturating_sub(now));
            }
        }
    }
}

fn is_end(state: &str) -> bool {
    !STATES_BEFORE.contains(&state)
}

/// The user's jobs that have not ended and that may be seen in full, each task by itself, with the number that it has
/// besides. Of one whose nodes are being cleaned the accounts may know the end already.
fn active() -> Result<Vec<(Job, u32)>> {
    let uid = nix::unistd::getuid().to_string();
    let user = format!("--user={uid}");
    let words = [
        "--noheader",
        "--all",
        "--array",
        &user,
        "--format=%i %A %U %T",
    ];
    let said = ask("squeue", &words)?;
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let job = Job::printed(words.next()?)?;
        let own = words.next()?.parse().ok()?;
        (words.next()? == uid && words.next()? != "COMPLETING").then_some((job, own))
    };
    Ok(said.lines().filter_map(line).collect())
}

/// How jobs ended that are in no queue, by the name under which each is asked for: by the accounts, and what they do not
/// have yet by slurmctld, which remembers for some minutes.
fn ends(jobs: &[Job]) -> BTreeMap<String, Vec<Ended>> {
    let mut all = BTreeMap::new();
    if jobs.is_empty() {
        return all;
    }
    let names: Vec<String> = jobs.iter().map(Job::to_string).collect();
    let list = format!("--jobs={}", names.join(","));
    let words = [
        "--noheader",
        "--allocations",
        "--parsable2",
        "--format=JobID,JobIDRaw,State,ExitCode",
        &list,
    ];
    let said = ask("sacct", &words).unwrap_or_default();
    let accounted: Vec<Ended> = said.lines().filter_map(accounted).collect();
    for job in jobs {
        let mut found = of(job, &accounted);
        if found.is_empty() || !found.iter().all(|one| is_end(&one.state)) {
            let said = ask("scontrol", &["show", "job", &job.to_string()]).unwrap_or_default();
            let shown: Vec<Ended> = said.split("\n\n").filter_map(shown).collect();
            let shown = of(job, &shown);
            if !shown.is_empty() {
                found = shown;
            }
        }
        if !found.is_empty() {
            all.insert(job.to_string(), found);
        }
    }
    all
}

/// Those of the ends that are a job's: its very own, else those of which it may be one.
fn of(job: &Job, all: &[Ended]) -> Vec<Ended> {
    let exact = |one: &&Ended| one.job == *job && !job.is_whole();
    let its = |one: &&Ended| job.is(&one.job, one.own);
    match all.iter().find(exact) {
        Some(one) => vec![one.clone()],
        None => all.iter().filter(its).cloned().collect(),
    }
}

/// A line of sacct's.
fn accounted(line: &str) -> Option<Ended> {
    let mut fields = line.trim().split('|');
    Some(Ended {
        job: Job::printed(fields.next()?)?,
        own: fields.next()?.parse().ok(),
        // `CANCELLED by 1000`
        state: fields.next()?.split_whitespace().next()?.to_owned(),
        exit: fields.next()?.to_owned(),
    })
}

/// What scontrol shows of a job. A name may hold anything, but begins no line.
fn shown(block: &str) -> Option<Ended> {
    let numbers = block.trim_start().split(" JobName=").next()?;
    let number = |name: &str| {
        let mut words = numbers.split_whitespace();
        words.find_map(|word| word.strip_prefix(name))
    };
    let own = number("JobId=")?;
    let name = match (
        number("ArrayJobId="),
        number("ArrayTaskId="),
        number("HetJobId="),
        number("HetJobOffset="),
    ) {
        (Some(array), Some(task), ..) if task.parse::<u32>().is_ok() => format!("{array}_{task}"),
        (Some(array), Some(tasks), ..) => format!("{array}_[{tasks}]"),
        (_, _, Some(whole), Some(offset)) => format!("{whole}+{offset}"),
        _ => own.to_owned(),
    };
    let mut lines = block.lines().map(str::trim_start);
    let state = lines.find_map(|line| line.strip_prefix("JobState="))?;
    let exit = lines
        .find(|line| line.starts_with("Requeue="))
        .and_then(|line| {
            line.split_whitespace()
                .find_map(|word| word.strip_prefix("ExitCode="))
        })?;
    Some(Ended {
        job: Job::printed(&name)?,
        own: own.parse().ok(),
        state: state.split_whitespace().next()?.to_owned(),
        exit: exit.to_owned(),
    })
}

/// What one of Slurm's commands says.
fn ask(name: &str, words: &[&str]) -> Result<String> {
    let mut command = Command::new(name);
    command.args(words).stdin(Stdio::null());
    let other = |name: &OsStr| {
        let name = name.to_string_lossy();
        OTHERWISE.iter().any(|start| name.starts_with(start)) && !WHERE.contains(&&*name)
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| other(name)) {
        command.env_remove(name);
    }
    let said = command.output().map_err(|error| {
        Failure::new(format!("cannot ask Slurm: {name}: {error}"))
            .hint("agent-sandbox explain --slurm squeue says whether Slurm works here")
    })?;
    if !said.status.success() {
        // The last line says what came of those before it.
        let text = String::from_utf8_lossy(&said.stderr);
        let text = text.trim().lines().last().unwrap_or("it says nothing");
        return Err(Failure::new(format!("cannot ask Slurm: {text}")).into());
    }
    Ok(String::from_utf8_lossy(&said.stdout).into_owned())
}

/// Since this boot: the same for all on a node.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn ended(line: &str) -> Ended {
        accounted(line).unwrap()
    }

    #[test]
    fn the_exit_code_is_that_of_a_shell() {
        for (line, code) in [
            ("7|7|COMPLETED|0:0", 0),
            ("7|7|FAILED|3:0", 3),
            ("7|7|FAILED|0:9", 137),
            ("7|7|CANCELLED by 1000|0:0", 1),
            ("7|7|TIMEOUT|0:0", 1),
            ("7|7|OUT_OF_MEMORY|0:125", 253),
        ] {
            assert_eq!(ended(line).code(), code, "{line}");
        }
        assert_eq!(accounted("\n"), None);
    }

    #[test]
    fn a_task_is_itself_before_it_is_one_of_many() {
        let all = ["12_3|14|FAILED|1:0", "12_[4-9]|12|CANCELLED by 7|0:0"].map(ended);
        let states = |asked: &str| {
            let found = of(&Job::parse(asked).unwrap(), &all);
            found.into_iter().map(|one| one.state).collect::<Vec<_>>()
        };
        assert_eq!(states("12_3"), ["FAILED"]);
        assert_eq!(states("12_5"), ["CANCELLED"]);
        assert_eq!(states("12"), ["FAILED", "CANCELLED"]);
        assert_eq!(states("14"), ["FAILED"]);
    }

    #[test]
    fn what_scontrol_shows_is_not_what_a_job_is_called() {
        let block = "JobId=14 ArrayJobId=12 ArrayTaskId=3 JobName=a JobState=COMPLETED ExitCode=0:0\n   \
                     UserId=ada(1000) GroupId=ada(1000) MCS_label=N/A\n   JobState=FAILED Reason=NonZeroExitCode\n   \
                     Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=3:0\n   Comment=x";
        let one = shown(block).unwrap();
        assert_eq!((one.job.to_string().as_str(), one.own), ("12_3", Some(14)));
        assert_eq!((one.state.as_str(), one.exit.as_str()), ("FAILED", "3:0"));
        let whole = shown(
            "JobId=12 ArrayJobId=12 ArrayTaskId=4-9%2 JobName=a\n   JobState=PENDING\n   Requeue=1 ExitCode=0:0",
        );
        assert_eq!(whole.unwrap().job.to_string(), "12_[4-9%2]");
        let component = shown(
            "JobId=13 HetJobId=12 HetJobOffset=1 JobName=a\n   JobState=COMPLETED\n   Requeue=1 ExitCode=0:0",
        );
        assert_eq!(component.unwrap().job.to_string(), "12+1");
        assert_eq!(shown("slurm_load_jobs error"), None);
    }
}
