//! What one asks the tracer over its unix socket (`SOCK_SEQPACKET`), and what it answers.
//!
//! Each packet is one [`Request`] or one [`Response`]. The tracer knows who asks by the socket
//! (`SO_PEERCRED`, `unix(7)`), never by what it is told.

use serde::{Deserialize, Serialize};

use crate::audit::Handed;
use crate::mark::DIGEST;
use crate::raw::Kind;

/// Where the tracer listens, if the policy does not say otherwise.
pub const SOCKET: &str = "/run/agent-sandbox/tracer.sock";

/// The version of this conversation; another one is refused.
pub const VERSION: u32 = 3;

/// The longest packet, in bytes.
pub const PACKET_BYTES: usize = 65536;

/// As many descriptors travel with one packet at most (`SCM_MAX_FD` is 253).
pub const DESCRIPTORS: usize = 250;

/// So many files are opened by one [`Request::Open`]. What nobody has received yet counts against the limit of root's
/// descriptors, of which each connection may have so many.
pub const OPENED: usize = 8;

/// What one asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Trace processes of mine. Is answered by [`Response::Registered`].
    Register(Box<Register>),
    /// More of what is forbidden for the trace that this connection has registered: descriptors come along,
    /// at most [`DESCRIPTORS`], of directories and files, by `O_PATH`: what is opened is not taken. Is answered by
    /// [`Response::Forbidden`].
    Forbid {
        /// [`VERSION`].
        version: u32,
    },
    /// All is said: events flow and denials hold from here on. Is answered by [`Response::Done`].
    Begin,
    /// End the trace that this connection has registered, if it is [`Lifetime::Connection`].
    End,
    /// Which files of trails there are: everybody gets their own, root gets all. Answered by [`Response::Files`].
    Files {
        /// [`VERSION`].
        version: u32,
        /// Of which trails. A name can only rule a file out: whose it is, its records say.
        which: Which,
        /// Those behind this one: its user and its name.
        after: Option<(u32, String)>,
    },
    /// Such files to be read, at most [`OPENED`]: their users and names. Answered by [`Response::Opened`].
    Open {
        /// [`VERSION`].
        version: u32,
        /// The files.
        files: Vec<(u32, String)>,
    },
    /// How the tracer is. Answered by [`Response::Status`].
    Status {
        /// [`VERSION`].
        version: u32,
    },
    /// Something for root's audit record, from outside of every jail. Is answered by [`Response::Done`].
    Audit(Box<Handed>),
    /// Sign a batch script for this session of mine, which must be traced. Answered by [`Response::Marked`].
    Mark {
        /// [`VERSION`].
        version: u32,
        /// The session.
        session: String,
        /// The cluster that the job is for.
        cluster: String,
        /// SHA-256 of the script.
        script: [u8; DIGEST],
    },
}

/// Which trails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Which {
    /// All.
    All,
    /// A session and its jobs: its id.
    Session(String),
    /// A job and its steps: Slurm's number.
    Job(u32),
    /// A trace by its id on this node.
    Trace(u32),
}

/// A trace that begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// [`VERSION`].
    pub version: u32,
    /// The session's id, which becomes part of a file's name: at most 64 letters, digits, `.`, `_`, `-`, and
    /// no dot at its beginning. None for what is traced without a jail.
    pub session: Option<String>,
    /// Slurm's number of the job.
    pub job: Option<u32>,
    /// The step: a number, `batch`, `extern` or `interactive`.
    pub step: Option<String>,
    /// The command, for the header; redacted by the tracer as arguments are.
    pub command: Vec<String>,
    /// What is traced.
    pub scope: Scope,
    /// What is recorded.
    pub events: Vec<EventKind>,
    /// Every Nth of the allowed opens is recorded; 0 and 1: all.
    pub every: u32,
    /// Opens of what does not exist, too.
    pub missing: bool,
    /// What the policy hides: opens of it are recorded and marked also where `missing` is not set.
    pub hidden: Vec<HiddenNames>,
    /// Patterns of arguments that are secrets, beside the tracer's own.
    pub redact: Vec<String>,
    /// The second layer. What it denies it denies only tasks that cannot gain privileges
    /// (`PR_SET_NO_NEW_PRIVS`), as a caller could make a set-user-id program fail otherwise.
    pub enforce: Enforce,
    /// The second layer: no connection to the internet.
    pub no_internet: bool,
    /// The second layer: no new user namespace.
    pub no_user_namespace: bool,
    /// When it ends.
    pub lifetime: Lifetime,
}

