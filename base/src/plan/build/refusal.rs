//! Why a directory must not be writable as a whole.

use crate::host::HostFacts;
use crate::host::files::{Files, Found, real_as_far_as_it_exists};
use crate::plan::model::bounds::SiteBounds;
use crate::plan::model::hides::Hides;
use std::path::Path;

/// Directories that no project may be or contain.
const SYSTEM: [&str; 14] = [
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/run", "/sbin", "/sys",
    "/tmp", "/usr", "/var/tmp",
];

/// Directories that no project may lie in.
const NEVER_INSIDE: [&str; 6] = ["/boot", "/dev", "/etc", "/proc", "/run", "/sys"];

/// Says why a directory must not be writable as a whole.
pub struct Refusal<'a> {
    /// The caller's homes and our own directories.
    pub host: &'a HostFacts,
    /// To resolve these.
    pub files: &'a dyn Files,
    /// What is hidden.
    pub hides: &'a Hides,
    /// The bounds of enforced layers.
    pub site_bounds: &'a SiteBounds,
}

impl Refusal<'_> {
    /// The reason why what was found must not be given as a writable directory.
    pub fn of(&self, found: &Found) -> Option<String> {
        let real = found.real.as_path();
        if real == Path::new("/") {
            return Some("it is the whole file system".into());
        }
        for home in self.host.homes() {
            let home = real_as_far_as_it_exists(self.files, home);
            if real == home {
                return Some("it is your home directory".into());
            }
            if home.starts_with(real) {
                return Some(format!(
                    "it contains your home directory `{}`",
                    home.display()
                ));
            }
        }
        if let Some(own) = self.own_directory(real) {
            return Some(own);
        }
        for system in SYSTEM {
            if Path::new(system).starts_with(real) {
                return Some(format!("it is or contains the system directory `{system}`"));
            }
        }
        for system in NEVER_INSIDE {
            if real.starts_with(system) {
                return Some(format!("it lies in the system directory `{system}`"));
            }
        }
        if real == Path::new("/dev/shm") {
            return Some("it is shared memory".into());
        }
        self.hides.rule_for_found(found).map(|rule| {
            let whose = match rule.value.other_homes() {
                Some(_) => ", for it is in somebody else's home",
                None => "",
            };
            format!(
                "the rule files.hide `{}` ({}) hides it{whose}",
                rule.value, rule.source
            )
        })
    }

    /// The reason, if writing `real` would reach the policy, the state or the installation.
    pub fn own_directory(&self, real: &Path) -> Option<String> {
        for own in &self.host.own_directories {
            let own = real_as_far_as_it_exists(self.files, own);
            if own.starts_with(real) || real.starts_with(&own) {
                return Some(format!(
                    "agent-sandbox keeps its policy or state in `{}`",
                    own.display()
                ));
            }
        }
        self.host
            .programs()
            .find(|program| program.starts_with(real))
            .map(|program| {
                format!(
                    "agent-sandbox itself is installed in it (`{}`)",
                    program.display()
                )
            })
    }
}
