//! Which profiles a launch has, and which there are.
//!
//! A profile has a name. Of one name the user's file `profiles/NAME.toml` takes the place of the
//! site's entirely, and the site's that of the built-in one: for `--profile NAME`, and for the
//! commands of the one that it replaces. Without `--profile` the command's name decides, the user's
//! profiles first, then the site's, then those that are built in:
//!
//! - A file that does not contain the command's name cannot claim it in `commands`, and is not
//!   parsed: a mistake in a profile for `aider` does not stop `agent-sandbox bash`, and costs
//!   nothing.
//! - A file that contains it is parsed. If it is broken, the launch is refused, because it may
//!   have been the one.
//! - A file that cannot be read, or that others can change, could claim any command: refused.
//! - Two files of the user's, or two of the site's, that claim the same command: refused.
//!
//! `--profile NAME` reads that one file and no other. Of several each is a layer, in their order.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::agent::Agent;
use super::built_in::{BuiltIn, PROFILES};
use super::diagnostic::{ConfigError, nearest};
use super::files::{decode, names, read};
use super::parse::{RawLayer, parse};
use super::request::{Locations, Request};
use super::source::Layer;
use bstr::ByteSlice;

/// Whose profile it is, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// It is compiled in.
    BuiltIn,
    /// A file of the site's.
    Site,
    /// A file of the user's.
    User,
}

/// A profile, for listing.
#[derive(Debug)]
pub struct ProfileEntry {
    /// What `--profile` takes.
    pub name: String,
    /// Whose it is.
    pub owner: Owner,
    /// The file, as a person would name it.
    pub file: Arc<str>,
    /// What it says of its agent.
    pub agent: Agent,
    /// The whole file.
    pub text: Arc<str>,
}

/// All profiles by name, each with the file that is used. A broken profile is an error here: whoever
/// lists profiles is about to use one.
pub fn profiles(locations: &Locations) -> Result<Vec<ProfileEntry>, ConfigError> {
    let mut entries = BTreeMap::new();
    for built_in in PROFILES {
        entries.insert(built_in.name.to_owned(), entry(&File::of(built_in))?);
    }
    for owner in [Owner::Site, Owner::User] {
        for name in candidates(locations, owner)? {
            if let Some(file) = file(locations, owner, &name)? {
                check_name(&name, locations, owner)?;
                entries.insert(name, entry(&file)?);
            }
        }
    }
    Ok(entries.into_values().collect())
}

/// The profiles that are compiled in, by name, whatever takes their place here.
pub fn built_in_profiles() -> Result<Vec<ProfileEntry>, ConfigError> {
    let entries = PROFILES.iter().map(|built_in| entry(&File::of(built_in)));
    entries.collect()
}

fn entry(file: &File) -> Result<ProfileEntry, ConfigError> {
    let parsed = file.parse()?;
    Ok(ProfileEntry {
        name: file.name.clone(),
        owner: file.owner,
        agent: parsed.profile.map(|agent| *agent).unwrap_or_default(),
        file: parsed.file,
        text: Arc::from(&**parsed.text),
    })
}

/// A profile's file, read and not parsed.
struct File {
    name: String,
    owner: Owner,
    /// As a person would name it.
    shown: String,
    bytes: Vec<u8>,
}

impl File {
    fn of(built_in: &BuiltIn) -> Self {
        Self {
            name: built_in.name.to_owned(),
            owner: Owner::BuiltIn,
            shown: built_in.file.to_owned(),
            bytes: built_in.text.as_bytes().to_vec(),
        }
    }

    fn parse(&self) -> Result<RawLayer, ConfigError> {
        let text = decode(&self.shown, self.bytes.clone());
        let parsed = text.and_then(|text| parse(Layer::Profile, &self.shown, &text));
        parsed
            .map(|parsed| parsed.raw)
            .map_err(|error| self.owner.addressed(error))
    }
}

