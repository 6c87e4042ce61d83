//! The lists `read` and `write` of the policy: what is given, what is left out, what is refused.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Builder;
use crate::config::source::{Layer, Sourced};
use crate::host::files::{Files, Found, Kind, Look};
use crate::plan::build::refusal::Refusal;
use crate::plan::model::bounds::SiteBounds;
use crate::plan::model::hides::Hides;
use crate::plan::model::{Access, Omitted, PlanError, Why};
use crate::policy::PathSpec;
use crate::policy::paths::glob;

/// Directories that a policy cannot give as a whole: the jail has its own.
const PRIVATE: [&str; 3] = ["/dev", "/proc", "/run"];

/// Whether something stands at a path itself, not behind a link, and is not hidden.
pub(super) fn is_whole(found: &Found, at: &Path, hides: &Hides) -> bool {
    found.real == at && hides.rule_for(at).is_none()
}

/// What enforced layers let a real path be given as: the whole of it with less access, or parts of it.
pub(super) fn within(
    site_bounds: &SiteBounds,
    files: &dyn Files,
    real: &Path,
    access: Access,
) -> Vec<(PathBuf, Access)> {
    let most = |place: &Path| {
        let all = [Access::Write, Access::Read].into_iter();
        let mut less = all.filter(|less| *less <= access);
        less.find(|less| site_bounds.refusing(place, *less).is_none())
    };
    let whole = most(real);
    let mut all: Vec<(PathBuf, Access)> = Vec::new();
    all.extend(whole.map(|access| (real.to_path_buf(), access)));
    if whole != Some(access) {
        for part in site_bounds.parts(real, files) {
            let more = most(&part).filter(|access| whole.is_none_or(|whole| whole < *access));
            all.extend(more.map(|access| (part, access)));
        }
    }
    all
}

