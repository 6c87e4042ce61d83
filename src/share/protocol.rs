//! What a task and the server of a step say to each other, and how it travels.

use super::join_socket::NodeJob;
use crate::failure::{self, Failure};
use crate::handoff::{Confinement, Mediated};
use crate::launch::JobRequest;
use crate::plan::model::trace::TraceRequest;
use crate::report;
use crate::sys::{fds, passing};
use agent_sandbox_hosts::Secret;
use agent_sandbox_wire::capsule::PolicySnapshot;
use agent_sandbox_wire::order::JobContext;
use anyhow::Result;
use nix::sys::socket::MsgFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use zeroize::Zeroizing;

/// How often, and how long, a message with descriptors waits for others to be taken: five seconds.
const MOST_ATTEMPTS: u32 = 2500;

/// See [`MOST_ATTEMPTS`].
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(2);

/// What a task and a server must have in common to understand each other.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// No message's text is longer, in bytes. What may be long travels in a memory file.
const LONGEST_TEXT: usize = 16 << 10;

/// No memory file that is read is longer, in bytes: an environment fits (`execve(2)`, 6 MiB at the
/// usual limits), a policy as well.
const LONGEST_FILE: u64 = 64 << 20;

/// From a member to the server, after the welcome: comes with the listener of the member's filter of
/// sockets.
pub const LISTENER: &[u8] = b"listener";

/// From the server to a member that leaves while others stay.
pub(super) const GO: &[u8] = b"go";

/// The head of the message that brings [`Hello`]: an empty message means that nobody is there.
pub(super) const HELLO: u8 = 1;

/// The first words of a connection, from whoever arrives.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`] of who speaks.
    pub version: String,
    /// The job.
    pub job: u32,
    /// The policy under which it runs.
    pub snapshot: PolicySnapshot,
    /// What is wanted.
    pub wants: Wants,
}

/// What is wanted of a server.
#[derive(Debug, Serialize, Deserialize)]
pub enum Wants {
    /// A task of this step wants to join it.
    Task {
        /// The environment for the inside, to be judged, `NAME=VALUE`.
        environment: Vec<Vec<u8>>,
    },
    /// The server of another step of the job wants to make it in the same jail.
    Step,
}

/// A server's answer.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Comes with a memory file, [`Terms`] or [`JailTerms`] as was asked for, a descriptor of the server's
    /// process, and those of `namespaces::Namespaces`.
    Welcome,
    /// Nothing can be shared.
    Refused(Refusal),
}

/// Why a server refuses, as its user is to be told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// What went wrong.
    pub message: String,
    /// Ways out, a sentence each.
    pub hints: Vec<String>,
    /// The exit code.
    pub code: u8,
}

impl Refusal {
    /// An error as a refusal. What is too long for a message is cut off.
    pub fn of(error: &anyhow::Error) -> Self {
        let (message, hints) = report::parts(error);
        let code = error
            .downcast_ref::<Failure>()
            .map_or(failure::FAILED, |failure| failure.code);
        let mut space = LONGEST_TEXT / 2;
        let mut fit = |text: String| {
            let mut end = space.min(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            space -= end;
            text[..end].to_owned()
        };
        Self {
            message: fit(message),
            hints: hints.into_iter().map(&mut fit).collect(),
            code,
        }
    }

    /// The refusal as the error that it was.
    pub fn into_error(self) -> anyhow::Error {
        let mut failure = Failure::new(self.message).code(self.code);
        failure.hints = self.hints;
        failure.into()
    }
}

/// On what terms a task joins.
#[derive(Debug, Serialize, Deserialize)]
pub struct Terms {
    /// The environment of its command, `NAME=VALUE`.
    pub environment: Vec<Vec<u8>>,
    /// Where a command without a slash is looked for.
    pub search: Vec<u8>,
    /// Where to go if the current directory cannot be entered.
    pub cwd_else: Vec<u8>,
    /// What every process of the jail submits to.
    pub restrictions: Restrictions,
    /// The filter under which sockets are made in the step's network namespace; `None`: Landlock
    /// keeps abstract sockets apart, or nothing has to.
    pub sockets: Option<Vec<u8>>,
    /// The filter whose calls a mediator answers, where sockets are made as ever: else it is one with
    /// that of sockets. `None`: there is no mediator, either.
    pub mediated: Option<Box<Mediated>>,
    /// What the user ought to know about this jail, to be said once.
    pub lacking: Vec<String>,
    /// The state directory, outside.
    pub state: Vec<u8>,
    /// What is asked of the node's tracer for each task.
    pub trace_request: Option<TraceRequest>,
}

/// What every process of a jail submits to, whoever starts it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Restrictions {
    /// The filter of system calls, compiled.
    pub filter: Vec<u8>,
    /// What it takes from itself.
    pub confinement: Confinement,
}

