//! The questions to Slurm that are on their way, as data. [`crate::slurm::query`] asks them.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::{Rc, Weak};

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::AbortHandle;

use crate::budget::Account;
use crate::refusal::Refusal;
use crate::variables::Variables;

/// Real commands that ask at the same time.
const MOST_AT_ONCE: usize = 8;

/// What a query said.
#[derive(Clone, Debug)]
pub struct Captured {
    /// How it ended.
    pub end: End,
    /// Its standard output.
    pub output: Vec<u8>,
    /// Its standard error.
    pub error: Vec<u8>,
    /// What both take of the session's memory, as long as they are held.
    pub account: Option<Rc<Account>>,
}

/// What is asked, and what makes two questions the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Query {
    /// The command that is asked.
    pub command: Command,
    /// Its arguments, written by the chaperon.
    pub arguments: Vec<OsString>,
    /// Variables beside the session's.
    pub environment: Variables,
    /// Whether it is only to be shown, so that an answer which another session just had will do.
    pub shared: bool,
}

/// How a command ended, and its standard error.
pub type Outcome = Result<(End, Rc<[u8]>), Refusal>;

/// What was said to a question so far.
#[derive(Default)]
pub struct Progress {
    /// Standard output, in parts.
    pub output: Vec<Rc<[u8]>>,
    /// Set when all was said.
    pub over: Option<Outcome>,
    /// What it takes of the session's memory, then.
    pub account: Option<Rc<Account>>,
}

/// A question that is asked for everybody who holds it; forgotten with the last of them.
pub struct RunningQuery {
    /// The answer, as it comes.
    pub progress: watch::Receiver<Progress>,
    /// The answer in one piece, for those who want it so.
    pub whole: OnceCell<Rc<Captured>>,
    /// What asks.
    pub task: AbortHandle,
}

impl Drop for RunningQuery {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The questions of a session.
pub struct QueryQueue {
    /// Stands between what Slurm prints: nobody who names a job knows it.
    pub mark: String,
    /// The arrays of tasks, by the numbers that tasks have of their own, as far as sacct was asked.
    pub arrays: RefCell<BTreeMap<u32, u32>>,
    /// Those that have not reached Slurm yet. Who asks the same later must not get an answer that
    /// is older than the question: `sbatch job && squeue` shows the job.
    pub waiting: RefCell<BTreeMap<Query, Weak<RunningQuery>>>,
    /// The same question is asked once at a time.
    pub lines: RefCell<BTreeMap<Query, Weak<Mutex<()>>>>,
    /// Room for those that are asked at the same time.
    pub room: Semaphore,
}

impl Default for QueryQueue {
    /// None yet.
    fn default() -> Self {
        Self {
            mark: new_mark(),
            arrays: RefCell::default(),
            waiting: RefCell::default(),
            lines: RefCell::default(),
            room: Semaphore::new(MOST_AT_ONCE),
        }
    }
}

/// A record separator and five random letters: short, for it is printed behind every column.
fn new_mark() -> String {
    let mut random = RandomState::new().build_hasher().finish();
    let mut mark = String::from("\x1e");
    for _ in 0..5 {
        // One of 64 characters from `0` on, without `%`, `,` and `:`, which formats are made of.
        let low = (random & 0x3f) as u8;
        mark.push(char::from(if low == 10 { b'p' } else { b'0' + low }));
        random >>= 6;
    }
    mark
}
