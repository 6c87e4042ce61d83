//! What was found on a node, as data. The judges make lines of it, so that causes that this machine
//! does not have are tested as well.

use std::path::PathBuf;

use agent_sandbox_events::protocol::Status;

use crate::cli::Backend;
use crate::host::allocation::Detected;
use crate::host::mediation;
use crate::launch::diagnose;
use crate::policy::TraceMode;

/// An error as its message and the ways out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// What went wrong.
    pub message: String,
    /// Ways out, a sentence each; those that begin with `admin:` are for administrators.
    pub hints: Vec<String>,
}

/// Everything.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Who asks.
    pub user: User,
    /// The kernel.
    pub kernel: Kernel,
    /// What makes jails.
    pub jail: Jail,
    /// Directories.
    pub files: Files,
    /// The policy; why there is none.
    pub policy: Policy,
    /// Programs that people use.
    pub tools: Tools,
    /// Slurm; `None` where there is none.
    pub slurm: Option<Slurm>,
    /// The tracer; `None` if there is no policy that says where it listens.
    pub tracer: Option<Tracer>,
}

/// Who asks.
#[derive(Clone, Debug, Default)]
pub struct User {
    /// Whether it is root, for whom no session starts.
    pub root: bool,
    /// Where agent-sandbox stands.
    pub executable: PathBuf,
}

/// The kernel and its settings.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    /// `uname -srm`
    pub release: String,
    /// User namespaces.
    pub namespaces: diagnose::Findings,
    /// What Landlock's mediator needs.
    pub mediation: mediation::Findings,
    /// Why no mediator can stand beside a jail of bubblewrap's; `None`: one can.
    pub no_mediator: Option<String>,
    /// Why no tracer can run on this kernel; `None`: nothing that users can see stands in its way.
    pub no_tracer: Option<&'static str>,
    /// `/proc/sys/kernel/seccomp/actions_avail` (seccomp(2)).
    pub seccomp: Option<String>,
    /// Control groups.
    pub cgroups: Cgroups,
}

/// Control groups (cgroups(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// A v2 hierarchy is mounted.
    pub second: bool,
    /// v1 hierarchies are.
    pub first: bool,
    /// The caller may make groups below the own one of v2.
    pub delegated: bool,
}

/// What makes jails.
#[derive(Clone, Debug, Default)]
pub struct Jail {
    /// What the options ask for.
    pub asked: Backend,
    /// bubblewrap.
    pub bubblewrap: Bubblewrap,
    /// A session of bubblewrap's with nothing in it.
    pub bwrap: Trial,
    /// One of Landlock's.
    pub landlock: Trial,
    /// One as the options ask for it.
    pub session: Trial,
    /// One with a filtered network; `None`: nothing was tried, or the site gives no network at all.
    pub filtered: Option<FilteredTrial>,
}

/// A session with a filtered network that was tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilteredTrial {
    /// Whether it started.
    pub trial: Trial,
    /// Whether it reached a server of doctor's that it was allowed to reach, or why not. `None`: the policy does not allow it, so that
    /// this was not tried.
    pub reached: Option<Result<(), String>>,
}

/// bubblewrap.
#[derive(Clone, Debug, Default)]
pub struct Bubblewrap {
    /// The program; none: why not is [`Self::reason`].
    pub path: Option<PathBuf>,
    /// What `--version` says.
    pub version: Option<String>,
    /// Whether it is set-user-ID, so that it needs no user namespaces.
    pub set_id: bool,
    /// Options that it lacks, so that the launcher does what they do.
    pub lacks: Vec<&'static str>,
    /// Why it builds no jail at all, by trying; `None`: it does.
    pub reason: Option<Trouble>,
}

/// A session that was tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trial {
    /// It started and ended.
    Started {
        /// Milliseconds from its start to its end.
        milliseconds: u64,
    },
    /// It did not start.
    Failed(Trouble),
    /// It did not end in time, and was ended.
    Late {
        /// The time that it had, in seconds.
        seconds: u64,
    },
    /// It was not tried: why.
    #[default]
    NotTried,
}

impl Trial {
    /// Whether it started.
    pub fn started(&self) -> bool {
        matches!(self, Self::Started { .. })
    }
}

/// Directories.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// `$HOME`
    pub home: DirectoryFacts,
    /// The home directory that the user database names, if it is another one.
    pub other_home: Option<PathBuf>,
    /// Where records are kept.
    pub state: DirectoryFacts,
    /// Why nothing can be written in it, by trying (`No space left on device`).
    pub state_refuses: Option<String>,
    /// Why no session can be recorded, by trying. Running sessions may be recorded elsewhere.
    pub records_refuse: Option<String>,
    /// Whether a session would keep anything in the state directory.
    pub keeps: bool,
    /// The user's directory of the node's own, or where it would be; `None`: nowhere.
    pub node_local: Option<DirectoryFacts>,
    /// The project; `None` if nothing is known of it.
    pub project: Option<Project>,
}

