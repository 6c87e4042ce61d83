//! That a session began, and what runs in it: a line in the user's audit record, and one in root's where a tracer keeps it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use agent_sandbox_events::audit::{Handed, LONGEST_NAME, LONGEST_PATH, What, cut, microseconds};
use agent_sandbox_events::handover::Handover;
use agent_sandbox_events::protocol::VERSION;

use crate::audit::{self, Begun};
use crate::failure::{self, one_line};
use crate::host::HostFacts;
use crate::plan::Plan;

/// What is handed to the tracer when it has the session's trace.
#[derive(Debug)]
pub struct ToHand {
    socket: PathBuf,
    handed: Handed,
}

/// Records it for the user, and says what is handed over. A record that cannot be written stops no session.
pub(super) fn record(host: &HostFacts, plan: &Plan, command: &OsStr) -> Option<ToHand> {
    let agent = Path::new(command).file_name().unwrap_or(command);
    let project = plan.project.as_deref().unwrap_or(Path::new(""));
    let begun = Begun {
        time: audit::now(),
        session: plan.session.clone(),
        agent: cut(&agent.to_string_lossy(), LONGEST_NAME),
        project: cut(&project.to_string_lossy(), LONGEST_PATH),
    };
    if let Err(error) = begun.write(&host.state_directory) {
        let what = format!("cannot record that the session began: {error}");
        failure::say(&format!("agent-sandbox: warning: {}\n", one_line(&what)));
    }
    let socket = plan.trace.keeps_audit()?;
    Some(ToHand {
        socket: OsStr::from_bytes(&socket).into(),
        handed: Handed {
            version: VERSION,
            time: microseconds(begun.time),
            session: begun.session,
            missed: 0,
            what: What::Session {
                agent: begun.agent,
                project: begun.project,
            },
        },
    })
}

impl ToHand {
    /// Hands it over, and waits for nothing.
    pub(super) fn hand(self) {
        Handover::new(&self.socket).hand(self.handed, Instant::now());
    }
}
