//! The ordered effects of one launch: look, plan, record the session, build the jail, wait.

use super::backend::{Backend, Reason, Running, with_reason};
use super::ending::conclude;
use super::network::Filter;
use super::orders::{mediated, mediated_terms, register};
use super::prepare::prepare_session;
use super::prepared::Prepared;
use super::supervisor::{Company, Outcome};
use super::{absent, chaperon, choice, credentials, observed, orders, ssh_agent, start_messages};
use crate::cli::Options;
use crate::env_vars;
use crate::failure::Failure;
use crate::logging::Stopwatch;
use crate::plan::Plan;
use crate::plan::build::git;
use crate::session::Registered;
use crate::sys::fds;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Refuses circumstances in which a jail would not be one. Before anything else of a launch.
///
/// # Errors
/// The circumstance and the way out.
pub fn refuse_unsafe_start() -> Result<()> {
    if std::env::var_os(env_vars::INSIDE).is_some() {
        return Err(
            Failure::new("this is already the inside of a jail (AGENT_SANDBOX is set)")
                .hint("a jail cannot hold another; leave it first")
                .into(),
        );
    }
    if nix::unistd::Uid::effective().is_root() || nix::unistd::Uid::current().is_root() {
        return Err(Failure::new("agent-sandbox does not run as root: root's files are not protected by a jail of root's own")
            .hint("run it as an ordinary user")
            .into());
    }
    fds::close_on_exec_from(3).context("cannot keep open files from the jail")?;
    for (number, name) in [(0, "input"), (1, "output"), (2, "error")] {
        let meta = std::fs::metadata(format!("/proc/self/fd/{number}"));
        if meta.is_ok_and(|meta| meta.is_dir()) {
            return Err(Failure::new(format!(
                "standard {name} is a directory, which would be open inside the jail"
            ))
            .hint("redirect it from or to a file")
            .into());
        }
    }
    Ok(())
}

/// Runs a command in a jail. `prepared` was made of the same options and command.
///
/// # Errors
/// Everything but the command's own end.
pub fn run(options: &Options, command: &[OsString], mut prepared: Prepared) -> Result<u8> {
    prepared.find_allocation();
    let found = prepared.allocation.clone();
    let asked = options.backend.unwrap_or_default();
    let (backend, instead) = choice::for_launch(asked)?;
    log_choice(backend.as_ref(), instead.as_ref());
    let session = prepared.invocation.session.clone();
    let recorder = prepared.recorder.clone();
    let (mut outcome, mut name) = run_by(backend.as_ref(), options, prepared, instead.as_ref())?;
    if let Outcome::NoJail(_) = outcome
        && let Some((other, reason)) = choice::fallback(asked)
    {
        log_choice(other, Some(&reason));
        // What the launcher knew of the host is gone, for it does not stay with a jail that works.
        let mut again = prepare_session(options, command, session, recorder)?;
        again.adopt(found);
        (outcome, name) = run_by(other, options, again, Some(&reason))?;
    }
    conclude(outcome, &name)
}

fn log_choice(backend: &dyn Backend, instead: Option<&Reason>) {
    let because = instead.map(|reason| tracing::field::display(&reason.what));
    tracing::info!(target: "launch", backend = backend.word(), because, "backend chosen");
}

/// How it went with this backend, and the command's name. `instead` is why the other one does not make the jail, if nobody
/// asked for this one.
fn run_by(
    backend: &dyn Backend,
    options: &Options,
    prepared: Prepared,
    instead: Option<&Reason>,
) -> Result<(Outcome, OsString)> {
    let started = start(backend, options, prepared, instead);
    let (running, mut company, _registered, name) =
        started.map_err(|error| with_reason(error, instead))?;
    Ok((running.supervise(&mut company)?, name))
}

fn start(
    backend: &dyn Backend,
    options: &Options,
    prepared: Prepared,
    instead: Option<&Reason>,
) -> Result<(Box<dyn Running>, Company, Registered, OsString)> {
    let mut prepared = prepared;
    let mut watch = Stopwatch::start();
    let ready = backend.prepare(&mut prepared, instead)?;
    let plan = ready.plan();
    log_plan(plan, &mut watch);
    let tracer = prepared.tracer(plan, true)?;
    tracing::info!(target: "tracer", took = ?watch.lap(), traced = tracer.is_some(), "tracer asked");
    let announcement = start_messages::announcement(plan, options, || {
        let logins = prepared.login_hint(plan) + &absent::note(&prepared, plan);
        logins + &prepared.shell_hint() + &ready.weaker(options.verbose > 0)
    });
    let values = credentials::read(&prepared, plan)?;
    let mut company = Company {
        chaperon: chaperon::on_call(&prepared, plan, ready.told(), None)?,
        ssh: ssh_agent::on_call(&prepared, plan, !options.quiet)?,
        network: Filter::new(&prepared, plan, &values, options)?,
        recorder: prepared.recorder.clone(),
        announcement: announcement + &prepared.said_of_allocation(options.quiet),
        mediated: mediated_terms(plan),
        ..Company::default()
    };
    let name = plan.command.first().cloned().unwrap_or_default();
    let registered = register(&prepared.host, plan, &name)?;
    let mut run = orders::command(plan);
    credentials::conceal(&values, &mut run.environment);
    run.confinement.watch = observed::watch(&prepared, plan, &ready.home());
    run.home = (!options.quiet).then(|| ready.home().into_os_string().into_vec());
    // Not in jobs, where one mediator would see the renames of all tasks of a node.
    if let (Some(terms), Some(config)) = (&mut company.mediated, git::protected(&plan.steps)) {
        terms.git_config = Some(config);
        run.confinement.mediated = Some(Box::new(mediated(true)));
    }
    if let Some(filter) = &mut company.network {
        filter
            .start()
            .context("cannot start the network's filter")?;
    }
    drop(values);
    company.hold(&mut run, tracer);
    // The launcher stays for as long as the command runs; what it knew need not stay with it.
    drop(prepared);
    let running = ready.start(run, &mut company)?;
    tracing::info!(target: "launch", took = ?watch.lap(), "jail started");
    Ok((running, company, registered, name))
}

/// The plan in numbers, and what is left out and shown by name. Never values of variables.
fn log_plan(plan: &Plan, watch: &mut Stopwatch) {
    tracing::info!(
        target: "plan", took = ?watch.lap(), session = %plan.session, mounts = plan.steps.len(),
        variables = plan.variables.len(), left_out = plan.omitted.len(), network = ?plan.network.value, "planned"
    );
    for omitted in &plan.omitted {
        tracing::debug!(target: "plan", path = %omitted.path, why = %omitted.reason, rule = %omitted.why, "left out");
    }
    for step in &plan.steps {
        tracing::trace!(target: "plan", at = %step.at.display(), writable = step.mount.is_writable(), rule = %step.why, "mount");
    }
    for variable in &plan.variables {
        tracing::trace!(target: "plan", name = %variable.name.display(), "variable");
    }
}
