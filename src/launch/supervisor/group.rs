//! The session's cgroup, made beside the jail and entered before anything runs in it.

use std::io;

use super::Supervisor;
use crate::failure::Failure;
use crate::launch::cgroup::Group;
use crate::launch::jail::Jail;

impl Supervisor<'_> {
    /// Makes the session's cgroup while the jail is built, for it may take as long.
    pub(super) fn make_group(&mut self, jail: &Jail) {
        let Some(first) = jail.first() else { return };
        let company = &mut *self.company;
        let tracer = company.tracer.as_ref();
        let session = tracer.and_then(|(tracer, _)| tracer.session());
        let made = match (&company.wanted, session) {
            (Some((session, wanted)), _) => Group::wanted(wanted, session, first),
            (None, Some(session)) => Group::of_session(session, first),
            (None, None) => return,
        };
        match made {
            Ok(group) => company.group = Some(group),
            Err(error) => self.ungrouped = Some(error),
        }
    }

    /// Has everything of the jail in a cgroup without which nothing may run.
    pub(super) fn enter_group(&mut self, jail: &Jail) -> Result<(), Failure> {
        let wanted = self.company.wanted.as_ref();
        if wanted.is_none_or(|(_, group)| !group.required) {
            return Ok(());
        }
        let moved = match (self.ungrouped.take(), &self.company.group, jail.first()) {
            // What was started since it was made is moved as well.
            (None, Some(group), Some(first)) => group.take(first),
            (Some(error), ..) => Err(error),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        moved.map_err(|error| {
            Failure::new(format!(
                "cannot make the session's cgroup, which its limits need: {error}"
            ))
            .hint("admin: see limits.cgroup in the policy")
        })
    }
}
