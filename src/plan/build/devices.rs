//! Device nodes: `devices.allow` where the host has them, less `devices.deny`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::config::source::Sourced;
use crate::host::files::{Files, Kind, Look};
use crate::plan::model::bounds::Ground;
use crate::plan::model::devices::rule;
use crate::policy::paths::glob;
use crate::policy::{Narrowed, PathSpec, Policy};

/// The nodes that appear, each with the rule that allows it.
pub type Nodes<'a> = Vec<(PathBuf, &'a Sourced<PathSpec>)>;

/// The nodes that appear, and notes of what enforced layers do not allow.
pub fn resolve<'a>(
    policy: &'a Policy,
    files: &dyn Files,
    ground: &Ground,
) -> (Nodes<'a>, Vec<Narrowed>) {
    let mut all: Nodes<'a> = Vec::new();
    let mut narrowed = Vec::new();
    let denied = |path: &Path| rule(&policy.devices.deny, &[path]).is_some();
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
                match ground.refusing_device(&found.real) {
                    None => all.push((found.real, rule)),
                    Some(list) => {
                        let asked = rule.clone().map(|path| path.to_string());
                        narrowed.push(list.narrowed("devices.allow", asked));
                    }
                }
            }
        }
    }
    (all, narrowed)
}
