//! Lines of records in the order of their times: what `agent-sandbox log` answers from. There may be a hundred thousand of which a
//! reader wants the first ten, so a line is read whole only when it is its turn.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Result;
use bstr::ByteSlice;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::across::{self, Found, Names, Place, Tail};
use super::agents;
use super::print::Output;
use crate::audit::line::{About, Line, glance};
use crate::audit::shares::Newest;
use crate::audit::{Message, Request, files, messages};
use crate::cli::Wanted;

/// Which lines.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    /// What they are about.
    pub(super) about: About,
    /// Of which session; none: of all.
    pub(super) session: Option<&'a str>,
}

/// What was found.
pub(super) struct Lines<'a> {
    question: Question<'a>,
    wanted: &'a Wanted,
    found: Vec<Found>,
    names: Names,
    /// What is shown, in order: its time in microseconds since 1970, its place and where it stands there.
    order: Vec<(i64, usize, usize, usize)>,
    /// Which sessions are wanted, if not all.
    sessions: Option<HashMap<(u32, String), bool>>,
    /// Whether several users may be meant.
    pub(super) several: bool,
}

/// What one user's files say.
#[derive(Debug, Serialize)]
pub(super) struct Of<T> {
    /// Whose, where they may be several users'.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<String>,
    /// Whether root keeps it, so that it says whose it is without the user's help.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) root: bool,
    /// The session or record.
    #[serde(flatten)]
    pub(super) what: T,
}

impl<T> Of<T> {
    /// What the caller's own files say.
    pub(super) fn own(what: T) -> Self {
        Self {
            user: None,
            root: false,
            what,
        }
    }
}

impl<'a> Lines<'a> {
    /// # Errors
    /// As [`across::read`]; there is no such user.
    pub(super) fn read(question: Question<'a>, wanted: &'a Wanted) -> Result<Self> {
        let names = Names::new(wanted)?;
        let (found, several) = across::read(wanted, |place| picked(place, question))?;
        let mut lines = Self {
            question,
            wanted,
            names,
            order: Vec::new(),
            sessions: None,
            several,
            found,
        };
        lines.sessions = lines.wanted_sessions()?;
        lines.sort();
        Ok(lines)
    }

    /// How many lines there are of what another question is about: in the users' records, which have them all, if those are read.
    pub(super) fn others(&self) -> u64 {
        let of_users = self.found.iter().filter(|one| one.user.is_some());
        let count = |one: &Found| one.tail.others;
        match of_users.clone().next() {
            Some(_) => of_users.map(count).sum(),
            None => self.found.iter().map(count).sum(),
        }
    }

    /// Lines that are no records at all but what was added of a user's: each with the user's name.
    pub(super) fn added<T: DeserializeOwned>(&mut self) -> Vec<(String, T)> {
        let mut all = Vec::new();
        for one in &self.found {
            let Some((_, name)) = &one.user else { continue };
            // They stand first.
            let lines = one.text.split(|&byte| byte == b'\n');
            let lines = lines.take_while(|line| glance(line).is_none());
            let things = lines.filter_map(|line| serde_json::from_slice(line).ok());
            all.extend(things.map(|thing| (name.clone(), thing)));
        }
        all
    }

    fn sort(&mut self) {
        for (place, one) in self.found.iter().enumerate() {
            let mut at = 0;
            for line in one.text.split_str(b"\n") {
                if let Some((about, time)) = glance(line)
                    && about == self.question.about
                {
                    // As root keeps times: a part of a microsecond puts nothing before root's line.
                    let time = (time * 1e6).round() as i64;
                    self.order.push((time, place, at, at + line.len()));
                }
                at += line.len() + 1;
            }
        }
        // Of equal ones that of the first place stands first: root's.
        self.order.sort_unstable();
    }

