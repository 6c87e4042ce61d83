//! Invariants of every plan, checked before anything is started. Each is written against the finished
//! steps, so that a step that the planner forgot to judge ends here. What the site's lists mean on this
//! host is asked where the planner asks it ([`super::model::bounds`], [`super::model::protect`], [`super::model::state`]);
//! whether the answers are right is for the tests, which work them out anew (`tests/plan`).

pub mod arrivals;
pub mod needs;

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use agent_sandbox_hosts::{HostRule, Rule};
use agent_sandbox_wire::{SHIMS, SOCKET};

use super::model::bounds::Refusing;
use super::model::devices;
use super::model::protect::protected;
use super::model::slurm::Use;
use super::model::{Access, Mount, Plan, PlanError, Step, Variable, Why, persistent, state};
use crate::config::source::{Layer, Sourced};
use crate::env_vars;
use crate::host::HostFacts;
use crate::host::files::{Files, Kind, Look, lies_in, real_as_far_as_it_exists};
use crate::policy::values::Stricter;
use crate::policy::{NetworkMode, PathSpec, Policy, SlurmMode};

/// Variables that agent-sandbox itself sets, whatever hides them.
const OWN: [&str; 11] = [
    env_vars::INSIDE,
    env_vars::PROJECT,
    env_vars::SESSION,
    env_vars::HOME,
    env_vars::XDG_RUNTIME_DIR,
    env_vars::TMPDIR,
    env_vars::PWD,
    env_vars::GIT_SSH,
    env_vars::SSH_AUTH_SOCK,
    env_vars::KNOWN_HOSTS,
    env_vars::INSTRUCTIONS,
];

/// Who looks names up for programs, outside: nscd, systemd-resolved, Avahi.
const NAME_SERVICES: [&str; 4] = [
    "/run/nscd",
    "/run/systemd/resolve",
    "/run/avahi-daemon",
    "/run/dbus",
];

/// Checks a plan.
///
/// # Errors
/// Names the invariant and the step that breaks it. This is a defect of agent-sandbox or a race
/// with somebody who changes files, never a mistake of the user's.
pub fn check(
    plan: &Plan,
    policy: &Policy,
    host: &HostFacts,
    files: &dyn Files,
) -> Result<(), PlanError> {
    let checks = Checks {
        plan,
        policy,
        host,
        files,
    };
    let all = [
        Checks::in_order,
        Checks::sources,
        Checks::nothing_hidden,
        Checks::tasks_meet_unseen,
        Checks::slurms_own,
        Checks::kept,
        Checks::made_and_carried,
        Checks::places_of_the_site,
        Checks::values_of_the_site,
        Checks::protected_by_the_site,
        Checks::private,
        Checks::filtered,
        Checks::forwarded,
        Checks::variables,
    ];
    let refuse = |what| PlanError::new(format!("refusing an unsafe plan: {what}")).hint(DEFECT);
    all.iter().try_for_each(|one| one(&checks)).map_err(refuse)
}

/// The way out where a plan is unsafe.
pub const DEFECT: &str =
    "please report this as a defect, with the output of the same command and --dry-run --json";

struct Checks<'a> {
    plan: &'a Plan,
    policy: &'a Policy,
    host: &'a HostFacts,
    files: &'a dyn Files,
}

