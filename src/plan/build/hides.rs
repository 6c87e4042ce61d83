//! Which paths are hidden: `files.hide` less `files.unhide`, as names and, where a hidden name is a
//! symbolic link, as the file it leads to. Besides, what no policy can show: the sockets of Slurm's
//! authority and of its daemons, and where tasks of a job meet.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::config::source::{Layer, Source, Sourced};
use crate::host::HostFacts;
use crate::host::files::{
    Files, Found, Kind, Look, links_as_far_as_it_exists, may_be_a_link, real_as_far_as_it_exists,
    stalled_on_the_way,
};
use crate::host::slurm::Named;
use crate::plan::model::bounds::Ground;
use crate::plan::model::hides::{Hidden, Hides, OfSlurm, Unknown};
use crate::plan::model::kept;
use crate::policy::paths::{Expansion, glob};
use crate::policy::{Narrowed, PathSpec, Policy};

/// Listing a directory costs about as much as this many looks into it.
const WORTH_LISTING: usize = 6;

/// `~` of another directory than the host's own home.
struct At<'a>(&'a HostFacts, &'a Path);

impl Expansion for At<'_> {
    fn home(&self) -> &Path {
        self.1
    }

    fn variable(&self, name: &str) -> Option<&OsStr> {
        self.0.path_variable(name)
    }

    fn other_value(&self, name: &str) -> Option<&OsStr> {
        self.0.other_path_variable(name)
    }
}

impl Named {
    /// A rule that hides the path. One that no rule can name would not be a socket's.
    fn rule(&self) -> Option<Sourced<PathSpec>> {
        let spec = PathSpec::absolute(&self.path).ok()?;
        Some(Sourced::new(spec, self.source()))
    }

    /// The place that names it.
    pub fn source(&self) -> Source {
        let file = self.file.display().to_string().into();
        Source::in_file(Layer::SiteDefaults, file, self.line)
    }
}

