//! Which part carries out which command.

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;

use super::ask::settle;
use super::control::scancel;
use super::query::{sacct, sacctmgr, sdiag, sinfo, sprio, squeue, sshare, sstat};
use super::request::Context;
use super::submit::{salloc, sbatch, srun};
use super::{parse, scontrol, sluid};
use crate::refusal::Refusal;

/// Carries a request out.
///
/// # Errors
/// It is refused, or cannot be carried out.
pub async fn run(context: &mut Context<'_>) -> Result<End, Refusal> {
    if let Err(stop) = sluid::replace(context).await {
        return settle(Err(stop));
    }
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
        _ => Err(parse::unsupported(command)),
    }
}
