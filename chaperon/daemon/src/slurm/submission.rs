//! What sbatch, srun and salloc have in common: capsules, plain calls of the real command, and the
//! words that go to the shim.

use std::ffi::{OsStr, OsString};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use agent_sandbox_wire::capsule::{Capsule, Program, Streams};
use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::{End, Stream};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::export::{Wins, exported, set};
use super::parse::Parsed;
use super::queue;
use super::request::Context;
use crate::closing::Received;
use crate::conn::{Conn, Event, Unanswered};
use crate::intent::Intent;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::spawn::{self, Start, Way};
use crate::variables::Variables;

/// Options that are answered by the real command without any job, and end it.
const ANSWERED: [&str; 3] = ["help", "usage", "version"];

/// Signals that end a command that does nothing about them.
const DEADLY: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// A path has less bytes than this (`PATH_MAX`, `limits.h`).
pub const LONGEST_PATH: usize = 4096;

/// Variables as `NAME=VALUE` entries.
pub fn entries(variables: &[(OsString, OsString)]) -> Vec<Vec<u8>> {
    variables
        .iter()
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect()
}

/// Runs the real command for `--help`, `--usage` and `--version`; `None` if none was asked for.
///
/// # Errors
/// It cannot be started.
pub async fn answered(context: &mut Context<'_>, parsed: &Parsed) -> Result<Option<End>, Refusal> {
    for long in ANSWERED {
        if parsed.has(long) {
            let words = vec![format!("--{long}").into()];
            return plain(context, words).await.map(Some);
        }
    }
    Ok(None)
}

/// Runs the real command with words that start no job, on the shim's own streams.
///
/// # Errors
/// It cannot be started.
pub async fn plain(context: &mut Context<'_>, words: Vec<OsString>) -> Result<End, Refusal> {
    let [_, output, error] = streams(context)?;
    let wish = Start {
        command: context.request.command,
        arguments: words,
        environment: Vec::new(),
        umask: context.request.umask,
        input: Way::Null,
        output: Way::Passed(output),
        error: Way::Passed(error),
        kept: Vec::new(),
    };
    let mut running = spawn::start(&context.session, wish)?;
    Ok(running.attend(context.conn).await)
}

/// The shim's streams, to be handed on.
///
/// # Errors
/// They are gone already.
pub fn streams(context: &mut Context<'_>) -> Result<[Received; 3], Refusal> {
    let streams = context.streams.take();
    streams.ok_or_else(|| Refusal::mistake("the standard streams were handed on already"))
}

/// Does something that may take long, Slurm being slow to answer, unless the shim gets a signal that
/// ends a command.
///
/// # Errors
/// That signal; `SIGHUP` if the shim is gone.
pub async fn patiently<T>(conn: &mut Conn, work: impl Future<Output = T>) -> Result<T, End> {
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return Ok(done),
            event = conn.event() => match event {
                Event::Signal(signal) if DEADLY.contains(&signal) => {
                    return Err(End::Signal(signal));
                }
                Event::Signal(_) => {}
                Event::Gone => return Err(End::Signal(libc::SIGHUP)),
            },
        }
    }
}

/// Waits for room in the queue, if a limit of jobs holds, and writes what is about to be submitted. `draft`
/// is what [`super::records::draft`] gave.
///
/// # Errors
/// There are too many jobs, or it cannot be written. Within: see [`patiently`].
pub async fn enter(
    session: &Rc<Session>,
    conn: &mut Conn,
    parsed: &Parsed,
    draft: &[u8],
    batch: bool,
) -> Result<Result<Intent, End>, Refusal> {
    match patiently(conn, queue::enter(session, parsed, draft, batch)).await {
        Ok(intent) => Ok(Ok(intent?)),
        Err(end) => Ok(Err(end)),
    }
}

/// Says something on the shim's standard error, under the command's name. A shim that is gone
/// hears nothing; that shows elsewhere.
pub async fn say(context: &Context<'_>, text: &str) {
    let line = format!("{}: {text}\n", context.request.command);
    let _ = context.conn.output(Stream::Error, line.as_bytes()).await;
}

/// Tells what the parser found worth telling.
pub async fn tell_notes(context: &Context<'_>, parsed: &Parsed) {
    for note in &parsed.notes {
        say(context, note).await;
    }
}

/// The directory in which the job starts: `--chdir`, as seen from the shim's.
///
/// # Errors
/// The shim has none.
pub fn directory(context: &Context<'_>, parsed: &Parsed) -> Result<PathBuf, Refusal> {
    let own = &context.request.cwd;
    let directory = match parsed.value("chdir") {
        Some(wanted) => own.join(wanted),
        None => own.clone(),
    };
    // Also what a shim says whose directory was removed.
    if !directory.is_absolute() {
        return Err(Refusal::mistake("getcwd failed: No such file or directory"));
    }
    if directory.as_os_str().len() >= LONGEST_PATH {
        return Err(too_long("directory"));
    }
    // Slurm shows it in lines of many jobs.
    if directory
        .as_os_str()
        .as_bytes()
        .iter()
        .any(u8::is_ascii_control)
    {
        return Err(Refusal::mistake(
            "the directory's name has control characters, which would garble what Slurm shows",
        ));
    }
    Ok(directory)
}

