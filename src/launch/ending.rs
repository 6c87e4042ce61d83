//! From how a launch went to the exit code or the error that the user sees.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use anyhow::Result;

use super::diagnose;
use super::supervisor::Outcome;
use crate::failure::Failure;

/// The exit code of a command that was not found inside, as shells have it.
pub const NOT_FOUND: u8 = 127;

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
        Outcome::Withheld(failure) => Err(failure.into()),
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
    // Where it is outside, who asks for the jail looks: `report::not_found`.
    Failure::new(format!("`{shown}`: command not found in the jail")).code(NOT_FOUND)
}
