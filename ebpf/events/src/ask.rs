//! What the launcher hands to the program that shows trails (`agent-sandbox-trail`): its first argument is
//! an [`Ask`] as JSON. The words of a command that is to be traced follow as they were typed, each an
//! argument of its own, for they need not be UTF-8 and may be longer than one argument may be.

use serde::{Deserialize, Serialize};

use crate::protocol::EventKind;

/// The program's name; it stands where the chaperon stands.
pub const PROGRAM: &str = "agent-sandbox-trail";

/// The version of this; both programs are installed together.
pub const VERSION: u32 = 3;

/// What was typed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// [`VERSION`].
    pub version: u32,
    /// The tracer's socket.
    pub socket: String,
    /// A directory of the user's that no jail sees, for what is kept.
    pub state: Option<String>,
    /// Data instead of text.
    pub json: bool,
    /// Nothing is said beside what is asked for.
    pub quiet: bool,
    /// Steps of traced sessions that ran without a trace: a report says them of its sessions.
    pub untraced: Vec<Untraced>,
    /// A report is of this user's trails alone.
    #[serde(default)]
    pub uid: Option<u32>,
    /// What is wanted.
    pub what: What,
}

/// A step of a traced session that no tracer took.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Untraced {
    /// The session's id.
    pub session: String,
    /// The job's number.
    pub job: u32,
    /// The step: a number, `batch`, `extern` or `interactive`.
    pub step: String,
    /// The node.
    pub node: String,
    /// Whose note that is, where root reads those of several users; none: of who asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// A live view.
    Watch {
        /// A session, a job or `trace:N`; none: the newest session.
        which: Option<String>,
    },
    /// A summary.
    Report {
        /// As above.
        which: Option<String>,
        /// As Markdown.
        markdown: bool,
    },
    /// A process tree that no jail holds.
    Trace(Trace),
}

/// What is traced, and how it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// What is traced.
    pub target: Target,
    /// Which events.
    pub events: Vec<EventKind>,
    /// Opens of what does not exist, too.
    pub missing: bool,
    /// A summary at the end instead of each event.
    pub report: bool,
    /// The file to which it is written; none: standard error.
    pub output: Option<String>,
}

/// What is traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// The command behind the first argument.
    Command,
    /// A process and its descendants.
    Process(u32),
    /// Everything in and below a cgroup v2, by its directory.
    Cgroup(String),
    /// A job of Slurm's on this node.
    Job(u32),
}
