//! Invariants of every translated plan, checked before anything is started. They are written against
//! the finished rules, regions and steps and share no code with the translation, so that a mistake
//! there ends here.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::Fenced;
use super::ground::MOST_RULES;
use crate::fence::{Reach, Region, Right, Rule};
use crate::host::HostFacts;
use crate::host::files::{Files, Kind, Look};
use crate::host::slurm::Slurm;
use crate::plan::{Access, Mount, PlanError, Step, kept};

/// Checks a translated plan.
///
/// # Errors
/// Names the invariant and the path that breaks it: a defect of agent-sandbox, never a mistake of
/// the user's.
pub fn check(
    fenced: &Fenced,
    host: &HostFacts,
    files: &dyn Files,
    stage: &Path,
) -> Result<(), PlanError> {
    let by_path = fenced.rules.iter().map(|rule| (rule.path.as_slice(), rule));
    let checks = Checks {
        fenced,
        host,
        files,
        stage,
        by_path: by_path.collect(),
    };
    let all = [
        Checks::rules_have_a_place,
        Checks::nothing_hidden,
        Checks::regions_hold,
        Checks::nothing_of_ours,
        Checks::staged_in_order,
        Checks::rules_in_order,
    ];
    all.iter().try_for_each(|one| one(&checks)).map_err(|what| {
        PlanError::new(format!("refusing an unsafe translation of the plan: {what}")).hint(
            "please report this as a defect, with the output of the same command and --dry-run --json",
        )
    })
}

struct Checks<'a> {
    fenced: &'a Fenced,
    host: &'a HostFacts,
    files: &'a dyn Files,
    stage: &'a Path,
    /// There may be thousands, and as many regions.
    by_path: HashMap<&'a [u8], &'a Rule>,
}

/// Whether a rule that gives `right` lets files be changed.
fn changes(right: Right) -> bool {
    match right {
        Right::Read | Right::ReadFiles => false,
        Right::Write | Right::Device => true,
    }
}

