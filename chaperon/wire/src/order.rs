//! Launcher to chaperon: everything that the chaperon knows of its session, in a sealed memory file.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::bounds::Bounds;
use crate::budget::Budgets;
use crate::capsule::PolicySnapshot;
use crate::command::Command;

/// A session's Slurm, as the launcher found and the policy allows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// What goes into every capsule.
    pub snapshot: PolicySnapshot,
    /// Which jobs the session may see and touch.
    pub scope: Scope,
    /// What is shown of other jobs.
    pub queries: Queries,
    /// What the session may do with the allocation in which it was started.
    pub allocation: Allocation,
    /// How much there may be at the same time and in a while.
    pub limits: Limits,
    /// What one job may ask for.
    pub bounds: Bounds,
    /// How many hours jobs may take together, and which wait for approval.
    pub budgets: Budgets,
    /// The real commands, by absolute paths that only administrators can change.
    pub commands: Vec<(Command, Vec<u8>)>,
    /// `agent-sandbox`, by the path that it has on every node.
    pub agent_sandbox: Vec<u8>,
    /// Where answers of Slurm's are kept for all sessions; `None`: nowhere.
    pub query_cache: Option<QueryCache>,
    /// The directory of records: jobs, their own messages, the audit record. No jail can write it.
    pub state: Vec<u8>,
    /// The socket of the node's tracer, which keeps a record of root's; `None`: none stood by.
    pub tracer: Option<Vec<u8>>,
    /// The environment of the real commands, `NAME=VALUE`, all of it.
    pub environment: Vec<Vec<u8>>,
    /// The user's name.
    pub user: String,
    /// The user's numeric id; only processes of it may call.
    pub uid: u32,
    /// The home directory inside the jail.
    pub home: Vec<u8>,
    /// Places of the jail, for advice alone: whether a job would have what stands there.
    pub places: Vec<JailPath>,
    /// The job in which this session runs, on a compute node.
    pub job: Option<JobContext>,
    /// The socket of the node's tracer, if it traces the session: it may sign batch scripts.
    pub signer: Option<Vec<u8>>,
}

/// Who writes an order and who reads it come from one installation.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why an order cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// It begins with another version, or with none.
    #[error("the order of the launcher is not of version {VERSION} of agent-sandbox")]
    Version,
    /// It was cut off or changed.
    #[error("the order of the launcher makes no sense")]
    Malformed,
}

/// An order as the launcher writes it, behind its version: of the chaperon, of a filter, of an ssh agent.
///
/// # Errors
/// Memory is all that it can run out of.
pub fn encode(order: &impl Serialize) -> Result<Vec<u8>, OrderError> {
    postcard::to_allocvec(&(VERSION, order)).map_err(|_| OrderError::Malformed)
}

/// Reads one. Of another version nothing is read: what its bytes mean there is not known here.
///
/// # Errors
/// [`OrderError`]
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, OrderError> {
    match postcard::take_from_bytes::<&str>(bytes) {
        Ok((VERSION, rest)) => postcard::from_bytes(rest).map_err(|_| OrderError::Malformed),
        _ => Err(OrderError::Version),
    }
}

/// Where the chaperons of a user on a node find answers that Slurm gave one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryCache {
    /// The user's own directory on this node, which no jail can see.
    pub directory: Vec<u8>,
    /// How old an answer may be, in seconds.
    pub seconds: u32,
}

/// A place that the jail has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JailPath {
    /// Its path inside.
    pub at: Vec<u8>,
    /// Whether what stands in it is this jail's alone. A job's jail has the place, empty.
    pub own: bool,
}

/// The job around a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobContext {
    /// Its id (`SLURM_JOB_ID`).
    pub id: u32,
    /// What describes it, `NAME=VALUE`, before anything of the jail's: every `SLURM_*` variable that
    /// slurmstepd set; in the allocation in which a session was started, those that describe it.
    pub environment: Vec<Vec<u8>>,
}

/// `[slurm] scope`, narrowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Jobs that this session submitted, and jobs that these submitted.
    Session,
    /// Jobs of every session in the same project directory.
    Project,
    /// Every job of the user.
    User,
}

/// `[slurm] queries`: what queries show of jobs outside the scope, narrowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Queries {
    /// Nothing.
    None,
    /// That they exist, their state, size and times; no names of users, accounts, jobs or paths.
    Counts,
    /// Everything that Slurm shows.
    Names,
}

/// `[slurm] allocation`: what a session may do with the allocation in which it was started, narrowest
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Allocation {
    /// Nothing: it is a job like any other of the user's.
    Off,
    /// Query it, and start and cancel steps of its own in it.
    Steps,
    /// Cancel and change it as well.
    Control,
}

/// A number that is a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// The most; 0 stands for "no limit of ours".
    pub most: u32,
    /// Who set it, for refusals.
    pub source: String,
}

/// `[slurm.limits]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Queries a minute of a session; more wait. 0 stands for "no limit of ours".
    pub queries_per_minute: u32,
    /// Jobs of this session that are pending or running at the same time; an array counts its tasks.
    pub jobs: Limit,
    /// Submissions of all the user's sessions in a minute; more wait.
    pub submissions_per_minute: Limit,
    /// Submissions of all the user's sessions in 24 hours.
    pub submissions_per_day: Limit,
}

#[cfg(test)]
mod tests {
    use super::{Order, OrderError, VERSION, decode};

    #[test]
    fn an_order_of_another_version_is_not_read() {
        let read = |version: &str| {
            let bytes = postcard::to_allocvec(&(version, [0_u8; 32])).unwrap_or_default();
            decode::<Order>(&bytes)
        };
        for other in ["0.0.9", "", "0.1", "agent-sandbox"] {
            assert!(matches!(read(other), Err(OrderError::Version)), "{other}");
        }
        // Without one, as it was once.
        assert!(matches!(decode::<Order>(&[0]), Err(OrderError::Version)));
        assert!(matches!(decode::<Order>(&[]), Err(OrderError::Version)));
        assert!(!matches!(read(VERSION), Err(OrderError::Version)));
    }
}
