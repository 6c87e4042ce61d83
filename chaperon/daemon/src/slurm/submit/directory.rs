//! The directory of a job or a step.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::refusal::Refusal;

/// A path has less bytes than this (`PATH_MAX`, `limits.h`).
pub(super) const LONGEST_PATH: usize = 4096;

/// The directory in which the job starts: what was wanted, as seen from the shim's `own`.
///
/// # Errors
/// The shim has none.
pub(super) fn of(own: &Path, wanted: Option<&OsStr>) -> Result<PathBuf, Refusal> {
    let directory = match wanted {
        Some(wanted) => own.join(wanted),
        None => own.to_owned(),
    };
    // Also what a shim says whose directory was removed.
    if !directory.is_absolute() {
        return Err(Refusal::mistake("getcwd failed: No such file or directory"));
    }
    if directory.as_os_str().len() >= LONGEST_PATH {
        return Err(too_long("directory"));
    }
    // Slurm shows it in lines of many jobs.
    if directory
        .as_os_str()
        .as_bytes()
        .iter()
        .any(u8::is_ascii_control)
    {
        return Err(Refusal::mistake(
            "the directory's name has control characters, which would garble what Slurm shows",
        ));
    }
    Ok(directory)
}

/// A path that no system call takes.
pub(super) fn too_long(what: &str) -> Refusal {
    Refusal::mistake(format!("the path of the {what} is too long"))
}
