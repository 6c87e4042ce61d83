//! What was mounted while the plan was made: a look at an automount mounts it. What the plan took from
//! the table of mounts does not hold for it.

use std::path::Path;

use crate::host::HostFacts;
use crate::host::mount_table::MountTable;
use crate::plan::model::{Mount, Plan, PlanError};

/// Refuses a plan that shows what was mounted since `before` was read, or after which the home has
/// another name.
///
/// # Errors
/// The mount.
pub fn check(
    plan: &Plan,
    host: &HostFacts,
    before: &MountTable,
    after: &MountTable,
) -> Result<(), PlanError> {
    if before == after {
        return Ok(());
    }
    let fail = |at: &Path| {
        let message = format!(
            "`{}` was mounted while the jail was planned, so that it cannot be told what it shows",
            at.display()
        );
        Err(PlanError::new(message).hint("start again: it is known now"))
    };
    let arrived = after.missing_in(before);
    for step in &plan.steps {
        let (Mount::Bind { from, .. } | Mount::Copy { from, .. }) = &step.mount else {
            continue;
        };
        if let Some(at) = arrived.iter().find(|at| from.starts_with(at)) {
            return fail(at);
        }
    }
    let names = host
        .home_reals
        .iter()
        .flat_map(|home| after.other_names(home));
    for alias in names {
        if !host.home_aliases.contains(&alias) {
            return fail(&alias.at);
        }
    }
    Ok(())
}