impl Checks<'_> {
    fn in_order(&self) -> Result<(), String> {
        let mut pairs = self.plan.steps.windows(2);
        pairs
            .find(|pair| pair[0].at >= pair[1].at)
            .map_or(Ok(()), |pair| {
                let (one, other) = (pair[1].at.display(), pair[0].at.display());
                Err(format!("`{one}` is mounted after `{other}`"))
            })
    }

    /// What each step shows, and how.
    fn sources(&self) -> Result<(), String> {
        let Self { plan, host, .. } = self;
        for step in &plan.steps {
            let at = step.at.display();
            if !is_plain(&step.at) {
                return Err(format!("`{at}` is not a plain absolute path"));
            }
            let (from, access) = match &step.mount {
                Mount::Bind { from, access, .. } => (from, *access),
                Mount::Device { from } => (from, Access::Write),
                // What may be kept where has checks of its own.
                _ => continue,
            };
            if !is_plain(from) || from == Path::new("/") {
                return Err(format!("`{}` is not a plain absolute path", from.display()));
            }
            let own_dev = ["/dev", "/proc"].iter().any(|own| from.starts_with(own));
            if matches!(step.mount, Mount::Bind { .. }) && own_dev {
                return Err(format!("`{at}` comes from the host's /dev or /proc"));
            }
            if let Some(rule) = plan.hidden.rule_for(from) {
                return Err(format!("`{at}` shows what {}", hides(rule)));
            }
            if access == Access::Read {
                continue;
            }
            if ["/run", "/home"].map(Path::new).contains(&from.as_path()) {
                return Err(format!("`{at}` is writable as a whole"));
            }
            for own in host.own_directories.iter().chain(host.programs()) {
                if reaches(plan, from, own) {
                    return Err(format!("`{at}` makes `{}` writable", own.display()));
                }
            }
            if plan.home.starts_with(from) {
                return Err(format!(
                    "`{at}` makes the home directory writable as a whole"
                ));
            }
        }
        Ok(())
    }

    /// No bind shows something hidden below it.
    fn nothing_hidden(&self) -> Result<(), String> {
        for hidden in self.plan.hidden.existing() {
            for step in &self.plan.steps {
                let Mount::Bind { from, access, .. } = &step.mount else {
                    continue;
                };
                if !lies_in(&hidden.path, from) {
                    continue;
                }
                let Ok(below) = hidden.path.strip_prefix(from) else {
                    continue;
                };
                // Unreadable for the caller: protected by its mode, unless the mode can be changed.
                if !hidden.readable && *access == Access::Read {
                    continue;
                }
                let inside = step.at.join(below);
                if shows(self.plan, &inside, &hidden.path) && hidden.kind != Kind::Link {
                    let (at, path) = (step.at.display(), hidden.path.display());
                    let why = hides(&hidden.rule);
                    return Err(format!("`{at}` shows `{path}`, which {why}"));
                }
            }
        }
        let homes = self.plan.hidden.other_homes().iter();
        for (root, rule) in
            homes.flat_map(|homes| homes.roots.iter().map(|root| (root, &homes.rule)))
        {
            for step in &self.plan.steps {
                let Mount::Bind { from, .. } = &step.mount else {
                    continue;
                };
                let Ok(below) = root.strip_prefix(from) else {
                    continue;
                };
                if shows(self.plan, &step.at.join(below), root) {
                    let (at, why) = (step.at.display(), hides(rule));
                    return Err(format!(
                        "`{at}` shows what is in `{}`, which {why}",
                        root.display()
                    ));
                }
            }
        }
        Ok(())
    }

    fn tasks_meet_unseen(&self) -> Result<(), String> {
        for place in &self.host.join_directories {
            let shown = self.plan.steps.iter().any(
                |step| matches!(&step.mount, Mount::Bind { from, .. } if lies_in(from, place)),
            );
            if shown || shows(self.plan, place, place) {
                return Err(format!("`{}` is where tasks meet", place.display()));
            }
        }
        Ok(())
    }

    /// Slurm's own commands are out of sight where shims stand for them, and the shims' socket has a
    /// place of its own.
    fn slurms_own(&self) -> Result<(), String> {
        if self.plan.slurm.value != Use::On {
            return Ok(());
        }
        let covers = self.host.slurm.iter().flat_map(|slurm| &slurm.covers);
        for place in covers {
            if shows(self.plan, place, place) {
                return Err(format!("`{}` is Slurm's own", place.display()));
            }
        }
        let private = |step: &Step| {
            matches!(step.mount, Mount::Tmpfs { mode: 0o700, .. })
                && Path::new(SOCKET).parent() == Some(&step.at)
        };
        match deciding(self.plan, Path::new(SOCKET)).is_some_and(private) {
            true => Ok(()),
            false => Err(format!("`{SOCKET}` has no place of its own")),
        }
    }

    /// What is kept is in the store of this very project, and mounted over nothing that the host shows.
    fn kept(&self) -> Result<(), String> {
        let plan = self.plan;
        if plan.kept().next().is_none() {
            return Ok(());
        }
        let to_keep_in = state::to_keep_in(self.host, self.files, &plan.hidden, &plan.site_bounds);
        let state = to_keep_in.map_err(|error| error.to_string())?;
        let project = plan.project.as_deref();
        let store = persistent::store(&state, project);
        for (at, from) in plan.kept() {
            if from.parent().and_then(Path::parent) != Some(&store) || !is_plain(from) {
                return Err(format!("`{}` is not this project's", from.display()));
            }
            let around = at.parent().and_then(|above| deciding(plan, above));
            let wrong = match around.map(|step| &step.mount) {
                _ if plan.home.starts_with(at) => "stands around the home",
                _ if project.is_some_and(|of| of.starts_with(at) || at.starts_with(of)) => {
                    "stands around the project or in it"
                }
                _ if plan.hidden.rule_for(at).is_some() => "is hidden",
                Some(Mount::Bind { .. }) => "stands in a directory of the host's",
                Some(Mount::Kept { .. }) => "stands in another that is kept",
                _ => continue,
            };
            return Err(format!("what is kept at `{}` {wrong}", at.display()));
        }
        Ok(())
    }

    /// What the launcher itself makes in the home, carries out to it and copies from it.
    fn made_and_carried(&self) -> Result<(), String> {
        let Plan { keeping, home, .. } = self.plan;
        let site_bounds = &self.plan.site_bounds;
        let in_kept = |path: &Path| {
            let mut kept = self.plan.kept();
            kept.any(|(_, from)| path != from && path.starts_with(from))
        };
        for path in self.made() {
            let hidden = self.plan.hidden.rule_for(path).is_some();
            let refused = site_bounds.refusing(path, Access::Write).is_some();
            if !path.starts_with(home) || path == home || hidden || refused {
                return Err(format!("`{}` would be made", path.display()));
            }
        }
        let seeded = keeping.seeds.iter().map(|seed| &seed.to);
        let carried = keeping.logins.iter().map(|login| &login.kept);
        for path in seeded.chain(carried) {
            if !in_kept(path) {
                return Err(format!("`{}` is kept nowhere", path.display()));
            }
        }
        for seed in &keeping.seeds {
            if site_bounds.refusing_seed(&seed.from).is_some() {
                return Err(format!("`{}` would be copied", seed.from.display()));
            }
        }
        Ok(())
    }

    /// What is made in the home, and where logins are carried out to.
    fn made(&self) -> impl Iterator<Item = &Path> {
        let keeping = &self.plan.keeping;
        let makes = keeping.makes.iter().filter(|make| make.is_in_home());
        let logins = keeping.logins.iter().map(|login| login.host.as_path());
        makes.map(persistent::Make::path).chain(logins)
    }

    /// No step reaches past the enforced lists.
    fn places_of_the_site(&self) -> Result<(), String> {
        let (plan, site_bounds) = (self.plan, &self.plan.site_bounds);
        let refused = |list: Refusing, path: &Path| {
            let (key, path) = (list.key, path.display());
            Err(format!("the site's {key} does not hold `{path}`"))
        };
        let project = plan.project.as_deref();
        if let Some(project) = project
            && let Some(list) = site_bounds.refusing_project(project)
        {
            return refused(list, project);
        }
        for step in &plan.steps {
            let (path, list) = match &step.mount {
                Mount::Bind { from, access, .. } => {
                    let of_project = project.is_some_and(|project| from.starts_with(project));
                    let of_git = match &step.why {
                        Why::Every(why) => why.starts_with("git's directory"),
                        Why::Rule { key, .. } => key == "project.git",
                    };
                    let list = match access {
                        _ if of_project => None,
                        _ if of_git => site_bounds.refusing_repository(from),
                        Access::Read if self.is_ours(step) => None,
                        access => site_bounds.refusing(from, *access),
                    };
                    (from, list)
                }
                Mount::Kept { .. } => (&step.at, site_bounds.refusing_keep(&step.at)),
                Mount::Copy { from, .. } => (from, site_bounds.refusing_seed(from)),
                Mount::Device { from } => {
                    if devices::rule(&self.policy.devices.deny, &[from]).is_some() {
                        return Err(format!("devices.deny names `{}`", from.display()));
                    }
                    (from, site_bounds.refusing_device(from))
                }
                _ => continue,
            };
            if let Some(list) = list {
                return refused(list, path);
            }
        }
        Ok(())
    }

    /// Our own programs, standard input, and where links in /etc lead.
    fn is_ours(&self, step: &Step) -> bool {
        let mut covers = self.host.slurm.iter().flat_map(|slurm| &slurm.covers);
        let unasked = matches!(step.why, Why::Every(_));
        unasked || step.at.starts_with(super::model::OWN) || covers.any(|place| *place == step.at)
    }

    /// The values that open something, and the variables that pass.
    fn values_of_the_site(&self) -> Result<(), String> {
        let plan = self.plan;
        let keyctl = plan.syscalls.iter().all(|rule| rule.name != "keyctl");
        for layer in &self.policy.bounds.layers {
            let wider = [
                (
                    "network.mode",
                    is_wider(&plan.network.value, layer.network.mode.get()),
                ),
                (
                    "jail.nested",
                    is_wider(&plan.nested.value, layer.jail.nested.get()),
                ),
                ("jail.keyctl", is_wider(&keyctl, layer.jail.keyctl.get())),
                (
                    "slurm.mode",
                    plan.slurm.value == Use::On
                        && is_wider(&SlurmMode::Auto, layer.slurm.mode.get()),
                ),
            ];
            if let Some((key, _)) = wider.into_iter().find(|(_, wider)| *wider) {
                return Err(format!("{key} is wider than the site's"));
            }
        }
        for Variable { name, value, why } in &plan.variables {
            let ours = matches!(why, Why::Every(_)) && OWN.iter().any(|own| name == own);
            // What an enforced layer sets was judged when the layers were merged.
            let by_site = matches!(why, Why::Rule { key, source }
                if key.starts_with("env.set") && source.layer == Layer::SiteEnforced);
            // As it was before the shims' directory was added to it.
            let suffix = [b":", SHIMS.as_bytes()].concat();
            let value = value.as_bytes();
            let value = value.strip_suffix(suffix.as_slice()).unwrap_or(value);
            let withheld = self.policy.bounds.withheld(name.as_bytes(), Some(value));
            if !ours && !by_site && withheld.is_some() {
                let name = name.display();
                return Err(format!("the variable {name} passes, which the site hides"));
            }
        }
        Ok(())
    }

    /// Nothing that the site protects is written, by any name.
    fn protected_by_the_site(&self) -> Result<(), String> {
        let (plan, files) = (self.plan, self.files);
        let rules = self.policy.home.protect.iter();
        for rule in rules.filter(|rule| rule.source.layer == Layer::SiteEnforced) {
            let mut writing = Vec::new();
            for place in protected(rule, self.host, files) {
                let real = real_as_far_as_it_exists(files, &place);
                writing.extend(self.made().find(|made| made.starts_with(&real)));
                // What does not exist cannot be mounted over.
                if !matches!(files.look(&place), Look::Found(_)) {
                    continue;
                }
                let around = deciding(plan, &real).filter(|_| shows(plan, &real, &real));
                let within = plan.steps.iter().filter(|step| match &step.mount {
                    Mount::Bind { from, .. } => from.starts_with(&real),
                    _ => false,
                });
                let shown = around.into_iter().chain(within);
                let written = shown.filter(|step| writes(step));
                writing.extend(written.map(|step| step.at.as_path()));
            }
            if let Some(at) = writing.first() {
                let (at, text) = (at.display(), &rule.value);
                return Err(format!(
                    "`{at}` makes what the site's home.protect `{text}` names writable"
                ));
            }
        }
        Ok(())
    }

    /// What every jail has to itself, and what it may not do.
    fn private(&self) -> Result<(), String> {
        for needed in ["/proc", "/dev", "/tmp", "/run"] {
            if !self
                .plan
                .steps
                .iter()
                .any(|step| step.at == Path::new(needed))
            {
                return Err(format!("`{needed}` is not private"));
            }
        }
        for name in ["ioctl", "io_uring_setup", "bpf", "chmod", "openat2"] {
            if !self.plan.syscalls.iter().any(|rule| rule.name == name) {
                return Err(format!("the system call filter lacks {name}"));
            }
        }
        Ok(())
    }

    /// Ports that are reached from outside: in a network of the jail's own, within the site's lists, and where no filter listens.
    fn forwarded(&self) -> Result<(), String> {
        let plan = self.plan;
        for port in &plan.forward {
            let port = port.value;
            if plan.network.value == NetworkMode::Open {
                return Err(format!("port {port} of the host is forwarded"));
            }
            let mut bounds = self.policy.bounds.layers.iter();
            let lacks = |bound: &[Sourced<u16>]| bound.iter().all(|one| one.value != port);
            if bounds.any(|layer| layer.network.forward.bound().is_some_and(lacks)) {
                return Err(format!("port {port} is not in the site's network.forward"));
            }
            let filter = plan.filter.as_ref();
            if filter.is_some_and(|filter| filter.listens_at(port)) {
                return Err(format!(
                    "the filter listens at port {port}, which is forwarded"
                ));
            }
        }
        Ok(())
    }

    /// A network that is filtered: by rules that no enforced list refuses, and with names from the filter alone.
    fn filtered(&self) -> Result<(), String> {
        let plan = self.plan;
        let Some(filter) = &plan.filter else {
            let filtered = plan.network.value == NetworkMode::Filtered;
            return match filtered {
                true => Err("the network is filtered by nothing".to_owned()),
                false => Ok(()),
            };
        };
        if plan.network.value != NetworkMode::Filtered {
            return Err("a network is filtered that is not to be".to_owned());
        }
        for layer in &self.policy.bounds.layers {
            let denied = layer.network.deny.entries().iter();
            let mut denied = denied.filter_map(|entry| entry.value.rule());
            let held = |rule: &HostRule| filter.rules.deny.iter().any(|one| one.rule == *rule);
            if let Some(rule) = denied.find(|rule| !held(rule)) {
                return Err(format!("the site's network.deny `{rule}` is not in force"));
            }
            let given = filter.rules.allow.iter().chain(&filter.rules.private);
            let wider = |rule: &&Rule| !layer.network.allow.covers(&rule.rule);
            if let Some(rule) = given.clone().find(wider) {
                return Err(format!(
                    "`{}` is wider than the site's network.allow",
                    rule.rule
                ));
            }
            let mut private = filter.rules.private.iter();
            if let Some(rule) = private.find(|rule| !layer.network.private.covers(&rule.rule)) {
                return Err(format!(
                    "`{}` is wider than the site's network.private",
                    rule.rule
                ));
            }
        }
        for service in NAME_SERVICES.map(Path::new) {
            let shown = plan.steps.iter().find(|step| match &step.mount {
                Mount::Bind { from, .. } => service.starts_with(from) || from.starts_with(service),
                _ => false,
            });
            if let Some(step) =
                shown.filter(|step| shows(plan, &step.at, service) || step.at.starts_with(service))
            {
                return Err(format!(
                    "`{}` shows a service that looks names up past the filter",
                    step.at.display()
                ));
            }
        }
        Ok(())
    }

    fn variables(&self) -> Result<(), String> {
        let mut hidden = self.plan.hidden_variables.iter();
        let passing = hidden.find(|hidden| {
            let mut passing = self.plan.variables.iter();
            passing.any(|variable| variable.name == hidden.name)
        });
        match passing {
            None => Ok(()),
            Some(hidden) => Err(format!(
                "the hidden variable {} passes",
                hidden.name.display()
            )),
        }
    }
}

