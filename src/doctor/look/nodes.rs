//! Asks nodes, each by a job of its own: one task, outside of any jail, that examines the node; and then by one that is submitted
//! in a jail, and has to run in one. A job for all of them would wait for the last of them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use agent_sandbox_wire::command::Command;
use anyhow::{Result, bail};

use super::super::compare::Answer;
use super::super::line::Examination;
use super::super::lists::{is_list, is_name};
use super::run::{self, End, Held, LONGEST_OUTPUT, Program, Ran};
use super::slurm::program;
use super::trial::as_words;
use crate::cli::Options;
use crate::env_vars;
use crate::failure::Failure;
use crate::host::HostFacts;
use crate::launch::{self, Prepared};

/// Slurm may take so long to say which nodes there are.
const LIST_PATIENCE: Duration = Duration::from_secs(15);
/// Seconds that a job may wait for its node (srun(1), `--immediate`).
const WAIT_SECONDS: u64 = 15;
/// Minutes that a job may run (srun(1), `--time`). An examination takes a second.
const RUN_MINUTES: u64 = 2;
/// When a node is given up: what the two limits above allow at most.
const PATIENCE: Duration = Duration::from_secs(WAIT_SECONDS + RUN_MINUTES * 60);
/// When the cancelling of what is left is given up.
const CANCEL_PATIENCE: Duration = Duration::from_secs(10);
/// On more nodes no job is submitted from a jail: a user may submit so many in a minute (`slurm.limits`).
const MOST_FROM_JAILS: usize = 32;
/// What the job in a jail says: the name of the variable that every jail has, if it has it.
const SAYS_WHERE: &str = "echo \"jail=${AGENT_SANDBOX:-none}\"";
/// How what it says begins without a jail.
const NO_JAIL: &str = "jail=none";
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

/// A node in one of its partitions, and why it is not asked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    node: String,
    partition: String,
    features: String,
    why: Option<String>,
}

/// What nodes answer: those of partitions, and nodes by their names; without a name one of each partition and set of
/// features.
///
/// # Errors
/// A name is none, or Slurm does not know it; there is no Slurm here.
pub(crate) fn ask(
    options: &Options,
    named: &[String],
    held: &mut Held,
) -> Result<Vec<(String, Answer)>> {
    if let Some(wrong) = named.iter().find(|name| !is_list(name)) {
        return Err(Failure::new(format!("`{wrong}` is no name of a partition and no list of nodes"))
            .hint("a name has letters, digits, `.`, `_` and `-`, and does not begin with `-`; a list of nodes is written `n[01-04],n07`; `sinfo` lists both")
            .into());
    }
    let prepared = launch::prepare(options, &[])?;
    let host = &prepared.host;
    let all = list(host, held)?;
    let meant = match named {
        [] => one_of_each(&all),
        named => by_name(host, named, &all, held)?,
    };
    let (asked, others): (Vec<Listed>, Vec<Listed>) =
        meant.into_iter().partition(|one| one.why.is_none());
    let mut answers: Vec<(String, Answer)> = others
        .into_iter()
        .map(|one| (one.node, Answer::Unavailable(one.why.unwrap_or_default())))
        .collect();
    let cwd = &prepared.invocation.cwd;
    let jobs = Jobs::new();
    let programs: Result<Vec<Program>> = asked
        .iter()
        .map(|one| call(options, host, one, &jobs, cwd))
        .collect();
    let ran = run::all(held, &programs?, AT_ONCE);
    let found: Vec<(Listed, Answer)> = asked
        .into_iter()
        .zip(&ran)
        .map(|(one, ran)| (one, answer(ran)))
        .collect();
    let tried = from_jails(options, &prepared, &found, &jobs, held);
    let late = ran
        .iter()
        .chain(tried.iter().flatten())
        .any(|ran| ran.end == End::Late);
    if late || held.caught().is_some() {
        jobs.cancel(host);
    }
    answers.extend(found.into_iter().zip(&tried).map(|((one, answer), ran)| {
        let answer = match (answer, ran) {
            (Answer::Examined(found, _), Some(ran)) => {
                let job = match in_a_jail(ran) {
                    true => Ok(()),
                    false => Err(ran.why()),
                };
                Answer::Examined(found, Some(job))
            }
            (answer, _) => answer,
        };
        (one.node, answer)
    }));
    answers.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(answers)
}

