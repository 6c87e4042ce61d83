//! The capsule of a job or a step: what starts there begins with the policy of the session.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use agent_sandbox_wire::capsule::{Capsule, Program, Streams};
use agent_sandbox_wire::command::Command;

use crate::session::Session;
use crate::slurm::cluster;
use crate::slurm::options::Release;
use crate::slurm::parse::Parsed;
use crate::slurm::request::Context;
use crate::slurm::submit::export::{Wins, exported};
use crate::variables::{Variables, entries, set};

/// A capsule. `real` is what the real command's environment has beside the session's.
pub(super) fn capsule(
    context: &Context<'_>,
    parsed: &Parsed,
    real: &Variables,
    cwd: &OsStr,
    streams: Streams,
    program: Program,
) -> Capsule {
    let session = &context.session;
    let export = parsed.value("export");
    let wins = match context.request.command {
        Command::Sbatch => Wins::Later,
        _ => Wins::Shell,
    };
    let mut environment = exported(export, &context.request.environment, wins);
    if export.is_some() {
        // A shell that lacks these has lost them; a login would bring them back.
        for (name, value) in login(session) {
            if !environment.iter().any(|(known, _)| *known == name) {
                environment.push((name, value));
            }
        }
    }
    if context.request.command == Command::Sbatch {
        let release = cluster::known_release(session);
        announce_export(export, release, &mut environment);
    }
    Capsule {
        snapshot: session.order.snapshot.clone(),
        base_environment: base_environment(session, real),
        environment: entries(&environment),
        cwd: cwd.as_bytes().to_vec(),
        submit_directory: context.request.cwd.as_os_str().as_bytes().to_vec(),
        umask: context.request.umask,
        streams,
        program,
    }
}

/// Since this release (23.02.3) `--export=NIL` is a word of its own, with which sbatch asks for no login.
const KNOWS_NIL: Release = Release::new(23, 2);

/// What sbatch sets in a job that it gives a part of its environment, for the job's steps: they get
/// no more (`src/sbatch/opt.c`, `src/sbatch/sbatch.c`). `release` is Slurm's; none: the newest.
fn announce_export(export: Option<&OsStr>, release: Option<Release>, environment: &mut Variables) {
    const STEPS: &str = "SLURM_EXPORT_ENV";
    const LOGIN: &str = "SLURM_GET_USER_ENV";
    let Some(list) = export.filter(|list| !list.eq_ignore_ascii_case("ALL")) else {
        return;
    };
    if !environment.iter().any(|(name, _)| name == STEPS) {
        environment.push((STEPS.into(), list.to_owned()));
    }
    let knows_nil = release.is_none_or(|release| release >= KNOWS_NIL);
    if !(knows_nil && list.eq_ignore_ascii_case("NIL")) {
        set(environment, OsStr::new(LOGIN), "1".into());
    }
}

fn login(session: &Session) -> [(OsString, OsString); 3] {
    let order = &session.order;
    [
        ("HOME".into(), OsString::from_vec(order.home.clone())),
        ("USER".into(), order.user.clone().into()),
        ("LOGNAME".into(), order.user.clone().into()),
    ]
}

/// The whole environment of a real command, as `NAME=VALUE` entries.
fn base_environment(session: &Session, real: &Variables) -> Vec<Vec<u8>> {
    let mut all: Variables = session
        .environment()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    for (name, value) in real {
        set(&mut all, name, value.clone());
    }
    entries(&all)
}
