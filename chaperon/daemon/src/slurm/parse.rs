//! Words, directives and variables become options of the table.
//!
//! A command line goes through here twice: the words as `getopt_long(3)` reads them, with every
//! value checked, and then, from the types alone, written anew by [`canonical()`].

mod canonical;
mod directives;
mod script_line;
mod translated;
mod values;
mod variables;
mod words;

use std::ffi::{OsStr, OsString};

use agent_sandbox_wire::command::Command;

pub use super::options::Table;
use super::options::{self, Arity, Kind, Opt, Release};
use crate::refusal::Refusal;

pub use canonical::{Written, canonical, option_word, written};
pub use directives::{Directives, directive_words, directives};
pub use values::{Duration, duration};
pub(super) use values::{is_dependency, is_mail};
pub use variables::{Variables, variables};
pub use words::arguments;
pub(super) use words::{Word, scan};

/// Where an option was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// On the command line.
    Argument,
    /// By this variable of the environment.
    Variable(&'static str),
    /// On this line of the script, counted from 1.
    Directive(usize),
}

/// An option as given, its value checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenOption {
    /// The row of the table.
    pub option: &'static Opt,
    /// Its value.
    pub value: Option<OsString>,
    /// Where it was given.
    pub origin: Origin,
}

/// A command line that was understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Options in the order in which Slurm applies them: directives, variables, arguments; a later
    /// one wins.
    pub given: Vec<GivenOption>,
    /// What is no option.
    pub operands: Vec<OsString>,
    /// Variables that stand for no option and go to the real command as they are, checked.
    pub kept: Vec<(OsString, OsString)>,
    /// Options that a variable switched off (`SBATCH_WAIT=no`): a directive does not switch them on.
    pub off: Vec<&'static Opt>,
    /// What the user should know, one line each, to be said once.
    pub notes: Vec<String>,
}

impl Parsed {
    /// What counts for the option of this long name: where it was given last.
    pub fn last(&self, long: &str) -> Option<&GivenOption> {
        self.last_of(&[long])
    }

    /// What was given last of several options that stand for the same thing (`--format`,
    /// `--Format`).
    pub fn last_of(&self, longs: &[&str]) -> Option<&GivenOption> {
        self.given
            .iter()
            .rev()
            .find(|given| longs.contains(&given.option.long))
    }

    /// Every time that an option was given, in order.
    pub fn all(&self, long: &str) -> impl Iterator<Item = &GivenOption> {
        self.given
            .iter()
            .filter(move |given| given.option.long == long)
    }

    /// The value that counts for an option; none if it was not given, or without one.
    pub fn value(&self, long: &str) -> Option<&OsStr> {
        self.last(long)?.value.as_deref()
    }

    /// Whether an option was given.
    pub fn has(&self, long: &str) -> bool {
        self.last(long).is_some()
    }

    /// Puts the script's directives before everything else: they are the weakest.
    #[must_use]
    pub fn with_directives(mut self, directives: Directives) -> Self {
        let counted = directives
            .given
            .into_iter()
            .filter(|given| !self.off.contains(&given.option))
            .collect::<Vec<_>>();
        self.given.splice(0..0, counted);
        self.notes.extend(directives.notes);
        self
    }
}

/// What was asked of a command of this release: its words (without its name) and the variables of its environment.
/// The directives of a script are added with [`Parsed::with_directives`].
///
/// # Errors
///
/// An option that is refused, unknown or malformed, and a command that is refused as a whole.
pub fn parse(
    command: Command,
    release: Option<Release>,
    words: &[OsString],
    environment: &[(OsString, OsString)],
) -> Result<Parsed, Refusal> {
    let table = table(command, release)?;
    let coded = |refusal: Refusal| mistaken(command, refusal);
    let mut parsed = arguments(&table, words).map_err(coded)?;
    let Variables { given, kept, off } = variables(&table, environment).map_err(coded)?;
    // A list that adds up is taken from the variable only where no argument gives one.
    let counted = given
        .into_iter()
        .filter(|given| {
            !given.option.many || given.option.kind == Kind::Flag || !parsed.has(given.option.long)
        })
        .collect::<Vec<_>>();
    parsed.given.splice(0..0, counted);
    parsed.kept = kept;
    parsed.off = off;
    Ok(parsed)
}

/// What Slurm's commands end with where an option is wrong (seen with 22.05).
pub fn mistaken(command: Command, refusal: Refusal) -> Refusal {
    match command {
        Command::Sbatch | Command::Salloc | Command::Srun if !refusal.by_rule => refusal.code(255),
        _ => refusal,
    }
}

/// The table of a command for a Slurm of this release, or why there is none.
///
/// # Errors
/// The command is refused as a whole.
pub fn table(command: Command, release: Option<Release>) -> Result<Table, Refusal> {
    let table = options::table(command).ok_or_else(|| unsupported(command))?;
    Ok(table.of(release))
}

/// Why a command is refused as a whole.
pub fn unsupported(command: Command) -> Refusal {
    let reason = options::refused(command).unwrap_or(options::UNKNOWN);
    Refusal::listed(command, reason)
}

#[cfg(test)]
mod tests;
