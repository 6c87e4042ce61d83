//! Real commands that may get a job, as data: `sbatch` says its job's id, `srun` and `salloc` say it
//! to people only, and any of them may be ended before it can. [`crate::slurm::submitted`] finds the
//! jobs by these.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use crate::intent::Intent;

/// Jobs whose ids are kept to learn Slurm's name of this host from.
const MOST_SAID: usize = 64;

/// A real command that may get a job, or may have got one.
#[derive(Debug)]
pub struct Submitter {
    /// Its process id, which is Slurm's `alloc_sid` of the job.
    pub pid: u32,
    /// Whether it is `sbatch`.
    pub batch: bool,
    /// When it was started, in seconds since 1970-01-01 00:00 UTC.
    pub since: u64,
    /// When it ended, likewise.
    pub until: Option<u64>,
    /// How long after its end its job may come, in seconds: 0 if Slurm has it by then.
    pub late: u64,
    /// The record of the job, as it is to be written.
    pub record: Vec<u8>,
    /// The job, once it is known.
    pub job: Option<u32>,
    /// What was written before it was started, until the job has its record.
    pub intent: Option<Intent>,
}

/// All of a session's.
#[derive(Debug, Default)]
pub struct Submitters {
    next: u64,
    /// By a number that is never used again: process ids are.
    pub all: BTreeMap<u64, Submitter>,
    /// Intents of chaperons that are gone, by their names: when they were found first, in seconds since
    /// 1970-01-01 00:00 UTC.
    pub left: BTreeMap<OsString, u64>,
    /// The latest jobs whose ids a real command said itself.
    pub said: BTreeSet<u32>,
}

impl Submitters {
    /// Adds one, and gives its number.
    pub fn add(&mut self, submitter: Submitter) -> u64 {
        self.next += 1;
        self.all.insert(self.next, submitter);
        self.next
    }

    /// Keeps the id of a job that a real command said.
    pub fn say(&mut self, job: u32) {
        self.said.insert(job);
        if self.said.len() > MOST_SAID {
            self.said.pop_first();
        }
    }
}
