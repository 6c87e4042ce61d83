//! What the enforced layers alone allow, worked out from the layers as data and the host in memory,
//! and compared with a plan by what it shows. Shares no code with the program: paths are walked, and
//! patterns matched, anew.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use agent_sandbox::plan::{Access, Mount, Plan};
use agent_sandbox::policy::{Policy, ShmSize};

use super::case::{
    ALLOCATION, DEMANDS, GIT, MODES, NETWORK, QUERIES, SCOPE, SLURM, STATE, Says, TRACE, USERS,
};
use crate::tree::{Tree, What};

/// The home of the user database.
const HOME: &str = "/home/ada";

/// Variables that the jail has of its own.
const OWN: [&str; 9] = [
    "AGENT_SANDBOX",
    "AGENT_SANDBOX_PROJECT",
    "AGENT_SANDBOX_SESSION",
    "HOME",
    "XDG_RUNTIME_DIR",
    "TMPDIR",
    "PWD",
    "GIT_SSH",
    "AGENT_SANDBOX_INSTRUCTIONS",
];

pub(crate) struct Oracle<'a> {
    pub(crate) enforced: &'a [Says],
    pub(crate) tree: &'a Tree,
    /// Other names of directories in the home: place and path in the home.
    pub(crate) aliases: &'a [(PathBuf, PathBuf)],
    /// `$HOME`, and the other homes.
    pub(crate) homes: &'a [PathBuf],
}

/// What a file of the tests holds: where it stands.
pub(crate) fn marker(path: &str) -> String {
    format!("<file {path}>")
}

/// `*` stands for any run of bytes.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|skip| fits(rest, &text[skip..])),
        [first, rest @ ..] => text.first() == Some(first) && fits(rest, &text[1..]),
    }
}

fn any_fits(patterns: Option<&Vec<String>>, text: &[u8]) -> bool {
    patterns.is_some_and(|all| all.iter().any(|one| fits(one.as_bytes(), text)))
}

