//! The command line of `agent-sandbox-tracer`. Nothing but `std` and clap is used here: the manual page
//! is made from this very file.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Where the service's configuration is, if nobody says otherwise.
pub const CONFIG: &str = "/etc/agent-sandbox/tracer.toml";

/// Records what sessions and jobs of agent-sandbox do, with eBPF.
///
/// Runs in the foreground as root, or with CAP_BPF and CAP_PERFMON. Sessions ask it over its socket to be
/// traced; `agent-sandbox watch` and `agent-sandbox report` show what it has recorded.
#[derive(Debug, Parser)]
#[command(name = "agent-sandbox-tracer", version)]
pub struct Cli {
    /// What to do; without it: `run`.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Of all that people start: before its name or behind it.
    #[command(flatten)]
    pub options: Options,
}

/// What the program does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load the probes and serve until a signal ends it; probes, marks and denials stay in force
    Run,
    /// Load the probes beside those that are there, try them, say what can be seen and denied here, unload
    Check,
    /// Remove the probes of a tracer that does not run any more: nothing is recorded or denied after it
    Unpin,
    /// Print the node's name and the public key by which its marks of jobs are verified; makes the key if there is none
    Key,
    /// Started by the tracer itself: loads an object, pins it, ends
    #[command(hide = true)]
    Load(Load),
    /// Started by the tracer itself: does what the self-test wants to see
    #[command(hide = true)]
    Prove {
        /// The directory to do it in.
        directory: PathBuf,
    },
    /// Started by the tracer itself: a program that does nothing
    #[command(hide = true)]
    Nothing,
}

/// What wins over the configuration.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The configuration
    #[arg(long, global = true, value_name = "FILE", default_value = CONFIG)]
    pub config: PathBuf,
    /// The socket on which requests come
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The directory of the trails
    #[arg(long, global = true, value_name = "DIR")]
    pub records: Option<PathBuf>,
    /// The directory of the audit record
    #[arg(long, global = true, value_name = "DIR")]
    pub audit: Option<PathBuf>,
    /// The BPF file system below which everything is pinned
    #[arg(long, global = true, value_name = "DIR")]
    pub bpffs: Option<PathBuf>,
    /// The directory of what must outlive the tracer
    #[arg(long, global = true, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Which probes: the best that work here, or one kind alone
    #[arg(long, global = true, value_enum, value_name = "KIND")]
    pub object: Option<Object>,
    /// Log more: -v what begins and ends, -vv everything. Without it: AGENT_SANDBOX_LOG, such as `debug`
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Read the probes from this directory instead of the program itself
    #[arg(long, global = true, value_name = "DIR", hide = true)]
    pub objects: Option<PathBuf>,
}

/// Which probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Object {
    /// Trampolines where they work, else tracepoints
    Auto,
    /// fentry, fexit and LSM programs
    Trampolines,
    /// Tracepoints alone: work where trampolines are refused, see less, deny nothing
    Tracepoints,
}

/// What the loading child is told.
#[derive(Debug, Args)]
pub struct Load {
    /// Which object: `trampolines` or `tracepoints`.
    #[arg(long)]
    pub kind: String,
    /// Where everything is pinned.
    #[arg(long)]
    pub directory: PathBuf,
    /// The size of the ring buffer, in bytes.
    #[arg(long)]
    pub ring: u32,
    /// Whether programs of security hooks are loaded.
    #[arg(long)]
    pub lsm: bool,
}

/// The command line as data, for the manual page.
#[must_use]
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stand_on_either_side() {
        for words in [
            ["tracer", "--bpffs", "/b", "unpin"],
            ["tracer", "unpin", "--bpffs", "/b"],
        ] {
            let cli = Cli::try_parse_from(words).unwrap();
            assert!(matches!(cli.command, Some(Command::Unpin)), "{cli:?}");
            assert_eq!(cli.options.bpffs, Some("/b".into()), "{cli:?}");
        }
    }
}
