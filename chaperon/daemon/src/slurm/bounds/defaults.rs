//! What Slurm itself would choose, and what its nodes have: asked for where a bound is about it.

use std::ffi::OsString;
use std::rc::Rc;

use agent_sandbox_wire::bounds::{BoundSet, NameKey, SizeKey};
use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;

use super::sizes::{DefaultMemory, named_gpus};
use super::{Chosen, Judgement, Node, Place, Rules, StandingJob, judge, options, unknown_options};
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

/// Judges a submission, and asks Slurm for what has to be known for that.
///
/// # Errors
/// It is too much, nobody can tell how much it is, or Slurm does not answer.
pub async fn submission(
    session: &Rc<Session>,
    parsed: &Parsed,
    tasks: u32,
) -> Result<Vec<OsString>, Refusal> {
    let bounds = &session.order.bounds;
    super::first(unknown_options(bounds).into_iter().collect())?;
    let mut chosen = Chosen::of(bounds, parsed, &Defaults::default());
    let (account, partition) = chosen.lacks(bounds);
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
    let memory = bounded(SizeKey::Memory);
    let mut node = match memory || bounded(SizeKey::Gpus) || bounded(SizeKey::Cpus) {
        true => Some(node(session, &chosen.place).await?),
        false => None,
    };
    if let (Some(node), true) = (&mut node, memory) {
        let default = default_memory(session, &chosen.place).await?;
        node.default = default.unwrap_or(node.default);
    }
    let Judgement { breaches, added } = judge(bounds, parsed, chosen, node.as_ref(), tasks);
    super::first(breaches)?;
    Ok(added)
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

/// What Slurm gives a job that says nothing of memory: by its partition, else by the cluster's configuration. `None`: all
/// that a node has.
async fn default_memory(
    session: &Rc<Session>,
    place: &Place,
) -> Result<Option<DefaultMemory>, Refusal> {
    let said = |words: &[&str]| {
        let words = words.iter().map(OsString::from).collect();
        ask(session, Command::Scontrol, words, Vec::new())
    };
    let partitions = said(&["--all", "--oneliner", "show", "partition"]).await?;
    let partitions = String::from_utf8_lossy(&partitions.output);
    let its = partitions.lines().find(|line| {
        let mut words = line.split_ascii_whitespace();
        match place.partitions.first() {
            Some(name) => words.next() == Some(format!("PartitionName={name}").as_str()),
            None => words.any(|word| word == "Default=YES"),
        }
    });
    if let Some(found) = its.and_then(|line| of_words(line.split_ascii_whitespace())) {
        return Ok(Some(found));
    }
    let configuration = said(&["show", "config"]).await?;
    let text = String::from_utf8_lossy(&configuration.output);
    let lines = text.lines().filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        Some(format!("{}={}", key.trim(), value.trim()))
    });
    let lines: Vec<String> = lines.collect();
    Ok(of_words(lines.iter().map(String::as_str)))
}

fn of_words<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<DefaultMemory> {
    words.find_map(|word| match word.split_once('=')? {
        ("DefMemPerCPU", number) => Some(DefaultMemory::PerCpu(number.parse().ok()?)),
        ("DefMemPerNode", number) => Some(DefaultMemory::PerNode(number.parse().ok()?)),
        _ => None,
    })
}

/// What nodes of a job's partitions have; of the default one if it names none.
async fn node(session: &Rc<Session>, place: &Place) -> Result<Node, Refusal> {
    // Slurm 22.05 takes no --partition beside --all, without which hidden partitions are left out.
    let words = ["--noheader", "--all", "--exact", "--format=%P|%h|%c|%m|%G"];
    let words = words.map(OsString::from).to_vec();
    let said = ask(session, Command::Sinfo, words, Vec::new()).await?;
    let node = match said.end {
        End::SUCCESS => most(&String::from_utf8_lossy(&said.output), &place.partitions),
        _ => None,
    };
    node.ok_or_else(|| {
        Refusal::mistake("Slurm does not say what nodes of the job's partitions have")
            .hint("the policy bounds GPUs, CPUs or memory: name a partition that is there")
    })
}

