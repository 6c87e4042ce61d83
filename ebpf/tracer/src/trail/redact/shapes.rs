//! Looks for the shapes of the [table](super::table) in a text.

use agent_sandbox_secrets::names;
use memchr::{memchr, memmem};
use regex::bytes::{Captures, Regex};

use super::edit::Edit;
use super::table::{self, Takes};

/// Options whose value is a user and, behind a colon, a password (`curl(1)`, `wget(1)`).
const USER_AND_PASSWORD: [&[u8]; 4] = [b"-u", b"--user", b"--proxy-user", b"-U"];

/// Whether a name is a secret's its end says, and whether a value is a key its beginning, in bytes: many in one long
/// text would take long.
const NEAR: usize = 128;

/// Words of scripts in scripts are looked at so deep.
const DEPTH: u8 = 6;

/// Hides all that is known. Between arguments stand zeros; in text that was `cut` off at its end the last key may be shorter.
pub(super) fn hide(text: &[u8], cut: bool, edit: &mut Edit) {
    assignments(text, edit);
    options(text, edit);
    let (rows, set) = &*table::ROWS;
    for row in set.matches(text) {
        shape(&rows[row], text, edit);
    }
    keys(text, cut, edit);
}

/// Hides keys by how they look.
pub(super) fn keys(text: &[u8], cut: bool, edit: &mut Edit) {
    let mut at = 0;
    while let Some(found) = table::KEYS.find_at(text, at) {
        let begin = found.start();
        at = begin + 1;
        // In the middle of a word it is none: `task-…`.
        if begin > 0 && text[begin - 1].is_ascii_alphanumeric() {
            continue;
        }
        let key = table::BEGINS
            .iter()
            .find(|(begins, _)| *begins == found.as_bytes());
        let key = key.and_then(|(_, key)| {
            let begin = found.end();
            let length = |text: &[u8]| text.iter().take_while(|byte| key.has(**byte)).count();
            let near = &text[begin..text.len().min(begin + NEAR)];
            let first = &near[..length(near)];
            let short = cut && begin + first.len() == text.len() && !first.is_empty();
            // Words with dashes between them have no digit; keys have.
            let telling = first.len() >= key.least && first.iter().any(u8::is_ascii_digit);
            (telling || short).then(|| (begin, begin + length(&text[begin..])))
        });
        if let Some((begin, end)) = key {
            edit.hide(begin, end);
            at = end;
        }
    }
}

/// Hides the values of parameters in a path. Hardly any path has one.
pub(super) fn queries(path: &[u8], edit: &mut Edit) {
    for query in table::QUERIES.iter().filter(|_| path.contains(&b'=')) {
        for found in query.captures_iter(path) {
            let name = found.name("name").map_or(&b""[..], |name| name.as_bytes());
            if secret(name) || name.eq_ignore_ascii_case(b"key") {
                let (begin, end) = span(&found, "secret");
                edit.hide(begin, end);
            }
        }
    }
}

/// The words of a script, without the quotes around them. A quoted word with blanks can be a script itself: its words are
/// given, too.
pub(super) fn words(text: &[u8], from: usize, to: usize) -> Vec<(usize, usize)> {
    let mut words = Vec::new();
    words_in(&text[..to], from, DEPTH, &mut words);
    words
}

fn words_in(text: &[u8], from: usize, depth: u8, words: &mut Vec<(usize, usize)>) {
    let mut at = from;
    while at < text.len() {
        let end = end(&table::WORD, text, at);
        if end == at {
            at += 1;
            continue;
        }
        let quoted = b"'\"`".contains(&text[at]) && end - at > 1 && text[end - 1] == text[at];
        let inner = usize::from(quoted);
        words.push((at + inner, end - inner));
        if quoted && depth > 0 && text[at..end].iter().any(u8::is_ascii_whitespace) {
            words_in(&text[..end - 1], at + 1, depth - 1, words);
        }
        at = end;
    }
}

