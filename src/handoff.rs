//! What the launcher and init say to each other. The order travels in a sealed memory file; the
//! rest as datagrams on a socket pair that only these two processes hold.

use serde::{Deserialize, Serialize};

/// No datagram is longer; the longest is a path in [`Report::Refused`].
pub const LONGEST_DATAGRAM: usize = 16 * 1024;

/// What init does, in this order.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// Mounts that must be what was planned.
    pub expect: Vec<Expect>,
    /// Current directory.
    pub cwd: Vec<u8>,
    /// The command and its arguments.
    pub argv: Vec<Vec<u8>>,
    /// `NAME=VALUE` entries.
    pub environment: Vec<Vec<u8>>,
    /// Where a command without a slash is looked for, in the form of `PATH`.
    pub search: Vec<u8>,
    /// A file that takes the place of standard input, at the same offset.
    pub input: Option<Vec<u8>>,
    /// `RLIMIT_NPROC`.
    pub max_processes: Option<u64>,
    /// Whether abstract sockets and signals are scoped with Landlock.
    pub landlock_scope: bool,
    /// The only places below which anything may be written, as Landlock sees to it; `None`: mounts
    /// alone decide.
    pub writable: Option<Vec<Vec<u8>>>,
}

/// A place inside that must show one certain file.
#[derive(Debug, Serialize, Deserialize)]
pub struct Expect {
    /// The place.
    pub path: Vec<u8>,
    /// Device and inode.
    pub id: (u64, u64),
    /// Whether the mount must be read-only.
    pub read_only: bool,
}

/// Init to launcher.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// The jail is as planned; the command is about to be started.
    Ready,
    /// Something is not as ordered; nothing was started. A sentence.
    Refused(String),
    /// The command could not be executed: `errno` for a path.
    NotExecuted {
        /// See `execve(2)`.
        errno: i32,
    },
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The command is over.
    Ended(End),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// It returned this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

impl End {
    /// The exit code that a shell would show (`bash(1)`, EXIT STATUS).
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => code.to_le_bytes()[0],
            Self::Signal(signal) => 128u8.saturating_add(signal.to_le_bytes()[0]),
        }
    }
}

/// Launcher to init.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Send this signal to the command.
    Signal(i32),
}
