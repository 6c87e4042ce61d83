//! `#BSUB` and `#PBS` lines, translated as sbatch does it (`src/sbatch/xlate.c`, 22.05): they become
//! options of the table, with their values checked like those of any directive.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::script_line::{lines, word};
use super::words::{MOST_OPTIONS, accept, mistake, not_too_long, quoted, too_many};
use super::{GivenOption, Origin, Table};
use crate::refusal::Refusal;
use crate::slurm::options::Release;

/// Lines that are no comments, blank ones among them, before sbatch stops to look for more.
const MOST_COMMANDS: usize = 100;

/// An option of the other system: its letter, its long name, whether it takes a value.
type Row = (u8, &'static str, Takes);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    Value,
    /// A value only behind `=`, or behind the letter.
    Perhaps,
}

use Takes::{Nothing, Perhaps, Value};

const BSUB: &[Row] = &[
    (b'c', "cwd", Value),
    (b'e', "error_file", Value),
    (b'J', "job_name", Value),
    (b'm', "hostname", Value),
    (b'M', "memory_limit", Value),
    (b'n', "", Value),
    (b'o', "output_file", Value),
    (b'q', "queue_name", Value),
    (b'W', "time", Value),
    (b'x', "exclusive", Nothing),
];

const PBS: &[Row] = &[
    (b'a', "start_time", Value),
    (b'A', "account", Value),
    (b'c', "checkpoint", Value),
    (b'C', "working_dir", Value),
    (b'e', "error", Value),
    (b'h', "hold", Nothing),
    (b'I', "interactive", Nothing),
    (b'j', "join", Perhaps),
    (b'J', "job_array", Value),
    (b'k', "keep", Value),
    (b'l', "resource_list", Value),
    (b'm', "mail_options", Value),
    (b'M', "mail_user_list", Value),
    (b'N', "job_name", Value),
    (b'o', "out", Value),
    (b'p', "priority", Value),
    (b'q', "destination", Value),
    (b'r', "rerunable", Value),
    (b'S', "script_path", Value),
    (b't', "array", Value),
    (b'u', "running_user", Value),
    (b'v', "variable_list", Value),
    (b'V', "all_env", Nothing),
    (b'W', "attributes", Value),
    (b'z', "no_std", Nothing),
];

/// Options of PBS that become one of Slurm's with the same value.
const SAME: &[(u8, &str)] = &[
    (b'a', "begin"),
    (b'A', "account"),
    (b'e', "error"),
    (b'o', "output"),
    (b'J', "array"),
    (b't', "array"),
    (b'M', "mail-user"),
    (b'N', "job-name"),
    (b'p', "nice"),
    (b'q', "partition"),
];

/// Entries of a resource list that are passed over, to the next comma.
const UNUSED: [&str; 8] = [
    "arch=",
    "host=",
    "opsys=",
    "other=",
    "pmem=",
    "pvmem=",
    "software=",
    "vmem=",
];

/// Words, each with its line.
type Words = Vec<(Vec<u8>, usize)>;

/// What the lines ask for.
#[derive(Debug, Default)]
pub(super) struct Translated {
    /// Options of Slurm's, in order.
    pub given: Vec<GivenOption>,
    /// The words of the lines.
    pub words: Vec<Vec<u8>>,
    /// The mask for files (`umask(2)`).
    pub umask: Option<u32>,
}

/// Reads the lines of one of the two systems, `#BSUB` first. `given` is what `#SBATCH` lines ask for.
///
/// # Errors
/// An option that the other system does not have or sbatch refuses; a word that is no option.
pub(super) fn translated(
    table: &Table,
    script: &[u8],
    given: &[GivenOption],
) -> Result<Translated, Refusal> {
    let mut all = Translated::default();
    for (mark, rows) in [(&b"#BSUB"[..], BSUB), (b"#PBS", PBS)] {
        let Some(mut words) = words(script, mark, table.release)? else {
            continue;
        };
        all.words = words.iter().map(|(word, _)| word.clone()).collect();
        let bsub = mark == b"#BSUB";
        if bsub {
            // No option of Slurm's has a long name behind one dash.
            for (text, _) in words.iter_mut().step_by(2) {
                if text == b"-cwd" {
                    *text = b"-c".to_vec();
                }
            }
        }
        let mut to = To {
            table,
            before: given,
            all,
            line: 0,
        };
        for (letter, value, line) in options(rows, &words)? {
            to.line = line;
            let shown = format!("-{}", letter as char);
            not_too_long(&value, &shown, Origin::Directive(line))?;
            if bsub {
                to.bsub(letter, &value)?;
            } else {
                to.pbs(letter, &value)?;
            }
        }
        return Ok(to.all);
    }
    Ok(all)
}

