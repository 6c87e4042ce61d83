//! Errors in configuration, shown as a person wants them: what is wrong, the file, line and
//! column, the line itself with a caret, and apart from that a hint.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// What to do about a site's file that cannot be used. Whoever reads it is a user.
pub(super) const ASK: &str = "ask your administrators";

/// Why a policy file was refused. `Display` is the whole message, several lines where a place in
/// a file is known; the hint is apart, so that the caller can print it in its own way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    message: String,
    hint: Option<String>,
    line: Option<u32>,
}

impl ConfigError {
    /// An error that concerns a file as a whole, or an option.
    pub(crate) fn plain(message: &str, hint: Option<String>) -> Self {
        Self {
            message: render(message, None),
            hint,
            line: None,
        }
    }

    /// An error at a place in a file.
    ///
    /// `file` is `None` for a text that no file holds: then `prefix` (`--set files.timeout_ms`)
    /// stands in front of the message and the line is shown without a number.
    pub(crate) fn at(
        file: Option<&str>,
        prefix: Option<&str>,
        text: &str,
        span: Range<usize>,
        message: &str,
        hint: Option<String>,
    ) -> Self {
        let place = Excerpt::of(text, span);
        let message = match prefix {
            Some(prefix) => render(&format!("{prefix}: {message}"), Some((file, &place))),
            None => render(message, Some((file, &place))),
        };
        Self {
            message,
            hint,
            line: Some(place.line),
        }
    }

    /// The same error with another hint.
    pub(crate) fn with_hint(self, hint: String) -> Self {
        Self {
            hint: Some(hint),
            ..self
        }
    }

    /// The same error in a file of the site's, which its reader cannot correct.
    pub(super) fn for_site(self) -> Self {
        let hint = match self.hint() {
            Some(hint) if hint.starts_with(ASK) => return self,
            Some(hint) => format!("{ASK}: {hint}"),
            None => ASK.to_owned(),
        };
        self.with_hint(hint)
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The line that the message points at, counted from 1; `None` where the error is not about
    /// one line.
    pub fn line(&self) -> Option<u32> {
        self.line
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}

/// The line of `text` in which byte `offset` stands, counted from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> u32 {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let breaks = before.iter().filter(|byte| **byte == b'\n').count();
    u32::try_from(breaks).map_or(u32::MAX, |breaks| breaks.saturating_add(1))
}

/// One line of a file and the part of it that is meant.
struct Excerpt<'a> {
    line: u32,
    text: &'a str,
    span: Range<usize>,
}

impl<'a> Excerpt<'a> {
    /// Reduces a span to its first line. What lies behind the last visible character (something
    /// missing at the end of the file) is moved to that character, because an empty line with a
    /// caret explains nothing.
    fn of(text: &'a str, span: Range<usize>) -> Self {
        let visible = text.trim_end().len();
        let start = floor_char_boundary(text, span.start.min(visible));
        let first = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let last = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let line = text[first..last].trim_end_matches('\r');
        let end = floor_char_boundary(
            text,
            span.end.clamp(start, first + line.len().max(start - first)),
        );
        let start = (start - first).min(line.len());
        let end = (end - first).clamp(start, line.len());
        Self {
            line: line_of(text, first),
            text: line,
            span: start..end,
        }
    }
}

fn floor_char_boundary(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn render(message: &str, place: Option<(Option<&str>, &Excerpt<'_>)>) -> String {
    let title = Level::ERROR.no_name().primary_title(message);
    let renderer = Renderer::plain();
    let rendered = match place {
        None => renderer.render(&[annotate_snippets::Group::with_title(title)]),
        Some((file, place)) => {
            let snippet = Snippet::source(place.text)
                .line_start(place.line as usize)
                .line_numbering(file.is_some())
                .path(file)
                .annotation(AnnotationKind::Primary.span(place.span.clone()));
            renderer.render(&[title.element(snippet)])
        }
    };
    rendered.trim_end().to_owned()
}

/// The known word that `word` was probably meant to be.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Below this two words only share letters. Found by trying: `timeout` for `timeout_ms`,
    /// `red` for `read` and `tmpsize` for `tmp_size` lie above 0.85, words of another meaning
    /// (`hide` for `home`) below 0.75.
    const ALIKE: f64 = 0.8;
    let word = word.to_lowercase();
    let mut best: Option<(f64, &str)> = None;
    for candidate in known {
        let score = strsim::jaro_winkler(&word, candidate);
        if score > best.map_or(ALIKE, |(score, _)| score) {
            best = Some((score, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}
