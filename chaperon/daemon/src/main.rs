//! `agent-sandbox-chaperon`: started by the launcher, not by people.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads arguments and environment"
)]

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use agent_sandbox_chaperon::server;
use agent_sandbox_chaperon::slurm::errand;
use agent_sandbox_chaperon::slurm::explain::explain;
use agent_sandbox_wire::errand::{Errand, LONGEST_ERRAND};
use agent_sandbox_wire::explain::{LONGEST_QUESTION, Question};

const USAGE: &str =
    "agent-sandbox-chaperon: started by agent-sandbox; it is no command of its own\n";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    match words[..] {
        ["serve", order, errors, listen, life] => {
            let numbers = [order, errors, listen, life].map(|text| text.parse().ok());
            let [Some(order), Some(errors), Some(listen), Some(life)] = numbers else {
                eprint!("{USAGE}");
                return ExitCode::from(2);
            };
            match server::serve(order, errors, listen, life) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("agent-sandbox-chaperon: error: {error}");
                    ExitCode::FAILURE
                }
            }
        }
        ["explain"] => answer(),
        ["errand"] => run_errand(),
        ["hold"] => hold(),
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Answers a question about a command line of Slurm's, which is on standard input.
fn answer() -> ExitCode {
    let mut text = Vec::new();
    let read = std::io::stdin()
        .take(LONGEST_QUESTION)
        .read_to_end(&mut text)
        .map_err(|error| error.to_string());
    let question = read
        .and_then(|_| postcard::from_bytes::<Question>(&text).map_err(|error| error.to_string()));
    match question {
        Ok(question) => {
            // A reader that closed the pipe has seen enough.
            let _ = std::io::stdout().write_all(explain(&question).as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("agent-sandbox-chaperon: error: cannot read the question: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Does what `agent-sandbox budget` and the like ask for, on standard input.
fn run_errand() -> ExitCode {
    let mut text = Vec::new();
    let read = std::io::stdin()
        .take(LONGEST_ERRAND)
        .read_to_end(&mut text)
        .map_err(|error| error.to_string());
    let errand =
        read.and_then(|_| postcard::from_bytes::<Errand>(&text).map_err(|error| error.to_string()));
    let done = errand
        .map_err(|error| (format!("cannot read the errand: {error}"), Vec::new()))
        .and_then(|errand| {
            let done = errand::run(errand);
            done.map_err(|refusal| (refusal.message, refusal.hints))
        });
    match done {
        Ok(text) => {
            // A reader that closed the pipe has seen enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err((message, hints)) => {
            // As the launcher says it, for which this is done.
            eprintln!("error: {message}");
            for hint in hints {
                eprintln!("hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Runs as the command of the real `salloc`: tells the chaperon the environment of the allocation
/// (entries that end in NUL, then one more NUL) and keeps it until the chaperon says with which
/// code to end, or is gone.
fn hold() -> ExitCode {
    let mut text = Vec::new();
    for (name, value) in std::env::vars_os() {
        text.extend_from_slice(name.as_bytes());
        text.push(b'=');
        text.extend_from_slice(value.as_bytes());
        text.push(0);
    }
    text.push(0);
    let mut output = std::io::stdout();
    if output
        .write_all(&text)
        .and_then(|()| output.flush())
        .is_err()
    {
        return ExitCode::FAILURE;
    }
    let mut code = [1];
    match std::io::stdin().read_exact(&mut code) {
        Ok(()) => ExitCode::from(code[0]),
        Err(_) => ExitCode::FAILURE,
    }
}
