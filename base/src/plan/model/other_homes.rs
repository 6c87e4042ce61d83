//! `DIR/* but ~` of `files.hide`: all in a directory but the caller's home, as data. What is in it is never asked for: an
//! automounter would mount a thousand homes.

use std::path::{Path, PathBuf};

use crate::config::source::Sourced;
use crate::policy::PathSpec;

/// One such rule on this host.
#[derive(Clone, Debug)]
pub struct OtherHomes {
    /// The rule.
    pub rule: Sourced<PathSpec>,
    /// The directory by its real path, and where else it, or one on the way to the home, is mounted.
    pub roots: Vec<PathBuf>,
    /// Where something in it is mounted that is hidden, as a whole.
    pub closed: Vec<PathBuf>,
    /// The home, and what else is left out, by every name.
    pub shown: Vec<PathBuf>,
}

impl OtherHomes {
    /// Whether it hides a real path. What is nearest decides: a mount of somebody's home within one's own is hidden.
    pub fn hides(&self, path: &Path) -> bool {
        for above in path.ancestors() {
            let is = |all: &[PathBuf]| all.iter().any(|at| at == above);
            if is(&self.closed) {
                return true;
            }
            if is(&self.shown) {
                return false;
            }
            if above != path && is(&self.roots) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::source::Source;

    #[test]
    fn what_is_nearest_decides() {
        let spec = PathSpec::all_but_home("/u/* but ~").unwrap().unwrap();
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect();
        let homes = OtherHomes {
            rule: Sourced::new(spec, Source::option("--set")),
            roots: paths(&["/u", "/mnt/u"]),
            closed: paths(&["/u/a/ada/of-bob", "/mnt/bob"]),
            shown: paths(&["/u/a/ada", "/mnt/u/a/ada", "/u/shared"]),
        };
        for (path, hidden) in [
            ("/u", false),
            ("/u/a", true),
            ("/u/a/bob/x", true),
            ("/u/a/ada", false),
            ("/u/a/ada/x", false),
            ("/u/a/ada2", true),
            ("/u/a/ada/of-bob", true),
            ("/u/a/ada/of-bob/x", true),
            ("/u/shared/x", false),
            ("/mnt", false),
            ("/mnt/u/b", true),
            ("/mnt/u/a/ada/x", false),
            ("/mnt/bob", true),
            ("/usr", false),
        ] {
            assert_eq!(homes.hides(Path::new(path)), hidden, "{path}");
        }
    }
}