/// Where a group stands; at the text's begin and empty, if it does not.
fn span(found: &Captures<'_>, group: &str) -> (usize, usize) {
    found
        .name(group)
        .map_or((0, 0), |group| (group.start(), group.end()))
}

/// The end of what an expression finds at that place; the place itself if that is nothing.
fn end(expression: &Regex, text: &[u8], from: usize) -> usize {
    from + expression
        .find(&text[from..])
        .map_or(0, |found| found.end())
}

/// The end of what goes on up to a byte.
fn until(text: &[u8], from: usize, ends: impl Fn(u8) -> bool) -> usize {
    let length = text[from..].iter().position(|byte| ends(*byte));
    length.map_or(text.len(), |length| from + length)
}

/// The argument's end.
fn argument(text: &[u8], from: usize) -> usize {
    memchr(0, &text[from..]).map_or(text.len(), |length| from + length)
}

/// The end of the value behind what stands at `begin` up to `from`: a word's, or the argument's if another one was begun.
fn value(text: &[u8], begin: usize, from: usize) -> usize {
    if text[begin..from].contains(&0) {
        argument(text, from)
    } else {
        end(&table::WORD, text, from)
    }
}

/// Whether the end of the name is that of a secret's.
fn secret(name: &[u8]) -> bool {
    names::secret(&name[name.len().saturating_sub(NEAR)..])
}

/// Whether the value is a secret of a name that does not say so: a key of `--key`, no path of `--pwd`.
fn perhaps(name: &[u8], value: &[u8]) -> bool {
    let dashes = name.iter().take_while(|byte| **byte == b'-').count();
    let near = &value[..value.len().min(NEAR)];
    match name[dashes..].to_ascii_lowercase().as_slice() {
        // Whether it matches is known sooner than where.
        b"key" if table::LIKE_KEY.is_match(near) => {
            let found = table::LIKE_KEY.captures(near);
            let key = found.map_or(&b""[..], |found| found.extract::<1>().1[0]);
            key.starts_with(b"[")
                || key.iter().any(u8::is_ascii_digit) && key.iter().any(u8::is_ascii_alphabetic)
        }
        b"pwd" if dashes > 0 => {
            let first = near.iter().find(|byte| !b"'\"".contains(byte));
            first.is_some_and(|byte| !b"\0/.~$-".contains(byte))
        }
        _ => false,
    }
}

/// `NAME=VALUE`, headers, JSON, YAML, elements.
fn assignments(text: &[u8], edit: &mut Edit) {
    let mut at = 0;
    while let Some(found) = table::ASSIGNED.captures_at(text, at) {
        let ((begin, name_end), (sign, mut from)) = (span(&found, "name"), span(&found, "sign"));
        at = from;
        let name = &text[begin..name_end];
        let around = begin.checked_sub(1).map_or(0, |at| text[at]);
        let colon = text[sign] == b':';
        if colon && (text[sign..from].starts_with(b"::") || text[from..].starts_with(b"//")) {
            continue;
        }
        // A parameter of a URL.
        let parameter = b"?&".contains(&around) && name.eq_ignore_ascii_case(b"key");
        let known = secret(name) || parameter;
        if !known && !perhaps(name, &text[from..]) {
            continue;
        }
        let element = found.name("element").is_some();
        let quoted = element || found.name("quote").is_some();
        let loose = colon || quoted || !found["space"].is_empty();
        if around == 0 && known && !quoted && found["space"].is_empty() {
            // All of the argument is a name and its value, with spaces or without.
            at = argument(text, from);
            edit.hide(from, at);
            continue;
        }
        if loose {
            from = until(text, from, |byte| !b" \t".contains(&byte));
        }
        // Letters before a quote are a header's own.
        let header = colon && !quoted && text.get(from).is_some_and(u8::is_ascii_alphabetic);
        let string = end(&table::QUOTED, text, from);
        at = if loose && !header && string > from {
            string
        } else if quoted {
            until(text, from, |byte| {
                b",}]\0".contains(&byte) || byte.is_ascii_whitespace()
            })
        } else if colon && b"'\"`".contains(&around) {
            until(text, from, |byte| byte == around || byte == 0)
        } else if colon {
            end(&table::BLOCK, text, from)
        } else {
            end(&table::WORD, text, from)
        };
        if element {
            at = at.max(end(&table::WORD, text, from));
        }
        edit.hide(from, at);
    }
}

