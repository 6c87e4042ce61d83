//! `[slurm.limits]`: how large a job may be. What cannot be understood while a limit holds is
//! refused.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use agent_sandbox_wire::order::Limits;

use super::parse::{Duration as Limit, Parsed, duration};
use crate::refusal::{Reason, Refusal};

/// Numbers above this stand for something else (`slurm.h`).
const LARGEST: u64 = 0xffff_fff0;

/// Checks the size of a job, and gives what has to be added to its options. `whole` are the GPUs that it gets
/// in each node because it gets the whole node.
///
/// # Errors
/// It is larger than a limit, or its size cannot be told.
pub fn check(limits: &Limits, parsed: &Parsed, whole: u64) -> Result<Vec<OsString>, Refusal> {
    check_tasks(limits, parsed, whole, 0)
}

/// The same for a job whose number of tasks is known in another way than by its options.
///
/// # Errors
/// See [`check`].
pub fn check_tasks(
    limits: &Limits,
    parsed: &Parsed,
    whole: u64,
    tasks: u32,
) -> Result<Vec<OsString>, Refusal> {
    let tasks = plain(parsed, "ntasks", "--ntasks").map(|given| given.max(tasks.into()));
    let nodes = tasks.and_then(|tasks| nodes(parsed, tasks));
    let mut added = Vec::new();
    if limits.nodes > 0 {
        let (least, most) = known(nodes, "nodes")?;
        at_most(most, limits.nodes, "nodes", "nodes")?;
        // Otherwise the job may grow later.
        if !parsed.has("nodes") {
            added.push(match least == most {
                true => format!("--nodes={most}").into(),
                false => format!("--nodes={least}-{most}").into(),
            });
        }
    }
    if limits.gpus > 0 {
        let (_, nodes) = known(nodes, "gpus")?;
        let gpus = known(
            tasks.and_then(|tasks| gpus(parsed, nodes, tasks, whole)),
            "gpus",
        )?;
        at_most(gpus, limits.gpus, "gpus", "GPUs")?;
    }
    if limits.minutes > 0 {
        match parsed.value("time") {
            None => added.push(format!("--time={}", limits.minutes).into()),
            Some(text) => {
                let minutes = match text.to_str().and_then(duration) {
                    // 0 asks for no limit (`sbatch(1)`, --time).
                    Some(Limit::Seconds(0) | Limit::Unlimited) => {
                        return Err(too_much(
                            "a job without time limit",
                            limits.minutes,
                            "minutes",
                        ));
                    }
                    Some(Limit::Seconds(seconds)) => seconds.div_ceil(60),
                    None => return Err(unclear("--time", "minutes")),
                };
                at_most(minutes, limits.minutes, "minutes", "minutes")?;
            }
        }
    }
    Ok(added)
}

/// Checks that a job alone is not more jobs than there may be; how many it is. `None` without a limit.
///
/// # Errors
/// It is an array of more tasks, or their number cannot be told.
pub fn check_array(most: u32, parsed: &Parsed) -> Result<Option<u64>, Refusal> {
    if most == 0 {
        return Ok(None);
    }
    let new = match parsed.value("array") {
        None => 1,
        Some(text) => known(array_tasks(text), "jobs")?,
    };
    at_most(new, most, "jobs", "jobs in the queue")?;
    Ok(Some(new))
}

/// Checks that so many jobs may be in the queue.
///
/// # Errors
/// They are too many.
pub fn check_jobs(jobs: u64, most: u32) -> Result<(), Refusal> {
    at_most(jobs, most, "jobs", "jobs in the queue")
}

fn at_most(asked: u64, most: u32, key: &'static str, unit: &str) -> Result<(), Refusal> {
    if asked > u64::from(most) {
        return Err(too_much(&format!("{asked} {unit}"), most, key));
    }
    Ok(())
}

fn too_much(asked: &str, most: u32, key: &'static str) -> Refusal {
    Refusal::rule(
        format!("{asked}: the policy allows {most} (`slurm.limits.{key}`)"),
        "ask for less, or have the limit raised in the policy",
    )
    .because(Reason::Limit(key))
}

