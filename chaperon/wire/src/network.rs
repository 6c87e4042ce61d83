//! Launcher to the filter of a session's network: its order in a sealed memory file, then its sockets, one a message, on a
//! socket of messages that both keep: it ends with the launcher.

use agent_sandbox_hosts::{Credential, HostRules, Name, Secret};
use serde::{Deserialize, Serialize};

/// What the filter is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NetworkOrder {
    /// The session's id.
    pub session: String,
    /// The directory of records. No jail can write it.
    pub state: Vec<u8>,
    /// The socket of the node's tracer, which keeps a record of root's; `None`: none stood by.
    pub tracer: Option<Vec<u8>>,
    /// To whom it leads.
    pub rules: HostRules,
    /// Credentials whose values it puts in place of their placeholders.
    pub credentials: Vec<Credential>,
    /// The hosts of all credentials, also of such as have no value here: for these the filter's certificate vouches.
    pub vouches: Vec<Name>,
    /// The key behind the certificate that is known in the jail already, where a filter is not the first of its jail.
    pub authority: Option<Secret>,
    /// The certificates, as PEM, by which the hosts of credentials are known; empty without credentials.
    pub trusted: Vec<u8>,
    /// The site's proxies.
    pub proxies: SiteProxies,
    /// Whether it says on the session's standard error what it refuses, once for each host.
    pub tells: bool,
    /// The job and the step of it in whose jail this network is, if it is in one.
    pub step: Option<(u32, String)>,
    /// The credentials of the session that are not exchanged here.
    pub kept: Vec<KeptCredential>,
}

/// A credential that stays a placeholder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeptCredential {
    /// Which, and why: a sentence, to be recorded.
    pub why: String,
    /// Whether the user is told as well.
    pub told: bool,
}

/// Values of the variables of these names, as the launcher has them; empty: it has none. There may be a password in them.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct SiteProxies {
    /// `http_proxy`: for port 80.
    pub http: String,
    /// `https_proxy`: for other ports.
    pub https: String,
    /// `all_proxy`: for both, where they have none of their own.
    pub all: String,
    /// `no_proxy`: who is reached without.
    pub none: String,
}

impl std::fmt::Debug for SiteProxies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SiteProxies")
    }
}

/// What the socket is for that comes with a message; the message is this byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SocketOf {
    /// Questions for names, as datagrams.
    Names = b'u',
    /// Questions for names, as streams.
    NamesByStream = b't',
    /// Connections to a port.
    Connections = b'c',
    /// The mediator's, on which it leads connections here ([`crate::led`]).
    Led = b'l',
}

impl SocketOf {
    /// Of a message.
    pub fn read(message: &[u8]) -> Option<Self> {
        match message {
            b"u" => Some(Self::Names),
            b"t" => Some(Self::NamesByStream),
            b"c" => Some(Self::Connections),
            b"l" => Some(Self::Led),
            _ => None,
        }
    }
}

/// The message with other rules, in a sealed memory file; behind it stands in words what has changed. Sockets for ports that had
/// none come before it. The filter answers [`READY`].
pub const RULES: u8 = b'n';
/// The message that a change was not made, and behind it why. It has no answer.
pub const UNCHANGED: u8 = b'x';
/// Bytes of the words in such messages.
pub const LONGEST_WORDS: usize = 4096;

/// What somebody outside asks of a running session, on its socket: entries of `network.allow`, until it ends. The answer is a
/// `Result<(), String>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowRequest {
    /// As they are written in a policy.
    pub hosts: Vec<String>,
}

/// The message with the listener of a port that is forwarded, from the launcher to the process that forwards: the port.
pub fn forwarded(port: u16) -> [u8; 2] {
    port.to_be_bytes()
}

/// The port of such a message.
pub fn read_forwarded(message: &[u8]) -> Option<u16> {
    message.try_into().map(u16::from_be_bytes).ok()
}

/// The message behind the last socket.
pub const COMPLETE: u8 = b'.';
/// What the filter's first message begins with where credentials are exchanged: behind it stands, as PEM, the certificate by which
/// programs inside know the filter.
pub const CERTIFICATE: u8 = b'p';
/// What the message begins with that follows in a job: behind it stands the key of that certificate, for filters of steps that
/// share the jail.
pub const AUTHORITY: u8 = b'k';
/// The filter's answer: it filters. Anything else is a sentence: what keeps it from that.
pub const READY: u8 = b'r';
