//! The places that the paths of an enforced policy mean on this host. What they mean must not depend
//! on what a user, or an agent of an earlier session, can choose: `~` is the home that the user
//! database names, and of symbolic links those alone are followed that only root can have made.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::facts::HostFacts;
use super::files::Files;
use super::found::{Kind, Look};
use crate::policy::PathSpec;
use crate::policy::paths::{Expansion, glob};

/// As many links as the kernel follows in one path (`path_resolution(7)`).
const MOST_LINKS: usize = 40;

/// Places of this host.
#[derive(Clone, Debug, Default)]
pub struct Places {
    all: Vec<Subtree>,
}

/// A path with all that is below it, or the names in a directory that a pattern matches.
#[derive(Clone, Debug)]
struct Subtree {
    at: PathBuf,
    pattern: Option<OsString>,
}

impl Subtree {
    fn holds(&self, path: &Path) -> bool {
        let Ok(below) = path.strip_prefix(&self.at) else {
            return false;
        };
        let Some(pattern) = &self.pattern else {
            return true;
        };
        let first = below.components().next();
        first.is_some_and(|name| glob(pattern.as_bytes(), name.as_os_str().as_bytes()))
    }
}

/// `~` by the user database, and no variables.
struct OfDatabase<'a>(&'a Path);

impl Expansion for OfDatabase<'_> {
    fn home(&self) -> &Path {
        self.0
    }

    fn variable(&self, _: &str) -> Option<&OsStr> {
        None
    }
}

impl Places {
    /// The places that paths of an enforced policy mean. A path below a home that the user database
    /// does not name means nothing, and so does what a user's link leads elsewhere.
    pub fn of<'a>(
        specs: impl Iterator<Item = &'a PathSpec>,
        host: &HostFacts,
        files: &dyn Files,
    ) -> Self {
        let home = host.database_home();
        let mut places = Self::default();
        for spec in specs {
            let path = match &home {
                Some(home) => spec.expand(&OfDatabase(home)),
                None if spec.names_home() => None,
                None => spec.expand(&OfDatabase(Path::new("/"))),
            };
            if let Some(path) = path {
                places.add(&path, spec.is_pattern(), files);
            }
        }
        places
    }

    fn add(&mut self, path: &Path, is_pattern: bool, files: &dyn Files) {
        let (Some(parent), Some(name), true) = (path.parent(), path.file_name(), is_pattern) else {
            let at = steady(files, path);
            self.all.push(Subtree { at, pattern: None });
            return;
        };
        let at = steady(files, parent);
        for entry in files.entries(&at).unwrap_or_default().iter() {
            // What a link of root's leads to bears another name.
            if entry.kind == Kind::Link && glob(name.as_bytes(), entry.name.as_bytes()) {
                let at = steady(files, &at.join(&entry.name));
                self.all.push(Subtree { at, pattern: None });
            }
        }
        let pattern = Some(name.to_owned());
        self.all.push(Subtree { at, pattern });
    }

    /// Whether a real path is one of the places or lies below one.
    pub fn hold(&self, path: &Path) -> bool {
        self.all.iter().any(|place| place.holds(path))
    }

    /// The places below a real path, as far as they exist.
    pub fn below(&self, path: &Path, files: &dyn Files) -> Vec<PathBuf> {
        let mut all = Vec::new();
        for place in &self.all {
            match &place.pattern {
                None => all.push(place.at.clone()),
                Some(pattern) if place.at.starts_with(path) || path.starts_with(&place.at) => {
                    let entries = files.entries(&place.at).unwrap_or_default();
                    let fitting = entries
                        .iter()
                        .filter(|entry| glob(pattern.as_bytes(), entry.name.as_bytes()));
                    all.extend(fitting.map(|entry| place.at.join(&entry.name)));
                }
                Some(_) => {}
            }
        }
        all.retain(|at| at != path && at.starts_with(path));
        all
    }
}

/// A path with the symbolic links followed that only root can have made: links in directories that
/// are root's up to the top, and that nobody else can write. From the first other link on the path
/// stays as it is written, and then it is the real path of nothing.
pub fn steady(files: &dyn Files, path: &Path) -> PathBuf {
    let mut ahead: VecDeque<OsString> = names(path).collect();
    let mut here = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            here.pop();
            continue;
        }
        let next = here.join(&name);
        let followed = match files.look(&next) {
            Look::Found(found) => found.links.into_iter().next(),
            _ => return ahead.iter().fold(next, |path, name| path.join(name)),
        };
        let Some((at, target)) = followed else {
            here = next;
            continue;
        };
        if at != next || links == MOST_LINKS || !is_roots(files, &here) {
            return ahead.iter().fold(next, |path, name| path.join(name));
        }
        links += 1;
        if target.is_absolute() {
            here = PathBuf::from("/");
        }
        for name in names(&target).collect::<Vec<_>>().into_iter().rev() {
            ahead.push_front(name);
        }
    }
    here
}

fn names(path: &Path) -> impl Iterator<Item = OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    };
    path.components()
        .filter_map(name)
        .collect::<Vec<_>>()
        .into_iter()
}

/// Whether root alone can have made what stands in a directory (by its real path).
fn is_roots(files: &dyn Files, directory: &Path) -> bool {
    let roots = |above| match files.look(above) {
        Look::Found(found) => found.uid == 0 && found.mode & 0o022 == 0,
        _ => false,
    };
    directory.ancestors().all(roots)
}
