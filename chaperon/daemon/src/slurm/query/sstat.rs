//! `sstat(1)`: running steps of jobs in the scope.

use agent_sandbox_wire::message::End;

use crate::refusal::Refusal;
use crate::slurm::answers::{about, plain};
use crate::slurm::ask::{Stop, attended, settle};
use crate::slurm::ids;
use crate::slurm::parse;
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
    let mut jobs = Vec::new();
    let lists = parsed.all("jobs").filter_map(|given| given.value.as_ref());
    // Words that are no options are jobs as well.
    for list in lists.chain(&parsed.operands) {
        jobs.extend(ids::parse_list(list)?);
    }
    if jobs.is_empty() {
        return Err(Refusal::mistake("You didn't give me any jobs to stat.").into());
    }
    let session = context.session.clone();
    attended(context.conn, scope::check(&session, &jobs)).await?;
    let list: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    let mut arguments = parse::canonical(&parsed.given);
    arguments.push(format!("--jobs={}", list.join(",")).into());
    plain(context, arguments, parsed.kept).await
}
