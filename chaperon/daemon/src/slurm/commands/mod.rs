//! One file a command: a parsed request is decided upon and carried out.

mod answers;
mod refused;
mod sacct;
mod sacctmgr;
mod salloc;
mod sattach;
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

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;

use crate::audit::Entry;
use crate::conn::Conn;
use crate::refusal::Refusal;
use crate::session::{Session, Variables};

/// What the shim was called with. All of it is hostile.
#[derive(Debug)]
pub struct Request {
    /// The command.
    pub command: Command,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The current directory inside the jail.
    pub cwd: PathBuf,
    /// The environment inside the jail.
    pub environment: Variables,
    /// `umask(2)`
    pub umask: u32,
}

/// What a command has to work with.
pub struct Context<'a> {
    /// The session.
    pub session: Rc<Session>,
    /// The shim.
    pub conn: &'a mut Conn,
    /// The request.
    pub request: Request,
    /// The shim's standard streams, until they are handed on.
    pub streams: Option<[OwnedFd; 3]>,
    /// What will be recorded.
    pub entry: &'a mut Entry,
}

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
        Command::Sattach => sattach::run(context).await,
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
