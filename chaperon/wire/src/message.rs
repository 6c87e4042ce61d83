//! Shim and chaperon. The shim opens the connection, sends a [`Call`] with its three standard
//! streams as descriptors, and then answers the chaperon's requests until it gets [`ToShim::End`].

use serde::{Deserialize, Serialize};

/// What the shim was called with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The name under which it was called, without directory.
    pub command: Vec<u8>,
    /// Its arguments, without the name.
    pub arguments: Vec<Vec<u8>>,
    /// The current directory inside the jail; empty if it was removed.
    pub cwd: Vec<u8>,
    /// `NAME=VALUE` entries.
    pub environment: Vec<Vec<u8>>,
    /// The file mode creation mask (`umask(2)`).
    pub umask: u32,
}

/// Shim to chaperon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromShim {
    /// The first message; standard input, output and error come with it as descriptors.
    Call(Call),
    /// The shim got this signal. `SIGWINCH` says that the terminal's size changed, `SIGTSTP` that
    /// the shim is about to stop, `SIGCONT` that it goes on.
    Signal(i32),
    /// A part of what [`ToShim::Fetch`] asked for.
    Content(#[serde(with = "serde_bytes")] Vec<u8>),
    /// All of it was sent.
    ContentEnds,
    /// What [`ToShim::Open`] asked for; comes with one descriptor.
    Opened,
    /// A file could not be read or opened, or a command not be started: an `errno`.
    Failed(i32),
    /// The command of [`ToShim::Run`] is over.
    RunEnded(End),
    /// What [`ToShim::Look`] asked about.
    Looked {
        /// The deepest directory on the way that exists, without symbolic links.
        directory: Vec<u8>,
        /// The next name on the way, which does not exist; empty: all of it exists.
        missing: Vec<u8>,
        /// Why the file, or one in that directory, cannot be written: an `errno`; 0: it can.
        refused: i32,
    },
}

/// Chaperon to shim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToShim {
    /// Read this inside the jail and send it, at most `most` bytes and one more.
    Fetch {
        /// What to read.
        source: Source,
        /// Bytes.
        most: u64,
    },
    /// Open this inside the jail and send the descriptor.
    Open {
        /// The path, relative to the current directory.
        path: Vec<u8>,
        /// For what.
        how: How,
    },
    /// Write this to a standard stream.
    Output {
        /// The stream.
        stream: Stream,
        /// The bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Run this inside the jail, as a child of the shim, with these entries (`NAME=VALUE`) set in
    /// the shim's environment; tell how it ended.
    Run {
        /// The command and its arguments; empty: the user's shell.
        argv: Vec<Vec<u8>>,
        /// `NAME=VALUE` entries.
        environment: Vec<Vec<u8>>,
    },
    /// The real command has stopped (`SIGTSTP`): stop as well. The shim waits a moment for the one that
    /// answers [`FromShim::Signal`] with `SIGTSTP`, and stops without it as well.
    Stopped,
    /// It is over: end the same way.
    End(End),
    /// Send this signal to the command of [`ToShim::Run`], if it still runs: what salloc does when
    /// its allocation ends first.
    Signal(i32),
    /// Tell whether a file could be written inside the jail. Nothing is made or changed.
    Look {
        /// Its directory, relative to the current directory.
        directory: Vec<u8>,
        /// Its name; `None`: it is not known yet.
        file: Option<Vec<u8>>,
    },
}

/// What to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Standard input, to its end.
    Input,
    /// A file, relative to the current directory.
    File(Vec<u8>),
}

/// How to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// For reading.
    Read,
    /// For writing, emptied first, created with mode 0666 less the umask.
    Truncate,
    /// For writing at the end, created likewise.
    Append,
}

/// A standard stream that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
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
    /// It returned 0.
    pub const SUCCESS: Self = Self::Code(0);
    /// It returned 1, as Slurm's commands do when they refuse.
    pub const FAILURE: Self = Self::Code(1);
}
