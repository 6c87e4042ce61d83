//! What the jail has of the home directory: entries by `home.mode`, private copies, and what stays
//! read-only.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::requested::{is_whole, within};
use super::{Builder, Project};
use crate::config::source::Sourced;
use crate::host::files::{Kind, Look, may_be_a_link, real_as_far_as_it_exists, stalled_on_the_way};
use crate::plan::build::seed;
use crate::plan::build::tree::Concealer;
use crate::plan::build::unknown::closed;
use crate::plan::build::unknown::stalled;
use crate::plan::model::protect::protected;
use crate::plan::model::{Access, Mount, PlanError, Why};
use crate::policy::values::Stricter;
use crate::policy::{HomeMode, PathSpec};

impl Builder<'_> {
    /// Entries of the home directory that `home.mode` shows.
    pub(super) fn home_by_mode(&mut self) -> Result<(), PlanError> {
        let mode = &self.policy.home.mode;
        let access = match mode.value {
            HomeMode::Tmpfs => return Ok(()),
            HomeMode::Restricted | HomeMode::Read => Access::Read,
            HomeMode::Write => Access::Write,
        };
        let Some(home) = self.homes.first().cloned() else {
            return Ok(());
        };
        let Some(entries) = self.files.entries(&home) else {
            return Err(PlanError::new(format!(
                "cannot list the home directory `{}`",
                home.display()
            ))
            .hint("home.mode = \"tmpfs\" does without"));
        };
        let why = Why::key("home.mode", mode);
        let concealer = Concealer {
            files: self.files,
            hides: self.hides,
            homes: &self.homes,
            keep_absent: &[],
            kept: &[],
        };
        let shown = entries.iter().filter(|entry| {
            mode.value != HomeMode::Restricted || !entry.name.as_bytes().starts_with(b".")
        });
        let children: Vec<PathBuf> = shown.clone().map(|entry| home.join(&entry.name)).collect();
        self.files.prefetch(&children);
        let mut refused = None;
        for (entry, child) in shown.zip(&children) {
            let refusing = match entry.kind {
                // What a link says is no more than a name.
                Kind::Link => None,
                _ => self.site_bounds.refusing(child, access),
            };
            let Some(refusing) = refusing else {
                concealer.place(&mut self.tree, entry, child, access, &why);
                continue;
            };
            for (place, access) in within(self.site_bounds, self.files, child, access) {
                match self.files.look(&place) {
                    _ if place == *child => {
                        concealer.place(&mut self.tree, entry, child, access, &why);
                    }
                    Look::Found(found) if is_whole(&found, &place, self.hides) => {
                        self.tree.bind(&found, access, why.clone());
                    }
                    _ => {}
                }
            }
            refused.get_or_insert(refusing);
        }
        if let Some(refusing) = refused {
            let asked = mode.clone().map(|mode| mode.shown());
            self.clamped.push(refusing.clamped("home.mode", asked));
        }
        self.by_mode = self
            .tree
            .binds()
            .into_iter()
            .map(|(at, _)| at)
            .filter(|at| at.starts_with(&home))
            .collect();
        Ok(())
    }

    /// `home.protect`: read-only wherever a writable bind would show it.
    pub(super) fn protect(&mut self, project: Option<&Project>) -> Result<(), PlanError> {
        let rules = self.policy.home.protect.iter();
        let places = rules.flat_map(|rule| {
            let places = protected(rule, self.host, self.files).into_iter();
            places.map(move |path| (path, rule))
        });
        let (paths, rules): (Vec<PathBuf>, Vec<&Sourced<PathSpec>>) = places.unzip();
        self.files.prefetch(&paths);
        for (path, rule) in paths.into_iter().zip(rules) {
            let found = match self.files.look(&path) {
                Look::Found(found) => found,
                Look::Closed(directory) if self.tree.access(&directory) == Some(Access::Write) => {
                    return Err(closed(&path, &directory));
                }
                Look::Hung if self.may_be_written(&path) => return Err(stalled(&path)),
                _ => continue,
            };
            let what = || format!("home.protect `{}` ({})", rule.value, rule.source);
            self.followed
                .extend(found.links.iter().map(|(at, _)| (at.clone(), what())));
            let around = project.is_some_and(|project| project.real.starts_with(&found.real));
            let hidden = self.hides.rule_for(&found.real).is_some();
            // What another list gives below it is not writable either.
            for (at, from, access) in self.tree.sources() {
                let below = at != found.real && from.starts_with(&found.real);
                let own = around && project.is_some_and(|project| at.starts_with(&project.real));
                if below && access == Access::Write && !own {
                    self.tree
                        .make_readable(&at, Why::rule("home.protect", rule));
                }
            }
            let access = self.tree.access(&found.real);
            if around || hidden || access.is_none() {
                continue;
            }
            self.tree.pin(self.files, &found.real, &self.by_mode);
            if access != Some(Access::Write) {
                continue;
            }
            let mount = Mount::Bind {
                from: found.real.clone(),
                access: Access::Read,
                id: found.id,
            };
            self.tree
                .put(&found.real, mount, Why::rule("home.protect", rule));
        }
        Ok(())
    }

    /// Whether something that does not answer stands where the jail may write, or could lead there.
    fn may_be_written(&self, path: &Path) -> bool {
        let real = real_as_far_as_it_exists(self.files, path);
        self.tree.access(&real) == Some(Access::Write)
            || may_be_a_link(self.files, path)
            || stalled_on_the_way(self.files, path.parent().unwrap_or(path)).is_some()
    }

    pub(super) fn seeds(&mut self) -> Result<(), PlanError> {
        for rule in &self.policy.home.seed {
            let Some(path) = rule.value.expand(self.host) else {
                continue;
            };
            if self.in_kept(&path).is_some() {
                let reason = "home.keep has the jail's own there, in which nothing is copied";
                self.omit("home.seed", rule, reason, true);
                continue;
            }
            if let Look::Found(found) = self.files.look(&path) {
                let what = format!("home.seed `{}` ({})", rule.value, rule.source);
                self.followed = found
                    .links
                    .into_iter()
                    .map(|(at, _)| (at, what.clone()))
                    .collect();
                self.steady_links()?;
            }
            for path in self.seeds_within(rule, path) {
                self.seed(rule, &path)?;
            }
        }
        Ok(())
    }

    /// What enforced layers let a seed copy: all of it, or parts.
    fn seeds_within(&mut self, rule: &Sourced<PathSpec>, path: PathBuf) -> Vec<PathBuf> {
        let Look::Found(found) = self.files.look(&path) else {
            return vec![path];
        };
        let Some(refusing) = self.site_bounds.refusing_seed(&found.real) else {
            return vec![path];
        };
        let asked = rule.clone().map(|path| path.to_string());
        self.clamped.push(refusing.clamped("home.seed", asked));
        let mut parts = self.site_bounds.seed_parts(&found.real, self.files);
        parts.retain(|part| self.site_bounds.refusing_seed(part).is_none());
        parts.retain(|part| {
            matches!(self.files.look(part), Look::Found(found) if is_whole(&found, part, self.hides))
        });
        outermost(parts)
    }

    fn seed(&mut self, rule: &Sourced<PathSpec>, path: &Path) -> Result<(), PlanError> {
        match seed::copies(self.files, self.hides, &self.tree, path) {
            Ok(copies) => {
                for (at, mount) in copies {
                    // What is given as a real path, the project too, stays that.
                    if self.tree.access(&at).is_some() {
                        continue;
                    }
                    self.tree.put(at, mount, Why::rule("home.seed", rule));
                }
            }
            Err(seed::Skip::Quiet(reason)) => self.omit("home.seed", rule, reason, false),
            Err(seed::Skip::Refuse(reason)) => {
                let message = format!("home.seed `{}` ({}) {reason}", rule.value, rule.source);
                return Err(PlanError::new(message));
            }
        }
        Ok(())
    }
}

/// Of several paths those that lie below none of the others. They are sorted.
fn outermost(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.dedup_by(|path, before| path.starts_with(&*before));
    paths
}
