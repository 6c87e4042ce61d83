//! Columns of `squeue`, typed: what was asked for is parsed, written anew with marks between the
//! columns, and what Slurm answers is taken apart at the marks, whatever the names of jobs hold.

use super::format_fields::{FIELDS, Field, STEP_FIELDS, Show};
use super::ids;
use super::shown::{NO_TASK, Named, Place};
use crate::refusal::Refusal;

/// The widest column, in characters.
const WIDEST: usize = 4096;

/// Width of a column of `-O` without one (`squeue(1)`).
const USUAL: usize = 20;

/// The most columns.
const MOST: usize = 200;

/// Widths of what stands in front of each line: the job's number (of steps `123_4.batch`) and the
/// user's. What is cut has its number in front all the same.
const ID: usize = 20;
const UID: usize = 10;

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    field: &'static Field,
    width: usize,
    right: bool,
    suffix: String,
    /// It was not asked for.
    hidden: bool,
}

/// How lines are laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    steps: bool,
    prefix: String,
    columns: Vec<Column>,
}

/// One line, taken apart.
struct Line<'a> {
    job: Option<u32>,
    uid: Option<u32>,
    values: Vec<&'a [u8]>,
}

impl Layout {
    /// Reads a format of `--format`: `%[.][width]LETTER`, with text between.
    ///
    /// # Errors
    /// A letter that is unknown, or too much of anything.
    pub fn short(text: &str, steps: bool) -> Result<Self, Refusal> {
        let everything: String;
        let text = if text.eq_ignore_ascii_case("%all") {
            let letters = ('a'..='z').chain('A'..='Z');
            let known = letters.filter(|&letter| lettered(letter, steps).is_some());
            everything = known
                .map(|letter| format!("%{letter}"))
                .collect::<Vec<_>>()
                .join("|");
            &everything
        } else {
            text
        };
        let mut parts = text.split('%');
        let prefix = parts.next().unwrap_or_default().to_owned();
        let mut columns = Vec::new();
        for part in parts.filter(|part| !part.is_empty()) {
            let (right, rest) = justified(part);
            let (width, rest) = width(rest, part)?;
            let mut rest = rest.chars();
            let letter = rest.next().unwrap_or_default();
            let field = lettered(letter, steps).ok_or_else(|| invalid(steps, part))?;
            columns.push(Column {
                field,
                width,
                right,
                suffix: rest.as_str().to_owned(),
                hidden: false,
            });
        }
        Self::of(prefix, columns, steps)
    }

