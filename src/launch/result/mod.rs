//! How a run went, for a caller that is a program: `agent-sandbox run --result FILE` (decision 0051). What cannot be
//! known is `null`, and says why.

mod changed;
mod file;
mod requests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::Serialize;

use self::changed::{Before, Changed};
use self::file::ResultFile;
use self::requests::{Job, Refused, Requests};
use super::backend::Ready;
use super::deadline::Over;
use super::measured::Measured;
use super::prepared::Prepared;
use super::slurm_commands::SlurmCommands;
use super::supervisor::Outcome;
use crate::audit;
use crate::handoff::End;

/// The form of what is written. A key that goes or changes its meaning makes a new one; new keys do not.
const VERSION: u32 = 1;
/// Why nothing is known of a command that never ran.
const NOT_STARTED: &str = "the command was not started";

/// What is gathered for the result of one run.
#[derive(Debug)]
pub struct Collector {
    file: ResultFile,
    started: SystemTime,
    begun: Option<Begun>,
    ended: Option<(Option<End>, Option<Over>, Measured)>,
}

/// What is known before the command starts.
#[derive(Debug)]
struct Begun {
    session: String,
    project: PathBuf,
    state: PathBuf,
    /// The allocation in which the session was started.
    allocation: Vec<u32>,
    before: std::result::Result<Before, String>,
    slurm: std::result::Result<SlurmCommands, String>,
}

impl Collector {
    /// For this file.
    ///
    /// # Errors
    /// There can be no such file.
    pub fn new(file: &Path) -> Result<Self> {
        Ok(Self {
            file: ResultFile::new(file)?,
            started: SystemTime::now(),
            begun: None,
            ended: None,
        })
    }

    /// Notes what has to be known before anything runs inside.
    ///
    /// # Errors
    /// The jail could write the file, or an older one cannot be removed.
    pub(super) fn begin(&mut self, prepared: &Prepared, ready: &dyn Ready) -> Result<()> {
        self.file.clear(ready)?;
        let plan = ready.plan();
        let project = plan.project.clone().context("a launch needs a project")?;
        self.begun = Some(Begun {
            session: plan.session.clone(),
            state: prepared.host.state_directory.clone(),
            allocation: prepared.snapshot.allocation.clone(),
            before: Before::new(&project),
            project,
            slurm: SlurmCommands::of(&prepared.host),
        });
        Ok(())
    }

    /// Notes how it went.
    pub(super) fn end(&mut self, outcome: &Outcome, over: Option<Over>, measured: Measured) {
        let end = match outcome {
            Outcome::Ended(end) => Some(*end),
            _ => None,
        };
        self.ended = Some((end, over, measured));
    }

