//! What the chaperon knows of its session.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::order::{Allocation, Order};
use tokio::sync::OnceCell;

use crate::audit::Audit;
use crate::budget::Budget;
use crate::cache::Cache;
use crate::limiter::Limiter;
use crate::query_cache::QueryCache;
use crate::query_queue::QueryQueue;
use crate::submitters::Submitters;
use crate::terminal;
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
    /// Process ids of real `srun` commands that run steps in a job that there was.
    pub steps: RefCell<BTreeSet<u32>>,
    /// Real commands that may get a job which they do not say.
    pub submitters: RefCell<Submitters>,
    /// Records of jobs that were read.
    pub records: RefCell<Cache>,
    /// Held while the jobs are counted. It keeps the order; the lock is a file's
    /// ([`crate::slurm::queue`]).
    pub submitting: tokio::sync::Mutex<()>,
    /// Held while jobs that are there are judged and changed.
    pub changing: tokio::sync::Mutex<()>,
    /// Questions to Slurm that are on their way.
    pub queries: QueryQueue,
    /// Answers that the user's sessions share.
    pub query_cache: Rc<QueryCache>,
    /// The cluster's name, once it is known. [`crate::slurm::cluster::name`] asks for it.
    pub cluster: OnceCell<String>,
    /// What the node's Slurm prints of its version, once it is known. [`crate::slurm::cluster::release`] asks for it.
    pub version: OnceCell<Vec<u8>>,
    environment: Variables,
    /// The session's standard error; none: nobody is told.
    errors: Option<OwnedFd>,
}

impl Session {
    /// A session by the launcher's order.
    pub fn new(order: Order) -> Self {
        let environment = order
            .environment
            .iter()
            .filter_map(|entry| variable(entry))
            .collect();
        let state = PathBuf::from(OsStr::from_bytes(&order.state));
        let directory = state.join("audit");
        let id = &order.snapshot.session;
        let sound = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let queries = QueryQueue::default();
        let query_cache = QueryCache::new(order.query_cache.as_ref(), order.uid, &queries.mark);
        let pace = paces(&state).join(if sound { id } else { "other" });
        Self {
            audit: Audit::new(directory, order.snapshot.session.clone())
                .handed_to(order.tracer.as_deref()),
            requests: Budget::of_requests(),
            answers: Budget::of_answers(),
            limiter: Limiter::new(order.limits.queries_per_minute, pace),
            allocations: RefCell::default(),
            steps: RefCell::default(),
            submitters: RefCell::default(),
            records: RefCell::default(),
            submitting: tokio::sync::Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            queries,
            query_cache: Rc::new(query_cache),
            environment,
            cluster: OnceCell::new(),
            version: OnceCell::new(),
            errors: None,
            order,
        }
    }

    /// The same, which says on this standard error what waits for the user.
    #[must_use]
    pub fn telling(self, errors: OwnedFd) -> Self {
        Self {
            errors: Some(errors),
            ..self
        }
    }

    /// Tells the user in front of the terminal that something waits for them: a line and the bell.
    pub fn tell(&self, text: &str) {
        if let Some(errors) = &self.errors {
            terminal::ring(errors);
            terminal::say(errors, text, None);
        }
    }

    /// The directory of records. No jail can write it.
    pub fn state(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.order.state))
    }

    /// Whether a number names the allocation in which the session was started, and the session may not
    /// cancel or change that.
    pub fn protects(&self, job: u32) -> bool {
        let allocation = &self.order.snapshot.allocation;
        // The number of an array stands for all of its tasks, of which one is the allocation.
        let own = allocation.first() == Some(&job) && self.order.allocation == Allocation::Control;
        allocation.contains(&job) && !own
    }

    /// The directory of the paces of sessions.
    pub fn paces(&self) -> PathBuf {
        paces(self.state())
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

fn paces(state: &Path) -> PathBuf {
    state.join("slurm").join("paces")
}
