//! The answer of `agent-sandbox log`.

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use super::lines::{Lines, Of, Question};
use super::print::{Output, print, print_json};
use crate::audit::line::About;
use crate::audit::{self, Message, Request};
use crate::cli::{Options, Wanted};
use crate::failure::{Failure, one_line};
use crate::host;
use crate::users::{self, Known, User};

/// Prints it: the caller's own, for root those of all users or of one.
pub(super) fn show(
    options: &Options,
    session: Option<&str>,
    job: Option<&str>,
    wanted: &Wanted,
) -> Result<()> {
    if let Some(job) = job {
        let users = users::meant(wanted.user.as_deref(), Known::Ever)?;
        return print(&match users {
            None => of_job(&host::directories(None)?.1.state, job)?,
            Some(users) => of_users_job(users, job)?,
        });
    }
    let question = Question {
        about: About::Slurm,
        session,
    };
    let mut lines = Lines::read(question, wanted)?;
    let several = lines.several;
    let messages: Vec<(String, Message)> = lines.added();
    let messages = messages.into_iter().map(|(user, what)| Of {
        user: several.then_some(user),
        root: false,
        what,
    });
    let messages: Vec<Of<Message>> = messages.collect();
    if options.json {
        let requests: Vec<Of<Request>> = lines.all()?;
        return print_json(&json!({ "requests": requests, "messages": messages }));
    }
    let others = lines.others();
    let mut output = Output::new();
    lines.table(&mut output, head, row, "nothing was asked of Slurm\n")?;
    output.print(&rest(&messages, others, several))?;
    output.finish()
}

fn whose(user: Option<&str>, several: bool) -> String {
    match several {
        true => format!("{:<16}  ", user.unwrap_or_default()),
        false => String::new(),
    }
}

fn head(several: bool) -> String {
    format!(
        "{:<20}  {}{:<8}  {:<12}  {:<8}  {:<7}  {:<10}  REASON\n",
        "TIME",
        whose(Some("USER"), several),
        "SESSION",
        "NODE",
        "COMMAND",
        "VERDICT",
        "JOB"
    )
}

/// A request, for a person.
fn row(one: &Of<Request>) -> String {
    let mut text = String::new();
    let request = &one.what;
    let user = whose(one.user.as_deref(), one.user.is_some());
    if request.suppressed > 0 {
        let line = format!(
            "{:<20}  {user}{:<8}  and {} requests that were refused or failed",
            "", "", request.suppressed
        );
        text.push_str(&one_line(&line));
        text.push('\n');
    }
    // What a chaperon leaves at its end has no request behind it.
    if request.command.is_empty() && request.suppressed > 0 {
        return text;
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
        request
            .reason
            .as_deref()
            .or(request.approval.as_deref())
            .unwrap_or_default()
    );
    text.push_str(&one_line(line.trim_end()));
    text.push('\n');
    text
}

/// What stands below the requests.
fn rest(messages: &[Of<Message>], connections: u64, several: bool) -> String {
    let mut text = String::new();
    if !messages.is_empty() {
        text.push_str("\nwhat Slurm said about jobs (`agent-sandbox log JOBID` shows it)\n");
    }
    for Of { user, what, .. } in messages {
        let file = what.file.display().to_string();
        let line = format!("  {}{file}", whose(user.as_deref(), several));
        text.push_str(&one_line(&line));
        text.push('\n');
    }
    if connections > 0 {
        text.push_str(&format!(
            "\n{connections} hosts were asked for in filtered networks, or logins to hosts by ssh (`agent-sandbox log --network` shows them)\n"
        ));
    }
    text
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
        let text = row(&Of::own(first)) + &row(&Of::own(last));
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[0], "and 980 requests that were refused or failed");
        assert!(lines[1].ends_with("1,2,7 more"), "{text}");
        assert_eq!(lines[2], lines[0]);
    }
}
