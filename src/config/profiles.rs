//! Which profile a launch has, and which there are.
//!
//! A user's file `profiles/NAME.toml` takes the place of the built-in profile NAME entirely, for
//! `--profile NAME` and for the commands of the built-in one. Without `--profile` the command's
//! name decides, the user's profiles first:
//!
//! - A file that does not contain the command's name cannot claim it in `commands`, and is not
//!   parsed: a mistake in a profile for `aider` does not stop `agent-sandbox bash`, and costs
//!   nothing.
//! - A file that contains it is parsed. If it is broken, the launch is refused, because it may
//!   have been the one.
//! - A file that cannot be read, or that others can change, could claim any command: refused.
//! - Two files that claim the same command: refused.
//!
//! `--profile NAME` reads that one file and no other.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diagnostic::{ConfigError, nearest};
use super::load::{Locations, Request, decode, names, read};
use super::parse::{RawLayer, parse};
use super::source::Layer;

/// A profile that is compiled in. `commands` repeats what the file says, so that choosing one
/// parses none; a test compares the two.
struct BuiltIn {
    name: &'static str,
    file: &'static str,
    text: &'static str,
    commands: &'static [&'static str],
}

const BUILT_IN: &[BuiltIn] = &[BuiltIn {
    name: "claude",
    file: "built-in agents/claude.toml",
    text: include_str!("../../profiles/agents/claude.toml"),
    commands: &["claude"],
}];

/// A profile, for listing.
#[derive(Clone, Debug)]
pub struct ProfileEntry {
    /// What `--profile` takes.
    pub name: String,
    /// The file, as a person would name it.
    pub file: Arc<str>,
    /// One line about it; empty if it says nothing.
    pub description: String,
    /// The commands that choose it by themselves.
    pub commands: Vec<String>,
    /// The whole file.
    pub text: Arc<str>,
}

/// All profiles by name, the user's in place of built-in ones of the same name. A broken profile
/// is an error here: whoever lists profiles is about to use one.
pub fn profiles(locations: &Locations) -> Result<Vec<ProfileEntry>, ConfigError> {
    let mut entries = BTreeMap::new();
    for built_in in BUILT_IN {
        let entry = entry(built_in.name, built_in.file, built_in.text)?;
        entries.insert(entry.name.clone(), entry);
    }
    for name in candidates(locations)? {
        let (path, shown) = place(locations, &name);
        if let Some(bytes) = read(&path, &shown)? {
            check_name(&name, locations)?;
            entries.insert(name.clone(), entry(&name, &shown, &decode(&shown, bytes)?)?);
        }
    }
    Ok(entries.into_values().collect())
}

fn entry(name: &str, file: &str, text: &str) -> Result<ProfileEntry, ConfigError> {
    let parsed = parse(Layer::Profile, file, text)?;
    let profile = parsed.profile.unwrap_or_default();
    Ok(ProfileEntry {
        name: name.to_owned(),
        file: parsed.raw.file,
        description: profile
            .description
            .map(toml::Spanned::into_inner)
            .unwrap_or_default(),
        commands: profile
            .commands
            .into_iter()
            .map(toml::Spanned::into_inner)
            .collect(),
        text: Arc::from(&**parsed.raw.text),
    })
}

/// The profile of this launch.
pub(super) fn choose(request: &Request<'_>) -> Result<Option<RawLayer>, ConfigError> {
    if let Some(name) = request.profile {
        return by_name(request.locations, name).map(Some);
    }
    match request.command.map(Path::new).and_then(Path::file_name) {
        Some(command) => by_command(request.locations, command),
        None => Ok(None),
    }
}

fn by_name(locations: &Locations, name: &str) -> Result<RawLayer, ConfigError> {
    check_name(name, locations)?;
    let (path, shown) = place(locations, name);
    if let Some(bytes) = read(&path, &shown)? {
        return Ok(parse(Layer::Profile, &shown, &decode(&shown, bytes)?)?.raw);
    }
    match BUILT_IN.iter().find(|built_in| built_in.name == name) {
        Some(built_in) => Ok(parse(Layer::Profile, built_in.file, built_in.text)?.raw),
        None => Err(unknown(name, locations)),
    }
}

