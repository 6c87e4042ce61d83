//! Why something is not done: a sentence, what to do instead, and the rule behind it.

use std::fmt;

/// What is recorded of a refusal. It holds names of ours alone, so that nothing which was asked for gets
/// into the audit record by it: people put secrets into arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A key of the policy, with its section: `slurm.scope`.
    Key(&'static str),
    /// A key of `[slurm.limits]`: `jobs`.
    Limit(&'static str),
    /// An option, by its long name in the table: `uid`.
    Option(&'static str),
    /// What the command or its verb is.
    Command,
    /// Another rule.
    Rule,
    /// The request makes no sense, or could not be carried out.
    Request,
    /// The real command failed.
    Slurm,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "policy {key}"),
            Self::Limit(key) => write!(f, "policy slurm.limits.{key}"),
            Self::Option(long) => write!(f, "option --{long}"),
            Self::Command => f.write_str("command"),
            Self::Rule => f.write_str("rule"),
            Self::Request => f.write_str("request"),
            Self::Slurm => f.write_str("slurm"),
        }
    }
}

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
    /// What is recorded of it.
    pub reason: Reason,
}

impl Refusal {
    /// A rule forbids it: what and why, and what to do instead.
    pub fn rule(message: impl Into<String>, instead: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hints: vec![instead.into()],
            by_rule: true,
            code: 1,
            reason: Reason::Rule,
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
            reason: Reason::Command,
        }
    }

    /// The request makes no sense, or cannot be carried out.
    pub fn mistake(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hints: Vec::new(),
            by_rule: false,
            code: 1,
            reason: Reason::Request,
        }
    }

    /// Is recorded as this.
    #[must_use]
    pub fn because(mut self, reason: Reason) -> Self {
        self.reason = reason;
        self
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