impl Oracle<'_> {
    /// The real path of what an enforced layer names, following links that root made; `None` if one
    /// on the way is another's.
    fn meant(&self, path: &Path, depth: usize) -> Option<PathBuf> {
        let mut here = PathBuf::from("/");
        let parts: Vec<Component<'_>> = path.components().skip(1).collect();
        for (at, part) in parts.iter().enumerate() {
            let next = match part {
                Component::ParentDir => {
                    here.pop();
                    continue;
                }
                Component::Normal(name) => here.join(name),
                _ => continue,
            };
            if let Some(What::Link(target)) = self.tree.get(&next).map(|node| &node.what) {
                // A dangling link leads nowhere.
                if !self.tree.is_roots(&here) || depth == 0 || self.tree.resolve(&next).is_none() {
                    return None;
                }
                let rest: PathBuf = parts[at + 1..].iter().collect();
                return self.meant(&here.join(target).join(rest), depth - 1);
            }
            here = next;
        }
        Some(here)
    }

    fn path(entry: &str) -> PathBuf {
        match entry.strip_prefix("~/") {
            Some(rest) => Path::new(HOME).join(rest),
            None => PathBuf::from(entry),
        }
    }

    /// Whether a list holds a place.
    fn holds(&self, list: &[String], place: &Path) -> bool {
        list.iter().any(|entry| {
            let path = Self::path(entry);
            if !entry.contains('*') {
                return self
                    .meant(&path, 40)
                    .is_some_and(|at| place.starts_with(at));
            }
            let pattern = path.file_name().unwrap().as_bytes();
            let Some(above) = self.meant(path.parent().unwrap(), 40) else {
                return false;
            };
            let in_it = place.ancestors().find(|at| at.parent() == Some(&above));
            let by_name = in_it.is_some_and(|at| fits(pattern, at.file_name().unwrap().as_bytes()));
            let links = self.tree.below(&above).filter(|(at, node)| {
                at.parent() == Some(&above)
                    && matches!(node.what, What::Link(_))
                    && fits(pattern, at.file_name().unwrap().as_bytes())
            });
            by_name
                || links
                    .filter_map(|(at, _)| self.meant(at, 40))
                    .any(|at| place.starts_with(at))
        })
    }

    /// A path in the home by the home's own name.
    fn usual(&self, real: &Path) -> PathBuf {
        for (at, of) in self.aliases {
            if let Ok(rest) = real.strip_prefix(at) {
                return rest.iter().fold(of.clone(), |path, part| path.join(part));
            }
        }
        real.to_path_buf()
    }

    fn may(&self, layer: &Says, real: &Path, access: Access) -> bool {
        let place = self.usual(real);
        let home = self.meant(Path::new(HOME), 40).unwrap();
        let (read, write) = match place.starts_with(home) {
            true => (&layer.home_read, &layer.home_write),
            false => (&layer.read, &layer.write),
        };
        let in_write = write.as_ref().map(|list| self.holds(list, &place));
        let in_read = read.as_ref().map(|list| self.holds(list, &place));
        let readable = in_read != Some(false) || in_write == Some(true);
        readable && (access == Access::Read || in_write != Some(false))
    }

    /// The places that an enforced layer hides, in every home and where links lead.
    fn hidden(&self, layer: &Says) -> BTreeSet<PathBuf> {
        let excepted =
            |entry: &String| layer.unhide.as_ref().is_some_and(|all| all.contains(entry));
        let mut all = BTreeSet::new();
        for entry in layer.hide.iter().flatten().filter(|one| !excepted(one)) {
            let named: Vec<PathBuf> = match entry.strip_prefix("~/") {
                Some(rest) => self.homes.iter().map(|home| home.join(rest)).collect(),
                None => vec![entry.into()],
            };
            for path in named {
                let above = self.tree.real(path.parent().unwrap());
                let pattern = path.file_name().unwrap().as_bytes();
                let there = self.tree.below(&above).map(|(at, _)| at);
                for at in there.filter(|at| {
                    at.parent() == Some(&above) && fits(pattern, at.file_name().unwrap().as_bytes())
                }) {
                    all.insert(at.clone());
                    all.extend(Some(self.tree.real(at)).filter(|real| real != Path::new("/")));
                }
            }
        }
        all
    }

    /// Everything that a plan has more than the enforced layers allow.
    pub(crate) fn complaints(&self, plan: &Plan, policy: &Policy) -> Vec<String> {
        let mut all = Vec::new();
        for (number, layer) in self.enforced.iter().enumerate() {
            let mut found = self.files(layer, plan);
            found.extend(self.variables(number, plan));
            found.extend(self.devices(layer, plan));
            found.extend(self.keeping(layer, plan));
            found.extend(self.protected(layer, plan));
            found.extend(values(layer, plan, policy));
            all.extend(
                found
                    .into_iter()
                    .map(|what| format!("layer {number}: {what}")),
            );
        }
        all
    }

    fn files(&self, layer: &Says, plan: &Plan) -> Vec<String> {
        let mut all = Vec::new();
        let project = plan.project.as_deref();
        if let (Some(project), Some(parents)) = (project, &layer.parents) {
            let place = self.usual(project);
            if !self.holds(parents, &place) {
                all.push(format!("the project {}", project.display()));
            }
        }
        let hidden = self.hidden(layer);
        for (real, node) in self.tree.below(Path::new("/")) {
            if matches!(node.what, What::Link(_)) {
                continue;
            }
            let over = plan
                .steps
                .iter()
                .rev()
                .find(|step| real.starts_with(&step.at));
            let access = match over.map(|step| (&step.at, &step.mount)) {
                Some((at, Mount::Bind { from, access, .. })) if from == at => *access,
                _ => continue,
            };
            // What the caller may not read is as safe as outside, unless its mode can be changed.
            let closed = real
                .ancestors()
                .any(|at| self.tree.get(at).is_some_and(|node| !node.readable));
            let shown = real.display();
            let covered = hidden.iter().any(|at| real.starts_with(at));
            if covered && node.what != What::Directory && !(closed && access == Access::Read) {
                all.push(format!("{shown} is hidden, and {access:?}"));
            }
            let of_project = project.is_some_and(|project| real.starts_with(project));
            if !of_project && !self.may(layer, real, access) {
                all.push(format!("{shown} is {access:?}"));
            }
        }
        for step in &plan.steps {
            if let Mount::Copy { from, .. } = &step.mount {
                let place = self.usual(from);
                let allowed = match &layer.seed {
                    Some(seed) => self.holds(seed, &place),
                    None => self.may(layer, from, Access::Read),
                };
                let covered = hidden.iter().any(|at| from.starts_with(at));
                if !allowed || covered {
                    all.push(format!("a copy of {}", from.display()));
                }
            }
        }
        all
    }

    /// What is kept, what is shown in it by another name, what is made, carried out and carried over.
    fn keeping(&self, layer: &Says, plan: &Plan) -> Vec<String> {
        let mut all = Vec::new();
        let hidden = self.hidden(layer);
        let covered = |path: &Path| hidden.iter().any(|at| path.starts_with(at));
        for step in &plan.steps {
            let at = step.at.display();
            match &step.mount {
                Mount::Kept { .. } => {
                    let keep = layer.keep.as_ref();
                    if keep.is_some_and(|keep| !self.holds(keep, &self.usual(&step.at))) {
                        all.push(format!("{at} is kept"));
                    }
                }
                Mount::Bind { from, access, .. } if plan.kept_around(&step.at).is_some() => {
                    let of_project = plan.project.as_ref();
                    let of_project = of_project.is_some_and(|project| from.starts_with(project));
                    let secret = self.tree.below(from).any(|(path, node)| {
                        !matches!(node.what, What::Directory | What::Link(_)) && covered(path)
                    });
                    let own = self.tree.get(from).is_some();
                    let shown_elsewhere = *from != step.at;
                    if own && !of_project && !self.may(layer, from, *access)
                        || shown_elsewhere && secret
                    {
                        all.push(format!("{at} shows {}", from.display()));
                    }
                }
                Mount::File { content } => {
                    for (path, node) in self.tree.below(Path::new("/")) {
                        let What::File(own) = &node.what else {
                            continue;
                        };
                        let told = own.starts_with(marker("").trim_end_matches('>').as_bytes())
                            && content.windows(own.len()).any(|part| part == own);
                        if told && (covered(path) || !self.may(layer, path, Access::Read)) {
                            all.push(format!("{at} tells what {} holds", path.display()));
                        }
                    }
                }
                _ => {}
            }
        }
        let keeping = &plan.keeping;
        let makes = keeping.makes.iter().filter(|make| make.is_in_home());
        let logins = keeping.logins.iter().map(|login| login.host.as_path());
        for path in makes.map(|make| make.path()).chain(logins) {
            let mut protected = layer.protect.iter().flatten();
            let protected = protected.any(|entry| {
                let place = self.meant(&Self::path(entry), 40);
                place.is_some_and(|place| self.usual(path).starts_with(place))
            });
            if protected || covered(path) || !self.may(layer, path, Access::Write) {
                all.push(format!("{} is made", path.display()));
            }
        }
        for seed in &keeping.seeds {
            let place = self.usual(&seed.from);
            let allowed = match &layer.seed {
                Some(list) => self.holds(list, &place),
                None => self.may(layer, &seed.from, Access::Read),
            };
            if !allowed || covered(&seed.from) {
                all.push(format!("keys of {}", seed.from.display()));
            }
        }
        all
    }

    /// What is protected, written by a name of its own or another one of the home's.
    fn protected(&self, layer: &Says, plan: &Plan) -> Vec<String> {
        let named = layer
            .protect
            .iter()
            .flatten()
            .map(|entry| Self::path(entry));
        let protected: Vec<PathBuf> = named.filter_map(|at| self.tree.resolve(&at)).collect();
        let is_protected = |path: &Path| {
            let usual = self.usual(path);
            let mut all = protected.iter();
            all.any(|at| path.starts_with(at) || usual.starts_with(at))
        };
        let files = self.tree.below(Path::new("/")).map(|(path, _)| path);
        let written = files.filter(|path| {
            let mut over = plan.steps.iter().rev();
            let over = over.find(|step| path.starts_with(&step.at));
            is_protected(path)
                && over.is_some_and(|step| match &step.mount {
                    Mount::Bind { from, access, .. } => {
                        *from == step.at && *access == Access::Write
                    }
                    _ => false,
                })
        });
        written
            .map(|path| format!("{} is protected, and written", path.display()))
            .collect()
    }

    fn variables(&self, number: usize, plan: &Plan) -> Vec<String> {
        let layer = &self.enforced[number];
        let mut all = Vec::new();
        for variable in &plan.variables {
            let name = variable.name.as_bytes();
            let value = variable.value.as_bytes();
            let own = OWN.iter().any(|own| own.as_bytes() == name);
            // The layer's own value is what it wants.
            let set = layer
                .set
                .iter()
                .any(|(set, to)| set.as_bytes() == name && to.as_bytes() == value);
            if own || set || any_fits(layer.pass.as_ref(), name) {
                continue;
            }
            let by_name = any_fits(layer.env_hide.as_ref(), name);
            if by_name || any_fits(layer.hide_values.as_ref(), value) {
                all.push(format!("the variable {}", variable.name.display()));
            }
        }
        // What it sets holds, unless a later layer sets it or another hides it.
        for (name, value) in &layer.set {
            let others = || {
                self.enforced
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| *at != number)
            };
            let later = others()
                .any(|(at, other)| at > number && other.set.iter().any(|(set, _)| set == name));
            let hidden = others().any(|(_, other)| {
                !any_fits(other.pass.as_ref(), name.as_bytes())
                    && (any_fits(other.env_hide.as_ref(), name.as_bytes())
                        || any_fits(other.hide_values.as_ref(), value.as_bytes()))
            });
            let inside = plan
                .variables
                .iter()
                .find(|variable| variable.name == name.as_str());
            if !later && !hidden && inside.is_none_or(|inside| inside.value != value.as_str()) {
                all.push(format!("{name} is not what the site sets"));
            }
        }
        all
    }

    fn devices(&self, layer: &Says, plan: &Plan) -> Vec<String> {
        let nodes = plan.steps.iter().filter_map(|step| match &step.mount {
            Mount::Device { from } => Some(from),
            _ => None,
        });
        let wrong = nodes.filter(|from| {
            let name = from.as_os_str().as_bytes();
            let allowed = layer.allow.as_ref().is_none_or(|all| self.holds(all, from));
            !allowed || any_fits(layer.deny.as_ref(), name)
        });
        wrong
            .map(|from| format!("the device {}", from.display()))
            .collect()
    }
}

