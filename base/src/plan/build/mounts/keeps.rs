//! What the jail keeps of its own (`home.keep`): which places, what stands in the store, and what has to
//! be made, seeded and carried out for it.
//!
//! What is kept is not the host's: no rule about the host's files looks below a kept place. Of two kept
//! places that lie in one another the outer one counts. What a list gives below a kept place is shown
//! there; what a later layer gives at the very place takes the place of what is kept.

use std::path::{Path, PathBuf};

use super::{Builder, Project};
use crate::config::source::{Layer, Sourced};
use crate::host::files::{
    Found, Kind, Look, links_as_far_as_it_exists, real_as_far_as_it_exists, stalled_on_the_way,
};
use crate::plan::model::persistent::{self, JsonSeed, Login, Make, SHOWN};
use crate::plan::model::protect::protected;
use crate::plan::model::{Access, Mount, PlanError, Why, state};
use crate::policy::PathSpec;
use crate::policy::state::Carried;

/// Bytes of the file system that stands for a hidden directory around the link to what is shown below
/// kept places.
const LINK_ROOM: u64 = 64 << 10;

/// A kept place.
#[derive(Clone, Debug)]
pub(super) struct Keep {
    /// By the name that the policy has for it, from the real home on.
    named: PathBuf,
    /// Where it stands: by the real path of the directory around it.
    pub(super) at: PathBuf,
    /// Its path below the home, as the policy names it.
    below: PathBuf,
    rule: Sourced<PathSpec>,
}

impl Keep {
    /// Where a path stands inside that the policy names below it or as it.
    fn inside(&self, named: &Path) -> Option<PathBuf> {
        let rest = named.strip_prefix(&self.named).ok()?;
        Some(rest.iter().fold(self.at.clone(), |at, part| at.join(part)))
    }
}

