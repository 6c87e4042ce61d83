//! The policy applied to this host and this invocation. A [`Plan`] leaves no choice to whoever
//! carries it out: what is mounted where and in which order, which variables exist, which system
//! calls are answered how. Pure but for the questions that it asks through [`Files`].

pub mod arrivals;
pub mod bounds;
pub mod check;
pub mod devices;
pub mod env;
pub mod explain;
pub mod git;
pub mod grants;
pub mod handouts;
pub mod hides;
pub mod instructions;
pub mod kept;
pub mod lacks;
pub mod meeting;
pub mod memory;
pub mod mounts;
pub mod needs;
pub mod project;
pub mod protect;
pub mod seed;
pub mod slurm;
pub mod submitted;
pub mod syscalls;
pub mod trace;
pub mod tree;
pub mod users;

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::config::source::{Layer, Source, Sourced};
use crate::host::HostFacts;
use crate::host::files::Files;
pub use crate::policy::NetworkMode;
use crate::policy::{Narrowed, Policy};
use syscalls::SyscallRule;

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

/// What one command line asks for.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The project directory as the user named it, absolute. `None` only where no command will run
    /// and the question is about the rules alone.
    pub project: Option<PathBuf>,
    /// The current directory as the user knows it, absolute.
    pub cwd: PathBuf,
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// The session's id.
    pub session: String,
    /// The job, on a compute node.
    pub job: Option<Job>,
}

/// What the jail gets of a job. Environment and script come from inside another jail, so that
/// nothing of them decides anything: paths of the policy are expanded with the launcher's own
/// environment. The rest is what slurmstepd told the launcher.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// The environment inside, in place of the launcher's; judged by the same rules.
    pub environment: Vec<(OsString, OsString)>,
    /// The batch script and its place, which Slurm chose.
    pub script: Option<(PathBuf, Vec<u8>)>,
    /// Bytes of memory that the job has on this node, see [`memory::of_job`]. Slurm's word.
    pub memory: Option<u64>,
    /// Slurm's number of the job, and the step's name ([`trace::step_name`]).
    pub step: Option<(u32, String)>,
    /// Whether the session was to be traced that the job is of: its own trace may have failed to begin.
    pub traced: bool,
}

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
        Self::Rule {
            key: format!("{key} `{}`", rule.value),
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
        /// Its path in the project's store, see [`kept`].
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

/// One variable of the environment inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: OsString,
    /// Its value.
    pub value: OsString,
    /// Why it is there.
    pub why: Why,
}

/// A variable that exists outside and not inside. Never holds the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenVariable {
    /// Its name.
    pub name: OsString,
    /// The rule that hides it.
    pub why: Why,
}

/// A path of the policy that the jail does not get, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Omitted {
    /// The path as the policy has it.
    pub path: String,
    /// Why not.
    pub reason: String,
    /// The rule that asked for it.
    pub why: Why,
    /// Whether a person wants to know at every launch; otherwise `-v` and `--dry-run` show it.
    pub loud: bool,
}

impl Omitted {
    /// Whether a built-in list asked for it, which names what some host may have.
    pub fn is_usual(&self) -> bool {
        let built_in =
            matches!(&self.why, Why::Rule { source, .. } if source.layer <= Layer::Profile);
        built_in && !self.loud
    }
}