/// The refusal of an option whose value is not understood, while a limit of `slurm.limits.KEY` holds.
pub fn unclear(option: &str, key: &'static str) -> Refusal {
    Refusal::rule(
        format!(
            "the value of {option} is not understood, and the policy has a limit (`slurm.limits.{key}`)"
        ),
        "write plain numbers",
    )
    .because(Reason::Limit(key))
}

/// What the options say; the name of the option that cannot be understood otherwise.
type Size<T = u64> = Result<T, &'static str>;

fn known<T>(size: Size<T>, key: &'static str) -> Result<T, Refusal> {
    size.map_err(|option| unclear(option, key))
}

fn number(text: &str) -> Option<u64> {
    // `--nodes=1k` (`sbatch(1)`): K and M multiply.
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1024),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1024 * 1024),
        _ => (text, 1),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    number
        .checked_mul(factor)
        .filter(|&number| number < LARGEST)
}

/// An option that is a number; 0 if it was not given.
fn plain(parsed: &Parsed, long: &'static str, name: &'static str) -> Size {
    match parsed.value(long) {
        None => Ok(0),
        Some(text) => text.to_str().and_then(number).ok_or(name),
    }
}

/// The fewest and the most nodes that a job can get by its options. A task takes a node at most.
fn nodes(parsed: &Parsed, tasks: u64) -> Size<(u64, u64)> {
    let listed = match parsed.value("nodelist") {
        None => 0,
        Some(text) => count_nodes(text).ok_or("--nodelist")?,
    };
    let most = match parsed.value("nodes") {
        None => None,
        Some(text) => Some(text.to_str().and_then(most_of).ok_or("--nodes")?),
    };
    let by_tasks = match plain(parsed, "ntasks-per-node", "--ntasks-per-node")? {
        0 => tasks,
        per_node => tasks.div_ceil(per_node),
    };
    // `--spread-job` and `--mincpus` spread tasks, but never over more nodes than tasks. With
    // `--nodes` the range holds.
    let least = listed.max(1);
    Ok((least, most.unwrap_or(by_tasks).max(least)))
}

/// The largest number of `2`, `2-4`, `1,3-5`, `4-16:4`.
fn most_of(text: &str) -> Option<u64> {
    let mut most = 0;
    for part in text.split(',') {
        let range = part.split_once(':').map_or(part, |(range, _)| range);
        let last = match range.split_once('-') {
            None => number(range)?,
            Some((first, last)) => number(first)?.max(number(last)?),
        };
        most = most.max(last);
    }
    Some(most)
}

/// How many names a list of nodes has: `n1,n[1-4,7]`. Several brackets in a name multiply.
pub fn count_nodes(text: &OsStr) -> Option<u64> {
    let text = text.to_str()?;
    let (mut total, mut name, mut rest) = (0u64, 1u64, text);
    while let Some(at) = rest.find(['[', ',']) {
        if rest.as_bytes()[at] == b',' {
            total = total.checked_add(name)?;
            name = 1;
            rest = &rest[at + 1..];
            continue;
        }
        let (inside, behind) = rest[at + 1..].split_once(']')?;
        let mut here = 0u64;
        for part in inside.split(',') {
            here = here.checked_add(match part.split_once('-') {
                None => {
                    number(part)?;
                    1
                }
                Some((first, last)) => number(last)?.checked_sub(number(first)?)?.checked_add(1)?,
            })?;
        }
        name = name.checked_mul(here)?;
        rest = behind;
    }
    total.checked_add(name)
}

