//! What one task of a step does whatever makes its jail.

use crate::failure::{self};
use crate::launch::announcements::Announcements;
use crate::launch::supervisor::{Company, Outcome};
use crate::sys::process;
use anyhow::{Result, bail};

/// Whether this is the first task of its step. A batch script's one process has no number.
pub(super) fn is_first() -> bool {
    number("SLURM_PROCID").unwrap_or(0) == 0
}

/// Says what is lacking, once for all tasks of a step: the first says it.
pub(super) fn say_once(lacking: &[String]) {
    if is_first() {
        failure::say(&lacking.concat());
    }
}

/// What stands by a task.
///
/// # Errors
/// slurmstepd has ended. It may by a fault of its own, and nobody else would end its tasks then.
pub(super) fn company(announcements: Option<Announcements>) -> Result<Company> {
    const GONE: &str = "Slurm's daemon of this step (slurmstepd) has ended";
    let parent = nix::unistd::getppid();
    if parent.as_raw() <= 1 {
        bail!(GONE);
    }
    let parent = match process::descriptor_of(parent) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => bail!(GONE),
        // Kernels before 5.3 have no such descriptors.
        parent => parent.ok(),
    };
    // It was that one's number before and is it still, so the descriptor is that one's.
    if parent.is_some() && nix::unistd::getppid().as_raw() <= 1 {
        bail!(GONE);
    }
    Ok(Company {
        announcements,
        by_slurm: true,
        parent,
        ..Company::default()
    })
}

/// Removes the file of Slurm's own words after a command that ran, if there were none.
pub(super) fn clean_up(outcome: &Outcome, company: Company) {
    if let (Outcome::Ended(_), Some(announcements)) = (outcome, company.announcements) {
        // An empty file that stays harms nobody.
        let _ = announcements.remove_if_empty();
    }
}

/// A number that Slurm passes in a variable.
pub(super) fn number(name: &str) -> Option<u32> {
    std::env::var(name).ok()?.parse().ok()
}
