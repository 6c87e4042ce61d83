//! The kernel and its settings, by trying.

use std::path::Path;

use nix::sys::utsname::uname;
use nix::unistd::{AccessFlags, access};

use super::super::facts::{Cgroups, Kernel};
use crate::host::mediation;
use crate::launch::diagnose;

/// What filters can do (seccomp(2), "/proc interfaces").
const ACTIONS: &str = "/proc/sys/kernel/seccomp/actions_avail";
/// Where control groups are mounted (cgroups(7)).
const CGROUPS: &str = "/sys/fs/cgroup";

pub(super) fn look() -> Kernel {
    Kernel {
        release: release(),
        namespaces: diagnose::findings(),
        mediation: mediation::findings(),
        no_mediator: mediation::beside_bubblewrap(),
        seccomp: std::fs::read_to_string(ACTIONS).ok(),
        cgroups: cgroups(),
    }
}

fn release() -> String {
    let Ok(name) = uname() else {
        return "unknown".to_owned();
    };
    let parts = [name.sysname(), name.release(), name.machine()];
    parts.map(|part| part.to_string_lossy()).join(" ")
}

fn cgroups() -> Cgroups {
    let root = Path::new(CGROUPS);
    let is_second = |directory: &Path| directory.join("cgroup.controllers").exists();
    let unified = root.join("unified");
    let mounted = [root.to_owned(), unified]
        .into_iter()
        .find(|directory| is_second(directory));
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    // v2 has the one line that begins with `0::` (cgroups(7)); every other is of a v1 hierarchy.
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"));
    let first = text
        .lines()
        .any(|line| !line.starts_with("0::") && !line.contains(":name="));
    let delegated = match (&mounted, own) {
        (Some(mounted), Some(own)) if !nix::unistd::Uid::current().is_root() => {
            access(&mounted.join(own), AccessFlags::W_OK).is_ok()
        }
        _ => false,
    };
    Cgroups {
        second: mounted.is_some(),
        first,
        delegated,
    }
}
