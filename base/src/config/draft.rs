//! A site's file before it is installed: read from anywhere, and shown with all of its `[[when]]` sections, those
//! included that do not hold now. It decides nothing: a launch reads the installed ones alone ([`super::site`]).
#![allow(clippy::disallowed_methods)] // effects: reads the file

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use super::diagnostic::ConfigError;
use super::files::{decode, read, read_limited, too_large};
use super::load::parse;
use super::parse::{DEFAULT, DEFAULT_NAME, RawLayer};
use super::site::SiteFile;
use super::source::Layer;
use super::when::Circumstances;

/// What a file would hold.
#[derive(Debug)]
pub struct Draft {
    /// Which of the site's files it is.
    pub file: SiteFile,
    /// What holds for everybody.
    pub always: RawLayer,
    /// Its `[[when]]` sections.
    pub sections: Vec<DraftSection>,
}

/// A `[[when]]` section.
#[derive(Debug)]
pub struct DraftSection {
    /// What it says.
    pub layer: RawLayer,
    /// Where its header stands.
    pub line: u32,
    /// Its conditions: what each is about, and its patterns.
    pub conditions: Vec<(&'static str, Vec<String>)>,
    /// Whether they are met; the error is why that cannot be told.
    pub holds: Result<bool, String>,
}

/// Reads a file as the one of the site's that it is called like, for somebody at some place. Its owner and mode are those
/// of whoever works on it; size and form have to be right.
///
/// # Errors
/// It has another name, cannot be read, or is no policy.
pub fn read_draft(path: &Path, now: &Circumstances) -> Result<Draft, ConfigError> {
    let shown = path.display().to_string();
    let file = [SiteFile::Defaults, SiteFile::Enforced]
        .into_iter()
        .find(|file| path.file_name().is_some_and(|name| name == file.name()));
    let Some(file) = file else {
        let message = format!("{shown} is called neither enforced.toml nor defaults.toml");
        let hint = "what it says depends on which of them it is: give it that name".to_owned();
        return Err(ConfigError::plain(&message, Some(hint)));
    };
    let unreadable =
        |error: std::io::Error| ConfigError::plain(&format!("cannot read {shown}: {error}"), None);
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(unreadable)?;
    if !opened.metadata().map_err(unreadable)?.is_file() {
        let message = format!("{shown} is not a regular file");
        return Err(ConfigError::plain(&message, None));
    }
    let bytes = read_limited(opened).map_err(unreadable)?;
    let text = decode(&shown, bytes.ok_or_else(|| too_large(&shown))?)?;
    let layer = match file {
        SiteFile::Defaults => Layer::SiteDefaults,
        SiteFile::Enforced => Layer::SiteEnforced,
    };
    let parsed = parse(layer, &shown, &text)?;
    let always = parsed.raw;
    let sections = parsed.when.into_iter().flat_map(|when| {
        let line = always.source(when.span.clone()).line.unwrap_or_default();
        let conditions = when.conditions();
        let parts = when.parts(now).into_iter();
        let drafted = parts.map(|part| DraftSection {
            line,
            conditions: conditions.clone(),
            holds: part.holds,
            layer: RawLayer {
                layer,
                file: Arc::clone(&always.file),
                text: Arc::clone(&always.text),
                project: None,
                when: true,
                jobs: part.jobs,
                sections: part.sections,
                profile: None,
                credentials: Vec::new(),
            },
        });
        drafted.collect::<Vec<_>>()
    });
    let sections = sections.collect();
    Ok(Draft {
        file,
        always,
        sections,
    })
}

/// The built-in policy.
///
/// # Errors
/// A wrong build.
pub fn built_in() -> Result<RawLayer, ConfigError> {
    Ok(parse(Layer::BuiltIn, DEFAULT_NAME, DEFAULT)?.raw)
}

/// The text of a user's own file, read by whoever may; `None` if there is none.
///
/// # Errors
/// It cannot be read, or others may change it.
pub fn users_text(path: &Path, shown: &str) -> Result<Option<String>, ConfigError> {
    let bytes = read(path, shown)?;
    bytes.map(|bytes| decode(shown, bytes)).transpose()
}
