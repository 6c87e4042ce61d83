//! salloc: the real one gets the allocation and runs a program of ours that waits; the user's shell
//! or command runs in the jail meanwhile.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use agent_sandbox_wire::message::{End, Stream, ToShim};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::directory;
use super::submission::{Own, Started, Submission};
use super::target::Target;
use crate::conn::{Event, Unanswered};
use crate::files;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::slurm::ask::{Stop, settle};
use crate::slurm::messages::Speaker;
use crate::slurm::parse::Parsed;
use crate::slurm::records::{Kind, Record, Text};
use crate::slurm::request::Context;
use crate::spawn::{Running, Way};
use crate::variables::{Variables, entries, set, variable};

/// What the chaperon's program is told, so that it waits.
const HOLD: &str = "hold";

/// The largest environment that it can have, in bytes: what `execve(2)` takes by default.
const LARGEST: usize = 2 << 20;

/// Variables that are not for the inside.
const HIDDEN: [&str; 3] = ["SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"];

/// Carries out salloc.
///
/// # Errors
/// The request is refused, or makes no sense.
pub(in crate::slurm) async fn run(context: &mut Context<'_>) -> Result<End, Refusal> {
    settle(carry_out(context).await)
}

async fn carry_out(context: &mut Context<'_>) -> Result<End, Stop> {
    let session = Rc::clone(&context.session);
    let submission = Submission::read(context, Target::default()).await?;
    submission.tell_notes(context).await;
    // --chdir is for the command; the allocation itself is shown where salloc was called.
    let cwd = directory::of(&context.request.cwd, None)?;
    let parsed = submission.parsed();
    let held = !parsed.has("no-shell");
    if !held && !parsed.operands.is_empty() {
        return Err(
            Refusal::mistake("--no-shell starts no command; leave one of the two out").into(),
        );
    }
    let mut record = Record::new(&session, Kind::Salloc);
    record.cwd = Text::from(cwd.as_os_str().as_bytes());
    let submission = submission.judge(context, cwd, 0).await?;
    let own = own(held)?;
    let streams = streams(context, submission.parsed(), held)?;
    let submission = submission.write(context, own, streams);
    let submission = submission.record(context, &record).await?;
    let mut started = submission.start(&session)?;
    if held {
        let end = hold(context, &mut started).await;
        // Not every way to end it takes a pending allocation back.
        started.job.over(end.as_ref().unwrap_or(&End::FAILURE));
        return Ok(end?);
    }
    let Started {
        mut running,
        mut speaker,
        job,
        ..
    } = started;
    let end = speaker.attend(&mut running, context.conn).await;
    // It stays: it is recorded before the shell goes on.
    job.over_and_recorded(&end).await?;
    Ok(end)
}

/// What salloc is told beside the user's options. No --chdir: it would go there itself, outside of the jail.
fn own(held: bool) -> Result<Own, Refusal> {
    let last = match held {
        true => vec!["--".into(), own_program()?, HOLD.into()],
        false => vec!["--no-shell".into()],
    };
    Ok(Own {
        last,
        ..Own::default()
    })
}

fn streams(context: &mut Context<'_>, parsed: &Parsed, held: bool) -> Result<[Way; 3], Refusal> {
    let [_, _, error] = context.take_streams()?;
    let way = || if held { Way::Pipe } else { Way::Null };
    let error = if parsed.has("verbose") {
        Way::Pipe
    } else {
        Way::Passed(error)
    };
    Ok([way(), way(), error])
}

/// The program that waits.
fn own_program() -> Result<OsString, Refusal> {
    files::own_program()
        .map(OsString::from)
        .map_err(|error| Refusal::mistake(format!("cannot find the chaperon's program: {error}")))
}

/// Waits for the allocation, runs the command inside, and gives the allocation back.
async fn hold(context: &mut Context<'_>, started: &mut Started) -> Result<End, Refusal> {
    let Started {
        parsed,
        running,
        speaker,
        job: pending,
    } = started;
    let parsed = &*parsed;
    let Some(said) = granted(context, running, speaker).await else {
        return Ok(speaker.attend(running, context.conn).await);
    };
    let session = Rc::clone(&context.session);
    let mut variables = described(&session, &said);
    set(
        &mut variables,
        OsStr::new("SLURM_SUBMIT_DIR"),
        context.request.cwd.clone().into_os_string(),
    );
    let job = variables
        .iter()
        .find(|(name, _)| name == "SLURM_JOB_ID")
        .and_then(|(_, id)| id.to_str()?.parse().ok());
    let Some(job) = job else {
        running.terminate().await;
        return Err(Refusal::mistake("salloc said no id of the allocation"));
    };
    context.entry.jobs.push(job);
    if let Err(refusal) = pending.is(job).await {
        running.terminate().await;
        return Err(refusal);
    }
    session
        .allocations
        .borrow_mut()
        .insert(job, variables.clone());
    let outcome = inside(context, parsed, &variables, (running, speaker)).await;
    session.allocations.borrow_mut().remove(&job);
    let Some(ended) = outcome else {
        running.terminate().await;
        return Ok(End::Signal(libc::SIGHUP));
    };
    if let Some(mut input) = running.input.take() {
        // If it is gone, the allocation is, too.
        let _ = input.write_all(&[ended.code]).await;
    }
    let end = speaker.attend(running, context.conn).await;
    if let Some(signal) = ended.signal.filter(|_| parsed.has("verbose")) {
        let name = match parsed.operands.first() {
            Some(word) => word.as_bytes().to_vec(),
            None => shell(context),
        };
        let name = String::from_utf8_lossy(&name).escape_debug().to_string();
        let text = format!("Command \"{name}\" was terminated by signal {signal}");
        context.say(&text).await;
    }
    Ok(end)
}

