//! Why something is refused, and what to do instead.

use agent_sandbox_events::protocol::Response;

use super::limits::Verdict;

/// Why something is refused, and what to do instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub why: String,
    /// What to do instead.
    pub hint: Option<String>,
}

/// A refusal without a hint.
pub fn no(why: impl Into<String>) -> Refusal {
    Refusal {
        why: why.into(),
        hint: None,
    }
}

/// A refusal with one.
pub fn instead(why: impl Into<String>, hint: &str) -> Refusal {
    Refusal {
        why: why.into(),
        hint: Some(hint.to_owned()),
    }
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Self {
        Response::Refused {
            why: refusal.why,
            hint: refusal.hint,
        }
    }
}

/// What a refusal of a trace by its number of things says.
pub fn room(verdict: Verdict, things: &str) -> Result<(), Refusal> {
    match verdict {
        Verdict::Room => Ok(()),
        Verdict::User(most) => Err(instead(
            format!("you have {most} {things} already"),
            "the node's administrators can set more in `[limits]` of tracer.toml",
        )),
        Verdict::All(most) => Err(no(format!(
            "all users together may have {most} {things}, and most of them are taken"
        ))),
    }
}
