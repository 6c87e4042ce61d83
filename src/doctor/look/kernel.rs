//! The kernel and its settings, by trying.

use std::path::Path;

use nix::sys::utsname::uname;
use nix::unistd::{AccessFlags, access};

use super::super::facts::{Cgroups, Kernel};
use crate::host::mediation;
use crate::launch::diagnose;

/// What filters can do (seccomp(2), "/proc interfaces").
const ACTIONS: &str = "/proc/sys/kernel/seccomp/actions_avail";
/// The kernel's type information, by which the tracer's probes find their way.
const TYPES: &str = "/sys/kernel/btf/vmlinux";
/// The oldest kernel that takes the tracer's probes.
const OLDEST_TRACED: (u32, u32) = (5, 13);
/// Where control groups are mounted (cgroups(7)).
const CGROUPS: &str = "/sys/fs/cgroup";

pub(super) fn look() -> Kernel {
    Kernel {
        release: release(),
        namespaces: diagnose::findings(),
        mediation: mediation::findings(),
        no_mediator: mediation::beside_bubblewrap(),
        no_tracer: no_tracer(&release(), Path::new(TYPES).exists()),
        seccomp: std::fs::read_to_string(ACTIONS).ok(),
        cgroups: cgroups(),
    }
}

/// Pure.
fn no_tracer(release: &str, types: bool) -> Option<&'static str> {
    let mut numbers = release
        .split_whitespace()
        .nth(1)?
        .split(['.', '-', '+'])
        .map(str::parse::<u32>);
    let (Ok(major), Ok(minor)) = (numbers.next()?, numbers.next()?) else {
        return None;
    };
    if (major, minor) < OLDEST_TRACED {
        return Some("the tracer needs Linux 5.13");
    }
    (!types).then_some("the tracer needs a kernel with CONFIG_DEBUG_INFO_BTF")
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

#[cfg(test)]
mod tests {
    use super::no_tracer;

    #[test]
    fn a_kernel_that_takes_no_tracer_is_known_by_its_release_and_types() {
        let none = "Linux 4.18.0-553.el8_10.x86_64 x86_64";
        assert!(no_tracer(none, true).is_some_and(|why| why.contains("5.13")));
        assert!(no_tracer("Linux 5.10.0-46-cloud-amd64 x86_64", true).is_some());
        assert_eq!(no_tracer("Linux 5.14.0-503.el9 x86_64", true), None);
        assert_eq!(no_tracer("Linux 7.2.13+deb14 x86_64", true), None);
        let without = no_tracer("Linux 6.1.0 x86_64", false);
        assert!(without.is_some_and(|why| why.contains("BTF")));
        assert_eq!(no_tracer("unknown", true), None);
    }
}
