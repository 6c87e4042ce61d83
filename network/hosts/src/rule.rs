//! One entry of `network.allow`, `deny` or `private`: a host and its ports.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::name::{Name, NameFault};

/// Ports of a rule of `allow` that names none.
pub const WEB_PORTS: [u16; 2] = [80, 443];

/// Whom a program wants to reach.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Host {
    /// By name.
    Name(Name),
    /// By an address that nobody gave it for a name.
    Address(IpAddr),
}

/// The host of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// This name alone.
    Name(Name),
    /// `*.NAME`: all names below it, and not the name itself.
    Below(Name),
    /// This address; an IPv4-mapped one is the IPv4 address.
    Address(IpAddr),
    /// `*`: every name but `localhost`, and no bare address; in `deny` these, too.
    Any,
}

/// The ports of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ports {
    /// None named: in `allow` [`WEB_PORTS`], and there HTTP and TLS alone; in `deny` every port; in `private` every port
    /// that is allowed.
    Unnamed,
    /// Named, one or several, for whatever is spoken there.
    Named(RangeInclusive<u16>),
    /// One of [`WEB_PORTS`], and there HTTP and TLS alone: what a bound without ports leaves of a rule that names some. Nobody
    /// writes it.
    Web(u16),
}

/// How a rule of [`Ports::Web`] ends as it is shown and as it travels. No written rule has a blank.
const WEB_ALONE: &str = " (HTTP and TLS alone)";

/// A host and its ports, as they are written: `NAME`, `*.NAME`, `ADDRESS` or `*`, then `:PORT`, `:FIRST-LAST` or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostRule {
    /// Its host.
    pub host: HostPattern,
    /// Its ports.
    pub ports: Ports,
}

/// A rule, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// What it says.
    pub rule: HostRule,
    /// The set that has it, if it was not written by itself.
    pub set: Option<String>,
    /// File and line of the list's entry, as it is shown.
    pub origin: String,
}

impl Rule {
    /// The rule in quotes, with its set.
    #[must_use]
    pub fn quoted(&self) -> String {
        format!("`{}`{}", self.rule, self.of_set())
    }

    /// The set that has it, as words behind the rule; empty if there is none.
    #[must_use]
    pub fn of_set(&self) -> String {
        let set = self.set.as_ref();
        set.map(|set| format!(" of {set}")).unwrap_or_default()
    }
}

/// Why text is no rule. The caller shows the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Nothing.
    #[error("it is empty")]
    Empty,
    /// `https://…`, a path, or a network.
    #[error(
        "it is a URL, a path or a network: write a host, and a port if need be, as `example.org:8443`"
    )]
    Slash,
    /// `user@host`.
    #[error("it names a user: write the host alone")]
    Userinfo,
    /// `fe80::1%eth0`.
    #[error("it names a zone with `%`: addresses of one wire are not reached")]
    Zone,
    /// More than one colon outside of brackets.
    #[error(
        "it names two ports: one port, or `FIRST-LAST`; an IPv6 address with a port stands in brackets, `[2001:db8::1]:443`"
    )]
    TwoPorts,
    /// Brackets that hold no IPv6 address, or are not closed.
    #[error("brackets hold an IPv6 address, as `[2001:db8::1]:443`")]
    Brackets,
    /// Not 1 to 65535, or in the wrong order.
    #[error("its port must be a number from 1 to 65535, or `FIRST-LAST`")]
    Port,
    /// A `*` that is not the first label.
    #[error("`*` stands alone or before the first dot, as `*.example.org`")]
    Wildcard,
    /// The name.
    #[error(transparent)]
    Name(#[from] NameFault),
}

impl Ports {
    /// Whether a rule of `allow` opens a port.
    #[must_use]
    pub fn opens(&self, port: u16) -> bool {
        match self {
            Self::Unnamed => WEB_PORTS.contains(&port),
            Self::Named(range) => range.contains(&port),
            Self::Web(one) => *one == port,
        }
    }

    /// Whether HTTP and TLS alone pass.
    #[must_use]
    pub fn web_alone(&self) -> bool {
        matches!(self, Self::Unnamed | Self::Web(_))
    }

    /// Whether a rule of `deny` or `private` is about a port.
    pub(crate) fn concern(&self, port: u16) -> bool {
        *self == Self::Unnamed || self.opens(port)
    }

