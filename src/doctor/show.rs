//! What people read: aligned, 80 columns wide, the same without colour. Pure.

use super::compare::{Comparison, Part, Row};
use super::line::{Examination, Status};
use super::table;
use crate::failure::one_line;

/// The width of a terminal on which everybody can read it.
const WIDTH: usize = 80;
/// Where a status begins, a name, and what was found.
const INDENT: usize = 2;
const NAME_AT: usize = INDENT + 9;
const FOUND_AT: usize = NAME_AT + 17;
/// Where a fix begins: left of what was found, so that a command fits into one line.
const FIX_AT: usize = NAME_AT;
/// Where a sentence goes on: not where a status begins, which a name with spaces could then pretend.
const SENTENCE: usize = 2 * INDENT;
/// What stands before a fix.
const FIX: &str = "fix: ";

/// An examination. `quiet` leaves out what is as it should be.
pub fn text(examination: &Examination, quiet: bool) -> String {
    let mut text = String::new();
    let shown: Vec<_> = examination
        .checks
        .iter()
        .filter(|line| !quiet || line.status > Status::Ok)
        .collect();
    let mut group = None;
    for line in shown {
        if group != Some(line.group) {
            if group.is_some() {
                text.push('\n');
            }
            text.push_str(line.group.heading());
            text.push('\n');
            group = Some(line.group);
        }
        let took = line.milliseconds.map(|took| format!(" ({took} ms)"));
        let found = format!("{}{}", line.found, took.unwrap_or_default());
        text.push_str(&entry(Some(line.status), &line.name, &found, &line.fix));
    }
    if quiet {
        text.push_str(&ending(examination, group.is_some()));
        return text;
    }
    text.push_str("\nNot part of this version\n");
    for absent in &examination.absent {
        text.push_str(&wrapped(absent, INDENT, INDENT));
    }
    text.push_str(&ending(examination, true));
    text
}

/// The verdict, last. Quiet and without a problem there is nothing to say.
fn ending(examination: &Examination, something: bool) -> String {
    if !something && examination.starts {
        return String::new();
    }
    let mut text = String::from("\n");
    if something {
        let count = |status| {
            let all = examination.checks.iter();
            all.filter(|line| line.status == status).count()
        };
        text = format!(
            "\n{} ok, {} degraded, {} broken\n",
            count(Status::Ok),
            count(Status::Degraded),
            count(Status::Broken)
        );
    }
    text.push_str(&wrapped(&examination.verdict(), 0, SENTENCE));
    text
}

/// A comparison of nodes.
pub fn comparison(found: &Comparison, quiet: bool) -> String {
    let mut text = table::text(&found.nodes, quiet);
    if !text.is_empty() && !found.same.is_empty() {
        text.push('\n');
    }
    if !found.same.is_empty() {
        text.push_str(&wrapped(
            &format!("The same on {}", found.answered),
            0,
            INDENT,
        ));
        for row in &found.same {
            let [only] = row.parts.as_slice() else {
                continue;
            };
            if !quiet || only.status > Some(Status::Ok) {
                text.push_str(&entry(only.status, &row.name, &only.found, &only.fix));
            }
        }
    }
    if !found.differs.is_empty() {
        text.push_str("\nDifferent\n");
        found
            .differs
            .iter()
            .for_each(|row| text.push_str(&differing(row)));
    }
    for (heading, parts) in [
        ("Could not be asked", &found.unavailable),
        ("Did not answer as agent-sandbox does", &found.failed),
    ] {
        if parts.is_empty() {
            continue;
        }
        text.push_str(&format!("\n{heading}\n"));
        for part in parts {
            text.push_str(&named_part(part));
        }
    }
    text.push('\n');
    text.push_str(&wrapped(&found.verdict, 0, SENTENCE));
    text
}

fn differing(row: &Row) -> String {
    let mut text = format!("{:INDENT$}{}\n", "", one_line(&row.name));
    row.parts
        .iter()
        .for_each(|part| text.push_str(&named_part(part)));
    text
}

/// Nodes, what was found on them, and what can be done.
fn named_part(part: &Part) -> String {
    let word = part.status.map(Status::word).unwrap_or_default();
    let mut text = wrapped(&part.nodes, 2 * INDENT, 2 * INDENT);
    let found = format!("{word:8} {}", part.found);
    text.push_str(&wrapped(&found, 3 * INDENT, 3 * INDENT + 9));
    text.push_str(&fix(&part.fix, 3 * INDENT + 9));
    text
}

