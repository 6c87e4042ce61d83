//! Why bubblewrap could not build the jail, found by trying what it needs.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it looks at the kernel's settings"
)]

use std::io::Read;
use std::os::unix::net::UnixStream;

use crate::sys::process;

/// What was found when bubblewrap failed.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The error of creating a user namespace and setting it up; `None`: it worked.
    pub user_namespace: Option<i32>,
    /// `/proc/sys/user/max_user_namespaces` (user_namespaces(7)).
    pub most_namespaces: Option<u64>,
    /// `/proc/sys/kernel/unprivileged_userns_clone` (Debian's kernels).
    pub debian_switch: Option<u64>,
    /// `/proc/sys/kernel/apparmor_restrict_unprivileged_userns` (Ubuntu 23.10 and later).
    pub apparmor_switch: Option<u64>,
    /// AppArmor's profile that this process is held to; `None`: none.
    pub apparmor_profile: Option<String>,
}

/// A cause and its remedies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// What is wrong.
    pub what: String,
    /// What the user can do.
    pub user: String,
    /// What an administrator can do.
    pub admin: String,
}

/// Where the kernel says how many user namespaces there may be (user_namespaces(7)).
const MOST_NAMESPACES: &str = "/proc/sys/user/max_user_namespaces";
/// Where Debian's kernels say whether users may make any.
const DEBIAN_SWITCH: &str = "/proc/sys/kernel/unprivileged_userns_clone";

/// Who the process is for AppArmor: `NAME (MODE)`, or `unconfined`.
const APPARMOR_PROFILE: &str = "/proc/self/attr/apparmor/current";

/// What bubblewrap may say before it is cut off; it says one line.
const LONGEST_COMPLAINT: u64 = 16 * 1024;

/// What bubblewrap said when it failed.
pub(crate) fn complaint(pipe: UnixStream) -> String {
    let mut text = Vec::new();
    // Everything that bubblewrap wrote is in the socket by now; whoever holds the other end open
    // must not keep the launcher waiting.
    let _ = pipe.set_nonblocking(true);
    let _ = pipe.take(LONGEST_COMPLAINT).read_to_end(&mut text);
    String::from_utf8_lossy(&text).trim().to_owned()
}

