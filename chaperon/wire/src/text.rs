//! Text of others on the user's terminal and in answers for programs. Names of files, the contents of a
//! project's files and what programs say come from inside the jail: they must not speak to the terminal,
//! begin a line of ours, or make an answer for programs unreadable.

use std::borrow::Cow;

/// Whether a character may stand in a text as it is: no control character but newline and tab, and none
/// that turns the direction of text, takes no room, is empty, or ends a line (of the Unicode categories Cf, Zl and
/// Zp; the signs of Cf that have a shape of their own stay; fillers, and Braille without a dot).
fn harmless(c: char) -> bool {
    let unseen = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}'
        // Tags and variants, of which a whole text can be made that nobody sees.
        | '\u{e0000}'..='\u{e0fff}');
    (!c.is_control() || matches!(c, '\n' | '\t')) && !unseen
}

/// The text with an escape in the place of each character that is not harmless.
fn escaped(text: &str, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if text.chars().all(harmless) {
        return Cow::Borrowed(text);
    }
    let mut all = String::with_capacity(text.len());
    for c in text.chars() {
        match harmless(c) {
            true => all.push(c),
            false => escape(c, &mut all),
        }
    }
    Cow::Owned(all)
}

/// Text for people in which control characters, and those that are not seen, stand as escapes.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |c, all| all.extend(c.escape_default()))
}

/// A name or a reason that goes into a line of its own: a newline in it would begin another, which
/// could pretend to be ours.
pub fn one_line(text: &str) -> String {
    visible(text).replace('\n', "\\n")
}

/// JSON in which the same characters stand as JSON escapes them (RFC 8259, section 7: `\u` and four
/// digits, twice for a character beyond the first 65536). They stand in strings alone, so that it says
/// the same to whoever reads it.
pub fn json(text: &str) -> Cow<'_, str> {
    escaped(text, |c, all| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            all.push_str(&format!("\\u{unit:04x}"));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_shown_and_not_sent() {
        assert_eq!(
            visible("a\u{1b}]0;x\u{7}\u{9b}b\n"),
            "a\\u{1b}]0;x\\u{7}\\u{9b}b\n"
        );
        assert!(matches!(visible("plain\n"), Cow::Borrowed(_)));
        assert_eq!(
            visible("\u{202e}\u{2028}\u{ad}\u{e0001}"),
            "\\u{202e}\\u{2028}\\u{ad}\\u{e0001}"
        );
        assert_eq!(one_line("a\n\u{7f}"), "a\\n\\u{7f}");
    }

    #[test]
    fn json_stays_json() {
        assert!(matches!(json("{\n  \"a\": \"ä\"\n}\n"), Cow::Borrowed(_)));
        assert_eq!(
            json("[\"\u{202e}\u{9b}\u{7f}\u{e0001}\"]\n"),
            "[\"\\u202e\\u009b\\u007f\\udb40\\udc01\"]\n"
        );
    }
}
