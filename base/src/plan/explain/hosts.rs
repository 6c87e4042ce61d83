//! Hosts: whom the jail can connect to. Where the network is the host's or none, the answer is one
//! for all of them, but for what stands on this host itself; where it is filtered, the rules by which the filter judges say it.

use std::net::IpAddr;
use std::path::PathBuf;

use agent_sandbox_hosts::{Cause, Host, HostRules, Refusal, Rule};
use serde::{Deserialize, Serialize};

use super::change::{Change, Request, Ways, set_list};
use super::{Explanation, Visibility};
use crate::config::source::Sourced;
use crate::plan::model::{Plan, Why};
use crate::policy::NetworkMode;
use crate::policy::clamp::Clamp;
use crate::policy::hosts::{HostEntry, rules};
use crate::policy::values::Stricter;

/// Somebody to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A local socket with a name in the file system.
    Path(PathBuf),
    /// A local socket with an abstract name (`unix(7)`).
    Abstract,
    /// This host, by its loopback.
    Loopback(Target),
    /// Any other host, or this one by its name.
    Host(Target),
}

/// A host, and the port if one was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: Option<u16>,
}

/// The port that is meant where none is named: that of HTTPS.
const USUAL_PORT: u16 = 443;

/// Reads `NAME[:PORT]`, `[ADDRESS]:PORT`, a path, or `@NAME` for an abstract socket.
///
/// # Errors
/// A sentence: what is wrong with it.
pub fn parse(text: &str) -> Result<Peer, String> {
    let wrong = |why: &str| Err(format!("`{text}` names no host: {why}"));
    if text.starts_with('/') {
        return Ok(Peer::Path(text.into()));
    }
    if let Some(name) = text.strip_prefix('@') {
        return match name.is_empty() {
            true => wrong("the name of an abstract socket stands behind the `@`"),
            false => Ok(Peer::Abstract),
        };
    }
    if text.contains("://") {
        return wrong("it is a URL; give the host in it, as NAME:PORT");
    }
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let Some((address, behind)) = rest.split_once(']') else {
                return wrong("the bracket is not closed: [ADDRESS]:PORT");
            };
            if !matches!(address.parse(), Ok(IpAddr::V6(_))) {
                return wrong("what stands in brackets is no IPv6 address");
            }
            match behind.strip_prefix(':') {
                Some(port) => (address, Some(port)),
                None if behind.is_empty() => (address, None),
                None => return wrong("behind the bracket only `:PORT` can stand"),
            }
        }
        // An address of IPv6 has colons of its own.
        None if text.parse::<IpAddr>().is_ok() => (text, None),
        None => match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        },
    };
    let port = match port.map(str::parse) {
        None => None,
        Some(Ok(port @ 1..)) => Some(port),
        Some(_) => return wrong("a port is a number from 1 to 65535"),
    };
    if let Ok(address) = name.parse::<IpAddr>() {
        let local = address.is_loopback() || address.is_unspecified();
        let host = Host::Address(address);
        let target = Target { host, port };
        return Ok(if local {
            Peer::Loopback(target)
        } else {
            Peer::Host(target)
        });
    }
    let host = match Host::parse(name.trim_end_matches('.')) {
        Ok(host) => host,
        Err(error) => return wrong(&error.to_string()),
    };
    // RFC 6761, section 6.3.
    let local = matches!(&host, Host::Name(name) if name.is_localhost());
    let target = Target { host, port };
    Ok(if local {
        Peer::Loopback(target)
    } else {
        Peer::Host(target)
    })
}

/// What decides whom the jail reaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// Whether the network is one of the jail's own.
    pub isolated: bool,
    /// Whether the kernel keeps the jail from abstract sockets of the host.
    pub scoped: bool,
    /// To whom the filter leads, if the network is filtered.
    pub rules: Option<HostRules>,
}

/// What the rules say of a host.
enum Judged<'a> {
    By(&'a Rule),
    Refused(Refusal),
}

impl Reach {
    /// Of a plan.
    pub fn of_plan(plan: &Plan) -> Self {
        Self {
            isolated: plan.network.value != NetworkMode::Open,
            scoped: plan.landlock_scope,
            rules: plan.filter.as_ref().map(|filter| filter.rules.clone()),
        }
    }