/// A path that no system call takes.
pub fn too_long(what: &str) -> Refusal {
    Refusal::mistake(format!("the path of the {what} is too long"))
}

/// Where Slurm itself starts the job: in the project, which is there. The directory that was asked
/// for is entered in the jail; Slurm would say in the job's output whether it exists outside.
pub fn start_directory(session: &Session) -> OsString {
    option("--chdir", OsStr::from_bytes(&session.order.seal.project))
}

/// The name of a job that gets none, by its program. It becomes a word on the real command's line;
/// what could not stand there becomes `?`, as it is shown anyway.
pub fn job_name(program: &OsStr) -> OsString {
    let name = Path::new(program).file_name().unwrap_or(program);
    let text = name.to_string_lossy();
    let plain = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(plain).collect::<String>().into()
}

/// A word of the real command's line: an option with a value.
pub fn option(name: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(name);
    word.push("=");
    word.push(value);
    word
}

/// A capsule. `real` is what the real command's environment has beside the session's.
pub fn capsule(
    context: &Context<'_>,
    parsed: &Parsed,
    real: &Variables,
    cwd: &OsStr,
    streams: Streams,
    program: Program,
) -> Capsule {
    let session = &context.session;
    let export = parsed.value("export");
    let wins = match context.request.command {
        Command::Sbatch => Wins::Later,
        _ => Wins::Shell,
    };
    let mut environment = exported(export, &context.request.environment, wins);
    if export.is_some() {
        // A shell that lacks these has lost them; a login would bring them back.
        for (name, value) in login(session) {
            if !environment.iter().any(|(known, _)| *known == name) {
                environment.push((name, value));
            }
        }
    }
    if context.request.command == Command::Sbatch {
        announce_export(export, &mut environment);
    }
    Capsule {
        seal: session.order.seal.clone(),
        base_environment: base_environment(session, real),
        environment: entries(&environment),
        cwd: cwd.as_bytes().to_vec(),
        submit_directory: context.request.cwd.as_os_str().as_bytes().to_vec(),
        umask: context.request.umask,
        streams,
        program,
    }
}

/// What sbatch sets in a job that it gives a part of its environment, for the job's steps: they get
/// no more (`src/sbatch/opt.c`, `src/sbatch/sbatch.c`, 22.05).
fn announce_export(export: Option<&OsStr>, environment: &mut Variables) {
    const STEPS: &str = "SLURM_EXPORT_ENV";
    const LOGIN: &str = "SLURM_GET_USER_ENV";
    let Some(list) = export.filter(|list| !list.eq_ignore_ascii_case("ALL")) else {
        return;
    };
    if !environment.iter().any(|(name, _)| name == STEPS) {
        environment.push((STEPS.into(), list.to_owned()));
    }
    set(environment, OsStr::new(LOGIN), "1".into());
}

fn login(session: &Session) -> [(OsString, OsString); 3] {
    let order = &session.order;
    [
        ("HOME".into(), OsString::from_vec(order.home.clone())),
        ("USER".into(), order.user.clone().into()),
        ("LOGNAME".into(), order.user.clone().into()),
    ]
}

/// The whole environment of a real command, as `NAME=VALUE` entries.
fn base_environment(session: &Session, real: &Variables) -> Vec<Vec<u8>> {
    let mut all: Variables = session
        .environment()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    for (name, value) in real {
        set(&mut all, name, value.clone());
    }
    entries(&all)
}

/// Where files of `--output`, `--error` and `--input` are, as asked for.
pub fn requested(parsed: &Parsed) -> Streams {
    let path = |long: &str| parsed.value(long).map(|path| path.as_bytes().to_vec());
    Streams {
        input: path("input"),
        output: path("output"),
        error: path("error"),
        append: appends(parsed),
    }
}

/// `--open-mode`
pub fn appends(parsed: &Parsed) -> bool {
    let mode = parsed.value("open-mode").map(OsStr::as_bytes);
    mode.and_then(<[u8]>::first)
        .is_some_and(|first| first.eq_ignore_ascii_case(&b'a'))
}

/// A file in memory with this content, to be read from its beginning.
///
/// # Errors
/// There is no memory.
pub fn memory_file(content: &[u8]) -> Result<OwnedFd, Refusal> {
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

/// Why the shim did not answer, as an end of the command: the signal that came first, or silence.
/// An `errno` is the caller's to explain.
pub fn interrupted(unanswered: Unanswered) -> End {
    match unanswered {
        Unanswered::Interrupted(signal) => End::Signal(signal),
        _ => End::Signal(libc::SIGHUP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_named_in_one_line() {
        assert_eq!(job_name(OsStr::new("/x/a b.sh")), "a b.sh");
        assert_eq!(job_name(OsStr::from_bytes(b"a\nb\xff")), "a?b\u{fffd}");
    }
}