    fn parse(text: &str) -> Result<Self, RuleError> {
        let port = |text: &str| {
            let digits = text.bytes().all(|b| b.is_ascii_digit());
            match text.parse::<u16>() {
                Ok(port) if port > 0 && digits => Ok(port),
                _ => Err(RuleError::Port),
            }
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (port(first)?, port(last)?);
        if first > last {
            return Err(RuleError::Port);
        }
        Ok(Self::Named(first..=last))
    }
}

impl HostPattern {
    /// Whether it means a host. `any`: whether `*` means bare addresses and `localhost`, too.
    pub(crate) fn means(&self, host: &Host, any: bool) -> bool {
        match (self, host) {
            (Self::Name(of), Host::Name(name)) => of == name,
            (Self::Below(apex), Host::Name(name)) => name.is_below(apex),
            (Self::Address(of), Host::Address(address)) => *of == address.to_canonical(),
            (Self::Any, Host::Name(name)) => any || !name.is_localhost(),
            (Self::Any, Host::Address(_)) => any,
            _ => false,
        }
    }

    fn parse(text: &str) -> Result<Self, RuleError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        if let Some(apex) = text.strip_prefix("*.").filter(|apex| !apex.contains('*')) {
            return Ok(Self::Below(Name::parse(apex)?));
        }
        if text.contains('*') {
            return Err(RuleError::Wildcard);
        }
        match text.parse() {
            Ok(address) => Ok(Self::Address(address)),
            Err(_) => Ok(Self::Name(Name::parse(text)?)),
        }
    }
}

impl Host {
    /// A host that somebody asks about, as in a rule without wildcard and port.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        match text.parse::<HostRule>()? {
            HostRule {
                host: HostPattern::Name(name),
                ports: Ports::Unnamed,
            } => Ok(Self::Name(name)),
            HostRule {
                host: HostPattern::Address(address),
                ports: Ports::Unnamed,
            } => Ok(Self::Address(address)),
            HostRule {
                ports: Ports::Unnamed,
                ..
            } => Err(RuleError::Wildcard),
            HostRule { .. } => Err(RuleError::Port),
        }
    }
}

impl FromStr for HostRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        if text.is_empty() {
            return Err(RuleError::Empty);
        }
        for odd in text.chars() {
            match odd {
                '/' | '\\' | '?' | '#' => return Err(RuleError::Slash),
                '@' => return Err(RuleError::Userinfo),
                '%' => return Err(RuleError::Zone),
                odd if odd.is_control() || odd.is_whitespace() => {
                    return Err(NameFault::Character(odd).into());
                }
                _ => {}
            }
        }
        if let Some(rest) = text.strip_prefix('[') {
            let (address, rest) = rest.split_once(']').ok_or(RuleError::Brackets)?;
            let address: Ipv6Addr = address.parse().map_err(|_| RuleError::Brackets)?;
            let ports = match rest.strip_prefix(':') {
                Some(ports) => Ports::parse(ports)?,
                None if rest.is_empty() => Ports::Unnamed,
                None => return Err(RuleError::Brackets),
            };
            return Ok(Self {
                host: HostPattern::Address(IpAddr::V6(address).to_canonical()),
                ports,
            });
        }
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Ok(Self {
                host: HostPattern::Address(IpAddr::V6(address).to_canonical()),
                ports: Ports::Unnamed,
            });
        }
        let (host, ports) = match text.split_once(':') {
            Some((_, ports)) if ports.contains(':') => return Err(RuleError::TwoPorts),
            Some((host, ports)) => (host, Ports::parse(ports)?),
            None => (text, Ports::Unnamed),
        };
        Ok(Self {
            host: HostPattern::parse(host)?,
            ports,
        })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Below(apex) => write!(f, "*.{apex}"),
            Self::Address(address) => Host::Address(*address).fmt(f),
            Self::Any => f.write_str("*"),
        }
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.host.fmt(f)?;
        match &self.ports {
            Ports::Unnamed => Ok(()),
            Ports::Named(range) if range.start() == range.end() => write!(f, ":{}", range.start()),
            Ports::Named(range) => write!(f, ":{}-{}", range.start(), range.end()),
            Ports::Web(port) => write!(f, ":{port}{WEB_ALONE}"),
        }
    }
}

impl From<HostRule> for String {
    fn from(rule: HostRule) -> Self {
        rule.to_string()
    }
}

impl TryFrom<String> for HostRule {
    type Error = RuleError;

    fn try_from(text: String) -> Result<Self, RuleError> {
        let Some(written) = text.strip_suffix(WEB_ALONE) else {
            return text.parse();
        };
        let rule: Self = written.parse()?;
        match &rule.ports {
            Ports::Named(range)
                if range.start() == range.end() && WEB_PORTS.contains(range.start()) =>
            {
                let ports = Ports::Web(*range.start());
                Ok(Self { ports, ..rule })
            }
            _ => Err(RuleError::Port),
        }
    }
}
