//! `[profile.state]`: where an agent keeps what it remembers.

use super::{HomePath, Reader};
use crate::config::diagnostic::ConfigError;
use crate::config::schema::{SeedSection, StateSection, Text};
use crate::config::source::{Source, Sourced};

/// Where an agent keeps what it remembers.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Directories that it writes. None lies in another one.
    pub directories: Vec<Sourced<HomePath>>,
    /// Entries of home itself that it writes, files; with shared state alone.
    pub files: Vec<Sourced<HomePath>>,
    /// Login files: the user's own and writable, whosever the state is.
    pub login: Vec<Sourced<HomePath>>,
    /// Settings: the user's own and read-only, whosever the state is.
    pub settings: Vec<Sourced<HomePath>>,
    /// What a missing file is made with; others are made empty.
    pub initial: Vec<(Sourced<HomePath>, String)>,
    /// Keys that the project's copies of JSON files get.
    pub seeds: Vec<Seed>,
    /// Variables that are set where the state is the project's, with their values as written: one that
    /// begins with `~/` is a path below home.
    pub variables: Vec<(Sourced<String>, String)>,
}

/// Keys of a JSON file that the project's copy gets.
#[derive(Clone, Debug)]
pub struct Seed {
    /// The user's file.
    pub from: HomePath,
    /// The project's copy, below one of the directories.
    pub to: HomePath,
    /// Keys of the object that the file holds.
    pub keys: Vec<String>,
    /// Values that come back from the copy, if they are plain ones: `key`, or `key.key`.
    pub back: Vec<String>,
    /// Where the profile says so.
    pub source: Source,
}

impl State {
    /// Whether the profile names no state.
    pub fn is_empty(&self) -> bool {
        self.directories.is_empty()
            && self.files.is_empty()
            && self.login.is_empty()
            && self.settings.is_empty()
    }

    /// The directory of the state in which a path lies.
    pub fn directory_of(&self, path: &HomePath) -> Option<&HomePath> {
        let mut all = self.directories.iter().map(|one| &one.value);
        all.find(|directory| path.is_within(directory))
    }

    pub(super) fn read(read: &Reader<'_>, section: &StateSection) -> Result<Self, ConfigError> {
        let StateSection {
            directories,
            files,
            login,
            settings,
            initial,
            seed,
            variables,
        } = section;
        let mut state = Self::default();
        for written in directories {
            let path = read.sourced_path(written)?;
            let beside = state.directories.iter().find(|other| {
                path.value.is_within(&other.value) || other.value.is_within(&path.value)
            });
            if let Some(other) = beside {
                let message = format!("`{}` and `{}` lie in one another", path.value, other.value);
                return Err(read.reject(written, &message, Some("name the one above alone")));
            }
            state.directories.push(path);
        }
        for written in files {
            let path = read.sourced_path(written)?;
            if !path.value.is_entry() {
                let message = format!("`{}` is no entry of home itself", path.value);
                let hint = "name the directory that holds it in `directories`";
                return Err(read.reject(written, &message, Some(hint)));
            }
            state.files.push(path);
        }
        state.login = read.each(login, |read, written| state.part(read, written))?;
        state.settings = read.each(settings, |read, written| state.part(read, written))?;
        for (written, text) in initial {
            let path = read.sourced_path(written)?;
            let file = |file: &Sourced<HomePath>| file.value == path.value;
            if !state.files.iter().chain(&state.login).any(file) {
                let message = format!("`{}` is not made", path.value);
                let hint = "name it in `files` or `login`: these are made where they are missing";
                return Err(read.reject(written, &message, Some(hint)));
            }
            state.initial.push((path, read.text(text)?));
        }
        for section in seed {
            let seed = state.seed(read, section)?;
            state.seeds.push(seed);
        }
        for value in variables.values() {
            if value.get_ref().starts_with('~') {
                read.path(value)?;
            }
        }
        state.variables = read.variables(variables)?;
        Ok(state)
    }

    /// A login or settings path: not a whole directory of the state, nor one above it.
    fn part(&self, read: &Reader<'_>, written: &Text) -> Result<Sourced<HomePath>, ConfigError> {
        let path = read.sourced_path(written)?;
        let mut directories = self.directories.iter().map(|one| &one.value);
        if let Some(whole) = directories.find(|directory| directory.is_within(&path.value)) {
            let message = format!("`{}` holds the whole directory `{whole}`", path.value);
            let hint = "name what is in it, or take it out of `directories`";
            return Err(read.reject(written, &message, Some(hint)));
        }
        Ok(path)
    }

    fn seed(&self, read: &Reader<'_>, section: &SeedSection) -> Result<Seed, ConfigError> {
        let SeedSection {
            from,
            to,
            keys,
            back,
        } = section;
        let path = read.path(to)?;
        match self.directory_of(&path) {
            Some(directory) if *directory != path => {}
            _ => {
                let message = format!("`{path}` lies below no directory of the state");
                let hint = "a copy of the project's is kept in one of `directories`";
                return Err(read.reject(to, &message, Some(hint)));
            }
        }
        if self
            .login
            .iter()
            .chain(&self.settings)
            .any(|one| path.is_within(&one.value))
        {
            let message = format!("`{path}` is the user's own file, so that there is no copy");
            return Err(read.reject(to, &message, None));
        }
        if keys.is_empty() {
            let hint = "name the keys that the copy gets";
            return Err(read.reject(from, "no key of it is carried over", Some(hint)));
        }
        for value in back {
            let first = value.get_ref().split('.').next();
            if !keys.iter().any(|key| Some(key.get_ref().as_ref()) == first) {
                let message = format!("`{}` is not carried over", value.get_ref());
                let hint = "name its first part in `keys`";
                return Err(read.reject(value, &message, Some(hint)));
            }
        }
        Ok(Seed {
            from: read.path(from)?,
            to: path,
            keys: read.each(keys, Reader::line)?,
            back: read.each(back, Reader::line)?,
            source: read.source(from),
        })
    }
}
