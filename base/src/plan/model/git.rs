//! What a mediator is told of git.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The configuration of a git repository, read-only inside, into which a mediator carries over what runs
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitConfig {
    /// Its real path on the host.
    pub at: Vec<u8>,
    /// Device and inode that must be found there.
    pub id: (u64, u64),
}

impl GitConfig {
    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.at))
    }
}
