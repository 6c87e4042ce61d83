//! A task in a jail of its own, by a backend whose jail tasks cannot share: with its own directory, what stands by it
//! and, once it asks for Slurm, its own chaperon.

use std::ffi::OsStr;
use std::io::pipe;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Result;

use super::task::{clean_up, company, is_first, say_once};
use crate::handoff::Run;
use crate::launch;
use crate::launch::announcements::Announcements;
use crate::launch::backend::{Backend, Reason, with_reason};
use crate::launch::chaperon;
use crate::launch::network::{Filter, KnownBy};
use crate::launch::supervisor::Outcome;
use crate::launch::untraced;
use crate::share::Wanted;
use crate::share::server::of_network;

/// Runs a task. `run` is what it runs, but for what the plan says of it; `instead` is why bubblewrap does not make its
/// jail, if nobody asked for this backend.
///
/// # Errors
/// Everything but the command's own end.
pub(super) fn run(
    backend: &dyn Backend,
    wanted: Wanted,
    run: Run,
    announcements: Option<Announcements>,
    instead: Option<&Reason>,
) -> Result<Outcome> {
    stand_by(backend, wanted, run, announcements, instead)
        .map_err(|error| with_reason(error, instead))
}

fn stand_by(
    backend: &dyn Backend,
    wanted: Wanted,
    run: Run,
    mut announcements: Option<Announcements>,
    instead: Option<&Reason>,
) -> Result<Outcome> {
    let Wanted {
        snapshot,
        asked,
        job,
        step,
        ..
    } = wanted;
    let mut prepared = launch::prepare_from_snapshot(snapshot, asked)?;
    let ready = backend.prepare(&mut prepared, instead)?;
    let plan = ready.plan();
    let told = &prepared.snapshot.told;
    let mut lacking = ready.told();
    let all = lacking.clone();
    lacking.retain(|line| !told.contains(line));
    lacking.extend(of_network(plan, step));
    say_once(&lacking);
    if let Some(announcements) = &mut announcements {
        announcements.belongs_to(&prepared.host.state_directory);
    }
    let tracer = prepared.tracer(plan, is_first())?;
    if let (Some(request), None) = (&plan.trace.request, &tracer) {
        untraced::note(&prepared.host.state_directory, request);
    }
    let mut company = company(announcements)?;
    company.chaperon = chaperon::on_call(&prepared, plan, all, Some(job))?;
    let (said, errors) = pipe()?;
    company.network = Filter::of_job(&prepared, plan, errors.into(), KnownBy::Itself)?;
    company.refused = Some(said);
    let bytes = |text: &OsStr| text.as_bytes().to_vec();
    let cwd = ready.real(Path::new(OsStr::from_bytes(&run.cwd)));
    let mut run = Run {
        cwd: bytes(cwd.as_os_str()),
        // The script of a job does not stand where Slurm put it.
        argv: plan.command.iter().map(|word| bytes(word)).collect(),
        cwd_else: Some(bytes(plan.cwd.as_os_str())),
        environment: launch::environment(&plan.variables),
        search: launch::search_path(&plan.variables),
        ..run
    };
    company.hold(&mut run, tracer);
    drop(prepared);
    let running = ready.start(run, &mut company)?;
    let outcome = running.supervise(&mut company)?;
    clean_up(&outcome, company);
    Ok(outcome)
}
