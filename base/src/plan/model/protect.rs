//! The places that `home.protect` names, by every name that they have.

use std::path::{Path, PathBuf};

use crate::config::source::{Layer, Sourced};
use crate::host::HostFacts;
use crate::host::files::{Files, real_as_far_as_it_exists};
use crate::policy::{PathSpec, Policy};

/// The places that an entry names: what a site protects is in the home of the user database as well,
/// wherever `HOME` points, and all of it stands under the other names of a home, too.
pub fn protected(rule: &Sourced<PathSpec>, host: &HostFacts, files: &dyn Files) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = rule.value.expand(host).into_iter().collect();
    let other = is_enforced(rule).then(|| host.database_home()).flatten();
    let below = other.and_then(|home| {
        let named = all.first()?;
        Some(home.join(named.strip_prefix(&host.home).ok()?))
    });
    all.extend(below.filter(|path| !all.contains(path)));
    if host.home_aliases.is_empty() {
        return all;
    }
    files.prefetch(&all);
    // The place itself, and where a link in the home leads.
    let mut named = all.clone();
    named.extend(all.iter().filter_map(|path| {
        let mut homes = host.homes().zip(&host.home_reals);
        homes.find_map(|(home, real)| Some(real.join(path.strip_prefix(home).ok()?)))
    }));
    named.extend(all.iter().map(|path| real_as_far_as_it_exists(files, path)));
    // Without a link they are one path, and a home may have many other names.
    named.sort_unstable();
    named.dedup();
    for path in named {
        let names = host.home_aliases.iter();
        all.extend(names.filter_map(|alias| alias.name_of(&path)));
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// The entry of the site's in which a directory lies, or which it is. No project may: it would be
/// written.
pub fn forbidding<'a>(
    policy: &'a Policy,
    host: &HostFacts,
    files: &dyn Files,
    real: &Path,
) -> Option<&'a Sourced<PathSpec>> {
    let mut rules = policy.home.protect.iter().filter(|rule| is_enforced(rule));
    rules.find(|rule| {
        let places = protected(rule, host, files);
        let mut places = places
            .iter()
            .map(|place| real_as_far_as_it_exists(files, place));
        places.any(|place| real.starts_with(place))
    })
}

fn is_enforced(rule: &Sourced<PathSpec>) -> bool {
    rule.source.layer == Layer::SiteEnforced
}