/// The most GPUs that a job can get by its options.
fn gpus(parsed: &Parsed, nodes: u64, tasks: u64, whole: u64) -> Size {
    let tasks =
        tasks.max(plain(parsed, "ntasks-per-node", "--ntasks-per-node")?.saturating_mul(nodes));
    let tasks = tasks.max(nodes);
    let mut most = 0u64;
    let mut counted = |size: Size, times: u64| -> Result<(), &'static str> {
        most = most.max(size?.saturating_mul(times));
        Ok(())
    };
    let list = |long: &'static str, name: &'static str| match parsed.value(long) {
        None => Ok(0),
        Some(text) => devices(text).ok_or(name),
    };
    let named = |long: &'static str, name: &'static str| match parsed.value(long) {
        None => Ok(0),
        Some(text) => named_gpus(text).ok_or(name),
    };
    counted(Ok(whole), nodes)?;
    counted(list("gpus", "--gpus"), 1)?;
    counted(list("gpus-per-node", "--gpus-per-node"), nodes)?;
    counted(list("gpus-per-task", "--gpus-per-task"), tasks)?;
    if parsed.has("gpus-per-socket") {
        // The sockets of a node are the cluster's to know, unless they are asked for.
        let sockets = match plain(parsed, "sockets-per-node", "--sockets-per-node")? {
            0 => return Err("--gpus-per-socket"),
            sockets => sockets,
        };
        counted(
            list("gpus-per-socket", "--gpus-per-socket"),
            nodes.saturating_mul(sockets),
        )?;
    }
    counted(named("gres", "--gres"), nodes)?;
    counted(named("tres-per-task", "--tres-per-task"), tasks)?;
    // So many tasks share a GPU.
    if parsed.has("ntasks-per-gpu") {
        counted(Ok(tasks), 1)?;
    }
    Ok(most)
}

/// GPUs of `2`, `a100:2`, `a100:2,v100:1`.
fn devices(text: &OsStr) -> Option<u64> {
    let mut sum = 0u64;
    for part in text.to_str()?.split(',') {
        let count = part.rsplit_once(':').map_or(part, |(_, count)| count);
        // A type without a number is one.
        let count = match number(count) {
            Some(count) => count,
            None if !part.contains(':') && !part.is_empty() => 1,
            None => return None,
        };
        sum = sum.checked_add(count)?;
    }
    Some(sum)
}

/// Parts of a GPU that are asked for by the part, and so many are a GPU. Each shard may be another GPU's; of
/// `mps` each GPU has 100 unless the cluster says otherwise (`gres.conf(5)`, Count).
const SHARES: [(&str, u64); 2] = [("shard", 1), ("mps", 100)];

/// GPUs of `gpu:2`, `gres/gpu:a100:2,licence:1`, `gpu`, and of what shares GPUs: `shard:2`, `mps:50`.
pub(super) fn named_gpus(text: &OsStr) -> Option<u64> {
    let mut sum = 0u64;
    for part in text.to_str()?.split(',') {
        let part = part
            .strip_prefix("gres/")
            .or_else(|| part.strip_prefix("gres:"))
            .unwrap_or(part);
        // The number may stand behind `=` and have a list of cores behind it.
        let part = part.split('(').next().unwrap_or(part).replace('=', ":");
        let mut fields = part.split(':');
        let name = fields.next().unwrap_or_default();
        // Every kind counts that could be one: also what a site calls so.
        let name = name.to_ascii_lowercase();
        let share = SHARES.iter().find(|(share, _)| name == *share);
        let each = match share {
            Some((_, of_one)) => *of_one,
            None if name.starts_with("gpu") => 1,
            None => continue,
        };
        let rest: Vec<&str> = fields.collect();
        let count = match rest[..] {
            [] => 1,
            [only] => number(only).unwrap_or(1),
            [_, count] => number(count)?,
            _ => return None,
        };
        sum = sum.checked_add(count.div_ceil(each))?;
    }
    Some(sum)
}

/// The tasks of an array: `0-15`, `0,6,16-32`, `0-15:4`, with `%4` behind it (`sbatch(1)`).
fn array_tasks(text: &OsStr) -> Size {
    count_tasks(text.as_bytes()).ok_or("--array")
}

