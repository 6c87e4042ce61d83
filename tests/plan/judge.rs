//! What must hold for every plan, judged by carrying the steps out on a host in memory. Shares no
//! code with the planner but the types, so that both would have to be wrong in the same way.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use agent_sandbox::host::HostFacts;
use agent_sandbox::plan::model::slurm::{CHAPERON_INSIDE, PROGRAM};
use agent_sandbox::plan::{Access, INIT, Mount, Plan, Step};
use agent_sandbox::policy::{PathSpec, Policy, paths::Expansion};

use crate::kept;
use crate::tree::{Tree, What};

/// `~` of one of the caller's homes.
struct In<'a>(&'a HostFacts, &'a Path);

impl Expansion for In<'_> {
    fn home(&self) -> &Path {
        self.1
    }

    fn variable(&self, name: &str) -> Option<&OsStr> {
        self.0.path_variable(name)
    }
}

/// `*` stands for any run of bytes.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|skip| matches(rest, &name[skip..])),
        Some((first, rest)) => name
            .split_first()
            .is_some_and(|(head, tail)| head == first && matches(rest, tail)),
    }
}

/// What a policy's path list means here, by the paths' names; directories on the way are real.
fn places(specs: impl Iterator<Item = PathSpec>, host: &HostFacts, tree: &Tree) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for spec in specs {
        for home in [Some(&host.home), host.passwd_home.as_ref()]
            .into_iter()
            .flatten()
        {
            if let Some(path) = spec.expand(&In(host, home))
                && let (Some(parent), Some(name)) = (path.parent(), path.file_name())
            {
                all.push(tree.real(parent).join(name));
            }
        }
    }
    all
}

/// The files that must not be readable, by real path: each with all that is below it.
struct Hidden {
    roots: Vec<PathBuf>,
    /// Directories of homes, with what is left out of each.
    homes: Vec<(PathBuf, Vec<PathBuf>)>,
}

impl Hidden {
    fn of(policy: &Policy, host: &HostFacts, tree: &Tree) -> Self {
        let mut roots = Vec::new();
        // An exception cancels the rule that it names, word for word.
        let unhide = |path: &PathSpec| policy.files.unhide.iter().any(|rule| rule.value == *path);
        let rules = policy.files.hide.iter().map(|rule| rule.value.clone());
        let (of_homes, rules): (Vec<PathSpec>, Vec<PathSpec>) = rules
            .filter(|path| !unhide(path))
            .partition(|path| path.to_string().contains(" but ~"));
        let homes = of_homes.iter().map(|rule| {
            let text = rule.to_string();
            let (directory, left_out) = text.split_once("/* but ~").unwrap();
            let directory = tree.real(Path::new(directory));
            let names = left_out
                .split(", ")
                .skip(1)
                .map(|name| directory.join(name));
            let own = host.database_home().unwrap_or(host.home.clone());
            let left_out = names.chain([tree.real(&own)]).collect();
            (directory, left_out)
        });
        let homes = homes.collect();
        let rules = rules.into_iter();
        let slurm = host.slurm.iter();
        let named = slurm.flat_map(|slurm| slurm.sockets.iter().chain(&slurm.spools));
        let named = named.filter_map(|named| PathSpec::absolute(&named.path).ok());
        for place in places(rules.chain(named), host, tree) {
            let (parent, name) = (place.parent().unwrap(), place.file_name().unwrap());
            let there = tree.below(parent).map(|(path, _)| path).filter(|path| {
                path.parent() == Some(parent)
                    && matches(name.as_bytes(), path.file_name().unwrap().as_bytes())
            });
            for path in there {
                roots.push(path.clone());
                // A name that leads to the whole file system hides the name alone.
                roots.extend(Some(tree.real(path)).filter(|real| real != Path::new("/")));
            }
        }
        Self { roots, homes }
    }

    fn covers(&self, path: &Path) -> bool {
        let of_others = |(directory, left_out): &(PathBuf, Vec<PathBuf>)| {
            path.starts_with(directory)
                && path != directory
                && left_out.iter().all(|own| !path.starts_with(own))
        };
        self.roots.iter().any(|root| path.starts_with(root)) || self.homes.iter().any(of_others)
    }
}

