//! What the jail has of Slurm, and where its parts stand inside.

use serde::{Deserialize, Serialize};

/// Where the shim's program stands inside; the names in `SHIMS` are links to it.
pub const PROGRAM: &str = "/run/agent-sandbox/shim";

/// Where the chaperon's program stands inside, for what it knows: `agent-sandbox explain --slurm` asks
/// its table there. It runs with the rights of whoever asks, and reaches nothing.
pub const CHAPERON_INSIDE: &str = "/run/agent-sandbox/chaperon";

/// What the jail has of Slurm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// The host has none.
    Absent,
    /// Its commands say that they do not work here.
    Off,
    /// Its commands ask the chaperon.
    On,
}
