//! Secrets in the middle of a text: `NAME=VALUE`, headers, JSON, options of a script, URLs.

use agent_sandbox_events::record::REDACTED;

use super::names::{LONGEST, letter, secret};
use super::{Edit, find};

/// Options whose value is a user and, behind a colon, a password (`curl(1)`, `wget(1)`).
pub(super) const USER_AND_PASSWORD: [&[u8]; 4] = [b"-u", b"--user", b"--proxy-user", b"-U"];

/// The user part of a URL without a password is a token from this length on, in bytes.
const TOKEN_AS_USER: usize = 20;

/// Hides what follows names of secrets.
pub(super) fn names(text: &[u8], edit: &mut Edit) {
    let mut at = 0;
    while at < text.len() {
        let next = match text[at] {
            b'=' | b':' => assigned(text, at).map(|(begin, end)| {
                edit.hide(begin, end);
                end
            }),
            b'-' => option(text, at, edit),
            _ => None,
        };
        at = next.unwrap_or(0).max(at + 1);
    }
}

/// The value of a name that stands before the sign at that place.
fn assigned(text: &[u8], at: usize) -> Option<(usize, usize)> {
    let sign = text[at];
    let behind = &text[at + 1..];
    if sign == b':' && (behind.starts_with(b"//") || behind.starts_with(b":")) {
        return None;
    }
    let before = text[..at].trim_ascii_end();
    let spaced = before.len() < at;
    let quoted = before.last().is_some_and(|byte| quote(*byte));
    let name = if quoted {
        let inner = &before[..before.len() - 1];
        let slashes = inner.iter().rev().take_while(|byte| **byte == b'\\');
        &inner[..inner.len() - slashes.count()]
    } else {
        before
    };
    let letters = name.iter().rev().take(LONGEST + 1);
    let length = letters.take_while(|byte| letter(**byte)).count();
    let begin = name.len() - length;
    if !secret(&name[begin..]) {
        return None;
    }
    if begin == 0 && !quoted && !spaced {
        // All of the argument is a name and its value, with spaces or without.
        return Some((at + 1, text.len()));
    }
    let more = behind.iter().take_while(|byte| b"=:>".contains(byte));
    let mut from = at + 1 + more.count();
    if sign == b':' || spaced || quoted {
        let spaces = text[from..].iter().take_while(|byte| b" \t".contains(byte));
        from += spaces.count();
    }
    let loose = sign == b':' || spaced || quoted;
    let end = match quotation(text, from) {
        Some(end) if loose => end,
        _ if quoted => until(text, from, |byte| {
            b",}]".contains(&byte) || byte.is_ascii_whitespace()
        }),
        _ if sign == b':' => match begin.checked_sub(1).map(|place| text[place]) {
            Some(around) if quote(around) => until(text, from, |byte| byte == around),
            _ => until(text, from, |byte| byte == b'\n'),
        },
        _ => word(text, from),
    };
    Some((from, end))
}

/// The option that begins there, in a script, and its value, which is the next word. Says where to go on.
fn option(text: &[u8], at: usize, edit: &mut Edit) -> Option<usize> {
    let apart = at == 0 || text[at - 1].is_ascii_whitespace() || quote(text[at - 1]);
    if !apart {
        return None;
    }
    let mut end = at + name_length(&text[at..]);
    let mut hides = secret(&text[at..end]);
    let user = USER_AND_PASSWORD.contains(&&text[at..end]);
    loop {
        let spaces = text[end..]
            .iter()
            .take_while(|byte| byte.is_ascii_whitespace());
        let from = end + spaces.count();
        let to = word(text, from);
        if from == end || from == to || !(hides || user) {
            return None;
        }
        if user {
            password(text, from, to, edit);
            return Some(to);
        }
        edit.hide(from, to);
        // Whether that was its value or another option, nobody knows.
        hides = text[from] == b'-'
            && name_length(&text[from..to]) == to - from
            && secret(&text[from..to]);
        end = to;
        if !hides {
            return Some(to);
        }
    }
}

fn name_length(text: &[u8]) -> usize {
    let letters = text.iter().take(LONGEST + 1);
    letters.take_while(|byte| letter(**byte)).count()
}

