//! What the launcher and init say to each other. The order travels in a sealed memory file; the
//! rest as datagrams on a socket pair that only these two processes hold.

use serde::{Deserialize, Serialize};

/// No datagram is longer; the longest is a path in [`Report::Refused`].
pub const LONGEST_DATAGRAM: usize = 16 * 1024;

/// What init does, in this order.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// Whether the launcher has to finish the mounts before anything else: init lends it the mount
    /// namespace ([`Report::Unfinished`]), and waits for [`Request::Go`].
    pub unfinished: bool,
    /// Mounts that must be what was planned.
    pub expect: Vec<Expect>,
    /// A file that takes the place of standard input, at the same offset.
    pub input: Option<Vec<u8>>,
    /// Where listening sockets are made, whose descriptors go to the launcher.
    pub sockets: Vec<(Service, Vec<u8>)>,
    /// The command; `None`: init keeps the jail for processes that join it, until its launcher
    /// is gone.
    pub run: Option<Run>,
}

/// What answers outside on a socket of the jail's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Service {
    /// The chaperon.
    Slurm,
    /// The ssh agent.
    SshAgent,
}

/// A command, and how the process that becomes it confines itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Current directory.
    pub cwd: Vec<u8>,
    /// Where to go if the current directory cannot be entered; `None`: that is an error.
    pub cwd_else: Option<Vec<u8>>,
    /// The command and its arguments.
    pub argv: Vec<Vec<u8>>,
    /// `NAME=VALUE` entries.
    pub environment: Vec<Vec<u8>>,
    /// Where a command without a slash is looked for, in the form of `PATH`.
    pub search: Vec<u8>,
    /// What it may not do beyond what the jail keeps from it.
    pub confinement: Confinement,
    /// `umask(2)`; `None`: as it comes.
    pub umask: Option<u32>,
    /// Files behind the standard streams.
    pub streams: Streams,
    /// Whether Slurm started the launcher: signals may then reach the command from Slurm as well as
    /// through the launcher, and a file of unknown format is not handed to a shell.
    pub by_slurm: bool,
    /// The number of a descriptor that the command gets beside the standard streams: the socket on
    /// which Slurm speaks PMI.
    pub pmi: Option<i32>,
    /// Whether [`Request::Go`] is waited for, behind [`Report::Held`], before a path is opened that was chosen
    /// inside, and before the command is executed.
    pub held: bool,
    /// Whether the jail's network namespace is lent with [`Report::Held`]: the launcher has it filtered.
    pub lends_network: bool,
    /// The private home, if it is to be told what was installed there and goes with it.
    pub home: Option<Vec<u8>>,
}

/// What a command's process takes from itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// `RLIMIT_NPROC`.
    pub max_processes: Option<u64>,
    /// Whether signals are scoped with Landlock.
    pub scoped_signals: bool,
    /// Whether abstract sockets are. Not where another process makes the sockets: Landlock would take
    /// them for that process's, which is outside.
    pub scoped_sockets: bool,
    /// The only places below which anything may be written, as Landlock sees to it; `None`: mounts
    /// alone decide.
    pub writable: Option<Vec<Vec<u8>>>,
    /// The filter that hands the calls over of which a mediator outside knows ids that the jail's user
    /// namespace lacks; `None`: there is no mediator, or the process has such a filter already.
    pub mediated: Option<Box<Mediated>>,
    /// The only places below which directories can be listed, as Landlock sees to it; `None`: everywhere.
    pub listed: Option<Vec<Vec<u8>>>,
    /// What it takes of itself in place of limits for the whole jail.
    pub least: Option<Least>,
    /// Whether it is watched, and how; it takes nothing from the command.
    pub watch: Option<Box<Watch>>,
}

/// What a process takes of itself, and so of each that it starts, where the jail has no cgroup of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Least {
    /// `RLIMIT_DATA`, in bytes: heap and private mappings that can be written. `RLIMIT_AS` would count what programs reserve
    /// and never use (Java, Node, Go).
    pub data: Option<u64>,
    /// By how much its nice value grows.
    pub nicer: Option<i32>,
    /// Whether it has the lowest priority of all that want the disk, which is none of the idle class's.
    pub idle_disk: bool,
}

