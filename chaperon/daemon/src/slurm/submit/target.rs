//! Where a submission goes: into a job of the scope, as a step of it, or into a job of its own.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use crate::refusal::Refusal;
use crate::slurm::ask::{Stop, patiently};
use crate::slurm::ids;
use crate::slurm::parse::{arguments, mistaken};
use crate::slurm::request::Context;
use crate::slurm::scope;
use crate::variables::Variables;

/// Variables with the id of the job in which a shell runs, the one that counts last.
const JOB: [&str; 2] = ["SLURM_JOBID", "SLURM_JOB_ID"];

/// Where a submission goes. The default is a job of its own; one in a job comes from [`of`] alone, which checks it.
#[derive(Debug, Default)]
pub(super) struct Target {
    job: Option<u32>,
    variables: Variables,
}

impl Target {
    /// The job; none for one that is to be made.
    pub(super) fn job(&self) -> Option<u32> {
        self.job
    }

    /// What describes the job, said by Slurm and never by the jail.
    pub(super) fn variables(&self) -> &Variables {
        &self.variables
    }

    /// A number in the job's own variables.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        let mut found = self.variables.iter().filter(|(known, _)| known == name);
        found.next()?.1.to_str()?.parse().ok()
    }

    /// The shell's variables without those that say what the job's say anyway.
    pub(super) fn without_its_own(&self, environment: &Variables) -> Variables {
        let mut all = environment.clone();
        all.retain(|variable| !self.variables.contains(variable));
        all
    }
}

/// Finds out where an srun goes.
///
/// # Errors
/// The job is none of the session's, or the shim ends.
pub(super) async fn of(context: &mut Context<'_>) -> Result<Target, Stop> {
    let request = &context.request;
    let argued = arguments(&context.table().await?, &request.arguments)
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
        return Ok(Target::default());
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
        patiently(context.conn, scope::check(&session, &selectors)).await??;
    }
    // The configuration is the session's to choose, and the mode is that of the chaperon's own file.
    variables.retain(|(name, _)| {
        name.as_bytes().starts_with(b"SLURM_") && name != "SLURM_CONF" && name != "SLURM_OPEN_MODE"
    });
    Ok(Target {
        job: Some(job),
        variables,
    })
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
