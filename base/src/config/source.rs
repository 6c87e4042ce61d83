//! Where a value comes from, carried along with the value itself, so that every verdict can name
//! the file and the line of its rule.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// The layers of a policy, weakest first; the order of the variants is the order of merging.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// `profiles/default.toml`, compiled in.
    BuiltIn,
    /// An agent's profile, compiled in or the user's own.
    Profile,
    /// `/etc/agent-sandbox/defaults.toml`.
    SiteDefaults,
    /// The user's `config.toml`.
    User,
    /// A `[projects."PATH"]` section of the user's `config.toml`.
    Project,
    /// An option of this invocation.
    CommandLine,
    /// `/etc/agent-sandbox/enforced.toml`: merged last, can only narrow.
    SiteEnforced,
}

/// A place in a policy file, or an option on the command line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source {
    /// The layer that the place belongs to.
    pub layer: Layer,
    /// The file as a person would name it (`~/.config/agent-sandbox/config.toml`), or the option
    /// (`--hide`).
    pub file: Arc<str>,
    /// Line in `file`, counted from 1; `None` for options.
    pub line: Option<u32>,
}

impl Source {
    /// A place in a file.
    pub fn in_file(layer: Layer, file: Arc<str>, line: u32) -> Self {
        Self {
            layer,
            file,
            line: Some(line),
        }
    }

    /// An option of the command line, named as the user typed it.
    pub fn option(name: &str) -> Self {
        Self {
            layer: Layer::CommandLine,
            file: Arc::from(name),
            line: None,
        }
    }
}

impl Source {
    /// Whether a person wrote it for their own launches: in a policy file of theirs, or as an option.
    pub fn is_users(&self) -> bool {
        match self.layer {
            Layer::User | Layer::Project | Layer::CommandLine => true,
            Layer::Profile => !self.is_built_in(),
            Layer::BuiltIn | Layer::SiteDefaults | Layer::SiteEnforced => false,
        }
    }

    /// Whether administrators of this node wrote it: a layer that came with a job is neither of these, whatever its text and
    /// its file are called.
    pub fn is_of_this_node(&self) -> bool {
        matches!(self.layer, Layer::BuiltIn | Layer::SiteDefaults)
    }

    /// Whether the place is in what is compiled in: the built-in policy and its profiles.
    pub fn is_built_in(&self) -> bool {
        self.line.is_some() && self.file.starts_with("built-in ")
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{}", self.file, line),
            None => f.write_str(&self.file),
        }
    }
}

impl Serialize for Source {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A value and the place that set it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// The place that set it.
    pub source: Source,
}

impl<T> Sourced<T> {
    /// Pairs a value with its place.
    pub fn new(value: T, source: Source) -> Self {
        Self { value, source }
    }

    /// The same place, another value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Sourced<U> {
        Sourced {
            value: f(self.value),
            source: self.source,
        }
    }
}
