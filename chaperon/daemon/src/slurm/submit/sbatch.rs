//! sbatch: the script becomes a capsule, and the real sbatch submits that.

mod follow;
mod outputs;
mod script;

use std::ffi::{OsStr, OsString};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use agent_sandbox_wire::capsule::{CapsuleError, Program, Streams, default_output};
use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;
use nix::sys::memfd::{MFdFlags, memfd_create};

use self::script::Script;
use super::mark;
use super::own_words::start_directory;
use super::streams::{self, appends};
use super::submission::{Judged, Own, Submission, Typed};
use super::target::Target;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::slurm::approval;
use crate::slurm::ask::{Stop, patiently, settle};
use crate::slurm::cluster;
use crate::slurm::parse::{Parsed, directives, mistaken, option_word};
use crate::slurm::records::{Kind, Record, Text};
use crate::slurm::request::Context;
use crate::spawn::Way;

/// How much of a script's path with its arguments is shown in place of the capsule's, in bytes.
const MOST_SHOWN: usize = 16 << 10;

/// Carries out sbatch.
///
/// # Errors
/// The request is refused, or makes no sense.
pub(in crate::slurm) async fn run(context: &mut Context<'_>) -> Result<End, Refusal> {
    settle(carry_out(context).await)
}

async fn carry_out(context: &mut Context<'_>) -> Result<End, Stop> {
    let session = Rc::clone(&context.session);
    let submission = Submission::read(context, Target::default()).await?;
    let script = script::find(context, submission.parsed()).await?;
    script::check_size(&session, script.content.len(), 0).await?;
    let submission = with_directives(context, submission, &script).await?;
    submission.tell_notes(context).await;
    let cwd = submission.directory(context)?;
    outputs::check(context, submission.parsed(), &cwd).await?;
    let submission = submission.judge(context, cwd, 0).await?;
    let file = follow::messages(context).await?;
    let words = own_words(&session, submission.parsed(), &script, &file);
    let streams = requested(submission.parsed());
    let record = record(context, &submission, &script, &streams).await;
    let release = context.table().await?.release;
    let name = |name: Option<Vec<u8>>| name.map(|name| streams::for_release(&name, release));
    let streams = Streams {
        input: name(streams.input),
        output: name(streams.output),
        error: name(streams.error),
        ..streams
    };
    let held = approval::Script::of(&script.content);
    let line = line(&script);
    let (size, mut text) = capsule(context, &submission, script, streams)?;
    script::check_size(&session, size, text.len() + mark::most(&session)).await?;
    let own = Own {
        behind: words,
        last: quiet(submission.parsed()),
        script: Some(held),
        line,
        ..Own::default()
    };
    let submission = submission.write(context, own, [Way::Null, Way::Pipe, Way::Pipe]);
    let submission = submission.record(context, &record).await?;
    // A mark has its time: it comes when nothing is waited for any more.
    patiently(context.conn, mark::add(&session, &mut text)).await?;
    let input = Way::Passed(memory_file(&text)?.into());
    drop(text);
    let submission = submission.reading(input);
    Ok(follow::follow(context, submission.start(&session)?).await?)
}

/// Adds what the script asks for.
async fn with_directives(
    context: &mut Context<'_>,
    submission: Submission<Typed>,
    script: &Script,
) -> Result<Submission<Typed>, Refusal> {
    let no_pbs = submission.parsed().has("ignore-pbs");
    let found = directives(&context.table().await?, &script.content, no_pbs)
        .map_err(|refusal| mistaken(Command::Sbatch, refusal))?;
    if let Some(umask) = found.umask {
        context.request.umask = umask;
    }
    Ok(submission.with_directives(found))
}

/// The capsule as the real sbatch gets it, and the size of the script in it.
fn capsule(
    context: &Context<'_>,
    submission: &Submission<Judged>,
    script: Script,
    streams: Streams,
) -> Result<(usize, Vec<u8>), Refusal> {
    let size = script.content.len();
    let program = Program::Script {
        script: script.content,
        arguments: script.arguments,
    };
    let capsule = submission.capsule(context, streams, program);
    let text = capsule
        .batch_script(&context.session.order.agent_sandbox)
        .map_err(|error| match error {
            CapsuleError::Interpreter => Refusal::mistake(error.to_string())
                .hint("install agent-sandbox under a short path without blanks"),
            other => Refusal::mistake(other.to_string()),
        })?;
    Ok((size, text))
}

/// A quiet sbatch does not say the job's id. With --test-only there is none, and sbatch refuses to be both
/// quiet and verbose.
fn quiet(parsed: &Parsed) -> Vec<OsString> {
    let told = parsed.has("quiet") && (parsed.has("test-only") || parsed.has("verbose"));
    told.then(|| "--quiet".into()).into_iter().collect()
}

/// A file in memory with this content, to be read from its beginning.
fn memory_file(content: &[u8]) -> Result<OwnedFd, Refusal> {
    let failed =
        |error: std::io::Error| Refusal::mistake(format!("cannot keep the script: {error}"));
    let fd = memfd_create(c"agent-sandbox-capsule", MFdFlags::MFD_CLOEXEC)
        .map_err(|error| failed(error.into()))?;
    let mut file = std::fs::File::from(fd);
    file.write_all(content)
        .and_then(|()| file.seek(SeekFrom::Start(0)))
        .map_err(failed)?;
    Ok(file.into())
}

/// What sbatch is told beside the user's options.
fn own_words(session: &Session, parsed: &Parsed, script: &Script, file: &OsStr) -> Vec<OsString> {
    let mut words = Vec::new();
    if !parsed.has("job-name") {
        words.push(option_word("--job-name", &script.name));
    }
    words.push(start_directory(session));
    words.push(option_word("--output", file));
    words.push("--open-mode=append".into());
    words.push("--export=ALL".into());
    words.push("--ignore-pbs".into());
    words.push("--parsable".into());
    words
}

/// Where the files of a batch script's streams are, as asked for: output always goes to one.
fn requested(parsed: &Parsed) -> Streams {
    let path = |long: &str| parsed.value(long).map(|path| path.as_bytes().to_vec());
    let default = default_output(parsed.has("array"));
    Streams {
        input: path("input"),
        output: Some(path("output").unwrap_or_else(|| default.to_vec())),
        error: path("error"),
        append: appends(parsed),
    }
}

async fn record(
    context: &Context<'_>,
    submission: &Submission<Judged>,
    script: &Script,
    streams: &Streams,
) -> Record {
    let parsed = submission.parsed();
    let asked = |long: &str, path: &Option<Vec<u8>>| {
        let path = path.clone().filter(|_| parsed.has(long));
        path.map(Text::from)
    };
    let mut record = Record::new(&context.session, Kind::Batch);
    if let Some(path) = &script.path {
        let mut shown = match cluster::shows_arguments(&context.session).await {
            true => line(script),
            false => path.as_os_str().as_bytes().to_vec(),
        };
        shown.truncate(MOST_SHOWN);
        record.command = Text::from(shown);
    }
    record.cwd = Text::from(submission.cwd().as_bytes());
    record.output = asked("output", &streams.output);
    record.error = asked("error", &streams.error);
    record.input = asked("input", &streams.input);
    record.array = parsed.has("array");
    record
}

/// The script's path and its arguments.
fn line(script: &Script) -> Vec<u8> {
    let path = script.path.iter().map(|path| path.as_os_str().as_bytes());
    let words = path.chain(script.arguments.iter().map(Vec::as_slice));
    words.collect::<Vec<_>>().join(&b' ')
}
