//! The real sbatch: what it is given, and what becomes of what it says.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::rc::Rc;
use std::time::Duration;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::{End, Stream};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use super::super::Context;
use crate::audit::Verdict;
use crate::conn::Event;
use crate::files;
use crate::intent::Intent;
use crate::refusal::{Reason, Refusal};
use crate::slurm::cluster;
use crate::slurm::messages::{Messages, Speaker};
use crate::slurm::parse::Parsed;
use crate::slurm::records::{self, Record};
use crate::slurm::{submission, submitted};
use crate::spawn::{self, Running, Start, Way};
use crate::variables::Variables;

/// The longest line with a job's id, in bytes: an id and a cluster's name.
const LONGEST_ID: usize = 4096;

/// Signals that end sbatch.
const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// How long sbatch, when it is to end, may take to say the id of what it is submitting. What it has
/// not said then is looked for ([`submitted`]).
const GRACE: Duration = Duration::from_secs(5);

/// The file for what slurmstepd itself has to say, as a pattern of Slurm's.
///
/// # Errors
/// The directory cannot be made, or cannot be written as a pattern.
pub(super) async fn messages(context: &mut Context<'_>) -> Result<Result<OsString, End>, Refusal> {
    let session = Rc::clone(&context.session);
    let directory = records::logs(&session);
    files::make_private(&directory).map_err(|error| {
        Refusal::mistake(format!("cannot make `{}`: {error}", directory.display()))
    })?;
    let cluster = match submission::patiently(context.conn, cluster::name(&session)).await {
        // Where Slurm does not answer, sbatch says so in its own words.
        Ok(cluster) => cluster.unwrap_or(cluster::NAMELESS),
        Err(end) => return Ok(Err(end)),
    };
    // A backslash switches Slurm's patterns off.
    let mut pattern = Vec::new();
    for &byte in directory.as_os_str().as_bytes() {
        match byte {
            b'%' => pattern.extend_from_slice(b"%%"),
            b'\\' | 0..=0x1f => {
                return Err(Refusal::mistake(format!(
                    "the state directory `{}` has a character that Slurm cannot take",
                    directory.display()
                )));
            }
            other => pattern.push(other),
        }
    }
    pattern.extend_from_slice(format!("/{cluster}-%j.log").as_bytes());
    Ok(Ok(OsString::from_vec(pattern)))
}

/// Submits a capsule and tells the shim what the real sbatch tells.
pub(super) async fn submit(
    context: &mut Context<'_>,
    parsed: &Parsed,
    mut words: Vec<OsString>,
    variables: Variables,
    messages: Messages,
    capsule: &[u8],
    record: &Record,
) -> Result<End, Refusal> {
    let draft = records::draft(record)?;
    let session = context.session.clone();
    let test = parsed.has("test-only");
    let quiet = parsed.has("quiet");
    // A quiet sbatch does not say the job's id. With --test-only there is none, and sbatch refuses to
    // be both quiet and verbose.
    if quiet && (test || parsed.has("verbose")) {
        words.push("--quiet".into());
    }
    let entered = submission::enter(&session, context.conn, parsed, &draft, true);
    let intent = match entered.await? {
        // A test makes no job.
        Ok(intent) => Some(intent).filter(|_| !test),
        Err(end) => return Ok(end),
    };
    if test && let Err(end) = submission::patiently(context.conn, session.limiter.turn()).await {
        return Ok(end);
    }
    let wish = Start {
        command: Command::Sbatch,
        arguments: words,
        environment: variables,
        umask: context.request.umask,
        input: Way::Passed(submission::memory_file(capsule)?.into()),
        output: Way::Pipe,
        error: Way::Pipe,
        kept: Vec::new(),
    };
    let file = intent.as_ref().map(Intent::file);
    let mut running = spawn::start_with(&session, wish, file)?;
    // It may be ended before it says the id of a job that Slurm has.
    let number =
        intent.map(|intent| submitted::begun(&session, running.pid, true, draft.clone(), intent));
    let mut said = Said {
        line: Vec::new(),
        quiet: quiet || test,
        parsable: parsed.has("parsable"),
        number,
        draft,
        job: None,
    };
    let speaker = Speaker::new(running.error.take(), messages);
    let end = said.follow(context, &mut running, speaker).await;
    if let Some(number) = number {
        submitted::over(&session, number, end.as_ref().unwrap_or(&End::FAILURE));
    }
    let end = end?;
    if end != End::SUCCESS && said.job.is_none() {
        context.entry.verdict = Verdict::Failed;
        context.entry.reason = Some(Reason::Slurm);
    }
    Ok(end)
}