/// A directory.
#[derive(Clone, Debug, Default)]
pub struct DirectoryFacts {
    /// Its name.
    pub path: PathBuf,
    /// What stands there.
    pub state: DirectoryState,
    /// Its real path, or that of the part that exists.
    pub real: PathBuf,
    /// The type of its file system.
    pub kind: Option<String>,
    /// Whether that is of this machine alone.
    pub local: bool,
    /// Symbolic links on the way, and whether somebody other than administrators could change them.
    pub links: Vec<(PathBuf, bool)>,
}

/// What stands at a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectoryState {
    /// Nothing yet; it can be made.
    #[default]
    Missing,
    /// Nothing, and it cannot be made.
    Unmakeable,
    /// A directory.
    Directory {
        /// Its owner is the caller.
        own: bool,
        /// Permission bits (`inode(7)`).
        mode: u32,
        /// The caller may write there.
        writable: bool,
    },
    /// Something else.
    NoDirectory,
    /// Something that cannot be looked at.
    Closed,
    /// Nothing answers.
    Hung,
}

/// The directory in which a session would start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// Its path.
    pub path: PathBuf,
    /// Whether `-C` names it.
    pub given: bool,
    /// Why it can be no project.
    pub trouble: Option<Trouble>,
}

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Why there is none.
    pub trouble: Option<Trouble>,
    /// The user's file, as a person would name it.
    pub file: String,
    /// Whether it exists.
    pub exists: bool,
    /// `[projects]` sections whose directory does not exist, as written.
    pub missing_projects: Vec<String>,
    /// Files and options that took part, weakest first.
    pub layers: Vec<String>,
    /// A sum over all of it.
    pub digest: Option<String>,
    /// The site's files.
    pub site: Vec<SiteFile>,
}

/// A file of the site's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteFile {
    /// Whether it is the one that can only be narrowed.
    pub enforced: bool,
    /// Its path.
    pub path: PathBuf,
    /// Whether it exists.
    pub exists: bool,
    /// Why it cannot be used.
    pub trouble: Option<Trouble>,
    /// Keys that it sets outside of its sections with conditions.
    pub keys: usize,
    /// Its sections with conditions that apply here, and how many it has.
    pub sections: (usize, usize),
    /// A sum over its text.
    pub digest: Option<String>,
}

/// Programs that people use.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// tmux.
    pub tmux: Option<PathBuf>,
    /// Lmod.
    pub lmod: Option<PathBuf>,
}

/// Slurm.
#[derive(Clone, Debug, Default)]
pub struct Slurm {
    /// The directory of the real commands; `None`: none can be trusted.
    pub directory: Option<PathBuf>,
    /// How many there are.
    pub commands: usize,
    /// What `squeue --version` says.
    pub version: Option<String>,
    /// Commands that are not used, and why.
    pub distrusted: Vec<(PathBuf, String)>,
    /// Why `SLURM_CONF` is not used.
    pub conf: Option<String>,
    /// The chaperon's program.
    pub chaperon: Option<PathBuf>,
    /// The shim's.
    pub shim: Option<PathBuf>,
    /// What `scontrol ping` said; an error: why not.
    pub controller: Option<Result<String, String>>,
    /// The sockets of munge and sackd, and whether one can be connected to.
    pub credentials: Vec<(PathBuf, bool)>,
    /// Whether jails use Slurm; `None` if there is no telling.
    pub on: Option<bool>,
    /// The allocation in which a session would start.
    pub allocation: Detected,
    /// A request from inside to Slurm and back.
    pub request: Option<Result<u64, String>>,
}

/// The node's tracer.
#[derive(Clone, Debug)]
pub struct Tracer {
    /// What the policy wants of it.
    pub mode: TraceMode,
    /// The key and the place that say so.
    pub rule: String,
    /// The key and the place that ask for a second layer, if any does.
    pub layer: Option<String>,
    /// Where it listens.
    pub socket: PathBuf,
    /// What was found there.
    pub answer: Answer,
}

/// What was found where the tracer listens.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Nobody looked.
    Unwanted,
    /// Nothing.
    Nothing,
    /// Something that is of no use.
    Unfit(Trouble),
    /// A tracer.
    Answers {
        /// What it says of itself.
        status: Box<Status>,
        /// Who runs it.
        uid: Option<u32>,
    },
}
