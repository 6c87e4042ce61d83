//! `#SBATCH` lines, read as sbatch reads them (`src/sbatch/opt.c`, `_opt_batch_script()` and
//! `get_argument()`): all lines together are one command line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::script_line::{begins_component, is_space, lines, skip_spaces, word};
use super::translated::translated;
use super::words::{MOST_OPTIONS, accept, mistake, quoted, scan, too_many};
use super::{GivenOption, Origin, Table, Word};
use crate::refusal::Refusal;
use crate::slurm::options::Release;

/// What a script asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    /// The options on its lines, in order.
    pub given: Vec<GivenOption>,
    /// What the user should know, one line each.
    pub notes: Vec<String>,
    /// The words of all lines, in the order in which sbatch finds them.
    pub words: Vec<Vec<u8>>,
    /// The mask for files, where a `#PBS` line says one.
    pub umask: Option<u32>,
}

/// Options that sbatch reads from its command line alone and passes over in a script
/// (`sbatch_early_pass` in `slurm_opt.c`, 20.11 to 26.05).
const PASSED_OVER: [&str; 6] = ["help", "quiet", "usage", "verbose", "version", "wrap"];

/// Reads the directives of a script. `table` is sbatch's; `alone`: no lines of other systems
/// (`--ignore-pbs`).
///
/// # Errors
///
/// What [`super::arguments`] refuses, with the line; quotes that do not end; a word that is no option; a
/// component of a heterogeneous job.
pub fn directives(table: &Table, script: &[u8], alone: bool) -> Result<Directives, Refusal> {
    let mut notes = Vec::new();
    let found = split(script, table.release, &mut notes)?;
    let words = found
        .iter()
        .map(|(text, line)| Word {
            text: OsStr::from_bytes(text),
            origin: Origin::Directive(*line),
        })
        .collect::<Vec<_>>();
    let mut given = Vec::new();
    let operands = scan(table, &words, |option, value, origin| {
        if !PASSED_OVER.contains(&option.long) {
            given.push(accept(option, value, origin)?);
        }
        Ok(())
    })?;
    if let Some(word) = operands.first() {
        return Err(mistake(
            word.origin,
            format!(
                "invalid directive found in batch script: {}",
                quoted(word.text)
            ),
        ));
    }
    let mut words: Vec<Vec<u8>> = found.into_iter().map(|(word, _)| word).collect();
    let mut umask = None;
    if !alone && !given.iter().any(|given| given.option.long == "ignore-pbs") {
        let other = translated(table, script, &given)?;
        given.extend(other.given);
        words.extend(other.words);
        umask = other.umask;
    }
    Ok(Directives {
        given,
        notes,
        words,
        umask,
    })
}

/// The words of a script's directives, each with its line: what sbatch calls `Found in script,
/// argument`. `release` is Slurm's; none: the newest.
///
/// # Errors
///
/// Quotes that do not end, a word that begins with `:`, a component of a heterogeneous job.
pub fn directive_words(
    script: &[u8],
    release: Option<Release>,
) -> Result<Vec<(Vec<u8>, usize)>, Refusal> {
    split(script, release, &mut Vec::new())
}

fn split(
    script: &[u8],
    release: Option<Release>,
    notes: &mut Vec<String>,
) -> Result<Vec<(Vec<u8>, usize)>, Refusal> {
    let mut words = Vec::new();
    let mut told = Vec::new();
    for (number, line) in (1..).zip(lines(script)) {
        let mut rest = if let Some(rest) = line.strip_prefix(b"#SBATCH") {
            rest
        } else if let Some(rest) = line.strip_prefix(b"#SLURM") {
            once(&mut told, notes, "#SLURM", || {
                format!("line {number} of the script: write #SBATCH instead of #SLURM")
            });
            rest
        } else {
            // The first command ends the scan.
            match line.iter().find(|&&byte| !is_space(byte)) {
                None | Some(b'#') => continue,
                Some(_) => break,
            }
        };
        if begins_component(skip_spaces(rest)) {
            return Err(Refusal::rule(
                format!(
                    "line {number} of the script: hetjob is refused: heterogeneous jobs are not \
                     supported"
                ),
                "submit separate jobs and tie them with --dependency",
            ));
        }
        while let Some((word, behind)) = word(rest, Origin::Directive(number), release)? {
            if words.len() == MOST_OPTIONS {
                return Err(too_many("words", Origin::Directive(number)));
            }
            words.push((word, number));
            rest = behind;
        }
    }
    Ok(words)
}

fn once(
    said: &mut Vec<&'static str>,
    notes: &mut Vec<String>,
    mark: &'static str,
    note: impl FnOnce() -> String,
) {
    if !said.contains(&mark) {
        said.push(mark);
        notes.push(note());
    }
}
