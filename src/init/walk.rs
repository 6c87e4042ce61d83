//! Directories that the command cannot list (`files.no_walk`), by a Landlock domain of their own: listing is given to
//! everything else, by place.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use landlock::{
    AccessFs, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError,
};
use nix::fcntl::OFlag;

use crate::sys::paths;

/// Lets this process, and what it starts, list directories below these places only.
///
/// # Errors
/// A sentence: what could not be done.
pub(super) fn only(places: &[Vec<u8>]) -> Result<(), String> {
    let failed =
        |error: RulesetError| format!("cannot keep directories from being listed: {error}");
    let mut domain = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::ReadDir)
        .and_then(Ruleset::create)
        .map_err(failed)?;
    for place in places {
        let at = Path::new(OsStr::from_bytes(place));
        // What is no directory, or not in the jail, needs no rule: it cannot be listed.
        if let Ok(Some(directory)) = directory(at) {
            domain = domain
                .add_rule(PathBeneath::new(directory, AccessFs::ReadDir))
                .map_err(failed)?;
        }
    }
    domain.restrict_self().map(drop).map_err(failed)
}

fn directory(at: &Path) -> io::Result<Option<std::fs::File>> {
    let file = paths::path_only(at, OFlag::O_NOFOLLOW)?;
    Ok(file.metadata()?.is_dir().then_some(file))
}
