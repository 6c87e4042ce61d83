//! The answer of `agent-sandbox log`.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use crate::audit::{self, Message, Request};
use crate::failure::{Failure, one_line};

/// What was asked of Slurm, and what it said about jobs. `session` narrows both to one session.
pub struct Record {
    requests: Vec<Request>,
    messages: Vec<Message>,
}

impl Record {
    /// Reads the records.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read(state: &Path, session: Option<&str>) -> Result<Self> {
        let mut requests = audit::requests(state)?;
        let mut messages = audit::messages(state)?;
        if let Some(session) = session {
            requests.retain(|request| request.session == session);
            let jobs: Vec<String> = requests
                .iter()
                .flat_map(|request| request.jobs.iter().map(u32::to_string))
                .collect();
            messages.retain(|message| {
                message.is_about(session) || jobs.iter().any(|job| message.is_about(job))
            });
        }
        Ok(Self { requests, messages })
    }

    /// For a program.
    ///
    /// # Errors
    /// None in practice; the serialiser's.
    pub fn json(&self) -> Result<Value> {
        Ok(json!({ "requests": self.requests, "messages": self.messages }))
    }

    /// For a person.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if self.requests.is_empty() {
            text.push_str("nothing was asked of Slurm\n");
        } else {
            text.push_str(&format!(
                "{:<20}  {:<8}  {:<12}  {:<8}  {:<7}  {:<10}  REASON\n",
                "TIME", "SESSION", "NODE", "COMMAND", "VERDICT", "JOB"
            ));
        }
        for request in &self.requests {
            if request.suppressed > 0 {
                text.push_str(&format!(
                    "{:<20}  {:<8}  and {} requests that were refused or failed\n",
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
                "{:<20}  {:<8}  {:<12}  {:<8}  {:<7}  {:<10}  {}",
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
        for message in &self.messages {
            let file = message.file.display().to_string();
            text.push_str(&format!("  {}\n", one_line(&file)));
        }
        text
    }

    /// What Slurm said about one job.
    ///
    /// # Errors
    /// It said nothing, or that cannot be read.
    pub fn of_job(state: &Path, job: &str) -> Result<String> {
        let mut all = String::new();
        for message in audit::messages(state)? {
            if message.is_about(job) {
                all.push_str(&message.text()?);
            }
        }
        if all.is_empty() {
            return Err(Failure::new(format!("Slurm said nothing about job {job}"))
                .hint("what the job itself printed is in its own output file, as for every job")
                .into());
        }
        Ok(all)
    }
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
            requests: vec![first, last],
            messages: Vec::new(),
        };
        let text = record.text();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert_eq!(lines[1], "and 980 requests that were refused or failed");
        assert!(lines[2].ends_with("1,2,7 more"), "{text}");
        assert_eq!(lines[3], lines[1]);
    }
}
