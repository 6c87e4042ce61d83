//! `[slurm.confirm]`: jobs that wait for the user's approval. The chaperon holds what is to be submitted and writes what it asks for
//! into a file of the state directory, which no jail can reach; `agent-sandbox approve` outside writes the answer
//! beside it. The file's lock is held as long as the request waits.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: files by which the user answers, and their time"
)]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use agent_sandbox_events::mark::hex;
use agent_sandbox_wire::budget::{Budgets, Hours, Measure, Resource, Threshold};
use agent_sandbox_wire::text::visible;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::ask::{Stop, patiently};
use super::bounds::JobSize;
use super::ledger;
use super::lines::random;
use super::records;
use super::request::Context;
use crate::audit::{self, Approval};
use crate::locks;
use crate::refusal::{Reason, Refusal};
use crate::session::Session;

/// Where requests and answers are, below the directory of what is known of clusters.
const DIRECTORY: &str = "pending";
/// What an answer's name has behind that of its request.
const ANSWER: &str = ".answer";
/// Letters of an id: none that is taken for another.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// How many an id has.
const LENGTH: usize = 6;
/// How often an answer is looked for: first, and at last.
const FIRST: Duration = Duration::from_millis(200);
const LAST: Duration = Duration::from_secs(2);
/// The largest file, in bytes.
const LARGEST: u64 = 64 << 10;
/// Characters of what the job chose that are shown: of its name, and of what it runs.
const LONGEST_NAME: usize = 40;
const LONGEST: usize = 120;
/// Where locks are not to be had, a request that is this old belongs to nobody.
const OLD: Duration = Duration::from_secs(24 * 3600);

/// A script, as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// Its size.
    pub bytes: usize,
    /// Its SHA-256, as `sha256sum` writes it: all of it, since who makes two scripts can make them alike in a part.
    pub sha256: String,
}

impl Script {
    /// Of this content.
    pub fn of(content: &[u8]) -> Self {
        Self {
            bytes: content.len(),
            sha256: hex(digest(&SHA256, content).as_ref()),
        }
    }
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// Its id.
    pub id: String,
    /// A number of its own, which its answer repeats: ids may come round again.
    pub number: u64,
    /// Since when, in seconds since 1970-01-01 00:00 UTC.
    pub since: u64,
    /// Until when, likewise; 0: as long as who submits it.
    pub until: u64,
    /// The session.
    pub session: String,
    /// The project.
    pub project: String,
    /// The node on which it waits.
    pub host: String,
    /// The command.
    pub command: String,
    /// The job's name.
    pub name: String,
    /// What it runs.
    pub runs: String,
    /// The script that will run, which the file need not have any more.
    #[serde(default)]
    pub script: Option<Script>,
    /// Why it waits: keys of the policy.
    pub why: String,
    /// How large it is.
    pub size: JobSize,
}

impl Pending {
    /// What it asks for, a clause.
    pub fn asks(&self) -> String {
        let JobSize {
            size,
            minutes,
            tasks,
        } = self.size;
        let mut parts = Vec::new();
        for resource in ledger::resources(size) {
            let count = size.of(resource);
            let one = match resource {
                Resource::Cpu => "CPU",
                Resource::Gpu => "GPU",
                Resource::Node => "node",
            };
            let plural = if count == 1 { "" } else { "s" };
            parts.push(format!("{count} {one}{plural}"));
        }
        let mut text = format!("{} for {minutes} minutes", parts.join(", "));
        if tasks > 1 {
            text.push_str(&format!(", {tasks} tasks"));
        }
        let whole = self.size.seconds();
        let hours = ledger::resources(whole);
        let hours = hours.map(|of| format!("{} {}", Hours(whole.of(of)), of.hours()));
        let hours: Vec<String> = hours.collect();
        format!("{text}: at most {}", hours.join(", "))
    }
}

/// What the user said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Answer {
    number: u64,
    approved: bool,
}

/// Text of others between backquotes, of so many characters at most: what could end the quotes, and blanks that would push
/// what follows out of sight, stand as escapes. What is left out is counted.
fn shown(text: &str, most: usize) -> String {
    let mut all = String::new();
    let mut before = ' ';
    for (at, c) in text.chars().enumerate() {
        let one = match c {
            '`' | '\n' | '\t' => c.escape_unicode().to_string(),
            '\\' => "\\\\".to_owned(),
            c if c.is_whitespace() && (c != ' ' || before == ' ') => c.escape_unicode().to_string(),
            c => visible(c.encode_utf8(&mut [0; 4])).into_owned(),
        };
        before = c;
        let room = most.saturating_sub(all.chars().count());
        if one.chars().count() >= room {
            let rest = text.chars().count() - at;
            all.push_str(&format!("… (+{rest} characters)"));
            break;
        }
        all.push_str(&one);
    }
    all
}

