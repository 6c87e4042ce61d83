//! Which network the jail sees, and what stands in it where it is filtered.

use agent_sandbox_hosts::{Endpoint, HostRules};

use crate::config::source::Sourced;
use crate::host::HostFacts;
use crate::plan::model::PlanError;
use crate::plan::model::network::FilteredNetwork;
use crate::policy::hosts::rules;
use crate::policy::values::Stricter;
use crate::policy::{JobsNetwork, NetworkMode, Policy};

/// Slurm's ports where nothing says otherwise (`slurm.conf(5)`, `slurmdbd.conf(5)`, `slurmrestd(8)`).
const SLURM: [(u16, &str); 4] = [
    (6817, "slurmctld"),
    (6818, "slurmd"),
    (6819, "slurmdbd"),
    (6820, "slurmrestd"),
];
/// The filter answers questions for names here.
const RESOLV_CONF: &str = "# Of agent-sandbox: only the names of hosts that are allowed have an address.\nnameserver 127.0.0.1\noptions timeout:5 attempts:1\n";
/// The host's own file would give names the addresses that they have outside, by which the filter does not know them.
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n";
/// Whom the C library asks for the addresses of names, where the host does not say.
const NSSWITCH: &str = "hosts: files dns\n";

/// The network of a session, or of a job of it (`in_job`), which is never more than the site allows.
pub(super) fn mode(policy: &Policy, in_job: bool) -> Sourced<NetworkMode> {
    let (session, jobs) = (&policy.network.mode, &policy.network.jobs);
    if !in_job {
        return session.clone();
    }
    let mut mode = match jobs.value {
        JobsNetwork::Same => session.clone(),
        JobsNetwork::Open => Sourced::new(NetworkMode::Open, jobs.source.clone()),
        JobsNetwork::Isolated => Sourced::new(NetworkMode::Isolated, jobs.source.clone()),
    };
    for layer in &policy.bounds.layers {
        if let Some(bound) = layer.network.mode.get() {
            let held = mode.value.stricter(&bound.value);
            if held != mode.value {
                mode = Sourced::new(held, bound.source.clone());
            }
        }
    }
    mode
}

/// What a filter needs, if the network is filtered.
///
/// # Errors
/// The rules name more ports than anybody can listen at.
pub(super) fn filtered(
    policy: &Policy,
    host: &HostFacts,
    mode: &Sourced<NetworkMode>,
) -> Result<Option<FilteredNetwork>, PlanError> {
    if mode.value != NetworkMode::Filtered {
        return Ok(None);
    }
    of_policy(policy, closed(host)).map(Some)
}

/// What a filter needs for the hosts of a policy, with what is closed on this host.
///
/// # Errors
/// The rules name more ports than anybody can listen at.
pub fn of_policy(policy: &Policy, closed: Vec<Endpoint>) -> Result<FilteredNetwork, PlanError> {
    let network = &policy.network;
    let rules = HostRules {
        allow: rules(&network.allow),
        deny: rules(&network.deny),
        private: rules(&network.private),
        closed,
    };
    let ports = rules.ports().map_err(|error| {
        PlanError::new(error.to_string()).hint("name single ports, or shorter ranges")
    })?;
    let ports = ports.into_iter().collect();
    Ok(FilteredNetwork {
        rules,
        ports,
        credentials: Vec::new(),
        kept: Vec::new(),
        trust: None,
    })
}

/// Slurm's own services: who reaches them from inside asks Slurm past the chaperon.
fn closed(host: &HostFacts) -> Vec<Endpoint> {
    let usual = SLURM.map(|(port, what)| ((port, port), what.to_owned()));
    let named = host.slurm.iter().flat_map(|slurm| &slurm.ports);
    let named = named.map(|(line, ports)| (*ports, format!("Slurm ({line})")));
    let all = usual.into_iter().chain(named);
    all.map(|(ports, what)| Endpoint {
        address: None,
        ports,
        what,
    })
    .collect()
}

/// Files in place of the host's, each with its path, where the network is filtered. `nsswitch` is the file of that name as the
/// jail would have it otherwise.
pub(super) fn files(nsswitch: Option<&[u8]>) -> [(&'static str, Vec<u8>); 3] {
    [
        ("/etc/hosts", HOSTS.into()),
        ("/etc/nsswitch.conf", hosts_from_dns(nsswitch)),
        ("/etc/resolv.conf", RESOLV_CONF.into()),
    ]
}

/// `nsswitch.conf(5)` with hosts from files and DNS alone.
fn hosts_from_dns(text: Option<&[u8]>) -> Vec<u8> {
    let text = String::from_utf8_lossy(text.unwrap_or_default());
    let is_of_hosts = |line: &&str| line.trim_start().starts_with("hosts:");
    let others = text.lines().filter(|line| !is_of_hosts(line));
    let mut all: String = others.map(|line| format!("{line}\n")).collect();
    all.push_str(NSSWITCH);
    all.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_files_and_dns_alone() {
        let text = hosts_from_dns(Some(b"passwd: files sss\nhosts: files resolve dns\n"));
        assert_eq!(text, b"passwd: files sss\nhosts: files dns\n");
        assert_eq!(hosts_from_dns(None), NSSWITCH.as_bytes());
    }
}
