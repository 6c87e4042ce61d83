//! Slurm's commands, by the names under which the shim stands in for them.

use serde::{Deserialize, Serialize};

/// A command of Slurm's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Command {
    /// `sbatch(1)`
    Sbatch,
    /// `srun(1)`
    Srun,
    /// `salloc(1)`
    Salloc,
    /// `squeue(1)`
    Squeue,
    /// `scancel(1)`
    Scancel,
    /// `scontrol(1)`
    Scontrol,
    /// `sacct(1)`
    Sacct,
    /// `sacctmgr(1)`
    Sacctmgr,
    /// `sinfo(1)`
    Sinfo,
    /// `sstat(1)`
    Sstat,
    /// `sprio(1)`
    Sprio,
    /// `sshare(1)`
    Sshare,
    /// `sdiag(1)`
    Sdiag,
    /// `sattach(1)`
    Sattach,
    /// `sbcast(1)`
    Sbcast,
    /// `sreport(1)`
    Sreport,
    /// `strigger(1)`
    Strigger,
    /// `scrontab(1)`
    Scrontab,
    /// `scrun(1)`
    Scrun,
    /// `sview(1)`
    Sview,
    /// `sgather(1)`
    Sgather,
    /// `swait(1)`, since Slurm 26.05.
    Swait,
}

impl Command {
    /// Every command.
    pub const ALL: [Self; 22] = [
        Self::Sbatch,
        Self::Srun,
        Self::Salloc,
        Self::Squeue,
        Self::Scancel,
        Self::Scontrol,
        Self::Sacct,
        Self::Sacctmgr,
        Self::Sinfo,
        Self::Sstat,
        Self::Sprio,
        Self::Sshare,
        Self::Sdiag,
        Self::Sattach,
        Self::Sbcast,
        Self::Sreport,
        Self::Strigger,
        Self::Scrontab,
        Self::Scrun,
        Self::Sview,
        Self::Sgather,
        Self::Swait,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sbatch => "sbatch",
            Self::Srun => "srun",
            Self::Salloc => "salloc",
            Self::Squeue => "squeue",
            Self::Scancel => "scancel",
            Self::Scontrol => "scontrol",
            Self::Sacct => "sacct",
            Self::Sacctmgr => "sacctmgr",
            Self::Sinfo => "sinfo",
            Self::Sstat => "sstat",
            Self::Sprio => "sprio",
            Self::Sshare => "sshare",
            Self::Sdiag => "sdiag",
            Self::Sattach => "sattach",
            Self::Sbcast => "sbcast",
            Self::Sreport => "sreport",
            Self::Strigger => "strigger",
            Self::Scrontab => "scrontab",
            Self::Scrun => "scrun",
            Self::Sview => "sview",
            Self::Sgather => "sgather",
            Self::Swait => "swait",
        }
    }

    /// The command of this name.
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|command| command.name().as_bytes() == name)
    }
}

impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