/// The plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The session's id.
    pub session: String,
    /// The project directory, by its real path; see [`Invocation::project`].
    pub project: Option<PathBuf>,
    /// The home directory, by its real path.
    pub home: PathBuf,
    /// Everything that is mounted, in order.
    pub steps: Vec<Step>,
    /// What is made, seeded and carried out for what the jail keeps.
    pub keeping: kept::Keeping,
    /// What is hidden, whether or not anything would show it.
    pub hidden: hides::Hides,
    /// The environment inside.
    pub variables: Vec<Variable>,
    /// Variables that do not pass.
    pub hidden_variables: Vec<HiddenVariable>,
    /// Paths of the policy that could not be given.
    pub omitted: Vec<Omitted>,
    /// What the site's enforced layers do not allow as other layers ask for it.
    pub narrowed: Vec<Narrowed>,
    /// The bounds of these layers, by place.
    pub ground: bounds::Ground,
    /// What this host cannot enforce, in a sentence each.
    pub weaknesses: Vec<String>,
    /// The filter of system calls.
    pub syscalls: Vec<SyscallRule>,
    /// Which network.
    pub network: Sourced<NetworkMode>,
    /// Whether user namespaces may be created inside.
    pub nested: Sourced<bool>,
    /// `RLIMIT_NPROC` inside; `None`: as outside.
    pub max_processes: Sourced<Option<u64>>,
    /// Whether init scopes abstract sockets and signals with Landlock.
    pub landlock_scope: bool,
    /// Whether init confines writing with Landlock, too: what the host mounts below a readable
    /// directory while the jail runs (an automount) arrives with the host's own flags. Not with
    /// `jail.nested`, for Landlock then forbids every mount.
    pub landlock_writes: bool,
    /// What the jail has of Slurm; with `On` a chaperon stands by.
    pub slurm: Sourced<slurm::Use>,
    /// What is asked of the node's tracer.
    pub trace: trace::Trace,
    /// Files that the profiles in use give.
    pub handouts: handouts::Handouts,
    /// The current directory inside.
    pub cwd: PathBuf,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