/// What sbatch said so far.
struct Said {
    /// The line with the id.
    line: Vec<u8>,
    quiet: bool,
    parsable: bool,
    /// Among those that may get a job.
    number: Option<u64>,
    /// The record.
    draft: Vec<u8>,
    job: Option<u32>,
}

impl Said {
    /// Hands on what sbatch says until it ends.
    async fn follow(
        &mut self,
        context: &mut Context<'_>,
        running: &mut Running,
        mut speaker: Speaker,
    ) -> Result<End, Refusal> {
        let mut output = running.output.take();
        let mut out = [0; 256];
        let mut here = true;
        // The signal that is to end it, and until when it may say the id first.
        let mut wanted: Option<i32> = None;
        let mut deadline: Option<Instant> = None;
        while output.is_some() || speaker.is_open() {
            tokio::select! {
                count = read(&mut output, &mut out), if output.is_some() => match count {
                    0 => output = None,
                    count => {
                        self.hear(context, &out[..count]).await?;
                        if self.job.is_some() && deadline.take().is_some() {
                            running.end_with(wanted.unwrap_or(libc::SIGTERM));
                        }
                    }
                },
                text = speaker.next() => {
                    let _ = context.conn.output(Stream::Error, &text).await;
                }
                event = context.conn.event(), if here => match event {
                    Event::Signal(number) if self.submitted() => running.signal(number),
                    Event::Signal(number) if ENDING.contains(&number) => {
                        wanted = wanted.or(Some(number));
                        deadline = deadline.or_else(|| Some(Instant::now() + GRACE));
                    }
                    // Nothing else may end it between its request and the id.
                    Event::Signal(_) => {}
                    Event::Gone => {
                        here = false;
                        wanted = Some(libc::SIGHUP);
                        if self.submitted() {
                            running.end_with(libc::SIGTERM);
                        } else {
                            deadline = deadline.or_else(|| Some(Instant::now() + GRACE));
                        }
                    }
                },
                () = expired(deadline), if deadline.is_some() => {
                    deadline = None;
                    running.end_with(wanted.unwrap_or(libc::SIGTERM));
                }
            }
        }
        match wanted {
            Some(signal) => {
                running.terminate().await;
                Ok(End::Signal(signal))
            }
            None => Ok(running.attend(context.conn).await),
        }
    }

    /// Whether nothing is lost by the end of sbatch: the id is known, or there will be none.
    fn submitted(&self) -> bool {
        self.job.is_some() || self.number.is_none()
    }

    /// Collects the line with the id, and when it is whole records the job and says the id.
    async fn hear(&mut self, context: &mut Context<'_>, part: &[u8]) -> Result<(), Refusal> {
        if self.job.is_some() || self.line.len() > LONGEST_ID {
            return Ok(());
        }
        self.line.extend_from_slice(part);
        let Some(end) = self.line.iter().position(|&byte| byte == b'\n') else {
            return Ok(());
        };
        let line = String::from_utf8_lossy(&self.line[..end]).into_owned();
        let (id, cluster) = line
            .split_once(';')
            .map_or((&*line, None), |(id, cluster)| (id, Some(cluster)));
        let job = id
            .trim()
            .parse()
            .map_err(|_| Refusal::mistake(format!("sbatch said no id: {}", line.escape_debug())))?;
        self.job = Some(job);
        context.entry.jobs.push(job);
        if let Some(number) = self.number {
            submitted::said(&context.session, number, job);
        }
        if let Err(refusal) = records::record(&context.session, job, &self.draft).await {
            return Err(submitted::take_back(&context.session, job, refusal).await);
        }
        if let Some(number) = self.number {
            submitted::recorded(&context.session, number);
        }
        if self.quiet {
            return Ok(());
        }
        let text = match (self.parsable, cluster) {
            (true, _) => format!("{line}\n"),
            (false, None) => format!("Submitted batch job {job}\n"),
            (false, Some(cluster)) => format!("Submitted batch job {job} on cluster {cluster}\n"),
        };
        let _ = context.conn.output(Stream::Output, text.as_bytes()).await;
        Ok(())
    }
}

/// Waits until then.
async fn expired(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Reads a part; 0 at the end. Cancel-safe.
async fn read(from: &mut Option<impl tokio::io::AsyncRead + Unpin>, part: &mut [u8]) -> usize {
    match from {
        Some(from) => from.read(part).await.unwrap_or(0),
        None => 0,
    }
}