/// How the command inside ended.
struct Ended {
    /// What salloc returns.
    code: u8,
    /// The signal that ended it.
    signal: Option<i32>,
}

impl Ended {
    fn with(code: u8) -> Self {
        Self { code, signal: None }
    }
}

/// Runs the command inside. `None`: the shim is gone.
async fn inside(
    context: &mut Context<'_>,
    parsed: &Parsed,
    variables: &Variables,
    (running, speaker): (&mut Running, &mut Speaker),
) -> Option<Ended> {
    let mut argv: Vec<Vec<u8>> = parsed
        .operands
        .iter()
        .map(|word| word.as_bytes().to_vec())
        .collect();
    if let Some(directory) = parsed.value("chdir") {
        if argv.is_empty() {
            argv.push(shell(context));
        }
        let there = [&b"env"[..], b"-C", directory.as_bytes(), b"--"];
        argv.splice(0..0, there.map(<[u8]>::to_vec));
    }
    let environment = entries(variables);
    context.conn.start_inside(argv, environment).await.ok()?;
    let mut lost = false;
    loop {
        tokio::select! {
            ended = context.conn.ended_inside() => match ended {
                // What salloc returns for a command that a signal ended.
                Ok(End::Signal(signal)) => {
                    return Some(Ended { code: 0, signal: Some(signal) });
                }
                Ok(End::Code(code)) => {
                    return Some(Ended::with(u8::try_from(code & 0xff).unwrap_or(1)));
                }
                Err(Unanswered::Failed(_)) => {
                    let name = parsed.operands.first().map_or("", |word| {
                        word.to_str().unwrap_or_default()
                    });
                    let text = format!(
                        "salloc: error: _fork_command: Unable to find command \"{}\"\n",
                        name.escape_debug()
                    );
                    let _ = context.conn.output(Stream::Error, text.as_bytes()).await;
                    return Some(Ended::with(1));
                }
                // The command got these itself; it decides.
                Err(Unanswered::Interrupted(libc::SIGINT | libc::SIGQUIT | libc::SIGTERM)) => {}
                Err(Unanswered::Interrupted(signal)) => {
                    let _ = context.conn.send(&ToShim::Signal(signal)).await;
                }
                Err(Unanswered::TooLong | Unanswered::Gone) => return None,
            },
            text = speaker.next() => {
                let _ = context.conn.output(Stream::Error, &text).await;
            }
            // salloc ended what it believes to be the command: the allocation is gone.
            _ = running.wait(), if !lost => {
                lost = true;
                let _ = context.conn.send(&ToShim::Signal(libc::SIGHUP)).await;
            }
        }
    }
}

/// The user's shell, as the shim would choose it.
fn shell(context: &Context<'_>) -> Vec<u8> {
    let mut all = context.request.environment.iter();
    all.find(|(name, value)| name == "SHELL" && !value.is_empty())
        .map_or(b"/bin/sh".to_vec(), |(_, value)| value.as_bytes().to_vec())
}

/// Waits for the environment of the allocation; `None` if there is none to come.
async fn granted(
    context: &mut Context<'_>,
    running: &mut Running,
    speaker: &mut Speaker,
) -> Option<Vec<u8>> {
    let mut output = running.output.take()?;
    let mut said = Vec::new();
    let mut part = [0; 8192];
    while !said.ends_with(b"\0\0") {
        tokio::select! {
            count = output.read(&mut part) => match count {
                Ok(count) if count > 0 && said.len() < LARGEST => {
                    said.extend_from_slice(&part[..count]);
                }
                _ => return None,
            },
            text = speaker.next() => {
                let _ = context.conn.output(Stream::Error, &text).await;
            }
            event = context.conn.event() => match event {
                Event::Signal(number) => running.signal(number),
                Event::Gone => {
                    running.terminate().await;
                    return None;
                }
            },
        }
    }
    Some(said)
}

/// The variables that describe the allocation, of those that salloc's command got.
fn described(session: &Session, said: &[u8]) -> Variables {
    said.split(|&byte| byte == 0)
        .filter_map(variable)
        .filter(|(name, _)| {
            name.as_bytes().starts_with(b"SLURM_") && !HIDDEN.iter().any(|hidden| name == hidden)
        })
        .filter(|(name, value)| {
            let mut own = session.environment();
            !own.any(|(known, same)| known == name && same == value)
        })
        .collect()
}