fn by_command(locations: &Locations, command: &OsStr) -> Result<Option<RawLayer>, ConfigError> {
    // `commands` holds text: a name that is none has no profile.
    let Some(command) = command.to_str() else {
        return Ok(None);
    };
    let mut chosen: Option<(String, RawLayer)> = None;
    for name in candidates(locations)? {
        let (path, shown) = place(locations, &name);
        let Some(bytes) = read(&path, &shown)? else {
            continue;
        };
        if !mentions(&bytes, command) {
            continue;
        }
        let parsed = parse(Layer::Profile, &shown, &decode(&shown, bytes)?)?;
        let Some(profile) = parsed.profile else {
            continue;
        };
        let Some(claim) = profile
            .commands
            .iter()
            .find(|claim| claim.get_ref() == command)
        else {
            continue;
        };
        check_name(&name, locations)?;
        if let Some((first, _)) = chosen {
            let message =
                format!("the profiles `{first}` and `{name}` both claim the command `{command}`");
            let hint = format!("choose one: `--profile {first}`, or remove it from one of the two");
            return Err(parsed.raw.reject(claim.span(), &message, Some(hint)));
        }
        chosen = Some((name, parsed.raw));
    }
    if let Some((_, layer)) = chosen {
        return Ok(Some(layer));
    }
    match BUILT_IN
        .iter()
        .find(|built_in| built_in.commands.contains(&command))
    {
        Some(built_in) => by_name(locations, built_in.name).map(Some),
        None => Ok(None),
    }
}

/// Whether a profile's text can hold `command` as a string. A backslash may begin an escape that
/// spells it in another way.
fn mentions(text: &[u8], command: &str) -> bool {
    text.contains(&b'\\')
        || text
            .windows(command.len().max(1))
            .any(|window| window == command.as_bytes())
}

fn directory(locations: &Locations) -> PathBuf {
    locations.config_dir.join("profiles")
}

fn place(locations: &Locations, name: &str) -> (PathBuf, String) {
    let path = directory(locations).join(format!("{name}.toml"));
    let shown = locations.shown(&path);
    (path, shown)
}

/// The names of the user's profiles. Hidden files and those that do not end in `.toml` are what
/// editors and version control leave behind.
fn candidates(locations: &Locations) -> Result<Vec<String>, ConfigError> {
    let directory = directory(locations);
    let shown = locations.shown(&directory);
    let mut found = Vec::new();
    for name in names(&directory, &shown)? {
        // A name that is no text belongs to no profile that could be asked for.
        let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".toml")) else {
            continue;
        };
        if !name.starts_with('.') && !name.is_empty() {
            found.push(name.to_owned());
        }
    }
    Ok(found)
}

fn check_name(name: &str, locations: &Locations) -> Result<(), ConfigError> {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    if !name.is_empty() && !name.starts_with('.') && name.bytes().all(allowed) {
        return Ok(());
    }
    let message = format!("`{}` cannot be the name of a profile", name.escape_debug());
    let hint = format!(
        "a name has a-z, 0-9, `.`, `_` and `-`, and begins with no dot; the file is {}",
        locations.shown(&directory(locations).join("NAME.toml"))
    );
    Err(ConfigError::plain(&message, Some(hint)))
}

fn unknown(name: &str, locations: &Locations) -> ConfigError {
    let mut known = candidates(locations).unwrap_or_default();
    known.extend(BUILT_IN.iter().map(|built_in| built_in.name.to_owned()));
    known.sort();
    known.dedup();
    let all = known
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ");
    let hint = match nearest(name, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`? There are: {all}"),
        None => format!("there are: {all}"),
    };
    ConfigError::plain(&format!("unknown profile `{name}`"), Some(hint))
}

#[cfg(test)]
mod tests {
    use super::{BUILT_IN, entry, mentions};

    #[test]
    fn built_in_table_says_what_the_files_say() {
        for built_in in BUILT_IN {
            let entry = entry(built_in.name, built_in.file, built_in.text).expect(built_in.name);
            assert_eq!(entry.commands, built_in.commands, "{}", built_in.name);
            assert!(!entry.description.is_empty(), "{}", built_in.name);
            assert_eq!(
                built_in.file,
                format!("built-in agents/{}.toml", built_in.name)
            );
        }
    }

    #[test]
    fn only_text_that_can_spell_the_command_is_parsed() {
        assert!(mentions(b"commands = [\"bash\"]", "bash"));
        assert!(mentions(br#"commands = ["\u0062ash"]"#, "bash"));
        assert!(!mentions(b"commands = [\"zsh\"]", "bash"));
        assert!(!mentions(b"", "bash"));
    }
}
