//! `agent-sandbox-trail`: started by `agent-sandbox watch`, `report` and `trace`, not by people.

#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "effects: takes the arguments from the process"
)]

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use agent_sandbox_events::ask::{Ask, VERSION, What};
use agent_sandbox_trail::fault::Fault;
use agent_sandbox_trail::trace::held::{self, HELD};
use agent_sandbox_trail::{report, trace, watch};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match call(&arguments) {
        Ok(code) => ExitCode::from(code),
        Err(fault) => {
            // There is nowhere left to report a closed standard error to.
            let _ = write!(io::stderr(), "{fault}");
            ExitCode::from(fault.code)
        }
    }
}

fn call(arguments: &[OsString]) -> Result<u8, Fault> {
    let Some((first, words)) = arguments.split_first() else {
        return Err(no_command());
    };
    if first == HELD {
        return held::wait(words);
    }
    let ask: Ask = first
        .to_str()
        .and_then(|text| serde_json::from_str(text).ok())
        .ok_or_else(no_command)?;
    if ask.version != VERSION {
        return Err(
            Fault::new("agent-sandbox and agent-sandbox-trail are of different versions")
                .hint("install agent-sandbox again with all of its programs"),
        );
    }
    match &ask.what {
        What::Watch { which } => watch::watch(&ask, which.as_deref()),
        What::Report { which, markdown } => {
            report::write::report(&ask, which.as_deref(), *markdown)
        }
        What::Trace(what) => trace::trace(&ask, what, words),
    }
}

fn no_command() -> Fault {
    Fault::new("agent-sandbox-trail is started by agent-sandbox and is no command of its own")
        .hint("use `agent-sandbox watch`, `agent-sandbox report` or `agent-sandbox trace`")
}
