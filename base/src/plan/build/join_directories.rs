//! Covers the places where tasks of the user's jobs meet. A jail that could see one would reach the
//! namespace servers of other jails, and one that could make one would be asked by tasks that come to join.
//!
//! A jail has its own `/tmp`, `/var/tmp` and `/dev/shm`, so this is about policies that give the
//! host's. The policy of the job whose tasks will meet may be another, so the place counts whether or
//! not this session needs one: it is covered like a hidden directory, and what is missing is made
//! first, by whoever carries the plan out ([`places_to_make`]). As a mount point it can neither be
//! renamed nor removed from inside.

use std::path::{Path, PathBuf};

use super::tree::Tree;
use crate::host::HostFacts;
use crate::host::files::{Files, Kind, Look};
use crate::plan::model::{Mount, Plan, PlanError, Why};

/// Covers each place that a bind shows, or would show once something stands there.
///
/// # Errors
/// Something stands there that cannot be covered for certain.
pub fn cover(tree: &mut Tree, host: &HostFacts, files: &dyn Files) -> Result<(), PlanError> {
    for place in &host.join_directories {
        if tree.access(place).is_none() {
            continue;
        }
        let mount = match files.look(place) {
            Look::Missing => Mount::HideDirectory,
            // Whoever made a link there could let it lead elsewhere later.
            Look::Found(found) if found.real != *place => {
                return Err(cannot(place, "it is a symbolic link"));
            }
            Look::Found(found) => match found.kind {
                Kind::Directory => Mount::HideDirectory,
                Kind::File | Kind::Other | Kind::Device => Mount::HideFile,
                Kind::Link | Kind::Hung => return Err(cannot(place, "it cannot be looked at")),
            },
            Look::Closed(_) | Look::Denied(_) | Look::Hung => {
                return Err(cannot(place, "it cannot be looked at"));
            }
        };
        tree.pin(files, place, &[]);
        tree.put(place, mount, Why::Every(WHY));
    }
    Ok(())
}

const WHY: &str = "where tasks of your jobs meet; no jail may reach it";

fn cannot(place: &Path, why: &str) -> PlanError {
    let (shown, parent) = (place.display(), place.parent().unwrap_or(place).display());
    PlanError::new(format!("cannot cover `{shown}`, {WHY}: {why}")).hint(format!(
        "remove it, or give less than `{parent}` as a whole"
    ))
}

/// The covered places in which a directory has to stand before the plan is carried out.
pub fn places_to_make(plan: &Plan, host: &HostFacts) -> Vec<PathBuf> {
    let covers = plan.steps.iter().filter(|step| {
        matches!(step.mount, Mount::HideDirectory) && host.join_directories.contains(&step.at)
    });
    covers.map(|step| step.at.clone()).collect()
}