impl Owner {
    /// The error with a hint for whoever can do something about it.
    fn addressed(self, error: ConfigError) -> ConfigError {
        match self {
            Self::Site => error.for_site(),
            Self::BuiltIn | Self::User => error,
        }
    }
}

/// The file of one owner's for a profile; `None` if there is none. The name need not be a good one.
fn file(locations: &Locations, owner: Owner, name: &str) -> Result<Option<File>, ConfigError> {
    let found = |shown: String, bytes| File {
        name: name.to_owned(),
        owner,
        shown,
        bytes,
    };
    match owner {
        Owner::BuiltIn => {
            let mut all = PROFILES.iter();
            Ok(all.find(|built_in| built_in.name == name).map(File::of))
        }
        Owner::Site => {
            let text = locations.site.profile(name)?;
            let shown = locations.site.profile_path(name).display().to_string();
            Ok(text.map(|text| found(shown, text.into_bytes())))
        }
        Owner::User => {
            let path = directory(locations).join(format!("{name}.toml"));
            let shown = locations.shown(&path);
            Ok(read(&path, &shown)?.map(|bytes| found(shown, bytes)))
        }
    }
}

/// The profiles of this launch, in the order of their layers.
pub(super) fn choose(request: &Request<'_>) -> Result<Vec<RawLayer>, ConfigError> {
    if !request.profiles.is_empty() {
        let mut chosen: Vec<(&str, RawLayer)> = Vec::new();
        for name in request.profiles {
            if chosen.iter().all(|(other, _)| other != name) {
                chosen.push((name, by_name(request.locations, name)?));
            }
        }
        return Ok(chosen.into_iter().map(|(_, layer)| layer).collect());
    }
    match request.command.map(Path::new).and_then(Path::file_name) {
        Some(command) => {
            by_command(request.locations, command).map(|found| found.into_iter().collect())
        }
        None => Ok(Vec::new()),
    }
}

/// Finds what `@agent` stands for in what the site enforces, if that has it: no file of the user's says so.
pub(super) fn bind(locations: &Locations, layers: &mut [RawLayer]) -> Result<(), ConfigError> {
    let asks = |raw: &RawLayer| raw.layer == Layer::SiteEnforced && raw.text.contains("@agent");
    if !layers.iter().any(asks) {
        return Ok(());
    }
    let agents = layers.iter_mut().filter_map(|raw| raw.profile.as_mut());
    for agent in agents {
        let site = file(locations, Owner::Site, &agent.name)?;
        let trusted = match site {
            Some(file) => Some(file),
            None => file(locations, Owner::BuiltIn, &agent.name)?,
        };
        let trusted = trusted.map(|file| file.parse()).transpose()?;
        let trusted = trusted.and_then(|raw| raw.profile);
        agent.bound_hosts = trusted.map(|trusted| trusted.hosts).unwrap_or_default();
    }
    Ok(())
}

fn by_name(locations: &Locations, name: &str) -> Result<RawLayer, ConfigError> {
    check_name(name, locations, Owner::User)?;
    for owner in [Owner::User, Owner::Site, Owner::BuiltIn] {
        if let Some(file) = file(locations, owner, name)? {
            return file.parse();
        }
    }
    Err(unknown(name, locations))
}

fn by_command(locations: &Locations, command: &OsStr) -> Result<Option<RawLayer>, ConfigError> {
    // `commands` holds text: a name that is none has no profile.
    let Some(command) = command.to_str() else {
        return Ok(None);
    };
    if let Some((_, layer)) = claimed(locations, Owner::User, command)? {
        return Ok(Some(layer));
    }
    let name = match claimed(locations, Owner::Site, command)? {
        Some((name, _)) => Some(name),
        None => PROFILES
            .iter()
            .find(|built_in| built_in.commands.contains(&command))
            .map(|built_in| built_in.name.to_owned()),
    };
    // The user's file of that name takes its place, even if it claims no command.
    name.map(|name| by_name(locations, &name)).transpose()
}

