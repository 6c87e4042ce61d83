//! Who is asking and where, for the conditions in the site's files.

use nix::libc;
use nix::unistd::{Gid, Uid, getgroups, gethostname};

use super::accounts;
use crate::config::when::Circumstances;
use crate::env_vars;

/// Group ids by which the AFS client of Linux marks processes; they have no names
/// (`afs_get_pag_from_groups` in OpenAFS, `PAG_MASK`).
const AFS: std::ops::RangeInclusive<libc::gid_t> = 0x4100_0000..=0x41ff_ffff;

/// The circumstances of this process. Names come from the name service, which may ask the network.
/// Only the partition comes from the environment: Slurm tells it in no other way.
pub fn probe() -> Circumstances {
    let mut user = accounts::account(Uid::current()).ok().flatten();
    let held = getgroups();
    if held.is_err() {
        // As below: what cannot be told must not look like a group that is not there.
        user = None;
    }
    let mut ids = held.unwrap_or_default();
    ids.extend([Gid::current(), Gid::effective()]);
    let mut nameless = None;
    let mut groups = Vec::new();
    ids.sort_unstable_by_key(|id| id.as_raw());
    ids.dedup();
    for &id in &ids {
        match name_of(id) {
            Some(name) => groups.push(name),
            None if AFS.contains(&id.as_raw()) => {}
            None => nameless = nameless.or(Some(id.as_raw())),
        }
    }
    // What the process has shed, or got from a session that began before it was put there.
    let listed = user.as_ref().map(accounts::groups_of).and_then(Result::ok);
    if listed.is_none() {
        // Nobody who cannot be asked about counts as known.
        user = None;
    }
    for id in listed.into_iter().flatten().filter(|id| !ids.contains(id)) {
        match name_of(id) {
            Some(name) => groups.push(name),
            None => nameless = nameless.or(Some(id.as_raw())),
        }
    }
    let partition = std::env::var_os(env_vars::SLURM_JOB_PARTITION);
    Circumstances {
        user: user.map(|user| user.name),
        groups,
        nameless,
        hosts: hosts(&gethostname().unwrap_or_default().to_string_lossy()),
        partition: partition.map(|name| name.to_string_lossy().into_owned()),
    }
}

/// Those of a user in a new session on this node, outside of jobs; `None` if the user database knows no such user.
///
/// # Errors
/// The user database cannot be asked.
pub fn of_user(name: &str) -> anyhow::Result<Option<Circumstances>> {
    let Some(user) = accounts::named(name)? else {
        return Ok(None);
    };
    let mut ids = accounts::groups_of(&user)?;
    ids.push(Gid::from_raw(user.gid));
    ids.sort_unstable_by_key(|id| id.as_raw());
    ids.dedup();
    let nameless = ids.iter().find(|id| name_of(**id).is_none());
    Ok(Some(Circumstances {
        nameless: nameless.map(|id| id.as_raw()),
        groups: ids.iter().filter_map(|id| name_of(*id)).collect(),
        user: Some(user.name),
        hosts: hosts(&gethostname().unwrap_or_default().to_string_lossy()),
        partition: None,
    }))
}

fn name_of(id: Gid) -> Option<String> {
    accounts::group(id).ok().flatten()
}

/// The names of the host that the kernel knows as `node`. The domain name service is not asked: it
/// may hang, and others may answer for it.
fn hosts(node: &str) -> Vec<String> {
    let first = node.split('.').next().unwrap_or_default();
    let mut names = vec![node.to_owned()];
    if first != node {
        names.push(first.to_owned());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_a_long_and_a_short_name() {
        assert_eq!(hosts("gpu1.example.org"), ["gpu1.example.org", "gpu1"]);
        assert_eq!(hosts("login"), ["login"]);
    }

    #[test]
    fn this_user_is_in_this_users_group() {
        let now = probe();
        let own = name_of(Gid::current());
        assert!(own.is_none_or(|name| now.groups.contains(&name)));
        assert_eq!(now.hosts[0], gethostname().unwrap().to_string_lossy());
    }
}
