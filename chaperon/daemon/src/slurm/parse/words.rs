//! Words, read as `getopt_long(3)` reads them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use agent_sandbox_wire::command::Command;

use super::{Arity, GivenOption, Opt, Origin, Parsed, Table, values};
use crate::refusal::{Reason, Refusal};
use crate::slurm::options::{Release, Verdict};

/// How much of a value a message shows, in characters: enough to recognise it.
const SHOWN: usize = 60;

/// Options that one command line or script may give. A word of letters gives one by each byte, which takes fifty here.
pub(super) const MOST_OPTIONS: usize = 4096;

/// The longest value, in bytes: as words of a command line they go on to Slurm's own command (`MAX_ARG_STRLEN`, execve(2)).
const LONGEST_VALUE: usize = 128 << 10;

/// How alike two names must be for one to be proposed for the other: Jaro-Winkler, 1 is the same.
/// As in the launcher's messages about unknown keys.
const ALIKE: f64 = 0.8;

/// A word, and where it stands.
#[derive(Clone, Copy, Debug)]
pub(in crate::slurm) struct Word<'a> {
    pub(in crate::slurm) text: &'a OsStr,
    pub(in crate::slurm) origin: Origin,
}

/// The words of a command line, without the command's name.
///
/// # Errors
///
/// An option that is refused, unknown, ambiguous, or lacks a value or has a wrong one; and the `:`
/// of heterogeneous jobs.
pub fn arguments(table: &Table, words: &[OsString]) -> Result<Parsed, Refusal> {
    let words = words
        .iter()
        .map(|text| Word {
            text,
            origin: Origin::Argument,
        })
        .collect::<Vec<_>>();
    let mut parsed = Parsed::default();
    let rest = scan(table, &words, |option, value, origin| {
        parsed.given.push(accept(option, value, origin)?);
        Ok(())
    })?;
    parsed.operands = rest.iter().map(|word| word.text.to_owned()).collect();
    if separates_components(table.command, &parsed.operands) {
        return Err(Refusal::rule(
            "`:` is refused: heterogeneous jobs are not supported",
            "submit separate jobs and tie them with --dependency",
        ));
    }
    Ok(parsed)
}

/// Whether there is a `:` where the command takes it for the border between two components of a
/// heterogeneous job: sbatch and salloc before the operands, srun also behind the program.
fn separates_components(command: Command, operands: &[OsString]) -> bool {
    match command {
        Command::Sbatch | Command::Salloc => operands.first().is_some_and(|word| word == ":"),
        Command::Srun => operands.iter().any(|word| word == ":"),
        _ => false,
    }
}

/// Goes through words, hands each option to `found`, and gives back what is no option.
///
/// # Errors
///
/// What is no option of the table, and what `found` refuses.
pub(in crate::slurm) fn scan<'a>(
    table: &Table,
    words: &[Word<'a>],
    mut found: impl FnMut(&'static Opt, Option<&OsStr>, Origin) -> Result<(), Refusal>,
) -> Result<Vec<Word<'a>>, Refusal> {
    let mut operands = Vec::new();
    let mut given = 0;
    let mut found = |option, value, origin| {
        given += 1;
        if given > MOST_OPTIONS {
            return Err(too_many("options", origin));
        }
        found(option, value, origin)
    };
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        let bytes = word.text.as_bytes();
        if bytes == b"--" {
            operands.extend(words);
            break;
        } else if let Some(long) = bytes.strip_prefix(b"--") {
            let (option, value) = long_option(table, word, long)?;
            let value = match (option.arity, value) {
                (Arity::None, Some(_)) => {
                    return Err(mistake(
                        word.origin,
                        format!("option '{}' doesn't allow an argument", option.shown()),
                    ));
                }
                (Arity::Required, None) => Some(
                    words
                        .next()
                        .ok_or_else(|| lacks_argument(word.origin, &option.shown()))?
                        .text,
                ),
                (_, value) => value,
            };
            found(option, value, word.origin)?;
        } else if bytes.len() > 1 && bytes[0] == b'-' {
            let mut rest = &bytes[1..];
            while let Some((&letter, behind)) = rest.split_first() {
                let option = short_option(table, word.origin, letter)?;
                rest = behind;
                let value = match option.arity {
                    Arity::None => None,
                    Arity::Optional if behind.is_empty() => None,
                    Arity::Required if behind.is_empty() => Some(
                        words
                            .next()
                            .ok_or_else(|| {
                                lacks_argument(word.origin, &format!("-{}", letter as char))
                            })?
                            .text,
                    ),
                    Arity::Optional | Arity::Required => {
                        rest = &[];
                        Some(OsStr::from_bytes(behind))
                    }
                };
                found(option, value, word.origin)?;
            }
        } else {
            operands.push(word);
            if !table.permutes {
                operands.extend(words);
                break;
            }
        }
    }
    Ok(operands)
}

