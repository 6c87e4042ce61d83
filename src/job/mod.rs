//! On a compute node: a capsule becomes a jail again. `agent-sandbox job` is the interpreter of a
//! batch script that is a capsule, `agent-sandbox task` the program of a step; Slurm starts both.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it reads what Slurm passes"
)]

mod alone;
pub mod environment;
pub mod own_program;
pub mod patterns;
pub mod program;
pub mod task;

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use agent_sandbox_wire::capsule::{self, Capsule, CapsuleError, Program};
use agent_sandbox_wire::order::JobContext;
use agent_sandbox_wire::step;
use anyhow::{Context, Result, bail};

use crate::failure::{self, FAILED, Failure};
use crate::handoff::{Confinement, ErrorStream, Run, Streams};
use crate::launch::announcements::Announcements;
use crate::launch::choice;
use crate::launch::supervisor::{Jail, Outcome};
use crate::launch::{self, JobRequest, supervisor, traced, untraced};
use crate::logging;
use crate::plan::Job;
use crate::plan::build::memory;
use crate::plan::model::trace::step_name;
use crate::report;
use crate::share::join;
use crate::share::join_socket::{NodeJob, StepId};
use crate::share::{self, Arrived, Wanted};
use crate::sys::{fds, process};
use patterns::Names;
use task::{clean_up, company, is_first, number, say_once};

/// The largest batch script that is read, in bytes; a capsule's content is not larger.
const LARGEST: u64 = 64 << 20;
/// Longer than any session's id.
const LONGEST_SESSION: usize = 32;
/// The signal that stands in a job's exit code where Slurm could not open its files: `sacct` shows
/// `0:53` (seen with Slurm 22.05).
const NO_STREAM: i32 = 53;

/// `agent-sandbox job SCRIPT [ARGUMENTS]`: runs the capsule in the batch script SCRIPT. The
/// arguments of the user's script are in the capsule. Answers the exit code.
pub fn job(arguments: &[OsString]) -> u8 {
    let safe = own_program::make_sure();
    logging::start(0);
    // First of all: what stands there already was said by Slurm and the site.
    let announcements = Announcements::open();
    conclude(run_job(arguments, announcements, safe), Some(NO_STREAM))
}

/// `agent-sandbox task`: runs the capsule in the environment as a task of a step. Answers the exit
/// code.
pub fn task(arguments: &[OsString]) -> u8 {
    let safe = own_program::make_sure();
    logging::start(0);
    conclude(run_task(arguments, safe), None)
}

fn run_job(
    arguments: &[OsString],
    announcements: Option<Announcements>,
    safe: Result<()>,
) -> Result<(Outcome, OsString)> {
    let context = started_by_slurm()?;
    let script = arguments.first().map(PathBuf::from).unwrap_or_default();
    if !script.is_absolute() {
        return Err(misuse("agent-sandbox job"));
    }
    let capsule = read(&script)?;
    let Program::Script {
        script: content,
        arguments,
    } = &capsule.program
    else {
        bail!("the capsule of a step stands in a batch script");
    };
    let words = arguments.iter().cloned().map(OsString::from_vec);
    let command: Vec<OsString> = std::iter::once(script.clone().into_os_string())
        .chain(words)
        .collect();
    let names = names(&context, None);
    let streams = streams(
        &capsule.streams,
        &names,
        Some(capsule::default_output(names.array_task.is_some())),
    );
    let task = Task {
        command,
        script: Some((script, content.clone())),
        streams,
        job: context,
        announcements,
        safe,
    };
    run(&capsule, task)
}

fn run_task(arguments: &[OsString], safe: Result<()>) -> Result<(Outcome, OsString)> {
    let context = started_by_slurm()?;
    if !arguments.is_empty() {
        return Err(misuse("agent-sandbox task"));
    }
    let variable = |name: &str| std::env::var_os(name).map(OsString::into_vec);
    let capsule = step::capsule(variable)
        .map_err(explain)
        .context("cannot read the capsule of this step")?;
    let task = number("SLURM_PROCID").unwrap_or(0);
    let command: Vec<OsString> = match &capsule.program {
        Program::Command(words) => words.iter().cloned().map(OsString::from_vec).collect(),
        Program::PerTask(all) => program::of_task(all, task)
            .with_context(|| format!("no program is named for task {task}"))?,
        Program::Script { .. } => bail!("the capsule of a batch script stands in a step"),
    };
    let names = names(&context, Some(number("SLURM_STEP_ID").unwrap_or(0)));
    let streams = streams(&capsule.streams, &names, None);
    let task = Task {
        command,
        script: None,
        streams,
        job: context,
        announcements: None,
        safe,
    };
    run(&capsule, task)
}

