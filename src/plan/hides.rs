//! Which paths are hidden: `files.hide` less `files.unhide`, as names and, where a hidden name is a
//! symbolic link, as the file it leads to.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::config::source::Sourced;
use crate::host::HostFacts;
use crate::host::files::{Files, Found, Kind, Look};
use crate::policy::paths::{Expansion, glob};
use crate::policy::{PathSpec, Policy};

/// One rule of `files.hide` below one directory.
#[derive(Clone, Debug)]
struct Hide {
    /// The directory, by its real path as far as it exists.
    parent: PathBuf,
    /// A name in it, or a pattern.
    name: OsString,
    rule: Sourced<PathSpec>,
}

/// A file that a rule hides and that exists.
#[derive(Clone, Debug)]
pub struct Hidden {
    /// Its path; no component but the last is a symbolic link.
    pub path: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// Whether the caller may read it at all.
    pub readable: bool,
    /// The rule.
    pub rule: Sourced<PathSpec>,
}

/// Everything that is hidden.
#[derive(Clone, Debug, Default)]
pub struct Hides {
    rules: Vec<Hide>,
    existing: Vec<Hidden>,
    exempt: Vec<(PathBuf, Sourced<PathSpec>)>,
}

/// `~` of another directory than the host's own home.
struct At<'a>(&'a HostFacts, &'a Path);

impl Expansion for At<'_> {
    fn home(&self) -> &Path {
        self.1
    }

    fn variable(&self, name: &str) -> Option<&OsStr> {
        self.0.variable(name)
    }
}

impl Hides {
    /// Applies the rules to this host.
    pub fn resolve(policy: &Policy, host: &HostFacts, files: &dyn Files) -> Self {
        let mut wanted: Vec<(PathBuf, &Sourced<PathSpec>)> = Vec::new();
        for (at, home) in host.homes().enumerate() {
            for rule in &policy.files.hide {
                if let Some(path) = rule.value.expand(&At(host, home)) {
                    // Rules that do not name the home expand alike for every home.
                    if at == 0 || path.starts_with(home) {
                        wanted.push((path, rule));
                    }
                }
            }
        }
        let mut hides = Self::default();
        for rule in &policy.files.unhide {
            if let Some(path) = rule.value.expand(host) {
                if let Look::Found(found) = files.look(&path) {
                    hides.exempt.push((found.real, rule.clone()));
                }
                hides
                    .exempt
                    .push((real_as_far_as_it_exists(files, &path), rule.clone()));
            }
        }
        // One listing of the home spares a look at each of the hundred names that are not there.
        let listings: Vec<(PathBuf, Option<Vec<OsString>>)> = host
            .homes()
            .map(|home| {
                let names = files
                    .entries(home)
                    .map(|all| all.into_iter().map(|entry| entry.name).collect());
                (home.to_path_buf(), names)
            })
            .collect();
        let may_exist = |path: &Path| {
            listings
                .iter()
                .all(|(home, names)| match (path.strip_prefix(home), names) {
                    (Ok(below), Some(names)) => {
                        let first = below
                            .components()
                            .next()
                            .map(|first| first.as_os_str().to_owned());
                        first.is_none_or(|first| {
                            first.as_bytes().contains(&b'*') || names.binary_search(&first).is_ok()
                        })
                    }
                    _ => true,
                })
        };
        let ask: Vec<PathBuf> = wanted
            .iter()
            .filter(|(path, rule)| !rule.value.is_pattern() && may_exist(path))
            .flat_map(|(path, _)| [path.clone(), path.parent().unwrap_or(path).to_path_buf()])
            .collect();
        files.prefetch(&ask);
        for (path, rule) in wanted {
            let exists = may_exist(&path);
            hides.add(files, &path, rule, exists);
        }
        hides
    }