/// Single values, by the places of their words.
fn values(layer: &Says, plan: &Plan, policy: &Policy) -> Vec<String> {
    let mut all = Vec::new();
    let words = &layer.words;
    let place = |words: &[&str], value: String| {
        let value = value.to_lowercase();
        words.iter().position(|word| *word == value).unwrap()
    };
    let mut at_most = |what: &str, value: usize, most: Option<usize>| {
        if most.is_some_and(|most| value > most) {
            all.push(format!("{what} is wider"));
        }
    };
    let jail = &policy.jail;
    at_most(
        "git",
        place(&GIT, format!("{:?}", policy.project.git.value)),
        words.git,
    );
    at_most(
        "settings",
        place(&GIT, format!("{:?}", policy.project.settings.value)),
        words.settings,
    );
    let demands = [&policy.landlock.sizes, &policy.landlock.users];
    for (at, demand) in demands.into_iter().enumerate() {
        let most = words.demands.map(|most| most[at]);
        at_most(
            "a demand",
            place(&DEMANDS, format!("{:?}", demand.value)),
            most,
        );
    }
    at_most(
        "mode",
        place(&MODES, format!("{:?}", policy.home.mode.value)),
        words.mode,
    );
    at_most(
        "users",
        place(&USERS, format!("{:?}", jail.users.value)),
        words.users,
    );
    at_most(
        "network",
        place(&NETWORK, format!("{:?}", plan.network.value)),
        words.network,
    );
    at_most(
        "slurm",
        place(&SLURM, format!("{:?}", policy.slurm.mode.value)),
        words.slurm,
    );
    at_most(
        "scope",
        place(&SCOPE, format!("{:?}", policy.slurm.scope.value)),
        words.scope,
    );
    at_most(
        "queries",
        place(&QUERIES, format!("{:?}", policy.slurm.queries.value)),
        words.queries,
    );
    at_most(
        "allocation",
        place(&ALLOCATION, format!("{:?}", policy.slurm.allocation.value)),
        words.allocation,
    );
    at_most(
        "state",
        place(&STATE, format!("{:?}", policy.agents.state.value)),
        words.state,
    );
    at_most(
        "nested",
        plan.nested.value.into(),
        words.nested.map(Into::into),
    );
    let keyctl = plan.syscalls.iter().all(|rule| rule.name != "keyctl");
    at_most("keyctl", keyctl.into(), words.keyctl.map(Into::into));
    let timeout = policy.files.timeout_ms.value.as_millis();
    if words.timeout.is_some_and(|most| timeout > most.into()) {
        all.push("the timeout is longer".to_owned());
    }
    let trace = &policy.trace;
    if let Some(least) = &words.traced {
        let names: Vec<&str> = trace.events.value.names().collect();
        let redacted = |one: &&&str| trace.redact.iter().all(|other| other.value != **one);
        let on = [&trace.missing, &trace.enforce, &trace.audit].map(|on| on.value);
        let less = place(&TRACE, format!("{:?}", trace.mode.value)) > least.mode
            || least.events.iter().any(|event| !names.contains(event))
            || u64::from(trace.every.value) > least.every
            || least.redact.iter().find(redacted).is_some()
            || on
                .iter()
                .zip(least.switches)
                .any(|(on, least)| least && !on);
        if less {
            all.push("less is recorded".to_owned());
        }
    }
    let mut limit = |what: &str, value: u64, most: Option<u64>| {
        // 0: no limit.
        if most.is_some_and(|most| most != 0 && (value == 0 || value > most)) {
            all.push(format!("{what} is wider"));
        }
    };
    limit(
        "processes",
        plan.max_processes.value.unwrap_or(0),
        words.processes,
    );
    let (limits, bounds) = (&policy.slurm.limits, &policy.slurm.bounds);
    let values = [
        &limits.queries_per_minute,
        &limits.jobs,
        &bounds.nodes,
        &bounds.gpus,
        &bounds.minutes,
    ];
    for (at, value) in values.into_iter().enumerate() {
        limit(
            "a limit",
            value.value.into(),
            words.limits.map(|limits| limits[at]),
        );
    }
    for step in &plan.steps {
        let Mount::Tmpfs { size, .. } = &step.mount else {
            continue;
        };
        let most = match step.at.to_str().unwrap() {
            "/tmp" | "/var/tmp" => words.sizes.map(|[tmp, _]| tmp),
            "/dev/shm" => words.shm.filter(|size| *size != 0),
            _ if step.at == plan.home => words.sizes.map(|[_, home]| home),
            _ => None,
        };
        limit("a size", *size, most.map(|mib| mib << 20));
    }
    // Half of a job's memory, whatever the user says.
    if words.shm == Some(0) && matches!(jail.shm_size.value, ShmSize::Bytes(_)) {
        all.push("shm_size is a number".to_owned());
    }
    let modules = policy.modules.load.iter().filter(|module| {
        layer.load.as_ref().is_some_and(|all| {
            all.iter()
                .all(|one| module.value != *one && !module.value.starts_with(&format!("{one}/")))
        })
    });
    all.extend(modules.map(|module| format!("the module {}", module.value)));
    if words.users == Some(0) {
        let passwd = Path::new("/etc/passwd");
        let over = plan
            .steps
            .iter()
            .rev()
            .find(|step| passwd.starts_with(&step.at));
        if matches!(over.map(|step| &step.mount), Some(Mount::Bind { .. })) {
            all.push("the user database".to_owned());
        }
    }
    all
}