/// The words of the lines with this mark, each with its line; `None` if there is no such line.
fn words(script: &[u8], mark: &[u8], release: Option<Release>) -> Result<Option<Words>, Refusal> {
    let (mut found, mut commands) = (None, 0);
    for (number, line) in (1..).zip(lines(script)) {
        let Some(mut rest) = line.strip_prefix(mark) else {
            commands += usize::from(!line.starts_with(b"#"));
            if commands > MOST_COMMANDS {
                break;
            }
            continue;
        };
        let words = found.get_or_insert_with(Vec::new);
        while let Some((word, behind)) = word(rest, Origin::Directive(number), release)? {
            if words.len() == MOST_OPTIONS {
                return Err(too_many("words", Origin::Directive(number)));
            }
            words.push((word, number));
            rest = behind;
        }
    }
    Ok(found)
}

/// The options among words, as `getopt_long(3)` finds them: letter, value, line.
fn options(rows: &[Row], words: &[(Vec<u8>, usize)]) -> Result<Vec<(u8, Vec<u8>, usize)>, Refusal> {
    let mut all = Vec::new();
    let mut words = words.iter();
    while let Some((text, line)) = words.next() {
        let line = *line;
        let unknown = || {
            mistake(
                Origin::Directive(line),
                format!(
                    "Unrecognized command line parameter {}",
                    quoted(OsStr::from_bytes(text))
                ),
            )
        };
        if text == b"--" {
            if let Some((text, line)) = words.next() {
                return Err(invalid(text, *line));
            }
        } else if let Some(long) = text.strip_prefix(b"--") {
            let (name, value) = match long.iter().position(|&byte| byte == b'=') {
                Some(at) => (&long[..at], Some(long[at + 1..].to_vec())),
                None => (long, None),
            };
            let whole = rows.iter().find(|row| row.1.as_bytes() == name);
            let mut begun = rows
                .iter()
                .filter(|row| row.1.as_bytes().starts_with(name) && !row.1.is_empty());
            let row = match (whole, begun.next(), begun.next()) {
                (Some(row), ..) | (None, Some(row), None) => row,
                _ => return Err(unknown()),
            };
            let value = match (row.2, value) {
                (Nothing, Some(_)) => return Err(unknown()),
                (Value, None) => Some(words.next().ok_or_else(unknown)?.0.clone()),
                (_, value) => value,
            };
            all.push((row.0, value.unwrap_or_default(), line));
        } else if text.len() > 1 && text[0] == b'-' {
            let mut rest = &text[1..];
            while let Some((letter, behind)) = rest.split_first() {
                let row = rows
                    .iter()
                    .find(|row| row.0 == *letter)
                    .ok_or_else(unknown)?;
                rest = behind;
                let value = if row.2 == Nothing {
                    Vec::new()
                } else if behind.is_empty() {
                    words.next().ok_or_else(unknown)?.0.clone()
                } else {
                    rest = &[];
                    behind.to_vec()
                };
                if all.len() == MOST_OPTIONS {
                    return Err(too_many("options", Origin::Directive(line)));
                }
                all.push((*letter, value, line));
            }
        } else {
            return Err(invalid(text, line));
        }
    }
    Ok(all)
}

fn invalid(text: &[u8], line: usize) -> Refusal {
    let text = quoted(OsStr::from_bytes(text));
    mistake(Origin::Directive(line), format!("Invalid argument: {text}"))
}

/// Where the translation goes.
struct To<'a> {
    table: &'a Table,
    before: &'a [GivenOption],
    all: Translated,
    line: usize,
}

