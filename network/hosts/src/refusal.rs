//! Why a host is not reached, in words.

use std::fmt;
use std::net::IpAddr;

use crate::address::AddressClass;
use crate::rule::{Host, Rule};

/// A host that is not reached, and why. Shown, it is one line without the change that would help; that is [`Refusal::hint`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Whom.
    pub host: Host,
    /// Where; none: its name was looked up.
    pub port: Option<u16>,
    /// Why.
    pub cause: Cause,
}

/// Why a host is not reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// A rule of `deny` names it.
    Denied(Box<Rule>),
    /// No rule of `allow` names it at this port.
    NotAllowed,
    /// Mail: a rule must name the port by itself.
    Mail,
    /// What it stands at is not public, and no rule of `private` names it.
    NotPublic(IpAddr, AddressClass),
    /// It stands at an address that a rule of `deny` names.
    DeniedAddress(IpAddr, Box<Rule>),
    /// One of the services that no rule opens.
    Closed(String),
}

impl Refusal {
    /// The change that would open it; none where no change does.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let Self { host, port, cause } = self;
        // Without a port the web's are meant.
        let entry = match port {
            None | Some(80 | 443) => host.to_string(),
            Some(port) => format!("{host}:{port}"),
        };
        match cause {
            Cause::Denied(by) | Cause::DeniedAddress(_, by) => {
                // Of a set nothing can be removed but all of it.
                let entry = by.set.clone().unwrap_or_else(|| by.rule.to_string());
                Some(format!(
                    "remove `{entry}` from network.deny ({})",
                    by.origin
                ))
            }
            Cause::NotAllowed | Cause::Mail => Some(format!("add `{entry}` to network.allow")),
            Cause::NotPublic(_, AddressClass::Unspecified | AddressClass::Multicast)
            | Cause::Closed(_) => None,
            Cause::NotPublic(..) => Some(format!("add `{entry}` to network.private")),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        f.write_str(" is not reached: ")?;
        match &self.cause {
            Cause::Denied(by) => write!(f, "{} in network.deny ({})", by.quoted(), by.origin),
            Cause::NotAllowed => f.write_str("nothing in network.allow names it"),
            Cause::Mail => {
                f.write_str("mail is closed unless network.allow names the port by itself")
            }
            Cause::NotPublic(address, class) => write!(f, "{address} is {class}"),
            Cause::DeniedAddress(address, by) => {
                write!(
                    f,
                    "its address {address}: {} in network.deny ({})",
                    by.quoted(),
                    by.origin
                )
            }
            Cause::Closed(what) => write!(f, "{what} is closed to every session"),
        }
    }
}

impl std::error::Error for Refusal {}
