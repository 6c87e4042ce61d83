//! How much a job takes, and for how long: what of it is counted in hours. It is counted as for bounds, and written into the job
//! where the job does not say it.

use std::ffi::OsString;
use std::rc::Rc;

use agent_sandbox_wire::budget::Amounts;
use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;
use serde::{Deserialize, Serialize};

use super::asked::{Amount, Value};
use super::node::Words;
use super::sizes::Sizes;
use super::{Node, pinned_nodes};
use crate::refusal::{Reason, Refusal};
use crate::session::Session;
use crate::slurm::ask::ask;
use crate::slurm::parse::{Duration, Parsed, duration};

/// What a job takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSize {
    /// What one task gets at most.
    pub size: Amounts,
    /// For so many minutes at most.
    pub minutes: u64,
    /// Tasks; 1 without an array.
    pub tasks: u64,
}

impl JobSize {
    /// All of it, in seconds.
    pub fn seconds(&self) -> Amounts {
        let each = self.size.times(self.minutes.saturating_mul(60));
        each.times(self.tasks)
    }
}

/// Counts a job. `added` are the words that bounds write into it, to which what was counted is added.
pub(super) async fn count(
    session: &Rc<Session>,
    parsed: &Parsed,
    (node, tasks): (&Node, u32),
    partitions: &[String],
    added: &mut Vec<OsString>,
) -> Result<JobSize, Refusal> {
    let sizes = Sizes::new(parsed, Some(node), tasks);
    let known = |value: Value<u64>| value.map_err(|option| unclear(session, option));
    let nodes = sizes.nodes();
    let (_, most) = nodes.map_err(|option| unclear(session, option))?;
    let size = Amounts([known(sizes.cpus())?, known(sizes.gpus())?, most]);
    let is = |word: &OsString, option: &str| word.to_string_lossy().starts_with(option);
    if !added.iter().any(|word| is(word, "--nodes=")) {
        added.extend(nodes.ok().and_then(|nodes| pinned_nodes(parsed, nodes)));
    }
    let array = sizes.array().map_err(|option| unclear(session, option))?;
    let tasks = match array {
        None => 1,
        Some(Amount::Of(tasks)) => tasks.max(1),
        Some(Amount::Endless) => return Err(unclear(session, "--array")),
    };
    let bound = added.iter().find_map(|word| {
        let minutes = word.to_str()?.strip_prefix("--time=")?;
        minutes.parse().ok()
    });
    let given = sizes.minutes().map_err(|option| unclear(session, option))?;
    let minutes = match (given, bound) {
        (Some(Amount::Of(minutes)), _) => minutes,
        (Some(Amount::Endless), _) => return Err(endless(session)),
        (None, Some(minutes)) => minutes,
        (None, None) => {
            let minutes = usual(session, partitions).await?;
            let minutes = minutes.ok_or_else(|| endless(session))?;
            added.push(format!("--time={minutes}").into());
            minutes
        }
    };
    Ok(JobSize {
        size,
        minutes,
        tasks,
    })
}

/// What has hours counted.
fn reason(session: &Session) -> (&'static str, &str) {
    let reason = session.order.budgets.reason();
    reason.unwrap_or(("slurm.budget", "policy"))
}

fn unclear(session: &Session, option: &str) -> Refusal {
    let (key, source) = reason(session);
    Refusal::rule(
        format!("the value of {option} is not understood, and the policy counts hours (`{key}`, {source})"),
        "write plain names and numbers",
    )
    .because(Reason::Key(key))
}

fn endless(session: &Session) -> Refusal {
    let (key, source) = reason(session);
    Refusal::rule(
        format!("a job without time limit, and the policy counts hours (`{key}`, {source})"),
        "say for how long: --time=MINUTES",
    )
    .because(Reason::Key(key))
}

/// The time limit in minutes that a job gets which asks for none; `None`: none.
async fn usual(session: &Rc<Session>, partitions: &[String]) -> Result<Option<u64>, Refusal> {
    let words = ["--all", "--oneliner", "show", "partition"];
    let words = words.map(OsString::from).to_vec();
    let said = ask(session, Command::Scontrol, words, Vec::new()).await?;
    if said.end != End::SUCCESS {
        return Err(Refusal::mistake(
            "Slurm does not say which time limit the job's partitions have",
        ));
    }
    Ok(longest(&String::from_utf8_lossy(&said.output), partitions))
}

/// The longest of these partitions, or of the default ones (`scontrol show partition`).
fn longest(text: &str, partitions: &[String]) -> Option<u64> {
    let all = text.lines().map(Words::of_line);
    let its = all.filter(|words| match partitions {
        [] => words.value("Default") == Some("YES"),
        named => named
            .iter()
            .any(|one| words.value("PartitionName") == Some(one)),
    });
    let mut most = None;
    for words in its {
        let limit = words.value("DefaultTime").filter(|time| *time != "NONE");
        let limit = limit.or_else(|| words.value("MaxTime"))?;
        let Duration::Seconds(seconds) = duration(limit)? else {
            return None;
        };
        most = most.max(Some(seconds.div_ceil(60)));
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_without_time_limit_gets_the_longest_of_its_partitions() {
        let text = "PartitionName=a Default=YES DefaultTime=00:30:00 MaxTime=1-00:00:00\n\
                    PartitionName=b Default=NO DefaultTime=NONE MaxTime=02:00:00\n\
                    PartitionName=c Default=NO DefaultTime=NONE MaxTime=UNLIMITED\n";
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            longest(text, &names)
        };
        assert_eq!(of(&[]), Some(30));
        assert_eq!(of(&["b"]), Some(120));
        assert_eq!(of(&["a", "b"]), Some(120));
        assert_eq!(of(&["b", "c"]), None);
        assert_eq!(of(&["d"]), None);
    }
}