impl Builder<'_> {
    /// The lists `read` and `write` of `[home]` and `[files]`.
    pub(super) fn requested(&mut self) -> Result<(), PlanError> {
        let policy = self.policy;
        let mut all = Vec::new();
        for (key, rules, access) in [
            ("files.read", &policy.files.read, Access::Read),
            ("home.read", &policy.home.read, Access::Read),
            ("files.write", &policy.files.write, Access::Write),
            ("home.write", &policy.home.write, Access::Write),
        ] {
            for rule in rules {
                match rule.value.expand(self.host) {
                    Some(path) if rule.value.is_pattern() => {
                        all.extend(
                            self.matches(&path)
                                .into_iter()
                                .map(|path| (key, rule, access, path)),
                        );
                    }
                    Some(path) => all.push((key, rule, access, path)),
                    None => self.omit(
                        key,
                        rule,
                        "its variable is not set to an absolute path",
                        false,
                    ),
                }
            }
        }
        let paths: Vec<PathBuf> = all.iter().map(|(.., path)| path.clone()).collect();
        self.files.prefetch(&paths);
        for (key, rule, access, path) in all {
            self.give_requested(key, rule, access, &path)?;
        }
        Ok(())
    }

    /// A link that stands where the caller keeps work, which may have been the project of an earlier
    /// session: in a directory of the caller's own that is not the home itself, nor one of its dot
    /// directories, which no project can be as a whole.
    pub(super) fn plantable<'l>(&self, links: &'l [(PathBuf, PathBuf)]) -> Option<&'l Path> {
        links.iter().map(|(at, _)| at.as_path()).find(|at| {
            // The links on the way to the home itself were there before any session.
            if self.home_links.iter().any(|known| known == at) {
                return false;
            }
            let Some(parent) = at.parent() else {
                return false;
            };
            let below_home = self
                .homes
                .iter()
                .find_map(|home| parent.strip_prefix(home).ok());
            let dotted = below_home.is_some_and(|below| {
                let first = below.components().next();
                first.is_none_or(|first| first.as_os_str().as_bytes().starts_with(b"."))
            });
            let own =
                matches!(self.files.look(parent), Look::Found(found) if found.uid == self.host.uid);
            own && !dotted
        })
    }

    fn matches(&self, pattern: &Path) -> Vec<PathBuf> {
        let (Some(parent), Some(name)) = (pattern.parent(), pattern.file_name()) else {
            return Vec::new();
        };
        let entries = self.files.entries(parent).unwrap_or_default();
        let matching = entries
            .iter()
            .filter(|entry| glob(name.as_bytes(), entry.name.as_bytes()));
        matching.map(|entry| parent.join(&entry.name)).collect()
    }

    pub(super) fn omit(&mut self, key: &str, rule: &Sourced<PathSpec>, reason: &str, loud: bool) {
        self.omitted.push(Omitted {
            path: rule.value.to_string(),
            reason: reason.to_owned(),
            why: Why::rule(key, rule),
            loud,
        });
    }

    fn give_requested(
        &mut self,
        key: &'static str,
        rule: &Sourced<PathSpec>,
        access: Access,
        path: &Path,
    ) -> Result<(), PlanError> {
        let asked_for = rule.source.layer > Layer::Profile;
        let found = match self.files.look(path) {
            Look::Found(found) => found,
            Look::Missing => {
                self.omit(
                    key,
                    rule,
                    "it does not exist",
                    rule.source.layer == Layer::CommandLine,
                );
                return Ok(());
            }
            Look::Closed(directory) => {
                let reason = format!("`{}` may not be searched", directory.display());
                self.omit(key, rule, &reason, asked_for);
                return Ok(());
            }
            Look::Denied(errno) => {
                let why = std::io::Error::from_raw_os_error(errno).to_string();
                self.omit(key, rule, &why, asked_for);
                return Ok(());
            }
            Look::Hung => {
                let limit = self.policy.files.timeout_ms.value.as_millis();
                self.omit(
                    key,
                    rule,
                    &format!("it did not answer within {limit} ms"),
                    true,
                );
                return Ok(());
            }
        };
        let refuse = |reason: &str, hint: &str| refused(key, rule, reason, hint);
        let real = &found.real;
        if real == Path::new("/") {
            return refuse(
                "it is the whole file system",
                "name the directories that are needed",
            );
        }
        if PRIVATE.iter().any(|private| real == Path::new(private)) {
            return refuse(
                "the jail has its own",
                "name what is needed in it; device nodes go into devices.allow",
            );
        }
        if real.starts_with("/proc") || real.starts_with("/dev") {
            return refuse("the jail has its own", "device nodes go into devices.allow");
        }
        if self.homes.first() == Some(real) {
            return refuse(
                "it is the home directory",
                "home.mode says how much of the home directory appears",
            );
        }
        if let Some(hidden) = self.hides.rule_for_found(&found) {
            let exception = self.site_bounds.refusing_exception(real, self.files);
            let enforced = self.hides.enforced_for(real);
            let hidden = enforced.unwrap_or(hidden);
            let ways = match exception {
                _ if enforced.is_some() => {
                    "; it is the site's, which nobody else makes exceptions from".to_owned()
                }
                Some(refusing) => format!(
                    "; the site's {} ({}) allows no exception here",
                    refusing.key, refusing.list.source
                ),
                None => "; files.unhide makes an exception".to_owned(),
            };
            let reason = format!(
                "the rule files.hide `{}` ({}) hides it{ways}",
                hidden.value, hidden.source
            );
            self.omit(key, rule, &reason, asked_for);
            return Ok(());
        }
        let Some(refusing) = self.site_bounds.refusing(real, access) else {
            return self.give((key, rule), access, &found, path);
        };
        let asked = rule.clone().map(|path| path.to_string());
        self.clamped.push(refusing.clamped(key, asked));
        for (place, access) in within(self.site_bounds, self.files, real, access) {
            if place == *real {
                self.give((key, rule), access, &found, path)?;
            } else if let Look::Found(part) = self.files.look(&place)
                && is_whole(&part, &place, self.hides)
            {
                self.give((key, rule), access, &part, &place)?;
            }
        }
        Ok(())
    }

    /// Gives what enforced layers let be given, unless it would open what no jail may have.
    fn give(
        &mut self,
        (key, rule): (&'static str, &Sourced<PathSpec>),
        access: Access,
        found: &Found,
        named: &Path,
    ) -> Result<(), PlanError> {
        let asked_for = rule.source.layer > Layer::Profile;
        let real = &found.real;
        let refuse = |reason: &str, hint: &str| refused(key, rule, reason, hint);
        if access == Access::Write {
            if self.homes.iter().any(|home| home.starts_with(real)) {
                return refuse(
                    "it contains the home directory",
                    "name the directories that are needed",
                );
            }
            let refusal = Refusal {
                host: self.host,
                files: self.files,
                hides: self.hides,
                site_bounds: self.site_bounds,
            };
            if let Some(reason) = refusal.own_directory(real) {
                return refuse(
                    &reason,
                    "no jail may write there; name the directories that are needed",
                );
            }
        }
        if found.kind == Kind::Other || found.kind == Kind::Device {
            let sort = if found.kind == Kind::Device {
                "a device node"
            } else {
                "a socket or FIFO"
            };
            if found.kind == Kind::Device || access == Access::Write {
                self.omit(key, rule, &format!("it is {sort}"), asked_for);
                return Ok(());
            }
        }
        if let Some(at) = self.plantable(&found.links) {
            let reason = format!(
                "it leads through the symbolic link `{}`, which an earlier session could have made",
                at.display()
            );
            if access == Access::Write {
                return refuse(&reason, "name the path that is meant, without links");
            }
            self.omit(
                key,
                rule,
                &format!("{reason}; name the path that is meant"),
                true,
            );
            return Ok(());
        }
        self.links.extend(found.links.iter().cloned());
        let what = || format!("{key} `{}` ({})", rule.value, rule.source);
        let followed = found.links.iter().map(|(at, _)| (at.clone(), what()));
        self.followed.extend(followed);
        if let Some(at) = self.in_kept(named) {
            self.show_in_kept((key, rule), &at, found, access);
            return Ok(());
        }
        // Through a link the real place may stand inside something wider; the bind is by real path.
        self.tree.bind(found, access, Why::rule(key, rule));
        Ok(())
    }
}

fn refused(key: &str, rule: &Sourced<PathSpec>, reason: &str, hint: &str) -> Result<(), PlanError> {
    let (path, source) = (&rule.value, &rule.source);
    let asked = format!("{key} `{path}` ({source}) cannot be given: {reason}");
    Err(PlanError::new(asked).hint(hint))
}
