//! The ordered effects of one launch: look, plan, record the session, build the jail, wait.

use super::chaperon::Chaperon;
use super::ending::conclude;
use super::fallback::Reason;
use super::orders::{mediated, mediated_terms, register};
use super::prepare::prepare_session;
use super::prepared::Prepared;
use super::supervisor::{Company, Outcome};
use super::{absent, bubblewrap, diagnose, kept, landlock, observed, orders, said};
use crate::cli::{Backend, Options};
use crate::env_vars;
use crate::failure::Failure;
use crate::handoff::Order;
use crate::plan::build::git;
use crate::sys::fds;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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
    let backend = options.backend.unwrap_or_default();
    if backend == Backend::Landlock {
        return landlock::run(options, prepared, None);
    }
    let bwrap = match (bubblewrap::find(), backend) {
        (Ok(bwrap), Backend::Auto) if diagnose::is_switched_off() => {
            // Before a jail is announced that cannot come up.
            if let Some(reason) = Reason::found(&bwrap) {
                return landlock::run(options, prepared, Some(&reason));
            }
            bwrap
        }
        (Ok(bwrap), _) => bwrap,
        (Err(error), Backend::Auto) => {
            return landlock::run(options, prepared, Some(&Reason::missing(&error)));
        }
        (Err(error), _) => return Err(error),
    };
    let session = prepared.invocation.session.clone();
    let witness = prepared.witness.clone();
    let (outcome, name) = with_bubblewrap(options, prepared, &bwrap)?;
    if let (Outcome::NoJail(_), Backend::Auto) = (&outcome, backend)
        && let Some(reason) = Reason::found(&bwrap)
    {
        // What the launcher knew of the host is gone, for it does not stay with a jail that works.
        let mut again = prepare_session(options, command, session, witness)?;
        again.adopt(found);
        return landlock::run(options, again, Some(&reason));
    }
    conclude(outcome, &name)
}

/// How it went with bubblewrap, and the command's name.
fn with_bubblewrap(
    options: &Options,
    prepared: Prepared,
    bwrap: &Path,
) -> Result<(Outcome, OsString)> {
    let mut prepared = prepared;
    let (plan, standing) = kept::ready(&mut prepared)?;
    let tracer = prepared.tracer(&plan, true)?;
    prepared.make_places(&plan)?;
    let told = said::shortcomings(&plan, false);
    let mut company = Company {
        chaperon: Chaperon::new(&prepared, &plan, told, None)?,
        witness: prepared.witness.clone(),
        announcement: said::announcement(&plan, options, || {
            prepared.login_hint(&plan) + &absent::note(&prepared, &plan) + &prepared.shell_hint()
        }) + &prepared.said_of_allocation(options.quiet),
        mediated: mediated_terms(&plan),
        ..Company::default()
    };
    let command = plan.command.first().cloned().unwrap_or_default();
    let _registered = register(&prepared.host, &plan, &command)?;
    let mut run = orders::command(&plan);
    run.confinement.watch = observed::watch(&prepared, &plan, &plan.home);
    run.home = (!options.quiet).then(|| plan.home.as_os_str().as_bytes().to_vec());
    // Not in jobs, where one mediator would see the renames of all tasks of a node.
    if let (Some(terms), Some(config)) = (&mut company.mediated, git::protected(&plan.steps)) {
        terms.git_config = Some(config);
        run.confinement.mediated = Some(Box::new(mediated(true)));
    }
    company.hold(&mut run, tracer);
    let order = Order {
        run: Some(run),
        ..bubblewrap::order(&plan)
    };
    let outcome = bubblewrap::carry_out(bwrap, (plan, prepared), order, company);
    standing.end();
    Ok((outcome?, command))
}
