//! A trail: one JSON object a line. The format is described in `docs/reference/trail.md`; fields are added,
//! never renamed or removed, within one [`VERSION`].

use serde::{Deserialize, Serialize};

/// The version of the format.
pub const VERSION: u32 = 1;

/// Stands where a secret stood.
pub const REDACTED: &str = "[redacted]";

/// No line is longer, in bytes, with its newline: whoever reads holds one in memory.
pub const LINE_BYTES: usize = 60_000;

/// One line of a trail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Counts the records of one trail on one node from 1, without a gap.
    pub seq: u64,
    /// Seconds since 1970-01-01 00:00 UTC.
    pub time: f64,
    /// Whose trail it is.
    #[serde(flatten)]
    pub trail: Trail,
    /// Events of this trail that were lost so far. When this grows, a record [`What::Lost`] says why.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What a trail is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Trail {
    /// The name of the node.
    pub node: String,
    /// Real user id of whoever it is about.
    pub uid: u32,
    /// The session's id; none for what is traced without a jail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Slurm's number of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u32>,
    /// The step: a number, `batch`, `extern` or `interactive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The trace's id on this node since the boot; also what `trace` without a session is asked for by.
    pub trace: u32,
}

/// What happened. Text that processes chose (paths, arguments, names) is escaped as [`crate::text`] does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// The first record of every trail, and of every file that goes on with one.
    Header(Header),
    /// A task came to be.
    Fork(Actor),
    /// A program was started.
    Exec(Exec),
    /// A process has ended.
    Exit(Exit),
    /// A file was opened, or was not.
    Open(Open),
    /// A connection, or a message to an address.
    Connect(Peer),
    /// Somebody listens.
    Listen(Peer),
    /// Something else that matters.
    Operation(Operation),
    /// Events were lost here.
    Lost(Lost),
    /// The tracer was away and has come back.
    Away(Away),
    /// The last record: all tasks have ended, or whoever asked for the trace has ended it.
    End(End),
}

/// What a trail says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
    pub version: u32,
    /// `trampolines` (fentry and LSM) or `tracepoints`, which sees less.
    pub object: String,
    /// The kernel's release.
    pub kernel: String,
    /// What cannot be seen here, a sentence each.
    pub blind: Vec<String>,
    /// The events that are recorded.
    pub events: Vec<String>,
    /// `off`, `audit` or `on`.
    pub enforce: String,
    /// Every Nth of the allowed opens is recorded.
    pub every: u32,
    /// Opens of what does not exist are recorded, too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub missing: bool,
    /// When the trail began, in seconds since 1970: the same in each of its files.
    #[serde(default)]
    pub began: f64,
    /// The command, if it was told; redacted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
}

/// The process that did it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The process, as the node numbers it.
    pub pid: u32,
    /// The thread, where it is another number; of several events that are one record, the first's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// The process's parent.
    pub ppid: u32,
    /// The thread's name (`comm`).
    pub comm: String,
    /// Id of the cgroup v2.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cgroup: u64,
    /// A kernel worker of the process's did it: `io_uring`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub worker: bool,
}

/// How it went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// `allowed`, `denied`, `failed` (there is no such file, for example), `would_deny`, or `not_run` (something
    /// else than the kernel answered, and the call has not run).
    pub verdict: String,
    /// Who denied: `permissions`, `security_module`, `tracer` or `seccomp` (who answered, too); none where nobody
    /// can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The error's name (`EACCES`), of what did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// So many events like this one within a second are in this record.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u64,
    /// What makes the record weaker than others: `unresolved` (a path as it was written), `from_user`
    /// (read from memory that the process can change), `truncated`, `tail` (outer directories are missing), `begun_before`
    /// (the trace began in the middle of the call: whether it ran is not known).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weak: Vec<String>,
}

/// A program was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// The process that did it.
    #[serde(flatten)]
    pub actor: Actor,
    /// The program.
    pub path: String,
    /// Its arguments, redacted.
    pub arguments: Vec<String>,
    /// How it went.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// It sets a user or group id.
    #[serde(default, skip_serializing_if = "is_false")]
    pub set_id: bool,
}

/// A process has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The process that did it.
    #[serde(flatten)]
    pub actor: Actor,
    /// Its exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The name of the signal that ended it (`SIGKILL`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
}

/// A file was opened, or was not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// The process that did it.
    #[serde(flatten)]
    pub actor: Actor,
    /// Its path, as the process sees it.
    pub path: String,
    /// `read`, `write`, `create`, `exclusive`, `truncate`, `append`, `execute`, `directory`, `temporary` (a file
    /// without a name), `path` (nothing can be read or written through it).
    pub access: Vec<String>,
    /// Whether the policy hides that path: inside, it is empty, or it does not exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// Its device, `major:minor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Its inode.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub inode: u64,
    /// How it went.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// A connection, or where somebody listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The process that did it.
    #[serde(flatten)]
    pub actor: Actor,
    /// `inet`, `inet6`, `unix`, `netlink`, `packet`, `vsock`, `alg` …, or the family's number.
    pub family: String,
    /// `stream`, `dgram`, `seqpacket`, `raw`, or the type's number.
    #[serde(rename = "socket")]
    pub kind: String,
    /// `127.0.0.1:80`, `[::1]:80`, `/path`, `@abstract`; empty where there is none.
    pub address: String,
    /// The host for which the address stands in a filtered network. No trail has it: who shows one may know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// How it went.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Something else that matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The process that did it.
    #[serde(flatten)]
    pub actor: Actor,
    /// One of [`crate::raw::OPERATIONS`].
    pub operation: String,
    /// What it is about, in words: `process 17, SIGKILL`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// A path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Another path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
    /// How it went.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Events were lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// So many, since the record before this one.
    pub more: u64,
    /// Why, as far as it is known.
    pub why: String,
}

/// The tracer was away: what happened meanwhile is here as far as the kernel's buffer held it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Away {
    /// For so long, in seconds, as far as it is known.
    pub seconds: f64,
    /// The time of the last record before, in seconds since 1970: from then on, what the tracer had read and
    /// not yet written (of a second and a quarter at most) is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<f64>,
}

/// The end of a trail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Why: `all tasks have ended`, `whoever asked has gone`, `the tracer stops`.
    pub why: String,
    /// Opens that were left out, because only every Nth is recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: u64,
}

fn one() -> u64 {
    1
}

fn is_one(number: &u64) -> bool {
    *number == 1
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(value: &bool) -> bool {
    !value
}
