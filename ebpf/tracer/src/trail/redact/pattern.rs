//! Patterns of one's own: text with `*` for any text. No other sign is special, and letters of any case
//! are alike, so that comparing takes time in proportion to the two lengths, whatever they hold.

use memchr::memmem::find;
use thiserror::Error;

/// As many patterns may be given. They are compared with each argument.
pub const PATTERNS: usize = 64;

/// A pattern is no longer, in bytes.
pub const PATTERN_BYTES: usize = 256;

/// A pattern has no more `*`: each is looked for by itself.
pub const PATTERN_STARS: usize = 8;

/// A pattern that is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadPattern {
    /// Too many.
    #[error("more than {PATTERNS} patterns of what is secret")]
    Many,
    /// Too long.
    #[error("a pattern of what is secret is longer than {PATTERN_BYTES} bytes")]
    Long,
    /// More `*` than anybody needs.
    #[error("a pattern of what is secret has more than {PATTERN_STARS} `*`")]
    Stars,
    /// Nothing is matched by it.
    #[error("a pattern of what is secret is empty")]
    Empty,
}

/// A pattern, in small letters, apart at each `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    parts: Vec<Vec<u8>>,
    /// A text that it matches is not shorter, in bytes.
    least: usize,
}

impl Pattern {
    /// Reads one.
    ///
    /// # Errors
    /// It is empty or too long.
    pub(super) fn new(text: &str) -> Result<Self, BadPattern> {
        if text.is_empty() {
            return Err(BadPattern::Empty);
        }
        if text.len() > PATTERN_BYTES {
            return Err(BadPattern::Long);
        }
        if text.bytes().filter(|byte| *byte == b'*').count() > PATTERN_STARS {
            return Err(BadPattern::Stars);
        }
        let parts = text.as_bytes().split(|byte| *byte == b'*');
        let parts: Vec<Vec<u8>> = parts.map(<[u8]>::to_ascii_lowercase).collect();
        let least = parts.iter().map(Vec::len).sum();
        Ok(Self { parts, least })
    }

    /// Whether it says something of an argument and the next one: what stands between them is in it.
    pub(super) fn joins(&self) -> bool {
        let sign = |byte: &u8| matches!(byte, b'=' | b' ');
        self.parts.iter().any(|part| part.iter().any(sign))
    }

    /// Whether all of the text, in small letters, is as the pattern says.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        if text.len() < self.least {
            return false;
        }
        let (first, others) = match self.parts.split_first() {
            Some((only, [])) => return only == text,
            Some(both) => both,
            None => return false,
        };
        let Some((last, between)) = others.split_last() else {
            return false;
        };
        let Some(mut rest) = text.strip_prefix(first.as_slice()) else {
            return false;
        };
        for part in between {
            match find(rest, part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }

    /// So many bytes of what it matches are the pattern's own, and stay.
    pub(super) fn kept(&self) -> usize {
        match self.parts.as_slice() {
            // Without any `*` the text itself is the secret.
            [] | [_] => 0,
            [first, ..] => first.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern)
            .unwrap()
            .matches(&text.as_bytes().to_ascii_lowercase())
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "x"),
            ("a", "A"),
            ("--Licence=*", "--licence=42"),
            ("*key*", "my-KEY-1"),
            ("a*b*c", "aXbYbZc"),
            ("a*a", "aa"),
            ("**", "x"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("a", "ab"),
            ("a*a", "a"),
            ("a*b*c", "acb"),
            ("?", "x"),
            ("[a]", "a"),
            ("*key", "key1"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_pattern_has_bounds() {
        assert_eq!(Pattern::new(""), Err(BadPattern::Empty));
        assert_eq!(Pattern::new(&"x".repeat(257)), Err(BadPattern::Long));
        assert!(Pattern::new(&"x".repeat(256)).is_ok());
        assert!(Pattern::new(&"a*".repeat(PATTERN_STARS)).is_ok());
        assert_eq!(
            Pattern::new(&"a*".repeat(PATTERN_STARS + 1)),
            Err(BadPattern::Stars)
        );
    }

    /// The plain, slow way to say what a pattern means.
    fn means(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|at| means(rest, &text[at..])),
            Some((byte, rest)) => text.first() == Some(byte) && means(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn it_means_what_it_says(pattern in "[ab*]{1,7}", text in "[ab]{0,9}") {
            prop_assert_eq!(matches(&pattern, &text), means(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
