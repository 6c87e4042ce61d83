//! Files that an agent is given: the text about its jail, and others.

use toml::Spanned;

use super::{HomePath, Reader};
use crate::config::diagnostic::ConfigError;
use crate::config::schema::{GivenSection, InstructionsSection, ProfileSection, Text};
use crate::config::source::{Source, Sourced};

/// Stands for the file's path in variables and arguments.
pub const FILE: &str = "{file}";
/// Stands for the path of the directory that holds it.
pub const DIRECTORY: &str = "{directory}";
/// Stands for what the file holds.
pub const TEXT: &str = "{text}";

/// A read-only file of an agent's, and what leads the agent to it.
#[derive(Clone, Debug)]
pub struct Given {
    /// The file's name, plain.
    pub name: String,
    /// What it holds; none: the text about the jail.
    pub text: Option<String>,
    /// Where it is shown besides.
    pub at: Option<HomePath>,
    /// The user's own files that are merged behind the text.
    pub user: Vec<HomePath>,
    /// Variables that lead to it, with [`FILE`], [`DIRECTORY`] and [`TEXT`] as written.
    pub variables: Vec<(Sourced<String>, String)>,
    /// Arguments right behind the command's name, in the same way.
    pub arguments: Vec<String>,
    /// Where the profile says so.
    pub source: Source,
}

impl Given {
    /// Types `[profile.instructions]`.
    pub(super) fn instructions(
        read: &Reader<'_>,
        section: &Spanned<InstructionsSection>,
    ) -> Result<Self, ConfigError> {
        let InstructionsSection {
            name,
            at,
            user,
            variables,
            arguments,
        } = section.get_ref();
        let ways = [
            ("at", at.is_some()),
            ("variables", !variables.is_empty()),
            ("arguments", !arguments.is_empty()),
        ];
        let given: Vec<&str> = ways.iter().filter(|way| way.1).map(|way| way.0).collect();
        if given.len() != 1 {
            let message = match given.as_slice() {
                [] => "nothing leads the agent to its instructions".to_owned(),
                [first, .., last] => {
                    format!("`{first}` and `{last}` both lead the agent to its instructions")
                }
                [_] => String::new(),
            };
            let hint = "exactly one of `at`, `variables` and `arguments`";
            return Err(read.reject(section, &message, Some(hint)));
        }
        let at = at.as_ref().map(|at| read.path(at)).transpose()?;
        let user = match user {
            Some(user) => read.each(user, Reader::path)?,
            None => at.clone().into_iter().collect(),
        };
        let found = Self {
            name: plain_name(read, name)?,
            text: None,
            at,
            user,
            variables: read.variables(variables)?,
            arguments: read.each(arguments, Reader::text)?,
            source: read.source(section),
        };
        if found.at.is_none() && !found.leads_to_it() {
            let hint = "`{file}` stands for its path, `{directory}` for its directory's, `{text}` for what it holds";
            return Err(read.reject(section, "the file's place stands in no value", Some(hint)));
        }
        Ok(found)
    }

    /// Types `[[profile.given]]`.
    pub(super) fn read(
        read: &Reader<'_>,
        section: &Spanned<GivenSection>,
    ) -> Result<Self, ConfigError> {
        let GivenSection {
            name,
            text,
            variables,
            arguments,
        } = section.get_ref();
        Ok(Self {
            name: plain_name(read, name)?,
            text: Some(read.text(text)?),
            at: None,
            user: Vec::new(),
            variables: read.variables(variables)?,
            arguments: read.each(arguments, Reader::text)?,
            source: read.source(section),
        })
    }

    fn leads_to_it(&self) -> bool {
        let values = self.variables.iter().map(|(_, value)| value);
        let leads = |value: &String| {
            [FILE, DIRECTORY, TEXT]
                .iter()
                .any(|word| value.contains(word))
        };
        values.chain(&self.arguments).any(leads)
    }
}

/// Refuses two files of one name.
pub(super) fn distinct(read: &Reader<'_>, profile: &ProfileSection) -> Result<(), ConfigError> {
    let instructions = profile.instructions.iter().map(|one| &one.get_ref().name);
    let given = profile.given.iter().map(|one| &one.get_ref().name);
    let mut names: Vec<&str> = Vec::new();
    for name in instructions.chain(given) {
        if names.contains(&name.get_ref().as_ref()) {
            let message = format!("two files are called `{}`", name.get_ref());
            return Err(read.reject(name, &message, Some("they stand in one directory")));
        }
        names.push(name.get_ref());
    }
    Ok(())
}

fn plain_name(read: &Reader<'_>, written: &Text) -> Result<String, ConfigError> {
    let name = written.get_ref();
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.starts_with(['.', '-']) || !name.chars().all(plain) {
        let message = format!(
            "`{}` cannot be the name of a given file",
            name.escape_debug()
        );
        let hint = "letters, digits and `._-`, beginning with a letter or a digit: `AGENTS.md`";
        return Err(read.reject(written, &message, Some(hint)));
    }
    Ok(name.to_string())
}
