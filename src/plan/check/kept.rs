//! What the jail keeps, checked on the finished plan: in the store of this very project and nowhere
//! else, and that nothing else shows a store. Names of stores are read here, where the planner writes
//! them ([`super::super::kept`]).

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use super::super::kept::Make;
use super::super::{Mount, Plan, Step};
use super::shows;
use crate::host::HostFacts;
use crate::host::files::{Files, Look};

/// Checks a plan.
///
/// # Errors
/// What is not as it has to be.
pub(super) fn check(plan: &Plan, host: &HostFacts, files: &dyn Files) -> Result<(), String> {
    let stores = real(&host.state_directory, files).join("kept");
    for step in &plan.steps {
        match &step.mount {
            Mount::Kept { from, .. } => {
                if plan.project.is_some() {
                    in_store(plan, &stores, from)?;
                }
                place(plan, step, host, files)?;
            }
            Mount::Bind { from, .. } | Mount::Copy { from, .. } | Mount::Device { from }
                if from.starts_with(&stores) =>
            {
                return Err(format!("`{}` shows what is kept", step.at.display()));
            }
            _ => {}
        }
    }
    let exist = matches!(files.look(&stores), Look::Found(_));
    if exist && shows(plan, &stores, &stores) {
        return Err(format!("`{}` is not hidden", stores.display()));
    }
    besides(plan)
}

/// A path that may not exist as a whole, without links.
fn real(path: &Path, files: &dyn Files) -> PathBuf {
    for above in path.ancestors() {
        if let (Look::Found(found), Ok(rest)) = (files.look(above), path.strip_prefix(above)) {
            return rest.iter().fold(found.real, |at, part| at.join(part));
        }
    }
    path.to_path_buf()
}

/// Whether a path is one directory in the store of the plan's project.
fn in_store(plan: &Plan, stores: &Path, from: &Path) -> Result<(), String> {
    let shown = from.display();
    let elsewhere = || format!("`{shown}` is not this project's");
    let below = from.strip_prefix(stores).map_err(|_| elsewhere())?;
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in below.components() {
        let Component::Normal(part) = part else {
            return Err(elsewhere());
        };
        parts.push(part.as_bytes());
    }
    let [project @ .., b"home", _] = parts.as_slice() else {
        return Err(elsewhere());
    };
    let mut name = Vec::new();
    for (number, part) in project.iter().enumerate() {
        let part = match number {
            0 => Some(*part),
            _ => part.strip_prefix(b"%%"),
        };
        name.extend_from_slice(part.ok_or_else(elsewhere)?);
    }
    let named = unescaped(&name).ok_or_else(elsewhere)?;
    match plan.project.as_deref() == Some(named.as_path()) {
        true => Ok(()),
        false => Err(elsewhere()),
    }
}

/// The path that a store's name stands for.
fn unescaped(name: &[u8]) -> Option<PathBuf> {
    let mut path = vec![b'/'];
    let mut rest = name.iter();
    while let Some(byte) = rest.next() {
        path.push(match byte {
            b'+' => b'/',
            b'%' => match (rest.next()?, rest.next()?) {
                (b'2', b'B') => b'+',
                (b'2', b'5') => b'%',
                _ => return None,
            },
            byte => *byte,
        });
    }
    Some(PathBuf::from(OsString::from_vec(path)))
}

/// Where something kept may stand, and what may stand in it.
fn place(plan: &Plan, kept: &Step, host: &HostFacts, files: &dyn Files) -> Result<(), String> {
    let at = &kept.at;
    let fail = |what: &str| Err(format!("what is kept at `{}` {what}", at.display()));
    if !at.starts_with(&plan.home) {
        let above = at.ancestors().skip(1);
        let mut found = above.filter_map(|above| match files.look(above) {
            Look::Found(found) => Some(found.uid),
            _ => None,
        });
        if found.next() != Some(host.uid) {
            return fail("stands neither in the home nor in a directory of the user's");
        }
    }
    if plan.home.starts_with(at) {
        return fail("stands around the home");
    }
    let project = plan.project.as_ref();
    if project.is_some_and(|project| project.starts_with(at) || at.starts_with(project)) {
        return fail("stands around the project or in it");
    }
    if let Some(rule) = plan.hidden.rule_for(at) {
        return fail(&format!("is hidden by `{}`", rule.value));
    }
    let around = plan.steps.iter().rev();
    let mut around = around.filter(|step| step.at != *at && at.starts_with(&step.at));
    match around.next().map(|step| &step.mount) {
        Some(Mount::Bind { .. }) => return fail("stands in a directory of the host's"),
        Some(Mount::Kept { .. }) => return fail("stands in another that is kept"),
        _ => {}
    }
    let mut last: Option<&Path> = None;
    for step in &plan.steps {
        let within = last.is_some_and(|last| step.at.starts_with(last));
        if step.at == *at || !step.at.starts_with(at) || within {
            continue;
        }
        last = Some(&step.at);
        let links_lead_there = match &step.mount {
            Mount::Bind { .. } | Mount::File { .. } => true,
            // A directory that is taken apart.
            Mount::Directory { .. } => plan.steps.iter().any(|below| {
                below.at != step.at
                    && below.at.starts_with(&step.at)
                    && matches!(below.mount, Mount::Bind { .. })
            }),
            _ => false,
        };
        if !links_lead_there {
            let shown = step.at.display();
            return fail(&format!("would be written to for `{shown}`"));
        }
    }
    Ok(())
}

/// What is made, seeded and carried out.
fn besides(plan: &Plan) -> Result<(), String> {
    let keeping = &plan.keeping;
    let in_kept = |path: &Path| {
        plan.kept()
            .any(|(_, from)| path != from && path.starts_with(from))
    };
    let hidden = |path: &Path| plan.hidden.rule_for(path).is_some();
    let kept = |from: &PathBuf| plan.kept().any(|(_, kept)| kept == from);
    for make in &keeping.makes {
        let fits = match make {
            Make::Directory { path, .. } | Make::File { path, .. } => {
                path.starts_with(&plan.home) && *path != plan.home && !hidden(path)
            }
            Make::Kept { from, .. } => kept(from),
        };
        if !fits {
            return Err(format!("`{}` would be made", make.path().display()));
        }
    }
    for login in &keeping.logins {
        let host = &login.host;
        if !host.starts_with(&plan.home) || hidden(host) || !in_kept(&login.kept) {
            return Err(format!("`{}` would be carried out", host.display()));
        }
    }
    for seed in &keeping.seeds {
        if !in_kept(&seed.to) {
            return Err(format!("`{}` would be seeded", seed.to.display()));
        }
    }
    Ok(())
}
