//! A run that is watched, so that a profile can be written of it (`agent-sandbox profile init`): the
//! built-in policy and the site's, with what the user's own takes away, a private home with nothing of
//! the user's to write, no Slurm.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::sys::utsname::uname;

use super::prepared::Prepared;
use crate::config::load::RawLayer;
use crate::config::source::{Layer, Source, Sourced};
use crate::handoff::Watch;
use crate::mediate::sight::calls::WATCHED;
use crate::observe::recorder;
use crate::plan::Plan;
use crate::policy::trace::Events;
use crate::policy::{HomeMode, Policy, SlurmMode, Trace, TraceMode};
use crate::seccomp::watched;
use crate::sys::passing;

/// What messages name as the place of what such a run is given.
const WHY: &str = "profile init";

/// Takes out of the user's layers what gives something, and every profile. What takes away stays, and so
/// does what the command line says, for it was said for this run.
pub(super) fn without_what_is_given(layers: &mut Vec<RawLayer>) {
    layers.retain(|layer| layer.layer != Layer::Profile);
    let users = layers
        .iter_mut()
        .filter(|layer| matches!(layer.layer, Layer::User | Layer::Project));
    for sections in users.map(|layer| &mut layer.sections) {
        if let Some(project) = &mut sections.project {
            project.git = None;
            project.settings = None;
        }
        if let Some(home) = &mut sections.home {
            home.mode = None;
            home.read = None;
            home.write = None;
            home.seed = None;
            home.keep = None;
        }
        if let Some(files) = &mut sections.files {
            files.read = None;
            files.write = None;
            files.unhide = None;
        }
        if let Some(env) = &mut sections.env {
            env.pass = None;
            env.set = None;
        }
        if let Some(devices) = &mut sections.devices {
            devices.allow = None;
        }
        if let Some(jail) = &mut sections.jail {
            jail.nested = None;
            jail.keyctl = None;
        }
    }
}

/// Takes from the home everything that the run could write, and from the run the jobs that nobody
/// would watch.
pub(super) fn make_private(policy: &mut Policy) {
    let source = || Source::option(WHY);
    policy.home.mode = Sourced::new(HomeMode::Tmpfs, source());
    policy.home.write.clear();
    policy.home.seed.clear();
    policy.home.keep.clear();
    policy.slurm.mode = Sourced::new(SlurmMode::Off, source());
    have_told(&mut policy.trace);
}

/// Has a tracer record what a profile can be made of, where the run is traced at all. It is more than was asked
/// for, and never less.
fn have_told(trace: &mut Trace) {
    if trace.mode.value == TraceMode::Off {
        return;
    }
    let source = || Source::option(WHY);
    let kinds = ["exec", "open", "connect", "operation"];
    let more = kinds.into_iter().try_fold(trace.events.value, Events::with);
    if let Some(more) = more.filter(|more| !more.are_in(trace.events.value)) {
        trace.events = Sourced::new(more, source());
    }
    if !trace.missing.value {
        trace.missing = Sourced::new(true, source());
    }
    if trace.every.value > 1 {
        trace.every = Sourced::new(1, source());
    }
    if !trace.enforce.value && !trace.audit.value {
        trace.audit = Sourced::new(true, source());
    }
}

/// Whether it is this run alone that wants to hear what the second layer would deny: then it does without.
pub(super) fn asks_for_audit(policy: &Policy) -> bool {
    !policy.trace.enforce.value && policy.trace.audit.source == Source::option(WHY)
}

/// How the command of this plan is watched, if it is; `home` is the private one.
pub(super) fn watch(prepared: &Prepared, plan: &Plan, home: &Path) -> Option<Box<Watch>> {
    let recorder = prepared.recorder.as_ref()?;
    let host = &prepared.host;
    let reals = host.home_reals.iter().map(std::path::PathBuf::as_path);
    let named = [host.home.as_path(), plan.home.as_path(), home];
    let homes = named.into_iter().chain(reals);
    {
        let seen = &mut recorder.borrow_mut().seen;
        seen.begin(&plan.steps, homes);
        if let (false, Some(own)) = (home == plan.home, home.parent()) {
            seen.stands_in(own);
        }
    }
    let release = uname().ok();
    let release = release.map(|name| name.release().to_string_lossy().into_owned());
    let can = release.is_some_and(|release| recorder::can_watch(&release));
    Some(Box::new(Watch {
        program: can.then(|| watched::program(WATCHED)),
        home: home.as_os_str().as_bytes().to_vec(),
    }))
}

/// The same where the mediator's filter hands calls over: a process has one such filter at most
/// (`seccomp(2)`, `EBUSY`), and the mediator tells what they are about.
pub(super) fn without_calls(mut watch: Box<Watch>) -> Box<Watch> {
    watch.program = None;
    watch
}

/// Has the recorder hear what is told on the socket that is the answer.
///
/// # Errors
/// What `socketpair(2)` answers.
pub(super) fn hear(recorder: &recorder::Shared) -> std::io::Result<OwnedFd> {
    let (ours, theirs) = passing::pair()?;
    recorder.borrow_mut().hear(ours);
    Ok(theirs)
}
