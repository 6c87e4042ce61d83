//! `agent-sandbox-filter`: what leads out of a jail's network and into it, and the ssh agent. Started by the launcher, not by people.

#![allow(clippy::disallowed_methods, reason = "effects: reads arguments")]

use std::process::ExitCode;

use agent_sandbox_chaperon::{forward, network, ssh_agent};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let numbers: Option<Vec<i32>> = arguments
        .iter()
        .skip(1)
        .map(|number| number.parse().ok())
        .collect();
    let verb = arguments.first().map(String::as_str);
    let done = match (verb, numbers.as_deref()) {
        (Some("serve"), Some(&[order, errors, life])) => network::filter(order, errors, life),
        (Some("forward"), Some(&[life])) => forward::forward(life),
        (Some("ssh-agent"), Some(&[order, errors, listen, life])) => {
            ssh_agent::serve(order, errors, listen, life)
        }
        _ => {
            eprintln!(
                "agent-sandbox-filter: started by agent-sandbox; it is no command of its own"
            );
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("agent-sandbox-filter: error: {error}");
            ExitCode::FAILURE
        }
    }
}
