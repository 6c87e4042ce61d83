//! srun, as an allocation of its own and as a step of a job: the program travels in a capsule, and
//! the real srun starts `agent-sandbox task` on the nodes.

mod files;
mod place;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::rc::Rc;

use agent_sandbox_wire::capsule::Program;
use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::{End, Source};
use agent_sandbox_wire::step;

use self::place::Place;
use super::Context;
use crate::conn::Unanswered;
use crate::intent::Intent;
use crate::refusal::Refusal;
use crate::slurm::export::set;
use crate::slurm::messages::{Messages, Speaker};
use crate::slurm::parse::{Origin, Parsed, parse, written};
use crate::slurm::records::{self, Kind, Record, Text};
use crate::slurm::streams::Known;
use crate::slurm::{limits, multi_prog, submission, submitted, whole_nodes};
use crate::spawn::{self, Start, Way};
use crate::variables::Variables;

/// What `agent-sandbox` is told on the nodes.
const TASK: &str = "task";

/// Carries out srun.
///
/// # Errors
/// The request is refused, or makes no sense.
pub(super) async fn run(context: &mut Context<'_>) -> Result<End, Refusal> {
    let place = match place::of(context).await? {
        Ok(place) => place,
        Err(end) => return Ok(end),
    };
    let request = &context.request;
    let environment = place.without_its_own(&request.environment);
    let parsed = parse(Command::Srun, &request.arguments, &environment)?;
    if let Some(end) = submission::answered(context, &parsed).await? {
        return Ok(end);
    }
    if parsed.value("mpi").is_some_and(|kind| kind == "list") {
        return submission::plain(context, vec!["--mpi=list".into()]).await;
    }
    submission::tell_notes(context, &parsed).await;
    if parsed.operands.is_empty() {
        return Err(Refusal::mistake("No command given to execute."));
    }
    match Task::prepare(context, &parsed, &place).await? {
        Ok(task) => start(context, &parsed, &place, task).await,
        Err(end) => Ok(end),
    }
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
        parsed: &Parsed,
        place: &Place,
    ) -> Result<Result<Self, End>, Refusal> {
        let given = match parsed.value("ntasks") {
            Some(number) => number.to_str().and_then(|number| number.parse().ok()),
            None => place.number("SLURM_NTASKS"),
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
                    )));
                }
                Err(Unanswered::TooLong) => {
                    return Err(Refusal::mistake(format!(
                        "the file of --multi-prog has more than {} bytes",
                        multi_prog::LARGEST
                    )));
                }
                Err(other) => return Ok(Err(submission::interrupted(other))),
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
            job: place.job(),
            array_job: place.number("SLURM_ARRAY_JOB_ID"),
            array_task: place.number("SLURM_ARRAY_TASK_ID"),
            user: context.session.order.user.clone().into_bytes(),
            job_name: name(parsed, place).into_vec(),
        };
        let files = files::arrange(context, parsed, &known).await?;
        Ok(files.map(|files| Self {
            program,
            words,
            tasks: tasks.unwrap_or(0),
            files,
        }))
    }
}

fn bytes(words: &[OsString]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// The name of the job or the step. In a job the variable that holds the job's name does not name
/// the step.
fn name(parsed: &Parsed, place: &Place) -> OsString {
    let counts = |origin: Origin| place.job().is_none() || origin == Origin::Argument;
    match parsed.last("job-name").filter(|given| counts(given.origin)) {
        Some(given) => given.value.clone().unwrap_or_default(),
        None => submission::job_name(&parsed.operands[0]),
    }
}

async fn start(
    context: &mut Context<'_>,
    parsed: &Parsed,
    place: &Place,
    task: Task,
) -> Result<End, Refusal> {
    let session = Rc::clone(&context.session);
    let cwd = submission::directory(context, parsed)?.into_os_string();
    let given: Vec<_> = parsed
        .given
        .iter()
        .filter(|given| given.option.long != "job-name")
        .cloned()
        .collect();
    let written = written(Command::Srun, &given);
    let mut words = written.words;
    words.extend(task.words);
    words.push(submission::option("--job-name", &name(parsed, place)));
    words.push(submission::start_directory(&session));
    words.push("--export=ALL".into());
    if parsed.has("preserve-env") {
        words.push("--preserve-env".into());
    }
    match place.job() {
        Some(job) => {
            words.push(format!("--jobid={job}").into());
            context.entry.jobs.push(job);
        }
        None => {
            let whole = whole_nodes::gpus(&session, parsed);
            let whole = match submission::patiently(context.conn, whole).await {
                Ok(whole) => whole?,
                Err(end) => return Ok(end),
            };
            let limits = &session.order.limits;
            words.extend(limits::check_tasks(limits, parsed, whole, task.tasks)?);
        }
    }
    words.extend(task.files.words);
    words.push("--".into());
    words.push(OsString::from_vec(session.order.agent_sandbox.clone()));
    words.push(TASK.into());

    let mut variables = place.variables.clone();
    for (name, value) in written.variables.into_iter().chain(parsed.kept.clone()) {
        set(&mut variables, &name, value);
    }
    let mut capsule = submission::capsule(
        context,
        parsed,
        &variables,
        &cwd,
        task.files.streams,
        task.program,
    );
    // A step that is named says its own name, any other its job's.
    if let Some(given) = parsed
        .last("job-name")
        .filter(|given| given.origin == Origin::Argument)
    {
        const NAME: &[u8] = b"SLURM_JOB_NAME=";
        let name = given.value.clone().unwrap_or_default();
        capsule.environment.retain(|entry| !entry.starts_with(NAME));
        capsule.environment.push([NAME, name.as_bytes()].concat());
    }
    variables.extend(sealed(step::variables(&capsule))?);

    let mut record = Record::new(&session, Kind::Srun);
    record.cwd = Text::from(cwd.as_bytes());
    let draft = records::draft(&record)?;
    let intent = match place.job() {
        None if !parsed.has("test-only") => {
            let entered = submission::enter(&session, context.conn, parsed, &draft, false);
            match entered.await? {
                Ok(intent) => Some(intent),
                Err(end) => return Ok(end),
            }
        }
        _ => None,
    };
    if parsed.has("test-only")
        && let Err(end) = submission::patiently(context.conn, session.limiter.turn()).await
    {
        return Ok(end);
    }
    let messages = Messages::new(context, parsed, &words);
    let [input, output, error] = submission::streams(context)?;
    let heard = parsed.has("verbose") || parsed.has("slurmd-debug");
    let wish = Start {
        command: Command::Srun,
        arguments: words,
        environment: variables,
        umask: context.request.umask,
        input: Way::Passed(input),
        output: Way::Passed(output),
        error: if heard { Way::Pipe } else { Way::Passed(error) },
        kept: task.files.kept,
    };
    let file = intent.as_ref().map(Intent::file);
    let mut running = spawn::start_with(&session, wish, file)?;
    let mut speaker = Speaker::new(running.error.take(), messages);
    let Some(intent) = intent else {
        session.steps.borrow_mut().insert(running.pid);
        let end = speaker.attend(&mut running, context.conn).await;
        session.steps.borrow_mut().remove(&running.pid);
        return Ok(end);
    };
    let number = submitted::begun(&session, running.pid, false, draft, intent);
    let end = speaker.attend(&mut running, context.conn).await;
    submitted::over(&session, number, &end);
    Ok(end)
}

fn sealed(parts: Result<Vec<(String, String)>, usize>) -> Result<Variables, Refusal> {
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

/// A number that is the value of a variable.
fn number(value: &OsStr) -> Option<u32> {
    value.to_str()?.parse().ok()
}