/// The first of the thresholds above which a job is.
pub fn needed<'a>(budgets: &'a Budgets, size: &JobSize) -> Option<&'a Threshold> {
    budgets
        .thresholds
        .iter()
        .find(|threshold| match threshold.of {
            Measure::Hours(resource) => {
                size.seconds().of(resource) > threshold.most.saturating_mul(3600)
            }
            Measure::Minutes => size.minutes > threshold.most,
        })
}

/// What a job is called, and what it runs.
pub struct Title {
    /// Its name.
    pub name: String,
    /// Its script or program.
    pub runs: String,
    /// The script's content.
    pub script: Option<Script>,
}

/// Waits until the user approves of a job, if it needs that.
///
/// # Errors
/// The user denies it, or says nothing for too long; or the shim ends.
pub async fn wait(
    context: &mut Context<'_>,
    size: &JobSize,
    title: impl FnOnce() -> Title,
) -> Result<(), Stop> {
    let session = Rc::clone(&context.session);
    let Some(threshold) = needed(&session.order.budgets, size) else {
        return Ok(());
    };
    let key = threshold.of.key();
    let command = context.request.command.to_string();
    let asked = Asked::new(&session, threshold, &command, title(), *size)?;
    let Pending {
        id, until, since, ..
    } = &asked.pending;
    context.entry.approval = Some(Approval::Asked);
    session.audit.write(context.entry);
    tracing::info!(target: "slurm", id, key, "waits for the user's approval");
    let source = &threshold.source;
    context
        .say(&format!(
            "waiting for the user's approval, ID {id}: {} (`{key}`, {source})",
            asked.pending.asks()
        ))
        .await;
    context
        .say(&format!(
            "the user answers outside with: agent-sandbox approve {id}, or deny {id}"
        ))
        .await;
    session.tell(&format!(
        "a job waits for your approval: {}; in another terminal, since the agent can write on this one: agent-sandbox \
         pending, then agent-sandbox approve {id} (or deny {id}); it is called `{}`",
        asked.pending.asks(),
        asked.pending.name
    ));
    let end = (*until > 0).then(|| Instant::now() + Duration::from_secs(until - since));
    let answer = patiently(context.conn, asked.answer(end)).await;
    context.entry.approval = match &answer {
        Ok(Some(true)) => Some(Approval::Approved),
        Ok(Some(false)) => Some(Approval::Denied),
        Ok(None) | Err(_) => Some(Approval::Withdrawn),
    };
    // A line of its own: one of the same moment would be the question's again.
    context.entry.time = audit::now();
    let refused = |what: String, hint: &str| {
        let refusal = Refusal::rule(format!("{what} (`{key}`, {source})"), hint);
        Stop::from(refusal.because(Reason::Key(key)))
    };
    match answer? {
        Some(true) => {
            context.say(&format!("the user approved {id}")).await;
            Ok(())
        }
        Some(false) => Err(refused(
            format!("the user denied {id}"),
            "ask the user what else would do; a smaller or shorter job needs no approval",
        )),
        None => Err(refused(
            format!(
                "the user did not answer {id} in {} minutes",
                session.order.budgets.patience
            ),
            "submit it again when the user is there, or a smaller or shorter job",
        )),
    }
}

/// A request of this chaperon's. Its file goes with it.
struct Asked {
    pending: Pending,
    path: PathBuf,
    _locked: File,
}

impl Asked {
    fn new(
        session: &Session,
        threshold: &Threshold,
        command: &str,
        title: Title,
        size: JobSize,
    ) -> Result<Self, Refusal> {
        let directory = records::of_slurm(session).join(DIRECTORY);
        let snapshot = &session.order.snapshot;
        let (since, patience) = (ledger::now(), u64::from(session.order.budgets.patience));
        let host = nix::unistd::gethostname().unwrap_or_default();
        let make = || -> io::Result<Self> {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&directory)?;
            let number = random()?;
            let pending = Pending {
                id: id(number),
                number,
                since,
                until: if patience == 0 {
                    0
                } else {
                    since + patience * 60
                },
                session: snapshot.session.clone(),
                project: shown(&String::from_utf8_lossy(&snapshot.project), LONGEST),
                host: host.to_string_lossy().into_owned(),
                command: command.to_owned(),
                name: shown(&title.name, LONGEST_NAME),
                runs: shown(&title.runs, LONGEST),
                script: title.script,
                why: threshold.of.key().to_owned(),
                size,
            };
            let path = directory.join(&pending.id);
            // An answer that nobody took is none of this request's.
            let _ = fs::remove_file(answer_of(&path));
            let aside = directory.join(format!(".{}", pending.id));
            let text = serde_json::to_vec(&pending)?;
            create(&aside)?.write_all(&text)?;
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&aside)?;
            // It appears when it is locked: until then it would seem to be nobody's.
            let _ = locks::try_lock(&file);
            let linked = fs::hard_link(&aside, &path);
            let _ = fs::remove_file(&aside);
            linked?;
            Ok(Self {
                pending,
                path,
                _locked: file,
            })
        };
        make().map_err(|error| {
            Refusal::mistake(format!(
                "the job needs the user's approval, which cannot be asked for in `{}`: {error}",
                directory.display()
            ))
        })
    }

    /// What the user says; none: nothing until the end.
    async fn answer(&self, end: Option<Instant>) -> Option<bool> {
        let mut pause = FIRST;
        loop {
            if let Some(answer) = read::<Answer>(&answer_of(&self.path))
                && answer.number == self.pending.number
            {
                return Some(answer.approved);
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return None;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 11 / 10).min(LAST);
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(answer_of(&self.path));
    }
}

