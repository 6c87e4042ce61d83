//! Stands in for Slurm's commands inside the jail: says to the chaperon how it was called, does what
//! the chaperon asks for with the rights of its caller, and ends as the real command does. It
//! decides nothing, and nobody need trust it.

#![deny(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "effects: the command line, the end of the process"
)]

mod call;
mod child;
mod conversation;
mod files;
mod link;
mod look;
mod signals;
mod streams;
mod sys;
mod trouble;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use agent_sandbox_wire::budget::CALL;
use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;

use crate::trouble::Trouble;

/// The exit code of a program that was called the wrong way.
const USAGE: i32 = 2;

fn main() {
    let mut arguments = std::env::args_os();
    let own = arguments.next().unwrap_or_default();
    let name = Path::new(&own).file_name().unwrap_or_default();
    let Some(name) = called(name.as_bytes()) else {
        misnamed().report("agent-sandbox-shim");
        std::process::exit(USAGE);
    };
    let end = run(name, arguments).unwrap_or_else(|trouble| {
        trouble.report(name);
        End::FAILURE
    });
    match end {
        End::Code(code) => std::process::exit(code),
        End::Signal(signal) => signals::die(signal),
    }
}

/// The name of one of Slurm's commands, or that under which `agent-sandbox budget` asks.
fn called(name: &[u8]) -> Option<&'static str> {
    let command = Command::named(name).map(Command::name);
    command.or_else(|| (name == CALL.as_bytes()).then_some(CALL))
}

fn run(name: &'static str, arguments: impl Iterator<Item = OsString>) -> Result<End, Trouble> {
    let mut link = link::Link::open(&call::socket())?;
    // Gathered while the chaperon wakes up.
    let call = call::gather(name, arguments);
    link.await_greeting()?;
    conversation::Conversation::begin(name, link, call)?.hold()
}

fn misnamed() -> Trouble {
    let names: Vec<&str> = Command::ALL.map(Command::name).to_vec();
    Trouble::new("this program stands in for Slurm's commands and is called by their names").hint(
        format!(
            "usage: NAME [ARGUMENT...], with one of the names {}",
            names.join(", ")
        ),
    )
}
