//! `sinfo(1)`: partitions and nodes, which everybody may know.

use agent_sandbox_wire::message::End;

use crate::refusal::Refusal;
use crate::slurm::answers::{about, plain};
use crate::slurm::ask::settle;
use crate::slurm::parse;
use crate::slurm::request::Context;

/// Carries the request out.
///
/// # Errors
/// It is refused, or Slurm cannot be asked.
pub(in crate::slurm) async fn run(context: &mut Context<'_>) -> Result<End, Refusal> {
    let parsed = context.parsed().await?;
    if let Some(arguments) = about(&parsed) {
        return settle(plain(context, arguments, Vec::new()).await);
    }
    if let Some(word) = parsed.operands.first() {
        return Err(Refusal::mistake(format!(
            "unexpected argument `{}`",
            word.to_string_lossy().escape_debug()
        )));
    }
    let arguments = parse::canonical(&parsed.given);
    settle(plain(context, arguments, parsed.kept).await)
}
