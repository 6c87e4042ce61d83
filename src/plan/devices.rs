//! Device nodes: `devices.allow` where the host has them, less `devices.deny`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::config::source::Sourced;
use crate::host::files::{Files, Kind, Look};
use crate::policy::paths::glob;
use crate::policy::{PathSpec, Policy};

/// The nodes that appear, each with the rule that allows it.
pub fn resolve<'a>(policy: &'a Policy, files: &dyn Files) -> Vec<(PathBuf, &'a Sourced<PathSpec>)> {
    let mut all: Vec<(PathBuf, &Sourced<PathSpec>)> = Vec::new();
    let denied = |path: &Path| {
        policy.devices.deny.iter().any(|rule| {
            glob(
                rule.value.to_string().as_bytes(),
                path.as_os_str().as_bytes(),
            )
        })
    };
    for rule in &policy.devices.allow {
        let written = PathBuf::from(rule.value.to_string());
        let candidates = if rule.value.is_pattern() {
            let (Some(parent), Some(name)) = (written.parent(), written.file_name()) else {
                continue;
            };
            let entries = files.entries(parent).unwrap_or_default();
            let matching = entries
                .into_iter()
                .filter(|entry| glob(name.as_bytes(), entry.name.as_bytes()));
            matching.map(|entry| parent.join(entry.name)).collect()
        } else {
            vec![written]
        };
        for candidate in candidates {
            let Look::Found(found) = files.look(&candidate) else {
                continue;
            };
            // Judged by its real place: a link below /dev could lead to a node that is denied.
            let fits = found.kind == Kind::Device && found.real.starts_with("/dev");
            if fits
                && !denied(&candidate)
                && !denied(&found.real)
                && all.iter().all(|(path, _)| *path != found.real)
            {
                all.push((found.real, rule));
            }
        }
    }
    all
}
