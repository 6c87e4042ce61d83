//! The bounds of the site's enforced layers on this host: what may be given at which real path.
//!
//! A path below the home that the user database names is judged by the lists of `[home]`, any other
//! by those of `[files]`, whatever the list is that asks for it. What can be written can be read, so
//! both lists have to allow it; entries of an enforced list `write` may be read as well.

use std::path::{Path, PathBuf};

use super::step::Access;
use crate::config::source::Sourced;
use crate::host::HostFacts;
use crate::host::files::{Files, real_as_far_as_it_exists};
use crate::host::mount_table::Alias;
use crate::host::places::{Places, steady};
use crate::policy::clamp::Gives;
use crate::policy::stated::Stated;
use crate::policy::{Clamped, PathSpec, Policy};

/// The enforced list that does not hold something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusing {
    /// The key of the list.
    pub key: &'static str,
    /// Its entries as text, and its place.
    pub list: Sourced<String>,
}

impl Refusing {
    /// The note that something was clamped to this list.
    pub fn clamped(&self, key: &'static str, asked: Sourced<String>) -> Clamped {
        let key_here = self.key;
        let allowed = self.list.clone();
        let allowed = match key_here == key {
            true => allowed,
            false => allowed.map(|list| format!("{key_here} {list}")),
        };
        Clamped {
            key,
            asked,
            allowed,
        }
    }
}

/// One list of one enforced layer.
#[derive(Clone, Debug)]
struct List {
    key: &'static str,
    places: Places,
    shown: Sourced<String>,
}

impl List {
    fn refusing(&self) -> Refusing {
        Refusing {
            key: self.key,
            list: self.shown.clone(),
        }
    }
}

/// The lists of one enforced layer that bound paths; `None`: it bounds nothing.
#[derive(Clone, Debug)]
struct Lists {
    parents: Option<List>,
    home: Pair,
    files: Pair,
    seed: Option<List>,
    keep: Option<List>,
    unhide: Option<List>,
    devices: Option<List>,
}

/// What may be read and written in one part of the file system.
#[derive(Clone, Debug)]
struct Pair {
    read: Option<List>,
    write: Option<List>,
}

impl Pair {
    /// The list that does not let a place be given.
    fn refusing(&self, place: &Path, access: Access) -> Option<Refusing> {
        let holds = |list: &List| list.places.hold(place);
        let written = self.write.as_ref().map(holds);
        let readable = written == Some(true) || self.read.as_ref().is_none_or(holds);
        let refusing = match access {
            Access::Write if written == Some(false) => &self.write,
            _ if !readable => &self.read,
            _ => return None,
        };
        refusing.as_ref().map(List::refusing)
    }

    fn lists(&self) -> impl Iterator<Item = &List> {
        self.read.iter().chain(&self.write)
    }
}

/// All bounds, by place.
#[derive(Clone, Debug, Default)]
pub struct SiteBounds {
    layers: Vec<Lists>,
    /// The home of the user database, by its real path.
    home: Option<PathBuf>,
    /// Its other names, and those of directories below it.
    aliases: Vec<Alias>,
    /// `$HOME`, over which every jail has a file system of its own.
    covered: PathBuf,
}

impl SiteBounds {
    /// Finds the places that the enforced layers mean.
    pub fn resolve(policy: &Policy, host: &HostFacts, files: &dyn Files) -> Self {
        if policy.bounds.is_empty() {
            return Self::default();
        }
        let home = host.database_home().map(|home| steady(files, &home));
        let list = |key, gives: &Gives<PathSpec>| {
            let entries = gives.bound()?.iter().map(|entry| &entry.value);
            Some(List {
                key,
                places: Places::of(entries, host, files),
                shown: gives.shown()?,
            })
        };
        let lists = |layer: &Stated| Lists {
            parents: list("project.parents", &layer.project.parents),
            home: Pair {
                read: list("home.read", &layer.home.read),
                write: list("home.write", &layer.home.write),
            },
            files: Pair {
                read: list("files.read", &layer.files.read),
                write: list("files.write", &layer.files.write),
            },
            seed: list("home.seed", &layer.home.seed),
            keep: list("home.keep", &layer.home.keep),
            unhide: list("files.unhide", &layer.files.unhide),
            devices: list("devices.allow", &layer.devices.allow),
        };
        let of_home = |alias: &&Alias| home.as_ref().is_some_and(|home| alias.of.starts_with(home));
        Self {
            layers: policy.bounds.layers.iter().map(lists).collect(),
            aliases: host.home_aliases.iter().filter(of_home).cloned().collect(),
            covered: real_as_far_as_it_exists(files, &host.home),
            home,
        }
    }

    /// The list that does not let a real path be given; `None` if none refuses it.
    pub fn refusing(&self, real: &Path, access: Access) -> Option<Refusing> {
        let place = self.usual_name(real);
        let is_home = self.in_home(&place);
        self.layers.iter().find_map(|layer| {
            let pair = if is_home { &layer.home } else { &layer.files };
            let refusing = pair.refusing(&place, access);
            // What holds the home, or a part of it by another name, gives that as well.
            let mut within = self.names_below(real);
            refusing.or_else(|| within.find_map(|of| layer.home.refusing(of, access)))
        })
    }

    /// The places below a real path of which each enforced list may hold one, to be judged each.
    pub fn parts(&self, real: &Path, files: &dyn Files) -> Vec<PathBuf> {
        let lists = self
            .layers
            .iter()
            .flat_map(|layer| layer.home.lists().chain(layer.files.lists()));
        below(lists, real, files)
    }