    /// Writes the result, unless it is not known that the jail cannot change the file. `status` is what the caller gets as exit status, `error` why the command was not run.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(self, status: u8, error: Option<String>) -> Result<()> {
        let Some(begun) = &self.begun else {
            return Ok(());
        };
        let mut content = serde_json::to_vec_pretty(&self.compose(begun, status, error))?;
        content.push(b'\n');
        self.file.write(&content)
    }

    fn compose(&self, begun: &Begun, status: u8, error: Option<String>) -> RunResult {
        let mut reasons = Reasons::default();
        let (end, over, measured) = self.ended.clone().unwrap_or_default();
        // What could not be executed, or had no jail, did not run.
        let measured = Measured {
            ran: measured.ran.filter(|_| end.is_some()),
            ..measured
        };
        let ran = measured.ran.is_some();
        let why = error.clone().unwrap_or_else(|| NOT_STARTED.to_owned());
        let (exit, signal) = match end {
            Some(End::Code(code)) => (Some(code), None),
            Some(End::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        let changed = match (ran, &begun.before) {
            (true, Ok(before)) => before.changed(),
            (true, Err(why)) => Err(why.clone()),
            (false, _) => Ok(Changed::default()),
        };
        let (state, session) = (&begun.state, &begun.session);
        let requests = requests::read(state, session, &begun.allocation, &begun.slurm);
        let seconds = |time: Duration| (time.as_secs_f64() * 1000.0).round() / 1000.0;
        let spent = measured.spent.filter(|_| ran);
        let how = match (end, over) {
            (_, Some(Over::Time(_))) => "timeout",
            (_, Some(Over::Idle(_))) => "idle",
            (Some(End::Code(_)), None) => "exit",
            (Some(End::Signal(_)), None) => "signal",
            (None, None) => "error",
        };
        let taken = measured.taken.filter(|_| ran);
        let from = |counted: bool| match counted {
            true => Some("cgroup"),
            false => spent.map(|_| "rusage"),
        };
        let cpu = taken.and_then(|taken| taken.cpu);
        let peak = taken.and_then(|taken| taken.peak);
        RunResult {
            version: VERSION,
            session: session.clone(),
            project: begun.project.to_string_lossy().into_owned(),
            started: audit::rfc3339(
                self.started
                    .duration_since(UNIX_EPOCH)
                    .map_or(0.0, |since| since.as_secs_f64()),
            ),
            status,
            end: how,
            error: reasons.or("error", error.ok_or("the command was started")),
            exit: reasons.or(
                "exit",
                exit.ok_or_else(|| match signal {
                    Some(_) => "a signal ended the command".to_owned(),
                    None => why.clone(),
                }),
            ),
            signal: reasons.or(
                "signal",
                signal.ok_or_else(|| match exit {
                    Some(_) => "no signal ended the command".to_owned(),
                    None => why.clone(),
                }),
            ),
            wall_seconds: reasons.or("wall_seconds", measured.ran.map(seconds).ok_or(NOT_STARTED)),
            cpu_seconds: reasons.or(
                "cpu_seconds",
                cpu.or(spent.map(|spent| spent.cpu))
                    .map(seconds)
                    .ok_or(NOT_STARTED),
            ),
            cpu_from: reasons.or("cpu_from", from(cpu.is_some()).ok_or(NOT_STARTED)),
            peak_memory_bytes: reasons.or(
                "peak_memory_bytes",
                peak.or(spent.map(|spent| spent.largest)).ok_or(NOT_STARTED),
            ),
            peak_memory_from: reasons
                .or("peak_memory_from", from(peak.is_some()).ok_or(NOT_STARTED)),
            memory_kills: reasons.or(
                "memory_kills",
                taken.map(|taken| taken.memory_kills).ok_or(match ran {
                    true => "the session has no cgroup of its own that would count them",
                    false => NOT_STARTED,
                }),
            ),
            project_changed_files: reasons.or(
                "project_changed_files",
                changed.clone().map(|Changed { files, .. }| files),
            ),
            project_changed_bytes: reasons.or(
                "project_changed_bytes",
                changed.map(|Changed { bytes, .. }| bytes),
            ),
            jobs: reasons.or("jobs", requests.clone().map(|all: Requests| all.jobs)),
            more_jobs: reasons.or("more_jobs", requests.clone().map(|all| all.more_jobs)),
            refusals: reasons.or("refusals", requests.clone().map(|all| all.refusals)),
            more_refusals: reasons.or("more_refusals", requests.map(|all| all.more_refusals)),
            trail: reasons.or(
                "trail",
                match (ran, measured.traced) {
                    (true, true) => Ok(session.clone()),
                    (true, false) => Err("this session is not traced"),
                    (false, _) => Err(NOT_STARTED),
                },
            ),
            reasons: reasons.0,
        }
    }
}

/// What is written. These keys are an interface: `docs/reference/result.md` has a row for each.
#[derive(Debug, Serialize)]
struct RunResult {
    version: u32,
    session: String,
    project: String,
    started: String,
    status: u8,
    end: &'static str,
    error: Option<String>,
    exit: Option<i32>,
    signal: Option<i32>,
    wall_seconds: Option<f64>,
    cpu_seconds: Option<f64>,
    cpu_from: Option<&'static str>,
    peak_memory_bytes: Option<u64>,
    peak_memory_from: Option<&'static str>,
    memory_kills: Option<u64>,
    project_changed_files: Option<u64>,
    project_changed_bytes: Option<u64>,
    jobs: Option<Vec<Job>>,
    more_jobs: Option<u64>,
    refusals: Option<Vec<Refused>>,
    more_refusals: Option<u64>,
    trail: Option<String>,
    reasons: BTreeMap<&'static str, String>,
}

/// Why a key is `null`, by its name.
#[derive(Debug, Default)]
struct Reasons(BTreeMap<&'static str, String>);

impl Reasons {
    fn or<T>(
        &mut self,
        key: &'static str,
        known: std::result::Result<T, impl Into<String>>,
    ) -> Option<T> {
        known.map_err(|why| self.0.insert(key, why.into())).ok()
    }
}
