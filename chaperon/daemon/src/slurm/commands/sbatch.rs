//! sbatch: the script becomes a capsule, and the real sbatch submits that.

mod outputs;
mod script;
mod submit;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use agent_sandbox_wire::capsule::{CapsuleError, Program, Streams};
use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;

use self::script::{Found, Script};
use super::Context;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::slurm::messages::Messages;
use crate::slurm::options;
use crate::slurm::parse::{Parsed, directives, mistaken, parse, written};
use crate::slurm::records::{Kind, Record, Text};
use crate::slurm::{limits, submission, whole_nodes};

/// The file name of a job's output, and of an array's (`sbatch(1)`, `--output`).
const OUTPUT: &[u8] = b"slurm-%j.out";
const OUTPUT_OF_ARRAY: &[u8] = b"slurm-%A_%a.out";

/// How much of a script's path with its arguments is shown in place of the capsule's, in bytes.
const MOST_SHOWN: usize = 16 << 10;

/// Carries out sbatch.
///
/// # Errors
/// The request is refused, or makes no sense.
pub(super) async fn run(context: &mut Context<'_>) -> Result<End, Refusal> {
    let request = &context.request;
    let parsed = parse(Command::Sbatch, &request.arguments, &request.environment)?;
    if let Some(end) = submission::answered(context, &parsed).await? {
        return Ok(end);
    }
    let found = script::find(context, &parsed).await?;
    let script = match found {
        Found::Script(script) => script,
        Found::Interrupted(end) => return Ok(end),
    };
    let table = options::table(Command::Sbatch).ok_or_else(|| Refusal::mistake("no table"))?;
    let found = directives(table, &script.content, parsed.has("ignore-pbs"))
        .map_err(|refusal| mistaken(Command::Sbatch, refusal))?;
    if let Some(umask) = found.umask {
        context.request.umask = umask;
    }
    let asking = (found.words.clone(), found.umask);
    let parsed = parsed.with_directives(found);
    submission::tell_notes(context, &parsed).await;
    submit(context, &parsed, script, asking).await
}

async fn submit(
    context: &mut Context<'_>,
    parsed: &Parsed,
    script: Script,
    (words_of_script, umask): (Vec<Vec<u8>>, Option<u32>),
) -> Result<End, Refusal> {
    let session = context.session.clone();
    let cwd = submission::directory(context, parsed)?;
    if let Some(end) = outputs::check(context, parsed, &cwd).await? {
        return Ok(end);
    }
    let cwd = cwd.into_os_string();
    let written = written(Command::Sbatch, &parsed.given);
    let mut variables = written.variables;
    variables.extend(parsed.kept.iter().cloned());
    let mut words = written.words;
    let whole = whole_nodes::gpus(&session, parsed);
    let whole = match submission::patiently(context.conn, whole).await {
        Ok(whole) => whole?,
        Err(end) => return Ok(end),
    };
    words.extend(limits::check(&session.order.limits, parsed, whole)?);
    match submit::messages(context).await? {
        Ok(file) => words.extend(own_words(&session, parsed, &script, &file)),
        Err(end) => return Ok(end),
    }

    let messages = Messages::new(context, parsed, &words);
    let messages = messages.with_script(parsed, words_of_script, umask);
    let streams = requested(parsed);
    let record = record(context, parsed, &script, &cwd, &streams);
    let size = script.content.len();
    let program = Program::Script {
        script: script.content,
        arguments: script.arguments,
    };
    let capsule = submission::capsule(context, parsed, &variables, &cwd, streams, program);
    let interpreter = &session.order.agent_sandbox;
    let text = capsule
        .batch_script(interpreter)
        .map_err(|error| match error {
            CapsuleError::Interpreter => Refusal::mistake(error.to_string())
                .hint("install agent-sandbox under a short path without blanks"),
            other => Refusal::mistake(other.to_string()),
        })?;
    script::check_size(&session, size, text.len()).await?;
    submit::submit(context, parsed, words, variables, messages, &text, &record).await
}

/// What sbatch is told beside the user's options.
fn own_words(session: &Session, parsed: &Parsed, script: &Script, file: &OsStr) -> Vec<OsString> {
    let mut words = Vec::new();
    if !parsed.has("job-name") {
        words.push(submission::option("--job-name", &script.name));
    }
    words.push(submission::start_directory(session));
    words.push(submission::option("--output", file));
    words.push("--open-mode=append".into());
    words.push("--export=ALL".into());
    words.push("--ignore-pbs".into());
    words.push("--parsable".into());
    words
}

/// The streams of a batch script: output always goes to a file.
fn requested(parsed: &Parsed) -> Streams {
    let mut streams = submission::requested(parsed);
    let default = if parsed.has("array") {
        OUTPUT_OF_ARRAY
    } else {
        OUTPUT
    };
    streams.output.get_or_insert_with(|| default.to_vec());
    streams
}

fn record(
    context: &Context<'_>,
    parsed: &Parsed,
    script: &Script,
    cwd: &OsStr,
    streams: &Streams,
) -> Record {
    let asked = |long: &str, path: &Option<Vec<u8>>| {
        let path = path.clone().filter(|_| parsed.has(long));
        path.map(Text::from)
    };
    let mut record = Record::new(&context.session, Kind::Batch);
    if let Some(path) = &script.path {
        // With its arguments, as Slurm shows it.
        let words = [path.as_os_str().as_bytes()].into_iter();
        let words: Vec<&[u8]> = words
            .chain(script.arguments.iter().map(Vec::as_slice))
            .collect();
        let mut shown = words.join(&b' ');
        shown.truncate(MOST_SHOWN);
        record.command = Text::from(shown);
    }
    record.cwd = Text::from(cwd.as_bytes());
    record.output = asked("output", &streams.output);
    record.error = asked("error", &streams.error);
    record.input = asked("input", &streams.input);
    record.array = parsed.has("array");
    record
}