/// The programs of a filter that a mediator answers, see `backend::bubblewrap::mediated`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mediated {
    /// Hands calls over.
    pub handing_over: Vec<u8>,
    /// The same, and those that make local sockets.
    pub with_sockets: Vec<u8>,
    /// Refuses what must not be the kernel's to judge, where no filter can hand over.
    pub refusing: Vec<u8>,
}

/// How a command is watched, so that a profile can be written of what it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// The filter that hands its calls over to the launcher, which lets the kernel go on with them;
    /// `None` where the kernel cannot, or another filter hands calls over already.
    pub program: Option<Vec<u8>>,
    /// The private home, where what is left in it at the end is looked at.
    pub home: Vec<u8>,
}

/// Files behind the standard streams, as paths inside the jail. The process that becomes the
/// command opens them, with no more rights than the command has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streams {
    /// Standard input; `None`: as it comes.
    pub input: Option<Vec<u8>>,
    /// Standard output; `None`: as it comes.
    pub output: Option<Vec<u8>>,
    /// Standard error.
    pub error: ErrorStream,
    /// Whether files are appended to instead of emptied.
    pub append: bool,
}

/// Where standard error leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorStream {
    /// Where it leads already.
    #[default]
    AsItComes,
    /// Into the file behind standard output.
    WithOutput,
    /// Into this file.
    File(Vec<u8>),
}

impl Streams {
    /// Whether any stream leads to a file.
    pub fn any(&self) -> bool {
        *self
            != Self {
                append: self.append,
                ..Self::default()
            }
    }
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
    /// Comes with the descriptor of init's mount namespace, first of all, if so ordered.
    Unfinished,
    /// The jail is there, and what becomes the command has confined itself: it goes on at [`Request::Go`]. If so ordered, it
    /// comes with the descriptor of init's network namespace.
    Held,
    /// The jail is as planned; the command is about to be started.
    Ready,
    /// Comes with the descriptor of a listening socket, before [`Self::Ready`].
    Listening(Service),
    /// Comes with the descriptors of init's user, ipc, uts, mount, pid and network namespaces, in
    /// this order, before [`Self::Ready`]; from an init that runs no command.
    Namespaces,
    /// Comes with the listener of the filter that watches the command, when it is about to be
    /// executed.
    Watched,
    /// Comes with the listener of the filter that a mediator answers, when the command is about to be
    /// executed.
    Mediated,
    /// What stands in the private home when the command is over, of a command that is watched.
    Left {
        /// The path below the home, cut off if it is very long.
        path: Vec<u8>,
        /// Whether it is a directory.
        directory: bool,
    },
    /// That was all.
    LeftAll,
    /// There was more in the private home than is told of.
    LeftMore,
    /// Where something was installed in the private home, by the numbers of `init::gone`.
    Gone(Vec<u8>),
    /// Something is not as ordered; nothing was started. A sentence.
    Refused(String),
    /// The command could not be executed: `errno` for a path.
    NotExecuted {
        /// See `execve(2)`.
        errno: i32,
    },
    /// A file for a standard stream could not be opened; nothing was started.
    NoStream {
        /// The stream: 0, 1 or 2.
        stream: i32,
        /// The path, cut off if it is very long.
        path: Vec<u8>,
        /// See `open(2)`.
        errno: i32,
    },
    /// The command was stopped by this signal.
    Stopped(i32),
    /// Whether the command is stopped now; the answer to [`Request::Stands`].
    Stands(bool),
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
    /// Go on: the mounts are finished; or the jail is traced, or need not be.
    Go,
    /// Send this signal to the command.
    Signal(i32),
    /// The launcher, which stopped as the command did, has been continued; it has read so many [`Report::Stopped`]. Continue the
    /// command, if it still stands in the last of these stops.
    Continue(u32),
    /// Does the command still stand where it was reported to have stopped? The answer is [`Report::Stands`].
    Stands,
    /// Write this to the command's standard error.
    Say(Vec<u8>),
    /// Nothing more comes; the answer to [`Report::Ended`] where Slurm started the launcher.
    Leave,
}
