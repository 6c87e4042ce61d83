//! An ssh agent for a jail that has no keys of its own: it asks the user's agent, outside, for signatures by which the user logs in
//! to hosts that the policy names, and for nothing else.
//!
//! What a client asks to be signed does not name the host. So a connection must first be bound to one: OpenSSH 8.9 and newer
//! send an agent the key with which the host signed the session's id, and that signature (`session-bind@openssh.com`). It is
//! verified here, the key must be one that the user's own files know for a host that is named, and what is signed then must be
//! a login in that session.
//!
//! Nothing that comes from inside goes on: a request is parsed into a type, judged, and written anew.

#![forbid(unsafe_code)]

#[cfg(feature = "agent")]
mod agent;
#[cfg(feature = "agent")]
mod connection;
mod destination;
#[cfg(feature = "agent")]
mod encoding;
#[cfg(feature = "agent")]
mod host_key;
mod known_hosts;
#[cfg(feature = "agent")]
mod login;
#[cfg(feature = "agent")]
mod message;
#[cfg(feature = "agent")]
mod pace;
#[cfg(feature = "agent")]
mod refusal;
#[cfg(feature = "agent")]
mod request;
mod rules;
#[cfg(feature = "agent")]
mod users_agent;

#[cfg(feature = "agent")]
pub use agent::{Agent, Event, MOST_CONNECTIONS, Sink, Verdict};
#[cfg(feature = "agent")]
pub use connection::{Connection, Permit};
pub use destination::{Destination, DestinationError};
#[cfg(feature = "agent")]
pub use encoding::Malformed;
pub use known_hosts::{KnownHosts, PublicKey, key_in};
#[cfg(feature = "agent")]
pub use message::LONGEST_MESSAGE;
#[cfg(feature = "agent")]
pub use refusal::Refusal;
#[cfg(feature = "agent")]
pub use request::Request;
pub use rules::{Fingerprint, KeyName, Keys, KnownHost, Rules};
