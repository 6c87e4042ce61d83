//! How large a job is by its options: the most that it can get. Slurm gives whole cores, so that it may be one CPU more
//! for each task on nodes with two threads a core.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::asked::{Amount, Value};
use crate::slurm::parse::{Duration, Parsed, duration};

/// Numbers above this stand for something else (`slurm.h`).
const LARGEST: u64 = 0xffff_fff0;

/// Values of `--exclusive` with which nodes are only not shared with other users.
const SHARED: [&str; 2] = ["user", "mcs"];

/// What a node of the job's partitions has; of several kinds the most of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Whether its jobs get whole nodes, whatever they ask for.
    pub whole: bool,
    /// CPUs.
    pub cpus: u64,
    /// Memory, in MiB.
    pub memory: u64,
    /// GPUs.
    pub gpus: u64,
    /// What a job gets that says nothing of memory.
    pub default: DefaultMemory,
}

/// Memory in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultMemory {
    /// For each CPU.
    PerCpu(u64),
    /// On each node.
    PerNode(u64),
}

/// The sizes of a job.
pub(super) struct Sizes<'a> {
    parsed: &'a Parsed,
    node: Option<&'a Node>,
    tasks: u64,
}

impl<'a> Sizes<'a> {
    /// By its options. `tasks` is how many tasks it has, where that is known in another way.
    pub(super) fn new(parsed: &'a Parsed, node: Option<&'a Node>, tasks: u32) -> Self {
        Self {
            parsed,
            node,
            tasks: tasks.into(),
        }
    }

    /// An option that is a number; 0 if it was not given.
    fn plain(&self, long: &'static str, name: &'static str) -> Value<u64> {
        self.counted(long, name, |text| number(text.to_str()?))
    }

    fn counted(
        &self,
        long: &'static str,
        name: &'static str,
        count: impl Fn(&OsStr) -> Option<u64>,
    ) -> Value<u64> {
        self.parsed
            .value(long)
            .map_or(Ok(0), |text| count(text).ok_or(name))
    }

    /// Whether it gets whole nodes (`sbatch(1)`, `--exclusive`; `--core-spec` implies it).
    fn whole(&self) -> bool {
        let exclusive = self.parsed.all("exclusive").any(|given| {
            let value = given.value.as_ref().map(|value| value.to_string_lossy());
            let shared = |value: &str| SHARED.iter().any(|one| value.eq_ignore_ascii_case(one));
            !value.is_some_and(|value| shared(&value))
        });
        let reserves = |long| self.parsed.has(long);
        exclusive
            || reserves("core-spec")
            || reserves("thread-spec")
            || self.node.is_some_and(|node| node.whole)
    }

    /// What a node gives because it is given as a whole; 0 where it is not.
    fn of_whole(&self, part: impl Fn(&Node) -> u64) -> u64 {
        let node = self.node.filter(|_| self.whole());
        node.map_or(0, part)
    }

    /// The fewest and the most nodes. A task takes a node at most.
    pub(super) fn nodes(&self) -> Value<(u64, u64)> {
        let listed = self.counted("nodelist", "--nodelist", count_nodes)?;
        let most = match self.parsed.value("nodes") {
            None => None,
            Some(text) => Some(text.to_str().and_then(most_of).ok_or("--nodes")?),
        };
        let tasks = self.plain("ntasks", "--ntasks")?.max(self.tasks);
        let by_tasks = match self.plain("ntasks-per-node", "--ntasks-per-node")? {
            0 => tasks,
            per_node => tasks.div_ceil(per_node),
        };
        // `--spread-job` and `--mincpus` spread tasks, but never over more nodes than tasks. With
        // `--nodes` the range holds.
        let least = listed.max(1);
        Ok((least, most.unwrap_or(by_tasks).max(least)))
    }

    /// The most tasks, without those that a number for each GPU makes.
    fn tasks(&self) -> Value<u64> {
        let (_, nodes) = self.nodes()?;
        let tasks = self.plain("ntasks", "--ntasks")?.max(self.tasks);
        let per_node = self.plain("ntasks-per-node", "--ntasks-per-node")?;
        Ok(tasks.max(per_node.saturating_mul(nodes)).max(nodes))
    }

