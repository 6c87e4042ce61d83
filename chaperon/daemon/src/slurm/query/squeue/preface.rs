//! What `squeue -v` prints before its lines: what it was asked for (`_print_options()` in
//! `src/squeue/opts.c`), and how many jobs there are.

use std::ffi::OsStr;

use agent_sandbox_wire::order::Queries;

use crate::slurm::parse::{Origin, Parsed};
use crate::slurm::query::format::find;

/// The line around what it was asked for.
const RULE: &[u8] = b"-----------------------------\n";

/// What the line begins with that counts the jobs.
const COUNT: &[u8] = b"last_update_time=";

/// Empty lines behind the list.
const BLANKS: usize = 2;

/// Takes it apart, line by line. It ends where the first line of the listing has the mark.
#[derive(Clone, Debug)]
pub(super) struct Preface {
    /// Lines that tell what the chaperon asked for, with what the user did.
    instead: Vec<(&'static [u8], Vec<u8>)>,
    /// Whether the number of all jobs may be known.
    counted: bool,
    mark: Vec<u8>,
    /// It is not the first listing: the list is not shown again.
    again: bool,
    rules: usize,
    blanks: usize,
    held: Vec<u8>,
    over: bool,
}

impl Preface {
    pub(super) fn new(parsed: &Parsed, others: Queries, mark: &str) -> Self {
        let arguments = ["long", "steps", "start", "Format"].iter().any(|name| {
            let mut given = parsed.all(name);
            given.any(|given| given.origin == Origin::Argument)
        });
        let format = parsed
            .last("format")
            .filter(|given| given.origin == Origin::Argument || !arguments)
            .and_then(|given| given.value.as_deref())
            .unwrap_or(OsStr::new("(null)"));
        let mut instead = vec![(&b"format      = "[..], format.as_encoded_bytes().to_vec())];
        if let Some(value) = parsed.value("iterate") {
            instead.push((b"iterate     = ", value.as_encoded_bytes().to_vec()));
        }
        let whose = parsed.last_of(&["user", "me", "notme"]);
        if let Some(value) = whose.and_then(|given| given.value.as_ref()) {
            instead.push((b"users       = ", value.as_encoded_bytes().to_vec()));
        }
        Self {
            instead,
            counted: others != Queries::None,
            mark: mark.as_bytes().to_vec(),
            again: false,
            rules: 0,
            blanks: 0,
            held: Vec::new(),
            over: false,
        }
    }

    /// The same for the next listing.
    pub(super) fn again(self) -> Self {
        Self {
            again: true,
            rules: 0,
            blanks: 0,
            held: Vec::new(),
            over: false,
            ..self
        }
    }

    /// Whether the listing itself has begun.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// What is to be shown of this part, and what belongs to the listing.
    pub(super) fn part(&mut self, part: &[u8]) -> (Vec<u8>, Vec<u8>) {
        self.held.extend_from_slice(part);
        let mut shown = Vec::new();
        while let Some(end) = self.held.iter().position(|&byte| byte == b'\n') {
            if find(&self.held[..=end], &self.mark).is_some() {
                self.over = true;
                return (shown, std::mem::take(&mut self.held));
            }
            let line: Vec<u8> = self.held.drain(..=end).collect();
            self.line(&line, &mut shown);
        }
        (shown, Vec::new())
    }

    fn line(&mut self, line: &[u8], shown: &mut Vec<u8>) {
        let listed = self.rules < 2 || self.blanks < BLANKS;
        if line == RULE {
            self.rules += 1;
        } else if self.rules == 2 && line == b"\n" {
            self.blanks += 1;
        }
        if listed && self.again || line.starts_with(COUNT) && !self.counted {
            return;
        }
        let mut instead = self.instead.iter();
        match instead.find(|(begin, _)| listed && line.starts_with(begin)) {
            None => shown.extend_from_slice(line),
            Some((begin, value)) => {
                shown.extend_from_slice(begin);
                shown.extend_from_slice(value);
                shown.push(b'\n');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use agent_sandbox_wire::command::Command;

    use super::*;
    use crate::slurm::parse;

    const SAID: &[u8] = b"-----------------------------\nformat      = (null)\n\
        iterate     = 0\nusers       = 2001\n-----------------------------\n\n\n\
        Mon\nlast_update_time=1 records=9\n17 2001|JOBID|\n18 2001|x|\n";

    fn preface(words: &[&str], others: Queries) -> Preface {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let parsed = parse::parse(Command::Squeue, None, &words, &[]).unwrap();
        Preface::new(&parsed, others, "|")
    }

    /// In two parts.
    fn shown(all: &mut Preface) -> String {
        let (head, rest) = SAID.split_at(50);
        let (mut shown, none) = all.part(head);
        assert!(none.is_empty() && !all.is_over());
        let (more, listing) = all.part(rest);
        assert_eq!(listing, b"17 2001|JOBID|\n18 2001|x|\n");
        assert!(all.is_over());
        shown.extend(more);
        String::from_utf8(shown).unwrap()
    }

    #[test]
    fn it_tells_what_the_user_gave() {
        let mut all = preface(&["-v", "-o", "%i", "-u", "ada", "-i", "5"], Queries::Counts);
        let text = shown(&mut all);
        for line in ["format      = %i", "iterate     = 5", "users       = ada"] {
            assert!(text.lines().any(|one| one == line), "{text}");
        }
        assert!(
            text.ends_with("\n\n\nMon\nlast_update_time=1 records=9\n"),
            "{text}"
        );
        assert_eq!(
            shown(&mut all.again()),
            "Mon\nlast_update_time=1 records=9\n"
        );
    }

    #[test]
    fn jobs_that_are_hidden_are_not_counted() {
        let text = shown(&mut preface(&["-v"], Queries::None));
        assert!(
            !text.contains("records") && text.ends_with("Mon\n"),
            "{text}"
        );
    }
}
