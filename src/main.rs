//! The binary `agent-sandbox`; inside the jail, the same file is init.

#![allow(
    clippy::disallowed_methods,
    reason = "the one place that takes the command line from the process"
)]

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // The name alone decides; init itself makes sure that it is pid 1.
    if arguments
        .first()
        .is_some_and(|name| Path::new(name) == Path::new(agent_sandbox::plan::INIT))
    {
        agent_sandbox::init::main(&arguments[1..]);
    }
    // What Slurm calls on a compute node.
    let first = arguments.get(1).and_then(|word| word.to_str());
    ExitCode::from(match first {
        Some("job") => agent_sandbox::job::job(&arguments[2..]),
        Some("task") => agent_sandbox::job::task(&arguments[2..]),
        _ => agent_sandbox::report::call(&arguments),
    })
}
