//! The answer of `agent-sandbox log`.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::print::{print, print_json};
use super::sessions::Of;
use crate::audit::{self, Message, Request};
use crate::cli::Options;
use crate::failure::{Failure, one_line};
use crate::host;
use crate::users::{self, Known, User};

/// What was asked of Slurm, and what it said about jobs. `session` narrows both to one session.
struct Record {
    requests: Vec<Of<Request>>,
    messages: Vec<Of<Message>>,
    /// How many hosts are recorded, which have a list of their own.
    connections: usize,
    /// Whether they may be several users'.
    several: bool,
}

/// One or the other, as it comes from the process that reads a user's files.
#[derive(Deserialize, Serialize)]
enum LogRecord {
    Connections(usize),
    Message(Message),
    Request(Request),
}

/// Prints it: the caller's own, for root those of all users or of one.
pub(super) fn show(
    options: &Options,
    session: Option<&str>,
    job: Option<&str>,
    user: Option<&str>,
) -> Result<()> {
    let users = users::meant(user, Known::Ever)?;
    if let Some(job) = job {
        return print(&match users {
            None => of_job(&host::directories(None)?.1.state, job)?,
            Some(users) => of_users_job(users, job)?,
        });
    }
    let record = match users {
        None => Record::read(&host::directories(None)?.1.state, session)?,
        Some(users) => Record::of_users(users, session)?,
    };
    if options.json {
        return print_json(&record.json()?);
    }
    print(&record.text())
}

impl Record {
    fn read(state: &Path, session: Option<&str>) -> Result<Self> {
        let mut requests = audit::requests(state)?;
        let mut messages = audit::messages(state)?;
        let mut connections = audit::connections(state)?;
        if let Some(session) = session {
            requests.retain(|request| request.session == session);
            connections.retain(|one| one.session == session);
            let jobs: Vec<String> = requests
                .iter()
                .flat_map(|request| request.jobs.iter().map(u32::to_string))
                .collect();
            messages.retain(|message| {
                message.is_about(session) || jobs.iter().any(|job| message.is_about(job))
            });
        }
        Ok(Self {
            requests: requests.into_iter().map(Of::own).collect(),
            messages: messages.into_iter().map(Of::own).collect(),
            connections: connections.len(),
            several: false,
        })
    }

    fn of_users(users: Vec<User>, session: Option<&str>) -> Result<Self> {
        let found = users::read(users, |user| {
            let record = Self::read(&user.state(), session)?;
            // What stands last has room first.
            let messages = record
                .messages
                .into_iter()
                .map(|of| LogRecord::Message(of.what));
            let requests = record
                .requests
                .into_iter()
                .map(|of| LogRecord::Request(of.what));
            let connections = [LogRecord::Connections(record.connections)];
            Ok(connections
                .into_iter()
                .chain(messages)
                .chain(requests)
                .collect())
        })?;
        let (mut requests, mut messages, mut connections) = (Vec::new(), Vec::new(), 0);
        for (user, things) in found {
            for thing in things {
                let user = Some(user.name.clone());
                match thing {
                    LogRecord::Connections(number) => connections += number,
                    LogRecord::Request(what) => requests.push(Of { user, what }),
                    LogRecord::Message(what) => messages.push(Of { user, what }),
                }
            }
        }
        requests.sort_by(|a, b| a.what.time.total_cmp(&b.what.time));
        Ok(Self {
            requests,
            messages,
            connections,
            several: true,
        })
    }

    /// For a program.
    ///
    /// # Errors
    /// None in practice; the serialiser's.
    fn json(&self) -> Result<Value> {
        Ok(json!({ "requests": self.requests, "messages": self.messages }))
    }