/// The step that decides at a path inside: of those at or above it, the last one carried out.
fn deciding<'a>(steps: &'a [Step], inside: &Path) -> Option<&'a Step> {
    steps.iter().rev().find(|step| inside.starts_with(&step.at))
}

/// What can be done inside with a file of the host, by its real path. Binds stand at the place
/// where they come from, which is checked.
fn access(steps: &[Step], real: &Path) -> Option<Access> {
    match &deciding(steps, real)?.mount {
        Mount::Bind { access, .. } => Some(*access),
        Mount::Device { .. } => Some(Access::Write),
        _ => None,
    }
}

/// Whether a place lies below a directory of the jail's own, where links of the host's lead nowhere.
fn is_in_kept(before: &[Step], at: &Path) -> bool {
    let kept = |step: &Step| matches!(step.mount, Mount::Kept { .. }) && at.starts_with(&step.at);
    before.iter().any(kept)
}

/// Everything that is wrong with a plan.
pub(crate) fn complaints(
    plan: &Plan,
    policy: &Policy,
    host: &HostFacts,
    tree: &Tree,
) -> Vec<String> {
    let mut all = Vec::new();
    for pair in plan.steps.windows(2) {
        if pair[0].at >= pair[1].at {
            all.push(format!(
                "{} stands behind {}",
                pair[0].at.display(),
                pair[1].at.display()
            ));
        }
    }
    for (number, step) in plan.steps.iter().enumerate() {
        all.extend(misplaced(&plan.steps[..number], step, host, tree));
    }
    all.extend(leaks(plan, policy, host, tree));
    all.extend(uncovered(plan, host));
    all.extend(openings(plan, policy, host, tree));
    all.extend(kept::judge::complaints(plan, host, tree));
    all
}

/// A step must not make anything on the host, nor be carried out where it cannot be.
fn misplaced(before: &[Step], step: &Step, host: &HostFacts, tree: &Tree) -> Vec<String> {
    let mut all = Vec::new();
    let at = step.at.display();
    if let Mount::Bind { from, .. } = &step.mount {
        let there = tree.get(from).map(|node| &node.what);
        // Programs of ours alone stand at another place than on the host.
        let shim = host.slurm.as_ref().is_some_and(|slurm| {
            slurm.shim.as_ref() == Some(from)
                && (slurm.covers.contains(&step.at) || step.at == Path::new(PROGRAM))
        });
        let chaperon = step.at == Path::new(CHAPERON_INSIDE)
            && host
                .slurm
                .as_ref()
                .and_then(|slurm| slurm.chaperon.as_ref())
                == Some(from);
        let by_link = is_in_kept(before, &step.at);
        if *from != step.at && step.at != Path::new(INIT) && !shim && !chaperon && !by_link {
            all.push(format!("{at} shows {}", from.display()));
        }
        if !matches!(there, Some(What::Directory | What::File(_) | What::Socket)) {
            all.push(format!("{at} binds {there:?}"));
        }
    }
    for above in step.at.ancestors().skip(1) {
        match before
            .iter()
            .find(|step| step.at == above)
            .map(|step| &step.mount)
        {
            None | Some(Mount::Tmpfs { .. } | Mount::Directory { .. } | Mount::Dev) => {}
            Some(Mount::Bind { .. }) => break,
            // A link in it leads to where such a thing really stands.
            Some(Mount::Kept { .. })
                if matches!(step.mount, Mount::Bind { .. } | Mount::File { .. }) =>
            {
                break;
            }
            Some(other) => all.push(format!("{at} stands below {other:?}")),
        }
    }
    if let Some(Mount::Bind { .. }) = deciding(before, &step.at).map(|step| &step.mount) {
        let there = tree.get(&step.at).map(|node| &node.what);
        let fits = match &step.mount {
            Mount::Bind { from, .. } => {
                let same = |what: Option<&What>| matches!(what, Some(What::Directory));
                there.is_some() && same(there) == same(tree.get(from).map(|node| &node.what))
            }
            // Made before, by the launcher.
            Mount::HideDirectory if host.join_directories.contains(&step.at) => {
                matches!(there, None | Some(What::Directory))
            }
            Mount::Tmpfs { .. } | Mount::Directory { .. } | Mount::HideDirectory => {
                matches!(there, Some(What::Directory))
            }
            Mount::File { .. } | Mount::Program { .. } | Mount::HideFile | Mount::Device { .. } => {
                matches!(there, Some(What::File(_) | What::Device | What::Socket))
            }
            _ => false,
        };
        // Where nothing can be reached, and through a link, bubblewrap fails and nothing is shown.
        let unreachable = step.at.ancestors().any(|above| {
            tree.get(above).is_some_and(|node| {
                !node.readable
                    || node.what == What::Hung
                    || (step.mount == Mount::HideFile && matches!(node.what, What::Link(_)))
            })
        });
        if !fits && !unreachable {
            all.push(format!(
                "{at} would make {:?} on the host, over {there:?}",
                step.mount
            ));
        }
    }
    all
}

