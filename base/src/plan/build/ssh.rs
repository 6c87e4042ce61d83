//! The ssh agent in a plan: which hosts of `ssh.hosts` count, by which keys they are known, and what stands inside.

use std::path::{Path, PathBuf};

use agent_sandbox_hosts::HostRules;
use agent_sandbox_ssh::{Destination, KeyName, Keys, KnownHost, KnownHosts, Rules, key_in};

use super::env::Environment;
use super::tree::Tree;
use crate::config::source::Sourced;
use crate::env_vars;
use crate::host::HostFacts;
use crate::host::files::{Files, Found, Kind, Look};
use crate::plan::model::hides::Hides;
use crate::plan::model::ssh::{AGENT, CONFIG, DIRECTORY, KNOWN_HOSTS, SshAgent};
use crate::plan::model::{Access, GIT_SSH, Mount, Omitted, PlanError, Variable, Why};
use crate::policy::{NetworkMode, Policy, SshKey, SshKeys};

/// Where ssh looks for keys of hosts (ssh_config(5), `UserKnownHostsFile`): below the home directory.
const USERS_KNOWN_HOSTS: &str = ".ssh/known_hosts";
/// The same for all users (`GlobalKnownHostsFile`).
const SYSTEM_KNOWN_HOSTS: &str = "/etc/ssh/ssh_known_hosts";
/// The largest of these files that is read, in bytes. Sites have a key of each of their nodes in the second.
const LARGEST_KNOWN_HOSTS: usize = 8 << 20;
/// The largest file with a public key, in bytes.
const LARGEST_KEY: usize = 16 << 10;
/// Bytes of the file system in which the socket stands, and the file of known hosts.
const ROOM: u64 = 1 << 20;

/// What was found out about the agent.
#[derive(Default)]
pub(super) struct Wanted {
    /// It, if there is one.
    pub(super) agent: Option<SshAgent>,
    /// Why hosts do not count.
    pub(super) omitted: Vec<Omitted>,
    /// Files outside by which it was decided.
    decided_by: Vec<Found>,
}

/// Which hosts count. In jobs none does, for the user's agent is on another node; nor where no host is reached.
pub(super) fn wanted(
    policy: &Policy,
    host: &HostFacts,
    files: &dyn Files,
    mode: NetworkMode,
    rules: Option<&HostRules>,
    in_job: bool,
) -> Wanted {
    let mut wanted = Wanted::default();
    let asked = &policy.ssh.hosts;
    if in_job || mode == NetworkMode::Isolated || asked.is_empty() {
        return wanted;
    }
    let keys = wanted.keys(&policy.ssh.keys, host, files);
    if keys == Keys::These(Vec::new()) {
        return wanted;
    }
    let users = match wanted.users_agent(host, files) {
        Ok(users) => users,
        Err(why) => {
            for one in asked {
                wanted.omit_host(one, why.clone());
            }
            return wanted;
        }
    };
    let mut known = KnownHosts::default();
    for path in [
        host.home.join(USERS_KNOWN_HOSTS),
        PathBuf::from(SYSTEM_KNOWN_HOSTS),
    ] {
        if let Some(text) = wanted.read(&path, LARGEST_KNOWN_HOSTS, files) {
            known.add(&text);
        }
    }
    let (mut hosts, mut found) = (Vec::new(), Vec::new());
    for one in asked {
        let destination = &one.value;
        if hosts.contains(one) {
            continue;
        }
        let keys = known.keys_of(&destination.known_name());
        if keys.is_empty() {
            let name = destination.known_name();
            wanted.omit_host(
                one,
                format!("no key of {name} is in ~/{USERS_KNOWN_HOSTS} or {SYSTEM_KNOWN_HOSTS}; connect to it once outside"),
            );
            continue;
        }
        if let Some(Err(refusal)) =
            rules.map(|rules| rules.judge(&destination.host, destination.port))
        {
            wanted.omit_host(one, refusal.to_string());
            continue;
        }
        found.push(KnownHost {
            destination: destination.clone(),
            keys,
        });
        hosts.push(one.clone());
    }
    if !hosts.is_empty() {
        wanted.agent = Some(SshAgent {
            users,
            hosts,
            keys: policy.ssh.keys.clone(),
            rules: Rules { hosts: found, keys },
        });
    }
    wanted
}

impl Wanted {
    /// The socket of the user's agent.
    fn users_agent(&mut self, host: &HostFacts, files: &dyn Files) -> Result<PathBuf, String> {
        let named = host.variable(env_vars::SSH_AUTH_SOCK);
        let Some(path) = named.map(PathBuf::from).filter(|path| path.is_absolute()) else {
            return Err(
                "SSH_AUTH_SOCK names no socket outside: there is no ssh-agent that could sign"
                    .to_owned(),
            );
        };
        match files.look(&path) {
            Look::Found(found) if found.kind == Kind::Other => {
                self.decided_by.push(found);
                Ok(path)
            }
            _ => Err(format!(
                "there is no ssh-agent at `{}` (SSH_AUTH_SOCK)",
                path.display()
            )),
        }
    }