/// What one process that Slurm started has to run.
struct Task {
    command: Vec<OsString>,
    /// The batch script and its place.
    script: Option<(PathBuf, Vec<u8>)>,
    streams: Streams,
    job: JobContext,
    announcements: Option<Announcements>,
    /// Whether the program is out of its own tasks' reach ([`own_program::make_sure`]).
    safe: Result<()>,
}

fn run(capsule: &Capsule, task: Task) -> Result<(Outcome, OsString)> {
    let Task {
        command,
        script,
        streams,
        job,
        announcements,
        safe,
    } = task;
    let session = &capsule.snapshot.session;
    let plain = session.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if session.is_empty() || session.len() > LONGEST_SESSION || !plain {
        bail!("the capsule names no session");
    }
    let name = command.first().cloned().unwrap_or_default();
    let node: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let environment = environment::compose(capsule, &node);
    let argv = command
        .iter()
        .map(|word| word.as_bytes().to_vec())
        .collect();
    let id = match script {
        Some(_) => StepId::Batch,
        None => StepId::Step(number("SLURM_STEP_ID").unwrap_or(0)),
    };
    let step = match id {
        StepId::Batch => "batch".to_owned(),
        StepId::Step(step) => step_name(step),
    };
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory::of_node(&meminfo).map(|total| memory::of_job(&node, total));
    let wanted = Wanted {
        place: here(job.id),
        step: id,
        snapshot: capsule.snapshot.clone(),
        asked: JobRequest {
            cwd: PathBuf::from(OsStr::from_bytes(&capsule.cwd)),
            command,
            job: Job {
                environment,
                script,
                memory,
                step: Some((job.id, step)),
                traced: capsule.snapshot.traced,
                placeholders: capsule.snapshot.placeholders.clone(),
            },
        },
        ranks: id != StepId::Batch && tasks_here() != Some(1),
        job,
    };
    // What both kinds of jail run.
    let run = Run {
        cwd: capsule.cwd.clone(),
        cwd_else: None,
        argv,
        environment: Vec::new(),
        search: Vec::new(),
        confinement: Confinement::default(),
        umask: Some(capsule.umask & 0o777),
        streams,
        by_slurm: true,
        pmi: pmi()?,
        held: false,
        lends_network: false,
        home: None,
    };
    let asked = launch::snapshot::backend(&capsule.snapshot);
    let backend = choice::first(asked);
    let arrived = backend
        .is_shared()
        .then(|| safe.and_then(|()| share::arrive(&wanted)));
    let outcome = match arrived {
        Some(Ok(mut arrived)) => {
            let outcome = share_step(&mut arrived, run, announcements)?;
            join::leave(arrived.welcome, arrived.connection);
            outcome
        }
        None => alone::run(backend, wanted, run, announcements, None)?,
        Some(Err(error)) => match choice::fallback(asked) {
            Some((other, reason)) => alone::run(other, wanted, run, announcements, Some(&reason))?,
            None => return Err(error),
        },
    };
    Ok((outcome, name))
}

/// Runs the command in the step to which this process has come.
fn share_step(
    arrived: &mut Arrived,
    run: Run,
    announcements: Option<Announcements>,
) -> Result<Outcome> {
    let terms = &arrived.welcome.terms;
    say_once(&terms.lacking);
    let run = Run {
        cwd_else: Some(terms.cwd_else.clone()),
        environment: terms.environment.clone(),
        search: terms.search.clone(),
        confinement: terms.restrictions.confinement.clone(),
        ..run
    };
    stand_by(arrived, run, announcements)
}