impl To<'_> {
    /// Gives an option of Slurm's. What the lines gave it before counts no more: lists grow entry by entry.
    fn give(&mut self, long: &str, value: Option<&[u8]>) -> Result<(), Refusal> {
        let origin = Origin::Directive(self.line);
        let option = self
            .table
            .named(long)
            .ok_or_else(|| mistake(origin, format!("sbatch has no option --{long}")))?;
        let given = accept(option, value.map(OsStr::from_bytes), origin)?;
        if !option.many {
            self.all.given.retain(|before| before.option.long != long);
        }
        self.all.given.push(given);
        Ok(())
    }

    /// The value that an option has so far.
    fn value(&self, long: &str) -> Option<Vec<u8>> {
        let mut all = self.before.iter().chain(&self.all.given).rev();
        let given = all.find(|given| given.option.long == long)?;
        Some(given.value.as_deref()?.as_bytes().to_vec())
    }

    fn number(&self, long: &str) -> u64 {
        self.value(long).map_or(0, |value| leading(&value))
    }

    fn mistake(&self, text: impl Into<String>) -> Refusal {
        mistake(Origin::Directive(self.line), text.into())
    }

    fn bsub(&mut self, letter: u8, value: &[u8]) -> Result<(), Refusal> {
        match letter {
            b'c' => self.give("chdir", Some(value)),
            b'e' => self.give("error", Some(value)),
            b'J' => self.give("job-name", Some(value)),
            b'o' => self.give("output", Some(value)),
            b'q' => self.give("partition", Some(value)),
            b'W' => self.give("time", Some(value)),
            b'x' => self.give("exclusive", None),
            b'm' => {
                let hosts = value
                    .iter()
                    .map(|&byte| if byte == b' ' { b',' } else { byte });
                self.give("nodelist", Some(&hosts.collect::<Vec<_>>()))
            }
            b'M' => {
                // In kilobytes, as LSF has it.
                let bare = value.last().is_some_and(u8::is_ascii_digit);
                let unit: &[u8] = if bare { b"K" } else { b"" };
                self.give("mem-per-cpu", Some(&[value, unit].concat()))
            }
            // The larger of two numbers.
            _ => match value.iter().position(|&byte| byte == b',') {
                None => self.give("ntasks", Some(value)),
                Some(at) if at + 1 < value.len() => self.give("ntasks", Some(&value[at + 1..])),
                Some(_) => Err(self.mistake(format!(
                    "#BSUB -n format not correct given: {}",
                    quoted(OsStr::from_bytes(value))
                ))),
            },
        }
    }

    fn pbs(&mut self, letter: u8, value: &[u8]) -> Result<(), Refusal> {
        if let Some((_, long)) = SAME.iter().find(|(known, _)| *known == letter) {
            return self.give(long, Some(value));
        }
        match letter {
            b'h' => self.give("hold", None),
            b'l' => self.resources(value),
            b'm' => self.give("mail-type", Some(mail_types(value).as_bytes())),
            b'v' => {
                let list = match self.value("export") {
                    Some(before) => [&before, &b","[..], value].concat(),
                    None => value.to_vec(),
                };
                self.give("export", Some(&list))
            }
            b'W' => {
                let (name, behind) = match value.iter().position(|&byte| byte == b'=') {
                    Some(at) => (value[..at].to_ascii_lowercase(), &value[at + 1..]),
                    None => (Vec::new(), value),
                };
                match &name[..] {
                    b"umask" => {
                        let mask = mask(behind)
                            .ok_or_else(|| self.mistake("Invalid -W umask= specification"))?;
                        self.all.umask = Some(mask);
                        Ok(())
                    }
                    b"depend" => self.give("dependency", Some(behind)),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// `-l`: entries that sbatch looks for at each place of the list, byte by byte.
    fn resources(&mut self, list: &[u8]) -> Result<(), Refusal> {
        let (mut at, mut gpus, mut chunks) = (0, 0, 0_u8);
        let mut entries = 0;
        while at < list.len() {
            // Each is looked at with what the list has given before.
            entries += usize::from(at == 0 || b",:".contains(&list[at - 1]));
            if entries > MOST_OPTIONS {
                return Err(too_many("entries", Origin::Directive(self.line)));
            }
            let rest = &list[at..];
            let begins = |word: &str| rest.starts_with(word.as_bytes());
            let begins_so = |word: &str| {
                rest.get(..word.len())
                    .is_some_and(|begin| begin.eq_ignore_ascii_case(word.as_bytes()))
            };
            // The value behind a word, and where the list goes on.
            let value = |word: &str, until: u8| {
                let behind = &rest[word.len()..];
                let end = behind.iter().position(|&byte| byte == until);
                let value = &behind[..end.unwrap_or(behind.len())];
                (value, word.len() + value.len() + usize::from(end.is_some()))
            };
            let found = |words: &[&'static str]| words.iter().copied().find(|word| begins(word));
            if begins_so("accelerator=") {
                at += "accelerator=".len();
                let on = list[at..]
                    .get(..4)
                    .is_some_and(|t| t.eq_ignore_ascii_case(b"true"));
                if on && gpus < 1 {
                    gpus = 1;
                }
            } else if let Some(word) = found(&UNUSED) {
                at += value(word, b',').1;
            } else if let Some(word) = found(&["cput=", "pcput=", "walltime="]) {
                let (text, length) = value(word, b',');
                self.give("time", Some(text))?;
                at += length;
            } else if let Some(word) = found(&["file=", "mem="]) {
                let (text, length) = value(word, b',');
                // Torque writes GB where Slurm writes G.
                let bare = text.strip_suffix(b"b").or_else(|| text.strip_suffix(b"B"));
                let long = if word == "mem=" { "mem" } else { "tmp" };
                self.give(long, Some(bare.unwrap_or(text)))?;
                at += length;
            } else if begins_so("mpiprocs=") {
                let (text, length) = value("mpiprocs=", b':');
                chunks |= 4;
                self.give("ntasks-per-node", Some(text))?;
                at += length;
            } else if begins_so("naccelerators=") {
                let (text, length) = value("naccelerators=", b',');
                gpus = whole(text)
                    .filter(|&number| number > 0)
                    .ok_or_else(|| self.mistake("Invalid numeric value for naccelerators."))?;
                at += length;
            } else if begins_so("ncpus=") {
                let (text, length) = value("ncpus=", b':');
                chunks |= 2;
                self.give("mincpus", Some(text))?;
                at += length;
            } else if begins("nice=") {
                let (text, length) = value("nice=", b',');
                self.give("nice", Some(text))?;
                at += length;
            } else if begins("nodes=") {
                let (text, length) = value("nodes=", b',');
                self.nodes(text)?;
                at += length;
            } else if begins("proc=") {
                let (text, length) = value("proc=", b',');
                let both = match self.value("constraint") {
                    Some(before) => [text, b",", &before].concat(),
                    None => text.to_vec(),
                };
                self.give("constraint", Some(&both))?;
                at += length;
                // The entry behind it is passed over, too.
                let next = list[at..].iter().position(|&byte| byte == b',');
                at += next.map_or(list.len() - at, |next| next + 1);
            } else if begins_so("select=") {
                let (text, length) = value("select=", b':');
                chunks |= 1;
                self.give("nodes", Some(text))?;
                at += length;
            } else {
                at += 1;
            }
        }
        let (cpus, tasks) = (self.number("mincpus"), self.number("ntasks-per-node"));
        if chunks == 7 && cpus > tasks && tasks > 0 {
            self.give("cpus-per-task", Some((cpus / tasks).to_string().as_bytes()))?;
        }
        if gpus > 0 {
            let gpus = format!("gpu:{gpus}").into_bytes();
            let all = match self.value("gres") {
                Some(before) => [&before, &b","[..], &gpus].concat(),
                None => gpus,
            };
            self.give("gres", Some(&all))?;
        }
        Ok(())
    }

    /// `nodes=2:ppn=4`, `nodes=a+b`, `nodes=1:gpus=2`
    fn nodes(&mut self, text: &[u8]) -> Result<(), Refusal> {
        let (mut count, mut tasks, mut names) = (0_u64, 0_u64, Vec::new());
        for part in text.split(|byte| b"+:".contains(byte)) {
            if let Some(gpus) = part.strip_prefix(b"gpus=") {
                self.give("gpus-per-node", Some(gpus))?;
            } else if let Some(number) = part.strip_prefix(b"ppn=") {
                tasks = tasks.saturating_add(leading(number));
            } else if part.first().is_some_and(u8::is_ascii_digit) {
                count = count.saturating_add(leading(part));
            } else if part.first().is_some_and(u8::is_ascii_alphabetic) {
                names.push(part);
            }
        }
        if count > 0 {
            self.give("nodes", Some(count.to_string().as_bytes()))?;
        }
        if tasks > 0 {
            let tasks = tasks.saturating_mul(count.max(1));
            self.give("ntasks", Some(tasks.to_string().as_bytes()))?;
        }
        if !names.is_empty() {
            self.give("nodelist", Some(&names.join(&b',')))?;
        }
        Ok(())
    }
}

/// The number that a text begins with, as `strtol(3)` reads it; 0 if with none.
fn leading(text: &[u8]) -> u64 {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    whole(&text[..digits]).unwrap_or(0)
}

fn whole(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A mask in octal, decimal or hexadecimal, by its first digits (`strtol(3)`, base 0).
fn mask(text: &[u8]) -> Option<u32> {
    const LARGEST: u32 = 0o777;
    let text = std::str::from_utf8(text).ok()?;
    let mask = if let Some(hexadecimal) = text.strip_prefix("0x") {
        u32::from_str_radix(hexadecimal, 16)
    } else if text.len() > 1 && text.starts_with('0') {
        u32::from_str_radix(text, 8)
    } else {
        text.parse()
    };
    mask.ok().filter(|&mask| mask <= LARGEST)
}

/// PBS has a letter for each kind of mail.
fn mail_types(letters: &[u8]) -> String {
    let has = |letter: u8| {
        letters
            .iter()
            .any(|byte| byte.eq_ignore_ascii_case(&letter))
    };
    if has(b'n') {
        return "NONE".to_owned();
    }
    let kinds = [(b'b', "BEGIN"), (b'e', "END"), (b'a', "FAIL")];
    let kinds = kinds.iter().filter(|(letter, _)| has(*letter));
    kinds.map(|(_, kind)| *kind).collect::<Vec<_>>().join(",")
}
