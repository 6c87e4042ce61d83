//! Commands that are refused as a whole.

use agent_sandbox_wire::command::Command;

use crate::refusal::Refusal;
use crate::slurm::options;

/// Why.
pub(super) fn reason(command: Command) -> Refusal {
    Refusal::listed(
        command,
        options::refused(command).unwrap_or(options::UNKNOWN),
    )
}