/// Joins the step and stands by the command to its end.
fn stand_by(
    Arrived {
        welcome,
        connection,
        refused,
    }: &mut Arrived,
    mut run: Run,
    mut announcements: Option<Announcements>,
) -> Result<Outcome> {
    if let Some(announcements) = &mut announcements {
        announcements.belongs_to(Path::new(OsStr::from_bytes(&welcome.terms.state)));
    }
    let mut company = company(announcements)?;
    company.refused = refused.take();
    // While paths still mean what they mean outside of the jail.
    let request = welcome.terms.trace_request.as_ref();
    let tracer = request.map(|request| traced::for_task(request, is_first()));
    let tracer = tracer.transpose()?.flatten();
    if let (Some(request), None) = (request, &tracer) {
        untraced::note(Path::new(OsStr::from_bytes(&welcome.terms.state)), request);
    }
    company.hold(&mut run, tracer);
    supervisor::hold_signals(true).context("cannot hold signals back")?;
    let (attendant, control) = join::enter(welcome, connection, &run)?;
    let outcome = supervisor::supervise(Jail::joined(attendant), control, &mut company)?;
    if let Outcome::NoJail(_) = outcome {
        bail!("the jail of this job ended before the command was started");
    }
    clean_up(&outcome, company);
    Ok(outcome)
}

/// Where tasks of this job meet on this node.
fn here(job: u32) -> NodeJob {
    NodeJob {
        // One machine may be several nodes.
        node: std::env::var_os("SLURMD_NODENAME").unwrap_or_default(),
        job,
    }
}

/// How many tasks the step has on this node; `None` if Slurm does not say.
fn tasks_here() -> Option<u32> {
    let text = std::env::var("SLURM_STEP_TASKS_PER_NODE").ok()?;
    tasks_of_node(&text, number("SLURM_NODEID")?)
}

