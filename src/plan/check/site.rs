//! What the site's enforced layers allow, checked on the finished plan. Places are resolved anew
//! here, in another way than the planner does it ([`super::super::bounds`]).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use agent_sandbox_wire::SHIMS;

use super::super::slurm::{CHAPERON_INSIDE, PROGRAM, Use};
use super::super::{Access, INIT, INPUT, Mount, Plan, Step, Variable, Why};
use super::shows;
use crate::config::source::{Layer, Sourced};
use crate::env_vars;
use crate::host::HostFacts;
use crate::host::files::{Files, Kind, Look};
use crate::policy::narrowing::Gives;
use crate::policy::paths::glob;
use crate::policy::stated::Stated;
use crate::policy::values::Limit;
use crate::policy::{PathSpec, Policy, ShmSize, SlurmMode, Users};

/// Links in `/etc` whose targets every jail has that has the links.
const FOLLOWED: [&str; 3] = ["/etc/resolv.conf", "/etc/hosts", "/etc/localtime"];

/// Variables that agent-sandbox itself sets.
const OWN: [&str; 9] = [
    env_vars::INSIDE,
    env_vars::PROJECT,
    env_vars::SESSION,
    env_vars::HOME,
    env_vars::XDG_RUNTIME_DIR,
    env_vars::TMPDIR,
    env_vars::PWD,
    env_vars::GIT_SSH,
    env_vars::INSTRUCTIONS,
];

/// Checks a plan against every enforced layer.
///
/// # Errors
/// What is more than a layer allows.
pub(super) fn check(
    plan: &Plan,
    policy: &Policy,
    host: &HostFacts,
    files: &dyn Files,
) -> Result<(), String> {
    for layer in &policy.bounds.layers {
        let site = Site::new(plan, layer, host, files);
        site.values(policy)?;
        site.variables(policy)?;
        site.project()?;
        site.protected()?;
        site.keeping()?;
        for step in &plan.steps {
            site.step(step)?;
        }
    }
    Ok(())
}

/// A list that gives, as places of this host.
#[derive(Default)]
struct List {
    /// Each with all that is below it.
    whole: Vec<PathBuf>,
    /// Directories, and patterns of the names in them.
    patterns: Vec<(PathBuf, OsString)>,
}

impl List {
    fn holds(&self, place: &Path) -> bool {
        let fits = |pattern: &OsString, name: &OsStr| glob(pattern.as_bytes(), name.as_bytes());
        let named = |(above, pattern): &(PathBuf, OsString)| {
            let mut at = place.ancestors();
            let at = at.find(|at| at.parent() == Some(above));
            at.and_then(Path::file_name)
                .is_some_and(|name| fits(pattern, name))
        };
        self.whole.iter().any(|at| place.starts_with(at)) || self.patterns.iter().any(named)
    }
}

struct Site<'a> {
    plan: &'a Plan,
    layer: &'a Stated,
    host: &'a HostFacts,
    files: &'a dyn Files,
    /// The home of the user database.
    home: Option<PathBuf>,
    parents: Option<List>,
    home_read: Option<List>,
    home_write: Option<List>,
    read: Option<List>,
    write: Option<List>,
    seed: Option<List>,
    keep: Option<List>,
    allow: Option<List>,
}

impl<'a> Site<'a> {
    fn new(plan: &'a Plan, layer: &'a Stated, host: &'a HostFacts, files: &'a dyn Files) -> Self {
        let list = |gives: &Gives<PathSpec>| Some(listed(gives.bound()?, host, files));
        Self {
            plan,
            layer,
            host,
            files,
            home: host.database_home().map(|home| meant(&home, files)),
            parents: list(&layer.parents),
            home_read: list(&layer.home_read),
            home_write: list(&layer.home_write),
            read: list(&layer.read),
            write: list(&layer.write),
            seed: list(&layer.seed),
            keep: list(&layer.keep),
            allow: list(&layer.allow),
        }
    }