fn id(number: u64) -> String {
    let letters = (0..LENGTH).map(|at| LETTERS[(number >> (5 * at)) as usize % LETTERS.len()]);
    letters.map(char::from).collect()
}

fn answer_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ANSWER);
    name.into()
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    let file = open(path).ok()?;
    read_from(&file)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

fn read_from<T: serde::de::DeserializeOwned>(file: &File) -> Option<T> {
    let mut text = Vec::new();
    file.take(LARGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The requests that wait, the oldest first. Those whose chaperon is gone are removed.
///
/// # Errors
/// They cannot be read.
pub fn all(state: &Path) -> io::Result<Vec<Pending>> {
    let directory = directory(state);
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        if let Some(id) = name.to_str().filter(|name| is_id(name)) {
            all.extend(waiting(&directory.join(id)));
        }
    }
    all.sort_by_key(|one| one.since);
    Ok(all)
}

fn directory(state: &Path) -> PathBuf {
    state.join("slurm").join(DIRECTORY)
}

fn is_id(name: &str) -> bool {
    name.len() == LENGTH && name.bytes().all(|byte| LETTERS.contains(&byte))
}

/// A request, if it waits.
fn waiting(path: &Path) -> Option<Pending> {
    let file = open(path).ok()?;
    let alive = locks::is_locked(&file).unwrap_or_else(|_| {
        let written = file.metadata().and_then(|data| data.modified());
        written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < OLD))
    });
    if !alive {
        let _ = fs::remove_file(path);
        let _ = fs::remove_file(answer_of(path));
        return None;
    }
    read_from(&file)
}

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// That is no id.
    #[error("`{0}` is no id of a request: it has {LENGTH} letters and digits")]
    NoId(String),
    /// None waits.
    #[error(
        "no request `{0}` of yours waits: it was answered, or withdrawn, its time was over, or there was none"
    )]
    None(String),
    /// Somebody was faster.
    #[error("the request `{0}` was {1} a moment ago")]
    Answered(String, &'static str),
    /// It cannot be written.
    #[error("cannot answer the request `{0}`: {1}")]
    Failed(String, io::Error),
}

/// Answers a request.
///
/// # Errors
/// See [`Unanswered`].
pub fn decide(state: &Path, id: &str, approved: bool) -> Result<Pending, Unanswered> {
    let lower = id.to_ascii_lowercase();
    if !is_id(&lower) {
        return Err(Unanswered::NoId(visible(id).into_owned()));
    }
    let directory = directory(state);
    let path = directory.join(&lower);
    let pending = waiting(&path).ok_or_else(|| Unanswered::None(lower.clone()))?;
    let answer = Answer {
        number: pending.number,
        approved,
    };
    let place = answer_of(&path);
    let aside = directory.join(format!(".{lower}{ANSWER}.{}", std::process::id()));
    let write = || -> io::Result<()> {
        let text = serde_json::to_vec(&answer)?;
        let mut file = create(&aside)?;
        file.write_all(&text)?;
        file.sync_data()?;
        // Whole, and never in place of another.
        fs::hard_link(&aside, &place)
    };
    let written = write();
    let _ = fs::remove_file(&aside);
    match written {
        Ok(()) => Ok(pending),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let said = read::<Answer>(&place);
            let said = match said.map(|answer| answer.approved) {
                Some(true) => "approved",
                Some(false) => "denied",
                None => "answered",
            };
            Err(Unanswered::Answered(lower, said))
        }
        Err(error) => Err(Unanswered::Failed(lower, error)),
    }
}

#[cfg(test)]
mod tests;
