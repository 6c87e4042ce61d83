//! `agent-sandbox-filter`: started by the launcher, not by people.

#![allow(clippy::disallowed_methods, reason = "effects: reads arguments")]

use std::process::ExitCode;

use agent_sandbox_chaperon::network;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let number = |at: usize| arguments.get(at)?.to_str()?.parse().ok();
    let is_serve = arguments.len() == 4 && arguments[0] == "serve";
    let (true, Some(order), Some(errors), Some(life)) = (is_serve, number(1), number(2), number(3))
    else {
        eprintln!("agent-sandbox-filter: started by agent-sandbox; it is no command of its own");
        return ExitCode::from(2);
    };
    match network::filter(order, errors, life) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("agent-sandbox-filter: error: {error}");
            ExitCode::FAILURE
        }
    }
}
