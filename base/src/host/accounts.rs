//! The user database, wherever a site keeps it: files, LDAP, SSSD.
//!
//! glibc loads the services that nsswitch.conf(5) names. A static program cannot: musl reads the files
//! alone, and does not see users and groups from elsewhere. There the system's own getent(1) is asked,
//! and what cannot be asked is an error, since a site's policy may depend on the answer.

#[cfg(target_env = "musl")]
pub use asked::{account, group, groups_of, has_group, named};
#[cfg(not(target_env = "musl"))]
pub use library::{account, group, groups_of, has_group, named};

/// A line of passwd(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The name.
    pub name: String,
    /// The whole line, without a newline.
    pub line: String,
    /// The first group.
    pub gid: u32,
    /// The home directory.
    pub home: String,
}

impl Account {
    /// Reads a line of passwd(5); none if it is not one.
    pub fn of_line(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, _, gid, _, home, _] = fields.as_slice() else {
            return None;
        };
        Some(Self {
            name: (*name).to_owned(),
            line: line.to_owned(),
            gid: gid.parse().ok()?,
            home: (*home).to_owned(),
        })
    }
}

/// What the C library answers.
#[cfg(not(target_env = "musl"))]
mod library {
    use std::ffi::CString;

    use anyhow::{Context, Result};
    use nix::unistd::{Gid, Uid};

    use crate::host::accounts::Account;

    /// The account of a user; none: the database has no such user.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub fn account(uid: Uid) -> Result<Option<Account>> {
        let user = nix::unistd::User::from_uid(uid)
            .with_context(|| format!("cannot ask the user database for user {uid}"))?;
        Ok(user.and_then(of))
    }

    /// The account of that name; none: the database has no such user.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub fn named(name: &str) -> Result<Option<Account>> {
        let user = nix::unistd::User::from_name(name)
            .with_context(|| format!("cannot ask the user database for user `{name}`"))?;
        Ok(user.and_then(of))
    }

    fn of(user: nix::unistd::User) -> Option<Account> {
        Account::of_line(&format!(
            "{}:x:{}:{}:{}:{}:{}",
            user.name,
            user.uid,
            user.gid,
            user.gecos.to_string_lossy(),
            user.dir.display(),
            user.shell.display()
        ))
    }

    /// The name of a group; none: the database has no such group.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub fn group(gid: Gid) -> Result<Option<String>> {
        let group = nix::unistd::Group::from_gid(gid)
            .with_context(|| format!("cannot ask the user database for group {gid}"))?;
        Ok(group.map(|group| group.name))
    }

    /// Whether the database has a group of that name.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub fn has_group(name: &str) -> Result<bool> {
        let group = nix::unistd::Group::from_name(name)
            .with_context(|| format!("cannot ask the user database for group `{name}`"))?;
        Ok(group.is_some())
    }

    /// The groups that the database gives a user, the first one among them (getgrouplist(3)).
    ///
    /// # Errors
    /// The database cannot be asked.
    pub fn groups_of(account: &Account) -> Result<Vec<Gid>> {
        let name = CString::new(account.name.as_str()).context("a user's name with a zero byte")?;
        nix::unistd::getgrouplist(&name, Gid::from_raw(account.gid)).with_context(|| {
            format!(
                "cannot ask the user database for the groups of {}",
                account.name
            )
        })
    }
}

/// What getent(1) answers, in place of what musl knows.
#[cfg(any(target_env = "musl", test))]
pub mod asked {
    use std::path::Path;
    use std::process::{Command, Stdio};

    use anyhow::{Context, Result, bail};
    use nix::unistd::{Gid, Uid};

    use crate::host::accounts::Account;

    /// glibc's, where distributions have it.
    const GETENT: &str = "/usr/bin/getent";
    /// getent's exit status where the database lacks the key (getent(1)).
    const NOT_FOUND: i32 = 2;
    /// Which services are asked (nsswitch.conf(5)). Only glibc reads it.
    const SERVICES: &str = "/etc/nsswitch.conf";

    /// See the other `account`.
    pub fn account(uid: Uid) -> Result<Option<Account>> {
        Ok(ask("passwd", &uid.to_string())?.and_then(|line| Account::of_line(&line)))
    }

    /// See the other `named`.
    pub fn named(name: &str) -> Result<Option<Account>> {
        let account = ask("passwd", name)?.and_then(|line| Account::of_line(&line));
        // A number is one of getent's keys, too.
        Ok(account.filter(|account| account.name == name))
    }

    /// See the other `group`.
    pub fn group(gid: Gid) -> Result<Option<String>> {
        let line = ask("group", &gid.to_string())?;
        Ok(line.and_then(|line| line.split(':').next().map(str::to_owned)))
    }

