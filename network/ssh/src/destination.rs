//! A host to which the user logs in, as a policy names it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use agent_sandbox_hosts::{Host, HostPattern, HostRule, Ports, RuleError};
use serde::{Deserialize, Serialize};

/// The port of ssh.
const SSH: u16 = 22;
/// The longest name of a user, in bytes.
const LONGEST_USER: usize = 64;

/// `[USER@]HOST[:PORT]`: one host, no pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Destination {
    /// As whom; `None`: as anybody.
    pub user: Option<String>,
    /// The host.
    pub host: Host,
    /// Where sshd listens.
    pub port: u16,
}

/// Why text is no destination. The caller shows the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// Of the host or its port.
    #[error(transparent)]
    Host(#[from] RuleError),
    /// `*`, `*.NAME` or several ports.
    #[error("it means several: name one host, and one port if it is not {SSH}")]
    Several,
    /// What stands before the `@`.
    #[error("what stands before its `@` is no name of a user")]
    User,
}

impl Destination {
    /// As files of known hosts name it (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT).
    #[must_use]
    pub fn known_name(&self) -> String {
        let host = match &self.host {
            Host::Name(name) => name.to_string(),
            Host::Address(address) => address.to_string(),
        };
        match self.port {
            SSH => host,
            port => format!("[{host}]:{port}"),
        }
    }

    /// Whether the policy lets somebody of this name log in.
    #[must_use]
    pub fn is_for_user(&self, user: &[u8]) -> bool {
        (self.user.as_ref()).is_none_or(|named| named.as_bytes() == user)
    }

    /// The rule that opens the way to it in a filtered network.
    #[must_use]
    pub fn rule(&self) -> HostRule {
        HostRule {
            host: match &self.host {
                Host::Name(name) => HostPattern::Name(name.clone()),
                Host::Address(address) => HostPattern::Address(*address),
            },
            ports: Ports::Named(self.port..=self.port),
        }
    }

    /// Whether this allows all that another asks for.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let users = self.user.is_none() || self.user == other.user;
        users && self.host == other.host && self.port == other.port
    }
}

impl FromStr for Destination {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Self, DestinationError> {
        let (user, host) = match text.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, text),
        };
        let plain = |user: &str| {
            let letters = |c: u8| c.is_ascii_alphanumeric() || b"-_.+".contains(&c);
            (1..=LONGEST_USER).contains(&user.len())
                && !user.starts_with('-')
                && user.bytes().all(letters)
        };
        if user.is_some_and(|user| !plain(user)) {
            return Err(DestinationError::User);
        }
        let rule: HostRule = host.parse()?;
        let host = match rule.host {
            HostPattern::Name(name) => Host::Name(name),
            HostPattern::Address(address) => Host::Address(address),
            HostPattern::Below(_) | HostPattern::Any => return Err(DestinationError::Several),
        };
        let port = match rule.ports {
            Ports::Unnamed => SSH,
            Ports::Named(range) if range.start() == range.end() => *range.start(),
            Ports::Named(_) | Ports::Web(_) => return Err(DestinationError::Several),
        };
        Ok(Self {
            user: user.map(str::to_owned),
            host,
            port,
        })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match (&self.host, self.port) {
            (Host::Address(IpAddr::V6(address)), SSH) => write!(f, "{address}"),
            (host, SSH) => write!(f, "{host}"),
            (host, port) => write!(f, "{host}:{port}"),
        }
    }
}

impl From<Destination> for String {
    fn from(destination: Destination) -> Self {
        destination.to_string()
    }
}

impl TryFrom<String> for Destination {
    type Error = DestinationError;

    fn try_from(text: String) -> Result<Self, DestinationError> {
        text.parse()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;

    #[test]
    fn one_host_and_who_may_log_in() {
        for (text, shown, known) in [
            ("github.com", "github.com", "github.com"),
            ("Git@GitHub.COM", "Git@github.com", "github.com"),
            ("github.com:22", "github.com", "github.com"),
            (
                "git@a.example.org:2222",
                "git@a.example.org:2222",
                "[a.example.org]:2222",
            ),
            ("127.0.0.1:2222", "127.0.0.1:2222", "[127.0.0.1]:2222"),
            ("[::1]:2222", "[::1]:2222", "[::1]:2222"),
            ("[2001:db8::1]", "2001:db8::1", "2001:db8::1"),
        ] {
            let one: Destination = text.parse().unwrap();
            assert_eq!(
                (one.to_string(), one.known_name()),
                (shown.into(), known.into())
            );
            assert_eq!(one.to_string().parse(), Ok(one), "{text}");
        }
        for text in [
            "",
            "@github.com",
            "a b@github.com",
            "-oProxyCommand=x@github.com",
            "a@b@github.com",
            "*",
            "*.github.com",
            "github.com:1-9",
            "github.com:0",
            "ssh://github.com",
            "github.com.",
            "-oProxyCommand=x",
            "a:b@github.com",
            "git@",
            "git@\0",
            "127.1",
        ] {
            assert!(text.parse::<Destination>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_bound_covers_what_asks_for_no_more() {
        let covers = |bound: &str, asked: &str| {
            let [bound, asked] = [bound, asked].map(|text| text.parse::<Destination>().unwrap());
            bound.covers(&asked)
        };
        assert!(covers("a.org", "a.org") && covers("a.org", "git@a.org"));
        assert!(covers("git@a.org", "git@a.org"));
        for (bound, asked) in [
            ("git@a.org", "a.org"),
            ("git@a.org", "root@a.org"),
            ("a.org", "b.org"),
            ("a.org", "a.org:2222"),
        ] {
            assert!(!covers(bound, asked), "{bound} {asked}");
        }
    }
}
