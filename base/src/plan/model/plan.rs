//! The plan itself.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::bounds::SiteBounds;
use super::hides::Hides;
use super::injected_files::InjectedFiles;
use super::limits::Limits;
use super::network::FilteredNetwork;
use super::persistent::{Keeping, SHOWN, shown_in, shown_name};
use super::slurm::Use;
use super::ssh::SshAgent;
use super::step::{Mount, Step, Why};
use super::syscalls::SyscallRule;
use super::trace::Trace;
use crate::config::source::{Layer, Sourced};
use crate::host::allocation::Allocation;
use crate::policy::{Clamped, NetworkMode};

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
    /// The project directory, by its real path; see `Invocation::project`.
    pub project: Option<PathBuf>,
    /// The home directory, by its real path.
    pub home: PathBuf,
    /// Everything that is mounted, in order.
    pub steps: Vec<Step>,
    /// What is made, seeded and carried out for what the jail keeps.
    pub keeping: Keeping,
    /// What is hidden, whether or not anything would show it.
    pub hidden: Hides,
    /// The environment inside.
    pub variables: Vec<Variable>,
    /// Variables that do not pass.
    pub hidden_variables: Vec<HiddenVariable>,
    /// Paths of the policy that could not be given.
    pub omitted: Vec<Omitted>,
    /// What the site's enforced layers do not allow as other layers ask for it.
    pub clamped: Vec<Clamped>,
    /// The bounds of these layers, by place.
    pub site_bounds: SiteBounds,
    /// What this host cannot enforce, in a sentence each.
    pub weaknesses: Vec<String>,
    /// The filter of system calls.
    pub syscalls: Vec<SyscallRule>,
    /// Which network.
    pub network: Sourced<NetworkMode>,
    /// To whom a filtered one leads; `None`: it is not filtered.
    pub filter: Option<FilteredNetwork>,
    /// Ports inside that are reached from outside, in order, each once. There are none with the host's network.
    pub forward: Vec<Sourced<u16>>,
    /// The agent that has the user's own sign logins; `None`: no host is named for it, or none counts.
    pub ssh: Option<SshAgent>,
    /// Whether user namespaces may be created inside.
    pub nested: Sourced<bool>,
    /// Directories that cannot be listed, nor can those above them.
    pub no_walk: Vec<Sourced<PathBuf>>,
    /// If there are such directories: the places that can be listed, with all below.
    pub listed: Vec<PathBuf>,
    /// What the session may take of its node.
    pub limits: Limits,
    /// `RLIMIT_NPROC` inside; `None`: as outside.
    pub max_processes: Sourced<Option<u64>>,
    /// Whether a mediator outside gives directories the set-group-ID bit, and files the user's other
    /// groups and ACLs with them: the jail's user namespace has one id of each kind.
    pub mediated: bool,
    /// Whether init scopes abstract sockets and signals with Landlock.
    pub landlock_scope: bool,
    /// Whether init confines writing with Landlock, too: what the host mounts below a readable
    /// directory while the jail runs (an automount) arrives with the host's own flags. Not with
    /// `jail.nested`, for Landlock then forbids every mount.
    pub landlock_writes: bool,
    /// What the jail has of Slurm; with `On` a chaperon stands by.
    pub slurm: Sourced<Use>,
    /// The allocation of Slurm's in which the session was started.
    pub allocation: Option<Allocation>,
    /// What is asked of the node's tracer.
    pub trace: Trace,
    /// Files that the profiles in use give.
    pub injected_files: InjectedFiles,
    /// The current directory inside.
    pub cwd: PathBuf,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

impl Plan {
    /// Whether a chaperon has to stand by: the jail can ask for Slurm.
    pub fn wants_chaperon(&self) -> bool {
        self.slurm.value == Use::On
    }

    /// Adds the certificate by which programs know the filter, as PEM, to the files of certificates.
    pub fn trust(&mut self, certificate: &[u8]) {
        let trust = self.filter.iter().flat_map(|filter| &filter.trust);
        for trust in trust {
            trust.add(certificate, &mut self.steps);
        }
    }
}

impl Plan {
    /// The rule by which a directory cannot be listed, if one says so.
    pub fn unlisted(&self, directory: &Path) -> Option<&Sourced<PathBuf>> {
        self.no_walk
            .iter()
            .find(|root| root.value.starts_with(directory))
    }
}

/// A link that a kept directory has to hold for what is shown below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptLink {
    /// Where it stands, below the kept directory.
    pub name: PathBuf,
    /// The step that it leads to.
    pub at: PathBuf,
}

impl Plan {
    /// The kept directories: their places inside, and in the store.
    pub fn kept(&self) -> impl Iterator<Item = (&Path, &Path)> {
        self.steps.iter().filter_map(|step| match &step.mount {
            Mount::Kept { from, .. } => Some((step.at.as_path(), from.as_path())),
            _ => None,
        })
    }

    /// The kept directory around a path inside, if one is strictly around it.
    pub fn kept_around(&self, at: &Path) -> Option<&Path> {
        self.kept()
            .map(|(kept, _)| kept)
            .find(|kept| *kept != at && at.starts_with(kept))
    }

    /// Where a step's mount is made: at its place, or, below a kept directory, where a link there
    /// leads to.
    pub fn place(&self, step: &Step) -> PathBuf {
        match self.kept_around(&step.at) {
            Some(_) => Path::new(SHOWN).join(shown_name(&self.home, &step.at)),
            None => step.at.clone(),
        }
    }

    /// What a link in a kept directory says that leads to the step at `at`: a path in the store that leads
    /// there from every session of the project, whatever makes its jail. With mounts it leads on to
    /// [`SHOWN`]; with Landlock it is made in the store.
    pub fn shown_in_store(&self, at: &Path) -> Option<PathBuf> {
        let store = self.keeping.store.as_deref()?;
        Some(shown_in(store).join(shown_name(&self.home, at)))
    }

    /// The links that the kept directory at a place has to hold: one for each step below it, and none
    /// for what is shown in another such step.
    pub fn kept_links(&self, kept: &Path) -> Vec<KeptLink> {
        let mut all: Vec<KeptLink> = Vec::new();
        for step in &self.steps {
            let Ok(name) = step.at.strip_prefix(kept) else {
                continue;
            };
            // The steps are in order, so that what is around it comes first.
            let inside = all.last().is_some_and(|last| step.at.starts_with(&last.at));
            if !name.as_os_str().is_empty() && !inside {
                all.push(KeptLink {
                    name: name.to_path_buf(),
                    at: step.at.clone(),
                });
            }
        }
        all
    }

    /// Puts in what a kept directory turned out to be, once it is made.
    pub fn know_kept(&mut self, kept: &Path, is: (u64, u64)) {
        for step in &mut self.steps {
            if let Mount::Kept { id, .. } = &mut step.mount
                && step.at == kept
            {
                *id = Some(is);
            }
        }
    }
}