    fn add(&mut self, files: &dyn Files, path: &Path, rule: &Sourced<PathSpec>, may_exist: bool) {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return;
        };
        let parent = if may_exist {
            real_as_far_as_it_exists(files, parent)
        } else {
            let home = parent
                .ancestors()
                .find(|above| matches!(files.look(above), Look::Found(_)));
            match home {
                Some(above) => join_rest(&real_as_far_as_it_exists(files, above), above, parent),
                None => parent.to_path_buf(),
            }
        };
        self.rules.push(Hide {
            parent: parent.clone(),
            name: name.to_owned(),
            rule: rule.clone(),
        });
        if !may_exist {
            return;
        }
        if rule.value.is_pattern() {
            for entry in files.entries(&parent).into_iter().flatten() {
                if glob(name.as_bytes(), entry.name.as_bytes()) {
                    self.add_existing(files, &parent.join(&entry.name), rule);
                }
            }
        } else {
            self.add_existing(files, &parent.join(name), rule);
        }
    }

    fn add_existing(&mut self, files: &dyn Files, path: &Path, rule: &Sourced<PathSpec>) {
        match files.look(path) {
            Look::Found(Found {
                real,
                kind,
                readable,
                links,
                ..
            }) => {
                let linked = links.iter().any(|(at, _)| at == path);
                let here = if linked { Kind::Link } else { kind };
                self.existing.push(Hidden {
                    path: path.to_path_buf(),
                    kind: here,
                    readable,
                    rule: rule.clone(),
                });
                if linked && real != path {
                    if let (Some(parent), Some(name)) = (real.parent(), real.file_name()) {
                        let (parent, name) = (parent.to_path_buf(), name.to_owned());
                        self.rules.push(Hide {
                            parent,
                            name,
                            rule: rule.clone(),
                        });
                    }
                    self.existing.push(Hidden {
                        path: real,
                        kind,
                        readable,
                        rule: rule.clone(),
                    });
                }
            }
            Look::Missing => {}
            // It cannot be looked at by the caller, so the jail cannot either; it is kept as
            // something unreadable that exists.
            Look::Denied(_) | Look::Hung => self.existing.push(Hidden {
                path: path.to_path_buf(),
                kind: Kind::Other,
                readable: false,
                rule: rule.clone(),
            }),
        }
    }

    /// The rule that hides `path` (a real path, existing or not), if one does.
    pub fn rule_for(&self, path: &Path) -> Option<&Sourced<PathSpec>> {
        let hide = self
            .rules
            .iter()
            .filter(|hide| hide.covers(path))
            .max_by_key(|hide| hide.parent.components().count())?;
        match self.exemption_for(path) {
            Some(exempt) if exempt.components().count() > hide.parent.components().count() => None,
            _ => Some(&hide.rule),
        }
    }

    /// The innermost entry of `files.unhide` at or above `path`.
    fn exemption_for(&self, path: &Path) -> Option<&Path> {
        self.exempt
            .iter()
            .map(|(exempt, _)| exempt.as_path())
            .filter(|exempt| path.starts_with(exempt))
            .max_by_key(|exempt| exempt.components().count())
    }

    /// The existing hidden files strictly below a directory.
    pub fn below<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = &'a Hidden> {
        self.existing()
            .filter(move |hidden| hidden.path != directory && hidden.path.starts_with(directory))
    }

    /// Every existing file that is hidden.
    pub fn existing(&self) -> impl Iterator<Item = &Hidden> {
        self.existing
            .iter()
            .filter(|hidden| self.rule_for(&hidden.path).is_some())
    }

    /// The directories in which rules stand, for telling where a hidden file might appear later.
    pub fn parents(&self) -> impl Iterator<Item = &Path> {
        self.rules.iter().map(|hide| hide.parent.as_path())
    }
}

impl Hide {
    fn covers(&self, path: &Path) -> bool {
        let Ok(below) = path.strip_prefix(&self.parent) else {
            return false;
        };
        below
            .components()
            .next()
            .is_some_and(|first| glob(self.name.as_bytes(), first.as_os_str().as_bytes()))
    }
}

/// `path` with the longest existing beginning replaced by its real path.
pub fn real_as_far_as_it_exists(files: &dyn Files, path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let Look::Found(found) = files.look(above) {
            return join_rest(&found.real, above, path);
        }
    }
    path.to_path_buf()
}

fn join_rest(real: &Path, above: &Path, path: &Path) -> PathBuf {
    match path.strip_prefix(above) {
        Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
        _ => real.to_path_buf(),
    }
}