/// Judges an option that was recognised, and checks its value.
///
/// # Errors
///
/// A refused option, and a value that is not what the option takes.
pub(super) fn accept(
    option: &'static Opt,
    value: Option<&OsStr>,
    origin: Origin,
) -> Result<GivenOption, Refusal> {
    if let Verdict::Refused(reason) = option.verdict {
        let shown = match origin {
            Origin::Variable(name) => format!(
                "it stands for {}, which",
                option_and_value(option, value, Some(name))
            ),
            _ => option_and_value(option, value, None),
        };
        let what = format!("{}{shown}", place(origin));
        return Err(Refusal::listed(what, reason).because(Reason::Option(option.long)));
    }
    if let Some(value) = value {
        not_too_long(value.as_bytes(), &option.shown(), origin)?;
    }
    if let Some(value) = value
        && let Err(expected) = values::check(option.kind, value)
    {
        return Err(mistake(
            origin,
            format!(
                "invalid value {} for {}: it takes {expected}",
                quoted(value),
                option.shown()
            ),
        ));
    }
    Ok(GivenOption {
        option,
        value: value.map(OsStr::to_owned),
        origin,
    })
}

fn option_and_value(option: &Opt, value: Option<&OsStr>, variable: Option<&str>) -> String {
    match value {
        // A variable's value was not written behind the option.
        Some(value) if variable.is_none() => {
            format!("{}={}", option.shown(), shortened(value))
        }
        _ => option.shown(),
    }
}

/// `line 3 of the script: `, or nothing for the command line.
fn place(origin: Origin) -> String {
    match origin {
        Origin::Argument => String::new(),
        Origin::Variable(name) => format!("the variable {name}: "),
        Origin::Directive(line) => format!("line {line} of the script: "),
    }
}

pub(super) fn mistake(origin: Origin, text: impl AsRef<str>) -> Refusal {
    Refusal::mistake(format!("{}{}", place(origin), text.as_ref()))
}

/// Refuses a value that no command line takes.
pub(super) fn not_too_long(value: &[u8], shown: &str, origin: Origin) -> Result<(), Refusal> {
    if value.len() < LONGEST_VALUE {
        return Ok(());
    }
    let text = format!(
        "the value of {shown} has {} bytes; it may have less than {LONGEST_VALUE}",
        value.len()
    );
    Err(mistake(origin, text))
}

/// More words or options than are read.
pub(super) fn too_many(what: &str, origin: Origin) -> Refusal {
    mistake(origin, format!("more than {MOST_OPTIONS} {what}"))
}

fn lacks_argument(origin: Origin, option: &str) -> Refusal {
    mistake(origin, format!("option '{option}' requires an argument"))
}

/// A value as a message shows it: on one line, not too long.
pub(super) fn quoted(value: &OsStr) -> String {
    format!("'{}'", shortened(value))
}

fn shortened(value: &OsStr) -> String {
    let text = value.to_string_lossy();
    let mut shown = text
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .take(SHOWN)
        .collect::<String>();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

/// The option that `--long` or `--long=value` means.
fn long_option<'a>(
    table: &Table,
    word: Word<'a>,
    long: &'a [u8],
) -> Result<(&'static Opt, Option<&'a OsStr>), Refusal> {
    let (name, value) = match long.iter().position(|&byte| byte == b'=') {
        Some(at) => (&long[..at], Some(OsStr::from_bytes(&long[at + 1..]))),
        None => (long, None),
    };
    let meant = std::str::from_utf8(name)
        .map(|name| table.meant_by(name))
        .unwrap_or_default();
    match meant[..] {
        // What passes is refused by a Slurm that has it not. What the chaperon does itself it must not do where there is nothing of it.
        [option] if option.is_in(table.release) || option.verdict == Verdict::Pass => {
            Ok((option, value))
        }
        [] | [_] => Err(unknown(table, word.origin, name)),
        _ => {
            let all = meant
                .iter()
                .map(|option| format!("'{}'", option.shown()))
                .collect::<Vec<_>>()
                .join(" ");
            Err(mistake(
                word.origin,
                format!(
                    "option {} is ambiguous; possibilities: {all}",
                    quoted(word.text)
                ),
            ))
        }
    }
}

fn short_option(table: &Table, origin: Origin, letter: u8) -> Result<&'static Opt, Refusal> {
    letter
        .is_ascii()
        .then(|| table.short(letter as char))
        .flatten()
        .ok_or_else(|| {
            let letter = quoted(OsStr::from_bytes(&[letter]));
            mistake(origin, format!("invalid option -- {letter}"))
        })
}

/// No such option; the nearest known one is proposed.
fn unknown(table: &Table, origin: Origin, name: &[u8]) -> Refusal {
    let text = shortened(OsStr::from_bytes(name));
    let refusal = mistake(origin, format!("unrecognized option '--{text}'"));
    if let Some(release) = table.release.filter(|release| *release > Release::NEWEST) {
        return refusal.hint(format!(
            "this is Slurm {release}: its options are known here up to {}, and a newer one is refused until it is",
            Release::NEWEST
        ));
    }
    let nearest = table
        .present()
        .flat_map(Opt::names)
        .map(|known| (strsim::jaro_winkler(&text, known), known))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    match nearest {
        Some((_, known)) => refusal.hint(format!("did you mean --{known}?")),
        None => refusal.hint(format!(
            "options of plug-ins are not known here; `agent-sandbox explain --slurm \"{}\"` lists \
             those that are",
            table.command
        )),
    }
}
