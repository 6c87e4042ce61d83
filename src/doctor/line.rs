//! What one check says, and what all of them say together: data, the same in text and in JSON.

use serde::{Deserialize, Serialize};

/// How something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// A session starts, but without this, or with something weaker in its place.
    Degraded,
    /// No session starts because of this.
    Broken,
}

impl Status {
    /// The word that stands at the beginning of a line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Broken => "broken",
        }
    }
}

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// The kernel and its settings.
    Node,
    /// What makes the jail, tried.
    Jail,
    /// Directories of the user's and the node's.
    Files,
    /// The user's policy and the site's.
    Policy,
    /// Programs that people use with it.
    Tools,
    /// Slurm and the way to it.
    Slurm,
    /// The node's tracer.
    Trace,
}

impl Group {
    /// The heading.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Jail => "Jail",
            Self::Files => "Files",
            Self::Policy => "Policy",
            Self::Tools => "Tools",
            Self::Slurm => "Slurm",
            Self::Trace => "Trace",
        }
    }
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How it stands.
    pub status: Status,
    /// What was found: the same words wherever the same was found.
    pub found: String,
    /// What can be done, as a command or as words for whoever can; empty if nothing has to be.
    pub fix: String,
    /// How long it took, in milliseconds, where that says something.
    pub took: Option<u64>,
}

impl Finding {
    /// As it should be.
    pub fn ok(found: impl Into<String>) -> Self {
        Self::new(Status::Ok, found, "")
    }

    /// Weaker than it should be.
    pub fn degraded(found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(Status::Degraded, found, fix)
    }

    /// In the way of every session.
    pub fn broken(found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(Status::Broken, found, fix)
    }

    /// Any of them.
    pub fn new(status: Status, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            status,
            found: found.into(),
            fix: fix.into(),
            took: None,
        }
    }

    /// Says how long it took, in milliseconds.
    #[must_use]
    pub fn took(mut self, milliseconds: u64) -> Self {
        self.took = Some(milliseconds);
        self
    }
}

/// A finding under its name. These keys are an interface: scripts read them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// What it is about.
    pub group: Group,
    /// The check.
    pub name: String,
    /// How it stands.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What can be done; empty if nothing has to be.
    pub fix: String,
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub milliseconds: Option<u64>,
}

/// All that was found on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Examination {
    /// agent-sandbox's version.
    pub version: String,
    /// The node's name.
    pub node: String,
    /// Where agent-sandbox stands on it.
    pub executable: String,
    /// A sum over the merged policy; `None` if there is none. Two versions may sum differently.
    pub digest: Option<String>,
    /// Whether a session would start.
    pub starts: bool,
    /// What would make its jail: `bwrap` or `landlock`.
    pub backend: Option<String>,
    /// Why that, or why none would start.
    pub why: String,
    /// The checks, by group.
    pub checks: Vec<Line>,
    /// What people ask about and this version does not have.
    pub absent: Vec<String>,
    /// The node in a few words.
    #[serde(default)]
    pub parts: Parts,
}

/// What a node has, in a few words each, for a table. These keys are an interface: scripts read them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// The kernel's release.
    pub kernel: String,
    /// bubblewrap's version; `None`: there is none, or it does not say.
    pub bubblewrap: Option<String>,
    /// Landlock's ABI; 0: there is none.
    pub landlock: i32,
    /// Whether the caller can make user namespaces.
    pub user_namespaces: bool,
    /// The tracer's object, `none`, or `unfit`; `None`: it was not looked for.
    pub tracer: Option<String>,
    /// Whether a session with a filtered network starts; `None`: it was not tried.
    pub filter: Option<bool>,
}

impl Examination {
    /// Whether a session would start, and why, in one sentence.
    pub fn verdict(&self) -> String {
        let why = &self.why;
        match self.backend.as_deref() {
            Some("landlock") => format!("A session would start. Landlock makes its jail: {why}."),
            Some(_) => format!("A session would start. bubblewrap makes its jail: {why}."),
            None => format!("No session would start: {why}."),
        }
    }
}
