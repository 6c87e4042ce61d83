//! Which backend makes the jail of a launch. Where the options leave it open, bubblewrap does unless it cannot work on this
//! node, which is found by trying.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;

use super::backend::{Backend, Reason};
use super::bubblewrap::{self, Bubblewrap};
use super::diagnose;
use super::landlock::Landlock;
use crate::cli;
use crate::host;

/// The backend that does without what bubblewrap needs. The one place that names it.
const OTHER: &dyn Backend = &Landlock;
/// bubblewrap, wherever it is.
const BUBBLEWRAP: &dyn Backend = &Bubblewrap { program: None };

/// What every jail of bubblewrap's is made of. Where this does not work none will; where it does,
/// whatever went wrong is about one jail, and said.
const TRIAL: [&str; 13] = [
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--die-with-parent",
    "--ro-bind",
    "/",
    "/",
    "--tmpfs",
    "/tmp",
    "--proc",
    "/proc",
    "--",
];
/// The same of one that has all options.
const TRIAL_OF_LATER: [&str; 1] = ["--disable-userns"];

/// The backend that is asked for, or tried first.
pub fn first(asked: cli::Backend) -> &'static dyn Backend {
    match asked {
        cli::Backend::Auto | cli::Backend::Bwrap => BUBBLEWRAP,
        cli::Backend::Landlock => OTHER,
    }
}

/// The backend that made a jail, as its document says.
pub fn that_made(landlock: bool) -> &'static dyn Backend {
    if landlock { OTHER } else { BUBBLEWRAP }
}

/// The backend that a launch would use, and why it is not the first, if that cannot work.
pub fn chosen(asked: cli::Backend) -> (&'static dyn Backend, Option<Reason>) {
    match fallback(asked) {
        Some((other, reason)) => (other, Some(reason)),
        None => (first(asked), None),
    }
}

/// The backend that does instead of bubblewrap, where the options permit it and bubblewrap cannot work.
pub fn fallback(asked: cli::Backend) -> Option<(&'static dyn Backend, Reason)> {
    match asked {
        cli::Backend::Auto => tried().map(|reason| (OTHER, reason)),
        cli::Backend::Bwrap | cli::Backend::Landlock => None,
    }
}

/// The backend that a launch tries first: a bubblewrap that cannot be used, or that is switched off on this node, is not
/// tried.
///
/// # Errors
/// There is no bubblewrap that can be used, and it is asked for.
pub(super) fn for_launch(asked: cli::Backend) -> Result<(Box<dyn Backend>, Option<Reason>)> {
    if asked == cli::Backend::Landlock {
        return Ok((Box::new(Landlock), None));
    }
    let reason = match (bubblewrap::find(), asked) {
        // Before a jail is announced that cannot come up.
        (Ok(program), cli::Backend::Auto) if diagnose::is_switched_off() => match found(&program) {
            Some(reason) => reason,
            None => return Ok((Box::new(Bubblewrap::at(program)), None)),
        },
        (Ok(program), _) => return Ok((Box::new(Bubblewrap::at(program)), None)),
        (Err(error), cli::Backend::Auto) => Reason::missing(&error),
        (Err(error), _) => return Err(error),
    };
    Ok((Box::new(Landlock), Some(reason)))
}

/// Why bubblewrap builds no jail at all, by trying; `None`: it does, and what it said before is about the
/// jail that it was asked for.
pub fn found(bwrap: &Path) -> Option<Reason> {
    let words = attempt(bwrap).err()?;
    let cause = diagnose::cause(&words, &diagnose::findings());
    Some(Reason {
        what: cause.what,
        hints: vec![format!("admin: {}", cause.admin)],
    })
}

/// The same, wherever it stands, if it does.
fn tried() -> Option<Reason> {
    match bubblewrap::find() {
        Err(error) => Some(Reason::missing(&error)),
        Ok(bwrap) => found(&bwrap),
    }
}

/// Has bubblewrap build a jail, in which nothing happens.
///
/// # Errors
/// Its own words.
fn attempt(bwrap: &Path) -> Result<(), String> {
    // Without it nothing could have been tried before.
    let Ok(program) = host::executable() else {
        return Ok(());
    };
    let has_all = host::bubblewrap::lacks(bwrap).is_empty();
    let later = TRIAL_OF_LATER.iter().filter(|_| has_all);
    let output = Command::new(bwrap)
        .args(later)
        .args(TRIAL)
        .arg(program)
        .arg("--version")
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start `{}`: {error}", bwrap.display()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}