    /// Reads a format of `--Format`: `NAME[:[.][width][suffix]]` with commas between.
    ///
    /// # Errors
    /// A name that is unknown, or too much of anything.
    pub fn long(text: &str, steps: bool) -> Result<Self, Refusal> {
        let mut columns = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, rest) = match part.split_once(':') {
                Some((name, rest)) => (name, Some(rest)),
                None => (part, None),
            };
            let mut fields = fields(steps).iter();
            let field = fields
                .find(|field| field.is(name.trim_start()))
                .ok_or_else(|| invalid(steps, part))?;
            let (right, width, suffix) = match rest {
                None => (false, USUAL, ""),
                Some(rest) => {
                    let (right, rest) = justified(rest);
                    let (width, suffix) = width(rest, part)?;
                    (right, width, suffix)
                }
            };
            columns.push(Column {
                field,
                width,
                right,
                suffix: suffix.to_owned(),
                hidden: false,
            });
        }
        Self::of(String::new(), columns, steps)
    }

    fn of(prefix: String, mut columns: Vec<Column>, steps: bool) -> Result<Self, Refusal> {
        if columns.len() > MOST {
            return Err(Refusal::mistake(format!("more than {MOST} columns")));
        }
        let longest = columns.iter().map(|column| column.suffix.len()).max();
        if prefix.len().max(longest.unwrap_or(0)) > WIDEST {
            return Err(Refusal::mistake(format!(
                "text of more than {WIDEST} bytes between columns"
            )));
        }
        let recorded = |column: &Column| matches!(column.field.show, Show::Recorded(_));
        if columns.iter().any(recorded) {
            // What the names of files are made of.
            let hidden = ['A', 'K', 'j']
                .into_iter()
                .filter_map(|letter| lettered(letter, steps));
            columns.extend(hidden.map(|field| Column {
                field,
                width: 0,
                right: false,
                suffix: String::new(),
                hidden: true,
            }));
        }
        Ok(Self {
            steps,
            prefix,
            columns,
        })
    }

    /// The option that asks for it, with `mark` behind each column.
    pub fn short_option(&self, mark: &str) -> String {
        let id = if self.steps { 'i' } else { 'F' };
        let mut text = format!("--format=%{ID}{id}%{UID}U{mark}{}", self.prefix);
        for column in &self.columns {
            let Some(letter) = column.field.letter else {
                continue;
            };
            text.push('%');
            text.push_str(&column.size());
            text.push(letter);
            text.push_str(mark);
            text.push_str(&column.suffix);
        }
        text
    }

    /// The same as [`Self::short_option`] in the other syntax.
    pub fn long_option(&self, mark: &str) -> String {
        let id = if self.steps { "stepid" } else { "arrayjobid" };
        let mut text = format!("--Format={id}:{ID},userid:{UID}{mark}");
        for column in &self.columns {
            text.push(',');
            text.push_str(column.field.name);
            text.push(':');
            text.push_str(&column.size());
            text.push_str(mark);
            text.push_str(&column.suffix);
        }
        text
    }

    /// Rewrites what Slurm answered. `shown` says of a job's number and its user's what becomes of
    /// the line; `recorded` gives what belongs into a column of a job in the scope.
    ///
    /// # Errors
    /// The answer is not laid out as it was asked for.
    pub fn rewrite(
        &self,
        answer: &[u8],
        mark: &str,
        shown: impl Fn(u32, u32) -> Shown,
        recorded: impl Fn(u32, Place, &Named) -> Option<Vec<u8>>,
    ) -> Result<Vec<u8>, Refusal> {
        let odd = || Refusal::mistake("squeue answers in a way that is not understood");
        let mut output = Vec::with_capacity(answer.len());
        let mut rest = answer;
        let mark = mark.as_bytes();
        // What stands before the first line: the date, with --long.
        let Some(first) = find(rest, mark) else {
            return if rest.iter().all(u8::is_ascii_whitespace) {
                Ok(answer.to_vec())
            } else {
                Err(odd())
            };
        };
        let before = first.checked_sub(ID + UID).ok_or_else(odd)?;
        output.extend_from_slice(&rest[..before]);
        rest = &rest[before..];
        while !rest.is_empty() {
            let (line, after) = self.line(rest, mark).ok_or_else(odd)?;
            rest = after;
            let shown = match (line.job, line.uid) {
                (Some(job), Some(uid)) => shown(job, uid),
                // The header names no job.
                _ => Shown::Header,
            };
            if shown == Shown::Not {
                continue;
            }
            output.extend_from_slice(self.prefix.as_bytes());
            let columns = self.columns.iter().filter(|column| !column.hidden);
            for (column, value) in columns.zip(&line.values) {
                match (column.field.show, shown) {
                    (Show::Ours | Show::Recorded(_), Shown::Masked) => {
                        column.lay_out(b"-", &mut output);
                    }
                    (Show::Recorded(place), Shown::InScope) => {
                        let job = line.job.unwrap_or_default();
                        match recorded(job, place, &self.named(&line)) {
                            Some(text) => column.lay_out(&text, &mut output),
                            None => output.extend_from_slice(value),
                        }
                    }
                    _ => output.extend_from_slice(value),
                }
                output.extend_from_slice(column.suffix.as_bytes());
            }
            output.push(b'\n');
        }
        Ok(output)
    }

    /// What the hidden columns say.
    fn named<'a>(&self, line: &Line<'a>) -> Named<'a> {
        let all = self.columns.iter().zip(&line.values);
        let mut hidden = all
            .filter(|(column, _)| column.hidden)
            .map(|(_, value)| *value);
        let mut next = || hidden.next().unwrap_or_default();
        let id = ids::leading(next().trim_ascii());
        let first = line.job.unwrap_or_default();
        let task = next().trim_ascii();
        Named {
            id: id.unwrap_or(first),
            array: (task != b"N/A").then(|| (first, ids::leading(task).unwrap_or(NO_TASK))),
            name: next(),
        }
    }

    /// The first line and what follows it.
    fn line<'a>(&self, text: &'a [u8], mark: &[u8]) -> Option<(Line<'a>, &'a [u8])> {
        let head = find(text, mark)?;
        if head != ID + UID {
            return None;
        }
        let (id, uid) = text[..head].split_at(ID);
        let mut rest = text[head + mark.len()..].strip_prefix(self.prefix.as_bytes())?;
        let mut values = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let end = find(rest, mark)?;
            values.push(&rest[..end]);
            rest = rest[end + mark.len()..].strip_prefix(column.suffix.as_bytes())?;
        }
        let line = Line {
            job: ids::leading(id.trim_ascii()),
            uid: ids::leading(uid.trim_ascii()),
            values,
        };
        Some((line, rest.strip_prefix(b"\n")?))
    }
}

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// It is the header.
    Header,
    /// It is shown in full; the job is in the scope.
    InScope,
    /// It is shown in full, as Slurm has it.
    InFull,
    /// It is shown without names.
    Masked,
    /// It is left out.
    Not,
}

