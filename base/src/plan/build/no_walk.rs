//! `files.no_walk`: directories that nobody inside lists, so that no `find` goes through what thousands share. Landlock
//! forbids it, which knows no directory without what is below: whoever may list a directory may list all in it. So the
//! directories above cannot be listed either, and what the policy names below can.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::config::source::Sourced;
use crate::host::HostFacts;
use crate::host::files::{Files, Kind, Look};
use crate::plan::build::tree::PINNED;
use crate::plan::model::{PlanError, Step, Why};
use crate::policy::Policy;

/// The directories, by their real paths, in every place where they are mounted.
///
/// # Errors
/// This kernel cannot forbid it, or not together with what else is asked for; one does not answer.
pub fn resolve(
    policy: &Policy,
    host: &HostFacts,
    files: &dyn Files,
) -> Result<Vec<Sourced<PathBuf>>, PlanError> {
    let mut all: Vec<Sourced<PathBuf>> = Vec::new();
    for rule in &policy.files.no_walk {
        let Some(path) = rule.value.expand(host) else {
            continue;
        };
        let refuse = |why: &str| {
            let message = format!("files.no_walk `{}` ({}) {why}", rule.value, rule.source);
            PlanError::new(message)
        };
        let real = match files.look(&path) {
            Look::Found(found) if found.kind == Kind::Directory => found.real,
            Look::Hung => return Err(refuse("does not answer")),
            // Where there is nothing nobody walks.
            _ => continue,
        };
        if host.landlock_abi < 1 {
            return Err(refuse("cannot be enforced: this kernel has no Landlock")
                .hint("admin: a `[[when]]` section can keep it to hosts that have it"));
        }
        if policy.jail.nested.value {
            let nested = &policy.jail.nested.source;
            return Err(refuse(&format!(
                "cannot be enforced together with jail.nested ({nested}): what forbids listing forbids every mount inside"
            )));
        }
        // A second mount of it, or of something in it, leads to the same directories.
        let names = files
            .mounted_elsewhere(&real, &[])
            .into_iter()
            .map(|alias| alias.at);
        let names = names.filter(|at| matches!(files.look(at), Look::Found(found) if found.kind == Kind::Directory && found.real == *at));
        for real in std::iter::once(real.clone()).chain(names) {
            if all.iter().all(|other| other.value != real) {
                all.push(rule.clone().map(|_| real));
            }
        }
    }
    Ok(all)
}

/// The places that can be listed, with all below them: what stands in the directories above, and in the directories
/// themselves what is mounted for the policy and `own`.
///
/// # Errors
/// One of the directories above has too many entries, or does not answer.
pub fn listed(
    no_walk: &[Sourced<PathBuf>],
    steps: &[Step],
    own: &[&Path],
    files: &dyn Files,
) -> Result<Vec<PathBuf>, PlanError> {
    let by_place: HashMap<&Path, &Why> = steps
        .iter()
        .map(|step| (step.at.as_path(), &step.why))
        .collect();
    // What is a mount only because something in it or beside it is hidden was not named.
    let is_part = |step: &Step| {
        let mut above = step.at.ancestors().skip(1);
        step.why == PINNED || above.any(|at| by_place.get(at) == Some(&&step.why))
    };
    let mounted = steps
        .iter()
        .filter(|step| !(is_in(no_walk, &step.at) && is_part(step)));
    let mounted = mounted.map(|step| step.at.as_path());
    let places = mounted.chain(own.iter().copied());
    let mut all: Vec<PathBuf> = places.filter_map(|at| around(no_walk, at)).collect();
    let above = no_walk
        .iter()
        .flat_map(|root| root.value.ancestors().skip(1));
    for directory in above.filter(|at| !is_in(no_walk, at)) {
        let Some(entries) = files.entries(directory) else {
            let message = format!(
                "`{}` cannot be listed, or has too many entries, and files.no_walk names a directory below it",
                directory.display()
            );
            return Err(PlanError::new(message));
        };
        let entries = entries.iter().filter(|entry| entry.kind == Kind::Directory);
        let places = entries.map(|entry| directory.join(&entry.name));
        all.extend(places.filter(|at| !is_above(no_walk, at)));
    }
    all.sort_unstable();
    all.dedup();
    if no_walk.len() > 1 {
        // Landlock goes by directories, not by their names: one that is above has other names where something above it is
        // mounted twice.
        let id = |at: &Path| match files.look(at) {
            Look::Found(found) => Some(found.id),
            _ => None,
        };
        let above = no_walk.iter().flat_map(|root| root.value.ancestors());
        let closed: HashSet<_> = above.filter_map(id).collect();
        all.retain(|at| id(at).is_none_or(|id| !closed.contains(&id)));
    }
    Ok(all)
}

/// The largest place around a path that can be listed as a whole; in one of the directories that is the path itself.
pub fn around(no_walk: &[Sourced<PathBuf>], at: &Path) -> Option<PathBuf> {
    let mut ancestors: Vec<&Path> = at.ancestors().collect();
    if is_in(no_walk, at) {
        ancestors.truncate(1);
    }
    let mut outermost = ancestors.into_iter().rev();
    outermost
        .find(|at| !is_above(no_walk, at))
        .map(Path::to_path_buf)
}

/// Whether a path is one of them, or above one.
fn is_above(no_walk: &[Sourced<PathBuf>], at: &Path) -> bool {
    no_walk.iter().any(|root| root.value.starts_with(at))
}

/// Whether a path is one of them, or in one.
fn is_in(no_walk: &[Sourced<PathBuf>], at: &Path) -> bool {
    no_walk.iter().any(|root| at.starts_with(&root.value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::source::Source;

    #[test]
    fn the_largest_place_around_a_path_is_beside_every_way() {
        let root = |at: &str| Sourced::new(PathBuf::from(at), Source::option("--set"));
        let roots = [root("/data/scratch"), root("/data/scratch/shared")];
        for (at, around_it) in [
            ("/usr/lib", Some("/usr")),
            ("/data/home/ada", Some("/data/home")),
            ("/data/scratch/ada", Some("/data/scratch/ada")),
            ("/data/scratch/ada/x", Some("/data/scratch/ada/x")),
            ("/data/scratch/shared/x", Some("/data/scratch/shared/x")),
            ("/data/scratch/shared", None),
            ("/data/scratch", None),
            ("/", None),
        ] {
            let found = around(&roots, Path::new(at));
            assert_eq!(found.as_deref(), around_it.map(Path::new), "{at}");
        }
    }
}
