//! Secrets in the middle of a text: `NAME=VALUE`, headers, JSON, options of a script, URLs.

use agent_sandbox_events::record::REDACTED;

use super::names::{self, LONGEST, letter, secret};
use super::{Edit, find};

/// Options whose value is a user and, behind a colon, a password (`curl(1)`, `wget(1)`).
pub(super) const USER_AND_PASSWORD: [&[u8]; 4] = [b"-u", b"--user", b"--proxy-user", b"-U"];

/// The user part of a URL without a password is a token from this length on, in bytes.
const TOKEN_AS_USER: usize = 20;

/// Hides what follows names of secrets.
pub(super) fn names(text: &[u8], edit: &mut Edit) {
    let mut at = 0;
    while at < text.len() {
        let value = match text[at] {
            b'=' | b':' => assigned(text, at, 1),
            b'\\' | b'%' => coded(text, at).and_then(|length| assigned(text, at, length)),
            _ => None,
        };
        let next = match value {
            Some((begin, end)) => {
                edit.hide(begin, end);
                Some(end)
            }
            None if text[at] == b'-' => option(text, at, edit),
            None => None,
        };
        at = next.unwrap_or(0).max(at + 1);
    }
}

/// The length of a sign of equality that stands there as JSON or a URL writes it.
fn coded(text: &[u8], at: usize) -> Option<usize> {
    let is = |sign: &[u8]| {
        let there = text.get(at..at + sign.len());
        there.is_some_and(|there| there.eq_ignore_ascii_case(sign))
    };
    [&b"\\u003d"[..], b"%3d"]
        .into_iter()
        .find(|sign| is(sign))
        .map(<[u8]>::len)
}

/// The value of a name that stands before the sign at that place, which is so long.
fn assigned(text: &[u8], at: usize, length: usize) -> Option<(usize, usize)> {
    let sign = if length > 1 { b'=' } else { text[at] };
    let behind = &text[at + length..];
    if sign == b':' && (behind.starts_with(b"//") || behind.starts_with(b":")) {
        return None;
    }
    // `NAME+=VALUE`.
    let signs = text[..at].strip_suffix(b"+").unwrap_or(&text[..at]);
    let before = signs.trim_ascii_end();
    let spaced = before.len() < signs.len();
    // The element of an array or a map: `ENV["NAME"] =`, `$ENV{NAME} =`.
    let element = before.strip_suffix(b"]").or(before.strip_suffix(b"}"));
    let element = element.filter(|_| sign == b'=').map(<[u8]>::trim_ascii_end);
    let before = element.unwrap_or(before);
    let ends_quoted = before.last().is_some_and(|byte| quote(*byte));
    let quoted = ends_quoted || element.is_some();
    let name = if ends_quoted {
        let inner = &before[..before.len() - 1];
        let slashes = inner.iter().rev().take_while(|byte| **byte == b'\\');
        &inner[..inner.len() - slashes.count()]
    } else {
        before
    };
    let letters = name.iter().rev().take(LONGEST + 1);
    let letters = letters.take_while(|byte| letter(**byte)).count();
    let begin = name.len() - letters;
    let name = &name[begin..];
    let around = begin.checked_sub(1).map(|place| text[place]);
    let known = secret(name)
        // A parameter of a URL.
        || name.eq_ignore_ascii_case(b"key") && matches!(around, Some(b'?' | b'&'));
    if !known && !names::perhaps(name) {
        return None;
    }
    // Whether a word is a key its letters say: what stands behind it is another word.
    let whole = begin == 0 && known && !quoted && !spaced;
    let value = |text: &[u8]| {
        let (from, end) = assigned_value(text, (at, length), sign, around, (whole, spaced, quoted));
        match element {
            Some(_) => (from, end.max(word(text, from))),
            None => (from, end),
        }
    };
    // The beginning says it: many names in one text, each before all the rest, would take long.
    let near = &text[..text.len().min(at + length + LONGEST)];
    let secret = || {
        let (from, end) = value(near);
        names::secret_with(name, literal(&near[from..end]))
    };
    (known || secret()).then(|| value(text))
}