    /// Words, numbers and sizes, in the plan where it has them and in the policy that it came from.
    fn values(&self, policy: &Policy) -> Result<(), String> {
        let (plan, layer) = (self.plan, self.layer);
        let within = |key: &str, fits: bool| match fits {
            true => Ok(()),
            false => Err(format!("{key} is wider than the site's")),
        };
        /// Whether a value is no wider than the layer's.
        macro_rules! at_most {
            ($key:literal, $value:expr, $bound:expr) => {
                within($key, $bound.get().is_none_or(|most| $value <= most.value))?
            };
        }
        at_most!("network.mode", plan.network.value, layer.network);
        at_most!("jail.nested", plan.nested.value, layer.nested);
        let keyctl = plan.syscalls.iter().all(|rule| rule.name != "keyctl");
        at_most!("jail.keyctl", keyctl, layer.keyctl);
        at_most!("project.git", policy.project.git.value, layer.git);
        at_most!("home.mode", policy.home.mode.value, layer.home_mode);
        at_most!(
            "files.timeout_ms",
            policy.files.timeout_ms.value,
            layer.timeout
        );
        at_most!(
            "landlock.sizes",
            policy.landlock.sizes.value,
            layer.landlock_sizes
        );
        at_most!(
            "landlock.users",
            policy.landlock.users.value,
            layer.landlock_users
        );
        super::trace::check(&policy.trace, layer)?;
        at_most!("slurm.scope", policy.slurm.scope.value, layer.scope);
        at_most!("slurm.queries", policy.slurm.queries.value, layer.queries);
        let off = layer
            .slurm
            .get()
            .is_some_and(|mode| mode.value == SlurmMode::Off);
        within("slurm.mode", !off || plan.slurm.value != Use::On)?;
        let limits = policy.slurm.limits.values();
        for (key, value, bound) in [
            (
                "jail.max_processes",
                plan.max_processes.value.unwrap_or(0),
                &layer.max_processes,
            ),
            (
                "slurm.limits.queries_per_minute",
                limits.queries_per_minute.into(),
                &layer.queries_per_minute,
            ),
            ("slurm.limits.jobs", limits.jobs.into(), &layer.jobs),
            ("slurm.limits.nodes", limits.nodes.into(), &layer.nodes),
            ("slurm.limits.gpus", limits.gpus.into(), &layer.gpus),
            (
                "slurm.limits.minutes",
                limits.minutes.into(),
                &layer.minutes,
            ),
        ] {
            let fits = |most: &Sourced<Limit>| most.value.holds(Limit::new(value));
            within(key, bound.get().is_none_or(fits))?;
        }
        let shm = layer.shm_size.get().and_then(|most| match most.value {
            ShmSize::Bytes(most) => Some(most),
            ShmSize::Auto | ShmSize::AutoUpTo(_) => None,
        });
        let (tmp, home) = (layer.tmp_size.get(), layer.home_size.get());
        for (key, at, most) in [
            (
                "jail.tmp_size",
                Path::new("/tmp"),
                tmp.map(|most| most.value.0),
            ),
            (
                "jail.tmp_size",
                Path::new("/var/tmp"),
                tmp.map(|most| most.value.0),
            ),
            ("jail.shm_size", Path::new("/dev/shm"), shm),
            ("jail.home_size", &plan.home, home.map(|most| most.value.0)),
        ] {
            let step = plan.steps.iter().find(|step| step.at == at);
            if let (Some(most), Some(Mount::Tmpfs { size, .. })) =
                (most, step.map(|step| &step.mount))
            {
                within(key, *size <= most)?;
            }
        }
        let filtered = layer
            .users
            .get()
            .is_some_and(|users| users.value == Users::Filtered);
        let users = Path::new("/etc/passwd");
        let there = matches!(self.files.look(users), Look::Found(_));
        within(
            "jail.users",
            !(filtered && there && shows(plan, users, users)),
        )
    }

