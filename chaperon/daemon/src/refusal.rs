//! Why something is not done: a sentence, what to do instead, and the rule behind it.

use std::fmt;

/// A refused request. It says what, why, and what instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What and why, one line, as Slurm's commands would say it after `sbatch: error: `.
    pub message: String,
    /// What to do instead, one line each.
    pub hints: Vec<String>,
    /// Whether a rule forbids it; otherwise it is a mistake in the request.
    pub by_rule: bool,
    /// The code with which the command ends.
    pub code: i32,
}

impl Refusal {
    /// A rule forbids it: what and why, and what to do instead.
    pub fn rule(message: impl Into<String>, instead: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hints: vec![instead.into()],
            by_rule: true,
            code: 1,
        }
    }

    /// A rule forbids `what`, which is a table's: its reason says why, and behind a semicolon what to do
    /// instead ([`has_both`]).
    pub fn listed(what: impl fmt::Display, reason: &str) -> Self {
        Self {
            message: format!("{what} is refused: {reason}"),
            hints: Vec::new(),
            by_rule: true,
            code: 1,
        }
    }

    /// The request makes no sense, or cannot be carried out.
    pub fn mistake(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hints: Vec::new(),
            by_rule: false,
            code: 1,
        }
    }

    /// Ends the command with this code.
    #[must_use]
    pub fn code(mut self, code: i32) -> Self {
        self.code = code;
        self
    }

    /// Adds what to do instead.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

/// Whether a table's reason says why, and what to do instead.
#[cfg(test)]
pub(crate) fn has_both(reason: &str) -> bool {
    reason.split_once("; ").is_some_and(|(why, instead)| {
        why.len() > 10 && instead.len() > 5 && !instead.ends_with('.')
    })
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
