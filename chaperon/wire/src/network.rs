//! Launcher to the filter of a session's network: its order in a sealed memory file, then its sockets, one a message, on a
//! socket of messages that both keep: it ends with the launcher.

use agent_sandbox_hosts::HostRules;
use serde::{Deserialize, Serialize};

/// What the filter is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NetworkOrder {
    /// The session's id.
    pub session: String,
    /// The directory of records. No jail can write it.
    pub state: Vec<u8>,
    /// To whom it leads.
    pub rules: HostRules,
    /// Whether it says on the session's standard error what it refuses, once for each host.
    pub tells: bool,
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
}

impl SocketOf {
    /// Of a message.
    pub fn read(message: &[u8]) -> Option<Self> {
        match message {
            b"u" => Some(Self::Names),
            b"t" => Some(Self::NamesByStream),
            b"c" => Some(Self::Connections),
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

/// The message behind the last socket.
pub const COMPLETE: u8 = b'.';
/// The filter's answer: it filters. Anything else is a sentence: what keeps it from that.
pub const READY: u8 = b'r';
