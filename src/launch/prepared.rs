//! What is known before anything is started.

use super::{join_directories, tracer};
use crate::config::agent::Marker;
use crate::config::load::RawLayer;
use crate::host::HostFacts;
use crate::host::allocation::Detected;
use crate::host::files::HostFiles;
use crate::host::mount_table::MountTable;
use crate::observe::recorder;
use crate::plan::{self, Invocation, Plan};
use crate::policy::Policy;
use agent_sandbox_wire::capsule::PolicySnapshot;
use anyhow::Result;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Until the policy says how long a path may take to answer.
pub const FIRST_TIMEOUT: Duration = Duration::from_secs(2);

/// Everything that is known before anything is started.
pub struct Prepared {
    /// The merged policy.
    pub policy: Policy,
    /// The host.
    pub host: HostFacts,
    /// Its files.
    pub files: HostFiles,
    /// What was asked for.
    pub invocation: Invocation,
    /// The user's policy file, as a person would name it.
    pub config: String,
    /// Files and options that took part, weakest first.
    pub layers: Vec<String>,
    /// What the jobs of this session carry.
    pub snapshot: PolicySnapshot,
    /// What watches the run, of one that is watched.
    pub recorder: Option<recorder::Shared>,
    /// How one logs in to the agents of this launch.
    pub logins: Vec<Login>,
    /// Whether a profile takes part.
    pub has_profile: bool,
    /// The node's tracer, as far as the policy wants it.
    pub tracer: tracer::TracerState,
    /// Whether the tracer was made ready for the jail.
    pub is_traced: bool,
    /// The allocation of Slurm's around this process, once it was looked for.
    pub allocation: Detected,
}

/// What a capsule asks for, as far as it decides nothing.
#[derive(Clone, Debug)]
pub struct JobRequest {
    /// The current directory.
    pub cwd: PathBuf,
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// What the jail gets of the job.
    pub job: plan::Job,
}

impl Prepared {
    /// The plan.
    ///
    /// # Errors
    /// See [`plan::build`], [`plan::check::arrivals::check`] and [`Prepared::can_start`].
    pub fn plan(&self) -> Result<Plan> {
        let plan = plan::build(&self.policy, &self.host, &self.files, &self.invocation)?;
        self.can_start(&plan)?;
        plan::check::arrivals::check(&plan, &self.host, self.files.mounts(), &MountTable::read())?;
        Ok(plan)
    }

    /// Whether a program can start in the jail at all.
    ///
    /// # Errors
    /// See [`plan::check::needs::check`].
    pub fn can_start(&self, plan: &Plan) -> Result<()> {
        Ok(plan::check::needs::check(plan, &self.host, &self.files)?)
    }

    /// Makes the directories that the plan covers and that have to stand there for it.
    ///
    /// # Errors
    /// One cannot be made.
    pub fn make_places(&self, plan: &Plan) -> Result<()> {
        join_directories::make_places(&plan::build::join_directories::places_to_make(
            plan, &self.host,
        ))
    }

    /// A plan without a project, for questions about the rules alone.
    ///
    /// # Errors
    /// See [`plan::build`].
    pub fn plan_without_project(&self) -> Result<Plan> {
        let invocation = Invocation {
            project: None,
            ..self.invocation.clone()
        };
        Ok(plan::build(
            &self.policy,
            &self.host,
            &self.files,
            &invocation,
        )?)
    }
}

/// An agent of a launch, and by what one sees that its user is logged in.
#[derive(Clone, Debug)]
pub struct Login {
    pub(super) agent: String,
    pub(super) commands: Vec<String>,
    pub(super) how: String,
    pub(super) markers: Vec<Marker>,
}

/// The agents among the layers that say how one logs in.
pub(super) fn logins(layers: &[RawLayer]) -> Vec<Login> {
    let agents = layers.iter().filter_map(|layer| layer.profile.as_deref());
    let logins = agents.filter_map(|agent| {
        Some(Login {
            agent: agent.name.clone(),
            commands: agent
                .commands
                .iter()
                .map(|name| name.value.clone())
                .collect(),
            how: agent.login.clone()?,
            markers: agent.authentication.clone(),
        })
    });
    logins.filter(|login| !login.markers.is_empty()).collect()
}