fn hides(rule: &Sourced<PathSpec>) -> String {
    format!("files.hide `{}` ({}) hides", rule.value, rule.source)
}

/// Whether a path is absolute, without `.` and `..`.
#[must_use]
pub fn is_plain(path: &Path) -> bool {
    path.is_absolute()
        && path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

/// Whether a value is wider than an enforced layer's.
fn is_wider<T: Stricter>(value: &T, most: Option<&Sourced<T>>) -> bool {
    most.is_some_and(|most| value.stricter(&most.value) != *value)
}

fn writes(step: &Step) -> bool {
    matches!(&step.mount, Mount::Bind { access, .. } if *access == Access::Write)
}

/// The step that decides at a path inside: of those at it and above it, the last.
fn deciding<'a>(plan: &'a Plan, inside: &Path) -> Option<&'a Step> {
    let mut steps = plan.steps.iter().rev();
    steps.find(|step| lies_in(inside, &step.at))
}

/// Whether a path inside leads to `target` on the host.
fn shows(plan: &Plan, inside: &Path, target: &Path) -> bool {
    let Some(step) = deciding(plan, inside) else {
        return false;
    };
    match (&step.mount, inside.strip_prefix(&step.at)) {
        (Mount::Bind { from, .. }, Ok(below)) => {
            target.strip_prefix(from).is_ok_and(|other| other == below)
        }
        _ => false,
    }
}

/// Whether a writable bind of `from` leads to `own`, or lies in it.
fn reaches(plan: &Plan, from: &Path, own: &Path) -> bool {
    from.starts_with(own) || (own.starts_with(from) && shows(plan, own, own))
}
