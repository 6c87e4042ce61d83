//! `scancel(1)`: only ever with the numbers of jobs in the scope.

use std::ffi::OsString;
use std::rc::Rc;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;

use super::Context;
use super::answers::{about, plain, reply};
use crate::audit::Verdict;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::slurm::ids::{self, Selector};
use crate::slurm::parse;
use crate::slurm::query::{Stop, act, ask, attended, settle};
use crate::slurm::scope;

/// Options that pick jobs without numbers.
const FILTERS: [&str; 10] = [
    "account",
    "me",
    "name",
    "nodelist",
    "partition",
    "qos",
    "reservation",
    "state",
    "user",
    "wckey",
];

/// Carries the request out.
///
/// # Errors
/// It is refused, or Slurm cannot be asked.
pub(super) async fn run(context: &mut Context<'_>) -> Result<End, Refusal> {
    settle(carry_out(context).await)
}

async fn carry_out(context: &mut Context<'_>) -> Result<End, Stop> {
    let request = &context.request;
    let parsed = parse::parse(Command::Scancel, &request.arguments, &request.environment)?;
    if let Some(arguments) = about(&parsed) {
        return plain(context, arguments, Vec::new()).await;
    }
    if parsed.has("interactive") {
        return Err(Refusal::mistake(
            "--interactive would ask on the other side of the jail's wall",
        )
        .hint("name the jobs to be cancelled")
        .into());
    }
    let session = context.session.clone();
    let mut arguments = parse::canonical(&parsed.given);
    let mut asked = Vec::new();
    for operand in &parsed.operands {
        asked.extend(ids::parse_list(operand)?);
    }
    let filtered = FILTERS.iter().any(|name| parsed.has(name));
    if asked.is_empty() && !filtered {
        return Err(Refusal::mistake("No job identification provided").into());
    }
    let work = async {
        if asked.is_empty() {
            Ok((active(&session).await?, Vec::new()))
        } else {
            scope::divide(&session, &asked).await
        }
    };
    let (inside, outside) = attended(context.conn, work).await?;
    let mut complaints = String::new();
    for (selector, refusal) in &outside {
        complaints.push_str(&format!(
            "scancel: error: Kill job error on job id {selector}: {refusal}\n"
        ));
        context.entry.verdict = Verdict::Refused;
        context.entry.reason = Some(refusal.message.clone());
    }
    let mut end = if outside.is_empty() {
        End::SUCCESS
    } else {
        End::FAILURE
    };
    let (mut output, mut error) = (Vec::new(), complaints.into_bytes());
    if !inside.is_empty() {
        context.entry.jobs.extend(inside.iter().map(|one| one.job));
        arguments.push("--".into());
        arguments.extend(inside.iter().map(|one| OsString::from(one.to_string())));
        let kept = parsed.kept.clone();
        let work = act(&session, Command::Scancel, arguments, kept);
        let said = attended(context.conn, work).await?;
        output.extend(said.output);
        error.extend(said.error);
        if end == End::SUCCESS {
            end = said.end;
        }
    }
    reply(context.conn, &output, &error, end).await
}

/// The jobs of the scope that are not over.
pub(super) async fn active(session: &Rc<Session>) -> Result<Vec<Selector>, Refusal> {
    let view = scope::view(session).await?;
    let uid = session.order.uid;
    let arguments = [
        "--noheader",
        "--all",
        &format!("--user={uid}"),
        "--format=%F",
    ];
    let arguments = arguments.map(OsString::from).to_vec();
    let said = ask(session, Command::Squeue, arguments, Vec::new()).await?;
    if said.end != End::SUCCESS {
        let text = String::from_utf8_lossy(&said.error).trim().to_owned();
        return Err(Refusal::mistake(text));
    }
    let text = String::from_utf8_lossy(&said.output);
    let mut jobs: Vec<u32> = text
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .filter(|&job| view.shows(job, uid))
        .collect();
    jobs.sort_unstable();
    jobs.dedup();
    Ok(jobs.into_iter().map(Selector::job).collect())
}
