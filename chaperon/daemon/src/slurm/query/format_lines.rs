//! What `squeue` answers, taken apart at the marks of a [`Layout`] and put together anew, line by
//! line as it arrives.

use super::format::{Layout, find};
use super::format_fields::Show;
use super::shown::{JobPath, NO_TASK, Named};
use crate::refusal::Refusal;
use crate::slurm::ids;

/// The longest line, in bytes. What is longer is no line of squeue's.
const LONGEST: usize = 4 << 20;

/// The most bytes in front of the first mark of a line: two numbers, or what they are called.
const HEAD: usize = 64;

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
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

/// One line, taken apart.
struct Line<'a> {
    job: Option<u32>,
    uid: Option<u32>,
    /// What the pieces of the layout hold.
    values: Vec<&'a [u8]>,
    length: usize,
}

/// The answer is not laid out as it was asked for.
struct Odd;

/// Rewrites an answer.
pub(super) struct Rewriter<'a, S, R> {
    layout: &'a Layout,
    mark: &'a [u8],
    shown: S,
    recorded: R,
    /// The first line was seen.
    begun: bool,
    /// The beginning of a line whose end has not arrived.
    rest: Vec<u8>,
}

impl<'a, S, R> Rewriter<'a, S, R>
where
    S: Fn(u32, u32) -> Shown,
    R: Fn(u32, JobPath, &Named) -> Option<Vec<u8>>,
{
    /// For an answer to the option with this `mark`. `shown` says of a job's number and its user's
    /// what becomes of the line; `recorded` gives what belongs into a column of a job in the scope.
    pub(super) fn new(layout: &'a Layout, mark: &'a str, shown: S, recorded: R) -> Self {
        Self {
            layout,
            mark: mark.as_bytes(),
            shown,
            recorded,
            begun: false,
            rest: Vec::new(),
        }
    }

    /// What is to be shown of the lines that this part ends.
    ///
    /// # Errors
    /// The answer is not laid out as it was asked for.
    pub(super) fn part(&mut self, part: &[u8]) -> Result<Vec<u8>, Refusal> {
        let mut output = Vec::with_capacity(self.rest.len() + part.len());
        let mut whole = std::mem::take(&mut self.rest);
        let text = if whole.is_empty() {
            part
        } else {
            whole.extend_from_slice(part);
            &whole
        };
        let taken = self.lines(text, &mut output).map_err(|Odd| odd())?;
        let rest = &text[taken..];
        if rest.len() > LONGEST {
            return Err(odd());
        }
        self.rest = rest.to_vec();
        Ok(output)
    }

    /// What is to be shown at the end of the answer.
    ///
    /// # Errors
    /// The answer is not laid out as it was asked for.
    pub(super) fn end(self) -> Result<Vec<u8>, Refusal> {
        // No job, no header.
        let blank = !self.begun && self.rest.iter().all(u8::is_ascii_whitespace);
        if self.rest.is_empty() || blank {
            Ok(self.rest)
        } else {
            Err(odd())
        }
    }

    /// Rewrites the lines of a text, and says how much of it they are.
    fn lines(&mut self, text: &[u8], output: &mut Vec<u8>) -> Result<usize, Odd> {
        let mut at = 0;
        if !self.begun {
            // What stands before the first line: the date, with --long.
            let Some(first) = find(text, self.mark) else {
                return Ok(0);
            };
            at = memchr::memrchr(b'\n', &text[..first]).map_or(0, |end| end + 1);
            let Some(line) = self.line(&text[at..])? else {
                return Ok(0);
            };
            output.extend_from_slice(&text[..at]);
            at += line.length;
            self.write(&line, Shown::Header, output);
            self.begun = true;
        }
        while let Some(line) = self.line(&text[at..])? {
            at += line.length;
            self.write(&line, Shown::Masked, output);
        }
        Ok(at)
    }

    /// Rewrites a line; `otherwise` is what becomes of one that names no job.
    fn write(&self, line: &Line<'_>, otherwise: Shown, output: &mut Vec<u8>) {
        let shown = match (line.job, line.uid) {
            (Some(job), Some(uid)) => (self.shown)(job, uid),
            _ => otherwise,
        };
        if shown == Shown::Not {
            return;
        }
        for (piece, value) in self.layout.pieces.iter().zip(&line.values) {
            output.extend_from_slice(piece.before.as_bytes());
            let [column] = self.layout.columns(piece) else {
                output.extend_from_slice(value);
                continue;
            };
            match (column.field.show, shown) {
                _ if column.hidden => {}
                (Show::Ours | Show::Recorded(_), Shown::Masked) => column.lay_out(b"-", output),
                (Show::Recorded(place), Shown::InScope) => {
                    let job = line.job.unwrap_or_default();
                    match (self.recorded)(job, place, &self.named(line)) {
                        Some(text) => column.lay_out(&text, output),
                        None => output.extend_from_slice(value),
                    }
                }
                _ => output.extend_from_slice(value),
            }
        }
        output.extend_from_slice(self.layout.after.as_bytes());
        output.push(b'\n');
    }

    /// What the hidden columns say.
    fn named<'v>(&self, line: &Line<'v>) -> Named<'v> {
        let hidden = |&(piece, _): &(&_, &&[u8])| {
            let columns = self.layout.columns(piece);
            columns.iter().any(|column| column.hidden)
        };
        let all = self.layout.pieces.iter().zip(&line.values);
        let mut hidden = all.filter(hidden).map(|(_, value)| *value);
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

    /// The first line; `None` if its end has not arrived.
    fn line<'t>(&self, text: &'t [u8]) -> Result<Option<Line<'t>>, Odd> {
        let near = &text[..text.len().min(HEAD + self.mark.len())];
        let Some(end) = find(near, self.mark) else {
            return if near.len() < HEAD + self.mark.len() {
                Ok(None)
            } else {
                Err(Odd)
            };
        };
        let head = &text[..end];
        if head.contains(&b'\n') {
            return Err(Odd);
        }
        let mut words = head
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        let mut number = || words.next().and_then(ids::leading);
        let (job, uid) = (number(), number());
        let mut rest = &text[end + self.mark.len()..];
        let mut values = Vec::with_capacity(self.layout.pieces.len());
        for piece in &self.layout.pieces {
            // Of a piece that passes it is a part.
            let Some(value) = behind(rest, piece.before.as_bytes())? else {
                return Ok(None);
            };
            let Some(end) = find(value, self.mark) else {
                return Ok(None);
            };
            values.push(&value[..end]);
            rest = &value[end + self.mark.len()..];
        }
        let after = behind(rest, self.layout.after.as_bytes())?;
        let after = match after {
            Some(rest) => behind(rest, b"\n")?,
            None => None,
        };
        Ok(after.map(|after| Line {
            job,
            uid,
            values,
            length: text.len() - after.len(),
        }))
    }
}

/// What follows a text that has to stand here; `None` if not all of it has arrived.
fn behind<'t>(text: &'t [u8], wanted: &[u8]) -> Result<Option<&'t [u8]>, Odd> {
    match text.strip_prefix(wanted) {
        Some(rest) => Ok(Some(rest)),
        None if wanted.starts_with(text) => Ok(None),
        None => Err(Odd),
    }
}

fn odd() -> Refusal {
    Refusal::mistake("squeue answers in a way that is not understood")
}
