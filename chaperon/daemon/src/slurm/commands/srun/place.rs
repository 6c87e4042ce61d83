//! Where an srun runs: in a job, as a step of it, or in an allocation of its own.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use agent_sandbox_wire::message::End;

use super::super::Context;
use super::number;
use crate::refusal::Refusal;
use crate::slurm::ids;
use crate::slurm::options;
use crate::slurm::parse::{arguments, mistaken};
use crate::slurm::{scope, submission};
use crate::variables::Variables;

/// Variables with the id of the job in which a shell runs, the one that counts last.
const JOB: [&str; 2] = ["SLURM_JOBID", "SLURM_JOB_ID"];

/// A place.
#[derive(Debug, Default)]
pub(super) struct Place {
    job: Option<u32>,
    /// What describes the job, said by Slurm and never by the jail.
    pub variables: Variables,
}

impl Place {
    /// The job; none for an allocation that is to be made.
    pub(super) fn job(&self) -> Option<u32> {
        self.job
    }

    /// A number in the job's own variables.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        let mut found = self.variables.iter().filter(|(known, _)| known == name);
        number(&found.next()?.1)
    }

    /// The shell's variables without those that say what the job's say anyway.
    pub(super) fn without_its_own(&self, environment: &Variables) -> Variables {
        let mut all = environment.clone();
        all.retain(|variable| !self.variables.contains(variable));
        all
    }
}

/// Finds out.
///
/// # Errors
/// The job is none of the session's.
pub(super) async fn of(context: &mut Context<'_>) -> Result<Result<Place, End>, Refusal> {
    let request = &context.request;
    let table = options::table(request.command).ok_or_else(|| Refusal::mistake("no table"))?;
    let argued = arguments(table, &request.arguments)
        .map_err(|refusal| mistaken(request.command, refusal))?;
    let wanted: Option<OsString> = match argued.value("jobid") {
        Some(job) => Some(job.to_owned()),
        None => {
            let set = |name: &str| {
                let mut all = request.environment.iter();
                all.find(|(known, value)| known == name && !value.is_empty())
                    .map(|(_, value)| value.clone())
            };
            JOB.into_iter().rev().find_map(set)
        }
    };
    let Some(wanted) = wanted else {
        return Ok(Ok(Place::default()));
    };
    let job = parse(&wanted)?;
    let session = Rc::clone(&context.session);
    let mut variables = Variables::new();
    if session.order.job.as_ref().is_some_and(|own| own.id == job) {
        variables = session.job_variables();
    } else if let Some(known) = session.allocations.borrow().get(&job) {
        variables = known.clone();
    }
    if variables.is_empty() {
        let selectors = [ids::Selector::job(job)];
        match submission::patiently(context.conn, scope::check(&session, &selectors)).await {
            Ok(verdict) => verdict?,
            Err(end) => return Ok(Err(end)),
        }
    }
    // The configuration is the session's to choose, and the mode is that of the chaperon's own file.
    variables.retain(|(name, _)| {
        name.as_bytes().starts_with(b"SLURM_") && name != "SLURM_CONF" && name != "SLURM_OPEN_MODE"
    });
    Ok(Ok(Place {
        job: Some(job),
        variables,
    }))
}

fn parse(text: &OsStr) -> Result<u32, Refusal> {
    match &ids::parse_list(text)?[..] {
        [one] if one.rest.is_empty() => Ok(one.job),
        _ => Err(Refusal::mistake(format!(
            "Invalid job id specified: {}",
            text.to_string_lossy().escape_debug()
        ))),
    }
}