/// `--token VALUE`, `-u user:VALUE`.
fn options(text: &[u8], edit: &mut Edit) {
    let mut at = 0;
    while let Some(found) = table::OPTION.captures_at(text, at) {
        let (begin, name_end) = span(&found, "name");
        let from = begin + found[0].len();
        at = name_end;
        let name = &text[begin..name_end];
        let before = begin.checked_sub(1).map_or(0, |at| text[at]);
        let takes = if USER_AND_PASSWORD.contains(&name) {
            Takes::User
        } else {
            Takes::Word
        };
        let apart = before.is_ascii_whitespace() || b"\0'\"`".contains(&before);
        if apart && (takes == Takes::User || secret(name) || perhaps(name, &text[from..])) {
            let end = take(text, (begin, from), takes, edit);
            let letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
            // Whether that was its value or another option, nobody knows.
            let option = text[from..].starts_with(b"-") && text[from..end].iter().all(letter);
            at = if option { from } else { end };
        }
    }
}

/// What a row of the table introduces.
fn shape(row: &table::Shape, text: &[u8], edit: &mut Edit) {
    let mut at = 0;
    while let Some(found) = row.introduces.captures_at(text, at) {
        let whole = found
            .get(0)
            .map_or(text.len()..text.len(), |whole| whole.range());
        at = whole.end;
        let (name, name_end) = span(&found, "name");
        if name < name_end && !secret(&text[name..name_end]) {
            at = name_end;
            continue;
        }
        match row.takes {
            Takes::Group => {
                let (begin, end) = span(&found, "secret");
                edit.hide(begin, end);
                continue;
            }
            Takes::Document => {
                let last = [b"\n", &found["end"]].concat();
                let last = memmem::find(&text[at..], &last);
                let end = last.map_or_else(|| argument(text, at), |length| at + length);
                edit.hide((at + 1).min(end), end);
                at = end;
                continue;
            }
            _ => {}
        }
        // What stands before its first word says nothing.
        at = take(text, ((whole.start + 1).min(at), at), row.takes, edit);
        while let Some(more) = row.again.as_ref().and_then(|again| again.find(&text[at..])) {
            at = take(text, (at, at + more.end()), row.takes, edit);
        }
    }
}

/// Hides what an introduction takes, which stands between two places. Says where that ends.
fn take(text: &[u8], (start, begin): (usize, usize), takes: Takes, edit: &mut Edit) -> usize {
    let end = match takes {
        Takes::Quoted => end(&table::QUOTED, text, begin),
        _ => value(text, start, begin),
    };
    let word = &text[begin..end];
    let place = |sign: u8| word.iter().position(|byte| *byte == sign);
    let number = |byte: &u8| byte.is_ascii_digit() || *byte == b':';
    let (from, to) = match takes {
        Takes::Bare if place(b'=').is_some() || memmem::find(word, b"://").is_some() => (end, end),
        Takes::Cookie if place(b'=').is_none() => (end, end),
        Takes::User if word.iter().all(number) => (end, end),
        Takes::User => {
            let sign = place(b':').or_else(|| place(b'%'));
            (sign.map_or(end, |at| begin + at + 1), end)
        }
        Takes::Comma => (place(b',').map_or(end, |at| begin + at + 1), end),
        Takes::Slashed => {
            let last = word.iter().rposition(|byte| *byte == b'@');
            (begin, last.map_or(end, |at| begin + at))
        }
        _ => (begin, end),
    };
    edit.hide(from, to);
    end
}
