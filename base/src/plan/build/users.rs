//! The filtered user database: system users and the caller, from files alone. Without it,
//! `getent passwd` in the jail would list every user of the site from LDAP.
//!
//! Formats: passwd(5), group(5), nsswitch.conf(5).

use crate::host::HostFacts;
use crate::policy::Users;

/// Below this, ids belong to the system (`login.defs(5)`: `UID_MIN`, `GID_MIN` default to 1000).
const FIRST_ORDINARY: u32 = 1000;
/// `nobody` and `nogroup`, which the kernel shows for ids that the jail's user namespace lacks.
const NOBODY: u32 = 65534;

/// Files beside the database that name every user and serve nobody inside.
const EMPTIED: [&str; 6] = [
    "/etc/group-",
    "/etc/passwd-",
    "/etc/subgid",
    "/etc/subgid-",
    "/etc/subuid",
    "/etc/subuid-",
];

/// The files to put in place of the host's, each with its path.
pub fn files(users: Users, host: &HostFacts) -> Vec<(&'static str, Vec<u8>)> {
    if users == Users::Host {
        return Vec::new();
    }
    let mut all = Vec::new();
    if let Some(text) = &host.databases.passwd {
        all.push(("/etc/passwd", passwd(text, host)));
    }
    if let Some(text) = &host.databases.group {
        all.push(("/etc/group", group(text, host)));
    }
    if let Some(text) = &host.databases.nsswitch {
        all.push(("/etc/nsswitch.conf", nsswitch(text)));
    }
    // Copies that tools leave behind, and the ranges of subordinate ids, name every user.
    all.extend(EMPTIED.map(|path| (path, Vec::new())));
    all
}

fn system(id: Option<&str>) -> bool {
    id.and_then(|id| id.parse::<u32>().ok())
        .is_some_and(|id| id < FIRST_ORDINARY || id == NOBODY)
}

fn passwd(text: &[u8], host: &HostFacts) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let own = host.uid.to_string();
    let mut all = String::new();
    for line in text.lines() {
        let id = line.split(':').nth(2);
        if system(id) && id != Some(&own) {
            all.push_str(line);
            all.push('\n');
        }
    }
    if let Some(line) = &host.databases.caller {
        all.push_str(line);
        all.push('\n');
    }
    all.into_bytes()
}

/// System groups without their members, and the caller's groups with the caller as only member.
fn group(text: &[u8], host: &HostFacts) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let groups = host.databases.groups.iter();
    let own: Vec<String> = groups.map(|(gid, _)| gid.to_string()).collect();
    let mut all = String::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        let (Some(name), Some(_), Some(id)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        if system(Some(id)) && own.iter().all(|own| own != id) {
            all.push_str(&format!("{name}:x:{id}:\n"));
        }
    }
    for (gid, name) in &host.databases.groups {
        let member = host.user.as_deref().unwrap_or_default();
        all.push_str(&format!("{name}:x:{gid}:{member}\n"));
    }
    all.into_bytes()
}

/// Every database from files alone; hosts from files and DNS, without the daemons that are not
/// reachable inside (nscd, SSSD, systemd-resolved, Avahi).
fn nsswitch(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let mut all = String::new();
    for line in text.lines() {
        let Some((database, _)) = line.split_once(':') else {
            continue;
        };
        let database = database.trim();
        if database.is_empty() || database.starts_with('#') {
            continue;
        }
        let services = if database == "hosts" {
            "files dns"
        } else {
            "files"
        };
        all.push_str(&format!("{database}: {services}\n"));
    }
    all.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nsswitch_names_no_daemon() {
        let filtered =
            nsswitch(b"# x\npasswd: files sss\nhosts: files mdns4 resolve dns\nnetgroup: nis\n");
        let text = String::from_utf8_lossy(&filtered);
        assert_eq!(text, "passwd: files\nhosts: files dns\nnetgroup: files\n");
    }
}