    /// The most GPUs.
    pub(super) fn gpus(&self) -> Value<u64> {
        let ((_, nodes), tasks) = (self.nodes()?, self.tasks()?);
        let mut most = self.of_whole(|node| node.gpus).saturating_mul(nodes);
        let mut counted = |size: u64, times: u64| most = most.max(size.saturating_mul(times));
        counted(self.counted("gpus", "--gpus", devices)?, 1);
        counted(
            self.counted("gpus-per-node", "--gpus-per-node", devices)?,
            nodes,
        );
        counted(
            self.counted("gpus-per-task", "--gpus-per-task", devices)?,
            tasks,
        );
        let per_socket = self.counted("gpus-per-socket", "--gpus-per-socket", devices)?;
        if self.parsed.has("gpus-per-socket") {
            // The sockets of a node are the cluster's to know, unless they are asked for.
            let sockets = match self.plain("sockets-per-node", "--sockets-per-node")? {
                0 => return Err("--gpus-per-socket"),
                sockets => sockets,
            };
            counted(per_socket, nodes.saturating_mul(sockets));
        }
        counted(self.counted("gres", "--gres", named_gpus)?, nodes);
        counted(
            self.counted("tres-per-task", "--tres-per-task", named_gpus)?,
            tasks,
        );
        // So many tasks share a GPU.
        if self.parsed.has("ntasks-per-gpu") || self.parsed.has("ntasks-per-tres") {
            counted(tasks, 1);
        }
        Ok(most)
    }

    /// The most CPUs.
    pub(super) fn cpus(&self) -> Value<u64> {
        let ((_, nodes), gpus) = (self.nodes()?, self.gpus()?);
        let per_gpu = self.plain("ntasks-per-gpu", "--ntasks-per-gpu")?;
        let per_tres = self.plain("ntasks-per-tres", "--ntasks-per-tres")?;
        let tasks = self
            .tasks()?
            .max(per_gpu.max(per_tres).saturating_mul(gpus));
        let given = self.plain("cpus-per-task", "--cpus-per-task")?;
        // Whether srun reads it differs from version to version.
        let mut kept = self.parsed.kept.iter();
        let kept = match kept.find(|(name, _)| name == "SLURM_CPUS_PER_TASK") {
            None => 0,
            Some((_, text)) => text
                .to_str()
                .and_then(number)
                .ok_or("SLURM_CPUS_PER_TASK")?,
        };
        let of_tres = self.counted("tres-per-task", "--tres-per-task", cpus_of_tres)?;
        let per_task = given.max(kept).max(of_tres).max(1);
        let mut most = tasks.saturating_mul(per_task);
        let mut counted = |size: u64, times: u64| most = most.max(size.saturating_mul(times));
        counted(self.plain("mincpus", "--mincpus")?, nodes);
        counted(self.plain("cpus-per-gpu", "--cpus-per-gpu")?, gpus);
        counted(self.of_whole(|node| node.cpus), nodes);
        Ok(most)
    }

    /// The most memory in bytes, on all nodes; `None` if it says nothing of memory.
    pub(super) fn memory(&self) -> Value<Option<u64>> {
        let (_, nodes) = self.nodes()?;
        let given = ["mem", "mem-per-cpu", "mem-per-gpu"];
        if !given.iter().any(|long| self.is_given(long)) {
            return Ok(None);
        }
        let per_node = self.counted("mem", "--mem", mebibytes)?;
        let per_cpu = self.counted("mem-per-cpu", "--mem-per-cpu", mebibytes)?;
        let per_gpu = self.counted("mem-per-gpu", "--mem-per-gpu", mebibytes)?;
        let mut most = per_node.saturating_mul(nodes);
        most = most.max(per_cpu.saturating_mul(self.cpus()?));
        most = most.max(per_gpu.saturating_mul(self.gpus()?));
        // 0 asks for all that a node has (`sbatch(1)`, `--mem`).
        let all = |long: &str, value: u64| self.is_given(long) && value == 0;
        if all("mem", per_node) || all("mem-per-cpu", per_cpu) || all("mem-per-gpu", per_gpu) {
            let node = self.node.ok_or("--mem")?;
            most = most.max(node.memory.saturating_mul(nodes));
        }
        Ok(Some(most.saturating_mul(1 << 20)))
    }

    /// Whether an option has a value: an empty one asks for nothing.
    fn is_given(&self, long: &str) -> bool {
        self.parsed.value(long).is_some_and(|text| !text.is_empty())
    }

