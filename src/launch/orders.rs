//! What init and the mediator are told to carry out of a plan.

use super::forward::Forward;
use crate::backend::bubblewrap::{mediated as handed_over, mediator};
use crate::env_vars;
use crate::failure::Failure;
use crate::handoff::{Confinement, Mediated, Run, Streams};
use crate::host::HostFacts;
use crate::plan::build::no_walk::around;
use crate::plan::{Plan, Variable};
use crate::seccomp;
use crate::session::{self, Registered, Running};
use anyhow::{Context, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The compiled filter of the plan's system calls.
///
/// # Errors
/// The rules cannot be compiled.
pub fn filter(plan: &Plan) -> Result<Vec<u8>> {
    seccomp::compile(&plan.syscalls).context("cannot compile the system call filter")
}

/// Records the session for as long as the answer lives.
pub(super) fn register(
    host: &HostFacts,
    plan: &Plan,
    command: &OsStr,
    forward: Option<&Forward>,
) -> Result<Registered> {
    let name = Path::new(command).file_name().unwrap_or(command);
    let project = plan
        .project
        .as_deref()
        .context("a launch needs a project")?;
    let records = session::directory(host.uid, &host.state_directory);
    let name = name.to_string_lossy();
    let forward = forward.iter().flat_map(|forward| forward.sockets());
    let running = Running {
        id: &plan.session,
        project,
        command: &name,
        forward: forward.collect(),
    };
    let Some(most) = &plan.limits.sessions else {
        return Registered::new(&records, running);
    };
    let registered = Registered::within(most.value, &records, running)?;
    registered.map_err(|running| {
        let ids: Vec<&str> = running.iter().map(|one| one.id.as_str()).collect();
        let message = format!(
            "{} sessions of yours run on this node, and no more than {} may (limits.sessions, {})",
            running.len(),
            most.value,
            most.source
        );
        Failure::new(message)
            .hint(format!("end one of them first: {}", ids.join(", ")))
            .hint("agent-sandbox sessions shows them, with their processes")
            .into()
    })
}

/// The plan's command.
pub(super) fn command(plan: &Plan) -> Run {
    let bytes = |text: &OsStr| text.as_bytes().to_vec();
    Run {
        cwd: bytes(plan.cwd.as_os_str()),
        cwd_else: None,
        argv: plan.command.iter().map(|word| bytes(word)).collect(),
        environment: environment(&plan.variables),
        search: search_path(&plan.variables),
        confinement: confinement(plan),
        umask: None,
        streams: Streams::default(),
        by_slurm: false,
        pmi: None,
        lends_network: false,
        home: None,
        held: false,
    }
}

/// Variables as entries of `environ(7)`.
pub fn environment(variables: &[Variable]) -> Vec<Vec<u8>> {
    variables
        .iter()
        .map(|variable| [variable.name.as_bytes(), b"=", variable.value.as_bytes()].concat())
        .collect()
}

/// Where a command is looked for among these variables.
pub fn search_path(variables: &[Variable]) -> Vec<u8> {
    let path = variables
        .iter()
        .find(|variable| variable.name == env_vars::PATH);
    path.map_or_else(
        || env_vars::DEFAULT_PATH.into(),
        |variable| variable.value.as_bytes().to_vec(),
    )
}

/// What the plan's command takes from itself.
pub fn confinement(plan: &Plan) -> Confinement {
    let writable = || {
        let steps = plan.steps.iter().filter(|step| step.mount.is_writable());
        steps
            .map(|step| plan.place(step).into_os_string().into_encoded_bytes())
            .collect()
    };
    Confinement {
        max_processes: plan.max_processes.value,
        scoped_signals: plan.landlock_scope,
        scoped_sockets: plan.landlock_scope,
        writable: plan.landlock_writes.then(writable),
        mediated: plan.mediated.then(|| Box::new(mediated(false))),
        least: None,
        listed: listed(plan, &[]).map(in_bytes),
        watch: None,
    }
}

/// What alone the plan's command can list, if there is something that it cannot. `own` are places of the jail's own
/// beside those of the plan.
pub(super) fn listed(plan: &Plan, own: &[&Path]) -> Option<Vec<PathBuf>> {
    if plan.no_walk.is_empty() {
        return None;
    }
    let own = own.iter().filter_map(|at| around(&plan.no_walk, at));
    Some(plan.listed.iter().cloned().chain(own).collect())
}

/// Paths as orders have them.
pub(super) fn in_bytes(paths: Vec<PathBuf>) -> Vec<Vec<u8>> {
    let all = paths.into_iter().map(PathBuf::into_os_string);
    all.map(OsString::into_vec).collect()
}

/// The filter of the calls that a mediator answers, for a jail of this process's user and group.
pub(super) fn mediated(renames: bool) -> Mediated {
    let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
    let handed_over::Programs {
        handing_over,
        with_sockets,
        refusing,
    } = handed_over::programs(uid.as_raw(), gid.as_raw(), renames);
    Mediated {
        handing_over,
        with_sockets,
        refusing,
    }
}

/// What a mediator beside the jail keeps to.
pub fn mediated_terms(plan: &Plan) -> Option<mediator::Terms> {
    let writable = confinement(plan).writable;
    let paths = |all: Vec<Vec<u8>>| all.into_iter().map(|path| OsString::from_vec(path).into());
    plan.mediated.then(|| mediator::Terms {
        writable: writable.map(|all| paths(all).collect()),
        git_config: None,
    })
}
