//! Which paths are hidden, as data.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use agent_sandbox_events::protocol::HiddenNames;

use super::other_homes::OtherHomes;
use crate::config::source::{Layer, Source, Sourced};
use crate::host::files::{Found, Kind, split};
use crate::policy::paths::glob;
use crate::policy::{Clamped, PathSpec};

/// The rules of `files.hide` in one directory: names or patterns.
pub(in crate::plan) type InDirectory = Vec<(OsString, Sourced<PathSpec>)>;

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

/// A rule that cannot be applied. It stops the launch if the jail would show the place.
#[derive(Clone, Debug)]
pub struct Unknown {
    /// A directory that cannot be searched or listed.
    pub directory: PathBuf,
    /// What is wrong with it.
    pub reason: &'static str,
    /// The rule.
    pub rule: Sourced<PathSpec>,
}

/// Everything that is hidden.
#[derive(Clone, Debug, Default)]
pub struct Hides {
    /// By the directory's real path, as far as it exists.
    pub(in crate::plan) rules: HashMap<OsString, InDirectory, foldhash::fast::RandomState>,
    pub(in crate::plan) existing: Vec<Hidden>,
    /// Rules that hide all in a directory but the home.
    pub(in crate::plan) other_homes: Vec<OtherHomes>,
    /// Symbolic links that rules lead through.
    pub(in crate::plan) links: Vec<(PathBuf, Sourced<PathSpec>)>,
    /// Places at which it cannot be told what is hidden, with the reason.
    pub(in crate::plan) unknown: Vec<Unknown>,
    /// What does not answer on the way of a rule, so that nobody knows where it leads.
    pub(in crate::plan) stalled: Vec<(PathBuf, Sourced<PathSpec>)>,
    /// Where rules stand that are none of the policy's, and what they hide.
    pub(in crate::plan) fixed: Vec<(Sourced<PathSpec>, OfSlurm)>,
    /// Exceptions that enforced layers do not allow.
    pub(in crate::plan) clamped: Vec<Clamped>,
}

/// What is hidden because Slurm's configuration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfSlurm {
    /// A socket of its authority.
    Authority,
    /// What its daemon on a node keeps.
    Spool,
}

impl Hides {
    /// Where the rules stand that hide what is agent-sandbox's own.
    pub(in crate::plan) fn own() -> Source {
        Source {
            layer: Layer::SiteEnforced,
            file: "agent-sandbox".into(),
            line: None,
        }
    }

    /// What does not answer on the way of a rule, and the rule.
    pub fn stalled(&self) -> impl Iterator<Item = &(PathBuf, Sourced<PathSpec>)> {
        self.stalled.iter()
    }

    /// The rule that hides `path` (a real path, existing or not), if one does.
    pub fn rule_for(&self, path: &Path) -> Option<&Sourced<PathSpec>> {
        self.rules_for(path).next()
    }

    /// Every rule that hides `path` (a real path).
    pub fn rules_for<'s, 'a>(
        &'s self,
        path: &'a Path,
    ) -> impl Iterator<Item = &'s Sourced<PathSpec>> + use<'s, 'a> {
        let above = |at: &&'a Path| match split(at) {
            Some((above, _)) => Some(Path::new(above)),
            None => at.parent(),
        };
        let places = std::iter::successors(Some(path), above).filter_map(split);
        let by_name = places.flat_map(move |(directory, name)| {
            let hiding = self.rules.get(directory).into_iter().flatten();
            hiding
                .filter(move |(pattern, _)| glob(pattern.as_bytes(), name.as_bytes()))
                .map(|(_, rule)| rule)
        });
        by_name.chain(self.homes_rules_for(path))
    }

    fn homes_rules_for<'s, 'a>(
        &'s self,
        path: &'a Path,
    ) -> impl Iterator<Item = &'s Sourced<PathSpec>> + use<'s, 'a> {
        let hiding = self.other_homes.iter().filter(|homes| homes.hides(path));
        hiding.map(|homes| &homes.rule)
    }

    /// The rule that hides what was found, or a link through which it was: somebody's home may be a link to where no
    /// rule stands.
    pub fn rule_for_found(&self, found: &Found) -> Option<&Sourced<PathSpec>> {
        let by_link = || {
            let mut links = found.links.iter();
            links.find_map(|(at, _)| self.homes_rules_for(at).next())
        };
        self.rule_for(&found.real).or_else(by_link)
    }

    /// Rules that hide all in a directory but the home.
    pub fn other_homes(&self) -> &[OtherHomes] {
        &self.other_homes
    }

    /// The rule of an enforced layer that hides `path` (a real path), if one does: from it only the site
    /// makes exceptions, whatever other rule hides the path as well.
    pub fn enforced_for(&self, path: &Path) -> Option<&Sourced<PathSpec>> {
        let enforced = |rule: &&Sourced<PathSpec>| rule.source.layer == Layer::SiteEnforced;
        self.rules_for(path).find(enforced)
    }

    /// What of Slurm's a rule hides from which no policy can make an exception.
    pub fn of_slurm(&self, rule: &Sourced<PathSpec>) -> Option<OfSlurm> {
        let found = self.fixed.iter().find(|(fixed, _)| fixed == rule);
        found.map(|(_, what)| *what)
    }

    /// The exceptions that enforced layers do not allow.
    pub fn clamped(&self) -> &[Clamped] {
        &self.clamped
    }

    /// Whether the rule hides what is agent-sandbox's own.
    pub fn is_own(&self, rule: &Sourced<PathSpec>) -> bool {
        rule.source == Self::own()
    }

    /// The existing hidden files strictly below a directory.
    pub fn below<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = &'a Hidden> {
        self.existing()
            .filter(move |hidden| hidden.path != directory && hidden.path.starts_with(directory))
    }

    /// Every existing file that is hidden.
    pub fn existing(&self) -> impl Iterator<Item = &Hidden> {
        self.existing.iter()
    }

    /// Symbolic links that rules lead through.
    pub fn links(&self) -> impl Iterator<Item = (&Path, &Sourced<PathSpec>)> {
        self.links.iter().map(|(at, rule)| (at.as_path(), rule))
    }

    /// Rules that cannot be applied.
    pub fn unknown(&self) -> &[Unknown] {
        &self.unknown
    }

    /// The directories in which rules stand, for telling where a hidden file might appear later.
    pub fn parents(&self) -> impl Iterator<Item = &Path> {
        self.rules.keys().map(Path::new)
    }

    /// All names and patterns that are hidden, by directory, in order. A name that is no UTF-8 is left out.
    pub fn names(&self) -> Vec<HiddenNames> {
        let name = |name: &OsString| name.to_str().map(str::to_owned);
        let mut all: Vec<HiddenNames> = self
            .rules
            .iter()
            .filter_map(|(directory, rules)| {
                let mut names: Vec<String> =
                    rules.iter().filter_map(|(rule, _)| name(rule)).collect();
                names.sort_unstable();
                names.dedup();
                let directory = name(directory)?;
                Some(HiddenNames { directory, names })
            })
            .collect();
        all.sort_by(|one, other| one.directory.cmp(&other.directory));
        all
    }
}