/// The most of a node of these partitions, of lines `PARTITION|OVERSUBSCRIBE|CPUS|MEMORY|GRES`. If there are none, the
/// default partition's, which has a star, if there is one.
fn most(text: &str, partitions: &[String]) -> Option<Node> {
    let lines: Vec<(&str, bool, &str)> = text
        .lines()
        .map(|line| {
            let name = line.split('|').next().unwrap_or_default().trim();
            let plain = name.strip_suffix('*');
            (plain.unwrap_or(name), plain.is_some(), line)
        })
        .collect();
    let starred = lines.iter().any(|(_, star, _)| *star);
    let counted = lines.iter().filter(|(name, star, _)| match partitions {
        [] => *star || !starred,
        named => named.iter().any(|one| one == name),
    });
    // A partition that is not there has no nodes that could be known.
    let there = |one: &String| lines.iter().any(|(name, ..)| one == name);
    if !partitions.iter().all(there) {
        return None;
    }
    // Nothing that is understood is no number.
    let mut most: Option<Node> = None;
    for (_, _, line) in counted {
        let fields: Vec<&str> = line.splitn(5, '|').map(str::trim).collect();
        let [_, shared, cpus, memory, gres] = fields[..] else {
            return None;
        };
        let (cpus, memory): (u64, u64) = (cpus.parse().ok()?, memory.parse().ok()?);
        let one = Node {
            whole: shared.eq_ignore_ascii_case("EXCLUSIVE"),
            cpus,
            memory,
            gpus: gpus(gres)?,
            default: DefaultMemory::PerCpu(memory / cpus.max(1)),
        };
        most = Some(most.map_or(one, |most| Node {
            whole: most.whole || one.whole,
            cpus: most.cpus.max(one.cpus),
            memory: most.memory.max(one.memory),
            gpus: most.gpus.max(one.gpus),
            default: match (most.default, one.default) {
                (DefaultMemory::PerCpu(most), DefaultMemory::PerCpu(one)) => {
                    DefaultMemory::PerCpu(most.min(one))
                }
                (most, _) => most,
            },
        }));
    }
    most
}

/// GPUs of `gpu:a100:4(S:0-1),gpu:2,license:3`, or `(null)`.
fn gpus(gres: &str) -> Option<u64> {
    let mut plain = String::new();
    let mut depth = 0u32;
    for letter in gres.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            other if depth == 0 => plain.push(other),
            _ => {}
        }
    }
    let mut sum = 0u64;
    for part in plain.split(',').filter(|part| !part.is_empty()) {
        // The shares of a GPU are counted by the GPU here.
        if part.starts_with("gpu") {
            sum = sum.checked_add(named_gpus(part.as_ref())?)?;
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_of_a_node_counts() {
        let text = "debug*|NO|8|4000|(null)\ndebug*|NO|4|8000|gpu:2\n\
                    gpu|EXCLUSIVE|64|500|gpu:a100:4(S:0,1),gpu:v100:4,shard:32\ncpu|NO|1|1|\n";
        let node = |whole, cpus, memory, gpus, share| Node {
            whole,
            cpus,
            memory,
            gpus,
            default: DefaultMemory::PerCpu(share),
        };
        let of = |text: &str, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&one| one.to_owned()).collect();
            most(text, &names)
        };
        assert_eq!(of(text, &[]), Some(node(false, 8, 8000, 2, 500)));
        let all = ["debug", "gpu", "cpu"];
        assert_eq!(of(text, &all), Some(node(true, 64, 8000, 8, 1)));
        assert_eq!(of(text, &["gpu"]), Some(node(true, 64, 500, 8, 7)));
        assert_eq!(of(text, &["gpu", "none"]), None);
        assert_eq!(
            of("cpu*|NO|1|1|(null)\n", &[]),
            Some(node(false, 1, 1, 0, 1))
        );
        for odd in [
            "gpu|NO|1|1|gpu:a:b:c:d\n",
            "cpu|NO|4+|1|(null)\n",
            "x\n",
            "",
        ] {
            assert_eq!(of(odd, &[]), None, "{odd}");
        }
    }
}
