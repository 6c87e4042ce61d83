//! Which rules and entries stand for the host's files that the steps show.
//!
//! For each path the deepest step decides, as it does for mounts. Rules of Landlock only add, so a
//! directory gets one only if nothing below it is to get less; else its entries get one each, down
//! to what gets less. What comes into being later in such a directory has no rule: where it is
//! writable the mediator carries out what is done there, where it is readable it stays closed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::access::{MapEntry, Permission, Right, Rule};
use agent_sandbox_base::host::files::{Entry, Files, Kind, Look};
use agent_sandbox_base::plan::model::persistent::SHOWN;
use agent_sandbox_base::plan::model::{Access, Mount, PlanError, Step, Why};

/// Most rules of one jail. Each costs the kernel about 100 bytes and the launch an `open(2)`.
pub(super) const MOST_RULES: usize = 8192;

/// What a path gets, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Closed,
    Read,
    Write,
}

impl Class {
    fn permission(self) -> Permission {
        match self {
            Self::Closed => Permission::None,
            Self::Read => Permission::Read,
            Self::Write => Permission::Write,
        }
    }
}

/// A step that decides about a path of the host.
#[derive(Clone, Copy, Debug)]
struct PlannedPath {
    class: Class,
    id: Option<(u64, u64)>,
}

/// What comes out.
#[derive(Debug, Default)]
pub(super) struct Surveyed {
    /// The command's rules.
    pub(super) rules: Vec<Rule>,
    /// What only the mediator gets.
    pub(super) for_mediator: Vec<Rule>,
    /// The entries.
    pub(super) entries: Vec<MapEntry>,
    /// Whether a writable directory has something in it that gets less.
    pub(super) guarded: bool,
    /// Whether a directory may be listed of which no rule says so.
    pub(super) listings: bool,
    /// Whether something will be readable of which no rule says so.
    pub(super) opens: bool,
}

/// Works on all steps. `home` is the home directory, whose taken apart directories are shown by
/// private ones.
///
/// # Errors
/// A directory that cannot be taken apart; more rules than there may be.
pub(super) fn survey(
    steps: &[Step],
    home: &Path,
    files: &dyn Files,
) -> Result<Surveyed, PlanError> {
    let places = places(steps, files);
    let mut surveyor = Surveyor {
        files,
        places: &places,
        surveyed: Surveyed::default(),
        largest: None,
    };
    surveyor.below(Path::new("/"), Class::Closed, Class::Closed)?;
    surveyor.taken_apart(steps, home);
    Ok(surveyor.surveyed)
}

/// The steps that decide something, by their place.
fn places(steps: &[Step], files: &dyn Files) -> BTreeMap<PathBuf, PlannedPath> {
    let mut all: BTreeMap<PathBuf, PlannedPath> = BTreeMap::new();
    for step in steps {
        let closed = Some((Class::Closed, None));
        let decided = match &step.mount {
            Mount::Bind { from, access, id } if *from == step.at => Some(match access {
                Access::Read => (Class::Read, Some(*id)),
                Access::Write => (Class::Write, Some(*id)),
            }),
            // In place of what the home has there.
            Mount::Kept { from, id } => {
                if id.is_some() {
                    let class = Class::Write;
                    all.insert(from.clone(), PlannedPath { class, id: *id });
                }
                closed
            }
            Mount::Proc => match files.look(&step.at) {
                Look::Found(found) if found.real == step.at => Some((Class::Read, Some(found.id))),
                _ => closed,
            },
            Mount::Dev
            | Mount::Tmpfs { .. }
            | Mount::Directory { .. }
            | Mount::HideDirectory
            | Mount::HideFile => closed,
            // The store has a directory there in its stead, which is given on its own.
            Mount::Link { target } if target == Path::new(SHOWN) => None,
            // The host has this link, or nothing; nobody asked for anything else that stands there.
            Mount::Link { .. } => match files.look(&step.at) {
                Look::Found(found) if found.real == step.at => closed,
                _ => None,
            },
            // Ours, and what a mount would put over a file of the host: the shim, the batch script,
            // the user database. Rules cannot replace anything; the host's own stays in sight.
            Mount::Bind { .. } | Mount::File { .. } | Mount::Program { .. } => None,
            // Private copies stand in private directories; nodes are given one by one.
            Mount::Copy { .. } | Mount::Device { .. } => None,
        };
        if let Some((class, id)) = decided {
            all.insert(step.at.clone(), PlannedPath { class, id });
        }
    }
    shown_below_kept(steps, &mut all);
    all
}