/// The profile of one owner's that claims a command.
fn claimed(
    locations: &Locations,
    owner: Owner,
    command: &str,
) -> Result<Option<(String, RawLayer)>, ConfigError> {
    let mut chosen: Option<(String, RawLayer)> = None;
    for name in candidates(locations, owner)? {
        let Some(file) = file(locations, owner, &name)? else {
            continue;
        };
        if !mentions(&file.bytes, command) {
            continue;
        }
        let raw = file.parse()?;
        let claim = raw.profile.as_ref().and_then(|agent| {
            let mut claims = agent.commands.iter().zip(&agent.claims);
            claims.find(|(claim, _)| claim.value == command)
        });
        let Some((_, span)) = claim else {
            continue;
        };
        check_name(&name, locations, owner)?;
        if let Some((first, _)) = chosen {
            let message =
                format!("the profiles `{first}` and `{name}` both claim the command `{command}`");
            let hint = format!("choose one: `--profile {first}`, or remove it from one of the two");
            return Err(owner.addressed(raw.reject(span.clone(), &message, Some(hint))));
        }
        chosen = Some((name, raw));
    }
    Ok(chosen)
}

/// Whether a profile's text can hold `command` as a string. A backslash may begin an escape that
/// spells it in another way.
fn mentions(text: &[u8], command: &str) -> bool {
    text.contains(&b'\\') || !command.is_empty() && text.contains_str(command)
}

fn directory(locations: &Locations) -> PathBuf {
    locations.config_dir.join("profiles")
}

/// The names of one owner's profiles. Hidden files and those that do not end in `.toml` are what
/// editors and version control leave behind.
fn candidates(locations: &Locations, owner: Owner) -> Result<Vec<String>, ConfigError> {
    let files: Vec<OsString> = match owner {
        Owner::BuiltIn => {
            let names = PROFILES.iter().map(|built_in| built_in.name.to_owned());
            return Ok(names.collect());
        }
        Owner::Site => locations.site.profile_files()?,
        Owner::User => {
            let directory = directory(locations);
            names(&directory, &locations.shown(&directory))?
        }
    };
    // A name that is no text belongs to no profile that could be asked for.
    let names = files
        .iter()
        .filter_map(|file| file.to_str()?.strip_suffix(".toml"));
    let plain = names.filter(|name| !name.starts_with('.') && !name.is_empty());
    Ok(plain.map(str::to_owned).collect())
}

/// Where a new profile of the user's would stand, and how a person would name that.
///
/// # Errors
/// The name cannot be one.
pub fn place_of_new(locations: &Locations, name: &str) -> Result<(PathBuf, String), ConfigError> {
    check_name(name, locations, Owner::User)?;
    let path = directory(locations).join(format!("{name}.toml"));
    let shown = locations.shown(&path);
    Ok((path, shown))
}

fn check_name(name: &str, locations: &Locations, owner: Owner) -> Result<(), ConfigError> {
    let allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    let begins = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if name.bytes().next().is_some_and(begins) && name.bytes().all(allowed) {
        return Ok(());
    }
    let message = format!("`{}` cannot be the name of a profile", name.escape_debug());
    let file = match owner {
        Owner::Site => locations.site.profile_path("NAME").display().to_string(),
        Owner::BuiltIn | Owner::User => locations.shown(&directory(locations).join("NAME.toml")),
    };
    let hint = format!(
        "a name has a-z, 0-9, `.`, `_` and `-`, and begins with no dot and no `-`; the file is {file}"
    );
    Err(owner.addressed(ConfigError::plain(&message, Some(hint))))
}

fn unknown(name: &str, locations: &Locations) -> ConfigError {
    let owners = [Owner::User, Owner::Site, Owner::BuiltIn];
    let mut known: Vec<String> = owners
        .into_iter()
        .flat_map(|owner| candidates(locations, owner).unwrap_or_default())
        .collect();
    known.sort_unstable();
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
mod tests;