impl Builder<'_> {
    /// Puts the kept directories to their places.
    ///
    /// # Errors
    /// Something else stands where one is kept, or the site lets nothing be kept in the state directory.
    pub(super) fn keeps(&mut self, project: Option<&Project>) -> Result<(), PlanError> {
        let policy = self.policy;
        let mut all: Vec<Keep> = Vec::new();
        for rule in &policy.home.keep {
            for named in self.kept_within(rule) {
                all.extend(self.keep(rule, named, project));
            }
        }
        all.retain(|keep| !self.is_given_later(keep));
        // Parents first; of one place that several layers keep the last layer tells.
        all.reverse();
        all.sort_by(|one, other| one.at.cmp(&other.at));
        all.dedup_by(|keep, before| keep.at.starts_with(&before.at));
        let state = match all.is_empty() {
            true => real_as_far_as_it_exists(self.files, &self.host.state_directory),
            false => state::to_keep_in(self.host, self.files, self.hides, self.site_bounds)?,
        };
        let store = persistent::store(&state, project.map(|project| project.real.as_path()));
        let mut placed = Vec::new();
        for keep in all {
            match persistent::place_in(&store, &keep.below) {
                Some(from) => placed.push((keep, from)),
                None => {
                    let reason = "its name is too long to be kept";
                    self.omit("home.keep", &keep.rule, reason, true);
                }
            }
        }
        if project.is_some() {
            let froms: Vec<PathBuf> = placed.iter().map(|(_, from)| from.clone()).collect();
            self.files.prefetch(&froms);
        }
        for (keep, from) in placed {
            let why = Why::rule("home.keep", &keep.rule);
            let id = match project {
                Some(_) => self.id_in_store(&from)?,
                None => None,
            };
            if id.is_none() && project.is_some() {
                let (from, why) = (from.clone(), why.clone());
                self.keeping.makes.push(Make::Kept { from, why });
            }
            self.tree.put(&keep.at, Mount::Kept { from, id }, why);
            self.keeps.push(keep);
        }
        self.keeping.stores = persistent::stores(&state);
        self.keeping.store = project.map(|_| store);
        Ok(())
    }

    /// Where an entry of `home.keep` may be kept: all of it, or the parts that enforced layers allow.
    fn kept_within(&mut self, rule: &Sourced<PathSpec>) -> Vec<PathBuf> {
        let Some(named) = rule.value.expand(self.host).and_then(|at| self.named(&at)) else {
            return Vec::new();
        };
        let Some(refusing) = self.site_bounds.refusing_keep(&named) else {
            return vec![named];
        };
        let asked = rule.clone().map(|path| path.to_string());
        self.clamped.push(refusing.clamped("home.keep", asked));
        let mut parts = self.site_bounds.keep_parts(&named, self.files);
        parts.retain(|part| self.site_bounds.refusing_keep(part).is_none());
        parts
    }

    /// A path below the home, by the real path of the home itself: as programs name it inside.
    fn named(&self, path: &Path) -> Option<PathBuf> {
        let home = self.homes.first()?;
        let below = path
            .strip_prefix(&self.host.home)
            .or_else(|_| path.strip_prefix(home))
            .ok()?;
        (!below.as_os_str().is_empty()).then(|| home.join(below))
    }

    fn keep(
        &mut self,
        rule: &Sourced<PathSpec>,
        named: PathBuf,
        project: Option<&Project>,
    ) -> Option<Keep> {
        let (parent, name) = (named.parent()?, named.file_name()?);
        let asked_for = rule.source.layer > Layer::Profile;
        let omit = |builder: &mut Self, reason: &str, loud: bool| {
            builder.omit("home.keep", rule, reason, loud);
            None
        };
        if let Some(stalled) = stalled_on_the_way(self.files, parent) {
            let reason = format!("`{}` does not answer", stalled.display());
            return omit(self, &reason, true);
        }
        let at = real_as_far_as_it_exists(self.files, parent).join(name);
        let home = self.homes.first().cloned()?;
        let links = self.links_to(parent);
        if let Some(link) = self.plantable(&links) {
            let reason = format!(
                "it leads through the symbolic link `{}`, which an earlier session could have made",
                link.display()
            );
            return omit(self, &reason, true);
        }
        if at == home
            || home.starts_with(&at)
            || !(at.starts_with(&home) || self.is_own_ground(&at))
        {
            let reason = format!("it leads to `{}`, out of what is yours", at.display());
            return omit(self, &reason, true);
        }
        let hidden = [&at, &named]
            .into_iter()
            .find_map(|at| self.hides.rule_for(at));
        if let Some(hidden) = hidden {
            let reason = format!(
                "the rule files.hide `{}` ({}) hides it",
                hidden.value, hidden.source
            );
            return omit(self, &reason, asked_for);
        }
        if let Some(refusing) = self.site_bounds.refusing_keep(&at) {
            let asked = rule.clone().map(|path| path.to_string());
            self.clamped.push(refusing.clamped("home.keep", asked));
            return None;
        }
        if let Some(project) = project {
            let real = &project.real;
            if at.starts_with(real) || real.starts_with(&at) {
                let reason = format!("the project `{}` stays what it is", real.display());
                return omit(self, &reason, asked_for);
            }
        }
        let what = format!("home.keep `{}` ({})", rule.value, rule.source);
        self.followed
            .extend(links.iter().map(|(at, _)| (at.clone(), what.clone())));
        self.links.extend(links);
        let below = named.strip_prefix(&home).ok()?.to_path_buf();
        Some(Keep {
            named,
            at,
            below,
            rule: rule.clone(),
        })
    }

    /// The links on the way to the part of a path that exists.
    fn links_to(&self, path: &Path) -> Vec<(PathBuf, PathBuf)> {
        let found = path
            .ancestors()
            .find_map(|above| match self.files.look(above) {
                Look::Found(found) => Some(found.links),
                _ => None,
            });
        found.unwrap_or_default()
    }

    /// Whether a place out of the home stands in a directory of the caller's own. What every program
    /// loads stands in root's, so that no kept directory covers it.
    fn is_own_ground(&self, at: &Path) -> bool {
        let private = ["/dev", "/proc", "/run", "/sys", "/tmp", "/var/tmp"];
        let above = at.ancestors().skip(1);
        let mut existing = above.filter_map(|above| match self.files.look(above) {
            Look::Found(found) => Some(found),
            _ => None,
        });
        let own = existing
            .next()
            .is_some_and(|found| found.uid == self.host.uid);
        own && private.iter().all(|private| !at.starts_with(private))
    }

    /// Whether a layer that comes later than the one that keeps a place gives what the host has there.
    fn is_given_later(&self, keep: &Keep) -> bool {
        let (home, files) = (&self.policy.home, &self.policy.files);
        let lists = [
            (&home.read, Access::Read),
            (&home.seed, Access::Read),
            (&files.read, Access::Read),
            (&home.write, Access::Write),
            (&files.write, Access::Write),
        ];
        let mut all = lists
            .into_iter()
            .flat_map(|(list, access)| list.iter().map(move |rule| (rule, access)));
        all.any(|(rule, access)| {
            if rule.source.layer <= keep.rule.source.layer {
                return false;
            }
            let Some(path) = rule.value.expand(self.host) else {
                return false;
            };
            if self.named(&path).as_ref() != Some(&keep.named) {
                return false;
            }
            match self.files.look(&path) {
                Look::Found(found) => {
                    self.hides.rule_for_found(&found).is_none()
                        && self.site_bounds.refusing(&found.real, access).is_none()
                }
                _ => false,
            }
        })
    }

    /// What stands where something is kept; `None`: nothing yet.
    fn id_in_store(&self, from: &Path) -> Result<Option<(u64, u64)>, PlanError> {
        let refuse = |what: &str| {
            let message = format!("cannot keep anything in `{}`: {what}", from.display());
            Err(PlanError::new(message).hint(
                "move it away; a new one is made. Or keep nothing: see home.keep and agents.state",
            ))
        };
        match self.files.look(from) {
            Look::Missing => Ok(None),
            Look::Found(found) if found.real != from => refuse("a symbolic link leads elsewhere"),
            Look::Found(found) if found.kind != Kind::Directory => refuse("it is no directory"),
            Look::Found(found) if found.uid != self.host.uid => {
                refuse("it belongs to another user")
            }
            Look::Found(found) => Ok(Some(found.id)),
            Look::Hung => refuse("it does not answer"),
            Look::Denied(_) | Look::Closed(_) => refuse("it may not be opened"),
        }
    }

    /// Where something that the policy names below a kept place, or as one, stands inside.
    pub(super) fn in_kept(&self, path: &Path) -> Option<PathBuf> {
        let named = self.named(path)?;
        self.keeps.iter().find_map(|keep| keep.inside(&named))
    }

    /// Shows something below a kept place. `false`: it is left out, with the reason.
    pub(super) fn show_in_kept(
        &mut self,
        (key, rule): (&'static str, &Sourced<PathSpec>),
        at: &Path,
        found: &Found,
        access: Access,
    ) {
        let whole = self.keeps.iter().find(|keep| keep.at == at);
        let reason = if let Some(keep) = whole {
            format!("home.keep `{}` has the jail's own there", keep.rule.value)
        } else if found.real != at
            && found.kind == Kind::Directory
            && (access == Access::Write || self.hides.below(&found.real).next().is_some())
        {
            format!(
                "it is a directory that `{}` leads to by a symbolic link; name `{}`",
                at.display(),
                found.real.display()
            )
        } else {
            self.tree.bind_at(at, found, access, Why::rule(key, rule));
            return;
        };
        let loud = whole.is_none() && rule.source.layer > Layer::Profile;
        self.omit(key, rule, &reason, loud);
    }

    /// Leaves out what would have to be mounted in a directory of the host's, where others may change
    /// the mount point.
    pub(super) fn settle_keeps(&mut self) {
        for keep in std::mem::take(&mut self.keeps) {
            let around = keep.at.parent().and_then(|parent| self.tree.over(parent));
            let Some((around, Mount::Bind { .. })) = around else {
                self.keeps.push(keep);
                continue;
            };
            let reason = format!(
                "it lies in `{}`, which is given as the host has it",
                around.display()
            );
            self.tree.remove_kept(&keep.at);
            let why = Why::rule("home.keep", &keep.rule);
            let of_keep = |make: &Make| matches!(make, Make::Kept { why: of, .. } if *of == why);
            self.keeping.makes.retain(|make| !of_keep(make));
            self.omit("home.keep", &keep.rule, &reason, true);
        }
    }

    /// Where links in the store lead to, by the name that they have for it.
    pub(super) fn shown_in_kept(&mut self) {
        let Some(store) = &self.keeping.store else {
            return;
        };
        let mut kept = self.keeps.iter();
        if !kept.any(|keep| self.tree.has_below(&keep.at)) {
            return;
        }
        let own = || Why::Every("what is shown below kept directories");
        self.tree
            .put_if_free(Path::new(SHOWN), Mount::Directory { mode: 0o755 }, own());
        let link = persistent::shown_in(store);
        let covered = match self.tree.over(&link) {
            Some((at, Mount::HideDirectory)) => Some(at.to_path_buf()),
            // Nothing is made on the host by mounting.
            Some((_, Mount::Bind { .. })) => Some(self.keeping.stores.clone()),
            _ => None,
        };
        if let Some(at) = covered {
            let (size, mode) = (LINK_ROOM, 0o755);
            self.tree.put(at, Mount::Tmpfs { size, mode }, own());
        }
        let target = PathBuf::from(SHOWN);
        self.tree.put(link, Mount::Link { target }, own());
    }

    /// What is missing in the home and is made, what kept files begin with, and what is carried out.
    pub(super) fn wanted(&mut self) {
        let wanted = &self.policy.wanted;
        let mut paths: Vec<PathBuf> = Vec::new();
        let of_seeds = wanted.seeds.iter().map(|seed| &seed.value.from);
        let of_made = wanted.made.iter().map(|made| &made.path.value);
        let of_logins = wanted.logins.iter().map(|login| &login.value);
        for path in of_made.chain(of_logins).chain(of_seeds) {
            paths.extend(path.expand(self.host));
        }
        self.files.prefetch(&paths);
        let mut makes = Vec::new();
        for made in &wanted.made {
            let rule = &made.path;
            let Some(path) = self.may_be_made(rule) else {
                continue;
            };
            let why = Why::rule("home.write", rule);
            makes.push(match &made.text {
                None => Make::Directory { path, why },
                Some(text) => Make::File {
                    path,
                    text: text.clone(),
                    why,
                },
            });
        }
        // What is made is no longer missing.
        let is_made = |why: &Why| makes.iter().any(|make: &Make| make.why() == why);
        self.omitted.retain(|omitted| !is_made(&omitted.why));
        self.keeping.makes.extend(makes);
        if self.keeping.store.is_none() {
            return;
        }
        let logins = wanted.logins.iter().filter_map(|rule| {
            let kept = self.path_in_store(&rule.value)?;
            Some(Login {
                host: self.may_be_made(rule)?,
                kept,
                why: Why::rule("home.write", rule),
            })
        });
        self.keeping.logins = logins.collect();
        let seeds = wanted.seeds.iter().filter_map(|seed| {
            let to = self.path_in_store(&seed.value.to)?;
            let from = self.may_be_carried(&seed.value)?;
            let mut back = seed.value.back.clone();
            if self.is_protected(&from) || self.site_bounds.refusing(&from, Access::Write).is_some()
            {
                back.clear();
            }
            Some(JsonSeed {
                from,
                to,
                keys: seed.value.keys.clone(),
                back,
                why: Why::Rule {
                    key: format!("profile.state.seed `{}`", seed.value.from),
                    source: seed.source.clone(),
                },
            })
        });
        self.keeping.seeds = seeds.collect();
    }

    /// The path in the store of what the policy names below a kept place.
    fn path_in_store(&self, path: &PathSpec) -> Option<PathBuf> {
        let named = self.named(&path.expand(self.host)?)?;
        let keep = self
            .keeps
            .iter()
            .find(|keep| named.starts_with(&keep.named))?;
        let rest = named.strip_prefix(&keep.named).ok()?;
        let store = self.keeping.store.as_ref()?;
        Some(persistent::place_in(store, &keep.below)?.join(rest))
    }

    /// Whether `home.protect` names a real path, which may not exist, or a directory around it.
    pub(super) fn is_protected(&self, real: &Path) -> bool {
        let mut rules = self.policy.home.protect.iter();
        rules.any(|rule| {
            let mut places = protected(rule, self.host, self.files).into_iter();
            places.any(|place| real.starts_with(real_as_far_as_it_exists(self.files, &place)))
        })
    }

    /// The real place of something missing that the jail could write if it were there.
    fn may_be_made(&self, rule: &Sourced<PathSpec>) -> Option<PathBuf> {
        let path = rule.value.expand(self.host)?;
        if self.files.look(&path) != Look::Missing
            || stalled_on_the_way(self.files, &path).is_some()
        {
            return None;
        }
        let real = real_as_far_as_it_exists(self.files, &path);
        let links = links_as_far_as_it_exists(self.files, &path);
        let known = |at: &PathBuf| self.home_links.contains(at);
        let own = self.is_free_in_own(&real);
        let in_home = self
            .homes
            .first()
            .is_some_and(|home| real.starts_with(home));
        let may = own
            && in_home
            && !self.is_protected(&real)
            && links.iter().all(known)
            && self.hides.rule_for(&real).is_none()
            && self.site_bounds.refusing(&real, Access::Write).is_none();
        may.then_some(real)
    }

    /// Whether the first missing name on the way to a path is in a directory of the caller's own, and free:
    /// a link that leads nowhere stands there, too.
    fn is_free_in_own(&self, real: &Path) -> bool {
        let mut below = real;
        for above in real.ancestors().skip(1) {
            if let Look::Found(found) = self.files.look(above) {
                let entries = self.files.entries(above).unwrap_or_default();
                let taken = entries
                    .iter()
                    .any(|entry| below.file_name() == Some(&entry.name));
                return found.uid == self.host.uid && found.kind == Kind::Directory && !taken;
            }
            below = above;
        }
        false
    }

    /// Whether something hides a path besides the built-in rule that reads as `name` does.
    fn is_hidden_but_by(&self, real: &Path, name: &PathSpec) -> bool {
        let mut rules = self.hides.rules_for(real);
        rules.any(|rule| rule.source.layer != Layer::BuiltIn || rule.value != *name)
    }

    /// The user's file of which keys are carried over: one that could be given. The built-in rule that
    /// hides it by its name hides the rest of it.
    fn may_be_carried(&self, seed: &Carried) -> Option<PathBuf> {
        let path = seed.from.expand(self.host)?;
        let Look::Found(found) = self.files.look(&path) else {
            return None;
        };
        let hidden = |real: &Path| self.is_hidden_but_by(real, &seed.from);
        let may = found.kind == Kind::File
            && found.readable
            && found.uid == self.host.uid
            && self.plantable(&found.links).is_none()
            && !hidden(&found.real)
            && !self.named(&path).is_some_and(|named| hidden(&named))
            && self.site_bounds.refusing_seed(&found.real).is_none()
            && self
                .site_bounds
                .refusing_exception(&path, self.files)
                .is_none();
        may.then_some(found.real)
    }
}
