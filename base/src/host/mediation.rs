//! Whether Landlock and a mediator can be a jail on this host, and whether a mediator can stand beside one
//! of bubblewrap's.

use std::io;
use std::path::Path;

use crate::sys::{probe, process};

/// Where Yama says who may trace whom (Documentation/admin-guide/LSM/Yama.rst).
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";
/// The largest scope in which an ancestor has access to its descendants.
const LARGEST_SCOPE: u32 = 1;

/// Why they cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What is missing.
    pub what: String,
    /// What an administrator can do.
    pub admin: &'static str,
}

/// Why no mediator stands beside a jail of bubblewrap's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoMediator {
    /// The run is watched, and a process has one filter that hands calls over at most (`seccomp(2)`,
    /// `EBUSY`).
    Watched,
    /// The host does not let one; a sentence.
    Refused(String),
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Landlock's ABI; 0: there is none.
    pub abi: i32,
    /// Yama's scope; `None`: there is no Yama.
    pub scope: Option<u32>,
    /// Whether `/proc` hides processes that nobody may trace (`hidepid`).
    pub hides: bool,
    /// The first call of the mediator's that the kernel refuses, and its `errno`.
    pub refused: Option<(&'static str, i32)>,
}

/// The largest scope in which a process has access to those of user namespaces that its user made: as
/// their owner it has every capability there (user_namespaces(7)), which is what scope 2 asks for.
const LARGEST_SCOPE_OF_OWNERS: u32 = 2;

/// A call of the mediator's, and how it is tried.
type Attempt = (&'static str, fn() -> io::Result<()>);

/// Tries what is needed.
pub fn findings() -> Findings {
    let tries: [Attempt; 4] = [
        (
            "seccomp(2) with SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV",
            probe::killable_notifications,
        ),
        ("openat2(2)", probe::guarded_paths),
        ("pidfd_getfd(2)", probe::copies_of_descriptors),
        ("process_vm_readv(2)", probe::memory_of_others),
    ];
    let refused = tries.into_iter().find_map(|(call, attempt)| {
        let error = attempt().err()?;
        Some((call, error.raw_os_error().unwrap_or(libc::EIO)))
    });
    Findings {
        abi: process::landlock_abi(),
        scope: scope(),
        hides: probe::untraceable_processes().is_err(),
        refused,
    }
}

fn scope() -> Option<u32> {
    let text = std::fs::read_to_string(Path::new(YAMA)).ok()?;
    text.trim().parse().ok()
}

/// Why no mediator can stand beside a jail of bubblewrap's; `None`: one can.
pub fn beside_bubblewrap() -> Option<String> {
    let tries: [Attempt; 4] = [
        (
            "seccomp(2) with SECCOMP_FILTER_FLAG_NEW_LISTENER",
            probe::notifications,
        ),
        ("openat2(2)", probe::guarded_paths),
        ("pidfd_getfd(2)", probe::copies_of_descriptors),
        ("process_vm_readv(2)", probe::memory_of_others),
    ];
    let refused = tries
        .into_iter()
        .find_map(|(call, attempt)| Some((call, attempt().err()?)));
    why_none(scope(), refused)
}

/// The sentence. Pure.
fn why_none(scope: Option<u32>, refused: Option<(&str, io::Error)>) -> Option<String> {
    if let Some(scope) = scope.filter(|scope| *scope > LARGEST_SCOPE_OF_OWNERS) {
        return Some(format!(
            "Yama forbids what the mediator needs (kernel.yama.ptrace_scope is {scope})"
        ));
    }
    let (call, error) = refused?;
    Some(format!(
        "this kernel, or a container around this process, refuses what the mediator needs: {call}: {error}"
    ))
}

impl Findings {
    /// What is missing; `None`: nothing is. Pure.
    pub fn missing(&self) -> Option<Missing> {
        if self.abi < 1 {
            return Some(Missing {
                what: "this kernel has no Landlock, or it is switched off".to_owned(),
                admin: "use Linux 5.13 or newer with CONFIG_SECURITY_LANDLOCK, and `landlock` among the \
                        modules in /sys/kernel/security/lsm (kernel parameter lsm=)",
            });
        }
        if let Some(scope) = self.scope.filter(|scope| *scope > LARGEST_SCOPE) {
            return Some(Missing {
                what: format!(
                    "Yama forbids it: kernel.yama.ptrace_scope is {scope}, and Landlock's mediator must read \
                     the memory of what it started"
                ),
                admin: "sysctl -w kernel.yama.ptrace_scope=1 (from 3 only by a reboot)",
            });
        }
        if self.hides {
            return Some(Missing {
                what: "/proc is mounted with hidepid, and Landlock's mediator must find every process of the jail, \
                       also one that has made itself untraceable, to judge and to end it"
                    .to_owned(),
                admin: "mount -o remount,hidepid=0 /proc, or have the users in the group that gid= names there",
            });
        }
        let (call, errno) = self.refused?;
        Some(Missing {
            what: format!(
                "this kernel, or a container around this process, refuses what Landlock's mediator needs: \
                 {call}: {}",
                io::Error::from_raw_os_error(errno)
            ),
            admin: "use Linux 5.19 or newer, and permit these calls in containers",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Findings, why_none};

    #[test]
    fn why_no_mediator_stands_beside_bubblewrap_is_said() {
        assert_eq!(why_none(None, None), None);
        // The owner of a user namespace has every capability in it.
        assert_eq!(why_none(Some(2), None), None);
        let why = why_none(Some(3), None).unwrap();
        assert!(why.contains("ptrace_scope is 3"), "{why}");
        let error = std::io::Error::from_raw_os_error(libc::ENOSYS);
        let why = why_none(Some(1), Some(("openat2(2)", error))).unwrap();
        assert!(
            why.contains("openat2(2): Function not implemented"),
            "{why}"
        );
    }

    #[test]
    fn each_lack_is_said_and_none_is_none() {
        let whole = Findings {
            abi: 1,
            scope: Some(1),
            hides: false,
            refused: None,
        };
        assert_eq!(whole.missing(), None);
        let without_yama = Findings {
            scope: None,
            ..whole.clone()
        };
        assert_eq!(without_yama.missing(), None);
        for (findings, word) in [
            (
                Findings {
                    abi: 0,
                    ..whole.clone()
                },
                "no Landlock",
            ),
            (
                Findings {
                    scope: Some(2),
                    ..whole.clone()
                },
                "ptrace_scope is 2",
            ),
            (
                Findings {
                    hides: true,
                    ..whole.clone()
                },
                "hidepid",
            ),
            (
                Findings {
                    refused: Some(("openat2(2)", libc::ENOSYS)),
                    ..whole
                },
                "openat2(2)",
            ),
        ] {
            let missing = findings.missing().unwrap();
            assert!(missing.what.contains(word), "{}", missing.what);
        }
    }
}
