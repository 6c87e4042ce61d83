//! The real sbatch: where messages about its job go, and what becomes of what it says.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::rc::Rc;
use std::time::Duration;

use agent_sandbox_wire::message::{End, Stream};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use crate::audit::Verdict;
use crate::conn::Event;
use crate::files;
use crate::refusal::{Reason, Refusal};
use crate::slurm::ask::{Stop, patiently};
use crate::slurm::messages::Speaker;
use crate::slurm::request::Context;
use crate::slurm::submit::submission::{Job, Started};
use crate::slurm::{cluster, records};
use crate::spawn::Running;

/// The longest line with a job's id, in bytes: an id and a cluster's name.
const LONGEST_ID: usize = 4096;

/// Signals that end sbatch.
const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// How long sbatch, when it is to end, may take to say the id of what it is submitting. What it has
/// not said then is looked for ([`crate::slurm::submitted`]).
const GRACE: Duration = Duration::from_secs(5);

/// The file for what slurmstepd itself has to say, as a pattern of Slurm's.
///
/// # Errors
/// The directory cannot be made, or cannot be written as a pattern; or the shim ends.
pub(super) async fn messages(context: &mut Context<'_>) -> Result<OsString, Stop> {
    let session = Rc::clone(&context.session);
    let directory = records::logs(&session);
    files::make_private(&directory).map_err(|error| {
        Refusal::mistake(format!("cannot make `{}`: {error}", directory.display()))
    })?;
    let cluster = patiently(context.conn, cluster::name(&session)).await?;
    // Where Slurm does not answer, sbatch says so in its own words.
    let cluster = cluster.unwrap_or(cluster::NAMELESS);
    // A backslash switches Slurm's patterns off.
    let mut pattern = Vec::new();
    for &byte in directory.as_os_str().as_bytes() {
        match byte {
            b'%' => pattern.extend_from_slice(b"%%"),
            b'\\' | 0..=0x1f => {
                return Err(Refusal::mistake(format!(
                    "the state directory `{}` has a character that Slurm cannot take",
                    directory.display()
                ))
                .into());
            }
            other => pattern.push(other),
        }
    }
    pattern.extend_from_slice(format!("/{cluster}-%j.log").as_bytes());
    Ok(OsString::from_vec(pattern))
}

/// Follows the real sbatch, and tells the shim what it tells.
///
/// # Errors
/// Its job cannot be recorded, or it says no id.
pub(super) async fn follow(context: &mut Context<'_>, started: Started) -> Result<End, Refusal> {
    let Started {
        parsed,
        mut running,
        speaker,
        job,
    } = started;
    let mut said = SbatchOutput {
        line: Vec::new(),
        quiet: parsed.has("quiet") || parsed.has("test-only"),
        parsable: parsed.has("parsable"),
        pending: job,
        job: None,
    };
    let end = said.follow(context, &mut running, speaker).await;
    said.pending.over(end.as_ref().unwrap_or(&End::FAILURE));
    let end = end?;
    if end != End::SUCCESS && said.job.is_none() {
        context.entry.verdict = Verdict::Failed;
        context.entry.reason = Some(Reason::Slurm);
    }
    Ok(end)
}

/// What sbatch said so far.
struct SbatchOutput {
    /// The line with the id.
    line: Vec<u8>,
    quiet: bool,
    parsable: bool,
    /// The job that it may get.
    pending: Job,
    /// Its id.
    job: Option<u32>,
}

impl SbatchOutput {
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
        self.job.is_some() || !self.pending.may_come()
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
        self.pending.is(job).await?;
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