/// Where Slurm can be used, its own commands must not be seen.
fn uncovered(plan: &Plan, host: &HostFacts) -> Vec<String> {
    let covers = host.slurm.iter().flat_map(|slurm| &slurm.covers);
    let seen = covers.filter(|place| {
        plan.wants_chaperon()
            && matches!(deciding(&plan.steps, place).map(|step| (&step.at, &step.mount)),
                Some((at, Mount::Bind { from, .. })) if from == at)
    });
    let met = host
        .join_directories
        .iter()
        .filter(|place| access(&plan.steps, place).is_some());
    seen.map(|place| format!("{} is Slurm's own", place.display()))
        .chain(met.map(|place| format!("tasks meet in {}", place.display())))
        .collect()
}

/// Nothing that is hidden may be read.
fn leaks(plan: &Plan, policy: &Policy, host: &HostFacts, tree: &Tree) -> Vec<String> {
    let hidden = Hidden::of(policy, host, tree);
    let mut all = Vec::new();
    for (real, node) in tree.below(Path::new("/")) {
        let content = matches!(
            node.what,
            What::File(_) | What::Device | What::Socket | What::Hung
        );
        let Some(access) = access(&plan.steps, real).filter(|_| content && hidden.covers(real))
        else {
            continue;
        };
        // What the caller may not read is as safe as it is outside, unless its mode can be changed.
        let closed = real
            .ancestors()
            .any(|above| tree.get(above).is_some_and(|node| !node.readable));
        if !closed || access == Access::Write {
            all.push(format!("{} is hidden, and {access:?}", real.display()));
        }
    }
    all
}

/// Nothing may be writable that decides about later sessions or runs outside.
fn openings(plan: &Plan, policy: &Policy, host: &HostFacts, tree: &Tree) -> Vec<String> {
    let mut all = Vec::new();
    let writable = |real: &Path| access(&plan.steps, real) == Some(Access::Write);
    let programs = host.slurm.iter().flat_map(|slurm| slurm.programs());
    let own = host.own_directories.iter().chain([&host.executable]);
    for own in own.chain(programs) {
        let real = tree.real(own);
        let below = tree.below(&real).map(|(path, _)| path.clone());
        for path in below.chain([real.clone()]) {
            if writable(&path) {
                all.push(format!("{} is ours, and writable", path.display()));
            }
        }
    }
    for home in [Some(&host.home), host.passwd_home.as_ref()]
        .into_iter()
        .flatten()
    {
        let home = tree.real(home);
        if writable(&home) {
            all.push(format!(
                "{} is a home, and writable as a whole",
                home.display()
            ));
        }
    }
    for rule in &policy.home.protect {
        let Some(path) = rule.value.expand(host) else {
            continue;
        };
        // What does not exist cannot be mounted over.
        let Some(real) = tree.resolve(&path) else {
            continue;
        };
        let project = plan.project.as_deref();
        if project.is_some_and(|project| project.starts_with(&real)) {
            continue;
        }
        for (path, _) in tree.below(&real) {
            if writable(path)
                && !project
                    .is_some_and(|project| path.starts_with(project) && project.starts_with(&real))
            {
                all.push(format!("{} is protected, and writable", path.display()));
            }
        }
        // A directory that is no mount point could be moved away from above what is protected.
        for above in real.ancestors().skip(1).take_while(|above| writable(above)) {
            if !plan.steps.iter().any(|step| step.at == above) {
                all.push(format!(
                    "{} can be moved away with {}",
                    above.display(),
                    real.display()
                ));
            }
        }
    }
    all
}
