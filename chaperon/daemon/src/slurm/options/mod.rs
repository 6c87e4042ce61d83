//! THE table of Slurm's options: names, arity, value, variable, verdict. It feeds the parser, the
//! canonical writer, `agent-sandbox explain --slurm` and the reference.
//!
//! Names, arity and variables are facts about Slurm 20.11 to 26.05: `src/common/slurm_opt.c` for
//! sbatch, salloc and srun, the `long_options` of each other command, and the variables that each
//! reads. Where versions differ in arity, the wider one stands here: the real command still
//! refuses what it does not know.

mod control;
mod queries;
mod row;
mod submit;

use agent_sandbox_wire::command::Command;

/// Whether an option takes a value, as `getopt_long(3)` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// It takes none.
    None,
    /// The value follows, after `=` or as the next word.
    Required,
    /// A value counts only after `=` (long) or in the same word (short).
    Optional,
}

/// What a value must look like. Every value is checked before it is written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No value.
    Flag,
    /// Printable text without control characters; goes through as it is, as one word.
    Text,
    /// Letters, digits and `_-.,:;+@%/*=[]()|&^#!~?` (no blanks, no control characters).
    Word,
    /// A [`Kind::Word`] without slashes: nothing that could be read as a path.
    Name,
    /// Node names in Slurm's syntax: letters, digits and `_-.,[]`. No slash: with one, Slurm reads
    /// a file of that name.
    Nodes,
    /// A whole number.
    Number,
    /// One of these words, in any case.
    OneOf(&'static [&'static str]),
    /// A path, any bytes but NUL. Never handed to Slurm.
    Path,
    /// Anything but NUL. Never handed to Slurm.
    Raw,
    /// Job ids in Slurm's syntax; checked against the scope.
    Jobs,
    /// Addresses for mail: the site's mail program gets them as an argument.
    Mail,
    /// A dependency in Slurm's syntax, without `expand`.
    Dependency,
    /// A duration in Slurm's syntax (`minutes`, `h:m:s`, `d-h`, …).
    Time,
    /// A format of times (`strftime(3)`) that stays on its line: no `%n`, no `%t`, no control
    /// characters. Slurm prints it between what users named.
    TimeFormat,
    /// A format of output columns: text, tabs and ends of lines; parsed by the command itself.
    Format,
}

/// What happens to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Checked and written anew for the real command.
    Pass,
    /// Carried out on this side of Slurm; the reason says how. Never handed to Slurm as it is.
    Ours(&'static str),
    /// Refused, with the reason (a clause that ends a sentence: "it would …").
    Refused(&'static str),
}

/// One option of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opt {
    /// Its long name, without dashes. Options that have only a short name have it here too.
    pub long: &'static str,
    /// Other long names for the same.
    pub aliases: &'static [&'static str],
    /// Its short name.
    pub short: Option<char>,
    /// Whether it takes a value.
    pub arity: Arity,
    /// What the value must look like.
    pub kind: Kind,
    /// The variable of the environment that stands for it.
    pub variable: Option<&'static str>,
    /// Other variables for the same; each loses to the ones behind it, and all to `variable`.
    pub other_variables: &'static [&'static str],
    /// Whether each time that it is given counts (`-vv`, `-j 1 -j 2`), not the last one alone.
    pub many: bool,
    /// What happens to it.
    pub verdict: Verdict,
}

/// The options of a command.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Whose.
    pub command: Command,
    /// The options, by long name.
    pub options: &'static [Opt],
    /// Variables of the environment that change what the command does and stand for no option.
    /// They are dropped; the reason says why.
    pub dropped: &'static [(&'static str, &'static str)],
    /// Variables of the environment that change how the command counts or prints and stand for no
    /// option. They are checked and go to the real command as variables.
    pub kept: &'static [(&'static str, Kind)],
    /// Whether options may stand behind operands (GNU permutation); srun, sbatch and salloc stop at
    /// the first operand.
    pub permutes: bool,
}

impl Table {
    /// The option of exactly this long name or alias.
    pub fn named(&self, long: &str) -> Option<&'static Opt> {
        self.options
            .iter()
            .find(|option| option.names().any(|name| name == long))
    }

    /// The option of this short name.
    pub fn short(&self, short: char) -> Option<&'static Opt> {
        self.options
            .iter()
            .find(|option| option.short == Some(short))
    }

    /// The options that a long name, whole or abbreviated, can mean, as `getopt_long(3)` has it: a
    /// whole name means its option, whatever else begins with it.
    pub fn meant_by(&self, name: &str) -> Vec<&'static Opt> {
        if let Some(option) = self.named(name) {
            return vec![option];
        }
        self.options
            .iter()
            .filter(|option| option.names().any(|long| long.starts_with(name)))
            .collect()
    }
}

impl Opt {
    /// Whether it has no long name, so that `long` is its short one.
    pub fn is_short_only(&self) -> bool {
        self.long.len() == 1
    }

    /// Its long names: the first one, then the aliases. None for what has only a short one.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        let first = (!self.is_short_only()).then_some(self.long);
        first.into_iter().chain(self.aliases.iter().copied())
    }

    /// How people write it: `--long`, or `-s` for what has only a short name.
    pub fn shown(&self) -> String {
        let dashes = if self.is_short_only() { "-" } else { "--" };
        format!("{dashes}{}", self.long)
    }

    /// The variables that stand for it, the weakest first.
    pub fn variables(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.other_variables.iter().copied().chain(self.variable)
    }
}

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
        | Command::Sgather => return None,
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