impl Checks<'_> {
    fn rules(&self) -> &[Rule] {
        &self.fenced.rules
    }

    fn regions(&self) -> &[Region] {
        self.fenced.charge.territory.regions()
    }

    fn steps(&self) -> &[Step] {
        &self.fenced.plan.steps
    }

    /// The rules that hold at a path: at it and above it.
    fn holding(&self, path: &Path) -> Vec<&Rule> {
        let above = path.ancestors().map(|above| above.as_os_str().as_bytes());
        above
            .filter_map(|above| self.by_path.get(above).copied())
            .collect()
    }

    fn staged(&self, path: &Path) -> bool {
        path != self.stage && path.starts_with(self.stage)
    }

    /// Whether a rule is about something that the jail keeps: a kept directory, what is shown below one,
    /// or where the links to that lead.
    fn of_kept(&self, rule: &Rule) -> bool {
        let (path, plan) = (rule.path(), &self.fenced.plan);
        let store = plan.keeping.store.as_deref();
        if store.is_some_and(|store| path == kept::shown_in(store)) {
            return rule.id.is_none() && rule.right == Right::Read;
        }
        self.steps().iter().any(|step| match &step.mount {
            Mount::Kept { from, id } => {
                let ours = store.is_some_and(|store| from.starts_with(store) && from != store);
                ours && path == from && rule.right == Right::Write && rule.id == *id
            }
            Mount::Bind { from, access, id } => {
                let fits = path == from && rule.id == Some(*id);
                let may = *access == Access::Write || !changes(rule.right);
                fits && may && plan.kept_around(&step.at).is_some()
            }
            _ => false,
        })
    }

    /// Every rule stands where a step gives as much, or in the session's own directory, or is one of
    /// the few that every jail has.
    fn rules_have_a_place(&self) -> Result<(), String> {
        if self.rules().len() > MOST_RULES {
            return Err(format!("{} rules", self.rules().len()));
        }
        let by_place: HashMap<&[u8], &Step> = self
            .steps()
            .iter()
            .map(|step| (step.at.as_os_str().as_bytes(), step))
            .collect();
        let shims: HashSet<&PathBuf> = self
            .steps()
            .iter()
            .filter_map(|step| match &step.mount {
                Mount::Bind { from, .. } if *from != step.at => Some(from),
                _ => None,
            })
            .collect();
        for rule in self.rules() {
            let (path, shown) = (rule.path(), rule.path().display());
            let plain =
                |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
            if !path.is_absolute() || path.parent().is_none() || !path.components().all(plain) {
                return Err(format!("a rule on `{shown}`"));
            }
            let staged = self.staged(path);
            let kept = self.of_kept(rule);
            if !kept && staged != rule.id.is_none() {
                return Err(format!(
                    "the rule on `{shown}` is not about one certain file"
                ));
            }
            let deciding = path
                .ancestors()
                .find_map(|above| by_place.get(above.as_os_str().as_bytes()));
            let given = match deciding.map(|step| (step, &step.mount)) {
                _ if staged || kept => true,
                // What a shim stands over, and what is ours, is only read.
                _ if !changes(rule.right) && shims.contains(&path.to_path_buf()) => true,
                _ if rule.right == Right::Device => {
                    path.starts_with("/dev") && !path.starts_with("/dev/shm")
                }
                Some((step, Mount::Bind { from, access, .. })) if *from == step.at => {
                    *access == Access::Write || !changes(rule.right)
                }
                Some((_, Mount::Proc)) => !changes(rule.right),
                Some((step, Mount::File { .. } | Mount::Program { .. })) => {
                    step.at == path && !changes(rule.right)
                }
                _ => false,
            };
            if !given {
                return Err(format!("no step gives `{shown}`"));
            }
        }
        for step in self.steps() {
            for rule in self.holding(&step.at) {
                let less = match &step.mount {
                    Mount::Tmpfs { .. }
                    | Mount::Directory { .. }
                    | Mount::Kept { .. }
                    | Mount::HideDirectory
                    | Mount::HideFile => true,
                    Mount::Bind { from, access, .. } => {
                        *from == step.at && *access == Access::Read && changes(rule.right)
                    }
                    _ => false,
                };
                if less && !self.staged(&step.at) {
                    let (rule, step) = (rule.path().display(), step.at.display());
                    return Err(format!("`{rule}` opens `{step}`"));
                }
            }
        }
        Ok(())
    }

    /// No rule lets be read what is hidden, or changed what its mode hides.
    fn nothing_hidden(&self) -> Result<(), String> {
        for rule in self.rules() {
            let path = rule.path();
            // All stores are hidden.
            if self.staged(path) || self.of_kept(rule) {
                continue;
            }
            if let Some(hides) = self.fenced.plan.hidden.rule_for(path) {
                return Err(format!(
                    "a rule opens `{}`, which files.hide `{}` ({}) hides",
                    path.display(),
                    hides.value,
                    hides.source
                ));
            }
        }
        for hidden in self.fenced.plan.hidden.existing() {
            for rule in self.holding(&hidden.path) {
                let by_mode = !hidden.readable && !changes(rule.right);
                if hidden.kind != Kind::Link && !by_mode {
                    return Err(format!(
                        "a rule on `{}` opens `{}`, which files.hide `{}` ({}) hides",
                        rule.path().display(),
                        hidden.path.display(),
                        hidden.rule.value,
                        hidden.rule.source
                    ));
                }
            }
        }
        Ok(())
    }

    /// Rules give no more than regions say, and no less where a region relies on them.
    fn regions_hold(&self) -> Result<(), String> {
        let territory = &self.fenced.charge.territory;
        for rule in self.rules() {
            let least = if changes(rule.right) {
                Reach::Write
            } else {
                Reach::Read
            };
            if territory.reach(rule.path()) < least || territory.reach(rule.path()) == Reach::Own {
                return Err(format!("no region gives `{}`", rule.path().display()));
            }
        }
        for region in self.regions() {
            let shown = region.path().display();
            let holding = self.holding(region.path());
            let any = !holding.is_empty();
            let writes = holding.iter().any(|rule| changes(rule.right));
            let socket = self.fenced.socket.as_deref() == Some(region.path());
            let fits = match region.reach {
                Reach::None | Reach::Own => !any && !region.direct,
                Reach::Read => !writes && any == region.direct,
                Reach::Write => socket || writes == region.direct,
            };
            if !fits {
                return Err(format!("the region of `{shown}` does not fit the rules"));
            }
        }
        for step in self.steps() {
            let wanted = match &step.mount {
                Mount::Bind { from, access, .. } if *from == step.at => match access {
                    Access::Read => Reach::Read,
                    Access::Write => Reach::Write,
                },
                Mount::HideDirectory | Mount::HideFile => Reach::None,
                _ => continue,
            };
            let found = territory.reach(&step.at);
            if found != wanted && !self.staged(&step.at) {
                return Err(format!(
                    "`{}` is {found:?}, not {wanted:?}",
                    step.at.display()
                ));
            }
        }
        Ok(())
    }

    /// Nothing of other sessions is open, and nothing writable that decides about later ones.
    fn nothing_of_ours(&self) -> Result<(), String> {
        let territory = &self.fenced.charge.territory;
        let real = |path: &Path| match self.files.look(path) {
            Look::Found(found) => found.real,
            _ => path.to_path_buf(),
        };
        let programs = self.host.slurm.iter().flat_map(Slurm::programs);
        let own: Vec<PathBuf> = self
            .host
            .own_directories
            .iter()
            .map(PathBuf::as_path)
            .chain([self.host.executable.as_path()])
            .chain(programs.map(AsRef::as_ref))
            .map(real)
            .collect();
        let homes: Vec<PathBuf> = self.host.homes().map(real).collect();
        for rule in self.rules() {
            let path = rule.path();
            for place in self
                .host
                .meeting_places
                .iter()
                .map(PathBuf::as_path)
                .chain([self.stage])
            {
                let reaches = place.starts_with(path) || path.starts_with(place);
                if reaches && !self.staged(path) {
                    return Err(format!("`{}` opens `{}`", path.display(), place.display()));
                }
            }
            if !changes(rule.right) || self.staged(path) {
                continue;
            }
            let kept = self.of_kept(rule);
            for own in &own {
                if own.starts_with(path) || (path.starts_with(own) && !kept) {
                    return Err(format!(
                        "`{}` makes `{}` writable",
                        path.display(),
                        own.display()
                    ));
                }
            }
            if homes.iter().any(|home| home.starts_with(path)) {
                return Err(format!(
                    "`{}` makes the home directory writable",
                    path.display()
                ));
            }
        }
        for own in &own {
            if territory.reach(own) > Reach::Read {
                return Err(format!("`{}` can be changed", own.display()));
            }
        }
        for place in &self.host.meeting_places {
            if territory.reach(place) != Reach::None {
                return Err(format!("`{}` is where tasks meet", place.display()));
            }
        }
        if territory.reach(self.stage) != Reach::None {
            return Err("the directory of sessions is open".to_owned());
        }
        Ok(())
    }

    /// What is made stands in the session's directory, and its parents come first.
    fn staged_in_order(&self) -> Result<(), String> {
        let mut all: HashSet<&Path> = HashSet::new();
        let mut directories: HashSet<&Path> = HashSet::from([Path::new("")]);
        for staged in &self.fenced.staged {
            let at = staged.at.as_path();
            let plain = at
                .components()
                .all(|part| matches!(part, Component::Normal(_)));
            let parent = at.parent().unwrap_or(at);
            if !plain || !all.insert(at) || !directories.contains(parent) {
                return Err(format!("`{}` has no place", at.display()));
            }
            if matches!(staged.what, super::Thing::Directory(_)) {
                directories.insert(at);
            }
        }
        Ok(())
    }

    /// No path has two rules, and the mediator finds them by their paths.
    fn rules_in_order(&self) -> Result<(), String> {
        for rules in [self.rules(), &self.fenced.charge.rules] {
            if let Some(pair) = rules
                .windows(2)
                .find(|pair| pair[0].path() >= pair[1].path())
            {
                return Err(format!(
                    "the rule on `{}` is out of order",
                    pair[1].path().display()
                ));
            }
        }
        Ok(())
    }
}