    fn variables(&self, policy: &Policy) -> Result<(), String> {
        let layer = self.layer;
        let fits = |rules: &[Sourced<String>], text: &[u8]| {
            rules.iter().any(|rule| glob(rule.value.as_bytes(), text))
        };
        for Variable { name, value, why } in &self.plan.variables {
            let ours = matches!(why, Why::Every(_)) && OWN.iter().any(|own| name == own);
            // What another enforced layer sets was judged when the layers were merged.
            let by_site = policy.env.set.iter().any(|set| {
                let (as_name, text) = &set.value;
                let below = text.strip_prefix("~/");
                let home = below.map(|below| self.host.home.join(below));
                let set_to = home.as_ref().map_or(text.as_ref(), |home| home.as_os_str());
                set.source.layer == Layer::SiteEnforced
                    && name == as_name.as_str()
                    && value.as_bytes().starts_with(set_to.as_bytes())
            });
            let name = name.as_bytes();
            if ours || by_site || fits(layer.pass.bound().unwrap_or_default(), name) {
                continue;
            }
            // As it was before the shims' directory was added to it.
            let suffix = [b":", SHIMS.as_bytes()].concat();
            let value = value.as_bytes();
            let value = value.strip_suffix(suffix.as_slice()).unwrap_or(value);
            if fits(layer.env_hide.entries(), name) || fits(layer.hide_values.entries(), value) {
                let name = String::from_utf8_lossy(name);
                return Err(format!("the variable {name} passes, which the site hides"));
            }
        }
        Ok(())
    }

    fn project(&self) -> Result<(), String> {
        let (Some(project), Some(parents)) = (&self.plan.project, &self.parents) else {
            return Ok(());
        };
        match self.below_one(parents, project) {
            true => Ok(()),
            false => Err(format!(
                "the site's project.parents does not hold `{}`",
                project.display()
            )),
        }
    }

    /// Nothing that the site protects is written, by any name.
    fn protected(&self) -> Result<(), String> {
        let Some(home) = self.host.database_home() else {
            return Ok(());
        };
        for rule in self.layer.protect.entries() {
            let text = rule.value.to_string();
            let below = text.trim_start_matches(['~', '/']);
            // What does not exist cannot be mounted over.
            let Look::Found(place) = self.files.look(&home.join(below)) else {
                continue;
            };
            let place = place.real;
            let refuse = |step: &Step| {
                let at = step.at.display();
                Err(format!(
                    "`{at}` makes what the site's home.protect `{text}` names writable"
                ))
            };
            let mut names = vec![place.clone()];
            for alias in &self.host.home_aliases {
                if let Ok(rest) = place.strip_prefix(&alias.of) {
                    names.push(rest.iter().fold(alias.at.clone(), |at, part| at.join(part)));
                }
            }
            for step in &self.plan.steps {
                let Mount::Bind { from, access, .. } = &step.mount else {
                    continue;
                };
                if *access != Access::Write {
                    continue;
                }
                let shown = |name: &&PathBuf| {
                    let over = self.plan.steps.iter().rev();
                    let mut over = over.filter(|other| name.starts_with(&other.at));
                    over.next().is_some_and(|over| over.at == step.at)
                        && shows(self.plan, name, name)
                };
                let within = self.known_as(from).starts_with(&place) || from.starts_with(&place);
                if within || names.iter().any(|name| shown(&name)) {
                    return refuse(step);
                }
            }
        }
        Ok(())
    }

