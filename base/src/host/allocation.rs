//! The allocation of Slurm's in which a session is started (`salloc`, a batch script, a step), and what
//! proves that it is this one. Pure; `launch::allocation` asks.
//!
//! `SLURM_JOB_ID` is a hint: whoever sets a variable could name any job. Slurm itself has to say that
//! the job runs, that it is the caller's, and that it was made for this process: either slurmd counts
//! the process among those of the job (`scontrol listpids`), or the job was asked for in the terminal
//! session of the process (`AllocNode:Sid`), which is all there is of `salloc` on a login node.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use agent_sandbox_events::sluid::is_sluid;

/// Variables that describe an allocation and that `srun` reads in it (`salloc(1)`, `srun(1)`). Others
/// say which programs Slurm runs outside of any jail (`SLURM_TASK_PROLOG`), which controller it asks
/// (`SLURM_WORKING_CLUSTER`), or are a step's own, which `srun` sets anew.
const DESCRIBE: [&str; 26] = [
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_COUNT",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_STEP",
    "SLURM_CPUS_PER_TASK",
    "SLURM_DISTRIBUTION",
    "SLURM_JOBID",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_QOS",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_NNODES",
    "SLURM_NODELIST",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
];

/// How much earlier than the terminal session a job of it may seem to be, in seconds: clocks of two
/// machines differ. A job that is older was asked for in another session whose number came round.
const SLACK: u64 = 60;

/// What `squeue --Format` is asked for, in the order in which [`Job::read`] reads it. The name of a node,
/// and of a cluster's host, has less than 256 characters (`hostname(7)`).
pub const FORMAT: &str = "JobID:.12,ArrayJobID:.12,UserID:.12,StateCompact:.6,AllocSID:.12,SubmitTime:.24,NumNodes:.10,NumCPUs:.12,BatchFlag:.4,AllocNodes:.256";

/// What names a job on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobId {
    /// Its number.
    Number(u32),
    /// Its SLUID, which no other job ever has (Slurm 26.05).
    Sluid(String),
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Sluid(sluid) => f.write_str(sluid),
        }
    }
}

/// An allocation that is proved to be the one around this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The job's own number.
    pub job: u32,
    /// Every number that names it: its own, and its array's.
    pub numbers: Vec<u32>,
    /// Nodes.
    pub nodes: u32,
    /// Processors.
    pub processors: u32,
    /// Whether this process runs on one of its nodes. On a login node it does not.
    pub on_node: bool,
    /// What describes it, `NAME=VALUE`.
    pub variables: Vec<Vec<u8>>,
}

impl Allocation {
    /// Its size in words.
    pub fn size(&self) -> String {
        let count = |number: u32, one: &str, many: &str| match number {
            1 => format!("1 {one}"),
            _ => format!("{number} {many}"),
        };
        let nodes = count(self.nodes, "node", "nodes");
        format!("{}, {nodes}", count(self.processors, "CPU", "CPUs"))
    }
}

/// Which allocation was detected around this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Detected {
    /// Nothing speaks of an allocation.
    #[default]
    Nothing,
    /// The one around this process.
    Ours(Allocation),
    /// One was named, and is not used.
    NotUsed {
        /// Its number, as it was named.
        job: String,
        /// Completes "job N …".
        why: String,
    },
}

/// A job, as `squeue` tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its own number.
    pub id: u32,
    /// Its array's; its own if it is of none.
    pub array: u32,
    /// Whose it is.
    pub uid: u32,
    /// Its state in letters (`squeue(1)`, "JOB STATE CODES").
    pub state: String,
    /// The session id (`getsid(2)`) of who asked for it.
    pub session: u32,
    /// When it was submitted, in seconds since 1970-01-01 00:00 UTC.
    pub submitted: u64,
    /// Nodes.
    pub nodes: u32,
    /// Processors.
    pub processors: u32,
    /// Whether it runs a batch script: then who asked for it is not in it.
    pub batch: bool,
    /// The host on which it was asked for.
    pub host: String,
}

