//! Secrets in arguments: they are hidden before anything is written.
//!
//! Known are names of secrets (`--token=…`, `--token …`, `API_KEY=…`, `Authorization: …`, also inside a script or
//! JSON), passwords in URLs, what looks like a key of a known service, and patterns of the site and of the
//! user. It errs on the side of hiding. A secret that is an argument of its own behind nothing that names it,
//! and that looks like nothing known, is not found: secrets do not belong on a command line.

mod edit;
mod pattern;
mod shapes;
mod table;

use std::borrow::Cow;
use std::sync::LazyLock;

use agent_sandbox_events::record::REDACTED;
use memchr::memmem;

pub use pattern::{BadPattern, PATTERN_BYTES, PATTERN_STARS, PATTERNS};

use edit::Edit;
use pattern::Pattern;

/// What hides secrets: what is known anyway, and patterns.
#[derive(Clone, Debug, Default)]
pub struct Redaction {
    patterns: Vec<Pattern>,
}

/// Passes over one text: each can only hide more, and what one leaves to find is found by the next.
const PASSES: usize = 4;

impl Redaction {
    /// With these patterns of one's own.
    ///
    /// # Errors
    /// There are more than [`PATTERNS`], or one is empty or longer than [`PATTERN_BYTES`].
    pub fn new(patterns: &[String]) -> Result<Self, BadPattern> {
        if patterns.len() > PATTERNS {
            return Err(BadPattern::Many);
        }
        // Made when the service starts, not at the first command.
        LazyLock::force(&table::ROWS);
        let patterns = patterns.iter().map(|text| Pattern::new(text));
        Ok(Self {
            patterns: patterns.collect::<Result<_, _>>()?,
        })
    }

    /// With the patterns of both.
    #[must_use]
    pub fn and(mut self, other: &Redaction) -> Self {
        self.patterns.extend_from_slice(&other.patterns);
        self
    }

    /// The arguments of a program, the program first, without secrets. In arguments that were `cut` off the
    /// last one may end in the middle of a secret.
    #[must_use]
    pub fn arguments(&self, arguments: &[&[u8]], cut: bool) -> Vec<Vec<u8>> {
        if arguments.is_empty() {
            return Vec::new();
        }
        // No argument of a program holds a zero (execve(2)).
        let plain = |byte: &u8| if *byte == 0 { b' ' } else { *byte };
        let plain = arguments
            .iter()
            .map(|argument| argument.iter().map(plain).collect());
        let plain: Vec<Vec<u8>> = plain.collect();
        let mut text = plain.join(&0);
        for _ in 0..PASSES {
            let mut edit = Edit::default();
            self.patterns(&text, &mut edit);
            shapes::hide(&text, cut, &mut edit);
            let less = edit.apply(&text);
            if less == text {
                break;
            }
            text = less;
        }
        text.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
    }

    /// A path. Names of directories tell what was touched, and `token=` in one is mostly no secret: hidden is
    /// what is a key by its looks, and values in the query of a URL that somebody made a name of.
    #[must_use]
    pub(super) fn path(bytes: &[u8]) -> Vec<u8> {
        let mut edit = Edit::default();
        shapes::keys(bytes, false, &mut edit);
        shapes::queries(bytes, &mut edit);
        edit.apply(bytes)
    }

    /// The address of a socket, as the kernel has it: the name of a local one is a path, or as good as one.
    pub(super) fn address(family: u16, address: &[u8]) -> Cow<'_, [u8]> {
        match address.split_at_checked(size_of::<u16>()) {
            Some((first, name)) if libc::c_int::from(family) == libc::AF_UNIX => {
                Cow::Owned([first, &Self::path(name)].concat())
            }
            _ => Cow::Borrowed(address),
        }
    }

    /// A text that is no argument.
    #[must_use]
    pub(super) fn text(&self, bytes: &[u8]) -> Vec<u8> {
        self.arguments(&[bytes], false).concat()
    }

    /// If a pattern matches: as much stays.
    fn kept(&self, argument: &[u8]) -> Option<usize> {
        if self.patterns.is_empty() {
            return None;
        }
        let small = small(argument);
        let matching = self
            .patterns
            .iter()
            .filter(|pattern| pattern.matches(&small));
        matching.map(Pattern::kept).min()
    }

    /// Hides what patterns match: arguments between zeros, and the words of those with blanks, as a shell reads them.
    fn patterns(&self, text: &[u8], edit: &mut Edit) {
        if self.patterns.is_empty() {
            return;
        }
        let mut arguments = Vec::new();
        let mut begin = 0;
        for argument in text.split(|byte| *byte == 0) {
            arguments.push((begin, begin + argument.len()));
            begin += argument.len() + 1;
        }
        let whole = self.row(text, &arguments, edit);
        for ((begin, end), whole) in arguments.iter().zip(whole) {
            if !whole && text[*begin..*end].iter().any(u8::is_ascii_whitespace) {
                self.row(text, &shapes::words(text, *begin, *end), edit);
            }
        }
    }

    /// Hides what patterns match of words that stand in a row, and says which they match.
    fn row(&self, text: &[u8], words: &[(usize, usize)], edit: &mut Edit) -> Vec<bool> {
        let mut matched = vec![false; words.len()];
        for (at, (begin, end)) in words.iter().enumerate() {
            let word = &text[*begin..*end];
            let next = words.get(at + 1).map(|(begin, end)| &text[*begin..*end]);
            if matched[at] {
                edit.hide(*begin, *end);
            } else if let Some(kept) = self.kept(word) {
                matched[at] = true;
                edit.hide(begin + kept.min(word.len()), *end);
            }
            if self.joined(word, next.as_ref()) {
                matched[at + 1] = true;
            }
        }
        matched
    }

    /// Whether a pattern matches the argument and the next one together, as `--name=VALUE` or `--name VALUE`,
    /// but not the argument alone.
    fn joined(&self, argument: &[u8], next: Option<&&[u8]>) -> bool {
        let joining = || self.patterns.iter().filter(|pattern| pattern.joins());
        let Some(next) = next.filter(|_| joining().next().is_some()) else {
            return false;
        };
        let mut both = small(argument);
        if both.last() == Some(&HIDDEN)
            || self.patterns.iter().any(|pattern| pattern.matches(&both))
        {
            return false;
        }
        let sign = both.len();
        both.push(b'=');
        both.extend(small(next));
        [b'=', b' '].into_iter().any(|between| {
            both[sign] = between;
            joining().any(|pattern| pattern.matches(&both))
        })
    }
}

/// Stands for what is hidden already, where patterns are compared: no argument holds it, and so no pattern
/// finds the word `redacted` there.
const HIDDEN: u8 = 0;

/// A text for patterns.
fn small(bytes: &[u8]) -> Vec<u8> {
    let mut small = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = memmem::find(rest, REDACTED.as_bytes()) {
        small.extend_from_slice(&rest[..at]);
        small.push(HIDDEN);
        rest = &rest[at + REDACTED.len()..];
    }
    small.extend_from_slice(rest);
    small.make_ascii_lowercase();
    small
}

#[cfg(test)]
mod tests;