    fn keys(&mut self, keys: &Sourced<SshKeys>, host: &HostFacts, files: &dyn Files) -> Keys {
        let SshKeys::These(named) = &keys.value else {
            return Keys::All;
        };
        let each = named.iter().filter_map(|key| match key {
            SshKey::Fingerprint(fingerprint) => Some(KeyName::Fingerprint(*fingerprint)),
            SshKey::File(path) => {
                let place = path.expand(host);
                let text = place.and_then(|place| self.read(&place, LARGEST_KEY, files));
                let key = text.and_then(|text| key_in(&text));
                if key.is_none() {
                    self.omitted.push(Omitted {
                        path: path.to_string(),
                        reason: "no public key can be read there".to_owned(),
                        why: Why::key("ssh.keys", keys),
                        loud: keys.source.is_users(),
                    });
                }
                key.map(KeyName::Key)
            }
        });
        Keys::These(each.collect())
    }

    /// What stands in a file outside.
    fn read(&mut self, path: &Path, most: usize, files: &dyn Files) -> Option<Vec<u8>> {
        let Look::Found(found) = files.look(path) else {
            return None;
        };
        let text = files.small_file(&found.real, most)?;
        self.decided_by.push(found);
        Some(text)
    }

    fn omit_host(&mut self, host: &Sourced<Destination>, reason: String) {
        self.omitted.push(Omitted {
            path: host.value.to_string(),
            reason,
            why: Why::rule("ssh.hosts", host),
            loud: host.source.is_users(),
        });
    }
}

/// Puts the place of the socket and the keys of the hosts into the jail, and ssh's configuration for all users in place of the
/// host's: inside, root's files seem to be somebody else's, and ssh refuses those that this one includes.
///
/// # Errors
/// Something that decides for whom is signed can be changed inside.
pub(super) fn place(
    tree: &mut Tree,
    wanted: &Wanted,
    files: &dyn Files,
    hides: &Hides,
) -> Result<(), PlanError> {
    let Some(agent) = &wanted.agent else {
        return Ok(());
    };
    for found in &wanted.decided_by {
        let links = found.links.iter().map(|(at, _)| at.as_path());
        let mut places = links
            .chain([found.real.as_path()])
            .flat_map(Path::ancestors);
        if let Some(open) = places.find(|place| is_changed_inside(tree, place)) {
            let message = format!(
                "`{}` decides for whom the ssh agent signs (ssh.hosts), and `{}` is writable inside",
                found.real.display(),
                open.display()
            );
            return Err(PlanError::new(message)
                .hint("take it out of files.write and home.write, or the hosts out of ssh.hosts"));
        }
    }
    if let Look::Found(found) = files.look(&agent.users)
        && tree.access(&found.real).is_some()
        && hides.rule_for(&found.real).is_none()
    {
        let message = format!(
            "the user's own ssh-agent, `{}`, can be reached inside, where it signs whatever it is asked to",
            found.real.display()
        );
        return Err(PlanError::new(message)
            .hint("do not give its directory, or take the hosts out of ssh.hosts"));
    }
    let why = || Why::Every("logins by the user's ssh-agent (ssh.hosts)");
    let room = Mount::Tmpfs {
        size: ROOM,
        mode: 0o700,
    };
    tree.put(DIRECTORY, room, why());
    let content = agent.known_hosts();
    tree.put(KNOWN_HOSTS, Mount::File { content }, why());
    if let Look::Found(found) = files.look(Path::new(CONFIG))
        && hides.rule_for(&found.real).is_none()
        && tree.access(&found.real) == Some(Access::Read)
    {
        let content = format!("UserKnownHostsFile {KNOWN_HOSTS}\n").into_bytes();
        tree.put(&found.real, Mount::File { content }, why());
    }
    Ok(())
}

fn is_changed_inside(tree: &Tree, place: &Path) -> bool {
    let over = tree.over(place).map(|(_, mount)| mount);
    matches!(over, Some(Mount::Kept { .. })) || tree.access(place) == Some(Access::Write)
}

/// Leads programs to it. A program that the user names for git stays.
pub(super) fn set(environment: &mut Environment) {
    let Environment {
        variables, hidden, ..
    } = environment;
    let own = variables
        .iter()
        .any(|one| one.name == env_vars::GIT_SSH && one.value != GIT_SSH);
    let mut set = |name: &str, value: &str, why: &'static str| {
        variables.retain(|variable| variable.name != name);
        hidden.retain(|variable| variable.name != name);
        variables.push(Variable {
            name: name.into(),
            value: value.into(),
            why: Why::Every(why),
        });
    };
    set(
        env_vars::SSH_AUTH_SOCK,
        AGENT,
        "an agent that signs logins to hosts of ssh.hosts",
    );
    set(
        env_vars::KNOWN_HOSTS,
        KNOWN_HOSTS,
        "the keys of hosts of ssh.hosts",
    );
    if !own {
        set(
            env_vars::GIT_SSH,
            GIT_SSH,
            "git reaches hosts of ssh.hosts by ssh",
        );
    }
    variables.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    hidden.sort_unstable_by(|a, b| a.name.cmp(&b.name));
}
