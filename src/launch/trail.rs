//! `watch`, `report` and `trace`: this process becomes the program that shows trails. What draws on a terminal
//! is not in the launcher, which starts often and should be small.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use agent_sandbox_events::ask::PROGRAM;
use anyhow::{Context, Result};

use super::FIRST_TIMEOUT;
use crate::cli::TrailCall;
use crate::failure::Failure;
use crate::host::files::HostFiles;
use crate::host::{self, slurm};

/// Becomes the program; it returns only if that does not work.
///
/// # Errors
/// The program is not installed or cannot be started; the policy, which says where the tracer listens, cannot
/// be read.
pub fn show(call: TrailCall) -> Result<u8> {
    let TrailCall {
        options,
        mut ask,
        command,
    } = call;
    let program = program()?;
    if ask.socket.is_empty() {
        // The policy is in the way where it is broken, and then says so.
        let socket = super::prepare(&options, &[])?.policy.trace.socket.value;
        let text = socket.to_str().context("trace.socket is not UTF-8")?;
        text.clone_into(&mut ask.socket);
    }
    // Without a home there is no place to keep a summary, and all else works.
    ask.state = host::directories(None)
        .ok()
        .and_then(|(_, directories)| Some(directories.state.to_str()?.to_owned()));
    let first = serde_json::to_string(&ask).context("cannot write what is asked")?;
    let error = Command::new(&program).arg(first).args(command).exec();
    Err(error).with_context(|| format!("cannot start `{}`", program.display()))
}

fn program() -> Result<PathBuf> {
    let executable = host::executable()?;
    let files = HostFiles::new(FIRST_TIMEOUT);
    let found = slurm::program(PROGRAM, &executable, &files);
    Ok(found.ok_or_else(|| {
        Failure::new(format!("`{PROGRAM}` is not installed"))
            .hint("install agent-sandbox again with all of its programs")
    })?)
}
