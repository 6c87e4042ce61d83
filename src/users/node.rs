//! Who has something to do with this node, as root can tell.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use agent_sandbox_events::audit::DIRECTORY;
use nix::unistd::Uid;

use super::{Child, Known, MOST_OF_ONE, PATIENCE, User, complain, parsed, real_path, take};
use crate::host::{self, accounts};

/// Of more users nothing is read: each costs a process.
const MOST_USERS: usize = 4096;
/// Below it people have their own accounts nowhere (`UID_MIN`, login.defs(5)).
const FIRST_PERSON: u32 = 1000;
/// `nobody`, wherever it has its old number.
const NOBODY: u32 = 65534;
/// Where the tracer keeps a directory for each user unless its configuration says otherwise.
const TRAILS: &str = "/var/lib/agent-sandbox/trails";

/// Who has something to do with this node.
pub(super) fn users(known: Known) -> Vec<User> {
    let mut all: BTreeMap<u32, User> = BTreeMap::new();
    let mut uids: BTreeSet<u32> = entries("/proc")
        .filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit())
        .filter_map(|entry| Some(fs::symlink_metadata(entry.path()).ok()?.uid()))
        .collect();
    if known == Known::Ever {
        let number = |name: &str| name.parse::<u32>().ok();
        for directory in ["/run/user", TRAILS, DIRECTORY] {
            uids.extend(entries(directory).filter_map(|entry| number(entry.file_name().to_str()?)));
        }
        match of_node_local() {
            Ok(found) => uids.extend(found),
            Err(error) => complain(&host::NODE_LOCAL.join(", "), &error),
        }
        let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let people = text
            .lines()
            .filter_map(accounts::Account::of_line)
            .filter_map(User::of);
        let people = people.filter(|user| user.uid >= FIRST_PERSON && user.uid != NOBODY);
        all.extend(people.map(|user| (user.uid, user)));
    }
    for uid in uids {
        // One without an account has no home; containers have many.
        match accounts::account(Uid::from_raw(uid)) {
            Ok(account) => all.extend(account.and_then(User::of).map(|user| (uid, user))),
            Err(error) => complain(&format!("user {uid}"), &format!("{error:#}")),
        }
    }
    if all.len() > MOST_USERS {
        complain(
            "--user",
            &format!(
                "there are {} users; only the first {MOST_USERS} are shown",
                all.len()
            ),
        );
    }
    all.into_values().take(MOST_USERS).collect()
}

/// The owners of users' own directories in places where anybody may put anything, as a file system that does not answer.
fn of_node_local() -> Result<Vec<u32>, String> {
    let mut child = Child::start(None, PATIENCE, MOST_OF_ONE, || {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let mounts: BTreeSet<&str> = mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(4))
            .collect();
        let places = host::NODE_LOCAL
            .into_iter()
            .filter_map(|place| real_path(Path::new(place)).ok());
        let owners: BTreeSet<u32> = places.flat_map(|place| owners(&place, &mounts)).collect();
        let owners: Vec<String> = owners.iter().map(u32::to_string).collect();
        Ok(owners.join("\n").into_bytes())
    })
    .map_err(|error| format!("cannot start a process: {error}"))?;
    take(std::slice::from_mut(&mut child));
    let (_, text) = child.end().and_then(parsed)?;
    let lines = String::from_utf8_lossy(&text);
    Ok(lines.lines().filter_map(|line| line.parse().ok()).collect())
}

/// Nothing is looked at but what has the name of a user's directory: anybody may make one with anybody's number in its name. What is
/// mounted there is no directory of ours, and may never say whose it is.
fn owners(place: &Path, mounts: &BTreeSet<&str>) -> Vec<u32> {
    let is_ours = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let uid = name.to_str()?.rsplit_once('-')?.1.parse().ok()?;
        let path = entry.path();
        let is_ours = *name == *host::join_directory_name(uid) && !mounts.contains(path.to_str()?);
        (is_ours && entry.metadata().ok()?.uid() == uid).then_some(uid)
    };
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries.filter_map(|entry| is_ours(&entry)).collect()
}

fn entries(directory: &str) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(directory).into_iter().flatten().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file system that does not answer where a user's directory would be, and names of others.
    #[test]
    fn only_a_users_own_directory_says_whose_it_is() {
        let place = std::env::temp_dir().join(format!("owners-{}", std::process::id()));
        let own = Uid::effective().as_raw();
        let named = |uid: u32| place.join(host::join_directory_name(uid));
        for path in [
            named(own),
            named(own + 1),
            place.join("x"),
            place.join("agent-sandbox-x"),
        ] {
            assert!(fs::create_dir_all(path).is_ok());
        }
        assert_eq!(owners(&place, &BTreeSet::new()), [own]);
        let mounted = named(own).display().to_string();
        assert!(owners(&place, &[mounted.as_str()].into()).is_empty());
        assert!(fs::remove_dir_all(&place).is_ok());
    }
}
