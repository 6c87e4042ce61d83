//! srun, as an allocation of its own and as a step of a job: the program travels in a capsule, and
//! the real srun starts `agent-sandbox task` on the nodes.

mod files;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::rc::Rc;

use agent_sandbox_wire::capsule::{Capsule, Program};
use agent_sandbox_wire::message::{End, Source};
use agent_sandbox_wire::step;

use super::own_words::{job_name, start_directory};
use super::streams::Known;
use super::submission::{Judged, Own, Started, Submission, Typed};
use super::target::{self, Target};
use super::{multi_prog, no_job};
use crate::conn::Unanswered;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::slurm::ask::{Stop, settle};
use crate::slurm::parse::{Origin, Parsed, option_word};
use crate::slurm::records::{Kind, Record, Text};
use crate::slurm::request::Context;
use crate::spawn::Way;
use crate::variables::Variables;

/// What `agent-sandbox` is told on the nodes.
const TASK: &str = "task";

/// Carries out srun.
///
/// # Errors
/// The request is refused, or makes no sense.
pub(in crate::slurm) async fn run(context: &mut Context<'_>) -> Result<End, Refusal> {
    settle(carry_out(context).await)
}

async fn carry_out(context: &mut Context<'_>) -> Result<End, Stop> {
    let session = Rc::clone(&context.session);
    let target = target::of(context).await?;
    let submission = Submission::read(context, target).await?;
    let parsed = submission.parsed();
    if parsed.value("mpi").is_some_and(|kind| kind == "list") {
        return Ok(no_job::run(context, vec!["--mpi=list".into()]).await?);
    }
    submission.tell_notes(context).await;
    if parsed.operands.is_empty() {
        return Err(Refusal::mistake("No command given to execute.").into());
    }
    let Task {
        program,
        words,
        tasks,
        files,
    } = Task::prepare(context, &submission).await?;
    let cwd = submission.directory(context)?;
    let submission = submission.judge(context, cwd, tasks).await?;
    let capsule = submission.capsule(context, files.streams, program);
    let capsule = named(capsule, submission.parsed());
    let mut before = words;
    before.extend(own_words(&session, &submission));
    let mut behind = files.words;
    behind.push("--".into());
    behind.push(OsString::from_vec(session.order.agent_sandbox.clone()));
    behind.push(TASK.into());
    let own = Own {
        before,
        behind,
        variables: checked(step::variables(&capsule))?,
        kept: files.kept,
        ..Own::default()
    };
    let mut record = Record::new(&session, Kind::Srun);
    record.cwd = Text::from(submission.cwd().as_bytes());
    let parsed = submission.parsed();
    let heard = parsed.has("verbose") || parsed.has("slurmd-debug");
    let [input, output, error] = context.take_streams()?.map(Way::Passed);
    let error = if heard { Way::Pipe } else { error };
    let submission = submission.write(context, own, [input, output, error]);
    let submission = submission.record(context, &record).await?;
    Ok(attend(context, submission.start(&session)?).await)
}

/// Waits for the end of srun.
async fn attend(context: &mut Context<'_>, started: Started) -> End {
    let Started {
        mut running,
        mut speaker,
        job,
        ..
    } = started;
    if !job.may_come() {
        let session = Rc::clone(&context.session);
        session.steps.borrow_mut().insert(running.pid);
        let end = speaker.attend(&mut running, context.conn).await;
        session.steps.borrow_mut().remove(&running.pid);
        return end;
    }
    let end = speaker.attend(&mut running, context.conn).await;
    job.over(&end);
    end
}

/// What the step runs, with what.
struct Task {
    program: Program,
    /// Words for the number of tasks, if the file says it.
    words: Vec<OsString>,
    /// That number; 0: the options say it.
    tasks: u32,
    files: files::Files,
}

impl Task {
    async fn prepare(
        context: &mut Context<'_>,
        submission: &Submission<Typed>,
    ) -> Result<Self, Stop> {
        let (parsed, target) = (submission.parsed(), submission.target());
        let given = match parsed.value("ntasks") {
            Some(number) => number.to_str().and_then(|number| number.parse().ok()),
            None => target.number("SLURM_NTASKS"),
        };
        let mut words = Vec::new();
        let mut tasks = given;
        let program = if parsed.has("multi-prog") {
            let file = &parsed.operands[0];
            let source = Source::File(file.as_bytes().to_vec());
            let content = match context.conn.fetch(source, multi_prog::LARGEST).await {
                Ok(content) => content,
                Err(Unanswered::Failed(_)) => {
                    return Err(Refusal::mistake(format!(
                        "Could not open multi_prog config file {}",
                        file.to_string_lossy().escape_debug()
                    ))
                    .into());
                }
                Err(Unanswered::TooLong) => {
                    return Err(Refusal::mistake(format!(
                        "the file of --multi-prog has more than {} bytes",
                        multi_prog::LARGEST
                    ))
                    .into());
                }
                Err(other) => return Err(Stop::Ended(other.end())),
            };
            let (all, count) =
                multi_prog::parse(file, &content, given, &bytes(&parsed.operands[1..]))?;
            if parsed.value("ntasks").is_none() {
                words.push(format!("--ntasks={count}").into());
            }
            tasks = Some(count);
            Program::PerTask(all)
        } else {
            Program::Command(bytes(&parsed.operands))
        };
        let known = Known {
            tasks,
            job: target.job(),
            array_job: target.number("SLURM_ARRAY_JOB_ID"),
            array_task: target.number("SLURM_ARRAY_TASK_ID"),
            user: context.session.order.user.clone().into_bytes(),
            job_name: name(parsed, target).into_vec(),
        };
        let files = files::arrange(context, parsed, &known).await?;
        Ok(Self {
            program,
            words,
            tasks: tasks.unwrap_or(0),
            files,
        })
    }
}

fn bytes(words: &[OsString]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// The name of the job or the step. In a job the variable that holds the job's name does not name
/// the step.
fn name(parsed: &Parsed, target: &Target) -> OsString {
    let counts = |origin: Origin| target.job().is_none() || origin == Origin::Argument;
    match parsed.last("job-name").filter(|given| counts(given.origin)) {
        Some(given) => given.value.clone().unwrap_or_default(),
        None => job_name(&parsed.operands[0]),
    }
}

/// What srun is told beside the user's options.
fn own_words(session: &Session, submission: &Submission<Judged>) -> Vec<OsString> {
    let (parsed, target) = (submission.parsed(), submission.target());
    let mut words = vec![
        option_word("--job-name", &name(parsed, target)),
        start_directory(session),
        "--export=ALL".into(),
    ];
    if parsed.has("preserve-env") {
        words.push("--preserve-env".into());
    }
    if let Some(job) = target.job() {
        words.push(format!("--jobid={job}").into());
    }
    words
}

/// A step that is named says its own name, any other its job's.
fn named(mut capsule: Capsule, parsed: &Parsed) -> Capsule {
    const NAME: &[u8] = b"SLURM_JOB_NAME=";
    if let Some(given) = parsed
        .last("job-name")
        .filter(|given| given.origin == Origin::Argument)
    {
        let name = given.value.clone().unwrap_or_default();
        capsule.environment.retain(|entry| !entry.starts_with(NAME));
        capsule.environment.push([NAME, name.as_bytes()].concat());
    }
    capsule
}

fn checked(parts: Result<Vec<(String, String)>, usize>) -> Result<Variables, Refusal> {
    let parts = parts.map_err(|size| {
        Refusal::mistake(format!(
            "arguments and environment of the step are too long: {size} bytes"
        ))
        .hint("leave large variables out with --export")
    })?;
    Ok(parts
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect())
}