/// One node's count in a list such as `4(x2),1` (`srun(1)`, `SLURM_TASKS_PER_NODE`).
fn tasks_of_node(list: &str, node: u32) -> Option<u32> {
    let mut before = 0u32;
    for part in list.split(',') {
        let (count, nodes) = match part.split_once("(x") {
            Some((count, nodes)) => (count, nodes.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        before = before.checked_add(nodes)?;
        if node < before {
            return count.parse().ok();
        }
    }
    None
}

/// The socket on which slurmstepd speaks PMI-1 and PMI-2 with this task (Slurm's plugin `mpi/pmi2`
/// names it in `PMI_FD`): one end of a pair, which leads nowhere else.
fn pmi() -> Result<Option<i32>> {
    let Some(text) = std::env::var_os("PMI_FD") else {
        return Ok(None);
    };
    let number: Option<i32> = text.to_str().and_then(|text| text.parse().ok());
    match number.filter(|&number| number > 2) {
        Some(number) if fds::is_unix_stream(number) => Ok(Some(number)),
        _ => bail!(
            "PMI_FD is `{}`, and no stream socket is open there",
            text.display()
        ),
    }
}

/// Makes sure that Slurm started this process, and that a jail can be one here.
fn started_by_slurm() -> Result<JobContext> {
    launch::refuse_unsafe_start()?;
    let Some(id) = number("SLURM_JOB_ID") else {
        let failure = Failure::new("SLURM_JOB_ID is not set: Slurm did not start this")
            .hint("submit a job with sbatch or srun from inside of `agent-sandbox`");
        return Err(failure.into());
    };
    let environment = std::env::vars_os()
        .filter(|(name, _)| name.as_bytes().starts_with(b"SLURM_"))
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect();
    Ok(JobContext { id, environment })
}

fn misuse(what: &str) -> anyhow::Error {
    Failure::new(format!("`{what}` is called by Slurm alone"))
        .hint("submit a job with sbatch or srun from inside of `agent-sandbox`")
        .into()
}

fn read(script: &Path) -> Result<Capsule> {
    let shown = script.display();
    let mut text = Vec::new();
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(script)
        .with_context(|| format!("cannot open the batch script `{shown}`"))?;
    let meta = file.metadata();
    if !meta.is_ok_and(|meta| meta.is_file()) {
        bail!("the batch script `{shown}` is not a regular file");
    }
    file.take(LARGEST + 1)
        .read_to_end(&mut text)
        .with_context(|| format!("cannot read the batch script `{shown}`"))?;
    if text.len() as u64 > LARGEST {
        bail!("the batch script `{shown}` is larger than {LARGEST} bytes");
    }
    Capsule::from_batch_script(&text)
        .map_err(explain)
        .with_context(|| format!("cannot use the batch script `{shown}`"))
}

fn explain(error: CapsuleError) -> anyhow::Error {
    match error {
        CapsuleError::Version { theirs } => {
            let older = theirs < capsule::VERSION;
            let side = if older { "submitted" } else { "run" };
            Failure::new(error.to_string())
                .hint(format!(
                    "the older of the two installations is where the job was {side}; nothing was run"
                ))
                .into()
        }
        _ => error.into(),
    }
}

fn names(context: &JobContext, step: Option<u32>) -> Names {
    let text = |name: &str| std::env::var_os(name).unwrap_or_default().into_vec();
    // slurmstepd takes the host's short name, not the node's name in Slurm.
    let host = nix::unistd::gethostname().unwrap_or_default().into_vec();
    let short = host.split(|&byte| byte == b'.').next().unwrap_or(&host);
    Names {
        job: context.id,
        array_job: number("SLURM_ARRAY_JOB_ID"),
        array_task: number("SLURM_ARRAY_TASK_ID"),
        step,
        node: number("SLURM_NODEID").unwrap_or(0),
        task: number("SLURM_PROCID").unwrap_or(0),
        host: short.to_vec(),
        user: text("SLURM_JOB_USER"),
        job_name: text("SLURM_JOB_NAME"),
    }
}

/// The files behind the streams. `default` is where the output goes if nothing is said; `None`: as
/// it comes.
fn streams(asked: &capsule::Streams, names: &Names, default: Option<&[u8]>) -> Streams {
    let file = |pattern: &[u8]| path(pattern, names);
    let output = asked.output.as_deref().or(default).and_then(file);
    let error = match asked.error.as_deref() {
        Some(pattern) => file(pattern).map_or(ErrorStream::AsItComes, ErrorStream::File),
        None if output.is_some() => ErrorStream::WithOutput,
        None => ErrorStream::AsItComes,
    };
    Streams {
        input: asked.input.as_deref().and_then(file),
        output,
        error,
        append: asked.append,
    }
}

/// A pattern as a path. In a step a number alone means the task that has the stream, as it comes;
/// the others have nothing (`srun(1)`, "IO Redirection").
fn path(pattern: &[u8], names: &Names) -> Option<Vec<u8>> {
    let alone: Option<u32> = std::str::from_utf8(pattern)
        .ok()
        .and_then(|text| text.parse().ok());
    match (names.step, alone) {
        (Some(_), Some(task)) if task == names.task => None,
        (Some(_), Some(_)) => Some(b"/dev/null".to_vec()),
        _ if pattern.is_empty() => None,
        _ => Some(names.resolve(pattern)),
    }
}

/// Ends as the command ended: by its exit code, or by its signal. Without one the reason is told,
/// on the stream that Slurm gave. `no_stream` is the signal for a file that could not be opened.
fn conclude(done: Result<(Outcome, OsString)>, no_stream: Option<i32>) -> u8 {
    let ended = done.and_then(|(outcome, command)| match outcome {
        Outcome::Ended(crate::handoff::End::Signal(signal)) => {
            process::end_by_signal(signal);
            Ok(crate::handoff::End::Signal(signal).exit_code())
        }
        Outcome::NoStream {
            stream,
            path,
            errno,
        } => {
            let name = ["stdin", "stdout", "stderr"]
                .get(usize::try_from(stream).unwrap_or(0))
                .unwrap_or(&"stdin");
            let shown = OsStr::from_bytes(&path).display().to_string();
            failure::say(&format!(
                "agent-sandbox: error: Could not open {name} file {}: {}\n",
                failure::one_line(&shown),
                nix::errno::Errno::from_raw(errno).desc()
            ));
            if let Some(signal) = no_stream {
                process::end_by_signal(signal);
            }
            Ok(1)
        }
        other => launch::ending::conclude(other, &command),
    });
    ended.unwrap_or_else(|error| {
        failure::say(&format!("agent-sandbox: {}", report::render(&error)));
        error
            .downcast_ref::<Failure>()
            .map_or(FAILED, |failure| failure.code)
    })
}

#[cfg(test)]
mod tests {
    use super::tasks_of_node;

    #[test]
    fn tasks_of_a_node_are_read_from_the_list_of_all() {
        for (list, node, expected) in [
            ("1", 0, Some(1)),
            ("4(x2),1", 0, Some(4)),
            ("4(x2),1", 1, Some(4)),
            ("4(x2),1", 2, Some(1)),
            ("4(x2),1", 3, None),
            ("2,3(x10),4", 11, Some(4)),
            ("", 0, None),
            ("x", 0, None),
            ("4(x", 0, None),
            ("4(x4294967295),1(x2)", 4294967295, None),
        ] {
            assert_eq!(tasks_of_node(list, node), expected, "{list} {node}");
        }
    }
}
