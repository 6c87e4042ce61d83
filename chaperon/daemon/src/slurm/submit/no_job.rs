//! What sbatch, srun and salloc answer without making any job.

use std::ffi::OsString;

use agent_sandbox_wire::message::End;

use crate::refusal::Refusal;
use crate::slurm::parse::Parsed;
use crate::slurm::request::Context;
use crate::spawn::{self, Start, Way};

/// Options that are answered by the real command without any job, and end it.
const ANSWERED: [&str; 3] = ["help", "usage", "version"];

/// Runs the real command for `--help`, `--usage` and `--version`; `None` if none was asked for.
///
/// # Errors
/// It cannot be started.
pub(super) async fn answered(
    context: &mut Context<'_>,
    parsed: &Parsed,
) -> Result<Option<End>, Refusal> {
    for long in ANSWERED {
        if parsed.has(long) {
            let words = vec![format!("--{long}").into()];
            return run(context, words).await.map(Some);
        }
    }
    Ok(None)
}

/// Runs the real command with words that start no job, on the shim's own streams.
///
/// # Errors
/// It cannot be started.
pub(super) async fn run(context: &mut Context<'_>, words: Vec<OsString>) -> Result<End, Refusal> {
    let [_, output, error] = context.take_streams()?;
    let start = Start {
        command: context.request.command,
        arguments: words,
        environment: Vec::new(),
        umask: context.request.umask,
        input: Way::Null,
        output: Way::Passed(output),
        error: Way::Passed(error),
        kept: Vec::new(),
        changes: false,
    };
    let mut running = spawn::start(&context.session, start)?;
    Ok(running.attend(context.conn).await)
}
