//! What a session asked of Slurm and of its network, from the records that chaperon and filter keep outside.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use agent_sandbox_wire::command::Command as Name;
use serde::Serialize;

use crate::audit;
use crate::launch::slurm_commands::SlurmCommands;

/// Jobs and refusals that are named; how many more there are is told.
const MOST_NAMED: usize = 1000;

/// A job of the session's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Job {
    /// Its number, an array's for its tasks.
    pub(super) id: u32,
    /// How many of its tasks are in which state, in Slurm's words; `null`: not known.
    pub(super) states: Option<BTreeMap<String, u64>>,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// Something that was refused.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Refused {
    /// RFC 3339, UTC.
    pub(super) time: String,
    /// `slurm` or `network`.
    pub(super) by: &'static str,
    /// The command of Slurm's, or the host.
    pub(super) what: String,
    /// Why.
    pub(super) reason: String,
}

/// What was asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    pub(super) jobs: Vec<Job>,
    /// Jobs beyond those.
    pub(super) more_jobs: u64,
    pub(super) refusals: Vec<Refused>,
    /// Refusals beyond those; with them failed requests of which there are too many to be recorded.
    pub(super) more_refusals: u64,
}

/// Reads what the session asked. `not` are jobs that it was started in; `slurm` is asked about the others.
///
/// # Errors
/// The records cannot be read.
pub(super) fn read(
    state: &Path,
    session: &str,
    not: &[u32],
    slurm: &Result<SlurmCommands, String>,
) -> Result<Requests, String> {
    let whole = |error: anyhow::Error| format!("{error:#}");
    let mut requests = audit::requests(state).map_err(whole)?;
    requests.retain(|request| request.session == session);
    let mut connections = audit::connections(state).map_err(whole)?;
    connections.retain(|one| one.session == session && one.verdict == REFUSED);
    let mut all = Requests::default();
    let submits = |command: &str| {
        let names = [Name::Sbatch, Name::Srun, Name::Salloc];
        names.iter().any(|name| name.name() == command)
    };
    let mut ids = BTreeSet::new();
    for request in &requests {
        if submits(&request.command) {
            ids.extend(request.jobs.iter().filter(|job| !not.contains(job)));
            all.more_jobs += request.more_jobs;
        }
        all.more_refusals += request.suppressed;
    }
    let of_slurm = requests.into_iter().filter(|one| one.verdict == REFUSED);
    let of_slurm = of_slurm.map(|one| (one.time, "slurm", one.command, one.reason));
    let of_network = connections.into_iter().map(|one| {
        let what = match one.port {
            Some(port) => format!("{}:{port}", one.name),
            None => one.name,
        };
        (one.time, "network", what, Some(one.reason))
    });
    let mut refusals: Vec<_> = of_slurm.chain(of_network).collect();
    refusals.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.more_refusals += refusals.len().saturating_sub(MOST_NAMED) as u64;
    all.refusals = refusals
        .into_iter()
        .take(MOST_NAMED)
        .map(|(time, by, what, reason)| Refused {
            time: audit::rfc3339(time),
            by,
            what,
            reason: reason.unwrap_or_default(),
        })
        .collect();
    all.more_jobs += ids.len().saturating_sub(MOST_NAMED) as u64;
    let ids: Vec<u32> = ids.into_iter().take(MOST_NAMED).collect();
    if !ids.is_empty() {
        all.jobs = states(&ids, slurm);
    }
    Ok(all)
}

/// The word of records for it.
const REFUSED: &str = "refused";

