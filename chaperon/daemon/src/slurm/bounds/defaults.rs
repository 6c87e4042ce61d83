//! What Slurm itself would choose, and what its nodes have: asked for where a bound is about it.

use std::ffi::OsString;
use std::rc::Rc;

use agent_sandbox_wire::bounds::{BoundSet, NameKey, SizeKey};
use agent_sandbox_wire::command::Command;

use super::node::node;
use super::{
    Chosen, JobSize, Judgement, OF_NODES, Place, Rules, StandingJob, job_size, judge, options,
    unknown_options,
};
use crate::refusal::Refusal;
use crate::session::Session;
use crate::slurm::ask::ask;
use crate::slurm::parse::Parsed;

/// What a job gets that names none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// The user's account.
    pub account: Option<String>,
    /// The cluster's partition.
    pub partition: Option<String>,
}

/// Judges a submission, and asks Slurm for what has to be known for that. What is added to its options, and how much it takes if
/// hours are counted.
///
/// # Errors
/// It is too much, nobody can tell how much it is, or Slurm does not answer.
pub async fn submission(
    session: &Rc<Session>,
    parsed: &Parsed,
    tasks: u32,
) -> Result<(Vec<OsString>, Option<JobSize>), Refusal> {
    let bounds = &session.order.bounds;
    let counted = session.order.budgets.are_counted();
    super::first(unknown_options(bounds).into_iter().collect())?;
    let mut chosen = Chosen::of(bounds, parsed, &Defaults::default());
    let (account, partition) = chosen.lacks(bounds, counted);
    if account || partition {
        let mut defaults = Defaults::default();
        if account {
            defaults.account = default_account(session).await?;
        }
        if partition {
            defaults.partition = default_partition(session).await?;
        }
        chosen = Chosen::of(bounds, parsed, &defaults);
    }
    // Names first: of a partition that nobody may use, nobody has to know the nodes.
    let mut early = judge(bounds, parsed, chosen.clone(), None, tasks).breaches;
    early.retain(|breach| SizeKey::ALL.iter().all(|key| key.name() != breach.key));
    super::first(early)?;
    let bounded = |key| {
        let rules = Rules::about(bounds, &chosen.place);
        rules.most(key).is_some()
    };
    let partitions = chosen.place.partitions.clone();
    let node = match counted || OF_NODES.into_iter().any(bounded) {
        true => Some(node(session, &chosen.place).await?),
        false => None,
    };
    let Judgement {
        breaches,
        mut added,
    } = judge(bounds, parsed, chosen, node.as_ref(), tasks);
    super::first(breaches)?;
    let size = match node.filter(|_| counted) {
        Some(node) => {
            let on = (&node, tasks);
            Some(job_size::count(session, parsed, on, &partitions, &mut added).await?)
        }
        None => None,
    };
    Ok((added, size))
}

/// Judges a step in a job: by its options alone, for it takes nothing that its job does not have.
///
/// # Errors
/// An option is not allowed, or Slurm does not say which rules are about the job.
pub async fn step(session: &Rc<Session>, parsed: &Parsed, job: u32) -> Result<(), Refusal> {
    let bounds = &session.order.bounds;
    let mut conditional = bounds.sets.iter().filter(|set| !set.when.is_always());
    let about_options = |set: &BoundSet| {
        let mut names = set.names.iter();
        !set.denied.is_empty() || names.any(|list| list.key == NameKey::Options)
    };
    let mut place = Place::default();
    if conditional.any(about_options) {
        let standing = StandingJob::all(session, &job.to_string()).await?;
        place = standing.into_iter().next().unwrap_or_default().place;
    }
    super::first(options::breaches(&Rules::about(bounds, &place), parsed))
}

async fn default_account(session: &Rc<Session>) -> Result<Option<String>, Refusal> {
    let user = format!("user={}", session.order.user);
    let words = [
        "--noheader",
        "--parsable2",
        "show",
        "user",
        &user,
        "format=DefaultAccount",
    ];
    let words = words.map(OsString::from).to_vec();
    // Where there is no accounting there are no accounts.
    let said = ask(session, Command::Sacctmgr, words, Vec::new()).await?;
    let text = String::from_utf8_lossy(&said.output);
    let account = text.lines().next().map(str::trim).unwrap_or_default();
    Ok((!account.is_empty()).then(|| account.to_owned()))
}

async fn default_partition(session: &Rc<Session>) -> Result<Option<String>, Refusal> {
    let words = ["--noheader", "--all", "--format=%P"];
    let words = words.map(OsString::from).to_vec();
    let said = ask(session, Command::Sinfo, words, Vec::new()).await?;
    let text = String::from_utf8_lossy(&said.output);
    let mut lines = text.lines().map(str::trim);
    Ok(lines.find_map(|line| line.strip_suffix('*').map(str::to_owned)))
}