/// A number in a file of the kernel's.
fn number(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Whether the kernel's settings leave users no user namespaces. A bubblewrap that is set-user-ID
/// needs none.
pub fn is_switched_off() -> bool {
    [MOST_NAMESPACES, DEBIAN_SWITCH]
        .into_iter()
        .any(|path| number(path) == Some(0))
}

/// Tries what bubblewrap needs.
pub fn findings() -> Findings {
    Findings {
        user_namespace: process::try_user_namespace()
            .err()
            .map(|error| error.raw_os_error().unwrap_or(libc::EIO)),
        most_namespaces: number(MOST_NAMESPACES),
        debian_switch: number(DEBIAN_SWITCH),
        apparmor_switch: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        apparmor_profile: std::fs::read_to_string(APPARMOR_PROFILE)
            .ok()
            .and_then(|label| profile_that_holds(&label)),
    }
}

/// The profile of a process's label, if it refuses anything. Pure.
fn profile_that_holds(label: &str) -> Option<String> {
    let profile = label.trim_end().strip_suffix(" (enforce)")?;
    Some(profile.to_owned())
}

/// The cause behind bubblewrap's words and the findings. Pure.
pub fn cause(words: &str, findings: &Findings) -> Cause {
    let none = "this node cannot run the jail as it is; ask its administrator";
    let lower = words.to_lowercase();
    if let Some(option) = words.split("Unknown option ").nth(1) {
        let option = option.split_whitespace().next().unwrap_or("one");
        return Cause {
            what: format!("the installed bubblewrap is too old: it lacks the option {option}"),
            user: none.into(),
            admin: "install bubblewrap 0.4.0 or newer".into(),
        };
    }
    if findings.most_namespaces == Some(0) {
        return Cause {
            what: "user namespaces are switched off on this node (user.max_user_namespaces = 0)"
                .into(),
            user: none.into(),
            admin: "sysctl -w user.max_user_namespaces=15000, and the same in /etc/sysctl.d/"
                .into(),
        };
    }
    if findings.debian_switch == Some(0) {
        return Cause {
            what:
                "user namespaces are switched off for users (kernel.unprivileged_userns_clone = 0)"
                    .into(),
            user: none.into(),
            admin: "sysctl -w kernel.unprivileged_userns_clone=1, and the same in /etc/sysctl.d/"
                .into(),
        };
    }
    let denied = matches!(findings.user_namespace, Some(libc::EPERM | libc::EACCES));
    let about_maps = lower.contains("uid map")
        || lower.contains("permission denied")
        || lower.contains("loopback");
    if findings.apparmor_switch == Some(1) && (denied || about_maps) {
        return Cause {
            what: "AppArmor keeps user namespaces from unconfined programs on this node \
                   (kernel.apparmor_restrict_unprivileged_userns = 1)"
                .into(),
            user: none.into(),
            admin: "give bubblewrap a profile: /etc/apparmor.d/bwrap with `profile bwrap /usr/bin/bwrap \
                    flags=(unconfined) { userns, }`, then `systemctl reload apparmor`"
                .into(),
        };
    }
    if let (Some(profile), true) = (&findings.apparmor_profile, denied) {
        return Cause {
            what: format!(
                "AppArmor's profile `{profile}`, which this process is held to, permits no user namespaces"
            ),
            user: none.into(),
            admin: format!(
                "add `userns,` to the profile `{profile}`, or have it run bubblewrap under a profile that has it, and load it \
                 (apparmor_parser -r FILE)"
            ),
        };
    }
    if let Some(errno) = findings.user_namespace {
        let why = std::io::Error::from_raw_os_error(errno);
        let (what, admin) = match errno {
            libc::ENOSPC | libc::EUSERS => (
                "the limit of user namespaces is reached (user.max_user_namespaces)",
                "raise user.max_user_namespaces",
            ),
            libc::ENOSYS | libc::EINVAL => (
                "the kernel was built without user namespaces",
                "use a kernel with CONFIG_USER_NS",
            ),
            _ => (
                "user namespaces may not be created here (a container's or the site's rule)",
                "permit unprivileged user namespaces, or run outside of the container",
            ),
        };
        return Cause {
            what: format!("{what}: {why}"),
            user: none.into(),
            admin: admin.into(),
        };
    }
    if lower.contains("new namespace") {
        return Cause {
            what: format!(
                "user namespaces can be made on this node, but not by bubblewrap, which may have an AppArmor profile of its own: {words}"
            ),
            user: none.into(),
            admin: "add `userns,` to the profile of bubblewrap in /etc/apparmor.d/, and load it (apparmor_parser -r FILE)".into(),
        };
    }
    let words = if words.is_empty() {
        "bubblewrap ended without a word"
    } else {
        words
    };
    Cause {
        what: format!("bubblewrap could not build the jail: {words}"),
        user: "agent-sandbox --dry-run shows what it was asked to mount; a path that changed in between is tried \
               again on the next launch"
            .into(),
        admin: "user namespaces work on this node; see the path or option that bubblewrap names".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_own_words() {
        let plain = Findings {
            user_namespace: None,
            most_namespaces: Some(100),
            ..Findings::default()
        };
        let cases = [
            ("bwrap: Unknown option --size", plain.clone(), "too old"),
            (
                "bwrap: No permissions",
                Findings {
                    most_namespaces: Some(0),
                    ..plain.clone()
                },
                "switched off on this",
            ),
            (
                "bwrap: x",
                Findings {
                    debian_switch: Some(0),
                    ..plain.clone()
                },
                "unprivileged_userns_clone",
            ),
            (
                "bwrap: setting up uid map: Permission denied",
                Findings {
                    apparmor_switch: Some(1),
                    ..plain.clone()
                },
                "AppArmor",
            ),
            (
                "bwrap: No permissions",
                Findings {
                    user_namespace: Some(libc::EACCES),
                    apparmor_profile: Some("login".into()),
                    ..plain.clone()
                },
                "profile `login`",
            ),
            (
                "bwrap: Creating new namespace failed: Permission denied",
                plain.clone(),
                "not by bubblewrap",
            ),
            (
                "bwrap: x",
                Findings {
                    user_namespace: Some(libc::ENOSPC),
                    ..plain.clone()
                },
                "limit",
            ),
            (
                "bwrap: x",
                Findings {
                    user_namespace: Some(libc::EPERM),
                    ..plain.clone()
                },
                "may not be created",
            ),
            (
                "bwrap: Can't find source path /x",
                plain,
                "Can't find source path /x",
            ),
        ];
        for (words, findings, expected) in cases {
            let cause = cause(words, &findings);
            assert!(cause.what.contains(expected), "{words}: {}", cause.what);
            assert!(!cause.user.is_empty() && !cause.admin.is_empty());
        }
    }

    #[test]
    fn only_a_profile_that_is_enforced_holds() {
        for (label, profile) in [
            ("login (enforce)\n", Some("login")),
            ("login//&bwrap (enforce)\n", Some("login//&bwrap")),
            ("login (complain)\n", None),
            ("unconfined\n", None),
        ] {
            assert_eq!(profile_that_holds(label).as_deref(), profile, "{label}");
        }
    }
}