    fn step(&self, step: &Step) -> Result<(), String> {
        let refuse = |list: &str, from: &Path| {
            Err(format!(
                "the site's {list} does not hold `{}`",
                from.display()
            ))
        };
        match &step.mount {
            Mount::Bind { from, access, .. } => {
                let of_project = self.plan.project.as_ref();
                if self.is_ours(step, from, *access)
                    || of_project.is_some_and(|project| from.starts_with(project))
                {
                    return Ok(());
                }
                // A worktree's repository may stand where a project may.
                let parents = self.parents.as_ref().filter(|_| self.is_gits(step));
                if parents.is_some_and(|list| self.below_one(list, from)) {
                    return Ok(());
                }
                if let Some(list) = self.refusing(from, *access) {
                    return refuse(list, from);
                }
                self.no_home_inside(step, from, *access)
            }
            Mount::Kept { .. } => {
                let keep = self.keep.as_ref();
                match keep.is_none_or(|list| list.holds(&self.known_as(&step.at))) {
                    true => Ok(()),
                    false => refuse("home.keep", &step.at),
                }
            }
            Mount::Copy { from, .. } => {
                (self.refusing_copy(from)).map_or(Ok(()), |list| refuse(list, from))
            }
            Mount::Device { from } => {
                let allow = self.allow.as_ref();
                let denied = self.layer.deny.entries().iter().any(|rule| {
                    glob(
                        rule.value.to_string().as_bytes(),
                        from.as_os_str().as_bytes(),
                    )
                });
                if denied || allow.is_some_and(|all| !all.holds(from)) {
                    return refuse("devices", from);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The list that does not let a private copy be made.
    fn refusing_copy(&self, from: &Path) -> Option<&'static str> {
        match &self.seed {
            Some(seed) => (!seed.holds(&self.known_as(from))).then_some("home.seed"),
            None => self.refusing(from, Access::Read),
        }
    }

    /// What is made in the home, carried out to it and copied from it.
    fn keeping(&self) -> Result<(), String> {
        let keeping = &self.plan.keeping;
        let refuse = |list: &str, path: &Path| {
            let path = path.display();
            Err(format!("the site's {list} does not hold `{path}`"))
        };
        let makes = keeping.makes.iter().filter(|make| make.is_in_home());
        let logins = keeping.logins.iter().map(|login| login.host.as_path());
        for path in makes.map(|make| make.path()).chain(logins) {
            if let Some(list) = self.refusing(path, Access::Write) {
                return refuse(list, path);
            }
            let home = self.host.database_home();
            let of_site = self.layer.protect.entries().iter().any(|rule| {
                let text = rule.value.to_string();
                let below = text.trim_start_matches(['~', '/']);
                let place = home
                    .as_ref()
                    .map(|home| meant(&home.join(below), self.files));
                place.is_some_and(|place| self.known_as(path).starts_with(place))
            });
            if of_site {
                return refuse("home.protect", path);
            }
        }
        for seed in &keeping.seeds {
            if let Some(list) = self.refusing_copy(&seed.from) {
                return refuse(list, &seed.from);
            }
        }
        Ok(())
    }

    /// What every jail has: our own programs, standard input, and where links in `/etc` lead.
    fn is_ours(&self, step: &Step, from: &Path, access: Access) -> bool {
        if access == Access::Write {
            return false;
        }
        let slurm = self.host.slurm.as_ref();
        let of_slurm = slurm.is_some_and(|slurm| {
            let shim = slurm.shim.as_ref().map(|shim| self.real(shim));
            let place = step.at == Path::new(PROGRAM) || slurm.covers.contains(&step.at);
            let chaperon = slurm.chaperon.as_ref().map(|path| self.real(path));
            let table = step.at == Path::new(CHAPERON_INSIDE) && chaperon.as_deref() == Some(from);
            table || place && shim.as_deref() == Some(from)
        });
        let init = step.at == Path::new(INIT) && self.real(&self.host.executable) == from;
        let input = step.at == Path::new(INPUT)
            && self
                .host
                .input
                .as_ref()
                .is_some_and(|input| input.real == from);
        let followed = FOLLOWED
            .iter()
            .map(Path::new)
            .any(|link| self.real(link) == from && self.refusing(link, Access::Read).is_none());
        of_slurm || init || input || followed
    }

    /// Whether a step gives git's directory of a worktree, which stands elsewhere.
    fn is_gits(&self, step: &Step) -> bool {
        match &step.why {
            Why::Rule { key, .. } => key == "project.git",
            Why::Every(why) => why.starts_with("git's directory"),
        }
    }

    /// The list that does not hold a real path.
    fn refusing(&self, real: &Path, access: Access) -> Option<&'static str> {
        let place = self.known_as(real);
        let (keys, read, write) = match self.in_home(&place) {
            true => (
                ["home.read", "home.write"],
                &self.home_read,
                &self.home_write,
            ),
            false => (["files.read", "files.write"], &self.read, &self.write),
        };
        let in_read = read.as_ref().map(|list| list.holds(&place));
        let in_write = write.as_ref().map(|list| list.holds(&place));
        if in_read == Some(false) && in_write != Some(true) {
            return Some(keys[0]);
        }
        (access == Access::Write && in_write == Some(false)).then_some(keys[1])
    }

    fn in_home(&self, path: &Path) -> bool {
        self.home
            .as_ref()
            .is_some_and(|home| path.starts_with(home))
    }

    /// Another name of the home, or of something in it, below a bind that shows it.
    fn no_home_inside(&self, step: &Step, from: &Path, access: Access) -> Result<(), String> {
        let home = self.home.iter().map(|home| (home.clone(), home.clone()));
        let aliases = self.host.home_aliases.iter();
        let names = aliases.map(|alias| (alias.at.clone(), alias.of.clone()));
        for (at, of) in home.into_iter().chain(names) {
            if !self.in_home(&of)
                || at == from
                || !at.starts_with(from)
                || !shows(self.plan, &at, &at)
            {
                continue;
            }
            if let Some(list) = self.refusing(&of, access) {
                return Err(format!(
                    "`{}` shows `{}`, which the site's {list} does not hold",
                    step.at.display(),
                    at.display()
                ));
            }
        }
        Ok(())
    }

    /// The name that the lists have for a path in the home.
    fn known_as(&self, real: &Path) -> PathBuf {
        let mut best: Option<(&Path, PathBuf)> = None;
        for alias in &self.host.home_aliases {
            let (true, Ok(below)) = (self.in_home(&alias.of), real.strip_prefix(&alias.at)) else {
                continue;
            };
            if best.as_ref().is_none_or(|(at, _)| alias.at.starts_with(at)) {
                let name = below
                    .iter()
                    .fold(alias.of.clone(), |name, part| name.join(part));
                best = Some((&alias.at, name));
            }
        }
        best.map_or_else(|| real.to_path_buf(), |(_, name)| name)
    }

    fn below_one(&self, list: &List, path: &Path) -> bool {
        let place = self.known_as(path);
        place.parent().is_some_and(|parent| list.holds(parent))
    }

    fn real(&self, path: &Path) -> PathBuf {
        match self.files.look(path) {
            Look::Found(found) => found.real,
            _ => path.to_path_buf(),
        }
    }
}

fn listed(entries: &[Sourced<PathSpec>], host: &HostFacts, files: &dyn Files) -> List {
    let mut list = List::default();
    for entry in entries {
        let text = entry.value.to_string();
        let written = match (text.strip_prefix('~'), host.database_home()) {
            (Some(rest), Some(home)) => home.join(rest.trim_start_matches('/')),
            (Some(_), None) => continue,
            (None, _) => PathBuf::from(text),
        };
        let (Some(above), Some(pattern)) = (written.parent(), written.file_name()) else {
            list.whole.push(written);
            continue;
        };
        if !entry.value.is_pattern() {
            list.whole.push(meant(&written, files));
            continue;
        }
        let above = meant(above, files);
        for entry in files.entries(&above).unwrap_or_default() {
            if entry.kind == Kind::Link && glob(pattern.as_bytes(), entry.name.as_bytes()) {
                list.whole.push(meant(&above.join(&entry.name), files));
            }
        }
        list.patterns.push((above, pattern.to_owned()));
    }
    list
}

/// The real path that is meant, unless a link on the way is not certainly root's.
fn meant(path: &Path, files: &dyn Files) -> PathBuf {
    for above in path.ancestors() {
        let Look::Found(found) = files.look(above) else {
            continue;
        };
        let by_root = |(at, _): &(PathBuf, PathBuf)| {
            at.ancestors().skip(1).all(|above| match files.look(above) {
                Look::Found(found) => found.uid == 0 && found.mode & 0o022 == 0,
                _ => false,
            })
        };
        if !found.links.iter().all(by_root) {
            return path.to_path_buf();
        }
        let rest = path.strip_prefix(above).unwrap_or(Path::new(""));
        return rest.iter().fold(found.real, |real, part| real.join(part));
    }
    path.to_path_buf()
}