    /// For a person.
    fn text(&self) -> String {
        let mut text = String::new();
        let whose = |user: Option<&str>| match self.several {
            true => format!("{:<16}  ", user.unwrap_or_default()),
            false => String::new(),
        };
        if self.requests.is_empty() {
            text.push_str("nothing was asked of Slurm\n");
        } else {
            text.push_str(&format!(
                "{:<20}  {}{:<8}  {:<12}  {:<8}  {:<7}  {:<10}  REASON\n",
                "TIME",
                whose(Some("USER")),
                "SESSION",
                "NODE",
                "COMMAND",
                "VERDICT",
                "JOB"
            ));
        }
        for Of {
            user,
            what: request,
        } in &self.requests
        {
            let user = whose(user.as_deref());
            if request.suppressed > 0 {
                text.push_str(&format!(
                    "{:<20}  {user}{:<8}  and {} requests that were refused or failed\n",
                    "", "", request.suppressed
                ));
            }
            // What a chaperon leaves at its end has no request behind it.
            if request.command.is_empty() && request.suppressed > 0 {
                continue;
            }
            let mut jobs: Vec<String> = request.jobs.iter().map(u32::to_string).collect();
            if request.more_jobs > 0 {
                jobs.push(format!("{} more", request.more_jobs));
            }
            let line = format!(
                "{:<20}  {user}{:<8}  {:<12}  {:<8}  {:<7}  {:<10}  {}",
                audit::rfc3339(request.time),
                request.session,
                request.host,
                request.command,
                request.verdict,
                jobs.join(","),
                request.reason.as_deref().unwrap_or_default()
            );
            text.push_str(&one_line(line.trim_end()));
            text.push('\n');
        }
        if !self.messages.is_empty() {
            text.push_str("\nwhat Slurm said about jobs (`agent-sandbox log JOBID` shows it)\n");
        }
        for Of {
            user,
            what: message,
        } in &self.messages
        {
            let file = message.file.display().to_string();
            text.push_str(&format!(
                "  {}{}\n",
                whose(user.as_deref()),
                one_line(&file)
            ));
        }
        if self.connections > 0 {
            text.push_str(&format!(
                "\n{} hosts were asked for in filtered networks, or logins to hosts by ssh (`agent-sandbox log --network` shows them)\n",
                self.connections
            ));
        }
        text
    }
}

/// What Slurm said about one job.
fn of_job(state: &Path, job: &str) -> Result<String> {
    said(said_in(state, job)?, job)
}

/// The same from files of users, of whom any may have one of that name: each line says whose it is.
fn of_users_job(users: Vec<User>, job: &str) -> Result<String> {
    let found = users::read(users, |user| {
        let text = said_in(&user.state(), job)?;
        Ok(text.lines().map(str::to_owned).collect())
    })?;
    let mut all = String::new();
    for (user, lines) in found {
        for line in lines {
            let line: String = line;
            all.push_str(&format!(
                "{}\n",
                one_line(&format!("{}: {line}", user.name))
            ));
        }
    }
    said(all, job)
}

fn said_in(state: &Path, job: &str) -> Result<String> {
    let mut all = String::new();
    for message in audit::messages(state)? {
        if message.is_about(job) {
            all.push_str(&message.text()?);
        }
    }
    Ok(all)
}

fn said(text: String, job: &str) -> Result<String> {
    if text.is_empty() {
        return Err(Failure::new(format!("Slurm said nothing about job {job}"))
            .hint("what the job itself printed is in its own output file, as for every job")
            .into());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_a_record_are_told_of() {
        let line = r#"{"time":1.5,"session":"s1","host":"n","command":"scancel",
            "verdict":"failed","jobs":[1,2],"more_jobs":7,"suppressed":980}"#;
        let mut last: Request = serde_json::from_str(line).expect("a record");
        let first = last.clone();
        last.command = String::new();
        let record = Record {
            requests: [first, last].map(Of::own).into(),
            messages: Vec::new(),
            connections: 0,
            several: false,
        };
        let text = record.text();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!(lines[1], "and 980 requests that were refused or failed");
        assert!(lines[2].ends_with("1,2,7 more"), "{text}");
        assert_eq!(lines[3], lines[1]);
    }
}
