//! What the environment leads to and the jail does not show. A program that is then "not found", or an environment of
//! Python's that is not there, is explained before anybody looks for it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::prepared::Prepared;
use crate::env_vars;
use crate::failure;
use crate::host::files::{Files, Look};
use crate::plan::Plan;
use crate::plan::explain::change::Ways;
use crate::plan::explain::{self, Visibility};

/// Search paths. What `module load` added stands in them.
const LISTS: [&str; 2] = [env_vars::PATH, env_vars::LD_LIBRARY_PATH];
/// Variables that name one directory: environments of Python and conda.
const SINGLE: [&str; 2] = ["VIRTUAL_ENV", "CONDA_PREFIX"];
/// What the names of variables end with that name a module's own directory.
const OWN: [&str; 5] = ["_ROOT", "_HOME", "_DIR", "_PREFIX", "_BASE"];
/// How a module is named.
const MODULE: &str = "module ";
/// So many are named; of more it is said how many there are.
const MOST: usize = 3;

/// One line; empty if all that there is outside is there inside.
pub(super) fn note(prepared: &Prepared, plan: &Plan) -> String {
    let environment = &prepared.host.environment;
    // Of what a module brings the module says most.
    let mut places = of_modules(environment);
    for (name, value) in environment {
        let Some(name) = LISTS.iter().chain(&SINGLE).find(|known| name == **known) else {
            continue;
        };
        let each = std::env::split_paths(value).filter(|path| path.is_absolute());
        for path in each {
            if !places.iter().any(|(known, _)| *known == path) {
                places.push((path, (*name).to_owned()));
            }
        }
    }
    let paths: Vec<PathBuf> = places.iter().map(|(path, _)| path.clone()).collect();
    prepared.files.prefetch(&paths);
    places.retain(|(path, _)| is_absent(prepared, plan, path));
    // A directory of an environment, or of a module, that is named itself says nothing new.
    let is_list = |name: &String| LISTS.contains(&name.as_str());
    let named: Vec<PathBuf> = places
        .iter()
        .filter(|(_, name)| !is_list(name))
        .map(|(path, _)| path.clone())
        .collect();
    places.retain(|(path, name)| {
        !is_list(name) || !named.iter().any(|around| path.starts_with(around))
    });
    let mut modules = BTreeSet::new();
    places.retain(|(_, name)| !name.starts_with(MODULE) || modules.insert(name.clone()));
    if places.is_empty() {
        return String::new();
    }
    let shown = places.iter().take(MOST).map(|(path, name)| {
        let path = match path.strip_prefix(&prepared.host.home) {
            Ok(below) => Path::new("~").join(below),
            Err(_) => path.clone(),
        };
        failure::one_line(&format!("{} ({name})", path.display()))
    });
    let mut shown: Vec<String> = shown.collect();
    if places.len() > MOST {
        shown.push(format!("{} more", places.len() - MOST));
    }
    format!(
        "agent-sandbox: note: not inside: {}; agent-sandbox explain PATH says why\n",
        shown.join(", ")
    )
}

/// What the loaded modules lead to, each with its module: their modulefiles, and the directories that a variable with
/// the module's name names as the module's own (`GCC_ROOT`, `GCC_HOME`; EasyBuild's `EBROOTGCC`).
fn of_modules(environment: &[(OsString, OsString)]) -> Vec<(PathBuf, String)> {
    let value = |wanted: &str| {
        let found = environment.iter().find(|(name, _)| name == wanted);
        found.map_or("", |(_, value)| value.to_str().unwrap_or_default())
    };
    let names = value(env_vars::LOADEDMODULES).split(':');
    let mut files = value(env_vars::LMFILES).split(':');
    let mut all = Vec::new();
    for module in names.filter(|name| !name.is_empty()) {
        let software = module.split('/').next().unwrap_or_default();
        let plain = |c: char| match c.is_ascii_alphanumeric() {
            true => c.to_ascii_uppercase(),
            false => '_',
        };
        let software: String = software.chars().map(plain).collect();
        let own = OWN.iter().map(|end| value(&format!("{software}{end}")));
        let easybuild = value(&format!("EBROOT{software}"));
        let places = files.next().into_iter().chain(own).chain([easybuild]);
        for place in places.map(PathBuf::from).filter(|path| path.is_absolute()) {
            if !all.iter().any(|(known, _)| *known == place) {
                all.push((place, format!("{MODULE}{module}")));
            }
        }
    }
    all
}

/// Whether it exists outside, and not inside.
fn is_absent(prepared: &Prepared, plan: &Plan, path: &Path) -> bool {
    if !matches!(prepared.files.look(path), Look::Found(_)) {
        return false;
    }
    let ways = Ways {
        policy: &prepared.policy,
        config: "",
        places: None,
    };
    let answer = explain::path(plan, &prepared.files, path, &ways);
    matches!(answer.verdict, Visibility::Absent | Visibility::Hidden)
}
