//! THE table of Slurm's options: names, arity, value, variable, verdict. It feeds the parser, the
//! canonical writer, `agent-sandbox explain --slurm` and the reference.
//!
//! Names, arity and variables are facts about Slurm 20.11 to 26.05: `src/common/slurm_opt.c` for
//! sbatch, salloc and srun, the `long_options` of each other command, and the variables that each
//! reads. A row says which releases have it: an abbreviation means what the Slurm that is there has, and a
//! variable stands for an option that it has. Where releases differ in arity, the wider one stands here. What this Slurm
//! does not know, the real command refuses.

mod control;
mod option;
mod queries;
mod release;
mod row;
mod shared;
mod submit;

use agent_sandbox_wire::command::Command;

pub use self::option::{Arity, Kind, Opt, Table, Verdict};
pub use self::release::{KNOWS_B, Release};

/// The options of a command; none for a command that is refused as a whole.
pub fn table(command: Command) -> Option<&'static Table> {
    Some(match command {
        Command::Sbatch => &submit::SBATCH,
        Command::Salloc => &submit::SALLOC,
        Command::Srun => &submit::SRUN,
        Command::Squeue => &queries::SQUEUE,
        Command::Sinfo => &queries::SINFO,
        Command::Sacct => &queries::SACCT,
        Command::Sstat => &queries::SSTAT,
        Command::Sprio => &queries::SPRIO,
        Command::Sshare => &queries::SSHARE,
        Command::Sdiag => &queries::SDIAG,
        Command::Scancel => &control::SCANCEL,
        Command::Scontrol => &control::SCONTROL,
        Command::Sacctmgr => &control::SACCTMGR,
        Command::Sattach
        | Command::Sbcast
        | Command::Sreport
        | Command::Strigger
        | Command::Scrontab
        | Command::Scrun
        | Command::Sview
        | Command::Sgather
        | Command::Swait => return None,
    })
}

/// Why a command is refused that has no table and no reason of its own.
pub const UNKNOWN: &str = "it is not known here; the user can run it outside the jail";

/// Why a command is refused as a whole: a clause that says why and what to do instead.
pub fn refused(command: Command) -> Option<&'static str> {
    Some(match command {
        Command::Sattach => {
            "it would reach steps that were started outside of the jail; have the step write to a \
             file with srun --output and read that"
        }
        Command::Sbcast => {
            "it would write files on the nodes outside the jail; copy them in the job: srun \
             --ntasks-per-node=1 cp FILE /tmp"
        }
        Command::Sgather => {
            "it would read files on the nodes outside the jail; copy them in the job, with srun"
        }
        Command::Swait => {
            "it would ask Slurm past the chaperon; `agent-sandbox wait JOBID` returns when jobs end"
        }
        Command::Sreport => "it shows what other users used; ask for your own jobs with sacct",
        Command::Strigger => {
            "it would run a program outside the jail when something happens; poll with squeue or \
             use sbatch --dependency"
        }
        Command::Scrontab => {
            "it would run commands later, outside the jail; submit jobs with sbatch --begin"
        }
        Command::Scrun => "it would start containers outside the jail; use srun",
        Command::Sview => {
            "it is a window onto all jobs, with buttons that change them; use squeue and sinfo"
        }
        Command::Sbatch
        | Command::Srun
        | Command::Salloc
        | Command::Squeue
        | Command::Scancel
        | Command::Scontrol
        | Command::Sacct
        | Command::Sacctmgr
        | Command::Sinfo
        | Command::Sstat
        | Command::Sprio
        | Command::Sshare
        | Command::Sdiag => return None,
    })
}

#[cfg(test)]
mod invariants;
