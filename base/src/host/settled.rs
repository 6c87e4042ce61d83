//! Facts that still hold when the paths of the policy have been looked at: the look at an automount
//! mounts it, and a home may have another name then.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;

use super::facts::HostFacts;
use super::files::{Files, HostFiles, list_what_many_name};
use crate::policy::{PathSpec, Policy};

/// How often the host is looked at anew. What is mounted later is found by the plan
/// (`plan::check::arrivals`).
const MOST_LOOKS: usize = 4;

/// Looks at the host and at the paths that the policy and the invocation name, until nothing is
/// mounted by that. `carried` as in [`HostFacts::probe`].
///
/// # Errors
/// See [`HostFacts::probe`].
pub fn probe(
    mut files: HostFiles,
    carried: Option<&[(OsString, OsString)]>,
    policy: &Policy,
    named: &[PathBuf],
) -> Result<(HostFiles, HostFacts)> {
    let mut looks = 0;
    loop {
        looks += 1;
        let host = HostFacts::probe(&files, carried.map(<[_]>::to_vec))?;
        let mut paths = paths(policy, &host);
        paths.extend_from_slice(named);
        // One listing of the home spares a look at each of the hundreds of names that are not there.
        for home in host.homes() {
            files.entries(home);
        }
        list_what_many_name(&files, paths.iter().map(PathBuf::as_path));
        files.prefetch(&paths);
        if looks == MOST_LOOKS || files.mounts_hold() {
            return Ok((files, host));
        }
        files = files.anew();
    }
}

/// What a jail may be given by the policy; of patterns the directories.
fn paths(policy: &Policy, host: &HostFacts) -> Vec<PathBuf> {
    let (home, files) = (&policy.home, &policy.files);
    let lists = [
        &home.read,
        &home.write,
        &home.seed,
        &files.read,
        &files.write,
    ];
    let expand = |spec: &PathSpec| {
        let mut all: Vec<PathBuf> = spec.expand_list(host).collect();
        if spec.is_pattern() {
            all.iter_mut().for_each(|path| {
                path.pop();
            });
        }
        all
    };
    let entries = lists.into_iter().flatten();
    entries.flat_map(|entry| expand(&entry.value)).collect()
}
