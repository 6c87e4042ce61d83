//! Columns of `squeue`, typed: what was asked for is parsed, written anew with marks between the
//! columns, and what Slurm answers is taken apart at the marks, whatever the names of jobs hold.

use std::ops::Range;

use super::format_fields::{FIELDS, Field, STEP_FIELDS, Show};
use crate::refusal::Refusal;

/// The widest column, in characters.
const WIDEST: usize = 4096;

/// Width of a column of `-O` without one (`squeue(1)`).
const USUAL: usize = 20;

/// The most columns.
const MOST: usize = 200;

/// Widths of what stands in front of each line in the long syntax: the job's number (of steps
/// `123_4.batch`) and the user's. What is cut has its number in front all the same. The short syntax
/// does without: blanks cost squeue as much as a column does.
const ID: usize = 20;
const UID: usize = 10;

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) field: &'static Field,
    width: usize,
    right: bool,
    suffix: String,
    /// It was not asked for.
    pub(super) hidden: bool,
}

/// What lies between two marks. Every mark costs Slurm and the chaperon time, so columns that are
/// shown as they are, whosever the job is, stand in one piece, with the text between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Text in front of it that nothing of Slurm's can be in.
    pub(super) before: String,
    columns: Range<usize>,
    /// It is shown as it is; otherwise it is one column.
    pub(super) passes: bool,
}

/// How lines are laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    steps: bool,
    columns: Vec<Column>,
    pub(super) pieces: Vec<Piece>,
    /// Text behind the last piece.
    pub(super) after: String,
}

impl Layout {
    /// Reads a format of `--format`: `%[.][width]LETTER`, with text between.
    ///
    /// # Errors
    /// A letter that is unknown, or too much of anything.
    pub(super) fn short(text: &str, steps: bool) -> Result<Self, Refusal> {
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
    pub(super) fn long(text: &str, steps: bool) -> Result<Self, Refusal> {
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
        let (pieces, after) = pieces(prefix, &columns);
        Ok(Self {
            steps,
            columns,
            pieces,
            after,
        })
    }

    /// The columns of a piece.
    pub(super) fn columns(&self, piece: &Piece) -> &[Column] {
        &self.columns[piece.columns.clone()]
    }

    /// The option that asks for it, with `mark` behind each piece; `None` if a column has no letter.
    pub(super) fn short_option(&self, mark: &str) -> Option<String> {
        let id = if self.steps { 'i' } else { 'F' };
        let mut text = format!("--format=%{id} %U{mark}");
        for piece in &self.pieces {
            text.push_str(&piece.before);
            for column in self.columns(piece) {
                text.push('%');
                text.push_str(&column.size());
                text.push(column.field.letter?);
                if piece.passes {
                    text.push_str(&column.suffix);
                }
            }
            text.push_str(mark);
        }
        text.push_str(&self.after);
        Some(text)
    }

    /// The same as [`Self::short_option`] in the other syntax, which has names for all columns, and
    /// takes squeue longer.
    pub(super) fn long_option(&self, mark: &str) -> String {
        let id = if self.steps { "stepid" } else { "arrayjobid" };
        let mut text = format!("--Format={id}:{ID},userid:{UID}{mark}");
        for piece in &self.pieces {
            text.push_str(&piece.before);
            for column in self.columns(piece) {
                text.push(',');
                text.push_str(column.field.name);
                text.push(':');
                text.push_str(&column.size());
                if piece.passes {
                    text.push_str(&column.suffix);
                }
            }
            text.push_str(mark);
        }
        text.push_str(&self.after);
        text
    }
}

/// The pieces of a line, and the text behind the last.
fn pieces(prefix: String, columns: &[Column]) -> (Vec<Piece>, String) {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut text = prefix;
    for (at, column) in columns.iter().enumerate() {
        let passes = column.field.show == Show::All && !column.hidden;
        match pieces.last_mut() {
            Some(last) if passes && last.passes => last.columns.end = at + 1,
            _ => {
                pieces.push(Piece {
                    before: std::mem::take(&mut text),
                    columns: at..at + 1,
                    passes,
                });
            }
        }
        if !passes {
            text.clone_from(&column.suffix);
        }
    }
    (pieces, text)
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
    pub(super) fn lay_out(&self, text: &[u8], output: &mut Vec<u8>) {
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