/// Where the value begins and ends of the name before that place. It may be the `whole` rest.
fn assigned_value(
    text: &[u8],
    (at, length): (usize, usize),
    sign: u8,
    around: Option<u8>,
    (whole, spaced, quoted): (bool, bool, bool),
) -> (usize, usize) {
    let behind = &text[at + length..];
    if whole {
        // All of the argument is a name and its value, with spaces or without.
        return (at + length, text.len());
    }
    let more = behind.iter().take_while(|byte| b"=:>".contains(byte));
    let mut from = at + length + more.count();
    if sign == b':' || spaced || quoted {
        let spaces = text[from..].iter().take_while(|byte| b" \t".contains(byte));
        from += spaces.count();
    }
    let loose = sign == b':' || spaced || quoted;
    // A header's value is no string of a program.
    let prefix = if quoted || spaced && sign == b'=' {
        prefix(&text[from..])
    } else {
        0
    };
    let end = match quotation(text, from + prefix) {
        Some(end) if loose => end,
        _ if quoted => until(text, from, |byte| {
            b",}]".contains(&byte) || byte.is_ascii_whitespace()
        }),
        _ if sign == b':' => match around {
            Some(around) if quote(around) => until(text, from, |byte| byte == around),
            _ => block(text, from, until(text, from, |byte| byte == b'\n')),
        },
        _ => word(text, from),
    };
    (from, end)
}

/// The end of a value in YAML that stands on the lines behind its name: all that are indented behind `|` or `>`, or one
/// that is no name itself.
fn block(text: &[u8], from: usize, end: usize) -> usize {
    let scalar = match &text[from..end] {
        [] => false,
        [b'|' | b'>', ..] if end - from <= 3 => true,
        _ => return end,
    };
    let mut last = end;
    while last < text.len() {
        let line = &text[last + 1..];
        let length = find(line, b"\n").unwrap_or(line.len());
        let line = &line[..length];
        let named = line.ends_with(b":") || find(line, b": ").is_some();
        if !line.starts_with(b" ") || !scalar && named {
            break;
        }
        last += 1 + length;
        if !scalar {
            break;
        }
    }
    last
}