    /// As [`SiteBounds::parts`], of lists that bound private copies.
    pub fn seed_parts(&self, real: &Path, files: &dyn Files) -> Vec<PathBuf> {
        let seeds = self.layers.iter().filter_map(|layer| layer.seed.as_ref());
        let mut all = self.parts(real, files);
        all.extend(below(seeds, real, files));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The list that lets no private copy be made of a real path. A copy can be read, so that a layer
    /// which says nothing of copies bounds them by what may be read.
    pub fn refusing_seed(&self, real: &Path) -> Option<Refusing> {
        let place = self.usual_name(real);
        let is_home = self.in_home(&place);
        self.layers.iter().find_map(|layer| match &layer.seed {
            Some(seed) => (!seed.places.hold(&place)).then(|| seed.refusing()),
            None => {
                let pair = if is_home { &layer.home } else { &layer.files };
                pair.refusing(&place, Access::Read)
            }
        })
    }

    /// The list that does not let something of the jail's own be kept at a place. It shows nothing that
    /// the home has, so that no other list bounds it.
    pub fn refusing_keep(&self, at: &Path) -> Option<Refusing> {
        let place = self.usual_name(at);
        let mut lists = self.layers.iter().filter_map(|layer| layer.keep.as_ref());
        let refusing = lists.find(|list| !list.places.hold(&place));
        refusing.map(List::refusing)
    }

    /// As [`SiteBounds::parts`], of lists that bound what is kept.
    pub fn keep_parts(&self, at: &Path, files: &dyn Files) -> Vec<PathBuf> {
        let lists = self.layers.iter().filter_map(|layer| layer.keep.as_ref());
        below(lists, at, files)
    }

    /// The list that lets a directory be no project.
    pub fn refusing_project(&self, real: &Path) -> Option<Refusing> {
        let place = self.usual_name(real);
        let mut lists = self
            .layers
            .iter()
            .filter_map(|layer| layer.parents.as_ref());
        let refusing = lists.find(|list| !list.places.hold(&place));
        refusing.map(List::refusing)
    }

    /// The list that lets no repository be given, writable, to a worktree that stands elsewhere: it must
    /// lie where a project may, or where writing is allowed.
    pub fn refusing_repository(&self, real: &Path) -> Option<Refusing> {
        let place = self.usual_name(real);
        let is_home = self.in_home(&place);
        self.layers.iter().find_map(|layer| {
            let parents = layer.parents.as_ref();
            if parents.is_some_and(|list| list.places.hold(&place)) {
                return None;
            }
            let pair = if is_home { &layer.home } else { &layer.files };
            pair.refusing(&place, Access::Write)
        })
    }

    /// The list that allows no exception from a hide at this place; its last name may be a pattern.
    pub fn refusing_exception(&self, path: &Path, files: &dyn Files) -> Option<Refusing> {
        let mut lists = self.layers.iter().filter_map(|layer| layer.unhide.as_ref());
        let by_name = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => real_as_far_as_it_exists(files, parent).join(name),
            _ => path.to_path_buf(),
        };
        // The name itself may be a link, which hides what it leads to as well.
        let both = [real_as_far_as_it_exists(files, path), by_name];
        let places = both.map(|path| self.usual_name(&path));
        let refusing = lists.find(|list| !places.iter().all(|place| list.places.hold(place)));
        refusing.map(List::refusing)
    }

    /// The list that does not let a device node appear.
    pub fn refusing_device(&self, real: &Path) -> Option<Refusing> {
        let mut lists = self
            .layers
            .iter()
            .filter_map(|layer| layer.devices.as_ref());
        let refusing = lists.find(|list| !list.places.hold(real));
        refusing.map(List::refusing)
    }

    /// The name by which rules know a path that has several.
    pub(super) fn usual_name(&self, real: &Path) -> PathBuf {
        let by_alias = self.aliases.iter().filter_map(|alias| {
            let below = real.strip_prefix(&alias.at).ok()?;
            let depth = alias.at.components().count();
            Some((depth, alias.of.join(below).components().collect()))
        });
        let deepest = by_alias.max_by_key(|(depth, _)| *depth);
        deepest.map_or_else(|| real.to_path_buf(), |(_, name)| name)
    }

    fn in_home(&self, place: &Path) -> bool {
        self.home
            .as_ref()
            .is_some_and(|home| place.starts_with(home))
    }

    /// What of the home appears below a real path without being covered: the places in the home.
    fn names_below<'a>(&'a self, real: &'a Path) -> impl Iterator<Item = &'a Path> {
        let home = self
            .home
            .iter()
            .map(|home| (home.as_path(), home.as_path()));
        let aliases = self.aliases.iter();
        let names = aliases.map(|alias| (alias.at.as_path(), alias.of.as_path()));
        let inside = home.chain(names).filter(move |(at, of)| {
            let below = *at != real && at.starts_with(real) && *at != self.covered;
            // Below the home itself its own lists have judged the whole.
            below && !(of.starts_with(real) && self.in_home(real))
        });
        inside.map(|(_, of)| of)
    }
}

fn below<'a>(
    lists: impl Iterator<Item = &'a List>,
    real: &Path,
    files: &dyn Files,
) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = lists
        .flat_map(|list| list.places.below(real, files))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}
