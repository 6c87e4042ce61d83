//! A session with a filtered network, and a server of doctor's own that it is allowed to reach: whoever reaches it was led there by
//! the session's filter, since the jail has no other way out.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use agent_sandbox_hosts::{Host, Name};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};

use super::trial::NOTHING;
use crate::cli::Options;
use crate::launch;
use crate::plan::{NetworkMode, Plan};
use crate::sys::privileges;
use crate::sys::process::{self, Side};

/// How long the server waits for the rest of a line.
const PATIENCE: Duration = Duration::from_secs(5);
/// What is sent and comes back, with its end of line.
const WORD: &str = "agent-sandbox-doctor\n";
/// Connects, and reads what comes back.
const CONNECT: &str = "exec 3<>/dev/tcp/localhost/$0 && echo \"$1\" >&3 && read -r answer <&3 && [ \"$answer\" = \"$1\" ]";

/// What such a session is started with. Its server ends with this.
#[derive(Debug)]
pub(super) struct Filtered {
    pub(super) options: Options,
    /// Whether the policy lets it reach the server.
    pub(super) may_reach: bool,
    port: u16,
    server: Option<Pid>,
}

impl Filtered {
    /// The session of these options with a filtered network; `None` if the site's policy permits none.
    pub(super) fn new(options: &Options) -> Option<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok();
        let port = listener
            .as_ref()
            .and_then(|at| Some(at.local_addr().ok()?.port()));
        let mut options = options.clone();
        options.set.push("network.mode=filtered".to_owned());
        let private = port.map(|port| format!("network.private=[\"localhost:{port}\"]"));
        options.set.extend(private);
        let prepared = launch::prepare(&options, &[]).ok()?;
        let plan = prepared.plan().ok();
        if plan
            .as_ref()
            .is_some_and(|plan| plan.network.value != NetworkMode::Filtered)
        {
            return None;
        }
        let may_reach = plan
            .zip(port)
            .is_some_and(|(plan, port)| permits(&plan, port));
        let server = listener.filter(|_| may_reach).and_then(|at| serve(&at));
        Some(Self {
            options,
            may_reach: may_reach && server.is_some(),
            port: port.unwrap_or_default(),
            server,
        })
    }

    /// What it runs.
    pub(super) fn command(&self) -> Vec<String> {
        match self.may_reach {
            true => [
                "bash",
                "-c",
                CONNECT,
                &self.port.to_string(),
                WORD.trim_end(),
            ]
            .map(str::to_owned)
            .to_vec(),
            false => vec![NOTHING.to_owned()],
        }
    }
}

impl Drop for Filtered {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let _ = kill(server, Signal::SIGKILL);
            let _ = process::wait(server);
        }
    }
}

/// Whether the plan's rules lead to the port of this host's loopback.
fn permits(plan: &Plan, port: u16) -> bool {
    let Some((filter, host)) = plan.filter.as_ref().zip(Name::parse("localhost").ok()) else {
        return false;
    };
    let (rules, host) = (&filter.rules, Host::Name(host));
    let loopback = Ipv4Addr::LOCALHOST.into();
    rules.judge(&host, port).is_ok() && rules.judge_address(&host, loopback, port, true).is_ok()
}

/// Starts the server, a process that sends each connection its line back.
fn serve(listener: &TcpListener) -> Option<Pid> {
    let parent = getpid();
    match process::fork().ok()? {
        Side::Parent(server) => Some(server),
        Side::Child => {
            if privileges::end_with_parent(Some(parent)).is_ok() {
                for connection in listener.incoming() {
                    let Ok(mut connection) = connection else {
                        break;
                    };
                    // Whoever else connects to a port of this host hears what it said itself.
                    let mut line = [0; WORD.len()];
                    let _ = connection
                        .set_read_timeout(Some(PATIENCE))
                        .and_then(|()| connection.read_exact(&mut line))
                        .and_then(|()| connection.write_all(&line));
                }
            }
            process::exit_now(0)
        }
    }
}