impl Column {
    fn size(&self) -> String {
        let point = if self.right { "." } else { "" };
        match self.width {
            0 => point.to_owned(),
            width => format!("{point}{width}"),
        }
    }

    /// As Slurm fits a text into a column: cut at its end, counted in bytes.
    fn lay_out(&self, text: &[u8], output: &mut Vec<u8>) {
        if self.width == 0 {
            output.extend_from_slice(text);
            return;
        }
        let text = &text[..text.len().min(self.width)];
        let blanks = self.width - text.len();
        let (before, after) = if self.right { (blanks, 0) } else { (0, blanks) };
        output.resize(output.len() + before, b' ');
        output.extend_from_slice(text);
        output.resize(output.len() + after, b' ');
    }
}

fn fields(steps: bool) -> &'static [Field] {
    if steps { &STEP_FIELDS } else { &FIELDS }
}

fn lettered(letter: char, steps: bool) -> Option<&'static Field> {
    fields(steps)
        .iter()
        .find(|field| field.letter == Some(letter))
}

fn justified(text: &str) -> (bool, &str) {
    match text.strip_prefix('.') {
        Some(rest) => (true, rest),
        None => (false, text),
    }
}

fn width<'a>(text: &'a str, whole: &str) -> Result<(usize, &'a str), Refusal> {
    let end = text
        .bytes()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    let width = if end == 0 { Ok(0) } else { text[..end].parse() };
    match width {
        Ok(width) if width <= WIDEST => Ok((width, &text[end..])),
        _ => Err(Refusal::mistake(format!(
            "column `{}` is wider than {WIDEST}",
            whole.escape_debug()
        ))),
    }
}

fn invalid(steps: bool, what: &str) -> Refusal {
    let kind = if steps { "job step" } else { "job" };
    Refusal::mistake(format!(
        "Invalid {kind} format specification: {}",
        what.escape_debug()
    ))
}

pub(crate) fn find(text: &[u8], mark: &[u8]) -> Option<usize> {
    let first = *mark.first()?;
    memchr::memchr_iter(first, text).find(|&at| text[at..].starts_with(mark))
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
