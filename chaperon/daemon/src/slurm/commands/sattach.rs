//! sattach: the streams of a step, on the shim's own.

use std::ffi::OsString;
use std::rc::Rc;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;

use super::Context;
use crate::refusal::Refusal;
use crate::slurm::ids::{self, Selector};
use crate::slurm::parse::{parse, written};
use crate::slurm::{records, scope, submission};
use crate::spawn::{self, Start, Way};

/// What sattach says about its operand.
const USAGE: &str = "\nUsage: sattach [options] <jobid.stepid>";

/// Carries out sattach.
///
/// # Errors
/// The step is none of the session's.
pub(super) async fn run(context: &mut Context<'_>) -> Result<End, Refusal> {
    let request = &context.request;
    let parsed = parse(Command::Sattach, &request.arguments, &request.environment)?;
    if let Some(end) = submission::answered(context, &parsed).await? {
        return Ok(end);
    }
    submission::tell_notes(context, &parsed).await;
    let [operand] = &parsed.operands[..] else {
        return Err(Refusal::mistake(format!("too many parameters{USAGE}")));
    };
    let step = match &ids::parse_list(operand)?[..] {
        [step] if step.is_step() => step.clone(),
        _ => {
            return Err(Refusal::mistake(format!(
                "Failed to parse stepid from command line options{USAGE}"
            )));
        }
    };
    let session = Rc::clone(&context.session);
    let selectors = std::slice::from_ref(&step);
    match submission::patiently(context.conn, scope::check(&session, selectors)).await {
        Ok(verdict) => verdict?,
        Err(end) => return Ok(end),
    }
    jailed(context, &step).await?;
    context.entry.jobs.push(step.job);

    let written = written(Command::Sattach, &parsed.given);
    let mut words = written.words;
    words.push("--".into());
    words.push(OsString::from(step.to_string()));
    let mut variables = written.variables;
    variables.extend(parsed.kept.iter().cloned());
    let [input, output, error] = submission::streams(context)?;
    let wish = Start {
        command: Command::Sattach,
        arguments: words,
        environment: variables,
        umask: context.request.umask,
        input: Way::Passed(input),
        output: Way::Passed(output),
        error: Way::Passed(error),
        kept: Vec::new(),
    };
    let mut running = spawn::start(&session, wish)?;
    Ok(running.attend(context.conn).await)
}

/// Makes sure that the step's tasks are in a jail: what is typed reaches them, and a shell that the
/// user started elsewhere would obey.
async fn jailed(context: &Context<'_>, step: &Selector) -> Result<(), Refusal> {
    let session = &context.session;
    let own = session
        .order
        .job
        .as_ref()
        .is_some_and(|job| job.id == step.job);
    if own || records::find(session, step.job).await.is_some() {
        return Ok(());
    }
    Err(Refusal::rule(format!(
        "job {} was not submitted from a jail: what you type would reach programs outside",
        step.job
    ))
    .hint("attach to it from a shell outside the jail"))
}
