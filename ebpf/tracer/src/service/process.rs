//! Processes that callers name, and callers themselves.
#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads /proc of other processes"
)]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use agent_sandbox_events::sluid;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, fstatat};

use super::registry::Named;
use crate::sys::pidfd;

/// A file of `/proc` about one process is never longer, in bytes: `status` is the longest with about 2 KiB.
const MOST_PROC: u64 = 65536;

/// The number of the initial pid namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const INITIAL: u64 = 0xEFFF_FFFC;

/// A process that is held: everything that is read of it is of this very process and no later one of the
/// same number.
#[derive(Debug)]
pub struct Process {
    /// Its number and start.
    pub named: Named,
    /// Real, effective and saved user id, and that for files (`proc_pid_status(5)`).
    pub uids: [u32; 4],
    handle: OwnedFd,
    directory: OwnedFd,
}

impl Process {
    /// Takes hold of a process of this user's; root may have anyone's.
    ///
    /// # Errors
    /// There is none of that number, or it has ended meanwhile.
    pub fn open(pid: u32, viewer: u32) -> io::Result<Self> {
        let handle = pidfd::open(pid)?;
        Self::held_if(pid, handle, |uids| viewer == 0 || is_of(uids, viewer))
    }

    /// The process of a descriptor (`SO_PEERPIDFD`, `pidfd_open(2)`) and its number.
    ///
    /// # Errors
    /// It has ended.
    pub fn held(pid: u32, handle: OwnedFd) -> io::Result<Self> {
        Self::held_if(pid, handle, |_| true)
    }