    /// Memory for each node in MiB, for a job that says nothing of memory.
    pub(super) fn default_memory(&self) -> Value<Option<u64>> {
        let (None, Some(node)) = (self.memory()?, self.node) else {
            return Ok(None);
        };
        let (least, _) = self.nodes()?;
        let cpus = self.cpus()?.div_ceil(least).min(node.cpus);
        Ok(Some(match node.default {
            DefaultMemory::PerCpu(mebibytes) => mebibytes.saturating_mul(cpus).max(1),
            DefaultMemory::PerNode(mebibytes) => mebibytes,
        }))
    }

    /// Minutes of wall time; `None` if it says nothing of time.
    pub(super) fn minutes(&self) -> Value<Option<Amount>> {
        let Some(text) = self.parsed.value("time") else {
            return Ok(None);
        };
        Ok(Some(
            match text.to_str().and_then(duration).ok_or("--time")? {
                // 0 asks for no limit (`sbatch(1)`, --time).
                Duration::Seconds(0) | Duration::Unlimited => Amount::Endless,
                Duration::Seconds(seconds) => Amount::Of(seconds.div_ceil(60)),
            },
        ))
    }

    /// The tasks of an array; `None` if it is none.
    pub(super) fn array(&self) -> Value<Option<Amount>> {
        let Some(text) = self.parsed.value("array") else {
            return Ok(None);
        };
        Ok(Some(Amount::Of(array_tasks(text).ok_or("--array")?)))
    }
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

/// MiB of `500`, `500M`, `2G`, `2GB` (`sbatch(1)`, `--mem`), rounded up; 0 for an empty text.
fn mebibytes(text: &OsStr) -> Option<u64> {
    let text = text.to_str()?.to_ascii_uppercase();
    let text = text.strip_suffix('B').unwrap_or(&text);
    let (digits, shift) = match text.as_bytes().last() {
        None => return Some(0),
        Some(b'K') => (&text[..text.len() - 1], 0),
        Some(b'M') => (&text[..text.len() - 1], 10),
        Some(b'G') => (&text[..text.len() - 1], 20),
        Some(b'T') => (&text[..text.len() - 1], 30),
        Some(_) => (text, 10),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok().filter(|number| *number < LARGEST)?;
    Some(number.checked_mul(1 << shift)?.div_ceil(1024))
}

/// The largest number of `2`, `2-4`, `1,3-5`, `4-16:4`.
fn most_of(text: &str) -> Option<u64> {
    let mut most = 0;
    for part in text.split(',') {
        let range = part.split_once(':').map_or(part, |(range, _)| range);
        let last = match range.split_once('-') {
            None => number(range)?,
            // Behind a dash 0 means that there is no limit.
            Some((first, last)) => number(first)?.max(number(last).filter(|last| *last > 0)?),
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

/// Whether this is the name of a type, and no number in a form of Slurm's own (`+8`, `1kb`).
fn is_type(text: &str) -> bool {
    text.bytes()
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic())
}

/// GPUs of `2`, `a100:2`, `a100:2,v100:1`.
fn devices(text: &OsStr) -> Option<u64> {
    let mut sum = 0u64;
    for part in text.to_str()?.split(',') {
        let count = part.rsplit_once(':').map_or(part, |(_, count)| count);
        // A type without a number is one.
        let count = match number(count) {
            Some(count) => count,
            None if !part.contains(':') && is_type(part) => 1,
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
pub fn named_gpus(text: &OsStr) -> Option<u64> {
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
            [only] => match number(only) {
                Some(count) => count,
                None if is_type(only) => 1,
                None => return None,
            },
            [_, count] => number(count)?,
            _ => return None,
        };
        sum = sum.checked_add(count.div_ceil(each))?;
    }
    Some(sum)
}

/// CPUs of `cpu:2,gres/gpu:1`, `cpu=2`. What memory a task asks for so is not understood.
fn cpus_of_tres(text: &OsStr) -> Option<u64> {
    let mut most = 0u64;
    for part in text.to_str()?.split(',') {
        let part = part.to_ascii_lowercase().replace('=', ":");
        let (name, count) = part.split_once(':').unwrap_or((&part, "1"));
        match name {
            "cpu" => most = most.max(number(count)?),
            "mem" => return None,
            _ => {}
        }
    }
    Some(most)
}

/// The tasks of an array: `0-15`, `0,6,16-32`, `0-15:4`, with `%4` behind it (`sbatch(1)`).
pub fn array_tasks(text: &OsStr) -> Option<u64> {
    let text = std::str::from_utf8(text.as_bytes()).ok()?;
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
