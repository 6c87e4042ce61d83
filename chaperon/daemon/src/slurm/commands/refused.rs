//! Commands that are refused as a whole.

use agent_sandbox_wire::command::Command;

use crate::refusal::Refusal;
use crate::slurm::options;

/// Why.
pub(super) fn reason(command: Command) -> Refusal {
    match options::refused(command) {
        Some(reason) => Refusal::rule(format!("{command} is refused: {reason}")),
        None => Refusal::rule(format!("{command} is not available in the jail")),
    }
}
