//! How often something went which way.

use agent_sandbox_events::record::Verdict;

use super::table::Row;

/// How often something went which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// It was allowed.
    pub allowed: u64,
    /// It was denied.
    pub denied: u64,
    /// It failed for another reason.
    pub failed: u64,
    /// It was allowed, and would be denied if the trace enforced.
    pub would_deny: u64,
    /// The call did not run: somebody else than the kernel answered it.
    pub not_run: u64,
}

impl Counts {
    /// Counts a verdict with all events that it stands for.
    pub fn add(&mut self, verdict: &Verdict) {
        let field = match Way::of(verdict) {
            Way::Allowed => &mut self.allowed,
            Way::Denied => &mut self.denied,
            Way::Failed => &mut self.failed,
            Way::WouldDeny => &mut self.would_deny,
            Way::NotRun => &mut self.not_run,
        };
        *field = field.saturating_add(verdict.count);
    }

    /// All together.
    #[must_use]
    pub fn all(&self) -> u64 {
        let ways = [self.allowed, self.denied, self.failed];
        let others = [self.would_deny, self.not_run];
        let all = ways.into_iter().chain(others);
        all.fold(0, u64::saturating_add)
    }
}

impl Row for Counts {
    fn weight(&self) -> u64 {
        self.all()
    }
}

/// Which way something went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It was allowed.
    Allowed,
    /// It was denied.
    Denied,
    /// It failed for another reason; so does what is not understood.
    Failed,
    /// It would be denied.
    WouldDeny,
    /// It did not run as the process called it: a filter (with Landlock that of the jail, whose mediator then does it
    /// itself, recorded apart), or whoever debugs it, answered in the kernel's place.
    NotRun,
}

impl Way {
    /// What a record says.
    #[must_use]
    pub fn of(verdict: &Verdict) -> Way {
        match verdict.verdict.as_str() {
            "allowed" => Way::Allowed,
            "denied" => Way::Denied,
            "would_deny" => Way::WouldDeny,
            "not_run" => Way::NotRun,
            _ => Way::Failed,
        }
    }
}
