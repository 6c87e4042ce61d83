//! Ports inside that the user reaches from outside.

use std::collections::BTreeMap;

use agent_sandbox_hosts::{HostRules, Ports, WEB_PORTS};

use crate::config::source::Sourced;
use crate::plan::model::network::{FilteredNetwork, NAMES};
use crate::plan::model::{Omitted, PlanError, Why};
use crate::policy::{Clamped, NetworkMode, Policy};

/// The key.
const KEY: &str = "network.forward";

/// What becomes of the ports of a policy.
#[derive(Debug, Default)]
pub(super) struct Forwarded {
    /// Those that are reached, in order, each once.
    pub(super) ports: Vec<Sourced<u16>>,
    /// Those that the site does not allow.
    pub(super) clamped: Vec<Clamped>,
    /// What is said of them where they mean nothing.
    pub(super) omitted: Option<Omitted>,
}

/// The ports of a policy in a network.
///
/// # Errors
/// The network's filter listens at one of them.
pub(super) fn of(
    policy: &Policy,
    mode: &Sourced<NetworkMode>,
    filter: Option<&FilteredNetwork>,
    in_job: bool,
) -> Result<Forwarded, PlanError> {
    let mut all = Forwarded::default();
    let mut ports = BTreeMap::new();
    for port in &policy.network.forward {
        match refusing(policy, port.value) {
            Some(allowed) => all.clamped.push(Clamped {
                key: KEY,
                asked: port.clone().map(|port| port.to_string()),
                allowed,
            }),
            None => drop(ports.entry(port.value).or_insert_with(|| port.clone())),
        }
    }
    all.ports = ports.into_values().collect();
    if mode.value == NetworkMode::Open {
        let ports = std::mem::take(&mut all.ports);
        all.omitted = ports.first().map(|first| {
            let reason = format!(
                "nothing to forward: with network.mode `open` ({}) a server inside listens on this host's own loopback, where every \
                 user of it can connect",
                mode.source
            );
            nothing(first, reason, !in_job)
        });
    }
    if let Some(filter) = filter {
        refuse(filter, &all.ports)?;
    }
    Ok(all)
}

/// The note that no port is forwarded.
pub fn nothing(first: &Sourced<u16>, reason: String, loud: bool) -> Omitted {
    Omitted {
        path: KEY.to_owned(),
        reason,
        why: Why::key(KEY, first),
        loud,
    }
}

/// The enforced list that does not have a port.
fn refusing(policy: &Policy, port: u16) -> Option<Sourced<String>> {
    let mut layers = policy.bounds.layers.iter();
    layers.find_map(|layer| {
        let list = &layer.network.forward;
        let lacks = list.bound()?.iter().all(|one| one.value != port);
        lacks.then(|| list.shown()).flatten()
    })
}

/// Refuses a port at which the filter listens: whoever connects there would not reach a program inside.
///
/// # Errors
/// The port, and the rule that has the filter listen there.
fn refuse(filter: &FilteredNetwork, forward: &[Sourced<u16>]) -> Result<(), PlanError> {
    let Some(port) = forward.iter().find(|port| filter.listens_at(port.value)) else {
        return Ok(());
    };
    let HostRules { allow, private, .. } = &filter.rules;
    let mut rules = allow.iter().chain(private);
    let by = rules.find(|rule| match &rule.rule.ports {
        Ports::Unnamed => WEB_PORTS.contains(&port.value),
        Ports::Named(range) => range.contains(&port.value),
        Ports::Web(one) => *one == port.value,
    });
    let why = match by {
        Some(rule) if port.value != NAMES => format!("for `{}` ({})", rule.rule, rule.origin),
        _ => "for names".to_owned(),
    };
    let message = format!(
        "port {} cannot be forwarded ({}): the network's filter listens there inside, {why}",
        port.value,
        Why::key(KEY, port)
    );
    Err(PlanError::new(message)
        .hint("let the server inside listen at another port, and forward that"))
}