fn count_tasks(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let text = text.split_once('%').map_or(text, |(list, _)| list);
    let text = text.trim_start_matches('[').trim_end_matches(']');
    let mut sum = 0u64;
    for part in text.split(',') {
        let (range, stride) = match part.split_once(':') {
            None => (part, 1),
            Some((range, stride)) => (range, number(stride).filter(|&stride| stride > 0)?),
        };
        let count = match range.split_once('-') {
            None => number(range).map(|_| 1)?,
            Some((first, last)) => number(last)?.checked_sub(number(first)?)? / stride + 1,
        };
        sum = sum.checked_add(count)?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use agent_sandbox_wire::command::Command;

    use super::*;
    use crate::slurm::parse::parse;

    const LIMITS: Limits = Limits {
        queries_per_minute: 0,
        jobs: 0,
        nodes: 4,
        gpus: 8,
        minutes: 120,
    };

    fn outcome(line: &str) -> Result<Vec<OsString>, String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let parsed = parse(Command::Sbatch, &words, &[]).unwrap();
        check(&LIMITS, &parsed, 0).map_err(|refusal| refusal.message)
    }

    #[test]
    fn small_jobs_pass() {
        for (line, nodes) in [
            ("-t 120", "--nodes=1"),
            ("-t 2:00:00 -N 4", ""),
            ("-t 1 -N 1-4 --gpus-per-node=2", ""),
            ("-t 1 -w n[1-3],m1 --gres=gpu:a100:2", "--nodes=4"),
            ("-t 1 -n 64 --ntasks-per-node=16", "--nodes=1-4"),
            ("-t 1 -n 4 --gpus-per-task=a100:2", "--nodes=1-4"),
            ("-t 1 -n 3 -w n[1-2]", "--nodes=2-3"),
            ("-t 1 -G a100:4,v100:4", "--nodes=1"),
            ("-t 1 -N 4 --gres=license:100,gpu:2", ""),
            ("-t 1 -N 2 --gres=mps:150,shard:2", ""),
        ] {
            let added = match nodes {
                "" => Vec::new(),
                nodes => vec![OsString::from(nodes)],
            };
            assert_eq!(outcome(line), Ok(added), "{line}");
        }
    }

    #[test]
    fn a_job_without_time_gets_the_limit() {
        assert_eq!(outcome("-N 1"), Ok(vec!["--time=120".into()]));
    }

    #[test]
    fn tasks_of_a_file_count() {
        let parsed = parse(Command::Srun, &["-t1".into(), "x".into()], &[]).unwrap();
        assert_eq!(
            check_tasks(&LIMITS, &parsed, 0, 3).unwrap(),
            ["--nodes=1-3"].map(OsString::from)
        );
        assert!(check_tasks(&LIMITS, &parsed, 0, 5).is_err());
    }

    #[test]
    fn large_jobs_do_not() {
        for line in [
            "-t 121",
            "-t 0",
            "-t UNLIMITED",
            "-t 2:00:01",
            "-t 1-0",
            "-t 1 -N 5",
            "-t 1 -N 1-5",
            "-t 1 -N 2-8:2",
            "-t 1 -N 1k",
            "-t 1 -w n[1-5]",
            "-t 1 -w n[1-2]m[1-3]",
            "-t 1 -n 5",
            "-t 1 -G 9",
            "-t 1 -N 4 --gpus-per-node=3",
            "-t 1 -N 4 --gres=gpu:a100:3",
            "-t 1 -N 4 --gres=gres/gpu=3",
            "-t 1 -n 4 --gpus-per-task=3",
            "-t 1 --tres-per-task=gres/gpu:9",
            "-t 1 --gres=shard:9",
            "-t 1 --gres=gpu:4,shard:5",
            "-t 1 --gres=mps:900",
            "-t 1 -N 3 --gres=gres/mps:201",
            "-t 1 --gpus-per-socket=1",
            "-t 1 -N x",
            "-t 1 -w n[1-",
        ] {
            assert!(outcome(line).is_err(), "{line}");
        }
        assert_eq!(
            outcome("-t 1 -N 5").unwrap_err(),
            "5 nodes: the policy allows 4 (`slurm.limits.nodes`)"
        );
    }

    #[test]
    fn the_gpus_of_whole_nodes_count() {
        let words = ["-t1".into(), "-N3".into(), "--exclusive".into()];
        let parsed = parse(Command::Sbatch, &words, &[]).unwrap();
        assert!(check(&LIMITS, &parsed, 2).is_ok());
        assert!(check(&LIMITS, &parsed, 3).is_err());
    }

    #[test]
    fn tasks_of_arrays() {
        for (text, tasks) in [
            ("0-15", Some(16)),
            ("0,6,16-32", Some(19)),
            ("0-15:4", Some(4)),
            ("0-15%4", Some(16)),
            ("7", Some(1)),
            ("9-1", None),
            ("x", None),
            ("", None),
            ("1-2:0", None),
        ] {
            assert_eq!(count_tasks(text.as_bytes()), tasks, "{text}");
        }
    }
}
