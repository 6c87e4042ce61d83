//! Why the probes cannot be loaded here, in words that say what to do: looked for before anything is
//! tried, as the kernel itself answers with "Operation not permitted" to nearly all of it.

#![allow(clippy::disallowed_methods, reason = "effects: reads /proc and /sys")]

use std::fs;
use std::path::Path;

use super::settings::Error;

/// The first kernel whose tracing programs have task storage and `bpf_get_func_ip` (Linux 5.13 is the oldest
/// on which both objects could run).
const OLDEST: (u32, u32) = (5, 13);

/// The kernel's type information.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Numbers of capabilities (linux/capability.h).
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Inode numbers of the initial namespaces (`PROC_USER_INIT_INO`, `PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const INITIAL_USER: &str = "user:[4026531837]";
const INITIAL_PID: &str = "pid:[4026531836]";

/// The kernel's release.
pub(crate) fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").map_or_else(
        |_| "unknown".to_owned(),
        |release| release.trim().to_owned(),
    )
}

/// Looks for what makes it impossible.
pub(crate) fn look() -> Result<(), Error> {
    let release = release();
    if version(&release).is_some_and(|version| version < OLDEST) {
        return Err(Error::TooOld { release });
    }
    if !Path::new(BTF).exists() {
        return Err(Error::NoTypes { release });
    }
    let inside = [("user", INITIAL_USER), ("pid", INITIAL_PID)]
        .into_iter()
        .find(|(name, initial)| {
            let namespace = fs::read_link(format!("/proc/self/ns/{name}"));
            namespace.is_ok_and(|namespace| namespace != Path::new(initial))
        });
    if let Some((name, _)) = inside {
        return Err(Error::Namespace { name });
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !effective(&status).is_none_or(may_trace) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Whether the kernel runs security hooks of eBPF programs; none if it does not say, as securityfs is not
/// mounted or may not be read: then only a denial of one's own tells.
pub(crate) fn runs_lsm() -> Option<bool> {
    let list = fs::read_to_string("/sys/kernel/security/lsm").ok()?;
    Some(names_bpf(&list))
}

/// What lockdown adds to a failure: in its mode `confidentiality` no program may read the kernel's memory
/// (`kernel_lockdown(7)`).
pub(crate) fn lockdown() -> bool {
    let mode = fs::read_to_string("/sys/kernel/security/lockdown");
    mode.is_ok_and(|mode| mode.contains("[confidentiality]"))
}

fn names_bpf(list: &str) -> bool {
    list.trim().split(',').any(|name| name == "bpf")
}

/// The first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The effective capabilities, from `/proc/self/status`.
fn effective(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn may_trace(capabilities: u64) -> bool {
    let has = |number: u32| capabilities & (1 << number) != 0;
    has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_as_distributions_write_them() {
        assert_eq!(version("6.1.0-41-amd64"), Some((6, 1)));
        assert_eq!(version("5.14.0-427.el9.x86_64"), Some((5, 14)));
        assert_eq!(version("6.12"), Some((6, 12)));
        assert_eq!(version("new"), None);
        assert!(version("5.10.0").is_some_and(|version| version < OLDEST));
        assert!(version("5.13.0").is_some_and(|version| version >= OLDEST));
    }

    #[test]
    fn two_capabilities_are_enough_and_one_is_not() {
        let status = "Name:\tx\nCapPrm:\t0\nCapEff:\t000000c000000000\n";
        assert_eq!(effective(status), Some(0xc0_0000_0000));
        assert!(may_trace(0xc0_0000_0000));
        assert!(!may_trace(1 << CAP_BPF));
        assert!(!may_trace(1 << CAP_PERFMON));
        assert!(may_trace(1 << CAP_SYS_ADMIN));
    }

    #[test]
    fn the_list_of_security_modules_names_bpf_as_a_whole_word() {
        assert!(names_bpf("lockdown,capability,yama,bpf\n"));
        assert!(!names_bpf("lockdown,capability,bpfx"));
        assert!(!names_bpf(""));
    }
}
