//! The node's tracer, found.

use crate::config::site::Site;
use crate::failure::{self};
use crate::policy::{Trace as Policy, TraceMode};
use agent_sandbox_events::client::{Connection, Unanswered};
use agent_sandbox_events::protocol::{Request, Response, Status, VERSION};
use std::io;
use std::path::Path;
use std::time::Duration;

/// After so long without an answer it is said that somebody is waited for.
pub(super) const SOON: Duration = Duration::from_secs(1);

/// How long one answer may take. That somebody listens and is slow does not mean that there is no tracer: a node
/// full of ranks may have to wait for each other, and an agent can keep a tracer busy to have the next thing run
/// unseen.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Whether a tracer listens at its socket.
#[derive(Debug, Default)]
pub enum TracerState {
    /// Nobody looked: the policy does not want it.
    #[default]
    Unwanted,
    /// Nothing.
    Nothing,
    /// Something that cannot be used.
    Unfit(Trouble),
    /// Somebody who listens where only root can put a socket.
    Listens(Connection),
}

/// Why the tracer is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What is wrong, without a full stop.
    pub what: String,
    /// A way out.
    pub hint: Option<String>,
    /// Whether somebody listens all the same.
    pub(super) listens: bool,
}

impl Trouble {
    pub(super) fn new(what: impl Into<String>, hint: Option<String>) -> Self {
        Self {
            what: what.into(),
            hint,
            listens: false,
        }
    }
}

impl Trouble {
    pub(super) fn of_one_who_listens(self) -> Self {
        Self {
            listens: true,
            ..self
        }
    }
}

impl From<Unanswered> for Trouble {
    fn from(error: Unanswered) -> Self {
        match error {
            Unanswered::Refused { why, hint } => {
                let why = failure::one_line(&why);
                let hint = hint.map(|hint| failure::one_line(&hint));
                Self::new(format!("the tracer refuses: {why}"), hint)
            }
            Unanswered::Connect(error) => {
                Self::new(format!("the tracer cannot be reached: {error}"), None)
            }
            Unanswered::Broken(error) => Self::new(
                match error.kind() {
                    io::ErrorKind::WouldBlock => "the tracer does not answer".to_owned(),
                    _ => format!("the tracer broke the conversation off: {error}"),
                },
                Some("admin: see the tracer's own messages, and restart it".to_owned()),
            ),
            strange @ Unanswered::Strange => Self::new(
                strange.to_string(),
                Some("admin: install launcher and tracer of one version".to_owned()),
            ),
        }
    }
}

/// Looks for the tracer: one `connect(2)`, and no more where nobody listens.
pub fn find(policy: &Policy) -> TracerState {
    match policy.mode.value {
        TraceMode::Off => TracerState::Unwanted,
        TraceMode::On | TraceMode::Required => {
            connect(&policy.socket.value, &Site::of_this_build())
        }
    }
}

pub(super) fn slow() {
    let seconds = PATIENCE.as_secs();
    failure::say(&format!(
        "agent-sandbox: the tracer is slow to answer: it has {seconds} seconds\n"
    ));
}

/// Connects, and makes sure of whom it speaks with: the socket stands where nobody but root can put anything.
pub(crate) fn connect(socket: &Path, site: &Site) -> TracerState {
    let mut opened = Connection::open(socket, SOON);
    // So many wait already that there is no room to wait.
    let full = |opened: &Result<Connection, Unanswered>| matches!(opened, Err(Unanswered::Connect(error)) if error.kind() == io::ErrorKind::WouldBlock);
    if full(&opened) {
        slow();
        opened = Connection::open(socket, PATIENCE - SOON);
    }
    let connection = match opened {
        Ok(connection) => connection,
        Err(Unanswered::Connect(error)) => {
            let none = [libc::ENOENT, libc::ENOTDIR, libc::ECONNREFUSED];
            return match error.raw_os_error() {
                Some(errno) if none.contains(&errno) => TracerState::Nothing,
                // Somebody is there, or may be: what a job demands of a node with a tracer is not to be had by making the
                // socket hard to reach.
                _ => TracerState::Unfit(
                    Trouble::from(Unanswered::Connect(error)).of_one_who_listens(),
                ),
            };
        }
        Err(error) => return TracerState::Unfit(Trouble::from(error).of_one_who_listens()),
    };
    let directory = socket.parent().unwrap_or(socket);
    if let Err(error) = site.only_root_changes(directory) {
        let what = format!("its socket cannot be trusted: {error}");
        let trouble = Trouble::new(what, error.hint().map(str::to_owned));
        return TracerState::Unfit(trouble.of_one_who_listens());
    }
    TracerState::Listens(connection)
}

/// How the tracer is.
///
/// # Errors
/// It does not answer, or not that.
pub fn status(connection: &Connection) -> Result<Status, Trouble> {
    match connection.ask(&Request::Status { version: VERSION })? {
        Response::Status(status) => Ok(*status),
        _ => Err(Unanswered::Strange.into()),
    }
}