impl Plan {
    /// Whether a chaperon has to stand by: the jail can ask for Slurm.
    pub fn wants_chaperon(&self) -> bool {
        self.slurm.value == slurm::Use::On
    }
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct PlanError {
    message: String,
    hint: Option<String>,
}

impl PlanError {
    /// A message, without a hint.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What the user can do about it.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

/// The oldest Landlock ABI that scopes abstract sockets and signals (Linux 6.12).
pub const LANDLOCK_SCOPES: i32 = 6;

/// Bytes of the file system that stands for a hidden directory around the batch script. The script
/// itself is mounted from elsewhere.
const SCRIPT_ROOM: u64 = 64 << 10;

/// Puts the batch script where Slurm put it, so that `$0` is what it would be. The steps stay in
/// order.
fn place_script(steps: &mut Vec<Step>, at: &Path, content: &[u8]) {
    // The directory of Slurm's daemon is hidden, and a cover is closed once it stands: a place for
    // the script is made there instead, as empty.
    let over = steps.iter_mut().rev().find(|step| at.starts_with(&step.at));
    if let Some(step) = over.filter(|step| step.mount == Mount::HideDirectory) {
        step.mount = Mount::Tmpfs {
            size: SCRIPT_ROOM,
            mode: 0o755,
        };
    }
    let step = Step {
        at: at.to_owned(),
        mount: Mount::Program {
            content: content.to_vec(),
        },
        why: Why::Every("the batch script"),
    };
    let place = steps.partition_point(|other| other.at.as_path() < at);
    steps.insert(place, step);
}

/// Puts in what `agent-sandbox explain` answers from inside. The steps stay in order.
fn place_document(steps: &mut Vec<Step>, content: Vec<u8>) {
    let at = Path::new(explain::inside::DOCUMENT);
    let step = Step {
        at: at.to_owned(),
        mount: Mount::File { content },
        why: Why::Every("what `agent-sandbox explain` answers from inside"),
    };
    let place = steps.partition_point(|other| other.at.as_path() < at);
    steps.insert(place, step);
}

/// The environment of another task of the job for which `plan` was made. `given` is what the task
/// brings, `NAME=VALUE`; it is judged by the same rules.
pub fn environment_of_task(
    policy: &Policy,
    host: &HostFacts,
    plan: &Plan,
    given: &[Vec<u8>],
) -> Vec<Variable> {
    let pairs = given.iter().filter_map(|entry| {
        let at = entry.iter().position(|&byte| byte == b'=')?;
        let word = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((word(&entry[..at]), word(&entry[at + 1..])))
    });
    let job = Job {
        environment: pairs.collect(),
        ..Job::default()
    };
    let told = env::Told {
        project: plan.project.as_deref(),
        session: &plan.session,
        cwd: &plan.cwd,
    };
    env::build_for_job(policy, host, &job, told).variables
}

/// Makes the plan.
///
/// # Errors
/// A project that must not be one, a path that hangs where the jail cannot do without it, or a
/// plan that breaks an invariant of [`check`].
pub fn build(
    policy: &Policy,
    host: &HostFacts,
    files: &dyn Files,
    invocation: &Invocation,
) -> Result<Plan, PlanError> {
    bounds::known_home(policy, host, files)?;
    let ground = bounds::Ground::resolve(policy, host, files);
    let hides = hides::Hides::resolve(policy, host, files, &ground);
    let project = match &invocation.project {
        Some(named) => {
            let project = project::resolve(policy, host, files, &hides, &ground, named)?;
            if invocation.job.is_some() {
                project::unmoved(&project, host, files, named)?;
            }
            Some(project)
        }
        None => None,
    };
    let mounted = mounts::build(
        policy,
        host,
        files,
        (&hides, &ground),
        project.as_ref(),
        invocation.job.as_ref(),
    )?;
    let real = project.map(|project| project.real);
    let cwd = mounted
        .cwd_for(&invocation.cwd, files)
        .or(real.clone())
        .unwrap_or_else(|| PathBuf::from("/"));
    let mut steps = mounted.steps;
    let told = env::Told {
        project: real.as_deref(),
        session: &invocation.session,
        cwd: &cwd,
    };
    let environment = match &invocation.job {
        None => env::build(policy, host, told),
        Some(job) => {
            if let Some((at, content)) = &job.script {
                place_script(&mut steps, at, content);
            }
            env::build_for_job(policy, host, job, told)
        }
    };
    let mut narrowed = policy.narrowed.clone();
    narrowed.extend_from_slice(hides.narrowed());
    narrowed.extend(mounted.narrowed);
    narrowed.extend(environment.narrowed);
    narrowed.extend(slurm::narrowed(policy, host));
    let mut told = Vec::new();
    for one in narrowed {
        if !told.contains(&one) {
            told.push(one);
        }
    }
    let landlock_scope = host.landlock_abi >= LANDLOCK_SCOPES;
    let mut weaknesses = Vec::new();
    if !landlock_scope {
        weaknesses.push(
            "this kernel cannot keep the jail from writing to what the host mounts below a readable directory while \
             the jail runs (it needs Landlock ABI 6, Linux 6.12)"
                .to_owned(),
        );
    }
    if !landlock_scope && policy.network.mode.value == NetworkMode::Open {
        weaknesses.push(
            "this kernel cannot keep the jail from abstract unix sockets of the host (it needs Landlock ABI 6, \
             Linux 6.12); `network.mode = \"isolated\"` does"
                .to_owned(),
        );
    }
    let traced = trace::asked(policy, invocation, (&hides, &steps), files, host.traced);
    let limit = policy.jail.max_processes.clone();
    let mut plan = Plan {
        session: invocation.session.clone(),
        project: real,
        home: mounted.home,
        steps,
        keeping: mounted.keeping,
        hidden: hides,
        variables: environment.variables,
        hidden_variables: environment.hidden,
        omitted: mounted.omitted,
        narrowed: told,
        ground,
        weaknesses,
        syscalls: syscalls::rules(syscalls::Switches {
            nested: policy.jail.nested.value,
            keyctl: policy.jail.keyctl.value,
            fence: None,
        }),
        network: policy.network.mode.clone(),
        nested: policy.jail.nested.clone(),
        max_processes: limit.map(|most| (most > 0).then_some(most)),
        landlock_scope,
        landlock_writes: landlock_scope && !policy.jail.nested.value,
        slurm: slurm::standing(policy, host)?,
        trace: traced,
        handouts: mounted.handouts,
        cwd,
        command: invocation.command.clone(),
    };
    handouts::hand_out(&mut plan, policy, invocation.job.is_some());
    let document = explain::inside::Document::of_plan(&plan, policy);
    place_document(&mut plan.steps, document.text());
    check::check(&plan, policy, host, files)?;
    Ok(plan)
}
