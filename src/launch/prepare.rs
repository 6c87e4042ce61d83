//! Reads the policy and looks at the host.

use super::options::{absolute, additions, current_directory, locations};
use super::prepared::{FIRST_TIMEOUT, JobRequest, Prepared, logins};
use super::{modules, observed, snapshot, tracer};
use crate::cli::Options;
use crate::config::load::{RawLayer, Request, load};
use crate::host::allocation::Detected;
use crate::host::files::{Files, HostFiles, Look};
use crate::host::mediation::NoMediator;
use crate::host::{self, HostFacts};
use crate::logging::Stopwatch;
use crate::observe::recorder;
use crate::plan::{self, Invocation};
use crate::policy::Policy;
use crate::policy::merge::merge;
use crate::session::{self};
use agent_sandbox_wire::capsule::PolicySnapshot;
use anyhow::Result;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Reads the policy and looks at the host, for a new session.
///
/// # Errors
/// Whatever is wrong with the command line, the policy files or the host.
pub fn prepare(options: &Options, command: &[OsString]) -> Result<Prepared> {
    prepare_session(options, command, session::new_id()?, None)
}

pub(super) fn prepare_session(
    options: &Options,
    command: &[OsString],
    session: String,
    recorder: Option<recorder::Shared>,
) -> Result<Prepared> {
    let mut watch = Stopwatch::start();
    let locations = locations()?;
    let cwd = current_directory()?;
    let project = match &options.project {
        Some(project) => absolute(&cwd, project),
        None => cwd.clone(),
    };
    let files = HostFiles::new(FIRST_TIMEOUT);
    let real_project = match files.look(&project) {
        Look::Found(found) => Some(found.real),
        _ => None,
    };
    let request = Request {
        locations: &locations,
        profiles: &options.profile,
        command: command
            .first()
            .filter(|_| recorder.is_none())
            .and_then(|command| Path::new(command).file_name()),
        project: Some(real_project.as_deref().unwrap_or(&project)),
        settled: false,
        set: &options.set,
        circumstances: &host::circumstances::probe,
    };
    let mut layers: Vec<RawLayer> = load(&request)?;
    if recorder.is_some() {
        observed::without_what_is_given(&mut layers);
    }
    let mut policy = merge(&layers, &additions(options, &cwd)?)?;
    if recorder.is_some() {
        observed::make_private(&mut policy);
    }
    log_policy(&layers, &mut watch);
    files.set_timeout(policy.files.timeout_ms.value);
    let named = [project.clone(), cwd.clone()];
    let (files, mut host) = host::settled::probe(files, None, &policy, &named)?;
    if recorder.is_some() {
        host.no_mediator = Some(NoMediator::Watched);
    }
    tracing::info!(target: "launch", took = ?watch.lap(), "host examined");
    if !policy.modules.load.is_empty() {
        host.environment = modules::load(&policy.modules.load, &host.environment)?;
        let modules = policy.modules.load.len();
        tracing::info!(target: "launch", took = ?watch.lap(), modules, "modules loaded");
    }
    host.find_slurm(&policy, &files);
    log_slurm(&host, &mut watch);
    let tracer = look_for_tracer(&policy, &mut host);
    tracing::info!(target: "tracer", took = ?watch.lap(), listens = host.traced, "tracer looked for");
    let config = match locations.config_dir.strip_prefix(&locations.home) {
        Ok(below) => format!("~/{}/config.toml", below.display()),
        Err(_) => locations
            .config_dir
            .join("config.toml")
            .display()
            .to_string(),
    };
    let names = layers.iter().map(|layer| layer.file.to_string()).collect();
    let invocation = Invocation {
        project: Some(project.clone()),
        cwd,
        command: command.to_vec(),
        session,
        random: session::random_letters()?,
        job: None,
    };
    let real = real_project.as_deref().unwrap_or(&project);
    let node = nix::unistd::gethostname().unwrap_or_default();
    let node = node.to_string_lossy();
    let (cwd, session) = (&invocation.cwd, &invocation.session);
    let snapshot = PolicySnapshot {
        variables: snapshot::path_variables(&policy, &host.environment),
        ..snapshot::take(options, cwd, session, real, &layers, &node)
    };
    Ok(Prepared {
        policy,
        host,
        files,
        invocation,
        config,
        layers: names,
        snapshot,
        recorder,
        logins: logins(&layers),
        has_profile: layers.iter().any(|layer| layer.profile.is_some()),
        tracer,
        is_traced: false,
        allocation: Detected::Nothing,
    })
}

fn log_policy(layers: &[RawLayer], watch: &mut Stopwatch) {
    tracing::info!(target: "launch", took = ?watch.lap(), layers = layers.len(), "policy read");
    for layer in layers {
        tracing::debug!(target: "launch", layer = ?layer.layer, file = %layer.file, "layer");
    }
}

fn log_slurm(host: &HostFacts, watch: &mut Stopwatch) {
    let commands = host.slurm.as_ref().map(|slurm| slurm.commands.len());
    tracing::info!(target: "slurm", took = ?watch.lap(), commands, "Slurm looked for");
    for (command, path) in host.slurm.iter().flat_map(|slurm| &slurm.commands) {
        tracing::debug!(target: "slurm", %command, path = %path.display(), "command");
    }
}

fn look_for_tracer(policy: &Policy, host: &mut HostFacts) -> tracer::TracerState {
    let found = tracer::find(&policy.trace);
    host.traced = matches!(found, tracer::TracerState::Listens(_));
    found
}

/// Reads the policy that a job brought, as far as this node allows it, and looks at the node.
///
/// # Errors
/// This version does not understand the policy, or something is wrong with the node.
pub fn prepare_from_snapshot(snapshot: PolicySnapshot, asked: JobRequest) -> Result<Prepared> {
    let mut watch = Stopwatch::start();
    let (layers, additions) = snapshot::restore(&snapshot)?;
    let policy = merge(&layers, &additions)?;
    log_policy(&layers, &mut watch);
    let files = HostFiles::new(policy.files.timeout_ms.value);
    let project = PathBuf::from(OsStr::from_bytes(&snapshot.project));
    let (carried, named) = (
        snapshot::variables(&snapshot),
        std::slice::from_ref(&project),
    );
    let (files, mut host) = host::settled::probe(files, Some(&carried), &policy, named)?;
    tracing::info!(target: "launch", took = ?watch.lap(), "host examined");
    host.find_slurm(&policy, &files);
    log_slurm(&host, &mut watch);
    let tracer = look_for_tracer(&policy, &mut host);
    tracing::info!(target: "tracer", took = ?watch.lap(), listens = host.traced, "tracer looked for");
    let names = layers.iter().map(|layer| layer.file.to_string()).collect();
    let invocation = Invocation {
        project: Some(project),
        cwd: plan::build::submitted::path(&host, &asked.cwd),
        command: asked.command,
        session: snapshot.session.clone(),
        random: String::new(),
        job: Some(asked.job),
    };
    Ok(Prepared {
        policy,
        host,
        files,
        invocation,
        config: "config.toml".to_owned(),
        layers: names,
        snapshot,
        recorder: None,
        logins: Vec::new(),
        has_profile: true,
        tracer,
        is_traced: false,
        allocation: Detected::Nothing,
    })
}

/// Reads the policy of a run that is watched, and looks at the host.
///
/// # Errors
/// As [`super::prepare::prepare`].
pub fn prepare_watched(
    options: &Options,
    command: &[OsString],
    recorder: recorder::Shared,
) -> Result<Prepared> {
    prepare_session(options, command, session::new_id()?, Some(recorder))
}
