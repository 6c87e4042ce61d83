//! The words of `budget`, `pending`, `approve` and `deny`: the hours of jobs, and jobs that wait for the user.

use clap::Parser;

use super::{Call, Options};

/// What jobs of your sessions used of their CPU-, GPU- and node-hours, and what is left; inside a jail also of that session
#[derive(Debug, Parser)]
#[command(name = "agent-sandbox budget")]
pub(super) struct BudgetWords {
    #[command(flatten)]
    options: Options,
}

/// Jobs of your sessions that wait for your approval (`[slurm.confirm]`), on all nodes
#[derive(Debug, Parser)]
#[command(name = "agent-sandbox pending")]
pub(super) struct PendingWords {
    #[command(flatten)]
    options: Options,
}

/// Let a job go that waits for your approval
#[derive(Debug, Parser)]
#[command(name = "agent-sandbox approve")]
pub(super) struct ApproveWords {
    /// The request, as `agent-sandbox pending` shows it
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    options: Options,
}

/// Refuse a job that waits for your approval
#[derive(Debug, Parser)]
#[command(name = "agent-sandbox deny")]
pub(super) struct DenyWords {
    /// The request, as `agent-sandbox pending` shows it
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    options: Options,
}

impl BudgetWords {
    pub(super) fn read(self, options: Options) -> Call {
        Call::Budget {
            options: options.and(self.options),
        }
    }
}

impl PendingWords {
    pub(super) fn read(self, options: Options) -> Call {
        Call::Pending {
            options: options.and(self.options),
        }
    }
}

impl ApproveWords {
    pub(super) fn read(self, options: Options) -> Call {
        Call::Decide {
            options: options.and(self.options),
            id: self.id,
            approve: true,
        }
    }
}

impl DenyWords {
    pub(super) fn read(self, options: Options) -> Call {
        Call::Decide {
            options: options.and(self.options),
            id: self.id,
            approve: false,
        }
    }
}
