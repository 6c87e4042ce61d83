//! The state directory, of which jails have writable directories ([`super::persistent`]). The user chooses it
//! (`XDG_STATE_HOME`, `HOME`), so that what an enforced layer says of the place holds for it: nothing is
//! kept in what the site hides, or where it lets nothing be written.
//!
//! `~/.local/state/agent-sandbox` of the user database's home is judged by no list: there agent-sandbox
//! keeps what it keeps unless somebody chooses another place.

use std::path::{Path, PathBuf};

use super::bounds::SiteBounds;
use super::error::PlanError;
use super::hides::Hides;
use super::step::Access;
use crate::config::source::Layer;
use crate::host::HostFacts;
use crate::host::files::{Files, real_as_far_as_it_exists};
use crate::host::places::steady;

/// The state directory that nobody has to choose, below the home.
const USUAL: &str = ".local/state/agent-sandbox";

/// The state directory's real path, in which something may be kept.
///
/// # Errors
/// An enforced layer hides it, or lets nothing be written there.
pub fn to_keep_in(
    host: &HostFacts,
    files: &dyn Files,
    hides: &Hides,
    site_bounds: &SiteBounds,
) -> Result<PathBuf, PlanError> {
    let real = real_as_far_as_it_exists(files, &host.state_directory);
    let usual = host.database_home().map(|home| steady(files, &home));
    if usual.is_some_and(|home| site_bounds.usual_name(&real) == home.join(USUAL)) {
        return Ok(real);
    }
    let hiding = hides
        .rules_for(&real)
        .find(|rule| rule.source.layer == Layer::SiteEnforced && !hides.is_own(rule));
    if let Some(rule) = hiding {
        let why = format!(
            "the site hides it: files.hide `{}` ({})",
            rule.value, rule.source
        );
        return Err(refused(&real, &why));
    }
    if let Some(refusing) = site_bounds.refusing(&real, Access::Write) {
        let list = &refusing.list;
        let why = format!(
            "the site's {} {} ({}) does not hold it",
            refusing.key, list.value, list.source
        );
        return Err(refused(&real, &why));
    }
    Ok(real)
}

fn refused(state: &Path, why: &str) -> PlanError {
    let message = format!(
        "nothing can be kept in the state directory `{}`: {why}",
        state.display()
    );
    PlanError::new(message).hint(
        "set XDG_STATE_HOME to a directory that the site lets you write, or leave it unset (and HOME as it is)",
    )
}
