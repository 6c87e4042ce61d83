//! The text of a layer, and what points into it: the place of a value, and an error about one.

use std::borrow::Cow;
use std::ops::{Deref, Range};
use std::sync::Arc;

use super::diagnostic::ConfigError;
use super::source::{Layer, Source};

/// A file's text, with the places of its line breaks: a launch asks for the lines of some six
/// hundred values.
#[derive(Debug)]
pub struct Text {
    content: Cow<'static, str>,
    breaks: Vec<usize>,
}

impl Text {
    pub(super) fn new(content: Cow<'static, str>) -> Self {
        let breaks = memchr::memchr_iter(b'\n', content.as_bytes()).collect();
        Self { content, breaks }
    }

    /// The line in which a byte stands, counted from 1.
    pub fn line(&self, offset: usize) -> u32 {
        let before = self.breaks.partition_point(|&at| at < offset);
        u32::try_from(before).map_or(u32::MAX, |before| before.saturating_add(1))
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.content
    }
}

/// A layer's text, and what messages call it.
#[derive(Clone, Copy)]
pub(super) struct Written<'a> {
    /// Which layer.
    pub(super) layer: Layer,
    /// The file, or the option, as a person would name it.
    pub(super) file: &'a Arc<str>,
    /// The whole text of the file.
    pub(super) text: &'a Text,
}

impl Written<'_> {
    /// The place of a value, by its span.
    pub(super) fn source(self, span: Range<usize>) -> Source {
        match self.layer {
            Layer::CommandLine => Source::option(self.file),
            layer => {
                let line = self.text.line(span.start);
                Source::in_file(layer, Arc::clone(self.file), line)
            }
        }
    }

    /// Refuses a value, by its span.
    pub(super) fn reject(
        self,
        span: Range<usize>,
        message: &str,
        hint: Option<String>,
    ) -> ConfigError {
        reject(self.layer, self.file, self.text, span, message, hint)
    }
}

/// The file to show in front of a line number, and what to put in front of the message: options
/// are no files.
fn named(layer: Layer, file: &str) -> (Option<&str>, Option<&str>) {
    if layer == Layer::CommandLine {
        (None, Some(file))
    } else {
        (Some(file), None)
    }
}

/// Refuses what stands at `span` in the text of a file.
pub(super) fn reject(
    layer: Layer,
    file: &str,
    text: &str,
    span: Range<usize>,
    message: &str,
    hint: Option<String>,
) -> ConfigError {
    let (path, prefix) = named(layer, file);
    let error = ConfigError::at(path, prefix, text, span, message, hint);
    addressed(layer, error)
}

/// The error with a hint for whoever can do something about it.
fn addressed(layer: Layer, error: ConfigError) -> ConfigError {
    match layer {
        Layer::SiteDefaults | Layer::SiteEnforced => error.for_site(),
        _ => error,
    }
}
