//! The binary `agent-sandbox`; inside the jail, the same file is init.

#![allow(
    clippy::disallowed_methods,
    reason = "the one place that takes the command line from the process"
)]

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use agent_sandbox::{init, job, plan, report};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // The name alone decides; init itself makes sure that it is pid 1.
    if arguments
        .first()
        .is_some_and(|name| Path::new(name) == Path::new(plan::INIT))
    {
        init::main(&arguments[1..]);
    }
    // What git starts inside in place of ssh.
    if let Some((_, rest)) = arguments
        .split_first()
        .filter(|(name, _)| Path::new(name).file_name() == Path::new(plan::GIT_SSH).file_name())
    {
        return ExitCode::from(report::git_ssh::call(rest));
    }
    // What Slurm calls on a compute node.
    let first = arguments.get(1).and_then(|word| word.to_str());
    ExitCode::from(match first {
        Some("job") => job::job(&arguments[2..]),
        Some("task") => job::task(&arguments[2..]),
        _ => report::call(&arguments),
    })
}
