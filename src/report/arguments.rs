//! What words of the command line mean.

use crate::cli::{self};
use crate::config::diagnostic::nearest;
use crate::failure::Failure;
use anyhow::Result;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The subcommand that a command's name is nearly, if it is no path.
pub(super) fn meant(command: &[OsString]) -> Option<&'static str> {
    let name = command.first()?.to_str()?;
    nearest(name, cli::SUBCOMMAND_NAMES.iter().copied())
}

/// A line of Slurm's as text.
pub(super) fn slurm_line(line: &OsStr) -> Result<String> {
    let text = line.to_str();
    Ok(text
        .ok_or_else(|| Failure::new(format!("--slurm `{}` is not UTF-8", line.display())))?
        .to_owned())
}

/// The name of a host as text.
pub(super) fn host_text(host: &OsStr) -> Result<&str> {
    let text = host.to_str();
    Ok(text.ok_or_else(|| Failure::new(format!("--host `{}` is not UTF-8", host.display())))?)
}

/// A `~` that the shell left alone (it was quoted).
pub(super) fn expand_home(subject: &OsStr, home: &Path) -> PathBuf {
    match Path::new(subject).strip_prefix("~") {
        Ok(below) => home.join(below),
        Err(_) => PathBuf::from(subject),
    }
}
