//! The ssh agent of a jail, which has the user's own sign logins to some hosts.

use std::path::PathBuf;

use agent_sandbox_ssh::{Destination, Rules};
use serde::Serialize;

use crate::config::source::Sourced;
use crate::policy::SshKeys;

/// Where it stands inside; the directory is private to the jail.
pub const DIRECTORY: &str = "/run/agent-sandbox/ssh";
/// Its socket.
pub const AGENT: &str = "/run/agent-sandbox/ssh/agent";
/// The keys of its hosts.
pub const KNOWN_HOSTS: &str = "/run/agent-sandbox/ssh/known_hosts";
/// What ssh reads for all users (`ssh_config(5)`).
pub const CONFIG: &str = "/etc/ssh/ssh_config";

/// The agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SshAgent {
    /// The socket of the user's own, outside.
    pub users: PathBuf,
    /// The hosts.
    pub hosts: Vec<Sourced<Destination>>,
    /// The user's keys, as the policy names them.
    pub keys: Sourced<SshKeys>,
    /// The same with the keys themselves.
    #[serde(skip)]
    pub rules: Rules,
}

impl SshAgent {
    /// A file of known hosts with its hosts alone, by their names.
    pub fn known_hosts(&self) -> Vec<u8> {
        let lines = self.rules.hosts.iter().flat_map(|host| {
            let name = host.destination.known_name();
            host.keys.iter().map(move |key| key.line(&name))
        });
        lines.collect::<String>().into_bytes()
    }
}
