//! Why something is not signed.

use std::fmt;

use crate::destination::Destination;
use crate::rules::Fingerprint;

/// Why.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The message cannot be read.
    Malformed,
    /// It asks for something that this agent does not do, by its number.
    Request(u8),
    /// It is no login: a commit, a file, a certificate.
    NotLogin,
    /// The client has not said to which host it connects.
    Unbound,
    /// The connection is bound already, or what it was to be bound by was refused.
    BoundOnce,
    /// Whoever asks is on the host, to which somebody forwards this agent.
    Forwarded,
    /// The host did not sign this session, or by a kind of key that is not known here.
    HostSignature,
    /// No host that is named has the key.
    UnknownHost(Fingerprint),
    /// It is a login in another session, or to another host, than the connection is bound to.
    OtherSession(Destination),
    /// The policy names another user of the host.
    User(Destination, String),
    /// The policy does not name this key of the user's.
    Key(Destination, Fingerprint),
    /// The kind of signature does not fit the key, or uses SHA-1.
    Algorithm(Destination),
}

impl Refusal {
    /// The host that it is about, if it is one that is named.
    #[must_use]
    pub fn destination(&self) -> Option<&Destination> {
        match self {
            Self::OtherSession(of) | Self::User(of, _) | Self::Key(of, _) | Self::Algorithm(of) => {
                Some(of)
            }
            _ => None,
        }
    }

    /// The change by which it would be signed, if there is one.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unbound => Some("use OpenSSH 8.9 or newer (ssh -V)"),
            Self::UnknownHost(_) => Some(
                "name the host in ssh.hosts, and connect to it once outside, so that ~/.ssh/known_hosts has its key",
            ),
            Self::User(..) => Some("name the user in ssh.hosts"),
            Self::Key(..) => Some("name the key in ssh.keys"),
            Self::NotLogin => Some("sign commits outside"),
            _ => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("the ssh agent got a message that it cannot read"),
            Self::Request(number) => {
                write!(f, "the ssh agent lists keys and signs logins, and was asked for something else (request {number})")
            }
            Self::NotLogin => {
                f.write_str("the ssh agent signs logins to hosts of ssh.hosts, and was asked to sign something else")
            }
            Self::Unbound => f.write_str(
                "the ssh agent signs nothing for a client that does not say to which host it connects",
            ),
            Self::BoundOnce => f.write_str("the ssh agent is asked about one session in each connection, and was asked about another"),
            Self::Forwarded => f.write_str("the ssh agent signs nothing for a host to which it is forwarded (ssh -A)"),
            Self::HostSignature => f.write_str("the ssh agent was shown a session that no host has signed"),
            Self::UnknownHost(key) => {
                write!(f, "the ssh agent signs nothing for the host with the key {key}, which is no key of a host in ssh.hosts")
            }
            Self::OtherSession(host) => {
                write!(f, "the ssh agent was asked for a login in another session than the one with {host}")
            }
            Self::User(host, user) => {
                write!(f, "the ssh agent signs no login of `{user}` to {host}: ssh.hosts names another user")
            }
            Self::Key(host, key) => write!(f, "the ssh agent does not use the key {key} for {host}: ssh.keys does not name it"),
            Self::Algorithm(host) => {
                write!(f, "the ssh agent makes no signature of the kind that {host} asks for (SHA-1, or not the key's own)")
            }
        }
    }
}
