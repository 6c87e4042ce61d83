//! Who is at the other end of a connection. The join socket is out of every jail's reach; this is
//! the second line: a server deals with processes outside of every jail, of its own job alone.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result, bail};

use super::join_socket::same_user;
use crate::host::allocation::{self, JobId};

/// Refuses a peer of another user, of another job, and one that is in a jail. `process` is the
/// descriptor of its process that it sent; `None` on a kernel without.
///
/// # Errors
/// The refusal.
pub fn judge(connection: &OwnedFd, process: Option<&OwnedFd>, job: Option<&JobId>) -> Result<()> {
    const REFUSED: &str = "this process may not join the job's jail";
    let peer = same_user(connection, nix::unistd::getuid().as_raw()).context(REFUSED)?;
    if let Some(process) = process
        && number(process).context(REFUSED)? != Some(peer.pid)
    {
        bail!("{REFUSED}: it is not the one that connected");
    }
    let theirs = job_of_cgroup(&peer.pid.to_string());
    if job.is_some() && theirs.as_ref() != job {
        bail!("only tasks of the same job may join its jail");
    }
    Ok(())
}

/// Whether who answers is the server that listens: a process outside of every jail, of this user. A
/// number alone does not prove it, for another process may have it by now; a descriptor of a
/// process outside nobody in a jail can get. `false` means: ask again. Who connected before the server
/// listened itself sees the task that forked it.
///
/// # Errors
/// `NotFound` if who listened has ended, as that task may have by now; it is somebody else, or in a
/// jail.
pub fn is_server(connection: &OwnedFd, process: &OwnedFd) -> io::Result<bool> {
    let listening = same_user(connection, nix::unistd::getuid().as_raw())?;
    let server = number(process)?;
    Ok(server == Some(listening.pid)
        || server.is_some_and(|server| parent_of(server) == Some(listening.pid)))
}

/// The number of the process of a descriptor; `None` if it has ended, or is in another pid namespace.
fn number(process: &OwnedFd) -> io::Result<Option<i32>> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()))?;
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    let Some(pid) = value("Pid:") else {
        return Err(io::Error::other("no process was shown"));
    };
    let alone = value("NSpid:").is_some_and(|numbers| numbers.split_whitespace().count() == 1);
    Ok(pid
        .trim()
        .parse()
        .ok()
        .filter(|&pid: &i32| pid > 0 && alone))
}

fn parent_of(pid: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

/// The job in whose cgroup a process is; `None` where Slurm makes none.
pub fn job_of_cgroup(process: &str) -> Option<JobId> {
    let text = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    allocation::of_cgroup(&text)
}