/// What the server of a step gets with the namespaces of a jail in which it makes that step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JailTerms {
    /// What every process of the jail submits to.
    pub restrictions: Restrictions,
    /// Whether the network that comes with it is filtered to the end of the job: by the filter of the batch script's
    /// step. That of another step ends with it.
    pub filtered_to_the_end: bool,
    /// The key behind the certificate of the filter that the jail's files of certificates have, if they have one.
    pub authority: Option<Secret>,
}

/// What the task of a step knows when it arrives.
pub struct Wanted {
    /// Where tasks of the job meet.
    pub place: NodeJob,
    /// The step.
    pub step: super::join_socket::StepId,
    /// The policy.
    pub snapshot: PolicySnapshot,
    /// What the jail is planned for, if this task is the first.
    pub asked: JobRequest,
    /// Whether the step is for several tasks.
    pub ranks: bool,
    /// The job, as Slurm told the task.
    pub job: JobContext,
}

/// The policy of two steps is one if their snapshots are. Whose session it was and what its user was
/// told already is no policy.
pub fn same_policy(one: &PolicySnapshot, other: &PolicySnapshot) -> Result<(), &'static str> {
    let differing = [
        ("the project directory", one.project == other.project),
        ("policy files or --set options", one.layers == other.layers),
        ("options of the command line", one.options == other.options),
        (
            "variables in paths of the policy",
            one.variables == other.variables,
        ),
    ];
    match differing.into_iter().find(|(_, same)| !same) {
        Some((what, _)) => Err(what),
        None => Ok(()),
    }
}

/// Sends a value in a sealed memory file, with descriptors after it.
///
/// # Errors
/// What `memfd_create(2)` or `sendmsg(2)` answer.
pub fn send<T: Serialize, H: Serialize>(
    connection: impl AsFd,
    head: &H,
    value: &T,
    also: &[BorrowedFd<'_>],
) -> io::Result<()> {
    const NAME: &CStr = c"agent-sandbox-share";
    let head = postcard::to_allocvec(head).map_err(io::Error::other)?;
    // It may be a key.
    let text = Zeroizing::new(postcard::to_allocvec(value).map_err(io::Error::other)?);
    let file = fds::memory_file(NAME, &text)?;
    let all: Vec<BorrowedFd<'_>> = [file.as_fd()]
        .into_iter()
        .chain(also.iter().copied())
        .collect();
    // Descriptors on their way are counted for each user (`unix(7)`, `ETOOMANYREFS`): many tasks at
    // once come near the limit, and each takes its own off the way soon.
    for _ in 0..MOST_ATTEMPTS {
        match passing::send_many(&connection, &head, &all) {
            Err(error) if error.raw_os_error() == Some(libc::ETOOMANYREFS) => {
                std::thread::sleep(BETWEEN_ATTEMPTS);
            }
            done => return done,
        }
    }
    passing::send_many(connection, &head, &all)
}

/// Receives a message: its head and its descriptors; `None` if the other side is gone.
///
/// # Errors
/// What `recvmsg(2)` answers; a head that cannot be understood.
pub fn receive<H: DeserializeOwned>(
    connection: impl AsFd,
    flags: MsgFlags,
) -> io::Result<Option<(H, Vec<OwnedFd>)>> {
    let mut buffer = vec![0; LONGEST_TEXT];
    let (length, descriptors) = passing::receive_many(connection, &mut buffer, flags)?;
    if length == 0 {
        return Ok(None);
    }
    let head = postcard::from_bytes(&buffer[..length]).map_err(io::Error::other)?;
    Ok(Some((head, descriptors)))
}

/// Reads a value out of a memory file.
///
/// # Errors
/// What `pread(2)` answers; a file that is not sealed, is too long or cannot be understood.
pub fn read<T: DeserializeOwned>(file: OwnedFd) -> io::Result<T> {
    let text = Zeroizing::new(fds::read_memory_file(file, LONGEST_FILE)?);
    postcard::from_bytes(&text).map_err(io::Error::other)
}
