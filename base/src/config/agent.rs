//! What a profile says of an agent, typed: from [`ProfileSection`] to [`Agent`]. What makes no sense is
//! an error that points at it. Nothing is looked at on disk, and nothing is decided: the policy and the
//! plan make of it what the site and the user allow.

use std::fmt;
use std::ops::Range;
use std::path::{Component, Path};

use agent_sandbox_hosts::{HostRule, RuleError};
use toml::Spanned;

use super::diagnostic::ConfigError;
use super::schema::{Pairs, ProfileSection, Strings, Text};
use super::source::{Source, Sourced};
use super::text::Written;

mod given;
mod state;

pub use given::{DIRECTORY, FILE, Given, TEXT};
pub use state::{Seed, State};

/// What a profile file says beside the sections of a policy.
#[derive(Debug, Default)]
pub struct Agent {
    /// The profile's name: that of its file, without `.toml`.
    pub name: String,
    /// One line; empty if it says nothing.
    pub description: String,
    /// Names of commands that choose it.
    pub commands: Vec<Sourced<String>>,
    /// Where each of these stands in the text.
    pub(super) claims: Vec<Range<usize>>,
    /// The version with which it was tried.
    pub seen: Option<String>,
    /// What a user does to log in.
    pub login: Option<String>,
    /// Where one of these is, the user is logged in.
    pub authentication: Vec<Marker>,
    /// Hosts that it has to reach.
    pub hosts: Vec<HostRule>,
    /// Hosts that the site's profile of this name says it has to reach, or else the built-in one; found only where
    /// what the site enforces asks for them.
    pub bound_hosts: Vec<HostRule>,
    /// What its own sandbox needs in the jail.
    pub nested: Option<String>,
    /// What it cannot do in the jail.
    pub cannot: Vec<String>,
    /// What is to know of single versions.
    pub quirks: Vec<Quirk>,
    /// Where it keeps what it remembers.
    pub state: State,
    /// How it gets the text about its jail; the text itself is composed for each session.
    pub instructions: Option<Given>,
    /// Other read-only files that it is given.
    pub given: Vec<Given>,
}

/// Something to know of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quirk {
    /// The version on which it was seen.
    pub version: String,
    /// What it does, and what follows.
    pub text: String,
}

/// By what one sees that a user is logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marker {
    /// A file that exists.
    File(HomePath),
    /// A variable that is set, and not to nothing. Its value is nobody's business.
    Variable(String),
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.fmt(f),
            Self::Variable(name) => write!(f, "${name}"),
        }
    }
}

/// One path below the home directory, no pattern: names alone, separated by single slashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HomePath(String);

impl HomePath {
    /// Reads `~/NAME/…`.
    ///
    /// # Errors
    /// It is something else; the text completes "path `…`".
    pub fn parse(written: &str) -> Result<Self, &'static str> {
        let Some(below) = written.strip_prefix("~/") else {
            return Err("does not lie below the home directory");
        };
        if below.contains('*') {
            return Err("is a pattern, and one path is needed here");
        }
        if below.chars().any(char::is_control) {
            return Err("holds a control character");
        }
        if below.split('/').any(|name| matches!(name, "" | "." | "..")) {
            return Err("has an empty component, `.` or `..`");
        }
        Ok(Self(written.to_owned()))
    }

    /// As it is written: `~/NAME/…`.
    pub fn written(&self) -> &str {
        &self.0
    }

    /// The path from the home directory on.
    pub fn below(&self) -> &Path {
        Path::new(&self.0["~/".len()..])
    }

    /// Whether it is the other path, or lies below it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.below().starts_with(other.below())
    }

    /// Whether it is an entry of the home directory itself.
    pub fn is_entry(&self) -> bool {
        let mut parts = self.below().components();
        matches!(
            (parts.next(), parts.next()),
            (Some(Component::Normal(_)), None)
        )
    }
}

impl fmt::Display for HomePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Agent {
    /// Types what a profile file says.
    ///
    /// # Errors
    /// A value that makes no sense, with its file and line.
    pub(super) fn read(file: Written<'_>, section: &ProfileSection) -> Result<Self, ConfigError> {
        let ProfileSection {
            description,
            commands,
            seen,
            login,
            authentication,
            hosts,
            nested,
            cannot,
            quirks,
            state,
            instructions,
            given,
        } = section;
        let read = Reader(file);
        let quirks = quirks.iter().map(|quirk| {
            Ok(Quirk {
                version: read.line(&quirk.version)?,
                text: read.line(&quirk.text)?,
            })
        });
        let agent = Self {
            name: name_of(file.file),
            description: read.optional_line(description)?.unwrap_or_default(),
            commands: read.each(commands, Reader::command)?,
            claims: commands.iter().map(Spanned::span).collect(),
            seen: read.optional_line(seen)?,
            login: read.optional_line(login)?,
            authentication: read.each(authentication, Reader::marker)?,
            hosts: read.each(hosts, Reader::host)?,
            bound_hosts: Vec::new(),
            nested: read.optional_line(nested)?,
            cannot: read.each(cannot, Reader::line)?,
            quirks: quirks.collect::<Result<_, ConfigError>>()?,
            state: match state {
                Some(section) => State::read(&read, section)?,
                None => State::default(),
            },
            instructions: match instructions {
                Some(section) => Some(Given::instructions(&read, section)?),
                None => None,
            },
            given: given
                .iter()
                .map(|section| Given::read(&read, section))
                .collect::<Result<_, _>>()?,
        };
        given::distinct(&read, section)?;
        Ok(agent)
    }
}

