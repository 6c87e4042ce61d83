//! The policy applied to this host and this invocation. A [`Plan`] leaves no choice to whoever
//! carries it out: what is mounted where and in which order, which variables exist, which system
//! calls are answered how.
//!
//! [`model`] is the plan as data, [`build`](mod@build) makes it, [`check`] judges it, and [`explain`] answers
//! questions about it. Nothing of them looks up here.

pub mod build;
pub mod check;
pub mod explain;
pub mod model;

pub use self::build::{LANDLOCK_SCOPES, environment_of_task};
pub use self::model::{
    Access, GIT_SSH, HiddenVariable, INIT, INPUT, Invocation, Job, Mount, NAMED, OWN, Omitted,
    Plan, PlanError, Step, Variable, Why,
};
use crate::host::HostFacts;
use crate::host::files::Files;
pub use crate::policy::NetworkMode;
use crate::policy::Policy;

/// Makes the plan: built, explained, and checked.
///
/// # Errors
/// A project that must not be one, a path that hangs where the jail cannot do without it, or a plan that breaks an
/// invariant of [`check`].
pub fn build(
    policy: &Policy,
    host: &HostFacts,
    files: &dyn Files,
    invocation: &Invocation,
) -> Result<Plan, PlanError> {
    let mut plan = build::build(policy, host, files, invocation)?;
    explain::inside::put_into(&mut plan, policy);
    check::check(&plan, policy, host, files)?;
    Ok(plan)
}
