//! What users hand over for the audit record: from whom it is taken.

use agent_sandbox_events::audit::Handed;

use super::Core;
use super::register::Caller;
use crate::service::kernel::Kernel;
use crate::service::refusal::{Refusal, instead, no};
use crate::trail::Now;

impl<K: Kernel> Core<K> {
    /// [`agent_sandbox_events::protocol::Request::Audit`]: kept as what this user says. A session is known by its trace, which is
    /// of the same user; of one that is not known it is said. What is itself inside a session says nothing.
    ///
    /// # Errors
    /// It is none, or too much; it comes out of a session, or from who had ended before it was seen; the record cannot be written.
    pub fn audit(&mut self, caller: &Caller, handed: &Handed) -> Result<(), Refusal> {
        if let Some(wrong) = handed.wrong() {
            self.usage.asked(caller.uid, 1);
            return Err(no(wrong));
        }
        let Some(mark) = caller.mark else {
            self.usage.asked(caller.uid, 1);
            return Err(no("whoever connected had ended before it was seen"));
        };
        if let Some(session) = self.session(mark).or_else(|| self.inside(caller)) {
            self.usage.asked(caller.uid, 1);
            return Err(instead(
                format!("this comes out of session {session}"),
                "what happens inside is recorded from outside",
            ));
        }
        let of = |trace: &crate::service::registry::Trace| {
            trace.trail.uid == caller.uid
                && trace.trail.session.as_deref() == Some(handed.session.as_str())
        };
        let mut all = self.registry.iter();
        let known = all.find(|(_, trace)| of(trace)).map(|(id, _)| id);
        let kept = self.trails.audit(caller.uid, known, handed, Now::read());
        kept.map_err(|error| {
            self.usage.asked(caller.uid, 1);
            no(format!("it is not kept: {error}"))
        })
    }

    /// The session to which whoever asks belongs now.
    fn inside(&self, caller: &Caller) -> Option<String> {
        let process = caller.process.as_ref().ok()?;
        self.session(self.kernel.mark(process.handle()).ok()?)
    }

    /// The session of what has this mark, if it is traced as one.
    fn session(&self, mark: u32) -> Option<String> {
        self.registry.get(mark)?.trail.session.clone()
    }
}