impl Hides {
    /// Applies the rules to this host.
    pub fn resolve(policy: &Policy, host: &HostFacts, files: &dyn Files, ground: &Ground) -> Self {
        let mut wanted: Vec<(PathBuf, &Sourced<PathSpec>)> = Vec::new();
        let (exceptions, narrowed) = exceptions(policy, host, files, ground);
        // An exception cancels the rule that it names, word for word, and nothing else: what stands
        // at the path may be a link that a jail planted. It cancels no rule of an enforced layer.
        let excepted = |rule: &Sourced<PathSpec>| {
            // Nor one of a stronger layer: a profile opens nothing that the user has closed.
            let names = |other: &&Sourced<PathSpec>| {
                other.value == rule.value && rule.source.layer <= other.source.layer
            };
            rule.source.layer != Layer::SiteEnforced && exceptions.iter().any(names)
        };
        let hides = || policy.files.hide.iter().filter(|rule| !excepted(rule));
        // What a site hides in a home is that of the user database, too, where that is `/`.
        if let Some(home) = host
            .database_home()
            .filter(|home| host.homes().all(|at| at != home))
        {
            for rule in hides().filter(|rule| rule.source.layer == Layer::SiteEnforced) {
                let paths = rule.value.expand_list(&At(host, &home));
                wanted.extend(paths.into_iter().map(|path| (path, rule)));
            }
        }
        for (at, home) in host.homes().enumerate() {
            for rule in hides() {
                for path in rule.value.expand_list(&At(host, home)) {
                    // Rules that do not name the home expand alike for every home.
                    if at == 0 || path.starts_with(home) {
                        wanted.push((path, rule));
                    }
                }
            }
        }
        // What proves to Slurm who the user is, and what obeys whoever is, wherever this site has
        // put it.
        let mut fixed = Vec::new();
        if let Some(slurm) = &host.slurm {
            let sockets = slurm.sockets.iter().map(|it| (it, OfSlurm::Authority));
            let spools = slurm.spools.iter().map(|it| (it, OfSlurm::Spool));
            let rules = sockets
                .chain(spools)
                .filter_map(|(named, what)| Some((named.rule()?, what)));
            fixed.extend(rules);
        }
        for (rule, _) in &fixed {
            wanted.extend(rule.value.expand(host).map(|path| (path, rule)));
        }
        // Under the other names of a home, too.
        if !host.home_aliases.is_empty() {
            let mut more = Vec::new();
            for (path, rule) in &wanted {
                let real = host
                    .homes()
                    .zip(&host.home_reals)
                    .find_map(|(home, real)| Some(real.join(path.strip_prefix(home).ok()?)));
                let real = real.as_deref().unwrap_or(path);
                more.extend(
                    host.home_aliases
                        .iter()
                        .filter_map(|alias| Some((alias.name_of(real)?, *rule))),
                );
            }
            wanted.extend(more);
        }
        let mut hides = Self {
            fixed: fixed.clone(),
            narrowed,
            ..Self::default()
        };
        // Not among what exists: `meeting` covers the place, whatever stands there or will.
        for place in &host.meeting_places {
            if let Ok(spec) = PathSpec::absolute(place) {
                hides.add_rule(place, &Sourced::new(spec, Self::own()));
            }
        }
        // What other projects keep, whatever is made an exception from: no list shows it.
        let kept = kept::stores(&real_as_far_as_it_exists(files, &host.state_directory));
        let names = host.home_aliases.iter();
        let names: Vec<PathBuf> = names.filter_map(|alias| alias.name_of(&kept)).collect();
        // Where the tracer listens: it believes who speaks by their user id.
        let socket = policy.trace.socket.value.clone();
        let kept: Vec<(PathBuf, Sourced<PathSpec>)> = [kept, socket]
            .into_iter()
            .chain(names)
            .filter_map(|at| {
                Some((
                    at.clone(),
                    Sourced::new(PathSpec::absolute(&at).ok()?, Self::own()),
                ))
            })
            .collect();
        wanted.extend(kept.iter().map(|(at, rule)| (at.clone(), rule)));
        // One listing of the home spares a look at each of the hundreds of names that are not there.
        let homes: Vec<Listed<'_>> = host.homes().map(|home| Listed::of(files, home)).collect();
        let absent: Vec<Option<PathBuf>> = wanted
            .iter()
            .map(|(path, _)| homes.iter().find_map(|home| home.absent(path)))
            .collect();
        // The same for directories that many rules name: ~/.config, /etc.
        let mut named: HashMap<&OsStr, usize> = HashMap::new();
        for ((path, _), _) in wanted
            .iter()
            .zip(&absent)
            .filter(|(_, absent)| absent.is_none())
        {
            *named
                .entry(path.parent().unwrap_or(path).as_os_str())
                .or_default() += 1;
        }
        for (directory, _) in named
            .into_iter()
            .filter(|(_, count)| *count >= WORTH_LISTING)
        {
            files.entries(Path::new(directory));
        }
        // Their directories first: in one that is missing, nothing needs a look.
        let open = || {
            wanted
                .iter()
                .zip(&absent)
                .filter(|(_, absent)| absent.is_none())
        };
        let parents: Vec<PathBuf> = open()
            .filter_map(|((path, _), _)| path.parent().map(Path::to_path_buf))
            .collect();
        files.prefetch(&parents);
        let paths: Vec<PathBuf> = open()
            .filter(|((_, rule), _)| !rule.value.is_pattern())
            .map(|((path, _), _)| path.clone())
            .collect();
        files.prefetch(&paths);
        for ((path, rule), absent) in wanted.into_iter().zip(absent) {
            match absent {
                Some(real) => hides.add_rule(&real, rule),
                None => hides.add(files, &path, rule),
            }
        }
        let mut existing = std::mem::take(&mut hides.existing);
        existing.retain(|hidden| hides.rule_for(&hidden.path).is_some());
        hides.existing = existing;
        hides
    }

