//! Agents by the commands that start them, as the site's and the built-in profiles name them.

use std::collections::HashMap;

use anyhow::Result;

use crate::config::load::{Owner, profiles};
use crate::launch;

/// The names of profiles by their commands. Users' own are left out: what one user calls so is nobody else's.
///
/// # Errors
/// A profile cannot be read.
pub(super) fn by_command() -> Result<HashMap<String, String>> {
    let known = profiles(&launch::locations()?)?;
    let known = known.iter().filter(|profile| profile.owner != Owner::User);
    let each = known.flat_map(|profile| {
        let commands = profile.agent.commands.iter();
        commands.map(|command| (command.value.clone(), profile.name.clone()))
    });
    Ok(each.collect())
}
