//! What was read of the records of jobs, as data. [`crate::slurm::records`] reads and writes them.

use std::collections::BTreeMap;

/// What is known of a record without reading it again.
#[derive(Clone, Debug)]
pub struct Known {
    /// A record that was written anew is another file.
    pub inode: u64,
    /// The id of the session that it belongs to.
    pub session: String,
    /// Its project directory, its real path.
    pub project: Vec<u8>,
}

/// The records that were read.
#[derive(Debug, Default)]
pub struct Cache {
    /// By the number of the job.
    pub jobs: BTreeMap<u32, Known>,
    /// The directory's time of change when it was read last, if nothing could have changed since.
    pub settled: Option<(i64, i64)>,
    /// Records that were added since old ones were looked for.
    pub added: u32,
}
