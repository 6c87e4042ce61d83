//! `DIR/* but ~` of `files.hide`, on this host: which directories it means, and which home is the caller's.

use std::path::{Path, PathBuf};

use super::tree::Tree;
use crate::config::source::{Layer, Sourced};
use crate::host::HostFacts;
use crate::host::files::{Files, Look, real_as_far_as_it_exists};
use crate::host::places::steady;
use crate::plan::model::hides::Hides;
use crate::plan::model::other_homes::OtherHomes;
use crate::plan::model::{Mount, Why};
use crate::policy::PathSpec;

/// Bytes of the file system that stands for the directory. It holds mount points alone.
const SIZE: u64 = 64 << 10;

/// Applies a rule; `None` if it is none of this kind.
pub fn resolve(
    rule: &Sourced<PathSpec>,
    host: &HostFacts,
    files: &dyn Files,
) -> Option<OtherHomes> {
    let (directory, left_out) = rule.value.other_homes()?;
    let root = real_as_far_as_it_exists(files, &directory);
    let mut shown = own_homes(host, files, rule.source.layer == Layer::SiteEnforced);
    shown.extend(left_out);
    // Where the directory stands behind a link, what is in it has two names.
    let renamed: Vec<PathBuf> = shown
        .iter()
        .filter_map(|at| Some(root.join(at.strip_prefix(&directory).ok()?)))
        .collect();
    shown.extend(renamed);
    let (mut roots, mut closed) = (vec![root.clone()], Vec::new());
    for alias in files.mounted_elsewhere(&root, &shown) {
        if shown.iter().any(|at| at.starts_with(&alias.of)) {
            let names: Vec<PathBuf> = shown
                .iter()
                .filter_map(|at| Some(alias.at.join(at.strip_prefix(&alias.of).ok()?)))
                .collect();
            shown.extend(names.iter().map(|name| name.components().collect()));
            if alias.of == root || !shown.contains(&alias.of) {
                roots.push(alias.at);
            }
        } else if shown.iter().all(|at| !alias.of.starts_with(at)) {
            closed.push(alias.at);
        }
    }
    for all in [&mut shown, &mut roots, &mut closed] {
        all.sort_unstable();
        all.dedup();
    }
    Some(OtherHomes {
        rule: rule.clone(),
        roots,
        closed,
        shown,
    })
}

/// The caller's home by every name. To a site's rule it is the one that the user database names: users set `HOME`.
fn own_homes(host: &HostFacts, files: &dyn Files, enforced: bool) -> Vec<PathBuf> {
    let database = host.database_home();
    let real = match &database {
        Some(home) => steady(files, home),
        None => real_as_far_as_it_exists(files, &host.home),
    };
    let mut all = vec![real.clone()];
    for home in host.homes().chain(database.as_deref()) {
        let at = real_as_far_as_it_exists(files, home);
        // Another name of the home is harmless, whoever says it.
        if at != real && enforced {
            continue;
        }
        if let Look::Found(found) = files.look(home) {
            all.extend(found.links.into_iter().map(|(at, _)| at));
        }
        all.extend([at, home.to_path_buf()]);
    }
    let aliases = host.home_aliases.iter();
    let own = aliases.filter(|alias| all.iter().any(|home| alias.of.starts_with(home)));
    let names: Vec<PathBuf> = own.map(|alias| alias.at.clone()).collect();
    all.extend(names);
    all.retain(|at| at != Path::new("/"));
    all
}

/// Puts an empty directory over each that a bind shows. The home is mounted in it on its own; what else the rule leaves out
/// is given as the bind gave it.
pub fn conceal(tree: &mut Tree, hides: &Hides, files: &dyn Files) {
    for homes in hides.other_homes() {
        for root in &homes.roots {
            let (Some(access), Look::Found(_)) = (tree.access(root), files.look(root)) else {
                continue;
            };
            tree.pin(files, root, &[]);
            let why = Why::rule("files.hide", &homes.rule);
            let mount = Mount::Tmpfs {
                size: SIZE,
                mode: 0o755,
            };
            tree.put(root, mount, why.clone());
            let left_out = homes.rule.value.other_homes();
            for at in left_out.into_iter().flat_map(|(_, names)| names) {
                if let Look::Found(found) = files.look(&at)
                    && found.real.starts_with(root)
                    && hides.rule_for_found(&found).is_none()
                {
                    tree.bind(&found, access, why.clone());
                }
            }
        }
    }
}
