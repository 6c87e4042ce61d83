//! The program that verifies marks of jobs.

#![deny(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads a script and the site's keys, and the clock"
)]

use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, SystemTime};

use agent_sandbox_attest::cli::{Cli, Command, Verify};
use agent_sandbox_attest::keys::Keys;
use agent_sandbox_attest::verify::{self, Demands};
use anyhow::{Context as _, Result, ensure};
use clap::Parser as _;

/// A script is never longer, in bytes (`max_script_size`, `slurm.conf(5)`, is 4 MiB by default).
const LONGEST: u64 = 64 << 20;

/// Slurm's controller holds its locks while it waits. Some hundred times what a script of 4 MiB takes.
const PATIENCE: Duration = Duration::from_secs(2);

/// It was judged, and is refused.
const REFUSED: u8 = 1;
/// It could not be judged.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    let Command::Verify(asked) = Cli::parse().command;
    // Whoever calls reads one line, also where nothing could be judged.
    let judged = read_script().and_then(|script| {
        thread::spawn(give_up);
        judge(&asked, &script)
    });
    let (line, code) = match judged {
        Ok(Ok(line)) => (format!("accepted {line}"), 0),
        Ok(Err(refused)) => (format!("refused: {refused}"), REFUSED),
        Err(error) => (format!("refused: it cannot be verified: {error:#}"), FAILED),
    };
    match writeln!(io::stdout(), "{line}") {
        Ok(()) => ExitCode::from(code),
        Err(_) => ExitCode::from(FAILED),
    }
}

/// Ends the program with a refusal where no answer comes: a file of the site's that hangs. Not while the script is
/// written to it: whoever writes into a pipe that nobody reads any more gets a signal.
fn give_up() {
    thread::sleep(PATIENCE);
    let seconds = PATIENCE.as_secs();
    // Whether or not it can be written: no answer is a refusal, too.
    let _ = writeln!(
        io::stdout(),
        "refused: it cannot be verified: no answer within {seconds} seconds"
    );
    std::process::exit(FAILED.into());
}

fn read_script() -> Result<Vec<u8>> {
    let mut script = Vec::new();
    // All of it, also if it is refused then: who writes into a pipe that nobody reads any more gets a signal.
    let mut input = io::stdin().lock();
    input
        .by_ref()
        .take(LONGEST + 1)
        .read_to_end(&mut script)
        .context("cannot read the script")?;
    io::copy(&mut input, &mut io::sink()).context("cannot read the script")?;
    ensure!(
        script.len() as u64 <= LONGEST,
        "the script is longer than {LONGEST} bytes"
    );
    Ok(script)
}

fn judge(asked: &Verify, script: &[u8]) -> Result<Result<String, verify::Refused>> {
    let name = asked.keys.display();
    let text = std::fs::read_to_string(&asked.keys)
        .with_context(|| format!("cannot read the keys `{name}`"))?;
    let keys = Keys::parse(&text).with_context(|| format!("`{name}`"))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let demands = Demands {
        keys: &keys,
        launchers: &asked.launcher,
        cluster: &asked.cluster,
        uid: asked.uid,
        now: (!asked.submitted).then_some(now.as_secs()),
    };
    Ok(verify::verify(script, &demands).map(|claim| {
        format!(
            "session={} node={} time={}",
            claim.session, claim.node, claim.time
        )
    }))
}
