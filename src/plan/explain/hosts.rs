//! Hosts: whom the jail can connect to. The network is the host's or none, so that the answer is one
//! for all of them, but for what stands on this host itself.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::change::{Change, Ways, Wish};
use super::{Explanation, Standing};
use crate::plan::model::{Plan, Why};
use crate::policy::NetworkMode;

/// No name of a host is longer (RFC 1035, section 2.3.4).
const LONGEST_NAME: usize = 253;

/// Somebody to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A local socket with a name in the file system.
    Path(PathBuf),
    /// A local socket with an abstract name (`unix(7)`).
    Abstract,
    /// This host, by its loopback.
    Loopback,
    /// Any other host, or this one by its name.
    Host,
}

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
    if port.is_some_and(|port| !matches!(port.parse::<u16>(), Ok(1..))) {
        return wrong("a port is a number from 1 to 65535");
    }
    if let Ok(address) = name.parse::<IpAddr>() {
        let local = address.is_loopback() || address.is_unspecified();
        return Ok(if local { Peer::Loopback } else { Peer::Host });
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(plain) {
        return wrong("a name has letters, digits, `-`, `_` and `.`, and at most 253 of them");
    }
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    // RFC 6761, section 6.3.
    let local = name == "localhost" || name.ends_with(".localhost");
    Ok(if local { Peer::Loopback } else { Peer::Host })
}

/// What decides whom the jail reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// Whether the network is one of the jail's own.
    pub isolated: bool,
    /// Whether the kernel keeps the jail from abstract sockets of the host.
    pub scoped: bool,
}

impl Reach {
    /// Of a plan.
    pub fn of_plan(plan: &Plan) -> Self {
        Self {
            isolated: plan.network.value == NetworkMode::Isolated,
            scoped: plan.landlock_scope,
        }
    }

    /// The verdict about a peer that is no path, and what there is to know.
    pub fn of(self, peer: &Peer) -> (Standing, Vec<&'static str>) {
        match peer {
            Peer::Abstract if self.isolated => (
                Standing::Unreachable,
                vec!["abstract sockets belong to a network, and the jail has its own"],
            ),
            Peer::Abstract if self.scoped => (
                Standing::Unreachable,
                vec!["Landlock keeps the jail from abstract sockets that were made outside"],
            ),
            Peer::Abstract => (
                Standing::Reachable,
                vec![
                    "this kernel cannot keep the jail from abstract sockets of the host (Linux 6.12 can)",
                ],
            ),
            Peer::Loopback if self.isolated => (
                Standing::Unreachable,
                vec!["the jail has a loopback of its own: it reaches what was started inside"],
            ),
            Peer::Loopback => (
                Standing::Reachable,
                vec!["this host's own loopback: services of other users on this node, too"],
            ),
            Peer::Host | Peer::Path(_) if self.isolated => (Standing::Unreachable, Vec::new()),
            Peer::Host | Peer::Path(_) => (
                Standing::Reachable,
                vec![
                    "as from outside: firewalls and proxies are as they are there; the name was not looked up",
                ],
            ),
        }
    }
}

/// Explains a peer that is no path. `asked` is how it was written.
pub fn explain(plan: &Plan, asked: &str, peer: &Peer, ways: &Ways<'_>) -> Explanation {
    let (standing, notes) = Reach::of_plan(plan).of(peer);
    let network = &plan.network;
    let mode = if Reach::of_plan(plan).isolated {
        "isolated"
    } else {
        "open"
    };
    let kept_by_kernel = standing == Standing::Unreachable && mode == "open";
    let config = ways.config;
    let change = match standing {
        _ if kept_by_kernel => Change::never(
            "it cannot be given: an abstract socket has no owner and no mode, and any of the host's would be open",
        ),
        Standing::Unreachable => ways.unless_forbidden(
            format!("network.mode = \"open\" in {config}, or --set network.mode=open for one run"),
            &[Wish::Key("network.mode")],
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
        standing,
        why: Why::Rule {
            key: format!("network.mode `{mode}`"),
            source: network.source.clone(),
        },
        notes: notes.into_iter().map(str::to_owned).collect(),
        change,
    }
}