/// What links in kept directories lead to: where it stands, unless that is given as much already.
fn shown_below_kept(steps: &[Step], all: &mut BTreeMap<PathBuf, PlannedPath>) {
    let kept = steps
        .iter()
        .filter(|step| matches!(step.mount, Mount::Kept { .. }));
    let kept: Vec<&Path> = kept.map(|step| step.at.as_path()).collect();
    for step in steps {
        let Mount::Bind { from, access, id } = &step.mount else {
            continue;
        };
        if *from == step.at || !kept.iter().any(|at| step.at.starts_with(at)) {
            continue;
        }
        let class = match access {
            Access::Read => Class::Read,
            Access::Write => Class::Write,
        };
        let deciding = from.ancestors().find_map(|above| all.get(above));
        if deciding.is_none_or(|place| place.class < class) {
            let id = Some(*id);
            all.insert(from.clone(), PlannedPath { class, id });
        }
    }
}

struct Surveyor<'a> {
    files: &'a dyn Files,
    places: &'a BTreeMap<PathBuf, PlannedPath>,
    surveyed: Surveyed,
    /// The directory with the most entries that was taken apart.
    largest: Option<(usize, PathBuf)>,
}

impl Surveyor<'_> {
    /// The places strictly below a directory.
    fn places_below<'p>(
        &'p self,
        at: &'p Path,
    ) -> impl Iterator<Item = (&'p PathBuf, &'p PlannedPath)> {
        self.places
            .range::<Path, _>((Bound::Excluded(at), Bound::Unbounded))
            .take_while(move |(place, _)| place.starts_with(at))
    }

    /// Gives a path what it gets, and everything below it. `above` gives as much already.
    fn give(
        &mut self,
        at: &Path,
        class: Class,
        id: (u64, u64),
        above: Class,
    ) -> Result<(), PlanError> {
        let least = self.places_below(at).map(|(_, place)| place.class).min();
        let least = least.map_or(class, |least| least.min(class));
        let even = self.places_below(at).all(|(_, place)| place.class == class);
        // Where nothing gets less, or everything gets at least this much.
        let given = above.max(least);
        if given > above {
            self.rule(at, id, given)?;
        }
        self.entry(at, class, given >= class, !even);
        if even {
            return Ok(());
        }
        if given >= class {
            return self.below(at, class, given);
        }
        let right = if class == Class::Write {
            self.surveyed.guarded = true;
            Right::Write
        } else {
            Right::Read
        };
        self.surveyed.for_mediator.push(rule(at, Some(id), right));
        self.surveyed.listings |= given == Class::Closed;
        self.surveyed.opens |= given == Class::Closed && class == Class::Write;
        self.take_apart(at, class, given)
    }

    /// Gives what stands below a directory and gets something else than the directory.
    fn below(&mut self, at: &Path, class: Class, given: Class) -> Result<(), PlanError> {
        let mut done: Option<PathBuf> = None;
        let others: Vec<(PathBuf, PlannedPath)> = self
            .places_below(at)
            .filter(|(_, place)| place.class != class)
            .filter(|(path, _)| {
                // Those below another one are its matter.
                let inside = done.as_ref().is_some_and(|done| path.starts_with(done));
                if !inside {
                    done = Some((*path).clone());
                }
                !inside
            })
            .map(|(path, place)| (path.clone(), *place))
            .collect();
        for (path, place) in others {
            self.place(&path, place, given)?;
        }
        Ok(())
    }

    fn place(&mut self, at: &Path, place: PlannedPath, given: Class) -> Result<(), PlanError> {
        match place.id {
            Some(id) => self.give(at, place.class, id, given),
            None => {
                self.entry(at, Class::Closed, false, false);
                self.below(at, Class::Closed, Class::Closed)
            }
        }
    }

    /// Gives the entries of a directory one by one. A symbolic link needs no rule: what it leads to
    /// has its own.
    fn take_apart(&mut self, at: &Path, class: Class, given: Class) -> Result<(), PlanError> {
        let Some(entries) = self.files.entries(at) else {
            return Err(unlistable(
                at,
                self.places_below(at).next().map(|(path, _)| path),
            ));
        };
        self.count(at, entries.len())?;
        self.names_are_exact(at, &entries)?;
        let mut children: BTreeSet<PathBuf> = self
            .places_below(at)
            .filter_map(|(path, _)| Some(at.join(path.strip_prefix(at).ok()?.components().next()?)))
            .collect();
        for entry in entries.iter() {
            match entry.kind {
                Kind::Directory | Kind::File | Kind::Other => {
                    children.insert(at.join(&entry.name));
                }
                // Nodes are given by `devices.allow`; mounts of a policy show none that work.
                Kind::Link | Kind::Device | Kind::Hung => {}
            }
        }
        let all: Vec<PathBuf> = children.into_iter().collect();
        self.files.prefetch(&all);
        for child in all {
            if let Some(place) = self.places.get(&child) {
                self.place(&child, *place, given)?;
                continue;
            }
            match self.files.look(&child) {
                Look::Found(found) if found.real == child => {
                    self.give(&child, class, found.id, given)?;
                }
                // It is gone meanwhile, or became a link, or does not answer: no rule, unless it is
                // on the way to something.
                _ if self.places_below(&child).next().is_none() => {}
                _ => {
                    let message =
                        format!("`{}` changes while the jail is planned", child.display());
                    return Err(PlanError::new(message).hint("try again"));
                }
            }
        }
        Ok(())
    }

    /// Refuses a directory of a file system that ignores case (`casefold` of ext4, CIFS, FAT): the
    /// access map goes by paths, and another spelling of what is closed would be another path. The
    /// directory's own name, one entry, and whatever something closed is below are tried.
    fn names_are_exact(&self, at: &Path, entries: &[Entry]) -> Result<(), PlanError> {
        let closed = self.places_below(at).filter_map(|(path, _)| {
            let first = path.strip_prefix(at).ok()?.components().next()?;
            Some(at.join(first))
        });
        let lettered = entries.iter().map(|entry| at.join(&entry.name));
        let lettered = lettered.filter(|path| otherwise_spelled(path).is_some());
        for path in closed.chain(lettered.take(1)).chain([at.to_path_buf()]) {
            let Some(other) = otherwise_spelled(&path) else {
                continue;
            };
            let is_listed = entries
                .iter()
                .any(|entry| other.file_name() == Some(&entry.name));
            let same = match (self.files.look(&path), self.files.look(&other)) {
                (Look::Found(one), Look::Found(two)) => one.id == two.id,
                _ => false,
            };
            if same && !is_listed {
                let (shown, path) = (at.display(), path.display());
                let message = format!(
                    "`{shown}` is on a file system that ignores case, as `{path}` shows: Landlock cannot keep what is \
                     closed in it closed under other spellings"
                );
                return Err(PlanError::new(message)
                    .hint("use --backend bwrap, or a directory on another file system"));
            }
        }
        Ok(())
    }

    /// Directories that the plan takes apart itself: what is given of them are places of their own.
    /// Their names can be listed, by the mediator, except in the home directory, which has a private
    /// directory in their stead.
    fn taken_apart(&mut self, steps: &[Step], home: &Path) {
        for (number, step) in steps.iter().enumerate() {
            let by_rule = matches!(
                (&step.mount, &step.why),
                (Mount::Directory { .. }, Why::Rule { .. })
            );
            let shows = || {
                steps[number + 1..]
                    .iter()
                    .take_while(|other| other.at.starts_with(&step.at))
                    .any(|other| matches!(&other.mount, Mount::Bind { from, .. } if *from == other.at))
            };
            if !by_rule || step.at.starts_with(home) || !shows() {
                continue;
            }
            if let Look::Found(found) = self.files.look(&step.at)
                && found.real == step.at
            {
                self.entry(&step.at, Class::Closed, false, true);
                self.surveyed
                    .for_mediator
                    .push(rule(&step.at, Some(found.id), Right::Read));
                self.surveyed.listings = true;
            }
        }
    }

    fn entry(&mut self, at: &Path, class: Class, direct: bool, listed: bool) {
        self.surveyed.entries.push(MapEntry {
            at: at.as_os_str().as_bytes().to_vec(),
            permission: class.permission(),
            direct,
            listed,
        });
    }

    fn rule(&mut self, at: &Path, id: (u64, u64), class: Class) -> Result<(), PlanError> {
        let right = match class {
            Class::Closed => return Ok(()),
            Class::Read => Right::Read,
            Class::Write => Right::Write,
        };
        self.surveyed.rules.push(rule(at, Some(id), right));
        if self.surveyed.rules.len() > MOST_RULES {
            return Err(self.too_many());
        }
        Ok(())
    }

    fn count(&mut self, at: &Path, entries: usize) -> Result<(), PlanError> {
        if self
            .largest
            .as_ref()
            .is_none_or(|(most, _)| entries > *most)
        {
            self.largest = Some((entries, at.to_path_buf()));
        }
        if entries > MOST_RULES {
            return Err(self.too_many());
        }
        Ok(())
    }

    fn too_many(&self) -> PlanError {
        let Some((entries, at)) = &self.largest else {
            return PlanError::new(format!(
                "the jail would need more than {MOST_RULES} rules of Landlock"
            ))
            .hint("give directories instead of what stands in them");
        };
        let inside = self.places_below(at).next();
        let inside = inside.map(|(path, _)| format!(", in which `{}` gets less", path.display()));
        PlanError::new(format!(
            "the jail would need more than {MOST_RULES} rules of Landlock: `{}` has {entries} entries{}",
            at.display(),
            inside.unwrap_or_default()
        ))
        .hint(
            "move what is hidden or protected into a directory of its own, give less than this directory, or use \
             --backend bwrap",
        )
    }
}

fn unlistable(at: &Path, inside: Option<&PathBuf>) -> PlanError {
    let inside =
        inside.map(|path| format!(", in which `{}` gets less than the rest", path.display()));
    PlanError::new(format!(
        "Landlock has to give the entries of `{}` one by one{}, and it cannot be listed or has too many",
        at.display(),
        inside.unwrap_or_default()
    ))
    .hint("give less than this directory, or use --backend bwrap")
}

/// The path with the last name in the other case; `None` if it has no letters that have one.
fn otherwise_spelled(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.as_bytes();
    let swap = |byte: &u8| match byte {
        byte if byte.is_ascii_lowercase() => byte.to_ascii_uppercase(),
        byte => byte.to_ascii_lowercase(),
    };
    let other: Vec<u8> = name.iter().map(swap).collect();
    (other != name).then(|| path.with_file_name(OsStr::from_bytes(&other)))
}

/// A rule.
pub(super) fn rule(at: &Path, id: Option<(u64, u64)>, right: Right) -> Rule {
    Rule {
        path: at.as_os_str().as_bytes().to_vec(),
        id,
        right,
    }
}