impl Job {
    /// Reads the one line that is about this job: of an answer about a SLUID, the first.
    pub fn read(said: &str, id: &JobId) -> Option<Self> {
        let line = |line: &str| {
            let mut fields = line.split_ascii_whitespace();
            let mut next = || fields.next();
            let job = Self {
                id: next()?.parse().ok()?,
                array: next()?.parse().ok()?,
                uid: next()?.parse().ok()?,
                state: next()?.to_owned(),
                session: next()?.parse().ok()?,
                submitted: next()?.parse().ok()?,
                nodes: next()?.parse().ok()?,
                processors: next()?.parse().ok()?,
                batch: next()? != "0",
                host: next()?.to_owned(),
            };
            match id {
                JobId::Number(id) => (job.id == *id).then_some(job),
                JobId::Sluid(_) => Some(job),
            }
        };
        said.lines().find_map(line)
    }

    /// Why this job of whoever is not one that runs for this user. Completes "job N …".
    pub fn unusable(&self, uid: u32) -> Option<String> {
        match self {
            job if job.uid != uid => Some("is another user's".to_owned()),
            job if job.state != "R" => Some(format!("does not run (it is {})", job.state)),
            _ => None,
        }
    }

    /// Whether it is an allocation that was asked for in this terminal session, on this host. A batch job runs elsewhere,
    /// with the session id of whoever submitted it.
    pub fn is_from(&self, session: &Session) -> bool {
        !self.batch
            && self.session != 0
            && self.session == session.id
            && session.since <= self.submitted.saturating_add(SLACK)
    }
}

/// A terminal session (`setsid(2)`) around this process, on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its number, that of its first process.
    pub id: u32,
    /// When that process started, in seconds since 1970-01-01 00:00 UTC.
    pub since: u64,
}

/// Whether `scontrol listpids JOB` counts a process among those of the job.
pub fn lists(said: &str, job: u32, pid: u32) -> bool {
    let line = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let mut next = || fields.next()?.parse::<u32>().ok();
        (next(), next()) == (Some(pid), Some(job))
    };
    said.lines().any(line)
}

/// The job in whose cgroup a process is, by its `/proc/PID/cgroup`: Slurm's cgroups are called `job_N`,
/// with cgroup v1 and v2, and since 26.05 as the job's SLUID.
pub fn of_cgroup(text: &str) -> Option<JobId> {
    let of = |line: &str| {
        let parts: Vec<&str> = line.split('/').collect();
        let number = |part: &&str| part.strip_prefix("job_")?.parse().ok();
        if let Some(number) = parts.iter().find_map(number) {
            return Some(JobId::Number(number));
        }
        // The name alone says less: it counts where Slurm makes the cgroups of jobs.
        let above = |part: &str| part.ends_with("slurmstepd.scope") || part.starts_with("uid_");
        let pair = parts.windows(2).find(|pair| above(pair[0]));
        pair.filter(|pair| is_sluid(pair[1].as_bytes()))
            .map(|pair| JobId::Sluid(pair[1].to_owned()))
    };
    text.lines().find_map(of)
}

/// The number in `SLURM_JOB_ID`.
///
/// # Errors
/// It is none; the text as it is shown.
pub fn number(text: &std::ffi::OsStr) -> Result<u32, String> {
    let number = text.to_str().and_then(|text| text.parse().ok());
    number
        .filter(|&number| number > 0)
        .ok_or_else(|| text.to_string_lossy().escape_debug().to_string())
}