/// The jobs of one call, by a name that no other call's have.
struct Jobs {
    name: String,
}

impl Jobs {
    fn new() -> Self {
        let name = format!("agent-sandbox-doctor-{}", std::process::id());
        Self { name }
    }

    fn word(&self) -> OsString {
        format!("--job-name={}", self.name).into()
    }

    /// Cancels what may be left of them: an srun that was killed has told nobody.
    fn cancel(&self, host: &HostFacts) {
        let Some(user) = host.user.as_deref().filter(|user| is_name(user)) else {
            return;
        };
        let words = [format!("--user={user}"), format!("--name={}", self.name)].map(OsString::from);
        // The signal that may have come is held by somebody else; what ends this one ends here.
        if let (Some(program), Ok(mut held)) = (
            program(host, Command::Scancel, &words, CANCEL_PATIENCE),
            Held::new(),
        ) {
            run::all(&mut held, &[program], 1);
        }
    }
}

/// A job on each node whose examination found that a session would start, submitted in a jail: what agents do.
fn from_jails(
    options: &Options,
    prepared: &Prepared,
    found: &[(Listed, Answer)],
    jobs: &Jobs,
    held: &mut Held,
) -> Vec<Option<Ran>> {
    let starts = |answer: &Answer| matches!(answer, Answer::Examined(found, _) if found.starts);
    let fit = !nix::unistd::geteuid().is_root()
        && prepared.plan().is_ok_and(|plan| plan.wants_chaperon());
    let tried: Vec<usize> = (0..found.len())
        .filter(|at| fit && starts(&found[*at].1))
        .take(MOST_FROM_JAILS)
        .collect();
    let programs: Vec<Program> = tried
        .iter()
        .map(|at| from_jail(options, prepared, &found[*at].0, jobs))
        .collect();
    let mut all: Vec<Option<Ran>> = found.iter().map(|_| None).collect();
    for (at, ran) in tried.into_iter().zip(run::all(held, &programs, AT_ONCE)) {
        all[at] = Some(ran);
    }
    all
}

/// A session in which srun starts something on the node that says whether it is in a jail.
fn from_jail(options: &Options, prepared: &Prepared, one: &Listed, jobs: &Jobs) -> Program {
    let project = prepared.invocation.project.as_ref();
    let project = project.unwrap_or(&prepared.invocation.cwd);
    let mut words: Vec<OsString> = vec![prepared.host.executable.clone().into(), "--quiet".into()];
    words.extend(as_words(options));
    words.extend(options.backend.iter().flat_map(|backend| {
        let word: OsString = backend.word().into();
        ["--backend".into(), word]
    }));
    words.extend([
        "--project".into(),
        project.into(),
        "--".into(),
        "srun".into(),
    ]);
    words.extend(job(one, jobs));
    words.extend(["/bin/sh", "-c", SAYS_WHERE].map(OsString::from));
    let environment = std::env::vars_os().filter(|(name, _)| {
        // What it logs would stand between what it says.
        name != env_vars::LOG
    });
    Program {
        words,
        environment: environment.collect(),
        cwd: Some(project.clone()),
        patience: PATIENCE,
    }
}

/// Whether the job ran, in a jail.
fn in_a_jail(ran: &Ran) -> bool {
    let text = String::from_utf8_lossy(&ran.stdout);
    let mut lines = text.lines();
    ran.good() && lines.any(|line| line.starts_with("jail=") && line != NO_JAIL)
}

/// The nodes of all partitions that Slurm shows; with each that cannot be asked, why.
fn list(host: &HostFacts, held: &mut Held) -> Result<Vec<Listed>> {
    let words = ["--noheader", "--Node", "--format=%N|%R|%f|%T|%E"].map(OsString::from);
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
        return Err(silent(&ran));
    }
    if ran.stdout.len() >= LONGEST_OUTPUT {
        bail!("Slurm has more nodes than are read here");
    }
    let text = String::from_utf8_lossy(&ran.stdout);
    let mut all: Vec<Listed> = text.lines().filter_map(listed).collect();
    all.sort_by(|one, other| (&one.node, &one.partition).cmp(&(&other.node, &other.partition)));
    all.dedup_by(|one, other| (&one.node, &one.partition) == (&other.node, &other.partition));
    Ok(all)
}