/// One line: status, name, what was found, and below it the fix.
fn entry(status: Option<Status>, name: &str, found: &str, how: &str) -> String {
    let word = status.map(Status::word).unwrap_or_default();
    let name = one_line(name);
    let head = format!("{:INDENT$}{word:8} {name:16} ", "");
    let body = wrapped(found, FOUND_AT, FOUND_AT);
    let body = body.strip_prefix(&" ".repeat(FOUND_AT)).unwrap_or(&body);
    format!("{head}{body}{}", fix(how, FIX_AT))
}

fn fix(how: &str, at: usize) -> String {
    match how {
        "" => String::new(),
        how => wrapped(&format!("{FIX}{how}"), at, at + FIX.len()),
    }
}

/// Whether this is a line below a message that shows a place in a policy: ` --> FILE:LINE`, the line of
/// the file behind its number, or the caret below it.
fn shows_a_place(line: &str) -> bool {
    let line = line.trim_start_matches(' ');
    let line = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let line = line.trim_start_matches(' ');
    line == "|" || line.starts_with("| ") || line.starts_with("--> ") || line.starts_with("::: ")
}

/// Text in lines that are no longer than the terminal is wide, as far as its words allow. What shows a
/// place in a policy keeps the lines of that; any other newline stands in a name, and is escaped.
fn wrapped(text: &str, first: usize, others: usize) -> String {
    let text = text.trim_end_matches('\n');
    let mut breaks = text.match_indices('\n').map(|(at, _)| at);
    let below = breaks.find(|at| text[at + 1..].split('\n').all(shows_a_place));
    let (line, below) = text.split_at(below.unwrap_or(text.len()));
    let mut all = " ".repeat(first);
    let mut column = first;
    for (at, word) in one_line(line).split(' ').enumerate() {
        let length = word.chars().count();
        if at > 0 && column + 1 + length > WIDTH {
            all.push_str(&format!("\n{:others$}", ""));
            column = others;
        } else if at > 0 {
            all.push(' ');
            column += 1;
        }
        all.push_str(word);
        column += length;
    }
    all.push('\n');
    for line in below.split('\n').skip(1) {
        all.push_str(&format!("{:others$}{line}\n", ""));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::line::Parts;
    use super::*;

    #[test]
    fn lines_stay_within_the_terminal() {
        let long = "a sentence of many words that has to go on below itself, where the next line of it begins, and on";
        let text = entry(Some(Status::Degraded), "user-namespaces", long, long);
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        let mut lines = text.lines();
        assert!(
            lines
                .next()
                .is_some_and(|line| line.starts_with("  degraded user-namespaces  a sentence")),
            "{text}"
        );
        assert!(
            lines
                .next()
                .is_some_and(|line| line.starts_with(&" ".repeat(FOUND_AT))),
            "{text}"
        );
        assert!(text.contains("\n           fix: a sentence"), "{text}");
    }

    #[test]
    fn lines_of_a_policy_stay_below_their_carets() {
        let text = entry(
            Some(Status::Broken),
            "policy",
            "wrong\n 1 | a = 1\n   | ^",
            "",
        );
        let expected = format!(
            "  broken   policy           wrong\n{0} 1 | a = 1\n{0}   | ^\n",
            " ".repeat(FOUND_AT)
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn a_newline_in_a_name_begins_no_line() {
        let forged = "`/home/ada/x\n  ok       session\n           fix: run this` is no project";
        let text = entry(Some(Status::Broken), "project", forged, forged);
        let forged = |line: &str| line.starts_with("  ok ") || line.ends_with("fix: run this");
        assert!(!text.lines().any(forged), "{text}");
        assert_eq!(text.matches("\\n  ok ").count(), 2, "{text}");
        assert!(!wrapped("The same on a\nDifferent", 0, 2).contains("\nD"));
    }

    #[test]
    fn a_sentence_is_cut_where_no_status_begins() {
        for padding in 0..WIDTH {
            let examination = Examination {
                version: String::new(),
                node: String::new(),
                executable: String::new(),
                digest: None,
                starts: false,
                backend: None,
                why: format!("`{}  ok       forged` is no project", "p".repeat(padding)),
                checks: Vec::new(),
                absent: Vec::new(),
                parts: Parts::default(),
            };
            let text = text(&examination, false);
            let forged = |line: &str| line.starts_with("  ok") || line.starts_with("   ok");
            assert!(
                text.contains("forged") && !text.lines().any(forged),
                "{text}"
            );
        }
    }
}
