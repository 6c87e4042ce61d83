//! Builds the plan: the policy applied to this host and this invocation. Pure but for the questions that it
//! asks through [`Files`].

pub mod credentials;
pub mod devices;
pub mod env;
pub mod forward;
pub mod git;
pub mod hides;
pub mod injected_files;
pub mod instructions;
pub mod join_directories;
pub mod limits;
pub mod memory;
pub mod mounts;
pub mod network;
pub mod no_walk;
pub mod obeyed;
pub mod other_homes;
pub mod project;
pub mod refusal;
pub mod seed;
pub mod slurm;
mod ssh;
pub mod submitted;
pub mod syscalls;
pub mod trace;
pub mod tree;
pub mod unknown;
pub mod users;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::model::bounds::SiteBounds;
use super::model::hides::Hides;
use super::model::{Invocation, Job, Mount, Plan, PlanError, Step, Variable, Why};
use crate::host::HostFacts;
use crate::host::files::{Files, stalled_on_the_way};
use crate::host::mediation::NoMediator;
use crate::policy::{NetworkMode, Policy};
use unknown::stalled;

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

/// Refuses where an enforced layer holds and the user database has no answer: `~` would mean nothing
/// but `HOME`, which the user sets. A name service that does not answer is in the user's hands, by a
/// variable that it obeys or by waiting until it is down.
///
/// # Errors
/// The user database names no home of the caller's, or it does not answer.
fn known_home(policy: &Policy, host: &HostFacts, files: &dyn Files) -> Result<(), PlanError> {
    // With the whole file system for a home every path would be judged by [home].
    let home = host.database_home().filter(|home| home != Path::new("/"));
    if policy.bounds.is_empty() {
        return Ok(());
    }
    if let Some(home) = home {
        return match stalled_on_the_way(files, &home) {
            Some(at) => Err(stalled(&at)),
            None => Ok(()),
        };
    }
    let message = format!(
        "the site's policy cannot be applied: the user database names no home directory of user {}",
        host.uid
    );
    let hint = format!(
        "`getent passwd {}` must print a line; ask your administrators whether the name service is up",
        host.uid
    );
    Err(PlanError::new(message).hint(hint))
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
    let told = env::SessionNames {
        project: plan.project.as_deref(),
        session: &plan.session,
        cwd: &plan.cwd,
    };
    let mut environment = env::build_for_job(policy, host, &job, told);
    if let Some(filter) = &plan.filter {
        credentials::set_in_job(&mut environment, filter, &job);
    }
    environment.variables
}

