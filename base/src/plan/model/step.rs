//! The steps by which the file system of a jail is built, each with its reason.

use std::fmt::{self, Write};
use std::path::PathBuf;

use serde::Serialize;

use crate::config::source::{Source, Sourced};

/// What is ours inside the jail stands below it, in a file system of its own that is read-only: it
/// cannot be renamed, and nothing else be put in its place.
pub const OWN: &str = "/run/agent-sandbox";

/// Where init stands inside the jail.
pub const INIT: &str = "/run/agent-sandbox/init";

/// Where agent-sandbox is found inside under its own name.
pub const NAMED: &str = "/run/agent-sandbox/bin/agent-sandbox";

/// What git starts inside in place of ssh, where nothing there can log in: agent-sandbox by another name.
pub const GIT_SSH: &str = "/run/agent-sandbox/bin/agent-sandbox-git-ssh";

/// Where a file that is standard input is bound read-only.
pub const INPUT: &str = "/run/agent-sandbox/input";

/// Bytes that a value takes, but for a few.
const ROOM: usize = 48;

/// Why something is in the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// A rule of the policy: its key and its place.
    Rule {
        /// The key and the value that decided: ``files.read `/usr` ``.
        key: String,
        /// Where it stands.
        source: Source,
    },
    /// Every jail has it.
    Every(&'static str),
}

impl Why {
    /// A rule, by its key and value.
    pub fn rule<T: fmt::Display>(key: &str, rule: &Sourced<T>) -> Self {
        // A plan has hundreds: with room from the start none is moved.
        let mut text = String::with_capacity(key.len() + ROOM);
        text.push_str(key);
        // To a string nothing fails.
        let _ = write!(text, " `{}`", rule.value);
        Self::Rule {
            key: text,
            source: rule.source.clone(),
        }
    }

    /// A key whose value needs no naming.
    pub fn key<T>(key: &str, rule: &Sourced<T>) -> Self {
        Self::Rule {
            key: key.to_owned(),
            source: rule.source.clone(),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { key, source } => write!(f, "{key} ({source})"),
            Self::Every(reason) => f.write_str(reason),
        }
    }
}

impl Serialize for Why {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What a bind gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Reading and executing.
    Read,
    /// Writing, too.
    Write,
}

/// One step of building the file system, in the order of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Mount {
    /// A path of the host.
    Bind {
        /// Its real path on the host.
        from: PathBuf,
        /// What may be done with it.
        access: Access,
        /// Device and inode that must be found there (init compares).
        #[serde(skip)]
        id: (u64, u64),
    },
    /// A writable directory of the jail's own that stays for later sessions of the project.
    Kept {
        /// Its path in the project's store, see `kept`.
        from: PathBuf,
        /// Device and inode that must be found there; none before it is made.
        #[serde(skip)]
        id: Option<(u64, u64)>,
    },
    /// A device node of the host.
    Device {
        /// Its path on the host.
        from: PathBuf,
    },
    /// An empty file system in memory.
    Tmpfs {
        /// Bytes that it may hold.
        size: u64,
        /// Mode of its root.
        mode: u32,
    },
    /// An empty directory on whatever is mounted there.
    Directory {
        /// Its mode.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// What it says.
        target: PathBuf,
    },
    /// A read-only file with this content.
    File {
        /// Its content.
        #[serde(skip)]
        content: Vec<u8>,
    },
    /// A read-only program with this content.
    Program {
        /// Its content.
        #[serde(skip)]
        content: Vec<u8>,
    },
    /// A private writable copy of a file.
    Copy {
        /// The file on the host.
        from: PathBuf,
        /// Its content.
        #[serde(skip)]
        content: Vec<u8>,
        /// Its mode.
        mode: u32,
    },
    /// Covers a hidden directory with an empty, read-only one.
    HideDirectory,
    /// Covers a hidden file below a writable directory with an empty, read-only one.
    HideFile,
    /// A fresh `/proc`.
    Proc,
    /// A minimal `/dev`.
    Dev,
}

impl Mount {
    /// Whether something can be written there.
    pub fn is_writable(&self) -> bool {
        match self {
            Self::Bind { access, .. } => *access == Access::Write,
            Self::Kept { .. }
            | Self::Device { .. }
            | Self::Tmpfs { .. }
            | Self::Copy { .. }
            | Self::Proc
            | Self::Dev => true,
            Self::Directory { .. } | Self::Link { .. } => false,
            Self::File { .. } | Self::Program { .. } => false,
            Self::HideDirectory | Self::HideFile => false,
        }
    }
}

/// A [`Mount`], its place inside, and its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Path inside the jail.
    pub at: PathBuf,
    /// What is put there.
    #[serde(flatten)]
    pub mount: Mount,
    /// Why.
    pub why: Why,
}
