//! Secrets in arguments: they are hidden before anything is written.
//!
//! Known are names of secrets (`--token=…`, `--token …`, `API_KEY=…`, `Authorization: …`, also inside a script or
//! JSON), passwords in URLs, what looks like a key of a known service, and patterns of the site and of the
//! user. It errs on the side of hiding. A secret that is an argument of its own behind nothing that names it,
//! and that looks like nothing known, is not found: secrets do not belong on a command line.

mod names;
mod options;
mod pattern;
mod scan;
mod shapes;
mod shell;
mod written;

use std::borrow::Cow;

use agent_sandbox_events::record::REDACTED;

pub use pattern::{BadPattern, PATTERN_BYTES, PATTERNS};

use options::Options;
use pattern::Pattern;

/// What hides secrets: what is known anyway, and patterns.
#[derive(Clone, Debug, Default)]
pub struct Redaction {
    patterns: Vec<Pattern>,
}

/// What is known of an argument by the one before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next<'a> {
    Anything,
    Secret,
    User,
    /// A secret, if it looks like one: the name of the option.
    Perhaps(&'a [u8]),
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
        let patterns = patterns.iter().map(|text| Pattern::new(text));
        Ok(Self {
            patterns: patterns.collect::<Result<_, _>>()?,
        })
    }

    /// With the patterns of both.
    #[must_use]
    pub(super) fn and(mut self, other: &Redaction) -> Self {
        self.patterns.extend_from_slice(&other.patterns);
        self
    }

    /// The arguments of a program, the program first, without secrets. In arguments that were `cut` off the
    /// last one may end in the middle of a secret.
    #[must_use]
    pub fn arguments(&self, arguments: &[&[u8]], cut: bool) -> Vec<Vec<u8>> {
        let mut shown = Vec::with_capacity(arguments.len());
        let mut options = Options::default();
        let mut next = Next::Anything;
        for (at, argument) in arguments.iter().enumerate() {
            let this = next;
            next = follows(argument);
            if next == Next::Anything && self.joined(argument, arguments.get(at + 1)) {
                next = Next::Secret;
            }
            let known = options.take(argument);
            let cut = cut && at + 1 == arguments.len();
            let secret = match this {
                Next::Secret => true,
                Next::Perhaps(name) => names::secret_with(name, argument),
                Next::User | Next::Anything => known == Some((0, argument.len())),
            };
            shown.push(if secret {
                REDACTED.as_bytes().to_vec()
            } else if let Some(left) = self.pattern(argument) {
                left
            } else if let Some((begin, end)) = known {
                let mut edit = Edit::default();
                edit.hide(begin, end);
                text(&edit.apply(argument), false)
            } else if this == Next::User {
                user(argument, cut)
            } else {
                self.script(argument, cut)
            });
        }
        shown
    }

    /// A path. Names of directories tell what was touched, and `token=` in one is mostly no secret: hidden is
    /// what is a key by its looks, and values in the query of a URL that somebody made a name of.
    #[must_use]
    pub(super) fn path(bytes: &[u8]) -> Vec<u8> {
        let mut edit = Edit::default();
        shapes::hide(bytes, false, &mut edit);
        scan::queries(bytes, &mut edit);
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
        self.pattern(bytes).unwrap_or_else(|| text(bytes, false))
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

    /// What is left of an argument that a pattern matches.
    fn pattern(&self, argument: &[u8]) -> Option<Vec<u8>> {
        let kept = self.kept(argument)?;
        let mut left = text(&argument[..kept], false);
        if !left.ends_with(REDACTED.as_bytes()) {
            left.extend_from_slice(REDACTED.as_bytes());
        }
        Some(left)
    }

    /// What is left of an argument whose words, as a shell reads them, can be secrets by themselves.
    fn script(&self, argument: &[u8], cut: bool) -> Vec<u8> {
        let blank = argument.iter().any(u8::is_ascii_whitespace);
        if self.patterns.is_empty() || !blank {
            return text(argument, cut);
        }
        let words = scan::words(argument);
        let mut edit = Edit::default();
        let mut hide = false;
        for (at, (begin, end)) in words.iter().enumerate() {
            let word = &argument[*begin..*end];
            let next = words
                .get(at + 1)
                .map(|(begin, end)| &argument[*begin..*end]);
            if std::mem::take(&mut hide) {
                edit.hide(*begin, *end);
            } else if let Some(kept) = self.kept(word) {
                edit.hide(begin + kept, *end);
            } else {
                hide = self.joined(word, next.as_ref());
            }
        }
        text(&edit.apply(argument), cut)
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
    while let Some(at) = find(rest, REDACTED.as_bytes()) {
        small.extend_from_slice(&rest[..at]);
        small.push(HIDDEN);
        rest = &rest[at + REDACTED.len()..];
    }
    small.extend_from_slice(rest);
    small.make_ascii_lowercase();
    small
}

/// What the argument says of the one behind it.
fn follows(argument: &[u8]) -> Next<'_> {
    if !argument.starts_with(b"-") {
        return Next::Anything;
    }
    let name = argument.iter().all(|byte| names::letter(*byte));
    if name && names::secret(argument) {
        Next::Secret
    } else if name && names::perhaps(argument) {
        Next::Perhaps(argument)
    } else if scan::USER_AND_PASSWORD.contains(&argument) {
        Next::User
    } else {
        Next::Anything
    }
}

/// A user and a password.
fn user(argument: &[u8], cut: bool) -> Vec<u8> {
    let mut edit = Edit::default();
    scan::user_and_password(argument, 0, argument.len(), &mut edit);
    text(&edit.apply(argument), cut)
}

/// A text without the secrets that are known by their names or by how they look.
fn text(bytes: &[u8], cut: bool) -> Vec<u8> {
    let mut text = bytes.to_vec();
    for _ in 0..PASSES {
        let mut edit = Edit::default();
        scan::names(&text, &mut edit);
        scan::urls(&text, &mut edit);
        written::hide(&text, &mut edit);
        shell::hide(&text, &mut edit);
        shapes::hide(&text, cut, &mut edit);
        let less = edit.apply(&text);
        if less == text {
            break;
        }
        text = less;
    }
    text
}

/// Where something stands in a text; takes time in proportion to both.
fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, what)
}

/// Parts of a text that are to be hidden.
#[derive(Debug, Default)]
struct Edit {
    parts: Vec<(usize, usize)>,
}

impl Edit {
    /// This part, unless it is empty.
    fn hide(&mut self, begin: usize, end: usize) {
        if begin < end {
            self.parts.push((begin, end));
        }
    }

    /// The text without them.
    fn apply(mut self, text: &[u8]) -> Vec<u8> {
        self.parts.sort_unstable();
        let mut left = Vec::with_capacity(text.len());
        let mut at = 0;
        let mut parts = self.parts.into_iter().peekable();
        while let Some((begin, mut end)) = parts.next() {
            while let Some((_, more)) = parts.next_if(|next| next.0 <= end) {
                end = end.max(more);
            }
            left.extend_from_slice(&text[at..begin]);
            left.extend_from_slice(REDACTED.as_bytes());
            at = end;
        }
        left.extend_from_slice(&text[at..]);
        left
    }
}

#[cfg(test)]
mod tests;
