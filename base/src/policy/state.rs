//! What becomes of `[profile.state]`: entries of the lists of that profile's layer, according to
//! `agents.state`. So the site's bounds narrow a profile's state like anything else that is asked for,
//! and nothing is given by it that the lists could not give.

use super::clamp::Gives;
use super::paths::PathSpec;
use super::stated::Stated;
use super::values::{AgentState, Stricter};
use crate::config::agent::{HomePath, Seed, State};
use crate::config::source::{Source, Sourced};

/// What the state of the profiles in use needs besides the lists.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// What is made in the home where it is missing.
    pub made: Vec<Made>,
    /// Keys of files that kept files begin with.
    pub seeds: Vec<Sourced<Carried>>,
    /// Login files. One that is made in a kept directory is carried out.
    pub logins: Vec<Sourced<PathSpec>>,
}

/// Something of an agent's that is made where it is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its place.
    pub path: Sourced<PathSpec>,
    /// Of a file what it begins with; a directory otherwise.
    pub text: Option<String>,
}

/// Keys of a JSON file that a kept file begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The user's file.
    pub from: PathSpec,
    /// The kept file.
    pub to: PathSpec,
    /// The keys.
    pub keys: Vec<String>,
    /// Values that come back.
    pub back: Vec<String>,
}

/// Whose an agent's state is, of all layers: those that anybody may override, weakest first, and the
/// enforced ones.
pub(super) fn whose<'a>(
    open: impl Iterator<Item = &'a Stated>,
    enforced: impl Iterator<Item = &'a Stated>,
) -> AgentState {
    let says = |layer: &'a Stated| Some(layer.agents.state.get()?.value);
    let asked = open.filter_map(says).last().unwrap_or(AgentState::Project);
    enforced
        .filter_map(says)
        .fold(asked, |state, bound| state.stricter(&bound))
}

impl Wanted {
    /// Puts the state of one profile into the lists of its layer.
    pub(super) fn expand(&mut self, state: &State, whose: AgentState, layer: &mut Stated) {
        let add = |list: &mut Gives<PathSpec>, paths: &[Sourced<HomePath>]| {
            list.list().extend(paths.iter().filter_map(spec));
        };
        add(&mut layer.home.write, &state.login);
        add(&mut layer.files.unhide, &state.login);
        // Read-only also where something wider is writable.
        add(&mut layer.home.read, &state.settings);
        let settings = state.settings.iter().filter_map(spec);
        layer.home.protect.list().extend(settings);
        let made = match whose {
            AgentState::Shared => {
                for paths in [&state.directories, &state.files] {
                    add(&mut layer.home.write, paths);
                    add(&mut layer.files.unhide, paths);
                }
                let directories = state.directories.iter().filter_map(|path| {
                    let path = spec(path)?;
                    Some(Made { path, text: None })
                });
                self.made.extend(directories);
                // A login whose copy each project would have.
                for seed in state.seeds.iter().filter(|seed| seed.from == seed.to) {
                    let path = [Sourced::new(seed.from.clone(), seed.source.clone())];
                    add(&mut layer.files.unhide, &path);
                    if seed.back.is_empty() {
                        add(&mut layer.home.read, &path);
                        layer
                            .home
                            .protect
                            .list()
                            .extend(path.iter().filter_map(spec));
                    } else {
                        add(&mut layer.home.write, &path);
                    }
                }
                let files = state.files.iter();
                files.filter_map(|path| state.made(path, true)).collect()
            }
            AgentState::Project => {
                add(&mut layer.home.keep, &state.directories);
                self.seeds.extend(state.seeds.iter().filter_map(carried));
                self.logins.extend(state.login.iter().filter_map(spec));
                for (name, value) in &state.variables {
                    let own = layer.env.set.entries().iter();
                    if own.clone().all(|set| set.value.0 != name.value) {
                        let pair = |name| (name, value.clone());
                        layer.env.set.set(name.clone().map(pair));
                    }
                }
                Vec::new()
            }
        };
        self.made.extend::<Vec<Made>>(made);
        // One in a directory of the state can be made inside.
        let alone = state
            .login
            .iter()
            .filter(|path| state.directory_of(&path.value).is_none());
        self.made
            .extend(alone.filter_map(|path| state.made(path, false)));
    }
}

impl State {
    /// A file that is made where it is missing: with what it begins with, or empty if that may be.
    fn made(&self, path: &Sourced<HomePath>, empty: bool) -> Option<Made> {
        let mut initial = self.initial.iter();
        let text = initial.find(|(of, _)| of.value == path.value);
        let text = text.map(|(_, text)| text.clone());
        let text = text.or_else(|| empty.then(String::new))?;
        Some(Made {
            path: spec(path)?,
            text: Some(text),
        })
    }
}

/// A path of a profile's as the lists have it. Each is one: it was read as `~/NAME/…` without `..`.
fn spec(path: &Sourced<HomePath>) -> Option<Sourced<PathSpec>> {
    Some(Sourced::new(parsed(&path.value)?, path.source.clone()))
}

fn parsed(path: &HomePath) -> Option<PathSpec> {
    PathSpec::parse(path.written()).ok()
}

fn carried(seed: &Seed) -> Option<Sourced<Carried>> {
    let source: Source = seed.source.clone();
    let all = Carried {
        from: parsed(&seed.from)?,
        to: parsed(&seed.to)?,
        keys: seed.keys.clone(),
        back: seed.back.clone(),
    };
    Some(Sourced::new(all, source))
}
