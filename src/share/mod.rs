//! One jail for each job and node. All tasks of a step on a node (or the batch script alone) share a
//! *step*: a pid namespace with an init of ours. All steps of a job on a node share the job's jail:
//! its user, ipc, uts and network namespaces and its file systems.
//!
//! The first task of a step forks the step's *namespace server*, which has the jail built (or makes a step in
//! the one that is there), answers whoever arrives at the [`join_socket`], and ends the step when the
//! last member has left. Every task joins in the same way, the first as well.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it builds and joins jails"
)]

pub mod join;
pub mod join_socket;
pub mod namespaces;
pub mod peer;
pub mod pids;
pub mod protocol;
pub mod server;
pub mod sockets;
pub mod step;

use std::io::{PipeReader, pipe};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result, bail};

use crate::sys::process;
use join::Welcome;
use join_socket::Arrival;
pub use protocol::Wanted;
use protocol::{Hello, VERSION, Wants};
use server::JoinPoint;

/// A server that goes while somebody waits for it is followed by another; more often than this in
/// a row something is wrong.
const MOST_SERVERS: u32 = 5;

/// A member of a step.
pub struct Arrived {
    /// What the step's server said.
    pub welcome: Welcome,
    /// The connection to it that makes this process a member.
    pub connection: OwnedFd,
    /// What the filter of the step's network refuses, for the first member to say.
    pub refused: Option<PipeReader>,
}

/// Arrives at the step: finds its server, or becomes the first and starts it.
///
/// # Errors
/// There is no directory for join sockets, the server refuses, or servers end as soon as they are started.
pub fn arrive(wanted: &Wanted) -> Result<Arrived> {
    let environment = wanted.asked.job.environment.iter();
    let hello = Hello {
        version: VERSION.to_owned(),
        job: wanted.job.id,
        snapshot: wanted.snapshot.clone(),
        wants: Wants::Task {
            environment: environment
                .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
                .collect(),
        },
    };
    // A step is not over while anybody tries again.
    let (mut before, mut refused) = (None, None);
    for _ in 0..MOST_SERVERS {
        let uid = nix::unistd::getuid().as_raw();
        let connection = match join_socket::arrive(uid, &wanted.place, wanted.step)? {
            Arrival::Member(connection) => connection,
            Arrival::First {
                listener,
                connection,
                earlier,
                claim,
            } => {
                let (said, errors) = pipe().context("cannot make a pipe")?;
                let join_point = JoinPoint {
                    listener,
                    claim,
                    earlier,
                    parent: process::descriptor_of(nix::unistd::getppid()).ok(),
                    errors: errors.into(),
                };
                server::start(join_point, wanted)
                    .context("cannot start the namespace server of the jail")?;
                refused = Some(said);
                connection
            }
        };
        if let Some(welcome) = join::ask(&connection, &hello)? {
            return Ok(Arrived {
                welcome,
                connection,
                refused,
            });
        }
        before = Some(connection);
    }
    drop(before);
    bail!("the namespace server of this job's jail on this node ends as soon as it is started")
}