/// The name of a profile, from what messages call its file.
pub(crate) fn name_of(file: &str) -> String {
    let name = file.rsplit(['/', ' ']).next().unwrap_or(file);
    name.strip_suffix(".toml").unwrap_or(name).to_owned()
}

/// Types the values of one profile, with errors that point at them.
struct Reader<'a>(Written<'a>);

impl Reader<'_> {
    fn each<T>(
        &self,
        written: &Strings,
        one: impl Fn(&Self, &Text) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        written.iter().map(|entry| one(self, entry)).collect()
    }

    fn source<T>(&self, written: &Spanned<T>) -> Source {
        self.0.source(written.span())
    }

    fn reject<T>(&self, written: &Spanned<T>, message: &str, hint: Option<&str>) -> ConfigError {
        self.0
            .reject(written.span(), message, hint.map(str::to_owned))
    }

    /// Text that users read in one line, or that is wrapped for them.
    fn line(&self, written: &Text) -> Result<String, ConfigError> {
        let text = written.get_ref();
        if text.trim().is_empty() {
            let hint = "leave the key away where there is nothing to say";
            return Err(self.reject(written, "says nothing", Some(hint)));
        }
        if text.chars().any(char::is_control) {
            let hint = "write one line; a terminal breaks it where it ends";
            return Err(self.reject(
                written,
                "expected one line without control characters",
                Some(hint),
            ));
        }
        Ok(text.to_string())
    }

    fn optional_line(&self, written: &Option<Text>) -> Result<Option<String>, ConfigError> {
        written.as_ref().map(|text| self.line(text)).transpose()
    }

    fn command(&self, written: &Text) -> Result<Sourced<String>, ConfigError> {
        let name = written.get_ref();
        if name.is_empty() || name.contains('/') {
            let message = "expected the name of a command, without a directory";
            return Err(self.reject(written, message, None));
        }
        Ok(Sourced::new(self.line(written)?, self.source(written)))
    }

    fn marker(&self, written: &Text) -> Result<Marker, ConfigError> {
        match written.get_ref().strip_prefix('$') {
            Some(name) if is_variable(name) => Ok(Marker::Variable(name.to_owned())),
            None if written.get_ref().starts_with("~/") => self.path(written).map(Marker::File),
            _ => {
                let message = format!("`{}` marks no login", written.get_ref().escape_debug());
                let hint = "a file below home, `~/.tool/auth.json`, or a variable, `$TOOL_API_KEY`";
                Err(self.reject(written, &message, Some(hint)))
            }
        }
    }

    fn host(&self, written: &Text) -> Result<HostRule, ConfigError> {
        let host = written.get_ref();
        host.parse().map_err(|error: RuleError| {
            let message = format!("`{}` is not a host: {error}", host.escape_debug());
            let hint =
                "a name without a scheme, with a port if it needs one: `api.example.org:443`";
            self.reject(written, &message, Some(hint))
        })
    }

    fn path(&self, written: &Text) -> Result<HomePath, ConfigError> {
        HomePath::parse(written.get_ref()).map_err(|why| {
            let message = format!("path `{}` {why}", written.get_ref().escape_debug());
            self.reject(
                written,
                &message,
                Some("for example `~/.tool/settings.json`"),
            )
        })
    }

    fn sourced_path(&self, written: &Text) -> Result<Sourced<HomePath>, ConfigError> {
        Ok(Sourced::new(self.path(written)?, self.source(written)))
    }

    /// Any text that a variable, an argument or a file can hold.
    fn text(&self, written: &Text) -> Result<String, ConfigError> {
        if written.get_ref().contains('\0') {
            return Err(self.reject(written, "holds a NUL byte", None));
        }
        Ok(written.get_ref().to_string())
    }

    fn variables(&self, written: &Pairs) -> Result<Vec<(Sourced<String>, String)>, ConfigError> {
        let pairs = written.iter().map(|(name, value)| {
            if !is_variable(name.get_ref()) {
                let message = format!("`{}` cannot name a variable", name.get_ref().escape_debug());
                let hint = "letters, digits and `_`, not beginning with a digit";
                return Err(self.reject(name, &message, Some(hint)));
            }
            let source = self.source(name);
            Ok((
                Sourced::new(name.get_ref().to_string(), source),
                self.text(value)?,
            ))
        });
        pairs.collect()
    }
}

/// Whether a shell could set a variable of this name (POSIX, 3.216 Name).
fn is_variable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_below_home() {
        let path = HomePath::parse("~/.tool/a").unwrap();
        assert_eq!(path.below(), Path::new(".tool/a"));
        assert!(path.is_within(&HomePath::parse("~/.tool").unwrap()));
        assert!(!path.is_within(&HomePath::parse("~/.too").unwrap()));
        assert!(!path.is_entry());
        assert!(HomePath::parse("~/.tool").unwrap().is_entry());
        for wrong in [
            "~", "~/", "/a", "a", "~ada/x", "~/a/", "~/a//b", "~/./a", "~/a/..", "~/*", "~/a\nb",
            "$HOME/a", "",
        ] {
            assert!(HomePath::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_file_names_the_profile() {
        for (file, name) in [
            ("built-in agents/claude.toml", "claude"),
            ("~/.config/agent-sandbox/profiles/my.tool.toml", "my.tool"),
            ("tool.toml", "tool"),
        ] {
            assert_eq!(name_of(file), name);
        }
    }
}
