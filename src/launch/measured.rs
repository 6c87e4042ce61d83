//! What is known of a command when it is over.

use std::time::Duration;

use super::cgroup::Taken;
use crate::sys::process::Usage;

/// What the supervisor measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// How long the command ran; `None`: it was not started.
    pub ran: Option<Duration>,
    /// What the process below the launcher used, with all for which somebody in the jail waited.
    pub spent: Option<Usage>,
    /// What its cgroup took, of a jail that has one.
    pub taken: Option<Taken>,
    /// Whether the node's tracer recorded it.
    pub traced: bool,
}
