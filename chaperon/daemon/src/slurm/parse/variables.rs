//! Variables of the environment that stand for options.

use std::ffi::{OsStr, OsString};

use agent_sandbox_wire::command::Command;

use super::words::{accept, mistake, quoted};
use super::{Arity, GivenOption, Opt, Origin, Table, values};
use crate::refusal::Refusal;
use crate::slurm::options::{Release, Verdict};

/// How often a variable can raise an option that adds up (`SLURM_DEBUG=5`); Slurm has no more
/// levels than that.
const LEVELS: u64 = 9;

/// What the environment says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables {
    /// Options that variables stand for.
    pub given: Vec<GivenOption>,
    /// Variables that stand for no option and go to the real command, checked.
    pub kept: Vec<(OsString, OsString)>,
    /// Options that a variable switches off.
    pub off: Vec<&'static Opt>,
}

/// What a variable says about a flag.
enum Switch {
    /// It is given, so often.
    On(u64),
    /// It is taken back.
    Off,
    /// Slurm complains about the value and goes on.
    Nothing,
}

/// Variables that came later than their option, and with which release.
const LATER: ([&str; 3], Release) = (
    [
        "SBATCH_SEGMENT_SIZE",
        "SALLOC_SEGMENT_SIZE",
        "SRUN_SEGMENT_SIZE",
    ],
    Release::new(25, 5),
);

/// Reads the variables that the command would read. All others are left out.
///
/// # Errors
///
/// A variable that stands for a refused option, and a value that is not what the option takes.
pub fn variables(
    table: &Table,
    environment: &[(OsString, OsString)],
) -> Result<Variables, Refusal> {
    let get = |name: &str| {
        environment
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_os_str())
    };
    let mut all = Variables::default();
    let (later, since) = LATER;
    let unread = |name| later.contains(&name) && table.release.is_some_and(|own| own < since);
    for option in table.present() {
        for name in table.variables(option) {
            if let Some(value) = get(name).filter(|_| !unread(name)) {
                read(table.command, option, name, value, &mut all)?;
            }
        }
    }
    for (name, kind) in table.kept {
        if let Some(value) = get(name).filter(|value| !value.is_empty()) {
            values::check(*kind, value).map_err(|expected| {
                mistake(
                    Origin::Variable(name),
                    format!("invalid value {}: it takes {expected}", quoted(value)),
                )
            })?;
            all.kept.push((name.into(), value.to_owned()));
        }
    }
    Ok(all)
}

fn read(
    command: Command,
    option: &'static Opt,
    name: &'static str,
    value: &OsStr,
    all: &mut Variables,
) -> Result<(), Refusal> {
    let origin = Origin::Variable(name);
    if option.arity == Arity::None {
        match switch(command, option, value) {
            Switch::On(times) => {
                for _ in 0..times {
                    all.given.push(accept(option, None, origin)?);
                }
            }
            Switch::Off => {
                all.given.retain(|given| given.option != option);
                all.off.push(option);
            }
            Switch::Nothing => {}
        }
    } else if value.is_empty() {
        match (option.arity, option.verdict) {
            // An empty value is no value, as in slurm_opt.c.
            (Arity::Optional, _) => all.given.push(accept(option, None, origin)?),
            // It asks for nothing, so there is nothing to refuse.
            (_, Verdict::Refused(_)) => {}
            _ => all.given.push(accept(option, Some(value), origin)?),
        }
    } else {
        all.given.push(accept(option, Some(value), origin)?);
    }
    Ok(())
}

/// What a variable says about a flag: each family of commands has its own way.
fn switch(command: Command, option: &Opt, value: &OsStr) -> Switch {
    let text = value.to_string_lossy();
    let is = |word: &str| text.eq_ignore_ascii_case(word);
    match command {
        Command::Sbatch | Command::Salloc | Command::Srun => match text.parse::<i64>() {
            _ if text.is_empty() || is("yes") => Switch::On(1),
            Ok(0) | Err(_) => Switch::Off,
            Ok(level) if option.many => Switch::On(level.unsigned_abs().min(LEVELS)),
            Ok(_) => Switch::On(1),
        },
        // These three are on when they are there at all.
        Command::Scancel if !matches!(option.long, "ctld" | "cron" | "hurry") => {
            if is("true") || is("t") {
                Switch::On(1)
            } else if is("false") || is("f") {
                Switch::Off
            } else {
                Switch::Nothing
            }
        }
        _ => Switch::On(1),
    }
}
