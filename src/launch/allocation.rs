//! Looks for the allocation of Slurm's in which a session is started, and asks Slurm whether it is the one
//! (`host::allocation` says what proves it).

use std::net::{ToSocketAddrs, UdpSocket};

use agent_sandbox_wire::command::Command as Name;
use agent_sandbox_wire::order;

use super::prepared::Prepared;
use super::slurm_commands::SlurmCommands;
use crate::env_vars;
use crate::host::HostFacts;
use crate::host::allocation::{self, Allocation, Detected, FORMAT, Job, JobId, Session};
use crate::plan::build::slurm::availability;
use crate::plan::model::slurm::Use;

/// How far up the processes are looked at.
const DEEPEST: usize = 64;
/// The unit of times in `/proc/PID/stat`, in parts of a second (`proc(5)`; the kernel's `USER_HZ`).
const TICKS: u64 = 100;
/// Slurm's name of a host whose address is its loopback (clusters on one machine).
const LOOPBACK: &str = "localhost";

impl Prepared {
    /// Finds the allocation around this process, if the policy lets a session use it, and notes it.
    pub fn find_allocation(&mut self) {
        let off = self.policy.slurm.allocation.value == order::Allocation::Off;
        let on = availability(&self.policy, &self.host).is_ok_and(|slurm| slurm.value == Use::On);
        if on && !off {
            self.adopt(find(&self.host));
        }
    }

    /// Notes what was found.
    pub(super) fn adopt(&mut self, found: Detected) {
        if let Detected::Ours(ours) = &found {
            self.snapshot.allocation.clone_from(&ours.numbers);
            self.host.allocation = Some(ours.clone());
        }
        self.allocation = found;
    }

    /// What a person is told at the start: a note that an allocation is not used, always; the one that is,
    /// unless `quiet`.
    pub(super) fn said_of_allocation(&self, quiet: bool) -> String {
        match &self.allocation {
            Detected::NotUsed { job, why } => format!(
                "agent-sandbox: note: job {job} is not used in this session: it {why} [slurm.allocation]\n"
            ),
            Detected::Ours(ours) if !quiet => format!(
                "agent-sandbox: in Slurm job {}: {}\n",
                ours.job,
                ours.size()
            ),
            Detected::Ours(_) | Detected::Nothing => String::new(),
        }
    }
}

fn find(host: &HostFacts) -> Detected {
    let named = [env_vars::SLURM_JOB_ID, env_vars::SLURM_JOBID]
        .into_iter()
        .find_map(|name| host.variable(name).filter(|value| !value.is_empty()));
    // Who logs in to a node on which a job of theirs runs may have no variable of it (pam_slurm_adopt).
    let job = match named.map(allocation::number) {
        Some(Err(job)) => {
            let why = "has no number that could be a job's".to_owned();
            return Detected::NotUsed { job, why };
        }
        Some(Ok(job)) => JobId::Number(job),
        None => {
            let cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
            match allocation::of_cgroup(&cgroup) {
                Some(job) => job,
                None => return Detected::Nothing,
            }
        }
    };
    match prove(host, &job) {
        Ok(ours) => Detected::Ours(ours),
        // Nobody named it.
        Err(_) if named.is_none() => Detected::Nothing,
        Err(why) => Detected::NotUsed {
            job: job.to_string(),
            why,
        },
    }
}

/// The allocation, if Slurm says that it was made for this process.
///
/// # Errors
/// Why it is not used. Completes "job N …".
fn prove(host: &HostFacts, id: &JobId) -> Result<Allocation, String> {
    let words = ["--noheader", "--all", "--states=all"].map(str::to_owned);
    let rest = [format!("--jobs={id}"), format!("--Format={FORMAT}")];
    let about = |why: String| format!("cannot be asked about: {why}");
    let slurm = SlurmCommands::of(host).map_err(about)?;
    let said = slurm.ask(Name::Squeue, words.into_iter().chain(rest));
    // It fails of a number that it does not know.
    let said = said.map_err(|unanswered| match unanswered.fails {
        true => "is not known to Slurm".to_owned(),
        false => about(unanswered.why),
    })?;
    let found = Job::read(&said, id).ok_or("is not known to Slurm")?;
    let job = found.id;
    if let Some(why) = found.unusable(host.uid) {
        return Err(why);
    }
    let here = || is_here(&found.host);
    let by_session = sessions().iter().any(|one| found.is_from(one)) && here();
    if !by_session {
        let node = host.variable(env_vars::SLURMD_NODENAME);
        let node = node.and_then(|node| node.to_str()).filter(|node| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            node.starts_with(|c: char| c.is_ascii_alphanumeric()) && node.bytes().all(plain)
        });
        let words = ["listpids".to_owned(), job.to_string()];
        let words = words.into_iter().chain(node.map(str::to_owned));
        let listed = slurm.ask(Name::Scontrol, words).unwrap_or_default();
        if !allocation::lists(&listed, job, std::process::id()) {
            return Err(
                "was not made for this process, as far as Slurm says: start in the shell that salloc opened, in \
                 a batch script or by srun"
                    .to_owned(),
            );
        }
    }
    let mut numbers = vec![job, found.array];
    numbers.dedup();
    Ok(Allocation {
        job,
        numbers,
        nodes: found.nodes,
        processors: found.processors,
        on_node: !by_session,
        variables: allocation::described(&host.environment, job),
    })
}

/// The terminal sessions of this process and of those that started it. One whose first process has ended
/// has nobody to say when it began, and is left out.
fn sessions() -> Vec<Session> {
    let mut all: Vec<Session> = Vec::new();
    let mut pid = std::process::id();
    let boot = boot();
    for _ in 0..DEEPEST {
        let Some(stat) = stat(pid) else { break };
        if !all.iter().any(|known| known.id == stat.session)
            && let Some(leader) = self::stat(stat.session)
        {
            all.push(Session {
                id: stat.session,
                since: boot + leader.started / TICKS,
            });
        }
        pid = stat.parent;
    }
    all
}

/// What `/proc/PID/stat` says of a process (`proc(5)`).
struct Stat {
    parent: u32,
    session: u32,
    /// After the machine's start, in [`TICKS`].
    started: u64,
}

/// `None` of a process that is gone, or in another pid namespace (0).
fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name stands in parentheses and may hold anything.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        parent: number(1)?.try_into().ok()?,
        session: number(3)?.try_into().ok()?,
        started: number(19)?,
    })
}

/// When the machine started, in seconds since 1970-01-01 00:00 UTC (`/proc/stat`, `btime`).
fn boot() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("btime "));
    line.and_then(|time| time.trim().parse().ok()).unwrap_or(0)
}

/// Whether Slurm's name of a host, which comes from an address, is one of this machine's.
fn is_here(name: &str) -> bool {
    let own = nix::unistd::gethostname().unwrap_or_default();
    let own = own.to_string_lossy();
    let short = own.split('.').next().unwrap_or_default();
    if name == short || name == own || name == LOOPBACK {
        return true;
    }
    // An address to which a socket can be bound is this machine's.
    let addresses = (name, 0).to_socket_addrs();
    addresses.is_ok_and(|mut all| all.any(|address| UdpSocket::bind(address).is_ok()))
}
