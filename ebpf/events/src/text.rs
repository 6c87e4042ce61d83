//! Bytes that processes chose, as text: without loss, and safe to be shown on a terminal.
//!
//! A name in Linux is any bytes but `/` and zero, a record is JSON, and JSON is Unicode. So a backslash is
//! written twice, and what is not UTF-8, moves a terminal's cursor or cannot be seen is written as `\xHH`,
//! a byte each, with two small hexadecimal digits.

use std::fmt::Write as _;

/// The bytes as text.
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let mut plain = 0;
        for (at, character) in chunk.valid().char_indices() {
            if character != '\\' && !unseen(character) {
                continue;
            }
            text.push_str(&chunk.valid()[plain..at]);
            plain = at + character.len_utf8();
            if character == '\\' {
                text.push_str("\\\\");
            } else {
                hexadecimal(&mut text, &chunk.valid().as_bytes()[at..plain]);
            }
        }
        text.push_str(&chunk.valid()[plain..]);
        hexadecimal(&mut text, chunk.invalid());
    }
    text
}

/// The bytes that [`escape`] made such text of; none if it made no such text.
#[must_use]
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let escaped = &rest[at + 1..];
        if let Some(behind) = escaped.strip_prefix('\\') {
            bytes.push(b'\\');
            rest = behind;
        } else {
            let digits = escaped.strip_prefix('x')?.get(..2)?;
            if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return None;
            }
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &escaped[3..];
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    Some(bytes)
}

fn hexadecimal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

/// What moves the cursor, turns the direction of writing, or is not seen: controls, and of Unicode's
/// format characters those that a terminal acts on or swallows.
fn unseen(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_text_stays_as_it_is() {
        for text in ["/home/a/b c.txt", "/données/日本", "", "[::1]:80"] {
            assert_eq!(escape(text.as_bytes()), text);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_written_in_digits() {
        assert_eq!(escape(b"/a\xff\xc3"), "/a\\xff\\xc3");
        assert_eq!(escape(b"a\\xff"), "a\\\\xff");
        assert_eq!(escape(b"\x1b[2J\n\x7f"), "\\x1b[2J\\x0a\\x7f");
        assert_eq!(escape("\u{202e}gpj".as_bytes()), "\\xe2\\x80\\xaegpj");
        assert_eq!(escape("\u{9b}".as_bytes()), "\\xc2\\x9b");
    }

    #[test]
    fn what_was_not_escaped_is_not_read() {
        for text in ["\\", "\\x", "\\x1", "\\xg0", "\\n", "\\x+1", "\\xé"] {
            assert_eq!(unescape(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let text = escape(&bytes);
            prop_assert!(!text.chars().any(unseen));
            prop_assert_eq!(unescape(&text), Some(bytes));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}", more in "[\\\\x0-9a-f]{0,20}") {
            let _ = unescape(&text);
            let _ = unescape(&more);
        }
    }
}
