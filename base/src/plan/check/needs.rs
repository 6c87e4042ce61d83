//! What no command runs without, and that the plan therefore has to show.

use std::path::{Path, PathBuf};

use crate::host::HostFacts;
use crate::host::files::{Files, Look};
use crate::plan::model::{Access, Mount, Plan, PlanError};

/// The shell of `system(3)` and of scripts.
const SHELL: &str = "/bin/sh";

/// Refuses a plan of a jail in which nothing can start because a bound of the site's, or a hide, takes
/// away what every program needs.
///
/// # Errors
/// The list that does it, and the place.
pub fn check(plan: &Plan, host: &HostFacts, files: &dyn Files) -> Result<(), PlanError> {
    let shell = PathBuf::from(SHELL);
    for needed in host.loader.iter().chain([&shell]) {
        let Look::Found(found) = files.look(needed) else {
            continue;
        };
        if shows(plan, &found.real) {
            continue;
        }
        let shown = found.real.display();
        if let Some(rule) = plan.hidden.rule_for(&found.real) {
            return Err(PlanError::new(format!(
                "nothing could run in the jail: files.hide `{}` ({}) takes `{shown}` away",
                rule.value, rule.source
            ))
            .hint("hide less: programs of the system need it"));
        }
        let Some(refusing) = plan.site_bounds.refusing(&found.real, Access::Read) else {
            continue;
        };
        let (key, list) = (refusing.key, &refusing.list);
        return Err(PlanError::new(format!(
            "nothing could run in the jail: the site's {key} ({}) does not hold `{shown}`",
            list.source
        ))
        .hint(format!(
            "ask your administrators: the list is a bound, which gives nothing; it allows {} and has to hold the \
             directories of the system (/usr, /etc, …) as well",
            list.value
        )));
    }
    Ok(())
}

fn shows(plan: &Plan, real: &Path) -> bool {
    let mut over = plan.steps.iter().rev();
    let over = over.find(|step| real.starts_with(&step.at));
    matches!(over.map(|step| &step.mount), Some(Mount::Bind { .. }))
}
