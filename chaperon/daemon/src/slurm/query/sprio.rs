//! `sprio(1)`: why a job waits; of jobs in the scope, or of all where names may be shown.

use std::ffi::OsString;

use agent_sandbox_wire::message::End;
use agent_sandbox_wire::order::Queries;

use crate::refusal::Refusal;
use crate::slurm::answers::{about, plain, reply};
use crate::slurm::ask::{Stop, attended, settle};
use crate::slurm::ids;
use crate::slurm::parse::{self, Parsed};
use crate::slurm::request::Context;
use crate::slurm::scope;

/// Carries the request out.
///
/// # Errors
/// It is refused, or Slurm cannot be asked.
pub(in crate::slurm) async fn run(context: &mut Context<'_>) -> Result<End, Refusal> {
    settle(carry_out(context).await)
}

async fn carry_out(context: &mut Context<'_>) -> Result<End, Stop> {
    let parsed = context.parsed().await?;
    if let Some(arguments) = about(&parsed) {
        return plain(context, arguments, Vec::new()).await;
    }
    let mut arguments = options(&parsed)?;
    // The weights are the cluster's, not a job's.
    if parsed.has("weights") {
        return plain(context, arguments, parsed.kept).await;
    }
    let mut jobs = Vec::new();
    let lists = parsed.all("jobs").filter_map(|given| given.value.as_ref());
    for list in lists.chain(&parsed.operands) {
        jobs.extend(ids::parse_list(list)?);
    }
    let session = context.session.clone();
    let others = session.order.queries == Queries::Names;
    if others {
        if let Some(user) = parsed.value("user") {
            let mut word = OsString::from("--user=");
            word.push(user);
            arguments.push(word);
        }
    } else {
        let work = async {
            if jobs.is_empty() {
                return scope::active(&session).await;
            }
            scope::divide(&session, &jobs)
                .await
                .map(|(inside, _)| inside)
        };
        jobs = attended(context.conn, work).await?;
        if jobs.is_empty() {
            let text = b"Unable to find jobs matching user/id(s) specified\n";
            return reply(context.conn, text, b"", End::SUCCESS).await;
        }
    }
    if !jobs.is_empty() {
        let list: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        arguments.push(format!("--jobs={}", list.join(",")).into());
    }
    plain(context, arguments, parsed.kept).await
}

fn options(parsed: &Parsed) -> Result<Vec<OsString>, Refusal> {
    let mut arguments = parse::canonical(&parsed.given);
    if parsed.has("long") {
        arguments.push("--long".into());
    }
    if let Some(format) = parsed.value("format") {
        arguments.push(format!("--format={}", columns(&format.to_string_lossy())?).into());
    }
    Ok(arguments)
}

/// `%[.][width]LETTER`, with text between, written anew.
fn columns(format: &str) -> Result<String, Refusal> {
    let mut parts = format.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts.filter(|part| !part.is_empty()) {
        let size = part.trim_start_matches('.');
        let letter = size.trim_start_matches(|c: char| c.is_ascii_digit());
        let wide = size.len() - letter.len() > 4 || part.len() - size.len() > 1;
        if wide || !letter.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(Refusal::mistake(format!(
                "Invalid job format specification: {}",
                part.escape_debug()
            )));
        }
        text.push('%');
        text.push_str(part);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_checked() {
        assert_eq!(columns("%.15i %9r|%%Y").unwrap(), "%.15i %9r|%Y");
        assert!(columns("%..1i").is_err());
        assert!(columns("%99999i").is_err());
        assert!(columns("%5").is_err());
    }
}
