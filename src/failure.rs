//! Errors of a launch with their hints, and the one way to standard error.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};

/// agent-sandbox itself failed; as `env(1)`, `timeout(1)` and `docker run` have it.
pub const FAILED: u8 = 125;

/// An error of a launch, with what can be done about it.
#[derive(Debug)]
pub struct Failure {
    message: String,
    /// Ways out, a sentence each.
    pub hints: Vec<String>,
    /// The exit code.
    pub code: u8,
}

impl Failure {
    /// A message: what was attempted on what.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hints: Vec::new(),
            code: FAILED,
        }
    }

    /// Adds a way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Sets the exit code, 125 unless said.
    #[must_use]
    pub fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Writes to standard error.
pub fn say(text: &str) {
    // There is nowhere left to report a closed standard error to.
    let _ = io::stderr().lock().write_all(visible(text).as_bytes());
}

/// Text in which control characters stand as escapes. Names of files and the contents of a
/// project's files come from inside the jail and end up in messages, and must not speak to the
/// user's terminal.
pub fn visible(text: &str) -> Cow<'_, str> {
    // Format characters turn the direction of text or take no room (Unicode category Cf).
    let format = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let harmless = |c: char| (!c.is_control() || matches!(c, '\n' | '\t')) && !format(c);
    if text.chars().all(harmless) {
        return Cow::Borrowed(text);
    }
    let each = text.chars().map(|c| {
        if harmless(c) {
            c.to_string()
        } else {
            c.escape_default().to_string()
        }
    });
    Cow::Owned(each.collect())
}

/// A name or a reason that goes into a line of its own: a newline in it would begin another, which
/// could pretend to be ours.
pub fn one_line(text: &str) -> String {
    visible(text).replace('\n', "\\n")
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
    }
}