/// Names in a directory that a policy hides, with all that lies below them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenNames {
    /// The directory, absolute and without symbolic links.
    pub directory: String,
    /// Names in it, or patterns of names ([`crate::pattern::glob`]).
    pub names: Vec<String>,
}

/// A [`Kind`] that travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// [`Kind::Fork`].
    Fork,
    /// [`Kind::Exec`].
    Exec,
    /// [`Kind::Exit`].
    Exit,
    /// [`Kind::Open`].
    Open,
    /// [`Kind::Connect`].
    Connect,
    /// [`Kind::Listen`].
    Listen,
    /// [`Kind::Operation`].
    Operation,
}

impl From<EventKind> for Kind {
    fn from(kind: EventKind) -> Kind {
        match kind {
            EventKind::Fork => Kind::Fork,
            EventKind::Exec => Kind::Exec,
            EventKind::Exit => Kind::Exit,
            EventKind::Open => Kind::Open,
            EventKind::Connect => Kind::Connect,
            EventKind::Listen => Kind::Listen,
            EventKind::Operation => Kind::Operation,
        }
    }
}

/// Which processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// This process with all its threads, and what it starts from now on. As the caller's pid namespace
    /// numbers it, which must be the initial one. It must be of the caller's user.
    pub process: Option<u32>,
    /// With what it has started before.
    pub descendants: bool,
    /// Everything in and below a cgroup v2: its id (the inode number of its directory). Its directory must be
    /// the caller's, or the caller's process or `process` must be in it. Of that only tasks of one user are
    /// recorded: of the caller; if that is root, of the user of `process`, or of the directory's owner.
    pub cgroup: Option<u64>,
}

/// The second layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Enforce {
    /// Nothing is denied.
    Off,
    /// What would be denied is recorded.
    Audit,
    /// What is forbidden is denied.
    On,
}

/// When a trace ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifetime {
    /// When all its tasks have ended. Nothing ends it before: no request, and not that the connection is
    /// closed.
    Tasks,
    /// When the connection is closed. A trace of tasks that begins in it takes its tasks along.
    Connection,
}

/// What the tracer answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Response {
    /// It is known. Nothing is recorded before [`Request::Begin`].
    Registered {
        /// The trace's id. A task of a step whose other tasks are traced, with the same events and the same second
        /// layer, joins their trace, at [`Request::Begin`] at the latest.
        trace: u32,
        /// What cannot be seen or denied here, a sentence each.
        blind: Vec<String>,
    },
    /// Done.
    Done,
    /// What came along is forbidden, as far as the probes can know it again.
    Forbidden {
        /// So many of the descriptors.
        taken: u32,
        /// Why others are not, a sentence for each reason.
        blind: Vec<String>,
    },
    /// Files, by user and name; none: there are no more.
    Files(Vec<TrailFile>),
    /// For each file that was asked for, whether it is there. The descriptors of those that are come along, in their
    /// order. They can only be read: the files belong to root and nobody else may open them.
    Opened(Vec<bool>),
    /// How the tracer is.
    Status(Box<Status>),
    /// It is refused.
    Refused {
        /// The reason.
        why: String,
        /// What to do instead.
        hint: Option<String>,
    },
    /// The script's mark, as [`crate::mark::Mark`] writes it.
    Marked(String),
}

/// A file with records of one trail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrailFile {
    /// Real user id of whoever it is about.
    pub uid: u32,
    /// Its name.
    pub name: String,
    /// When something was added to it last, in seconds since 1970.
    pub modified: i64,
    /// Whether its trail goes on in it; none if another node writes it.
    pub live: Option<bool>,
}

/// How the tracer is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// The kernel's release.
    pub kernel: String,
    /// `trampolines` or `tracepoints`.
    pub object: String,
    /// Whether denials hold here, which was tried.
    pub enforces: bool,
    /// What cannot be seen or denied here, a sentence each.
    pub blind: Vec<String>,
    /// What the self-test proved, a line each.
    pub proved: Vec<String>,
    /// Traces that go on.
    pub traces: u32,
    /// Events since it started.
    pub events: u64,
    /// Events that were lost since it started.
    pub lost: u64,
    /// Where the trails are kept.
    pub records: String,
    /// What goes wrong: records that cannot be written, a journal that does not take them.
    pub trouble: Vec<String>,
}