/// The states of these jobs: `squeue` knows what is in the queue or has just left it, `sacct` the others.
fn states(ids: &[u32], slurm: &Result<SlurmCommands, String>) -> Vec<Job> {
    let slurm = match slurm {
        Ok(slurm) => slurm,
        Err(why) => return ids.iter().map(|&id| unknown(id, why)).collect(),
    };
    let words = [
        "--me",
        "--all",
        "--noheader",
        "--array",
        "--states=all",
        "--format=%F|%T",
    ];
    let queue = slurm.ask(Name::Squeue, words.map(str::to_owned));
    let mut known = queue.as_deref().map(counted).unwrap_or_default();
    let missing: Vec<String> = ids
        .iter()
        .filter(|id| !known.contains_key(id))
        .map(u32::to_string)
        .collect();
    let mut why = "Slurm does not know it any more".to_owned();
    if !missing.is_empty() {
        let jobs = format!("--jobs={}", missing.join(","));
        let words = [
            "--noheader",
            "--allocations",
            "--parsable2",
            "--format=JobID,State",
            &jobs,
        ];
        match slurm.ask(Name::Sacct, words.map(str::to_owned)) {
            Ok(said) => {
                for (id, states) in counted(&said) {
                    known.entry(id).or_insert(states);
                }
                if let Err(unanswered) = &queue {
                    why.clone_from(&unanswered.why);
                }
            }
            Err(unanswered) => why = queue.as_ref().err().unwrap_or(&unanswered).why.clone(),
        }
    }
    let job = |&id: &u32| match known.remove(&id) {
        Some(states) => Job {
            id,
            states: Some(states),
            reason: None,
        },
        None => unknown(id, &why),
    };
    ids.iter().map(job).collect()
}

fn unknown(id: u32, why: &str) -> Job {
    Job {
        id,
        states: None,
        reason: Some(why.to_owned()),
    }
}

/// How many lines `NUMBER…|STATE…` of each job say which state.
fn counted(said: &str) -> BTreeMap<u32, BTreeMap<String, u64>> {
    let mut all: BTreeMap<u32, BTreeMap<String, u64>> = BTreeMap::new();
    for line in said.lines() {
        let Some((job, state)) = line.trim().split_once('|') else {
            continue;
        };
        // `12_3`, `12_[4-9]`, and `CANCELLED by 1000`.
        let number = job.split(|c: char| !c.is_ascii_digit()).next();
        let state = state.split_whitespace().next();
        if let (Some(Ok(number)), Some(state)) = (number.map(str::parse), state) {
            let states = all.entry(number).or_default();
            *states.entry(state.to_owned()).or_default() += 1;
        }
    }
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn states_are_counted_by_job() {
        let said =
            "7|RUNNING\n9|PENDING\n9|RUNNING\n 9_[4-8]|PENDING\n12_3|CANCELLED by 1000\nnone|X\n\n";
        let all = counted(said);
        assert_eq!(all[&7], [("RUNNING".to_owned(), 1)].into());
        let nine = [("PENDING".to_owned(), 2), ("RUNNING".to_owned(), 1)];
        assert_eq!(all[&9], nine.into());
        assert_eq!(all[&12], [("CANCELLED".to_owned(), 1)].into());
        assert_eq!(all.len(), 3);
    }

    #[test]
    fn only_the_sessions_own_is_told() {
        let state = tempfile::tempdir().unwrap();
        let audit = state.path().join("audit");
        std::fs::create_dir(&audit).unwrap();
        let line = |session: &str, command: &str, verdict: &str, rest: &str| {
            format!(
                r#"{{"time":1.5,"session":"{session}","host":"n","command":"{command}","verdict":"{verdict}"{rest}}}"#
            )
        };
        let lines = [
            line("s1", "sbatch", "allowed", r#","jobs":[5,4]"#),
            line("s1", "scancel", "allowed", r#","jobs":[99]"#),
            line("s1", "srun", "allowed", r#","jobs":[6,4]"#),
            line("s1", "sbatch", "refused", r#","reason":"too many","suppressed":3"#),
            line("s2", "sbatch", "allowed", r#","jobs":[7]"#),
            line("s2", "sbatch", "refused", r#","reason":"other""#),
            r#"{"kind":"network","time":2,"session":"s1","host":"n","name":"a.org","port":443,"verdict":"refused","reason":"no rule"}"#.to_owned(),
        ];
        std::fs::write(audit.join("n.jsonl"), lines.join("\n")).unwrap();
        let none = Err("Slurm: there is none".to_owned());
        let read = read(state.path(), "s1", &[6], &none).unwrap();
        let ids: Vec<u32> = read.jobs.iter().map(|job| job.id).collect();
        assert_eq!(ids, [4, 5]);
        assert!(read.jobs.iter().all(|job| job.states.is_none()));
        assert_eq!(read.jobs[0].reason.as_deref(), Some("Slurm: there is none"));
        let what: Vec<&str> = read.refusals.iter().map(|one| one.what.as_str()).collect();
        assert_eq!(what, ["sbatch", "a.org:443"]);
        assert_eq!((read.more_refusals, read.more_jobs), (3, 0));
    }
}
