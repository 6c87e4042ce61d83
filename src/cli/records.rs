//! The words of `sessions`, `metrics` and `log`: what is recorded of sessions.

use clap::Parser;

use super::Options;

/// Figures of this node in Prometheus's text format: sessions, requests to Slurm, hosts; for root those of all users
#[derive(Debug, Parser)]
#[command(name = "agent-sandbox metrics")]
pub(super) struct MetricsWords {
    /// For root: only those of this user, by name or number
    #[arg(long, value_name = "NAME")]
    pub(super) user: Option<String>,
}

/// The sessions that run on this node: yours, for root those of all users
#[derive(Debug, Parser)]
#[command(name = "agent-sandbox sessions")]
pub(super) struct SessionsWords {
    /// For root: only those of this user, by name or number
    #[arg(long, value_name = "NAME")]
    pub(super) user: Option<String>,
    #[command(flatten)]
    pub(super) options: Options,
}

/// What was asked of Slurm from inside jails, what Slurm said about jobs, and whom filtered networks led to; for root of all
/// users known on this node
#[derive(Debug, Parser)]
#[command(name = "agent-sandbox log")]
pub(super) struct LogWords {
    /// The job: what Slurm said about it, such as why its jail did not start
    #[arg(value_name = "JOBID")]
    pub(super) job: Option<String>,
    /// Which hosts sessions with a filtered network reached and by which rule, and which not, why, and what would open
    /// them; and logins by ssh with the user's ssh-agent
    #[arg(long, conflicts_with = "job")]
    pub(super) network: bool,
    /// Only what this session asked
    #[arg(long, value_name = "ID")]
    pub(super) session: Option<String>,
    /// For root: only what this user's sessions asked, by name or number
    #[arg(long, value_name = "NAME")]
    pub(super) user: Option<String>,
    #[command(flatten)]
    pub(super) options: Options,
}
