//! What is traced: a command of one's own, or what runs already.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: looks for programs, processes and cgroups"
)]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use agent_sandbox_events::protocol::Scope;
use agent_sandbox_events::sluid;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use nix::unistd::{AccessFlags, access};

use crate::fault::{CANNOT_EXECUTE, Fault, NOT_FOUND};

/// Where `execvp(3)` looks when `PATH` is not set (glibc's `confstr(_CS_PATH)`).
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// As deep is a job's cgroup searched: Slurm's is three or four below the root.
const DEEPEST: usize = 6;
/// No more directories are looked at: a node has some thousand cgroups.
const MOST: usize = 50_000;

/// The program of a command, as a shell finds it (`execvp(3)`).
///
/// # Errors
/// It does not exist, or cannot be executed.
pub fn program(name: &OsStr) -> Result<PathBuf, Fault> {
    let executable = |path: &Path| {
        fs::metadata(path).is_ok_and(|meta| meta.is_file())
            && access(path, AccessFlags::X_OK).is_ok()
    };
    let shown = name.display();
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(Fault::new(format!("`{shown}` does not exist")).code(NOT_FOUND))
            }
            Err(error) => {
                Err(Fault::new(format!("cannot execute `{shown}`: {error}")).code(CANNOT_EXECUTE))
            }
            Ok(meta) if meta.is_dir() => Err(Fault::new(format!(
                "cannot execute `{shown}`: it is a directory"
            ))
            .code(CANNOT_EXECUTE)),
            Ok(_) if executable(&path) => Ok(path),
            Ok(_) => Err(
                Fault::new(format!("cannot execute `{shown}`: it is not executable"))
                    .code(CANNOT_EXECUTE)
                    .hint(format!("`chmod +x {shown}` makes it so")),
            ),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from(DEFAULT_PATH));
    // An empty entry is the current directory.
    let found = std::env::split_paths(&path)
        .map(|directory| match directory.as_os_str().is_empty() {
            true => Path::new(".").join(name),
            false => directory.join(name),
        })
        .find(|path| executable(path));
    found.ok_or_else(|| Fault::new(format!("`{shown}` was not found in PATH")).code(NOT_FOUND))
}

/// A process and what it starts, and has started.
///
/// # Errors
/// There is none, or it is another user's.
pub fn process(pid: u32) -> Result<Scope, Fault> {
    let Ok(meta) = fs::metadata(format!("/proc/{pid}")) else {
        return Err(Fault::new(format!("there is no process {pid}")));
    };
    let uid = nix::unistd::getuid();
    if !uid.is_root() && meta.uid() != uid.as_raw() {
        return Err(Fault::new(format!(
            "process {pid} is another user's (uid {}): only your own can be traced",
            meta.uid()
        )));
    }
    Ok(Scope {
        process: Some(pid),
        descendants: true,
        cgroup: None,
    })
}