    /// Sessions of the agent and in the project that are wanted.
    fn wanted_sessions(&self) -> Result<Option<HashMap<(u32, String), bool>>> {
        if self.wanted.agent.is_none() && self.wanted.project.is_none() {
            return Ok(None);
        }
        let agents = agents::by_command()?;
        let project = across::Project::new(self.wanted);
        let mut all = HashMap::new();
        for one in &self.found {
            for line in one.text.split_str(b"\n") {
                let Some((About::Session, _)) = glance(line) else {
                    continue;
                };
                let Ok(line) = serde_json::from_slice::<Line<'_>>(line) else {
                    continue;
                };
                if let Some(uid) = self.names.whose(one, line.uid) {
                    let fits = across::is_agent(self.wanted, &agents, &line.agent)
                        && project.is(Path::new(&*line.project));
                    all.insert((uid, line.session.into_owned()), fits);
                }
            }
        }
        Ok(Some(all))
    }

    /// All of them as values, for programs.
    ///
    /// # Errors
    /// Those of [`Self::each`].
    pub(super) fn all<T: DeserializeOwned>(&mut self) -> Result<Vec<Of<T>>> {
        let mut all = Vec::new();
        self.each(|one| {
            all.push(one);
            Ok(true)
        })?;
        Ok(all)
    }

    /// Prints them as a table, or that there are `none`.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(super) fn table<T: DeserializeOwned>(
        &mut self,
        output: &mut Output,
        head: fn(bool) -> String,
        row: fn(&Of<T>) -> String,
        none: &str,
    ) -> Result<()> {
        let several = self.several;
        let mut any = false;
        self.each(|one| {
            if !std::mem::replace(&mut any, true) {
                output.print(&head(several))?;
            }
            output.print(&row(&one))
        })?;
        if !any {
            output.print(none)?;
        }
        Ok(())
    }

    /// Each line in its turn, as long as `take` wants more. A user's line that root has is root's, and one that root has twice is
    /// taken once.
    ///
    /// # Errors
    /// Those of `take`.
    fn each<T: DeserializeOwned>(
        &mut self,
        mut take: impl FnMut(Of<T>) -> Result<bool>,
    ) -> Result<()> {
        let Self {
            question,
            found,
            names,
            order,
            sessions,
            several,
            ..
        } = self;
        let mut same: Vec<(u32, String)> = Vec::new();
        let mut roots: Vec<&[u8]> = Vec::new();
        let mut last = None;
        for (time, place, from, to) in order {
            let Some(one) = found.get(*place) else {
                continue;
            };
            let text = one.text.get(*from..*to).unwrap_or_default();
            let (Ok(line), Ok(what)) = (
                serde_json::from_slice::<Line<'_>>(text),
                serde_json::from_slice::<T>(text),
            ) else {
                continue;
            };
            let Some(uid) = names.whose(one, line.uid) else {
                continue;
            };
            if question
                .session
                .is_some_and(|session| session != line.session)
            {
                continue;
            }
            if let Some(sessions) = sessions {
                let key = (uid, line.session.clone().into_owned());
                if !sessions.get(&key).copied().unwrap_or_default() {
                    continue;
                }
            }
            if last.replace(*time) != Some(*time) {
                same.clear();
                roots.clear();
            }
            let key = (
                uid,
                format!(
                    "{}\0{}\0{}\0{}\0{}\0{:?}",
                    line.session, line.pid, line.command, line.verdict, line.name, line.port
                ),
            );
            // What root keeps is left out for nothing but the very same, whatever else a user says of that moment.
            let is_again = match one.user {
                None => roots.contains(&text),
                Some(_) => same.contains(&key),
            };
            if is_again {
                continue;
            }
            // More at one moment are made up.
            if roots.len() < 64 && one.user.is_none() {
                roots.push(text);
            }
            if same.len() < 64 {
                same.push(key);
            }
            let user = match &one.user {
                Some((_, name)) => name.clone(),
                None => names.name(uid),
            };
            let more = take(Of {
                user: several.then_some(user),
                root: one.user.is_none(),
                what,
            })?;
            if !more {
                break;
            }
        }
        Ok(())
    }
}

/// In the process that reads a place: what may be wanted, of each user the newest that has room.
fn picked(place: &Place<'_>, question: Question<'_>) -> Result<Vec<u8>> {
    let since = place.since.unwrap_or(f64::MIN);
    let filtered = place.wanted.agent.is_some() || place.wanted.project.is_some();
    let mut tail = Tail::default();
    let mut newest = Newest::new(place.room, place.whose);
    let session = question
        .session
        .map(|session| format!("\"session\":\"{session}\""));
    let session = session.as_deref().map(bstr::Finder::new);
    tail.unread = files::lines(&place.records, |line| {
        let line = line.as_bytes();
        let Some((about, time)) = glance(line) else {
            return false;
        };
        if place.whose.user(line).is_none() {
            return true;
        }
        let session = session.as_ref();
        let ours = session.is_none_or(|session| session.find(line).is_some());
        if about == About::Session && filtered {
            newest.push(line);
        } else if ours && time >= since {
            if about == question.about {
                newest.push(line);
            } else if about == About::Host {
                tail.others += 1;
            }
        }
        true
    })?;
    if filtered {
        for (begun, host) in across::running(place)? {
            newest.push(&serde_json::to_vec(&begun.line(&host))?);
        }
    }
    let (mut text, left_out) = newest.end();
    tail.left_out = left_out;
    if let (About::Slurm, Some((_, state))) = (question.about, &place.state) {
        let jobs: Vec<String> = match question.session {
            Some(_) => text.split_str(b"\n").flat_map(jobs_of).collect(),
            None => Vec::new(),
        };
        let about = |message: &Message| {
            let of_session = |session| {
                message.is_about(session) || jobs.iter().any(|job: &String| message.is_about(job))
            };
            question.session.is_none_or(of_session)
        };
        let mut first = Vec::new();
        for message in messages(state)?.iter().filter(|message| about(message)) {
            serde_json::to_writer(&mut first, message)?;
            first.push(b'\n');
        }
        text.splice(..0, first);
    }
    tail.behind(text)
}

fn jobs_of(line: &[u8]) -> Vec<String> {
    let request = serde_json::from_slice::<Request>(line);
    request.map_or(Vec::new(), |request| {
        request.jobs.iter().map(u32::to_string).collect()
    })
}
