//! The command line of `agent-sandbox-attest`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Where the public keys are, if nobody says otherwise.
pub const KEYS: &str = "/etc/agent-sandbox/mark.keys";

/// Verifies that a job's batch script enters the jail of agent-sandbox, and that a tracer of the site's marked it.
///
/// Slurm's job_submit.lua and Prolog call it: profiles/site/slurm.
#[derive(Debug, Parser)]
#[command(name = "agent-sandbox-attest", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Read a batch script from standard input, and print whether it is accepted
    ///
    /// One line on standard output: `accepted session=ID node=NAME time=SECONDS`, exit code 0, or `refused: WHY`,
    /// exit code 1.
    Verify(Verify),
}

/// What is demanded of a script.
#[derive(Debug, Args)]
pub struct Verify {
    /// The public keys: on each line a node's name, or `*`, `ed25519`, and the key
    #[arg(long, value_name = "FILE", default_value = KEYS)]
    pub keys: PathBuf,
    /// The launcher on the nodes, which must be root's there; may be given several times
    #[arg(long, value_name = "PATH", required = true)]
    pub launcher: Vec<String>,
    /// The cluster's name
    #[arg(long, value_name = "NAME")]
    pub cluster: String,
    /// The user as whom the job runs
    #[arg(long, value_name = "UID")]
    pub uid: u32,
    /// Accept a mark whose time to submit is over: the job is there already, and has waited
    #[arg(long)]
    pub submitted: bool,
}