    /// What the filter's rules say of a host; none where no filter is asked.
    fn judged(&self, peer: &Peer) -> Option<Judged<'_>> {
        let (Peer::Host(target) | Peer::Loopback(target)) = peer else {
            return None;
        };
        let rules = self.rules.as_ref()?;
        let port = target.port.unwrap_or(USUAL_PORT);
        let judged = rules.judge(&target.host, port).and_then(|by| {
            match target.host {
                Host::Address(address) => {
                    rules.judge_address(&target.host, address, port, false)?;
                }
                Host::Name(_) => {}
            }
            Ok(by)
        });
        match (judged, peer) {
            (Ok(by), _) => Some(Judged::By(by)),
            // It is the jail's own.
            (Err(_), Peer::Loopback(_)) => None,
            (Err(refusal), _) => Some(Judged::Refused(refusal)),
        }
    }

    /// The verdict about a peer that is no path, and what there is to know.
    pub fn of(&self, peer: &Peer) -> (Visibility, Vec<String>) {
        match self.judged(peer) {
            Some(Judged::By(by)) => {
                let note = format!(
                    "by {} ({}); the name was not looked up, and its address must be public unless network.private names it",
                    by.quoted(),
                    by.origin
                );
                return (Visibility::Reachable, vec![note]);
            }
            Some(Judged::Refused(refusal)) => {
                return (Visibility::Unreachable, vec![refusal.to_string()]);
            }
            None => {}
        }
        let (verdict, note) = match peer {
            Peer::Abstract if self.isolated => (
                Visibility::Unreachable,
                "abstract sockets belong to a network, and the jail has its own",
            ),
            Peer::Abstract if self.scoped => (
                Visibility::Unreachable,
                "Landlock keeps the jail from abstract sockets that were made outside",
            ),
            Peer::Abstract => (
                Visibility::Reachable,
                "this kernel cannot keep the jail from abstract sockets of the host (Linux 6.12 can)",
            ),
            Peer::Loopback(_) if self.isolated => (
                Visibility::Unreachable,
                "the jail has a loopback of its own: it reaches what was started inside",
            ),
            Peer::Loopback(_) => (
                Visibility::Reachable,
                "this host's own loopback: services of other users on this node, too",
            ),
            Peer::Host(_) | Peer::Path(_) if self.isolated => {
                return (Visibility::Unreachable, Vec::new());
            }
            Peer::Host(_) | Peer::Path(_) => (
                Visibility::Reachable,
                "as from outside: firewalls and proxies are as they are there; the name was not looked up",
            ),
        };
        (verdict, vec![note.to_owned()])
    }
}

/// Explains a peer that is no path. `asked` is how it was written.
pub fn explain(plan: &Plan, asked: &str, peer: &Peer, ways: &Ways<'_>) -> Explanation {
    let reach = Reach::of_plan(plan);
    let (verdict, notes) = reach.of(peer);
    let network = &plan.network;
    let mode = network.value.shown();
    let kept_by_kernel = verdict == Visibility::Unreachable && network.value == NetworkMode::Open;
    let config = ways.config;
    let change = match (verdict, reach.judged(peer)) {
        _ if kept_by_kernel => Change::never(
            "it cannot be given: an abstract socket has no owner and no mode, and any of the host's would be open",
        ),
        (_, Some(Judged::By(_))) => Change::by(format!(
            "to close it: network.deny in {config}, or {} for one run",
            set_list("network.deny", &entry(peer))
        )),
        (_, Some(Judged::Refused(refusal))) => of_refusal(&refusal, peer, ways),
        (Visibility::Unreachable, None) => ways.unless_forbidden(
            format!("network.mode = \"open\" in {config}, or --set network.mode=open for one run"),
            &[Request::Key("network.mode")],
        ),
        _ => Change::by(format!(
            "to cut the jail off from every host: network.mode = \"isolated\" in {config}, or --set \
             network.mode=isolated for one run"
        )),
    };
    Explanation {
        subject: asked.to_owned(),
        real: None,
        // Nobody was asked.
        exists: true,
        verdict,
        why: Why::Rule {
            key: format!("network.mode `{mode}`"),
            source: network.source.clone(),
        },
        notes,
        change,
    }
}

/// A peer as a list of hosts has it.
fn entry(peer: &Peer) -> String {
    match peer {
        Peer::Host(Target { host, port }) | Peer::Loopback(Target { host, port }) => match port {
            Some(port) if ![80, 443].contains(port) => format!("{host}:{port}"),
            _ => host.to_string(),
        },
        Peer::Path(_) | Peer::Abstract => String::new(),
    }
}

/// How to have a host that the rules refuse.
fn of_refusal(refusal: &Refusal, peer: &Peer, ways: &Ways<'_>) -> Change {
    let key = match &refusal.cause {
        Cause::NotAllowed | Cause::Mail => "network.allow",
        Cause::NotPublic(..) => "network.private",
        Cause::Denied(_) | Cause::DeniedAddress(..) | Cause::Closed(_) => "network.deny",
    };
    let Some(hint) = refusal.hint() else {
        return Change::never("it cannot be given");
    };
    if let Some(forbidden) = forbidden(refusal, ways) {
        return forbidden;
    }
    match key {
        "network.deny" => Change::by(hint),
        key => Change::by(format!(
            "{hint} in {}, or {} for one run",
            ways.config,
            set_list(key, &entry(peer))
        )),
    }
}

/// That an enforced list forbids it.
fn forbidden(refusal: &Refusal, ways: &Ways<'_>) -> Option<Change> {
    let port = refusal.port.unwrap_or(USUAL_PORT);
    let mut layers = ways.policy.bounds.layers.iter();
    layers.find_map(|layer| {
        let network = &layer.network;
        if let Cause::Denied(by) | Cause::DeniedAddress(_, by) = &refusal.cause {
            let rule = |entry: &&Sourced<HostEntry>| {
                entry.source.to_string() == by.origin && entry.value.set() == by.set.as_deref()
            };
            let entry = network.deny.entries().iter().find(rule)?;
            return Some(Change::forbidden("network.deny", &entry.source));
        }
        let bounds = [
            ("network.allow", &network.allow),
            ("network.private", &network.private),
        ];
        bounds.into_iter().find_map(|(key, bound)| {
            let of_private = matches!(refusal.cause, Cause::NotPublic(..));
            if key == "network.private" && !of_private {
                return None;
            }
            let within = HostRules {
                allow: rules(bound.bound()?),
                ..HostRules::default()
            };
            let source = &bound.bounds()?.source;
            let allowed = within.judge(&refusal.host, port).is_ok();
            (!allowed).then(|| Change::forbidden(key, source))
        })
    })
}
