//! The audit record of root's: what users' programs hand over, a line of JSON each, and the end of each session with the
//! number of its denials, which the tracer has counted itself.
//!
//! It is kept as trails are: `AUDIT/UID/audit@NODE-N.jsonl`, whole files go by age and size. A user can fill the room of
//! that user and no other's. A directory that cannot be had stops no trace: the tracer's state says so.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use agent_sandbox_events::audit::{self, Handed, HostKind, Verdict};
use agent_sandbox_events::record::Trail;
use serde::Serialize;

use super::clock::{Now, SECOND, round};
use super::store::{Store, StoreLimits};

/// The record has this part of the room that trails have.
const PART: u64 = 16;
/// A file holds at least so much, in bytes.
const LEAST_FILE: u64 = 64 * 1024;
/// Records of one user that are kept in a second, and how many at once.
const RATE: u64 = 50;
const BURST: u64 = 1000;
/// In the parts by which they are counted.
const ONE: u64 = SECOND;
/// A file to which nothing was added for so long, in nanoseconds, may go by its age.
const IDLE: u64 = 24 * 3600 * SECOND;
/// What users say of the time is believed of the last so many seconds: what they hand over can have waited for a tracer.
const BELIEVED: f64 = 3600.0;
/// The name of its files in the place of a session's.
const NAME: &str = "audit";

/// The file that is written for a user.
#[derive(Debug)]
struct Current {
    name: String,
    bytes: u64,
    /// When something was added last, in nanoseconds since the boot.
    last: u64,
}

/// What a user has handed over lately.
#[derive(Clone, Copy, Debug, Default)]
struct Handing {
    /// What is not given back yet, in parts of [`ONE`].
    spent: u64,
    /// Records that were not kept, since the last one that was.
    dropped: u64,
}

/// The record.
#[derive(Debug)]
pub(super) struct AuditRecord {
    store: Option<Store>,
    node: String,
    files: BTreeMap<u32, Current>,
    users: BTreeMap<u32, Handing>,
    /// What went wrong last.
    trouble: Option<String>,
    /// Up to when time was given back, in nanoseconds since the boot.
    passed: Option<u64>,
}

