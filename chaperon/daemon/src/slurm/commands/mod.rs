//! One file a command: a parsed request is decided upon and carried out.

mod answers;
mod refused;
mod sacct;
mod sacctmgr;
mod salloc;
mod sbatch;
mod scancel;
mod scontrol;
mod sdiag;
mod sinfo;
mod sprio;
mod squeue;
mod srun;
mod sshare;
mod sstat;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;

use super::request::Context;
use crate::refusal::Refusal;

/// Carries a request out.
///
/// # Errors
/// It is refused, or cannot be carried out.
pub async fn run(context: &mut Context<'_>) -> Result<End, Refusal> {
    let command = context.request.command;
    match command {
        Command::Sbatch => sbatch::run(context).await,
        Command::Srun => srun::run(context).await,
        Command::Salloc => salloc::run(context).await,
        Command::Scancel => scancel::run(context).await,
        Command::Scontrol => scontrol::run(context).await,
        Command::Sacct => sacct::run(context).await,
        Command::Sacctmgr => sacctmgr::run(context).await,
        Command::Sdiag => sdiag::run(context).await,
        Command::Sinfo => sinfo::run(context).await,
        Command::Sprio => sprio::run(context).await,
        Command::Sshare => sshare::run(context).await,
        Command::Sstat => sstat::run(context).await,
        Command::Squeue => squeue::run(context).await,
        _ => Err(refused::reason(command)),
    }
}
