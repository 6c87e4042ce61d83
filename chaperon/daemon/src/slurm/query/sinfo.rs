//! `sinfo(1)`: partitions and nodes, which everybody may know; but no names of users in its JSON.

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;
use agent_sandbox_wire::order::Queries;

use crate::refusal::Refusal;
use crate::slurm::answers::{about, plain, reply};
use crate::slurm::ask::{Stop, attended, look_up, settle};
use crate::slurm::parse;
use crate::slurm::query::json;
use crate::slurm::request::Context;

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
    if let Some(word) = parsed.operands.first() {
        return Err(Refusal::mistake(format!(
            "unexpected argument `{}`",
            word.to_string_lossy().escape_debug()
        ))
        .into());
    }
    let mut arguments = parse::canonical(&parsed.given);
    let session = context.session.clone();
    // `--json=list` says which forms there are.
    let json = parsed.has("json") && parsed.value("json").is_none_or(|form| form != "list");
    if !json || session.order.queries == Queries::Names {
        return plain(context, arguments, parsed.kept).await;
    }
    // What it says of itself would stand in the JSON.
    arguments.retain(|word| word != "--verbose");
    let work = async {
        let said = look_up(&session, Command::Sinfo, arguments, parsed.kept).await?;
        let output = match json::nameless(&said.output) {
            // Its own words say why there is no JSON.
            Err(_) if said.end != End::Code(0) => Vec::new(),
            output => output?,
        };
        Ok((output, said))
    };
    let (output, said) = attended(context.conn, work).await?;
    reply(context.conn, &output, &said.error, said.end).await
}
