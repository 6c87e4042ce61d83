//! All rules of a session, and what they say of a host, its port and its addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::address::{AddressClass, carried};
use crate::name::Name;
use crate::refusal::{Cause, Refusal};
use crate::rule::{Host, HostPattern, Ports, Rule, WEB_PORTS};

/// The resolver inside listens here, so that no rule does.
const NAMES_PORT: u16 = 53;
/// SMTP, SMTPS and submission. A range that holds one does not open it.
pub const MAIL_PORTS: [u16; 3] = [25, 465, 587];

/// Ports for which one session may have listeners: two descriptors for each port, of the 4,096 that most hosts allow a process.
pub const MOST_PORTS: usize = 1024;

/// A service that no rule opens: Slurm's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Where; none: at every address.
    pub address: Option<IpAddr>,
    /// The first and the last of its ports.
    pub ports: (u16, u16),
    /// What it is, as it is shown: `slurmctld`.
    pub what: String,
}

/// All rules of a session. None: nothing is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRules {
    /// Who is reached, at addresses that are public.
    pub allow: Vec<Rule>,
    /// Who is not. It wins.
    pub deny: Vec<Rule>,
    /// Who is reached at addresses that are not public, too: by name or by address. It allows as `allow` does.
    pub private: Vec<Rule>,
    /// Who is reached under no rule.
    pub closed: Vec<Endpoint>,
}

/// The rules name more ports than a session may listen at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("network.allow and network.private name {0} ports, and a session can have {MOST_PORTS}")]
pub struct TooManyPorts(pub usize);

impl HostRules {
    /// The rule that lets a session reach a host at a port. One that names the port comes before one that does not.
    ///
    /// # Errors
    /// Why it is not reached.
    pub fn judge(&self, host: &Host, port: u16) -> Result<&Rule, Refusal> {
        let refused = |cause| Refusal {
            host: host.clone(),
            port: Some(port),
            cause,
        };
        if let Some(closed) = self
            .closed
            .iter()
            .find(|e| e.address.is_none() && e.holds(port))
        {
            return Err(refused(Cause::Closed(closed.what.clone())));
        }
        let denies =
            |rule: &&Rule| rule.rule.host.means(host, true) && rule.rule.ports.concern(port);
        if let Some(by) = self.deny.iter().find(denies) {
            return Err(refused(Cause::Denied(Box::new(by.clone()))));
        }
        let opening = || self.naming(host).filter(|rule| rule.rule.ports.opens(port));
        if MAIL_PORTS.contains(&port) {
            let alone = Ports::Named(port..=port);
            let mut opening = opening().peekable();
            let cause = if opening.peek().is_some() {
                Cause::Mail
            } else {
                Cause::NotAllowed
            };
            return opening
                .find(|rule| rule.rule.ports == alone)
                .ok_or_else(|| refused(cause));
        }
        opening()
            .find(|rule| !rule.rule.ports.web_alone())
            .or_else(|| opening().next())
            .ok_or_else(|| refused(Cause::NotAllowed))
    }

    /// The rule for which a name is answered when it is looked up: it is reached at some port.
    ///
    /// # Errors
    /// Why it is not answered.
    pub fn judge_lookup(&self, name: &Name) -> Result<&Rule, Refusal> {
        let host = Host::Name(name.clone());
        let refused = |cause| Refusal {
            host: host.clone(),
            port: None,
            cause,
        };
        let denies =
            |rule: &&Rule| rule.rule.host.means(&host, true) && rule.rule.ports == Ports::Unnamed;
        if let Some(by) = self.deny.iter().find(denies) {
            return Err(refused(Cause::Denied(Box::new(by.clone()))));
        }
        self.naming(&host)
            .next()
            .ok_or_else(|| refused(Cause::NotAllowed))
    }

    /// Whether a host that is allowed is reached at one of its addresses: the rule of `private` that it takes, or none for a
    /// public address. `own`: whether the address is one of this host's own.
    ///
    /// # Errors
    /// Why it is not reached there.
    pub fn judge_address(
        &self,
        host: &Host,
        address: IpAddr,
        port: u16,
        own: bool,
    ) -> Result<Option<&Rule>, Refusal> {
        let address = carried(address);
        let refused = |cause| Refusal {
            host: host.clone(),
            port: Some(port),
            cause,
        };
        let closes =
            |e: &&Endpoint| e.holds(port) && e.address.is_none_or(|at| carried(at) == address);
        if let Some(closed) = self.closed.iter().find(closes) {
            return Err(refused(Cause::Closed(closed.what.clone())));
        }
        let at = Host::Address(address);
        let concerns =
            |rule: &&Rule, host| rule.rule.host.means(host, false) && rule.rule.ports.concern(port);
        if let Some(by) = self.deny.iter().find(|rule| concerns(rule, &at)) {
            return Err(refused(Cause::DeniedAddress(address, Box::new(by.clone()))));
        }
        let class = match AddressClass::of(address) {
            AddressClass::Public if own => AddressClass::OwnHost,
            AddressClass::Public => return Ok(None),
            class => class,
        };
        let permits = |rule: &&Rule| {
            // `*` would open everything that this list is about.
            rule.rule.host != HostPattern::Any && (concerns(rule, host) || concerns(rule, &at))
        };
        // No program means these: Linux takes the first for loopback, and nobody connects to the second.
        let never = matches!(class, AddressClass::Unspecified | AddressClass::Multicast);
        let by = self.private.iter().find(permits).filter(|_| !never);
        by.map(Some)
            .ok_or_else(|| refused(Cause::NotPublic(address, class)))
    }

    /// Whether a rule of `private` names a host at a port: it is meant to be near.
    #[must_use]
    pub fn is_private(&self, host: &Host, port: u16) -> bool {
        let names =
            |rule: &Rule| rule.rule.host != HostPattern::Any && rule.rule.host.means(host, false);
        let mut private = self.private.iter();
        private.any(|rule| names(rule) && rule.rule.ports.concern(port))
    }

    /// The ports at which the rules reach anybody: those that need listeners.
    ///
    /// # Errors
    /// They are too many.
    pub fn ports(&self) -> Result<BTreeSet<u16>, TooManyPorts> {
        let mut ports = BTreeSet::new();
        for rule in self.allow.iter().chain(&self.private) {
            match &rule.rule.ports {
                Ports::Unnamed => ports.extend(WEB_PORTS),
                Ports::Web(port) => ports.extend([*port]),
                Ports::Named(range) if range.start() == range.end() => ports.extend(range.clone()),
                Ports::Named(range) => {
                    let closed = |port: &u16| MAIL_PORTS.contains(port) || *port == NAMES_PORT;
                    ports.extend(range.clone().filter(|port| !closed(port)))
                }
            }
        }
        if ports.len() > MOST_PORTS {
            Err(TooManyPorts(ports.len()))
        } else {
            Ok(ports)
        }
    }

    /// The rules that allow a host at some port.
    fn naming<'a, 'h>(&'a self, host: &'h Host) -> impl Iterator<Item = &'a Rule> + use<'a, 'h> {
        let private = self
            .private
            .iter()
            .filter(|rule| rule.rule.host != HostPattern::Any);
        self.allow
            .iter()
            .chain(private)
            .filter(|rule| rule.rule.host.means(host, false))
    }
}

impl Endpoint {
    fn holds(&self, port: u16) -> bool {
        (self.ports.0..=self.ports.1).contains(&port)
    }
}
