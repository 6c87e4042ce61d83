//! Options, written anew for the real command, from their types alone.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use agent_sandbox_wire::command::Command;

use super::{Arity, GivenOption, Opt, Origin};
use crate::slurm::options::Verdict;

/// What the real command gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Words for its command line.
    pub words: Vec<OsString>,
    /// Variables for its environment.
    pub variables: Vec<(OsString, OsString)>,
}

/// All passing options as words, wherever they were given: the last of each, or all of those that
/// add up, in the order given. Never an option that is ours or refused.
pub fn canonical(given: &[GivenOption]) -> Vec<OsString> {
    counted(given).into_iter().map(word).collect()
}

/// As [`canonical()`], but what a variable stood for stays a variable.
///
/// Slurm lets an option of the command line take back what a variable asked for (`srun
/// --mem-per-cpu` in a job that was given `--mem`, where `SLURM_MEM_PER_NODE` is set) and refuses
/// the same two as options. So where a command runs inside a job, this is the one to use.
pub fn written(command: Command, given: &[GivenOption]) -> Written {
    let mut all = Written::default();
    for given in counted(given) {
        let Origin::Variable(name) = given.origin else {
            all.words.push(word(given));
            continue;
        };
        let value = match (&given.value, given.option.arity) {
            (Some(value), _) => value.clone(),
            (None, Arity::None) => switched_on(command).into(),
            (None, _) => OsString::new(),
        };
        // A flag that adds up is there several times: its variable holds a number.
        match all.variables.iter_mut().find(|(known, _)| known == name) {
            Some((_, level)) => *level = raised(level),
            None => all.variables.push((name.into(), value)),
        }
    }
    all
}

/// What counts of what was given, in order.
fn counted(given: &[GivenOption]) -> Vec<&GivenOption> {
    let mut seen = BTreeSet::new();
    let mut counted = given
        .iter()
        .rev()
        .filter(|given| given.option.verdict == Verdict::Pass)
        .filter(|given| given.option.many || seen.insert(given.option.long))
        .collect::<Vec<_>>();
    counted.reverse();
    counted
}

/// An option as one word. A value stands behind `=` or, for what has only a short name, in the same
/// word, so that no value is ever read as an option.
fn word(given: &GivenOption) -> OsString {
    let mut word = OsString::from(given.option.shown());
    if let Some(value) = &given.value {
        if !is_short_only(given.option) {
            word.push(OsStr::new("="));
        }
        word.push(value);
    }
    word
}

/// A word of the chaperon's own for the real command's line: an option with a value.
pub fn option_word(name: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(name);
    word.push("=");
    word.push(value);
    word
}

fn is_short_only(option: &Opt) -> bool {
    option.is_short_only()
}

/// How a variable of this command says that a flag is given.
fn switched_on(command: Command) -> &'static str {
    match command {
        Command::Scancel => "true",
        _ => "1",
    }
}

fn raised(level: &OsStr) -> OsString {
    let level = level.to_str().and_then(|level| level.parse::<u64>().ok());
    level.unwrap_or(1).saturating_add(1).to_string().into()
}