#[derive(Serialize)]
struct Line<'a> {
    uid: u32,
    host: &'a str,
    /// That of the session on this node; without one, no session of that id was traced for this user.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<u32>,
    time: f64,
    session: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    missed: u64,
    #[serde(skip_serializing_if = "is_zero")]
    dropped: u64,
    #[serde(flatten)]
    what: Told<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Told<'a> {
    Session {
        kind: &'static str,
        agent: &'a str,
        project: &'a str,
    },
    Slurm {
        pid: i32,
        command: &'a str,
        verdict: Verdict,
        reason: Option<&'a str>,
        jobs: &'a [u32],
        #[serde(skip_serializing_if = "is_zero")]
        more_jobs: u64,
        #[serde(skip_serializing_if = "is_zero")]
        suppressed: u64,
    },
    Host {
        kind: HostKind,
        name: &'a str,
        port: Option<u16>,
        verdict: Verdict,
        reason: &'a str,
    },
    End {
        kind: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        job: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        step: Option<&'a str>,
        denials: u64,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl AuditRecord {
    /// Opens its directory, which is made if it is not there.
    pub(super) fn open(directory: &Path, node: &str, limits: StoreLimits) -> Self {
        let limits = StoreLimits {
            file_bytes: (limits.file_bytes / PART).max(LEAST_FILE),
            user_bytes: limits.user_bytes / PART,
            total_bytes: limits.total_bytes / PART,
            days: limits.days,
        };
        let wanted = !directory.as_os_str().is_empty();
        let opened = wanted.then(|| Store::open(directory, node, limits));
        let (store, trouble) = match opened {
            None => (None, None),
            Some(Ok(store)) => (Some(store), None),
            Some(Err(error)) => {
                let why = format!("no audit record in `{}`: {error}", directory.display());
                (None, Some(why))
            }
        };
        Self {
            store,
            node: node.to_owned(),
            files: BTreeMap::new(),
            users: BTreeMap::new(),
            trouble,
            passed: None,
        }
    }

    /// What is wrong with it.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.clone()
    }

    /// Keeps what a user has handed over: the line, and whose it is.
    ///
    /// # Errors
    /// There is no record, or it has no room; the user hands over too much.
    pub(super) fn handed(
        &mut self,
        uid: u32,
        trace: Option<u32>,
        handed: &Handed,
        now: &Now,
    ) -> io::Result<(Trail, Vec<u8>)> {
        let user = self.users.entry(uid).or_default();
        if user.spent + ONE > BURST * ONE {
            user.dropped = user.dropped.saturating_add(1);
            return Err(io::Error::other("you hand over too much at once"));
        }
        user.spent += ONE;
        let dropped = user.dropped;
        let line = Line {
            uid,
            host: &self.node,
            trace,
            time: believed(handed.time, now),
            session: &handed.session,
            missed: handed.missed,
            dropped,
            what: Told::of(&handed.what),
        };
        let line = line.text()?;
        match self.append(uid, &line, now) {
            Ok(()) => {
                self.trouble = None;
                if let Some(user) = self.users.get_mut(&uid) {
                    user.dropped = 0;
                }
            }
            Err(error) => {
                if let Some(user) = self.users.get_mut(&uid) {
                    user.dropped = user.dropped.saturating_add(1);
                }
                return Err(error);
            }
        }
        let trail = Trail {
            node: self.node.clone(),
            uid,
            session: Some(handed.session.clone()),
            trace: trace.unwrap_or_default(),
            ..Trail::default()
        };
        Ok((trail, line))
    }

    /// The line about the end of a trail of a session, with its denials, if it could be kept.
    pub(super) fn ended(&mut self, trail: &Trail, denials: u64, now: &Now) -> Option<Vec<u8>> {
        let line = Line {
            uid: trail.uid,
            host: &self.node,
            trace: Some(trail.trace),
            time: round(now.wall),
            session: trail.session.as_deref()?,
            missed: 0,
            dropped: 0,
            what: Told::End {
                kind: "end",
                job: trail.job,
                step: trail.step.as_deref(),
                denials,
            },
        };
        let line = line.text().ok()?;
        self.append(trail.uid, &line, now).ok()?;
        Some(line)
    }

    fn append(&mut self, uid: u32, line: &[u8], now: &Now) -> io::Result<()> {
        let written = self.try_append(uid, line, now);
        if let (Err(error), Some(_)) = (&written, &self.store) {
            self.trouble = Some(format!(
                "user {uid}: the audit record cannot be written: {error}"
            ));
        }
        written
    }

    fn try_append(&mut self, uid: u32, line: &[u8], now: &Now) -> io::Result<()> {
        let Some(store) = &mut self.store else {
            return Err(io::Error::other("the tracer keeps no audit record here"));
        };
        let length = line.len() as u64;
        let full = |file: &Current| file.bytes + length > store.file_bytes();
        if self.files.get(&uid).is_some_and(full) {
            self.leave(uid);
        }
        let store = self.store.as_mut().ok_or(io::ErrorKind::NotFound)?;
        // Of a file that somebody has removed the next one takes the place.
        for again in [true, false] {
            if !self.files.contains_key(&uid) {
                let of = Trail {
                    node: self.node.clone(),
                    uid,
                    session: Some(NAME.to_owned()),
                    ..Trail::default()
                };
                let (name, _) = store.create(&of, 1, now)?;
                let file = Current {
                    name,
                    bytes: 0,
                    last: now.boot,
                };
                self.files.insert(uid, file);
            }
            let Some(file) = self.files.get_mut(&uid) else {
                break;
            };
            match store.append(uid, &file.name, file.bytes, line, now) {
                Ok(()) => {
                    file.bytes += length;
                    file.last = now.boot;
                    return Ok(());
                }
                Err(failed) if again && failed.why.kind() == io::ErrorKind::NotFound => {
                    let (name, bytes) = (file.name.clone(), file.bytes);
                    store.close(uid, &name, bytes);
                    self.files.remove(&uid);
                }
                Err(failed) => return Err(failed.why),
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    fn leave(&mut self, uid: u32) {
        if let (Some(file), Some(store)) = (self.files.remove(&uid), &mut self.store) {
            store.close(uid, &file.name, file.bytes);
        }
    }

    /// Time goes on: users may hand over more, and old files go.
    pub(super) fn pass(&mut self, now: &Now) {
        let before = self.passed.replace(now.boot).unwrap_or(now.boot);
        let back = now.boot.saturating_sub(before).saturating_mul(RATE);
        self.users.retain(|_, user| {
            user.spent = user.spent.saturating_sub(back);
            user.spent > 0 || user.dropped > 0
        });
        let idle = |file: &Current| now.boot.saturating_sub(file.last) > IDLE;
        let idle = self.files.iter().filter(|(_, file)| idle(file));
        let idle: Vec<u32> = idle.map(|(uid, _)| *uid).collect();
        for uid in idle {
            self.leave(uid);
        }
        if let Some(store) = &mut self.store
            && let Err(error) = store.age(now)
        {
            self.trouble = Some(format!("old audit records cannot be removed: {error}"));
        }
    }
}

impl Line<'_> {
    fn text(&self) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

impl<'a> Told<'a> {
    fn of(what: &'a audit::What) -> Self {
        match what {
            audit::What::Session { agent, project } => Self::Session {
                kind: "session",
                agent,
                project,
            },
            audit::What::Slurm {
                pid,
                command,
                verdict,
                reason,
                jobs,
                more_jobs,
                suppressed,
            } => Self::Slurm {
                pid: *pid,
                command,
                verdict: *verdict,
                reason: reason.as_deref(),
                jobs,
                more_jobs: *more_jobs,
                suppressed: *suppressed,
            },
            audit::What::Host {
                kind,
                name,
                port,
                verdict,
                reason,
            } => Self::Host {
                kind: *kind,
                name,
                port: *port,
                verdict: *verdict,
                reason,
            },
        }
    }
}

/// The time that a user says, in seconds, if it can be; else now.
#[expect(clippy::cast_precision_loss, reason = "exact for 285 years")]
fn believed(time: u64, now: &Now) -> f64 {
    let said = time as f64 / 1e6;
    if (now.wall - BELIEVED..=now.wall + 1.0).contains(&said) {
        said
    } else {
        round(now.wall)
    }
}

#[cfg(test)]
mod tests;
