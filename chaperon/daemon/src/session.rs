//! What the chaperon knows of its session.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::order::Order;
use tokio::sync::OnceCell;

use crate::audit::Audit;
use crate::budget::Budget;
use crate::cache::Cache;
use crate::desk::Desk;
use crate::limiter::Limiter;
use crate::submitters::Submitters;
use crate::variables::{Variables, variable};

/// One launch and the jobs that it submits, seen from outside the jail.
pub struct Session {
    /// What the launcher said.
    pub order: Order,
    /// The audit record.
    pub audit: Audit,
    /// The memory that requests may hold.
    pub requests: Budget,
    /// The memory that answers of Slurm's may hold.
    pub answers: Budget,
    /// How many queries reach Slurm.
    pub limiter: Limiter,
    /// Allocations that `salloc` made in this session, with the variables that describe each.
    pub allocations: RefCell<BTreeMap<u32, Variables>>,
    /// Real commands that may get a job which they do not say.
    pub submitters: RefCell<Submitters>,
    /// Records of jobs that were read.
    pub records: RefCell<Cache>,
    /// Held from the count of jobs to the record of the next one: a limit holds for requests at the
    /// same time, too.
    pub submitting: tokio::sync::Mutex<()>,
    /// Questions to Slurm that are on their way.
    pub desk: Desk,
    /// The cluster's name, once it is known. [`crate::slurm::cluster::name`] asks for it.
    pub cluster: OnceCell<String>,
    environment: Variables,
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
            requests: Budget::of_requests(),
            answers: Budget::of_answers(),
            limiter: Limiter::new(order.limits.queries_per_minute),
            allocations: RefCell::default(),
            submitters: RefCell::default(),
            records: RefCell::default(),
            submitting: tokio::sync::Mutex::default(),
            desk: Desk::default(),
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
}