/// Whether a process still runs, and has not ended and waits for its parent to notice. `/proc/PID/stat` says it as well, and
/// keeps its reader waiting where the process hangs while it executes a program.
#[must_use]
pub fn runs(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    // A newline in the name stands there as `\n` (proc_pid_status(5)).
    let state = status
        .lines()
        .find_map(|line| line.strip_prefix("State:")?.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Everything in and below a cgroup v2. Whoever does not own it names a process of theirs in it as well: that is
/// how the tracer knows that it is some business of theirs. Others' processes are not recorded whatever is said.
///
/// # Errors
/// It is none, or nothing of the caller's is in it.
pub fn cgroup(path: &Path) -> Result<Scope, Fault> {
    let shown = path.display();
    let is_v2 = statfs(path).is_ok_and(|found| found.filesystem_type() == CGROUP2_SUPER_MAGIC);
    let meta = match fs::metadata(path) {
        Err(error) => {
            return Err(Fault::new(format!(
                "cannot look at the cgroup `{shown}`: {error}"
            )));
        }
        Ok(meta) if !meta.is_dir() || !is_v2 => {
            return Err(Fault::new(format!("`{shown}` is no cgroup v2"))
                .hint("it is a directory below /sys/fs/cgroup: `cat /proc/PID/cgroup` names that of a process, behind `0::`"));
        }
        Ok(meta) => meta,
    };
    let own = nix::unistd::getuid();
    let process = match own.is_root() || meta.uid() == own.as_raw() {
        true => None,
        false => Some(own_process(path, own.as_raw(), DEEPEST).ok_or_else(|| {
            Fault::new(format!(
                "no process in `{shown}` is yours: only your own can be traced"
            ))
        })?),
    };
    Ok(Scope {
        process,
        descendants: process.is_some(),
        cgroup: Some(meta.ino()),
    })
}

/// The cgroup of a job of Slurm's on this node.
///
/// # Errors
/// There is none, or nothing of the caller's is in it.
pub fn job(number: u32) -> Result<Scope, Fault> {
    let its = |directory: &Path| is_job(directory, number);
    let found = sluid::MOUNTS
        .iter()
        .find_map(|root| below(Path::new(root), &its));
    match found {
        Some(path) => cgroup(&path),
        None => Err(Fault::new(format!("there is no cgroup of job {number} on this node"))
            .hint("it must run here, and Slurm must track processes by cgroup v2 (`ProctrackType=proctrack/cgroup`); `squeue` says where it runs")
            .hint("--pid N traces one of its processes instead")),
    }
}

/// Whether this is a job's cgroup, where Slurm makes them: elsewhere a user may have such a name.
fn is_job(directory: &Path, number: u32) -> bool {
    let named = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
    let above = directory.parent().and_then(named);
    if !above.is_some_and(|above| above.ends_with("slurmstepd.scope")) {
        return false;
    }
    match named(directory) {
        Some(found) if sluid::is_sluid(found.as_bytes()) => {
            sluid::job_in(directory) == Some(number)
        }
        found => found == Some(format!("job_{number}")),
    }
}

/// A process of a user's in or below a cgroup.
fn own_process(cgroup: &Path, uid: u32, deep: usize) -> Option<u32> {
    let processes = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    let own = |pid: &u32| {
        fs::metadata(format!("/proc/{pid}")).is_ok_and(|meta| meta.uid() == uid) && runs(*pid)
    };
    let here = processes
        .lines()
        .filter_map(|line| line.parse().ok())
        .find(own);
    here.or_else(|| {
        let deep = deep.checked_sub(1)?;
        let entries = fs::read_dir(cgroup).ok()?.flatten();
        let mut directories =
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories.find_map(|entry| own_process(&entry.path(), uid, deep))
    })
}

/// A directory below another one that is meant; the one that is least deep.
fn below(root: &Path, meant: &impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let mut level = vec![root.to_owned()];
    let mut seen = 0;
    for _ in 0..DEEPEST {
        let mut next = Vec::new();
        for directory in level {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                let path = entry.path();
                if meant(&path) {
                    return Some(path);
                }
                seen += 1;
                if seen > MOST {
                    return None;
                }
                next.push(path);
            }
        }
        level = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let code = |name: &str| program(OsStr::new(name)).unwrap_err().code;
        assert!(program(OsStr::new("sh")).unwrap().ends_with("sh"));
        assert_eq!(code("no-such-program-anywhere"), NOT_FOUND);
        assert_eq!(code("/no/such/program"), NOT_FOUND);
        assert_eq!(code("/etc/passwd"), CANNOT_EXECUTE);
        assert_eq!(code("/etc/"), CANNOT_EXECUTE);
    }

    #[test]
    fn a_job_is_found_below_whatever_slurm_made() {
        let place = tempfile::tempdir().unwrap();
        let deep = place.path().join("system.slice/n1_slurmstepd.scope/job_12");
        fs::create_dir_all(deep.join("step_0")).unwrap();
        fs::write(place.path().join("job_12"), "no directory").unwrap();
        fs::create_dir_all(place.path().join("user.slice/job_12")).unwrap();
        let of = |number| below(place.path(), &|path: &Path| is_job(path, number));
        assert_eq!(of(12), Some(deep));
        assert_eq!(of(1), None);
    }

    #[test]
    fn a_process_of_ones_own_is_found_however_deep() {
        let place = tempfile::tempdir().unwrap();
        let step = place.path().join("step_0/task_0");
        fs::create_dir_all(&step).unwrap();
        let mut foreign = 1;
        if nix::unistd::getuid().is_root() {
            // There is no process of another user's for sure.
            foreign = u32::MAX;
        }
        let own = std::process::id();
        fs::write(place.path().join("cgroup.procs"), format!("{foreign}\n")).unwrap();
        let uid = nix::unistd::getuid().as_raw();
        assert_eq!(own_process(place.path(), uid, DEEPEST), None);
        fs::write(step.join("cgroup.procs"), format!("{foreign}\n{own}\n")).unwrap();
        assert_eq!(own_process(place.path(), uid, DEEPEST), Some(own));
        assert_eq!(own_process(place.path(), uid, 1), None);
    }

    #[test]
    fn what_is_no_cgroup_is_refused() {
        assert!(cgroup(Path::new("/etc")).is_err());
        assert!(cgroup(Path::new("/no/such")).is_err());
    }

    #[test]
    fn a_process_that_has_ended_does_not_run() {
        let own = std::process::id();
        assert!(runs(own));
        assert_eq!(process(own).unwrap().process, Some(own));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while runs(pid) && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        // It waits for its parent.
        assert!(!runs(pid));
        child.wait().unwrap();
        assert!(!runs(pid));
    }
}
