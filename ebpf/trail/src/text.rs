//! Text of others: names of files, arguments and addresses come from processes that may be hostile, and are
//! shown on a terminal or in a document. No character of theirs may be obeyed by either.

use std::fmt::Write;

/// On one line, with an escape in the place of each character that a terminal obeys or that is not seen.
#[must_use]
pub fn shown(text: &str) -> String {
    let line = agent_sandbox_wire::text::one_line(text);
    match line.contains('\t') {
        true => line.replace('\t', "\\t"),
        false => line,
    }
}

/// The beginning of a text, with `…` if there is more; at most `longest` characters.
#[must_use]
pub fn cut(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        None => text.to_owned(),
        Some(_) => {
            let mut begin: String = text.chars().take(longest.saturating_sub(1)).collect();
            begin.push('…');
            begin
        }
    }
}

/// A command line as a shell would be given it: quotes where they are needed.
#[must_use]
pub fn command<S: AsRef<str>>(words: &[S]) -> String {
    let mut line = String::new();
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            line.push(' ');
        }
        let word = word.as_ref();
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%^".contains(c);
        match !word.is_empty() && word.chars().all(plain) {
            true => line.push_str(word),
            false => {
                line.push('\'');
                line.push_str(&word.replace('\'', "'\\''"));
                line.push('\'');
            }
        }
    }
    line
}

/// A text in a cell of a Markdown table, to be read as it is: a code span with a longer fence than any row
/// of backticks in it (CommonMark 0.31, section 6.1), and bars escaped, as tables want it.
#[must_use]
pub fn code(text: &str) -> String {
    let text = shown(text).replace('|', "\\|");
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    // Spaces keep backticks at the ends from the fence, and a span of nothing from being none.
    match text.is_empty() || text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']) {
        true => format!("{fence} {text} {fence}"),
        false => format!("{fence}{text}{fence}"),
    }
}

/// A number with its noun: `1 process`, `2 processes`.
#[must_use]
pub fn counted(number: u64, one: &str, many: &str) -> String {
    let mut text = grouped(number);
    let _ = write!(text, " {}", if number == 1 { one } else { many });
    text
}

/// A number with its thousands apart: `12,345`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_comes_through() {
        assert_eq!(
            shown("a\u{1b}[2J\n\t\u{9b}\u{202e}"),
            "a\\u{1b}[2J\\n\\t\\u{9b}\\u{202e}"
        );
        assert_eq!(shown("/plain/ä"), "/plain/ä");
    }

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        assert_eq!(
            command(&["ls", "-l", "a b", "", "it's"]),
            "ls -l 'a b' '' 'it'\\''s'"
        );
    }

    #[test]
    fn a_cell_of_a_table_stays_one() {
        assert_eq!(code("/a"), "`/a`");
        assert_eq!(code("a`b``c"), "```a`b``c```");
        assert_eq!(code("`"), "`` ` ``");
        assert_eq!(code("a|b\nc"), "`a\\|b\\nc`");
        assert_eq!(code(""), "`  `");
    }

    #[test]
    fn numbers_and_long_texts_are_short() {
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(12), "12");
        assert_eq!(counted(1, "process", "processes"), "1 process");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("äöü", 3), "äöü");
    }
}