/// The option that begins there, in a script, and its value, which is the next word. Says where to go on.
fn option(text: &[u8], at: usize, edit: &mut Edit) -> Option<usize> {
    let apart = at == 0 || text[at - 1].is_ascii_whitespace() || quote(text[at - 1]);
    if !apart {
        return None;
    }
    let mut end = at + name_length(&text[at..]);
    let name = &text[at..end];
    let mut hides = secret(name);
    let perhaps = !hides && names::perhaps(name);
    let user = USER_AND_PASSWORD.contains(&name);
    if !(hides || perhaps || user) {
        return None;
    }
    loop {
        let spaces = text[end..]
            .iter()
            .take_while(|byte| byte.is_ascii_whitespace());
        let from = end + spaces.count();
        let to = word(text, from);
        if from == end || from == to {
            return None;
        }
        if user {
            user_and_password(text, from, to, edit);
            return Some(to);
        }
        if perhaps && !names::secret_with(name, unquoted(&text[from..to])) {
            return None;
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

/// The text without quotes around it.
fn unquoted(text: &[u8]) -> &[u8] {
    match text {
        [first, inner @ .., last] if quote(*first) && first == last => inner,
        _ => text,
    }
}

/// The length of what stands before the quote of a string: `f"…"`, `rb'…'`.
pub(super) fn prefix(text: &[u8]) -> usize {
    let letters = text.iter().take_while(|byte| b"fFbBrRuU".contains(byte));
    let letters = letters.take(2).count();
    let slashes = text[letters..].iter().take_while(|byte| **byte == b'\\');
    match text.get(letters + slashes.count()) {
        Some(byte) if quote(*byte) => letters,
        _ => 0,
    }
}

/// What stands in the string that begins there, up to its end or to the first sign that is escaped; the text, if it is none.
fn literal(text: &[u8]) -> &[u8] {
    let inner = &text[prefix(text)..];
    let slashes = inner.iter().take_while(|byte| **byte == b'\\').count();
    match inner.get(slashes) {
        Some(byte) if quote(*byte) => {
            let inner = &inner[slashes + 1..];
            let end = inner.iter().position(|byte| quote(*byte) || *byte == b'\\');
            &inner[..end.unwrap_or(inner.len())]
        }
        _ => text,
    }
}

/// Hides a password, unless it is the number of a user and that of a group.
pub(super) fn user_and_password(text: &[u8], from: usize, to: usize, edit: &mut Edit) {
    let number = |byte: &u8| byte.is_ascii_digit() || *byte == b':';
    if !text[from..to].iter().all(number) {
        password(text, from, to, edit);
    }
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
    // One in another ends where that does: looked for once, with the last `@` in it.
    let (mut end, mut sign) = (0, None);
    while let Some(found) = find(&text[at..], b"://") {
        let begin = at + found + 3;
        if begin > end || end == 0 {
            end = until(text, begin, |byte| {
                byte.is_ascii_whitespace() || quote(byte) || b"<>|".contains(&byte)
            });
            let last = text[begin..end].iter().rposition(|byte| *byte == b'@');
            sign = last.map(|at| begin + at);
        }
        let whole = &text[begin..end];
        let authority = until(whole, 0, |byte| b"/?#".contains(&byte));
        let colon = whole[..authority].iter().position(|byte| *byte == b':');
        let last_at = |part: &[u8]| part.iter().rposition(|byte| *byte == b'@');
        let user = last_at(&whole[..authority]).or_else(|| {
            // A password may hold a slash that nobody escaped; a port is a number.
            let port = &whole[colon? + 1..authority];
            let number = port.iter().all(u8::is_ascii_digit);
            let sign = sign.filter(|sign| *sign >= begin);
            if number {
                None
            } else {
                sign.map(|sign| sign - begin)
            }
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

/// Hides values of secrets in the queries of URLs that are names of files: what `curl -O` and `wget` make of signed ones.
/// Some write another sign for the question mark.
pub(super) fn queries(path: &[u8], edit: &mut Edit) {
    // Hardly any path has one.
    if !path.contains(&b'=') {
        return;
    }
    let mut begin = 0;
    for name in path.split(|byte| *byte == b'/') {
        let query = name.iter().position(|byte| *byte == b'?' || *byte == b'@');
        let query = query.map(|at| at + 1);
        if let Some(from) = query.or_else(|| name.contains(&b'&').then_some(0)) {
            let mut at = begin + from;
            for parameter in name[from..].split(|byte| *byte == b'&') {
                if let Some(sign) = parameter.iter().position(|byte| *byte == b'=')
                    && (secret(&parameter[..sign])
                        || parameter[..sign].eq_ignore_ascii_case(b"key"))
                {
                    edit.hide(at + sign + 1, at + parameter.len());
                }
                at += parameter.len() + 1;
            }
        }
        begin += name.len() + 1;
    }
}

pub(super) fn quote(byte: u8) -> bool {
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
pub(super) fn quotation(text: &[u8], from: usize) -> Option<usize> {
    quoted(text, from).map(|(end, _)| end)
}

/// The same, and whether it is closed there.
fn quoted(text: &[u8], from: usize) -> Option<(usize, bool)> {
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
            byte if *byte == sign && seen == slashes => return Some((at + 1, true)),
            _ => seen = 0,
        }
    }
    Some((text.len(), false))
}

/// The end of the quotation or the substitution (`$(…)`, `${…}`, `<(…)`) that begins there as a shell reads it, with all
/// that is nested in it; the text's, if it is not closed.
pub(super) fn closed(text: &[u8], from: usize) -> usize {
    if text[from] == b'\\' {
        return match quoted(text, from) {
            Some((end, true)) => end,
            _ => (from + 2).min(text.len()),
        };
    }
    let mut open: Vec<u8> = Vec::new();
    let mut at = from;
    while at < text.len() {
        let next = text.get(at + 1).copied();
        let within = open.last().copied();
        match (within, text[at]) {
            (Some(b'\''), byte) if byte != b'\'' => {}
            (Some(sign), byte) if byte == sign => drop(open.pop()),
            (_, b'\\') => at += 1,
            (_, b'$') if next == Some(b'(') => {
                open.push(b')');
                at += 1;
            }
            (_, b'$') if next == Some(b'{') => {
                open.push(b'}');
                at += 1;
            }
            (_, b'`') => open.push(b'`'),
            (Some(b'"'), _) => {}
            (_, byte) if quote(byte) => open.push(byte),
            (_, b'<' | b'>') if next == Some(b'(') => {
                open.push(b')');
                at += 1;
            }
            (Some(b')'), b'(') => open.push(b')'),
            _ => {}
        }
        at += 1;
        if open.is_empty() {
            break;
        }
    }
    at.min(text.len())
}

/// The words of a script, without the quotes around them: where each begins and ends. A quoted word with
/// blanks can be a script itself: its words are given, too.
pub(super) fn words(text: &[u8]) -> Vec<(usize, usize)> {
    let mut words = Vec::new();
    words_in(text, 0, text.len(), super::shell::DEPTH, &mut words);
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
pub(super) fn word(text: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < text.len() {
        at = match text[at] {
            b'[' if after_hidden(text, at) > at => after_hidden(text, at),
            b'$' if matches!(text.get(at + 1), Some(b'(' | b'{')) => closed(text, at),
            b'<' | b'>' if text.get(at + 1) == Some(&b'(') => closed(text, at),
            byte if byte == b'\\' || quote(byte) => closed(text, at),
            byte if byte.is_ascii_whitespace() || b";&|<>()".contains(&byte) => return at,
            _ => at + 1,
        };
    }
    at
}
