//! The ordered effects of one launch: look, plan, record the session, build the jail, wait.

use super::backend::{Backend, Reason, Running, with_reason};
use super::deadline::{Deadline, TIMED_OUT};
use super::ending::conclude;
use super::forward::Forward;
use super::network::Filter;
use super::orders::{mediated, mediated_terms, register};
use super::prepare::prepare_session;
use super::prepared::Prepared;
use super::result::Collector;
use super::supervisor::{Company, Outcome};
use super::{
    absent, begun, chaperon, choice, credentials, limits, observed, orders, ssh_agent,
    start_messages,
};
use crate::cli::Options;
use crate::env_vars;
use crate::failure::{self, Failure};
use crate::logging::Stopwatch;
use crate::plan::Plan;
use crate::plan::build::git;
use crate::session::Registered;
use crate::sys::fds;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

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

/// What a caller that is a program wants around a command.
#[derive(Debug, Default)]
pub struct Course {
    /// After which time the command is ended.
    pub timeout: Option<Duration>,
    /// What gathers how it went.
    pub result: Option<Collector>,
    /// Whether the command was ended because its time was over.
    timed_out: bool,
}

impl Course {
    /// For a command that may run for so long, whose result somebody gathers.
    pub fn new(timeout: Option<Duration>, result: Option<Collector>) -> Self {
        Self {
            timeout,
            result,
            timed_out: false,
        }
    }
}

/// Runs a command in a jail. `prepared` was made of the same options and command.
///
/// # Errors
/// Everything but the command's own end.
pub fn run(
    options: &Options,
    command: &[OsString],
    mut prepared: Prepared,
    course: &mut Course,
) -> Result<u8> {
    prepared.find_allocation();
    let found = prepared.allocation.clone();
    let asked = options.backend.unwrap_or_default();
    let (backend, instead) = choice::for_launch(asked)?;
    log_choice(backend.as_ref(), instead.as_ref());
    let session = prepared.invocation.session.clone();
    let recorder = prepared.recorder.clone();
    let by = backend.as_ref();
    let (mut outcome, mut name) = run_by(by, options, prepared, instead.as_ref(), course)?;
    if let Outcome::NoJail(_) = outcome
        && let Some((other, reason)) = choice::fallback(asked)
    {
        log_choice(other, Some(&reason));
        // What the launcher knew of the host is gone, for it does not stay with a jail that works.
        let mut again = prepare_session(options, command, session, recorder)?;
        again.adopt(found);
        (outcome, name) = run_by(other, options, again, Some(&reason), course)?;
    }
    match outcome {
        Outcome::Ended(_) if course.timed_out => Ok(TIMED_OUT),
        outcome => conclude(outcome, &name),
    }
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
    course: &mut Course,
) -> Result<(Outcome, OsString)> {
    let started = start(backend, options, prepared, instead, course);
    let (running, mut company, _registered, name) = started?;
    let memory = std::mem::take(&mut company.memory);
    let outcome = running.supervise(&mut company)?;
    if let Some(line) = company
        .measured
        .taken
        .and_then(|taken| limits::said_of_memory(&taken, &memory))
    {
        failure::say(&line);
    }
    let over = company.deadline.over();
    course.timed_out = over.is_some();
    if let Some(result) = &mut course.result {
        result.end(&outcome, over, std::mem::take(&mut company.measured));
    }
    Ok((outcome, name))
}

fn start(
    backend: &dyn Backend,
    options: &Options,
    prepared: Prepared,
    instead: Option<&Reason>,
    course: &mut Course,
) -> Result<(Box<dyn Running>, Company, Registered, OsString)> {
    let mut prepared = prepared;
    let mut watch = Stopwatch::start();
    // What follows of the policy would stop the other backend's jail as well.
    let because = |error| with_reason(error, instead);
    let ready = backend.prepare(&mut prepared, instead).map_err(because)?;
    let plan = ready.plan();
    log_plan(plan, &mut watch);
    if let Some(mut result) = course.result.take() {
        // Where the jail could change it there is none.
        result.begin(&prepared, ready.as_ref())?;
        course.result = Some(result);
    }
    let tracer = prepared.tracer(plan, true)?;
    tracing::info!(target: "tracer", took = ?watch.lap(), traced = tracer.is_some(), "tracer asked");
    let limits = limits::enforce(plan, course.result.is_some())?;
    let announcement = start_messages::announcement(plan, options, || {
        let logins = prepared.login_hint(plan) + &absent::note(&prepared, plan);
        logins + &prepared.shell_hint() + &ready.weaker(options.verbose > 0)
    });
    let values = credentials::read(&prepared, plan)?;
    let forward = Forward::new(&prepared.host, plan, None)?;
    let forwarded = forward.as_ref().filter(|_| !options.quiet);
    let forwarded = forwarded.map(Forward::line).unwrap_or_default();
    let memory = limits::memory(&plan.limits);
    let mut company = Company {
        memory,
        chaperon: chaperon::on_call(&prepared, plan, ready.told(), None)?,
        ssh: ssh_agent::on_call(&prepared, plan, !options.quiet)?,
        network: Filter::new(&prepared, plan, &values, options)?,
        recorder: prepared.recorder.clone(),
        announcement: announcement
            + &limits.note
            + &forwarded
            + &prepared.said_of_allocation(options.quiet),
        wanted: limits.group.map(|group| (plan.session.clone(), group)),
        mediated: mediated_terms(plan),
        deadline: Deadline::after(course.timeout).idle_for(limits::idle(&plan.limits)),
        ..Company::default()
    };
    let name = plan.command.first().cloned().unwrap_or_default();
    let registered = register(&prepared.host, plan, &name, forward.as_ref())?;
    company.begun = begun::record(&prepared.host, plan, &name);
    company.forward = forward;
    let mut run = orders::command(plan);
    credentials::conceal(&values, &mut run.environment);
    run.confinement.least = limits.least;
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
    let running = ready.start(run, &mut company).map_err(because)?;
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