    fn held_if(
        pid: u32,
        handle: OwnedFd,
        right: impl FnOnce(&[u32; 4]) -> bool,
    ) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let directory = open(&PathBuf::from(format!("/proc/{pid}")), flags, Mode::empty())?;
        let status = text(&directory, "status")?;
        let uids = uids(&status).ok_or(io::ErrorKind::InvalidData)?;
        let process = Self {
            named: Named { pid },
            uids,
            handle,
            directory,
        };
        // If it lives now then the number was its own when the directory was opened.
        if process.lives() && right(&process.uids) {
            Ok(process)
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    /// What is needed of it once its trace has begun: one descriptor instead of two.
    #[must_use]
    pub fn keep(self) -> Holding {
        Holding {
            named: self.named,
            handle: self.handle,
        }
    }

    /// Whether it has not ended yet, with all its threads.
    #[must_use]
    pub fn lives(&self) -> bool {
        lives(&self.handle)
    }

    /// Whether it counts processes as the tracer does.
    ///
    /// # Errors
    /// It has ended.
    pub fn in_our_namespace(&self) -> io::Result<bool> {
        let its = fstatat(&self.directory, "ns/pid", AtFlags::empty())?;
        let ours = nix::sys::stat::stat("/proc/self/ns/pid")?;
        if !self.lives() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok((its.st_dev, its.st_ino) == (ours.st_dev, ours.st_ino))
    }

    /// Its cgroup v2, from the root of that file system: `/system.slice/x`.
    ///
    /// # Errors
    /// It has ended, or there is no cgroup v2.
    pub fn cgroup(&self) -> io::Result<PathBuf> {
        let text = text(&self.directory, "cgroup")?;
        let path = text.lines().find_map(|line| line.strip_prefix("0::"));
        path.map(PathBuf::from)
            .ok_or(io::ErrorKind::NotFound.into())
    }

    /// The job that Slurm keeps it in, by its cgroups; none where Slurm makes none.
    ///
    /// # Errors
    /// It has ended.
    pub fn job(&self) -> io::Result<Option<u32>> {
        Ok(job(&text(&self.directory, "cgroup")?, sluid::job_of))
    }

    /// Its mounts (`proc_pid_mountinfo(5)`), of which at most `most` bytes are read.
    ///
    /// # Errors
    /// It has ended.
    pub fn mounts(&self, most: u64) -> io::Result<String> {
        limited(&self.directory, "mountinfo", most)
    }

    /// Its descriptor, for `bpf(2)`.
    #[must_use]
    pub fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// A process of a trace that goes on.
#[derive(Debug)]
pub struct Holding {
    /// Its number and start.
    pub named: Named,
    handle: OwnedFd,
}

impl Holding {
    /// Whether it has not ended yet, with all its threads.
    #[must_use]
    pub fn lives(&self) -> bool {
        lives(&self.handle)
    }
}

/// Whether a process is of this user in every way: a program that sets its user id is not.
fn is_of(uids: &[u32; 4], uid: u32) -> bool {
    uids[..3].iter().all(|id| *id == uid)
}

/// Whether the process of a descriptor has not ended yet, with all its threads (`pidfd_open(2)`).
#[must_use]
pub fn lives(handle: &OwnedFd) -> bool {
    let mut set = [PollFd::new(handle.as_fd(), PollFlags::POLLIN)];
    matches!(poll(&mut set, PollTimeout::ZERO), Ok(0))
}

/// Whether the tracer itself lacks descriptors or memory: this says nothing of what was looked for.
#[must_use]
pub fn is_short(error: &io::Error) -> bool {
    let short = [libc::EMFILE, libc::ENFILE, libc::ENOMEM];
    error
        .raw_os_error()
        .is_some_and(|code| short.contains(&code))
}

/// Whether this process counts processes as the kernel itself does, and as the probes do.
#[must_use]
pub fn in_initial_namespace() -> bool {
    nix::sys::stat::stat("/proc/self/ns/pid").is_ok_and(|stat| stat.st_ino == INITIAL)
}

fn text(directory: &OwnedFd, name: &str) -> io::Result<String> {
    limited(directory, name, MOST_PROC)
}

fn opened(directory: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    Ok(File::from(openat(directory, name, flags, Mode::empty())?))
}

fn limited(directory: &OwnedFd, name: &str, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    opened(directory, name)?
        .take(most)
        .read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The four user ids of `status`.
fn uids(status: &str) -> Option<[u32; 4]> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let ids: Vec<u32> = line
        .split_ascii_whitespace()
        .map_while(|id| id.parse().ok())
        .collect();
    ids.try_into().ok()
}

/// The job of a `/proc/PID/cgroup`, from the places where Slurm alone makes directories (cgroup/v1:
/// `/slurm/uid_U/job_N`, or `/slurm_NODE/…` with several daemons; cgroup/v2: `/system.slice/slurmstepd.scope/job_N`,
/// or `NODE_slurmstepd.scope`, and there since Slurm 26.05 its SLUID in place of `job_N`). Elsewhere a user may have such a
/// name. `of_sluid` says which job a directory is of that is called by a SLUID.
fn job(cgroups: &str, of_sluid: impl Fn(&str) -> Option<u32>) -> Option<u32> {
    let of = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let names: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        let name = match names.as_slice() {
            ["system.slice", scope, name, ..]
                if *scope == "slurmstepd.scope" || scope.ends_with("_slurmstepd.scope") =>
            {
                if sluid::is_sluid(name.as_bytes()) {
                    return of_sluid(&format!("/system.slice/{scope}/{name}"));
                }
                *name
            }
            // A hierarchy of version 1 has a controller or a name; in those root alone makes directories at the top.
            [top, user, name, ..]
                if !controllers.is_empty()
                    && (*top == "slurm" || top.starts_with("slurm_"))
                    && user.starts_with("uid_") =>
            {
                *name
            }
            _ => return None,
        };
        name.strip_prefix("job_")?.parse().ok()
    };
    cgroups.lines().find_map(of)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_job_is_where_slurm_alone_makes_directories() {
        let v1 =
            "12:memory:/slurm/uid_1000/job_17/step_0/task_0\n0::/system.slice/slurmd.service\n";
        assert_eq!(job(v1, |_| None), Some(17));
        let several = "3:freezer:/slurm_n1/uid_1000/job_18/step_batch\n";
        assert_eq!(job(several, |_| None), Some(18));
        for scope in ["slurmstepd.scope", "n1_slurmstepd.scope"] {
            let v2 = format!("0::/system.slice/{scope}/job_19/step_0/user/task_0\n");
            assert_eq!(job(&v2, |_| None), Some(19));
            let directory = format!("/system.slice/{scope}/s4SNKN57XZTE00");
            let inside = format!("0::{directory}/step_0/user/task_0\n");
            let asked = |of: &str| (of == directory).then_some(20);
            assert_eq!(job(&inside, asked), Some(20));
        }
        for others in [
            "",
            "0::/\n",
            "0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_7\n",
            "0::/slurm/uid_1000/job_7/step_0\n",
            "1:name=systemd:/user.slice/slurm/uid_1000/job_7\n",
            "0::/system.slice/slurmstepd.scope/system\n",
            "0::/system.slice/slurmstepd.scope/job_x\n",
            "0::/user.slice/slurmstepd.scope/s4SNKN57XZTE00\n",
        ] {
            assert_eq!(job(others, |_| Some(7)), None, "{others}");
        }
    }

    #[test]
    fn a_name_that_looks_like_a_line_does_not_give_other_ids() {
        // The kernel writes a newline in a name as `\n`, two characters.
        let status = "Name:\tUid:\\t0\nState:\tR\nUid:\t1000\t1000\t0\t1000\nGid:\t1\t1\t1\t1\n";
        assert_eq!(uids(status), Some([1000, 1000, 0, 1000]));
        assert_eq!(uids("Uid:\t1\t2\n"), None);
    }

    #[test]
    fn a_process_is_held_and_not_its_number() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let process = Process::open(child.id(), 0).unwrap();
        let me = nix::unistd::getuid().as_raw();
        assert!(process.lives());
        assert!(process.in_our_namespace().unwrap());
        assert!(Process::open(child.id(), me).is_ok());
        assert!(Process::open(child.id(), me + 1).is_err(), "another's");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.lives());
        assert!(process.in_our_namespace().is_err());
        assert!(Process::open(process.named.pid, 0).is_err());
    }

    #[test]
    fn a_thread_is_no_process() {
        let (send, receive) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(nix::unistd::gettid().as_raw()).unwrap();
            let _ = stopped.recv();
        });
        let thread_id = u32::try_from(receive.recv().unwrap()).unwrap();
        assert!(Process::open(thread_id, 0).is_err());
        drop(stop);
        thread.join().unwrap();
    }

    #[test]
    fn there_is_no_process_of_such_numbers() {
        for pid in [0, u32::MAX, 1 << 31] {
            assert!(Process::open(pid, 0).is_err(), "{pid}");
        }
    }
}
