//! What must hold of everything that a plan keeps, with the names of stores read back where the planner
//! writes them. Shares no code with the program.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use agent_sandbox::host::HostFacts;
use agent_sandbox::host::files::{Files, Look};
use agent_sandbox::plan::model::persistent::Make;
use agent_sandbox::plan::{Mount, Plan, Step};

use crate::tree::{OWNER, Tree};

/// Everything that is wrong.
pub(crate) fn complaints(plan: &Plan, host: &HostFacts, tree: &Tree) -> Vec<String> {
    let stores = tree.real(&host.state_directory).join("kept");
    let mut all = Vec::new();
    for step in &plan.steps {
        let at = step.at.display();
        match &step.mount {
            Mount::Kept { from, .. } => {
                let named = project_of(&stores, from);
                if plan.project.is_some() && named != plan.project {
                    all.push(format!("{at} is kept in {}: {named:?}", from.display()));
                }
                let wrong = misplaced(plan, step, tree);
                all.extend(wrong.map(|what| format!("what is kept at {at} {what}")));
            }
            Mount::Bind { from, .. } | Mount::Copy { from, .. } | Mount::Device { from }
                if from.starts_with(&stores) =>
            {
                all.push(format!("{at} shows what is kept"));
            }
            _ => {}
        }
    }
    all.extend(besides(plan));
    all
}

/// The project whose store holds a kept directory, by the names on the way.
fn project_of(stores: &Path, from: &Path) -> Option<PathBuf> {
    let below = from.strip_prefix(stores).ok()?;
    let parts: Vec<&[u8]> = below.iter().map(OsStrExt::as_bytes).collect();
    let [first, further @ .., b"home", _] = parts.as_slice() else {
        return None;
    };
    let mut name = first.to_vec();
    for part in further {
        name.extend_from_slice(part.strip_prefix(b"%%")?);
    }
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

/// Why something must not be kept at a place.
fn misplaced(plan: &Plan, kept: &Step, tree: &Tree) -> Option<String> {
    let at = &kept.at;
    if !at.starts_with(&plan.home) {
        let above = at.ancestors().skip(1);
        let mut owners = above.filter_map(|above| match tree.look(above) {
            Look::Found(found) => Some(found.uid),
            _ => None,
        });
        if owners.next() != Some(OWNER) {
            return Some("stands neither in the home nor in a directory of the user's".into());
        }
    }
    if plan.home.starts_with(at) {
        return Some("stands around the home".into());
    }
    let project = plan.project.as_ref();
    if project.is_some_and(|project| project.starts_with(at) || at.starts_with(project)) {
        return Some("stands around the project or in it".into());
    }
    let around = plan.steps.iter().rev();
    let mut around = around.filter(|step| step.at != *at && at.starts_with(&step.at));
    if let Some(Mount::Bind { .. } | Mount::Kept { .. }) = around.next().map(|step| &step.mount) {
        return Some("stands in a directory of the host's, or in another".into());
    }
    // Whatever stands below it is one that links in it lead to.
    let mut last: Option<&Path> = None;
    for step in &plan.steps {
        let within = last.is_some_and(|last| step.at.starts_with(last));
        if step.at == *at || !step.at.starts_with(at) || within {
            continue;
        }
        last = Some(&step.at);
        let shows = |below: &Step| {
            below.at.starts_with(&step.at) && matches!(below.mount, Mount::Bind { .. })
        };
        let linked = match &step.mount {
            Mount::Bind { .. } | Mount::File { .. } => true,
            // A directory that is taken apart.
            Mount::Directory { .. } => plan.steps.iter().any(shows),
            _ => false,
        };
        if !linked {
            return Some(format!("would be written to for {}", step.at.display()));
        }
    }
    None
}

/// What is made, seeded and carried out.
fn besides(plan: &Plan) -> Vec<String> {
    let keeping = &plan.keeping;
    let in_kept = |path: &Path| {
        let mut kept = plan.kept();
        kept.any(|(_, from)| path != from && path.starts_with(from))
    };
    let in_home = |path: &Path| path.starts_with(&plan.home) && *path != plan.home;
    let mut all = Vec::new();
    for make in &keeping.makes {
        let fits = match make {
            Make::Directory { path, .. } | Make::File { path, .. } => in_home(path),
            Make::Kept { from, .. } => plan.kept().any(|(_, kept)| kept == from),
        };
        if !fits {
            all.push(format!("{} would be made", make.path().display()));
        }
    }
    for login in &keeping.logins {
        if !in_home(&login.host) || !in_kept(&login.kept) {
            all.push(format!("{} would be carried out", login.host.display()));
        }
    }
    let seeds = keeping.seeds.iter().filter(|seed| !in_kept(&seed.to));
    all.extend(seeds.map(|seed| format!("{} would be seeded", seed.to.display())));
    all
}
