//! What runs of a user's and where its tasks meet, as root sees it from outside.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::world::World;

/// A process as root sees it.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) words: Vec<String>,
}

impl Process {
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        Path::new("/proc").join(self.pid.to_string()).join(file)
    }

    pub(crate) fn stop(&self) {
        let _ = kill(Pid::from_raw(self.pid), Signal::SIGSTOP);
    }

    /// Whether it is stopped by a signal, or frozen with its cgroup, as Slurm does where it tracks jobs by cgroup v2: then it
    /// waits where signals are taken (`proc_pid_wchan(5)`).
    pub(crate) fn is_stopped(&self) -> bool {
        let frozen = fs::read_to_string(self.path("wchan"));
        frozen.is_ok_and(|at| ["get_signal", "do_freezer_trap"].contains(&at.trim()))
            || agent_sandbox_support::process::state(self.pid) == Some('T')
    }

    pub(crate) fn kill(&self) {
        // It may have ended on its own.
        let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
    }
}

/// The processes of the world's user that are alive.
fn processes(world: &World) -> Vec<Process> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let ours = all.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // Not the owner of the directory, who is root for what cannot be dumped.
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        let uid: u32 = line.split_whitespace().next()?.parse().ok()?;
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        // A zombie has no words.
        (uid == world.user.uid.as_raw() && !words.is_empty()).then(|| Process {
            pid,
            words: words
                .split(|byte| *byte == 0)
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect(),
        })
    });
    ours.collect()
}

/// Those with this word in their command lines.
pub(crate) fn marked(world: &World, mark: &str) -> Vec<Process> {
    let mut all = processes(world);
    all.retain(|process| process.words.iter().any(|word| word.contains(mark)));
    all
}

/// What the launcher left for this job: the tasks' own processes, servers, socket makers.
pub(crate) fn launchers(world: &World, job: &str) -> Vec<Process> {
    let wanted = format!("SLURM_JOB_ID={job}");
    let mut all = processes(world);
    all.retain(|process| {
        let variables = fs::read(process.path("environ")).unwrap_or_default();
        let program = process.words.first().map_or("", String::as_str);
        program.ends_with("agent-sandbox")
            && variables
                .split(|byte| *byte == 0)
                .any(|one| one == wanted.as_bytes())
    });
    all
}

/// Where tasks of this job meet on the node, if they do.
pub(crate) fn meeting(world: &World, job: &str) -> Vec<PathBuf> {
    let base = format!("/tmp/agent-sandbox-{}", world.user.uid);
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let all = entries.map(|entry| entry.path());
    all.filter(|path| path.to_str().unwrap().ends_with(&format!(".{job}")))
        .collect()
}

/// The servers of a job's steps: who holds a listening join socket.
pub(crate) fn servers(world: &World, job: &str) -> Vec<Process> {
    let directories: BTreeSet<u64> = meeting(world, job)
        .iter()
        .filter_map(|path| Some(fs::metadata(path).ok()?.ino()))
        .collect();
    let mut all = launchers(world, job);
    // It keeps the directory open, and of the launcher's processes it alone hears no signal.
    all.retain(|process| {
        let fds = fs::read_dir(process.path("fd")).into_iter().flatten();
        let holds = fds
            .flatten()
            .any(|fd| fs::metadata(fd.path()).is_ok_and(|meta| directories.contains(&meta.ino())));
        let status = fs::read_to_string(process.path("status")).unwrap_or_default();
        let deaf = status.lines().any(|line| {
            let mask = line.strip_prefix("SigIgn:\t").unwrap_or("0");
            u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & 1 << 14 != 0)
        });
        holds && deaf
    });
    // Between a server and its init there may be one more, forked from it.
    let pids: BTreeSet<i32> = all.iter().map(|process| process.pid).collect();
    all.retain(|process| !pids.contains(&parent(process)));
    all
}

/// The tasks' own processes, which slurmstepd starts.
pub(crate) fn tasks(world: &World, job: &str) -> Vec<Process> {
    let mut all = launchers(world, job);
    all.retain(|process| {
        let comm = fs::read_to_string(format!("/proc/{}/comm", parent(process)));
        comm.is_ok_and(|comm| comm == "slurmstepd\n")
    });
    all
}

/// The process that forked this one, or has taken it on.
pub(crate) fn parent(process: &Process) -> i32 {
    let status = fs::read_to_string(process.path("status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:\t"));
    line.and_then(|pid| pid.parse().ok()).unwrap_or(0)
}
