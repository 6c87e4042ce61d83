//! What the chaperon knows of its session.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::order::Order;
use tokio::sync::OnceCell;

use crate::audit::Audit;
use crate::refusal::Refusal;
use crate::slurm::limiter::Limiter;
use crate::slurm::query::Desk;
use crate::slurm::records::Cache;
use crate::spawn::{self, Start};

/// Variables, as name and value.
pub type Variables = Vec<(OsString, OsString)>;

/// One launch and the jobs that it submits, seen from outside the jail.
pub struct Session {
    /// What the launcher said.
    pub order: Order,
    /// The audit record.
    pub audit: Audit,
    /// How many queries reach Slurm.
    pub limiter: Limiter,
    /// Allocations that `salloc` made in this session, with the variables that describe each.
    pub allocations: RefCell<BTreeMap<u32, Variables>>,
    /// `srun` and `salloc` that may own an allocation, by pid, which is Slurm's `alloc_sid`; with
    /// the job's id once it is known.
    pub interactive: RefCell<BTreeMap<u32, Option<u32>>>,
    /// Records of jobs that were read.
    pub records: RefCell<Cache>,
    /// Held from the count of jobs to the record of the next one: a limit holds for requests at the
    /// same time, too.
    pub submitting: tokio::sync::Mutex<()>,
    /// Questions to Slurm that are on their way.
    pub desk: Desk,
    /// When the chaperon began, in seconds since 1970-01-01 00:00 UTC.
    pub started: u64,
    environment: Variables,
    cluster: OnceCell<String>,
}

/// Splits a `NAME=VALUE` entry; `None` without a name.
pub fn variable(entry: &[u8]) -> Option<(OsString, OsString)> {
    let at = entry.iter().position(|&byte| byte == b'=')?;
    let text = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    (at > 0).then(|| (text(&entry[..at]), text(&entry[at + 1..])))
}

impl Session {
    /// A session by the launcher's order.
    pub fn new(order: Order) -> Self {
        let environment = order
            .environment
            .iter()
            .filter_map(|entry| variable(entry))
            .collect();
        let directory = PathBuf::from(OsStr::from_bytes(&order.state)).join("audit");
        Self {
            audit: Audit::new(directory, order.seal.session.clone()),
            limiter: Limiter::new(order.limits.queries_per_minute),
            allocations: RefCell::default(),
            interactive: RefCell::default(),
            records: RefCell::default(),
            submitting: tokio::sync::Mutex::default(),
            desk: Desk::default(),
            started: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            environment,
            cluster: OnceCell::new(),
            order,
        }
    }

    /// The directory of records. No jail can write it.
    pub fn state(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.order.state))
    }

    /// The path of a real command.
    pub fn command(&self, wanted: Command) -> Option<&[u8]> {
        let mut all = self.order.commands.iter();
        all.find(|(command, _)| *command == wanted)
            .map(|(_, path)| path.as_slice())
    }

    /// The environment of every real command.
    pub fn environment(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.environment
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// What slurmstepd set, if this session runs in a job.
    pub fn job_variables(&self) -> Variables {
        let job = self.order.job.iter();
        job.flat_map(|job| &job.environment)
            .filter_map(|entry| variable(entry))
            .collect()
    }

    /// The cluster's name, asked for once.
    ///
    /// # Errors
    /// Slurm does not answer.
    pub async fn cluster(&self) -> Result<&str, Refusal> {
        let ask = || async {
            if let Some((_, name)) = self
                .job_variables()
                .iter()
                .find(|(name, _)| name == "SLURM_CLUSTER_NAME")
            {
                return sound(&name.to_string_lossy());
            }
            let arguments = ["show", "config"].map(OsString::from).to_vec();
            let said =
                spawn::capture(self, Start::query(Command::Scontrol, arguments), &[]).await?;
            let text = String::from_utf8_lossy(&said.output);
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("ClusterName"));
            match line.and_then(|rest| rest.split_once('=')) {
                Some((_, name)) => sound(name.trim()),
                None => Err(Refusal::mistake(format!(
                    "cannot learn the cluster's name: {}",
                    String::from_utf8_lossy(&said.error).trim()
                ))),
            }
        };
        self.cluster.get_or_try_init(ask).await.map(String::as_str)
    }
}

/// A cluster's name becomes the name of a directory (`slurm.conf(5)`: at most 40 characters of a
/// host name's kind).
fn sound(name: &str) -> Result<String, Refusal> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.starts_with('.') || name.len() > 255 || !name.chars().all(good) {
        return Err(Refusal::mistake("the cluster has no sound name"));
    }
    Ok(name.to_owned())
}