/// Makes a plan that nothing has checked yet: [`crate::plan::build()`] does.
///
/// # Errors
/// A project that must not be one, or a path that hangs where the jail cannot do without it.
pub(super) fn build(
    policy: &Policy,
    host: &HostFacts,
    files: &dyn Files,
    invocation: &Invocation,
) -> Result<Plan, PlanError> {
    known_home(policy, host, files)?;
    let site_bounds = SiteBounds::resolve(policy, host, files);
    let hides = Hides::resolve(policy, host, files, &site_bounds);
    let project = match &invocation.project {
        Some(named) => {
            let project = project::resolve(policy, host, files, &hides, &site_bounds, named)?;
            if invocation.job.is_some() {
                project::unmoved(&project, host, files, named)?;
            }
            Some(project)
        }
        None => None,
    };
    let in_job = invocation.job.is_some();
    let network = network::mode(policy, in_job);
    let credentials = credentials::wanted(policy, host, network.value, invocation.job.as_ref())?;
    let mut filter = network::filtered(policy, host, &network)?;
    let rules = filter.as_ref().map(|filter| &filter.rules);
    let ssh = ssh::wanted(policy, host, files, network.value, rules, in_job);
    let mounted = mounts::build(
        policy,
        host,
        files,
        (&hides, &site_bounds),
        project.as_ref(),
        invocation.job.as_ref(),
        mounts::Besides {
            credentials: !credentials.credentials.is_empty(),
            ssh: &ssh,
        },
    )?;
    let real = project.map(|project| project.real);
    let cwd = mounted
        .cwd_for(&invocation.cwd, files)
        .or(real.clone())
        .unwrap_or_else(|| PathBuf::from("/"));
    let mut steps = mounted.steps;
    let told = env::SessionNames {
        project: real.as_deref(),
        session: &invocation.session,
        cwd: &cwd,
    };
    let mut environment = match &invocation.job {
        None => env::build(policy, host, told),
        Some(job) => {
            if let Some((at, content)) = &job.script {
                place_script(&mut steps, at, content);
            }
            env::build_for_job(policy, host, job, told)
        }
    };
    let mut omitted = mounted.omitted;
    omitted.extend(ssh.omitted);
    if ssh.agent.is_some() {
        ssh::set(&mut environment);
    }
    if let Some(filter) = &mut filter {
        let (planned, left_out) = credentials::planned(&credentials, &filter.rules, invocation);
        omitted.extend(left_out);
        (filter.credentials, filter.trust) = (planned, mounted.trust);
        filter.kept = credentials::kept(&credentials, invocation);
        match &invocation.job {
            None => credentials::set(&mut environment, &credentials, filter, host),
            Some(job) => credentials::set_in_job(&mut environment, filter, job),
        }
    }
    let mut clamped = policy.clamped.clone();
    clamped.extend_from_slice(hides.clamped());
    clamped.extend(mounted.clamped);
    clamped.extend(environment.clamped);
    clamped.extend(slurm::clamped(policy, host));
    let forwarded = forward::of(policy, &network, filter.as_ref(), in_job)?;
    clamped.extend(forwarded.clamped);
    omitted.extend(forwarded.omitted);
    let mut told = Vec::new();
    for one in clamped {
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
    if !landlock_scope && network.value == NetworkMode::Open {
        weaknesses.push(
            "this kernel cannot keep the jail from abstract unix sockets of the host (it needs Landlock ABI 6, \
             Linux 6.12); `network.mode = \"isolated\"` does"
                .to_owned(),
        );
    }
    if let Some(NoMediator::Refused(why)) = &host.no_mediator {
        weaknesses.push(format!(
            "the set-group-ID bit of directories, your other groups and ACLs that name somebody else cannot be set inside: {why}"
        ));
    }
    let isolated = network.value == NetworkMode::Isolated;
    let traced = trace::asked(
        policy,
        (invocation, isolated),
        (&hides, &steps),
        files,
        host.traced,
    );
    let limit = policy.jail.max_processes.clone();
    let no_walk = no_walk::resolve(policy, host, files)?;
    let own: Vec<&Path> = real
        .as_deref()
        .into_iter()
        .chain([mounted.home.as_path()])
        .collect();
    let listed = no_walk::listed(&no_walk, &steps, &own, files)?;
    let mut plan = Plan {
        session: invocation.session.clone(),
        project: real,
        home: mounted.home,
        steps,
        keeping: mounted.keeping,
        hidden: hides,
        variables: environment.variables,
        hidden_variables: environment.hidden,
        omitted,
        clamped: told,
        site_bounds,
        weaknesses,
        syscalls: syscalls::rules(syscalls::Switches {
            nested: policy.jail.nested.value,
            keyctl: policy.jail.keyctl.value,
            mediated: host.no_mediator.is_none(),
            besides: &[],
        }),
        filter,
        ssh: ssh.agent,
        network,
        forward: forwarded.ports,
        nested: policy.jail.nested.clone(),
        listed,
        no_walk,
        limits: limits::of_session(policy, in_job),
        max_processes: limit.map(|most| (most > 0).then(|| most.into())),
        mediated: host.no_mediator.is_none(),
        landlock_scope,
        landlock_writes: landlock_scope && !policy.jail.nested.value,
        slurm: slurm::availability(policy, host)?,
        allocation: host.allocation.clone(),
        trace: traced,
        injected_files: mounted.injected_files,
        cwd,
        command: invocation.command.clone(),
    };
    injected_files::hand_out(&mut plan, policy, invocation.job.is_some());
    Ok(plan)
}