/// Hides what stands behind the first colon, or behind the first per cent sign if there is none.
pub(super) fn password(text: &[u8], from: usize, to: usize, edit: &mut Edit) {
    let part = &text[from..to];
    let sign = |sign: u8| part.iter().position(|byte| *byte == sign);
    if let Some(at) = sign(b':').or_else(|| sign(b'%')) {
        edit.hide(from + at + 1, to);
    }
}

/// Hides passwords and tokens before the host of URLs (RFC 3986, section 3.2.1).
pub(super) fn urls(text: &[u8], edit: &mut Edit) {
    let mut at = 0;
    while let Some(found) = find(&text[at..], b"://") {
        let begin = at + found + 3;
        let end = until(text, begin, |byte| {
            byte.is_ascii_whitespace() || quote(byte) || b"<>|".contains(&byte)
        });
        let whole = &text[begin..end];
        let authority = until(whole, 0, |byte| b"/?#".contains(&byte));
        let colon = whole[..authority].iter().position(|byte| *byte == b':');
        let last_at = |part: &[u8]| part.iter().rposition(|byte| *byte == b'@');
        let user = last_at(&whole[..authority]).or_else(|| {
            // A password may hold a slash that nobody escaped; a port is a number.
            let port = &whole[colon? + 1..authority];
            let number = port.iter().all(u8::is_ascii_digit);
            if number { None } else { last_at(whole) }
        });
        if let Some(user) = user {
            match colon.filter(|colon| *colon < user) {
                Some(colon) => edit.hide(begin + colon + 1, begin + user),
                None if user >= TOKEN_AS_USER => edit.hide(begin, begin + user),
                None => {}
            }
        }
        at = begin;
    }
}

fn quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'`')
}

/// The end of what begins there: at a byte that ends it, or the text's. What was hidden already is one.
fn until(text: &[u8], from: usize, ends: impl Fn(u8) -> bool) -> usize {
    let mut at = after_hidden(text, from);
    while at < text.len() && !ends(text[at]) {
        at += 1;
    }
    at
}

fn after_hidden(text: &[u8], at: usize) -> usize {
    if text[at..].starts_with(REDACTED.as_bytes()) {
        at + REDACTED.len()
    } else {
        at
    }
}

/// The end of a quotation that begins there; with backslashes before its quote, as many end it.
fn quotation(text: &[u8], from: usize) -> Option<usize> {
    let slashes = text[from..]
        .iter()
        .take_while(|byte| **byte == b'\\')
        .count();
    let sign = *text.get(from + slashes)?;
    if !quote(sign) {
        return None;
    }
    let mut seen = 0;
    for (at, byte) in text.iter().enumerate().skip(from + slashes + 1) {
        match byte {
            b'\\' => seen += 1,
            byte if *byte == sign && seen == slashes => return Some(at + 1),
            _ => seen = 0,
        }
    }
    Some(text.len())
}

/// Scripts in scripts are looked into so deep: `sh -c "ssh host 'x --mine=y'"`.
const DEPTH: u8 = 4;

/// The words of a script, without the quotes around them: where each begins and ends. A quoted word with
/// blanks can be a script itself: its words are given, too.
pub(super) fn words(text: &[u8]) -> Vec<(usize, usize)> {
    let mut words = Vec::new();
    words_in(text, 0, text.len(), DEPTH, &mut words);
    words
}

fn words_in(text: &[u8], from: usize, to: usize, depth: u8, words: &mut Vec<(usize, usize)>) {
    let mut at = from;
    while at < to {
        let end = word(&text[..to], at);
        if end == at {
            at += 1;
            continue;
        }
        let quoted = quote(text[at]) && end - at > 1 && text[end - 1] == text[at];
        let (begin, until) = if quoted { (at + 1, end - 1) } else { (at, end) };
        let blank = text[begin..until].iter().any(u8::is_ascii_whitespace);
        words.push((begin, until));
        if quoted && blank && depth > 0 {
            words_in(text, begin, until, depth - 1, words);
        }
        at = end;
    }
}

/// The end of a word as a shell reads it.
fn word(text: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < text.len() {
        at = match text[at] {
            b'[' if after_hidden(text, at) > at => after_hidden(text, at),
            b'\\' => (at + 2).min(text.len()),
            byte if quote(byte) => quotation(text, at).unwrap_or(text.len()),
            byte if byte.is_ascii_whitespace() || b";&|<>()".contains(&byte) => return at,
            _ => at + 1,
        };
    }
    at
}