/// The variables that describe an allocation, of those that a session was started with. Those of
/// another job's are none.
pub fn described(environment: &[(OsString, OsString)], job: u32) -> Vec<Vec<u8>> {
    let value = |name: &str| environment.iter().find(|(known, _)| known == name);
    let own = value("SLURM_JOB_ID").is_some_and(|(_, id)| number(id) == Ok(job));
    let plain = |value: &OsString| !value.as_bytes().iter().any(u8::is_ascii_control);
    let all = DESCRIBE
        .iter()
        .filter(|_| own)
        .filter_map(|name| value(name));
    all.filter(|(_, value)| plain(value))
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQUEUE: &str = "      100002      100001        1003     R        4711              1795259638         2           4   0 login1\n";

    fn job() -> Job {
        Job::read(SQUEUE, &JobId::Number(100_002)).unwrap()
    }

    #[test]
    fn a_line_of_squeue_is_read() {
        let job = job();
        assert_eq!((job.id, job.array, job.uid), (100_002, 100_001, 1003));
        assert_eq!((job.session, job.submitted), (4711, 1_795_259_638));
        assert_eq!((job.nodes, job.processors), (2, 4));
        assert_eq!(job.host, "login1");
        assert_eq!(Job::read(SQUEUE, &JobId::Number(100_001)), None);
        assert_eq!(
            Job::read("slurm_load_jobs error\n", &JobId::Number(1)),
            None
        );
    }

    #[test]
    fn another_users_job_and_one_that_is_over_are_of_no_use() {
        assert_eq!(job().unusable(1003), None);
        assert!(job().unusable(1004).unwrap().contains("another user's"));
        let over = Job {
            state: "CG".into(),
            ..job()
        };
        assert!(over.unusable(1003).unwrap().contains("does not run"));
    }

    #[test]
    fn a_job_is_of_the_terminal_session_in_which_it_was_asked_for() {
        let session = |id, since| Session { id, since };
        assert!(job().is_from(&session(4711, 1_795_259_000)));
        assert!(!job().is_from(&session(4712, 1_795_259_000)));
        let batch = Job {
            batch: true,
            ..job()
        };
        assert!(!batch.is_from(&session(4711, 1_795_259_000)));
        // A login of later that has the number of an earlier one.
        assert!(!job().is_from(&session(4711, 1_795_259_738)));
        // Outside of this pid namespace each session is 0.
        let unknown = Job {
            session: 0,
            ..job()
        };
        assert!(!unknown.is_from(&session(0, 0)));
    }

    #[test]
    fn a_process_of_the_job_is_in_slurmds_list() {
        let said = "PID      JOBID    STEPID   LOCALID GLOBALID\n447      100003   0        0       0\n\
                    442      100003   0        -       -\n-1       100003   extern   0       0\n";
        assert!(lists(said, 100_003, 442));
        assert!(!lists(said, 100_003, 443));
        assert!(!lists(said, 100_004, 442));
    }

    #[test]
    fn a_job_is_found_in_its_cgroup() {
        let new = "0::/system.slice/slurmstepd.scope/job_17/step_0/user/task_1\n";
        let old = "12:pids:/init.scope\n4:memory:/slurm_n1/uid_1000/job_18/step_batch\n";
        assert_eq!(of_cgroup(new), Some(JobId::Number(17)));
        assert_eq!(of_cgroup(old), Some(JobId::Number(18)));
        let sluid = "s4BNM8GN312R00";
        let newest =
            format!("8:pids:/\n0::/system.slice/n1_slurmstepd.scope/{sluid}/step_0/user\n");
        assert_eq!(of_cgroup(&newest), Some(JobId::Sluid(sluid.into())));
        assert_eq!(of_cgroup(&format!("0::/user.slice/{sluid}\n")), None);
        assert_eq!(of_cgroup("0::/slurmstepd.scope/system\n"), None);
        assert_eq!(of_cgroup("0::/user.slice/user-1000.slice\n"), None);
        assert_eq!(of_cgroup("0::/x/job_x/job_\n"), None);
    }

    #[test]
    fn what_describes_the_allocation_alone_is_taken() {
        let environment: Vec<(OsString, OsString)> = [
            ("SLURM_JOB_ID", "7"),
            ("SLURM_NTASKS", "2"),
            ("SLURM_JOB_NAME", "a\nb"),
            ("SLURM_TASK_PROLOG", "/tmp/x"),
            ("SLURM_WORKING_CLUSTER", "c:10.0.0.1:6817:9728:109"),
            ("SLURM_STEP_ID", "3"),
            ("PATH", "/bin"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .to_vec();
        let said = described(&environment, 7);
        assert_eq!(
            said,
            [b"SLURM_JOB_ID=7".to_vec(), b"SLURM_NTASKS=2".to_vec()]
        );
        assert!(described(&environment, 8).is_empty());
    }
}
