//! Asks the nodes of a partition, each by a job of its own: one task, outside of any jail, that
//! examines the node. A job for all of them would wait for the last of them.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use agent_sandbox_wire::command::Command;
use anyhow::{Result, bail};

use super::super::compare::Answer;
use super::super::line::Examination;
use super::super::lists::is_name;
use super::run::{self, End, Held, LONGEST_OUTPUT, Program, Ran};
use super::slurm::program;
use crate::cli::Options;
use crate::env_vars;
use crate::failure::Failure;
use crate::host::HostFacts;
use crate::launch;

/// Slurm may take so long to say which nodes there are.
const LIST_PATIENCE: Duration = Duration::from_secs(15);
/// Seconds that a job may wait for its node (srun(1), `--immediate`).
const WAIT_SECONDS: u64 = 15;
/// Minutes that a job may run (srun(1), `--time`). An examination takes a second.
const RUN_MINUTES: u64 = 2;
/// When a node is given up: what the two limits above allow at most.
const PATIENCE: Duration = Duration::from_secs(WAIT_SECONDS + RUN_MINUTES * 60);
/// Nodes that are asked at once. Each costs this node an srun, and the controller a job.
const AT_ONCE: usize = 16;
/// The most memory that an examination needs, as srun takes it. Without it a job may be given all of a
/// node's, and then finds none of those nodes free that do something.
const MEMORY: &str = "256M";
/// States of a node on which a job of ours may start (sinfo(1), "NODE STATE CODES").
const OPEN: [&str; 3] = ["idle", "mixed", "completing"];
/// What the user's own account says of jobs, where a site demands it (srun(1), "INPUT ENVIRONMENT
/// VARIABLES").
const ACCOUNTING: [&str; 3] = [
    env_vars::SLURM_ACCOUNT,
    env_vars::SLURM_QOS,
    env_vars::SLURM_RESERVATION,
];

/// A node, and why it is not asked.
type Listed = (String, Option<String>);

/// What each node of the partition answers.
///
/// # Errors
/// The partition's name is none, or Slurm does not know it; there is no Slurm here.
pub(crate) fn ask(
    options: &Options,
    partition: &str,
    held: &mut Held,
) -> Result<Vec<(String, Answer)>> {
    if !is_name(partition) {
        return Err(Failure::new(format!("`{partition}` is no name of a partition"))
            .hint("a name has letters, digits, `.`, `_` and `-`, and does not begin with `-`; `sinfo` lists them")
            .into());
    }
    let prepared = launch::prepare(options, &[])?;
    let host = &prepared.host;
    let listed = list(host, partition, held)?;
    let (asked, answers): (Vec<Listed>, Vec<Listed>) =
        listed.into_iter().partition(|(_, why)| why.is_none());
    let mut answers: Vec<(String, Answer)> = answers
        .into_iter()
        .map(|(node, why)| (node, Answer::Unavailable(why.unwrap_or_default())))
        .collect();
    let cwd = &prepared.invocation.cwd;
    let programs: Result<Vec<Program>> = asked
        .iter()
        .map(|(node, _)| call(options, host, partition, node, cwd))
        .collect();
    let ran = run::all(held, &programs?, AT_ONCE);
    answers.extend(
        asked
            .into_iter()
            .zip(&ran)
            .map(|((node, _), ran)| (node, answer(ran))),
    );
    answers.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(answers)
}

/// The nodes of a partition; with each that cannot be asked, why.
fn list(host: &HostFacts, partition: &str, held: &mut Held) -> Result<Vec<Listed>> {
    let words = [
        "--noheader".to_owned(),
        "--Node".to_owned(),
        format!("--partition={partition}"),
        "--format=%N|%T|%E".to_owned(),
    ]
    .map(OsString::from);
    let Some(program) = program(host, Command::Sinfo, &words, LIST_PATIENCE) else {
        return Err(Failure::new(
            "there is no Slurm here that can be trusted, so no node can be asked",
        )
        .hint("`agent-sandbox doctor` says what was found")
        .into());
    };
    let Some(ran) = run::all(held, &[program], 1).pop() else {
        bail!("sinfo was not started");
    };
    if !ran.good() {
        return Err(silent(partition, &ran));
    }
    if ran.stdout.len() >= LONGEST_OUTPUT {
        bail!("the partition `{partition}` has more nodes than can be asked");
    }
    let text = String::from_utf8_lossy(&ran.stdout);
    let mut all: Vec<Listed> = text.lines().filter_map(listed).collect();
    all.sort_unstable();
    all.dedup_by(|one, other| one.0 == other.0);
    if all.is_empty() {
        return Err(
            Failure::new(format!("Slurm knows no node of a partition `{partition}`"))
                .hint("`sinfo --summarize` lists the partitions")
                .into(),
        );
    }
    Ok(all)
}

/// That `sinfo` failed, with its own words.
fn silent(partition: &str, ran: &Ran) -> anyhow::Error {
    let why = ran.why();
    let message = format!("sinfo does not say which nodes the partition `{partition}` has: {why}");
    let hint = "is slurmctld up, and can this node reach it? See: scontrol ping";
    Failure::new(message).hint(hint).into()
}

