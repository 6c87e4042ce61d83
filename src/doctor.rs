//! `agent-sandbox doctor`: whether a session would start here, what stands in its way, and the fix.
//!
//! What can be tried is tried: sessions are started, with nothing in them. What was found is judged by
//! pure code, and shown by `report`.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it ends itself by the signal that it held"
)]

pub mod compare;
pub mod draft;
pub mod facts;
pub mod judge;
pub mod line;
pub mod lint;
pub mod lists;
mod look;
pub mod show;
pub mod table;

use anyhow::Result;

use crate::cli::Options;
use crate::env_vars;
use crate::failure::Failure;
use crate::sys::process;
use compare::Comparison;
use line::Examination;
use look::run::Held;

/// An error as its message and the ways out.
pub type Words = fn(&anyhow::Error) -> (String, Vec<String>);

/// Examines this node.
///
/// # Errors
/// This is the inside of a jail; nothing can be found out (the home directory, the executable).
pub fn examine(options: &Options, words: Words) -> Result<Examination> {
    refuse_inside()?;
    let mut held = Held::new()?;
    let facts = look::facts(options, &mut held, words);
    end_if_told(held);
    let node = nix::unistd::gethostname().unwrap_or_default();
    Ok(judge::examine(&facts?, node.to_string_lossy().into_owned()))
}

/// Has compute nodes examine themselves, and compares: those that are named, or one of each kind.
///
/// # Errors
/// This is the inside of a jail; Slurm does not say which nodes there are.
pub fn compare_nodes(options: &Options, named: &[String]) -> Result<Comparison> {
    refuse_inside()?;
    let mut held = Held::new()?;
    let answers = look::nodes::ask(options, named, &mut held);
    end_if_told(held);
    Ok(compare::compare(named, &answers?))
}

/// From inside it would examine the jail, and ask nodes by way of a chaperon.
fn refuse_inside() -> Result<()> {
    if std::env::var_os(env_vars::INSIDE).is_none() {
        return Ok(());
    }
    Err(Failure::new(
        "this is the inside of a jail (AGENT_SANDBOX is set), and doctor examines the outside",
    )
    .hint("run `agent-sandbox doctor` in a shell of your own")
    .into())
}

/// All that was started is over, and nothing is left: now the signal may do what it does.
fn end_if_told(mut held: Held) {
    if let Some(number) = held.caught() {
        process::end_by_signal(number);
    }
}
