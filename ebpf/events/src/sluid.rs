//! SLUIDs: since Slurm 25.11 a job has a name besides its number, `s` and thirteen digits of base 32 (`sluid.h`). Which job
//! a cgroup v2 is of that is called by one (26.05, `cgroup_v2.c`): the title of the slurmstepd of one of its steps says the number (`slurmstepd: [100001.batch]`).
//! It is root's, in a cgroup that only root can enter.
#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads cgroups and titles of processes"
)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where cgroups v2 are mounted, or the part of them beside v1 (systemd's hybrid layout).
pub const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// `s`, then 64 bits in groups of five (`SLUID_STR_BYTES`, without its NUL).
const LENGTH: usize = 14;
/// Digits of base 32 (`sluid.c`): no I, L, O, U.
const DIGITS: &[u8] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Whether it has the form of a SLUID.
#[must_use]
pub fn is_sluid(text: &[u8]) -> bool {
    text.len() == LENGTH && text[0] == b's' && text[1..].iter().all(|digit| DIGITS.contains(digit))
}

/// The job of this cgroup, a path from the root of the cgroups: `/system.slice/slurmstepd.scope/s4SNKN57XZTE00`.
#[must_use]
pub fn job_of(cgroup: &str) -> Option<u32> {
    let below = cgroup.strip_prefix('/')?;
    MOUNTS
        .iter()
        .find_map(|mount| job_in(&Path::new(mount).join(below)))
}

/// The job of this cgroup's directory. None: no step of it has a slurmstepd now.
#[must_use]
pub fn job_in(directory: &Path) -> Option<u32> {
    let steps = fs::read_dir(directory).ok()?.flatten();
    let steps = steps.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"step_"));
    steps
        .filter_map(|step| fs::read_to_string(step.path().join("slurm/cgroup.procs")).ok())
        .find_map(|processes| processes.lines().find_map(titled))
}

/// The job in the title of a process of root's.
fn titled(pid: &str) -> Option<u32> {
    let process = PathBuf::from(format!("/proc/{}", pid.parse::<u32>().ok()?));
    // Another user's memory may be a file whose server never answers.
    if fs::metadata(&process).ok()?.uid() != 0 {
        return None;
    }
    let title = fs::read(process.join("cmdline")).ok()?;
    number(&String::from_utf8_lossy(&title))
}

fn number(title: &str) -> Option<u32> {
    let (number, _) = title
        .strip_prefix("slurmstepd: [")?
        .split_once(['.', '+'])?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_says_the_job() {
        assert_eq!(number("slurmstepd: [100001.batch]\0"), Some(100_001));
        assert_eq!(number("slurmstepd: [7.0 stepmgr]\0"), Some(7));
        assert_eq!(number("slurmstepd: [7+1.0]\0"), Some(7));
        for no in [
            "slurmstepd infinity\0",
            "x slurmstepd: [7.0]",
            "slurmstepd: [x.0]",
            "",
        ] {
            assert_eq!(number(no), None, "{no}");
        }
    }

    #[test]
    fn a_sluid_has_its_form() {
        assert!(is_sluid(b"s4SNKN57XZTE00"));
        for no in [
            "s4SNKN57XZTE0",
            "s4SNLN57XZTE00",
            "system.slice00",
            "S4SNKN57XZTE00",
        ] {
            assert!(!is_sluid(no.as_bytes()), "{no}");
        }
    }

    #[test]
    fn a_directory_that_is_no_jobs_has_none() {
        let own = format!("/proc/{}", std::process::id());
        assert_eq!(job_in(Path::new(&own)), None);
        assert_eq!(job_of("/no/such/cgroup"), None);
    }
}
