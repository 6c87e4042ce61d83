//! The launcher's side of the session's ssh agent: what it is told.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use agent_sandbox_wire::ssh::SshOrder;
use anyhow::{Context, Result};

use super::chaperon::{self, LOG};
use super::on_call::OnCall;
use super::prepared::Prepared;
use crate::host::FILTER;
use crate::plan::Plan;
use crate::sys::fds;

/// What a session's launch needs of it; `None` if the plan has none. If it `tells`, it says on standard error what it refuses, once
/// for each host and reason.
///
/// # Errors
/// Its program is not installed; the order cannot be written.
pub(super) fn on_call(prepared: &Prepared, plan: &Plan, tells: bool) -> Result<Option<OnCall>> {
    let Some(agent) = &plan.ssh else {
        return Ok(None);
    };
    let state = &prepared.host.state_directory;
    let order = SshOrder {
        session: plan.session.clone(),
        state: state.as_os_str().as_bytes().to_vec(),
        tracer: plan.trace.keeps_audit(),
        users: agent.users.as_os_str().as_bytes().to_vec(),
        rules: agent.rules.clone(),
        tells,
    };
    let text =
        agent_sandbox_wire::order::encode(&order).context("cannot write the ssh agent's order")?;
    let order = fds::memory_file(c"agent-sandbox-ssh", &text)?;
    let errors = io::stderr().as_fd().try_clone_to_owned()?;
    let program = chaperon::program(FILTER)?;
    OnCall::new(program, "ssh-agent", vec![order, errors], state.join(LOG)).map(Some)
}