    fn add_rule(&mut self, path: &Path, rule: &Sourced<PathSpec>) {
        if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
            let here = self.rules.entry(parent.into()).or_default();
            here.push((name.to_owned(), rule.clone()));
        }
    }

    fn add(&mut self, files: &dyn Files, path: &Path, rule: &Sourced<PathSpec>) {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return;
        };
        if let Some(at) = stalled_on_the_way(files, parent) {
            self.stalled.push((at, rule.clone()));
        }
        let on_the_way = links_as_far_as_it_exists(files, parent);
        self.links
            .extend(on_the_way.into_iter().map(|at| (at, rule.clone())));
        let parent = real_as_far_as_it_exists(files, parent);
        self.add_rule(&parent.join(name), rule);
        if rule.value.is_pattern() {
            let entries = files.entries(&parent);
            if entries.is_none() && self.should_list(files, &parent) {
                self.unknown.push(Unknown {
                    directory: parent.clone(),
                    reason: "cannot be listed, or holds too many entries",
                    rule: rule.clone(),
                });
            }
            for entry in entries.into_iter().flatten() {
                if glob(name.as_bytes(), entry.name.as_bytes()) {
                    self.add_existing(files, &parent.join(&entry.name), rule);
                }
            }
        } else {
            self.add_existing(files, &parent.join(name), rule);
        }
    }

    /// Whether a directory without a listing is one that the caller could have listed.
    fn should_list(&self, files: &dyn Files, directory: &Path) -> bool {
        match files.look(directory) {
            Look::Found(found) => found.kind == Kind::Directory && found.readable,
            Look::Closed(_) | Look::Hung => true,
            Look::Missing | Look::Denied(_) => false,
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
                self.links
                    .extend(links.iter().map(|(at, _)| (at.clone(), rule.clone())));
                let linked = links.iter().any(|(at, _)| at == path);
                let here = if linked { Kind::Link } else { kind };
                self.existing.push(Hidden {
                    path: path.to_path_buf(),
                    kind: here,
                    readable,
                    rule: rule.clone(),
                });
                if linked && real != path {
                    self.add_rule(&real, rule);
                    self.existing.push(Hidden {
                        path: real,
                        kind,
                        readable,
                        rule: rule.clone(),
                    });
                }
            }
            Look::Missing => {}
            Look::Closed(directory) => self.unknown.push(Unknown {
                directory,
                reason: "may not be searched, and a jail could open it again (chmod u+rwx)",
                rule: rule.clone(),
            }),
            // The caller cannot get at it, so the jail cannot either.
            Look::Denied(libc::EACCES) => {}
            Look::Denied(_) => self.push(path, Kind::Other, false, rule),
            // A link may lead to what is shown under another name.
            Look::Hung if may_be_a_link(files, path) => {
                self.stalled.push((path.to_path_buf(), rule.clone()));
            }
            // It may answer later. It can be left out of a directory that is taken apart, but not
            // covered: mounting something on it would wait for it, too.
            Look::Hung => self.push(path, Kind::Hung, true, rule),
        }
    }

    fn push(&mut self, path: &Path, kind: Kind, readable: bool, rule: &Sourced<PathSpec>) {
        self.existing.push(Hidden {
            path: path.to_path_buf(),
            kind,
            readable,
            rule: rule.clone(),
        });
    }
}

/// The exceptions that enforced layers allow, by the places that they name in every home, and notes of
/// the others.
fn exceptions<'a>(
    policy: &'a Policy,
    host: &HostFacts,
    files: &dyn Files,
    ground: &Ground,
) -> (Vec<&'a Sourced<PathSpec>>, Vec<Narrowed>) {
    let mut narrowed = Vec::new();
    let refusing = |rule: &Sourced<PathSpec>| {
        let mut places = host
            .homes()
            .flat_map(|home| rule.value.expand_list(&At(host, home)));
        places.find_map(|place| ground.refusing_exception(&place, files))
    };
    let allowed = policy.files.unhide.iter().filter(|rule| {
        let refusing = refusing(rule);
        let asked = || (*rule).clone().map(|path| path.to_string());
        narrowed.extend(
            refusing
                .iter()
                .map(|list| list.narrowed("files.unhide", asked())),
        );
        // What an enforced layer hides as well stays hidden.
        let by_site = policy
            .files
            .hide
            .iter()
            .find(|hide| hide.value == rule.value && hide.source.layer == Layer::SiteEnforced);
        narrowed.extend(by_site.map(|hide| Narrowed {
            key: "files.unhide",
            asked: asked(),
            allowed: hide.clone().map(|path| format!("files.hide `{path}`")),
        }));
        refusing.is_none()
    });
    let allowed = allowed.collect();
    (allowed, narrowed)
}

/// A home directory and the names in it.
struct Listed<'a> {
    home: &'a Path,
    real: PathBuf,
    names: Option<Vec<OsString>>,
}

impl<'a> Listed<'a> {
    fn of(files: &dyn Files, home: &'a Path) -> Self {
        let names = files
            .entries(home)
            .map(|all| all.into_iter().map(|entry| entry.name).collect());
        Self {
            home,
            real: real_as_far_as_it_exists(files, home),
            names,
        }
    }

    /// The real path of something in this home of which it is certain that it does not exist.
    fn absent(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(self.home).ok()?;
        let first = below.components().next()?.as_os_str();
        let names = self.names.as_ref()?;
        let unknown = first.as_bytes().contains(&b'*')
            || names
                .binary_search_by(|name| name.as_bytes().cmp(first.as_bytes()))
                .is_ok();
        (!unknown).then(|| self.real.join(below))
    }
}