/// A line of `sinfo`'s. What is no name of a node is none.
fn listed(line: &str) -> Option<Listed> {
    let mut fields = line.splitn(3, '|').map(str::trim);
    let (node, state) = (fields.next()?, fields.next()?);
    let reason = fields.next().unwrap_or_default();
    if !is_name(node) {
        return None;
    }
    if OPEN.contains(&state) {
        return Some((node.to_owned(), None));
    }
    let busy = state.starts_with("alloc") || state.starts_with("reserved");
    let why = match (busy, reason) {
        (true, _) => format!("busy ({state}): ask again when jobs have ended"),
        (false, "" | "none") => format!("its state is `{state}`; ask your administrators"),
        (false, reason) => {
            format!("its state is `{state}`, the reason `{reason}`; ask your administrators")
        }
    };
    Some((node.to_owned(), Some(why)))
}

/// The job of one node.
fn call(
    options: &Options,
    host: &HostFacts,
    partition: &str,
    node: &str,
    cwd: &Path,
) -> Result<Program> {
    let mut chdir = OsString::from("--chdir=");
    chdir.push(cwd);
    let mut words: Vec<OsString> = vec![
        format!("--partition={partition}").into(),
        format!("--nodelist={node}").into(),
        "--nodes=1".into(),
        "--ntasks=1".into(),
        "--cpus-per-task=1".into(),
        format!("--mem={MEMORY}").into(),
        format!("--immediate={WAIT_SECONDS}").into(),
        format!("--time={RUN_MINUTES}").into(),
        "--job-name=agent-sandbox-doctor".into(),
        "--input=none".into(),
        "--mpi=none".into(),
        "--export=ALL".into(),
        "--quiet".into(),
        chdir,
        "--".into(),
        host.executable.clone().into(),
        "doctor".into(),
        "--json".into(),
    ];
    if let Some(backend) = options.backend {
        words.extend(["--backend".into(), backend.word().into()]);
    }
    for profile in &options.profile {
        words.extend(["--profile".into(), profile.into()]);
    }
    let Some(mut program) = program(host, Command::Srun, &words, PATIENCE) else {
        bail!("the command srun was not found, or cannot be trusted, so no node can be asked");
    };
    for name in ACCOUNTING {
        if let Some(value) = host
            .variable(name)
            .filter(|value| value.to_str().is_some_and(is_name))
        {
            program.environment.push((name.into(), value.to_owned()));
        }
    }
    Ok(program)
}

/// What came back from a node, as far as it is what agent-sandbox says.
fn answer(ran: &Ran) -> Answer {
    // A prolog of the site's may have written something before.
    let start = ran.stdout.iter().position(|&byte| byte == b'{');
    let json = start.map(|at| &ran.stdout[at..]);
    if let Some(Ok(found)) = json.map(serde_json::from_slice::<Examination>) {
        return Answer::Examined(Box::new(found));
    }
    let why = ran.why();
    match ran.end {
        End::Late => Answer::Unavailable(format!(
            "no answer within {} s, and the job was ended",
            PATIENCE.as_secs()
        )),
        _ if why.contains("Unable to allocate resources") => Answer::Unavailable(why),
        _ => Answer::Failed(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_asked_only_where_a_job_may_start() {
        assert_eq!(listed("n1|idle|none"), Some(("n1".into(), None)));
        assert_eq!(listed("n1|mixed|none"), Some(("n1".into(), None)));
        let why = |line: &str| listed(line).and_then(|(_, why)| why).unwrap();
        assert!(why("n1|drained|bad | disk").contains("`bad | disk`"));
        assert!(why("n1|down*|none").contains("`down*`"));
        assert!(why("n1|allocated|none").contains("busy"));
        for bad in ["", "n1", "-n|idle|none", "n[1-2]|idle|none", "a b|idle|"] {
            assert_eq!(listed(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_sinfo_says_of_its_failure_is_told() {
        let error = silent(
            "debug",
            &Ran {
                end: End::Code(1),
                stdout: Vec::new(),
                stderr: b"slurm_load_partitions: Unable to contact slurm controller\n".to_vec(),
                took: Duration::ZERO,
            },
        );
        let said = error.to_string();
        assert!(said.contains("partition `debug`"), "{said}");
        assert!(
            said.contains("Unable to contact slurm controller"),
            "{said}"
        );
    }

    #[test]
    fn only_an_examination_is_an_answer() {
        let ran = |stdout: &str, stderr: &str, end| Ran {
            end,
            stdout: stdout.into(),
            stderr: stderr.into(),
            took: Duration::ZERO,
        };
        let good = r#"{"version":"1","node":"n","executable":"/a","digest":null,"starts":false,
            "backend":null,"why":"w","checks":[],"absent":[],"later":1}"#;
        assert!(matches!(
            answer(&ran(&format!("prolog\n{good}"), "", End::Code(1))),
            Answer::Examined(_)
        ));
        for bad in [
            "{}",
            "[",
            "{\"version\":1}",
            &good.replace("[]", "[{\"name\":\"x\"}]"),
        ] {
            assert!(
                matches!(answer(&ran(bad, "", End::Code(0))), Answer::Failed(_)),
                "{bad}"
            );
        }
        let busy = "srun: error: Unable to allocate resources: Requested nodes are busy\n";
        assert!(matches!(
            answer(&ran("", busy, End::Code(1))),
            Answer::Unavailable(_)
        ));
        assert!(matches!(
            answer(&ran("", "", End::Late)),
            Answer::Unavailable(_)
        ));
    }
}