/// One node of each partition and set of features: one that can be asked, if there is one, and none for what a node that
/// was taken has, too.
fn one_of_each(all: &[Listed]) -> Vec<Listed> {
    let mut taken: Vec<Listed> = Vec::new();
    let kind = |one: &Listed| (one.partition.clone(), one.features.clone());
    let kinds: BTreeSet<(String, String)> = all.iter().map(kind).collect();
    for wanted in kinds {
        let members: Vec<&Listed> = all.iter().filter(|one| kind(one) == wanted).collect();
        let known = |one: &&&Listed| taken.iter().any(|other| other.node == one.node);
        if members.iter().any(|one| known(&one)) {
            continue;
        }
        let open = members.iter().find(|one| one.why.is_none());
        taken.extend(open.or(members.first()).map(|one| (*one).clone()));
    }
    taken
}

/// The nodes that are meant by names of partitions and lists of nodes.
fn by_name(
    host: &HostFacts,
    named: &[String],
    all: &[Listed],
    held: &mut Held,
) -> Result<Vec<Listed>> {
    let mut meant: Vec<Listed> = Vec::new();
    for name in named {
        let of_partition: Vec<&Listed> = all.iter().filter(|one| one.partition == *name).collect();
        if !of_partition.is_empty() {
            meant.extend(of_partition.into_iter().cloned());
            continue;
        }
        for node in expanded(host, name, held)? {
            // In whichever partition it can be asked.
            let mut rows = all.iter().filter(|one| one.node == node);
            let first = rows.clone().next();
            let Some(one) = rows.find(|one| one.why.is_none()).or(first) else {
                return Err(
                    Failure::new(format!("Slurm knows no partition and no node `{node}`"))
                        .hint("`sinfo --summarize` lists the partitions, `sinfo --Node` the nodes")
                        .into(),
                );
            };
            meant.push(one.clone());
        }
    }
    meant.sort_by(|one, other| one.node.cmp(&other.node));
    meant.dedup_by(|one, other| one.node == other.node);
    Ok(meant)
}

/// The names in a list of nodes, as Slurm reads it.
fn expanded(host: &HostFacts, list: &str, held: &mut Held) -> Result<Vec<String>> {
    if is_name(list) {
        return Ok(vec![list.to_owned()]);
    }
    let words = ["show", "hostnames", list].map(OsString::from);
    let program = program(host, Command::Scontrol, &words, LIST_PATIENCE);
    let ran = program.and_then(|program| run::all(held, &[program], 1).pop());
    match ran {
        Some(ran) if ran.good() => {
            let text = String::from_utf8_lossy(&ran.stdout).into_owned();
            Ok(text.lines().map(|line| line.trim().to_owned()).collect())
        }
        ran => {
            let why = ran.map_or_else(|| "scontrol was not started".to_owned(), |ran| ran.why());
            bail!("`{list}` cannot be read as a list of nodes: {why}")
        }
    }
}

/// That `sinfo` failed, with its own words.
fn silent(ran: &Ran) -> anyhow::Error {
    let why = ran.why();
    let message = format!("sinfo does not say which nodes there are: {why}");
    let hint = "is slurmctld up, and can this node reach it? See: scontrol ping";
    Failure::new(message).hint(hint).into()
}

/// A line of `sinfo`'s. What is no name of a node in a partition is none.
fn listed(line: &str) -> Option<Listed> {
    let mut fields = line.splitn(5, '|').map(str::trim);
    let (node, partition) = (fields.next()?, fields.next()?);
    let (features, state) = (fields.next()?, fields.next()?);
    let reason = fields.next().unwrap_or_default();
    if !is_name(node) || !is_name(partition) {
        return None;
    }
    let busy = state.starts_with("alloc") || state.starts_with("reserved");
    let why = match (OPEN.contains(&state), busy, reason) {
        (true, ..) => None,
        (_, true, _) => Some(format!("busy ({state}): ask again when jobs have ended")),
        (_, false, "" | "none") => Some(format!("its state is `{state}`; ask your administrators")),
        (_, false, reason) => Some(format!(
            "its state is `{state}`, the reason `{reason}`; ask your administrators"
        )),
    };
    Some(Listed {
        node: node.to_owned(),
        partition: partition.to_owned(),
        features: features.to_owned(),
        why,
    })
}

