//! Errors about what is to be protected, and of which nothing can be known.

use std::path::Path;

use crate::plan::model::PlanError;

/// The error about something that is to be protected and does not answer: what stands there, nobody
/// knows.
pub fn stalled(path: &Path) -> PlanError {
    unknown(path, "it does not answer")
}

/// The same, for any reason.
pub fn unknown(path: &Path, why: &str) -> PlanError {
    let message = format!("cannot protect `{}`: {why}", path.display());
    PlanError::new(message).hint(
        "is its file system alive, and the directory your own and open to you? files.timeout_ms says how \
         long an answer may take",
    )
}

/// The error about a directory that a jail may have closed so that nothing in it is seen.
pub fn closed(path: &Path, directory: &Path) -> PlanError {
    let message = format!(
        "cannot look at `{}`: `{}` may not be searched, and a jail could open it again",
        path.display(),
        directory.display()
    );
    PlanError::new(message).hint(format!("chmod u+rwx '{}'", directory.display()))
}
