//! Launcher to the ssh agent of a session: its order, in a sealed memory file.

use agent_sandbox_ssh::Rules;
use serde::{Deserialize, Serialize};

/// What the agent is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SshOrder {
    /// The session's id.
    pub session: String,
    /// The directory of records. No jail can write it.
    pub state: Vec<u8>,
    /// The socket of the node's tracer, which keeps a record of root's; `None`: none stood by.
    pub tracer: Option<Vec<u8>>,
    /// The socket of the user's own agent.
    pub users: Vec<u8>,
    /// For whom is signed.
    pub rules: Rules,
    /// Whether it says on the session's standard error what it refuses.
    pub tells: bool,
}
