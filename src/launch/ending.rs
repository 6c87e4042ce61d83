//! From how a launch went to the exit code or the error that the user sees.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::Result;

use super::diagnose;
use super::supervisor::Outcome;
use crate::env_vars;
use crate::failure::Failure;

/// The exit code of a launch, or why there was none.
///
/// # Errors
/// Everything but the command's own end.
pub fn conclude(outcome: Outcome, command: &OsStr) -> Result<u8> {
    match outcome {
        Outcome::Ended(end) => Ok(end.exit_code()),
        Outcome::Refused(reason) => Err(Failure::new(format!(
            "the jail is not as planned: {reason}"
        ))
        .hint("nothing was started; try again, and see who changes the path if it stays")
        .into()),
        Outcome::NotExecuted(errno) => Err(not_executed(errno, command).into()),
        Outcome::Untraced(failure) => Err(failure.into()),
        Outcome::NoStream { path, errno, .. } => Err(Failure::new(format!(
            "cannot open `{}`: {}",
            OsStr::from_bytes(&path).display(),
            io::Error::from_raw_os_error(errno)
        ))
        .into()),
        Outcome::NoJail(words) => {
            let cause = diagnose::cause(&words, &diagnose::findings());
            let mut failure = Failure::new(cause.what);
            if !words.is_empty() {
                failure = failure.hint(format!("bubblewrap said: {words}"));
            }
            Err(failure
                .hint(format!("user: {}", cause.user))
                .hint(format!("admin: {}", cause.admin))
                .into())
        }
    }
}

fn not_executed(errno: i32, command: &OsStr) -> Failure {
    let shown = command.display();
    let why = io::Error::from_raw_os_error(errno);
    if errno != libc::ENOENT {
        return Failure::new(format!("cannot execute `{shown}`: {why}")).code(126);
    }
    let failure = Failure::new(format!("`{shown}`: command not found in the jail")).code(127);
    match outside(command) {
        Some(path) => {
            let directory = path.parent().unwrap_or(&path).display();
            failure
                .hint(format!(
                    "it exists outside, as `{}`, and the jail does not show it",
                    path.display()
                ))
                .hint(format!(
                    "--read {directory} shows it for one run; `agent-sandbox explain {}` says more",
                    path.display()
                ))
        }
        None => failure,
    }
}

/// Where the command stands outside.
fn outside(command: &OsStr) -> Option<PathBuf> {
    if command.is_empty() {
        return None;
    }
    if command.as_bytes().contains(&b'/') {
        return std::fs::canonicalize(command).ok();
    }
    let search = std::env::var_os(env_vars::PATH)?;
    let found = std::env::split_paths(&search).map(|directory| directory.join(command));
    found
        .filter(|path| path.is_absolute())
        .find_map(|path| std::fs::canonicalize(path).ok())
}
