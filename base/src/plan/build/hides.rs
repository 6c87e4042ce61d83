//! Which paths are hidden: `files.hide` less `files.unhide`, as names and, where a hidden name is a
//! symbolic link, as the file it leads to. Besides, what no policy can show: the sockets of Slurm's
//! authority and of its daemons, and where tasks of a job meet.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::other_homes;
use crate::config::source::{Layer, Source, Sourced};
use crate::host::HostFacts;
use crate::host::files::{
    Entry, Files, Found, Kind, Look, links_as_far_as_it_exists, list_what_many_name, may_be_a_link,
    may_be_in, real_as_far_as_it_exists, split, stalled_on_the_way,
};
use crate::host::slurm::Named;
use crate::plan::model::bounds::SiteBounds;
use crate::plan::model::hides::{Hidden, Hides, OfSlurm, Unknown};
use crate::plan::model::other_homes::OtherHomes;
use crate::plan::model::persistent;
use crate::policy::paths::{Expansion, glob};
use crate::policy::{Clamped, PathSpec, Policy};

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
    pub fn resolve(
        policy: &Policy,
        host: &HostFacts,
        files: &dyn Files,
        site_bounds: &SiteBounds,
    ) -> Self {
        let mut wanted: Vec<(PathBuf, &Sourced<PathSpec>)> = Vec::new();
        let (exceptions, clamped) = exceptions(policy, host, files, site_bounds);
        // An exception cancels the rule that it names, word for word, and nothing else: what stands
        // at the path may be a link that a jail planted. It cancels no rule of an enforced layer.
        let excepted = |rule: &Sourced<PathSpec>| {
            // Nor one of a stronger layer: a profile opens nothing that the user has closed.
            let names = |other: &&Sourced<PathSpec>| {
                other.value == rule.value && rule.source.layer <= other.source.layer
            };
            rule.source.layer != Layer::SiteEnforced && exceptions.iter().any(names)
        };
        let all_hides = policy.files.hide.iter().filter(|rule| !excepted(rule));
        let (of_homes, others): (Vec<_>, Vec<_>) =
            all_hides.partition(|rule| rule.value.other_homes().is_some());
        let other_homes = of_homes
            .into_iter()
            .filter_map(|rule| other_homes::resolve(rule, host, files))
            .collect();
        let hides = || others.iter().copied();
        // What a site hides in a home is that of the user database, too, where that is `/`.
        if let Some(home) = host
            .database_home()
            .filter(|home| host.homes().all(|at| at != home))
        {
            for rule in hides().filter(|rule| rule.source.layer == Layer::SiteEnforced) {
                let paths = rule.value.expand_list(&At(host, &home));
                wanted.extend(paths.map(|path| (path, rule)));
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
            clamped,
            other_homes,
            ..Self::default()
        };
        // Not among what exists: `meeting` covers the place, whatever stands there or will.
        for place in &host.join_directories {
            if let Ok(spec) = PathSpec::absolute(place) {
                hides.add_rule(place, &Sourced::new(spec, Self::own()));
            }
        }
        // What other projects keep, whatever is made an exception from: no list shows it.
        let kept = persistent::stores(&real_as_far_as_it_exists(files, &host.state_directory));
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
        let absent = |path| homes.iter().find_map(|home| home.absent(path));
        let absent: Vec<Option<Cow<'_, Path>>> =
            wanted.iter().map(|(path, _)| absent(path)).collect();
        let pairs = wanted.iter().zip(&absent);
        let open: Vec<_> = pairs.filter(|(_, absent)| absent.is_none()).collect();
        let open = || open.iter().map(|((path, rule), _)| (path, rule));
        // The same for directories that many rules name: ~/.config, /etc.
        list_what_many_name(files, open().map(|(path, _)| path.as_path()));
        // Their directories first: in one that is missing, nothing needs a look.
        let mut parents: Vec<PathBuf> = open().map(|(path, _)| directory(path).into()).collect();
        parents.dedup();
        files.prefetch(&parents);
        let plain = open().filter(|(_, rule)| !rule.value.is_pattern());
        files.prefetch(&plain.map(|(path, _)| path.clone()).collect::<Vec<_>>());
        let mut around = HashMap::default();
        for ((path, rule), absent) in wanted.iter().zip(&absent) {
            match absent {
                Some(real) => hides.add_rule(real, rule),
                None => hides.add(files, &mut around, path, rule),
            }
        }
        for homes in std::mem::take(&mut hides.other_homes) {
            hides.add_ways(files, &homes);
            for at in &homes.closed {
                hides.add_existing(files, at, &homes.rule);
            }
            hides.other_homes.push(homes);
        }
        let mut existing = std::mem::take(&mut hides.existing);
        existing.retain(|hidden| hides.rule_for(&hidden.path).is_some());
        hides.existing = existing;
        hides
    }

    fn add_rule(&mut self, path: &Path, rule: &Sourced<PathSpec>) {
        if let Some((directory, name)) = split(path) {
            let rule = (name.to_owned(), rule.clone());
            match self.rules.get_mut(directory) {
                Some(here) => here.push(rule),
                None => drop(self.rules.insert(directory.to_owned(), vec![rule])),
            }
        }
    }

    /// Adds what leads to the directories of a rule for homes: links that a jail could change, and what does not answer.
    fn add_ways(&mut self, files: &dyn Files, homes: &OtherHomes) {
        let Some((directory, _)) = homes.rule.value.other_homes() else {
            return;
        };
        let around = Around::of(files, &directory);
        let rule = || homes.rule.clone();
        self.stalled.extend(around.stalled.map(|at| (at, rule())));
        self.links
            .extend(around.links.into_iter().map(|at| (at, rule())));
    }

    /// Adds a rule at a place. Most directories have many rules: what is around them is asked for once.
    fn add<'p>(
        &mut self,
        files: &dyn Files,
        around: &mut HashMap<&'p OsStr, Around, foldhash::fast::RandomState>,
        path: &'p Path,
        rule: &Sourced<PathSpec>,
    ) {
        let Some((directory, name)) = split(path) else {
            return;
        };
        let around = around.entry(directory);
        let around = around.or_insert_with(|| Around::of(files, Path::new(directory)));
        let stalled = around.stalled.iter();
        self.stalled
            .extend(stalled.map(|at| (at.clone(), rule.clone())));
        let links = around.links.iter();
        self.links
            .extend(links.map(|at| (at.clone(), rule.clone())));
        let parent = around.real.as_path();
        self.add_rule(&parent.join(name), rule);
        if rule.value.is_pattern() {
            let entries = files.entries(parent);
            if entries.is_none() && self.should_list(files, parent) {
                self.unknown.push(Unknown {
                    directory: parent.to_path_buf(),
                    reason: "cannot be listed, or holds too many entries",
                    rule: rule.clone(),
                });
            }
            for entry in entries.iter().flat_map(|all| all.iter()) {
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
    site_bounds: &SiteBounds,
) -> (Vec<&'a Sourced<PathSpec>>, Vec<Clamped>) {
    let mut clamped = Vec::new();
    let refusing = |rule: &Sourced<PathSpec>| {
        let mut places = host
            .homes()
            .flat_map(|home| rule.value.expand_list(&At(host, home)));
        places.find_map(|place| site_bounds.refusing_exception(&place, files))
    };
    let allowed = policy.files.unhide.iter().filter(|rule| {
        let refusing = refusing(rule);
        let asked = || (*rule).clone().map(|path| path.to_string());
        clamped.extend(
            refusing
                .iter()
                .map(|list| list.clamped("files.unhide", asked())),
        );
        // What an enforced layer hides as well stays hidden.
        let by_site = policy
            .files
            .hide
            .iter()
            .find(|hide| hide.value == rule.value && hide.source.layer == Layer::SiteEnforced);
        clamped.extend(by_site.map(|hide| Clamped {
            key: "files.unhide",
            asked: asked(),
            allowed: hide.clone().map(|path| format!("files.hide `{path}`")),
        }));
        refusing.is_none()
    });
    let allowed = allowed.collect();
    (allowed, clamped)
}

/// What leads to a directory in which rules stand.
struct Around {
    stalled: Option<PathBuf>,
    links: Vec<PathBuf>,
    real: PathBuf,
}

impl Around {
    fn of(files: &dyn Files, directory: &Path) -> Self {
        Self {
            stalled: stalled_on_the_way(files, directory),
            links: links_as_far_as_it_exists(files, directory),
            real: real_as_far_as_it_exists(files, directory),
        }
    }
}

/// The directory in which a path stands.
fn directory(path: &Path) -> &OsStr {
    split(path).map_or(path.as_os_str(), |(directory, _)| directory)
}

/// A home directory and the names in it.
struct Listed<'a> {
    home: &'a Path,
    real: PathBuf,
    entries: Option<Rc<[Entry]>>,
}

impl<'a> Listed<'a> {
    fn of(files: &dyn Files, home: &'a Path) -> Self {
        Self {
            home,
            real: real_as_far_as_it_exists(files, home),
            entries: files.entries(home),
        }
    }

    /// The real path of something in this home of which it is certain that it does not exist.
    fn absent<'p>(&self, path: &'p Path) -> Option<Cow<'p, Path>> {
        let text = path.as_os_str().as_bytes();
        let below = text.strip_prefix(self.home.as_os_str().as_bytes())?;
        let below = below.strip_prefix(b"/")?;
        let first = below.split(|&byte| byte == b'/').next()?;
        let entries = self.entries.as_ref()?;
        let unknown = matches!(first, b"" | b"." | b"..")
            || first.contains(&b'*')
            || may_be_in(entries, first);
        // As text: by that rules are found.
        (!unknown).then(|| match self.real.as_os_str() == self.home.as_os_str() {
            true => path.into(),
            false => self.real.join(OsStr::from_bytes(below)).into(),
        })
    }
}
