//! Device nodes: `devices.allow` where the host has them, less `devices.deny`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::config::source::Sourced;
use crate::host::files::{Entry, Files, Kind, Look, split};
use crate::plan::model::bounds::SiteBounds;
use crate::plan::model::devices::{gives, rule};
use crate::policy::paths::glob;
use crate::policy::{Clamped, NetworkMode, PathSpec, Policy};

/// The nodes that appear, each with the rule that allows it.
pub type Nodes<'a> = Vec<(PathBuf, &'a Sourced<PathSpec>)>;

/// The nodes that appear in a jail with this network, and notes of what enforced layers do not allow.
pub fn resolve<'a>(
    policy: &'a Policy,
    files: &dyn Files,
    site_bounds: &SiteBounds,
    network: NetworkMode,
) -> (Nodes<'a>, Vec<Clamped>) {
    let mut all: Nodes<'a> = Vec::new();
    let mut clamped = Vec::new();
    let denied = |path: &Path| rule(&policy.devices.deny, &[path]).is_some();
    // Most patterns are of one directory.
    let mut listed: Option<(PathBuf, Rc<[Entry]>)> = None;
    for rule in &policy.devices.allow {
        let written = PathBuf::from(rule.value.to_string());
        let candidates = if rule.value.is_pattern() {
            let Some((parent, name)) = split(&written) else {
                continue;
            };
            let parent = Path::new(parent);
            let known = listed.take().filter(|(directory, _)| directory == parent);
            let known = known.unwrap_or_else(|| {
                let entries = files.entries(parent).unwrap_or_default();
                (parent.to_path_buf(), entries)
            });
            let (_, entries) = listed.insert(known);
            let matching = entries
                .iter()
                .filter(|entry| glob(name.as_bytes(), entry.name.as_bytes()));
            matching.map(|entry| parent.join(&entry.name)).collect()
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
                && gives(rule, &found.real, network)
                && !denied(&candidate)
                && !denied(&found.real)
                && all.iter().all(|(path, _)| *path != found.real)
            {
                match site_bounds.refusing_device(&found.real) {
                    None => all.push((found.real, rule)),
                    Some(list) => {
                        let asked = rule.clone().map(|path| path.to_string());
                        clamped.push(list.clamped("devices.allow", asked));
                    }
                }
            }
        }
    }
    (all, clamped)
}
