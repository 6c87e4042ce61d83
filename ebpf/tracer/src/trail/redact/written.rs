//! Secrets in what is written for programs to read: `.netrc`, elements of XML, and calls that set a variable.

use super::names::{LONGEST, letter, secret};
use super::scan::{prefix, quotation, quote};
use super::{Edit, find};

/// Words of `.netrc` that stand before another one.
const PAIRS: [&[u8]; 3] = [b"login", b"account", b"password"];

/// Functions that are told a variable's name and its value.
const SETTERS: [&str; 5] = ["putenv", "setdefault", "setenv", "set_var", "setItem"];

/// Hides all of them.
pub(super) fn hide(text: &[u8], edit: &mut Edit) {
    netrc(text, edit);
    elements(text, edit);
    calls(text, edit);
}

/// What stands behind `password`, where a machine was named and nothing but other pairs of words since.
fn netrc(text: &[u8], edit: &mut Edit) {
    if find(text, b"password").is_none() {
        return;
    }
    // After `default` a password is one behind a login only: `the default password is …`.
    let (mut within, mut named) = (false, false);
    let mut words = Words { text, at: 0 };
    while let Some((begin, end)) = words.next() {
        let word = &text[begin..end];
        if word == b"machine" || word == b"default" {
            within = true;
            named = word == b"machine" && words.next().is_some();
        } else if within && PAIRS.contains(&word) && (named || word != b"password") {
            named = true;
            if let Some((begin, end)) = words.next().filter(|_| word == b"password") {
                edit.hide(begin, end);
            }
        } else {
            within = false;
        }
    }
}

/// The words of a text: blanks, quotes and what stands for a line's end part them.
struct Words<'a> {
    text: &'a [u8],
    at: usize,
}

impl Words<'_> {
    /// How many bytes at that place are in no word.
    fn between(&self, at: usize) -> usize {
        match &self.text[at..] {
            [b'\\', b'n' | b't' | b'"' | b'\'', ..] => 2,
            [byte, ..] if byte.is_ascii_whitespace() || quote(*byte) => 1,
            _ => 0,
        }
    }
}

impl Iterator for Words<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        let mut begin = self.at;
        while begin < self.text.len() && self.between(begin) > 0 {
            begin += self.between(begin);
        }
        self.at = begin;
        while self.at < self.text.len() && self.between(self.at) == 0 {
            self.at += 1;
        }
        (begin < self.at).then_some((begin, self.at))
    }
}

/// `<password>VALUE</password>`.
fn elements(text: &[u8], edit: &mut Edit) {
    let mut at = 0;
    while let Some(found) = find(&text[at..], b">") {
        at += found + 1;
        let before = &text[..at - 1];
        let name = before.len() - name_before(before);
        let opened = name > 0 && text[name - 1] == b'<';
        if opened
            && secret(&before[name..])
            && let Some(length) = find(&text[at..], b"<")
        {
            if text[at + length..].starts_with(b"</") {
                edit.hide(at, at + length);
            }
            at += length;
        }
    }
}

/// `putenv('NAME', 'VALUE')`.
fn calls(text: &[u8], edit: &mut Edit) {
    let mut at = 0;
    while let Some(found) = find(&text[at..], b"(") {
        at += found + 1;
        let before = &text[..at - 1];
        let function = &before[before.len() - name_before(before)..];
        if SETTERS
            .iter()
            .any(|setter| function.ends_with(setter.as_bytes()))
            && let Some((begin, end)) = argument(text, at)
        {
            edit.hide(begin, end);
            at = end;
        }
    }
}

/// The second argument of a call, if it is a string and the first one is a secret's name.
fn argument(text: &[u8], from: usize) -> Option<(usize, usize)> {
    let skip = |at: usize, signs: &[u8]| {
        let length = text[at..].iter().take_while(|byte| signs.contains(byte));
        at + length.count()
    };
    let opens = skip(from, b" \t\n");
    let name = skip(opens, b"\\\"'");
    let letters = text[name..].iter().take(LONGEST + 1);
    let ends = name + letters.take_while(|byte| letter(**byte)).count();
    if name == opens || !secret(&text[name..ends]) {
        return None;
    }
    let comma = skip(ends, b"\\\"' \t\n");
    if text.get(comma) != Some(&b',') {
        return None;
    }
    let value = skip(comma + 1, b" \t\n");
    let end = quotation(text, value + prefix(&text[value..]))?;
    Some((value, end))
}

/// The length of the name at the end.
fn name_before(text: &[u8]) -> usize {
    let letters = text.iter().rev().take(LONGEST + 1);
    letters.take_while(|byte| letter(**byte)).count()
}