/// Options of a job on one node, small and short.
fn job(one: &Listed, jobs: &Jobs) -> Vec<OsString> {
    let Listed {
        node, partition, ..
    } = one;
    vec![
        format!("--partition={partition}").into(),
        format!("--nodelist={node}").into(),
        "--nodes=1".into(),
        "--ntasks=1".into(),
        "--cpus-per-task=1".into(),
        format!("--mem={MEMORY}").into(),
        format!("--immediate={WAIT_SECONDS}").into(),
        format!("--time={RUN_MINUTES}").into(),
        jobs.word(),
        "--input=none".into(),
        "--mpi=none".into(),
        "--quiet".into(),
    ]
}

/// The job in which one node examines itself.
fn call(
    options: &Options,
    host: &HostFacts,
    one: &Listed,
    jobs: &Jobs,
    cwd: &Path,
) -> Result<Program> {
    let mut chdir = OsString::from("--chdir=");
    chdir.push(cwd);
    let mut words = job(one, jobs);
    words.extend([
        "--export=ALL".into(),
        chdir,
        "--".into(),
        host.executable.clone().into(),
        "doctor".into(),
        "--json".into(),
    ]);
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
        return Answer::Examined(Box::new(found), None);
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
        let why = |state: &str| listed(&format!("n1|debug|ib,gpu|{state}")).unwrap().why;
        for open in ["idle|none", "mixed|none", "completing|"] {
            assert_eq!(why(open), None, "{open}");
        }
        assert!(why("drained|bad | disk").unwrap().contains("`bad | disk`"));
        assert!(why("down*|none").unwrap().contains("`down*`"));
        assert!(why("allocated|none").unwrap().contains("busy"));
        for bad in [
            "",
            "n1",
            "-n|debug|(null)|idle|none",
            "n[1-2]|debug|(null)|idle|none",
            "n1|-p|(null)|idle|none",
            "a b|debug|(null)|idle|",
        ] {
            assert_eq!(listed(bad), None, "{bad}");
        }
    }

    #[test]
    fn without_a_name_one_node_of_each_kind_is_taken() {
        let all: Vec<Listed> = [
            "n1|debug|a|drained|x",
            "n2|debug|a|idle|none",
            "n3|debug|a|idle|none",
            "n3|long|a|idle|none",
            "n2|short|a|idle|none",
            "n4|debug|b|down|y",
        ]
        .iter()
        .filter_map(|line| listed(line))
        .collect();
        let taken: Vec<String> = one_of_each(&all)
            .into_iter()
            .map(|one| format!("{} {}", one.node, one.partition))
            .collect();
        assert_eq!(taken, ["n2 debug", "n4 debug", "n3 long"]);
    }

    #[test]
    fn what_sinfo_says_of_its_failure_is_told() {
        let error = silent(&Ran {
            end: End::Code(1),
            stdout: Vec::new(),
            stderr: b"slurm_load_partitions: Unable to contact slurm controller\n".to_vec(),
            took: Duration::ZERO,
        });
        let said = error.to_string();
        let words = "Unable to contact slurm controller";
        assert!(said.contains(words), "{said}");
    }

    #[test]
    fn a_job_is_believed_that_says_that_it_was_in_a_jail() {
        let ran = |stdout: &str, end| Ran {
            end,
            stdout: stdout.into(),
            stderr: Vec::new(),
            took: Duration::ZERO,
        };
        assert!(in_a_jail(&ran("prolog\njail=s0123\n", End::Code(0))));
        for (stdout, end) in [
            ("jail=none\n", End::Code(0)),
            ("", End::Code(0)),
            ("jail=s0123\n", End::Code(1)),
            ("jail=s0123\n", End::Late),
        ] {
            assert!(!in_a_jail(&ran(stdout, end)), "{stdout}");
        }
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
            Answer::Examined(..)
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
