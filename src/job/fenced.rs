//! A task in a jail that Landlock makes. It shares nothing: each task has a jail of its own, with its
//! own mediator, its own directory and, once it asks for Slurm, its own chaperon.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Result;

use super::task::{clean_up, company, is_first, say_once};
use crate::backend::landlock::access::Reach;
use crate::failure::Failure;
use crate::handoff::Run;
use crate::launch;
use crate::launch::announcements::Announcements;
use crate::launch::chaperon::Chaperon;
use crate::launch::fallback::Reason;
use crate::launch::landlock::Ready;
use crate::launch::supervisor::Outcome;
use crate::launch::untraced;
use crate::share::Wanted;

/// Runs a task. `run` is what it runs, but for what the plan says of it; `instead` is why its jail is
/// none of bubblewrap's, if nobody asked for it.
///
/// # Errors
/// Everything but the command's own end.
pub(super) fn run(
    wanted: Wanted,
    run: Run,
    announcements: Option<Announcements>,
    instead: Option<&Reason>,
) -> Result<Outcome> {
    stand_by(wanted, run, announcements, instead).map_err(|error| match instead {
        Some(reason) => reason.and(&error),
        None => error,
    })
}

fn stand_by(
    wanted: Wanted,
    run: Run,
    mut announcements: Option<Announcements>,
    instead: Option<&Reason>,
) -> Result<Outcome> {
    let Wanted {
        seal, asked, job, ..
    } = wanted;
    let mut prepared = launch::prepare_sealed(seal, asked)?;
    let ready = Ready::new(&mut prepared, instead)?;
    let fenced = &ready.planned.fenced;
    let plan = &fenced.plan;
    let executable = &prepared.host.executable;
    if fenced.charge.territory.reach(executable) == Reach::Write {
        return Err(Failure::new(format!(
            "the program `{}` stands where its own tasks may write",
            executable.display()
        ))
        .hint("install agent-sandbox outside of the project and of what is writable inside")
        .into());
    }
    let told = &prepared.seal.told;
    let mut lacking = ready.told();
    let all = lacking.clone();
    lacking.retain(|line| !told.contains(line));
    say_once(&lacking);
    if let Some(announcements) = &mut announcements {
        announcements.belongs_to(&prepared.host.state_directory);
    }
    let tracer = prepared.tracer(plan, is_first())?;
    if let (Some(wish), None) = (&plan.trace.wish, &tracer) {
        untraced::note(&prepared.host.state_directory, wish);
    }
    let mut company = company(announcements)?;
    company.chaperon = Chaperon::new(&prepared, plan, all, Some(job))?;
    let bytes = |text: &OsStr| text.as_bytes().to_vec();
    let cwd = fenced.places.real(Path::new(OsStr::from_bytes(&run.cwd)));
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