    /// See the other `has_group`.
    pub fn has_group(name: &str) -> Result<bool> {
        let line = ask("group", name)?;
        // A number is one of getent's keys, too.
        Ok(line.is_some_and(|line| line.split(':').next() == Some(name)))
    }

    /// See the other `groups_of`.
    pub fn groups_of(account: &Account) -> Result<Vec<Gid>> {
        let mut all = vec![Gid::from_raw(account.gid)];
        // `NAME GID GID…`, without the first group.
        let line = ask("initgroups", &account.name)?.unwrap_or_default();
        for word in line.split_whitespace().skip(1) {
            let gid = word
                .parse()
                .with_context(|| format!("getent speaks of a group `{word}`"))?;
            all.push(Gid::from_raw(gid));
        }
        Ok(all)
    }

    /// The one line that getent prints for a key.
    fn ask(database: &str, key: &str) -> Result<Option<String>> {
        let what = format!("cannot ask the user database ({GETENT} {database} {key})");
        if !Path::new(GETENT).exists() {
            if !Path::new(SERVICES).exists() {
                // No glibc here: then there is nothing but the files.
                return Ok(in_files(database, key));
            }
            bail!(
                "{what}: it is not installed, and a static program cannot load the name services"
            );
        }
        let output = Command::new(GETENT)
            .args(["--", database, key])
            .env_clear()
            .stdin(Stdio::null())
            .output()
            .with_context(|| what.clone())?;
        match output.status.code() {
            Some(0) => {
                let text = String::from_utf8_lossy(&output.stdout);
                Ok(text.lines().next().map(str::to_owned))
            }
            Some(NOT_FOUND) => Ok(None),
            _ => bail!("{what}: {}", output.status),
        }
    }

    /// The same from the files, on a system that has no other database.
    fn in_files(database: &str, key: &str) -> Option<String> {
        let lines = |path: &str| {
            let text = std::fs::read(path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let has = |at: usize| move |line: &String| line.split(':').nth(at) == Some(key);
        let third = has(2);
        match database {
            "passwd" => {
                let all = lines("/etc/passwd");
                let named = all.iter().find(|line| has(0)(line)).cloned();
                named.or_else(|| all.into_iter().find(third))
            }
            "group" => lines("/etc/group").into_iter().find(third),
            _ => {
                let groups = lines("/etc/group");
                let mine = groups.iter().filter(|line| {
                    let members = line.split(':').nth(3).unwrap_or_default();
                    members.split(',').any(|member| member == key)
                });
                let ids = mine.filter_map(|line| line.split(':').nth(2));
                Some(
                    std::iter::once(key)
                        .chain(ids)
                        .collect::<Vec<_>>()
                        .join(" "),
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Result;
    use nix::unistd::{Gid, Uid};

    use super::*;

    #[test]
    fn a_line_of_seven_fields_is_an_account() {
        let line = "ada:x:1000:100:Ada,,,:/home/ada:/bin/bash";
        let account = Account::of_line(line).unwrap();
        assert_eq!((account.name.as_str(), account.gid), ("ada", 100));
        assert_eq!(account.home, "/home/ada");
        assert_eq!(Account::of_line("ada:x:1000:100"), None);
        assert_eq!(Account::of_line("ada:x:1000:many:::"), None);
    }

    #[test]
    fn getent_and_the_c_library_agree() {
        for uid in [0, 1, 4_000_000].map(Uid::from_raw) {
            let by_library = account(uid).unwrap();
            let by_getent = asked::account(uid).unwrap();
            assert_eq!(by_getent, by_library, "user {uid}");
            let Some(account) = by_library else { continue };
            assert_eq!(
                asked::named(&account.name).unwrap(),
                named(&account.name).unwrap()
            );
            assert_eq!(named(&uid.to_string()).unwrap(), None);
            let sorted = |groups: Result<Vec<Gid>>| {
                let mut groups: Vec<u32> = groups.unwrap().into_iter().map(Gid::as_raw).collect();
                groups.sort_unstable();
                groups.dedup();
                groups
            };
            let by_getent = sorted(asked::groups_of(&account));
            assert_eq!(by_getent, sorted(groups_of(&account)));
            for gid in by_getent.into_iter().map(Gid::from_raw) {
                let name = group(gid).unwrap();
                assert_eq!(asked::group(gid).unwrap(), name);
                let Some(name) = name else { continue };
                for name in [name.as_str(), "no-such-group", "0"] {
                    assert_eq!(asked::has_group(name).unwrap(), has_group(name).unwrap());
                }
            }
        }
    }
}
