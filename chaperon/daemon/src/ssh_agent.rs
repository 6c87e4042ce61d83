//! The ssh agent of a session: a process of its own, outside the jail, that is started when somebody inside connects to its socket
//! for the first time, and ends with the launcher.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use agent_sandbox_ssh::{Agent, Event, Verdict};
use agent_sandbox_wire::ssh::SshOrder;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::audit::{self, Audit, Connection};
use crate::network::read_order;
use crate::terminal::say;
use crate::{logging, sys};

/// Different refusals that are recorded, each once: what is inside chooses them, and must not push out what was signed.
const MOST_REFUSED: usize = 1000;
/// Refusals that the session is told of.
const MOST_TOLD: usize = 20;
/// What stands in the place of a host where none that is named is meant.
const NO_HOST: &str = "(ssh)";

/// Serves until the launcher is gone. The arguments are numbers of inherited descriptors: the order, the session's standard error,
/// the listening socket, and one that ends with the launcher.
///
/// # Errors
/// A descriptor is not what it should be.
pub fn serve(order: i32, errors: i32, listen: i32, life: i32) -> io::Result<()> {
    let [order, errors, listen, life] = [order, errors, listen, life].map(sys::inherited);
    let (order, errors, listener) = (order?, errors?, UnixListener::from(listen?));
    let life = life?;
    sys::harden()?;
    let order: SshOrder = read_order(order)?;
    let state = PathBuf::from(OsString::from_vec(order.state));
    let audit = Audit::new(state.join("audit"), order.session).handed_to(order.tracer.as_deref());
    logging::start(audit.layer());
    let record = Mutex::new(Record {
        audit,
        errors: order.tells.then_some(errors),
        refused: HashSet::new(),
        told: HashSet::new(),
    });
    let sink = Box::new(move |event| {
        let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
        record.note(&event);
    });
    let users = PathBuf::from(OsString::from_vec(order.users));
    let agent = Arc::new(Agent::new(order.rules, users, sink));
    std::thread::Builder::new().spawn(move || agent.serve(&listener))?;
    // Nothing comes: it is closed when the launcher ends, or shut down by it.
    let mut gone = [PollFd::new(life.as_fd(), PollFlags::POLLIN)];
    while let Err(Errno::EINTR) = poll(&mut gone, PollTimeout::NONE) {}
    Ok(())
}

/// What is recorded and said.
struct Record {
    audit: Audit,
    errors: Option<OwnedFd>,
    /// What was refused, or failed.
    refused: HashSet<(String, String)>,
    told: HashSet<(String, String)>,
}

impl Record {
    fn note(&mut self, event: &Event) {
        let name = (event.host.as_ref()).map_or(NO_HOST.to_owned(), |host| host.host.to_string());
        let port = event.host.as_ref().map(|host| host.port);
        tracing::info!(target: "ssh", host = name, port, verdict = ?event.verdict, "judged");
        let (verdict, reason, hint) = match &event.verdict {
            Verdict::Signed { user, key } => {
                let reason = format!("signed a login of `{user}` with the key {key}");
                (audit::Verdict::Allowed, reason, None)
            }
            Verdict::Refused(refusal) => {
                (audit::Verdict::Refused, refusal.to_string(), refusal.hint())
            }
            Verdict::Failed(why) => (audit::Verdict::Failed, why.clone(), None),
        };
        if verdict != audit::Verdict::Allowed {
            let one = (name.clone(), reason.clone());
            if self.refused.len() >= MOST_REFUSED || !self.refused.insert(one.clone()) {
                return;
            }
            if let Some(errors) = &self.errors
                && self.told.len() < MOST_TOLD
                && self.told.insert(one)
            {
                say(errors, &reason, hint);
            }
        }
        let record = Connection::new((&name, port), None, verdict, reason);
        self.audit.note(&record.changed_by(hint).of_ssh());
    }
}
