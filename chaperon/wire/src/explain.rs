//! Launcher to the chaperon's program: what `agent-sandbox explain --slurm` asks, on standard input.
//! The program answers on standard output, and reaches nothing.

use serde::{Deserialize, Serialize};

use crate::bounds::Bounds;
use crate::order::Limits;

/// No question is longer, in bytes: a command line of the system's (`execve(2)`) and the rules.
pub const LONGEST_QUESTION: u64 = 4 << 20;

/// A command line of Slurm's, and the policy by which it is judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The line, as typed.
    pub line: String,
    /// Whether the answer is JSON; text otherwise.
    pub json: bool,
    /// `[slurm.limits]`.
    pub limits: Limits,
    /// `[slurm.bounds]`.
    pub bounds: Bounds,
    /// The keys of `[slurm]`, each with its value and place.
    pub rules: Vec<Rule>,
}

/// A key of the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The key: `slurm.bounds.nodes`.
    pub key: String,
    /// Its value, as people read it.
    pub value: String,
    /// The file and line, or the option, that set it.
    pub source: String,
    /// How to change it, or who forbids that.
    pub change: String,
}
