//! How large a job is by its options: the most that it can get. What Slurm makes of options that say it in other
//! words (`_opt_verify` in its `opt.c`, `_valid_pn_min_mem` in `job_mgr.c`) is counted as well.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use super::amounts::{
    Devices, array_tasks, count_nodes, devices, mebibytes, most_of, named_devices, number,
    per_task, shape, sum,
};
use super::asked::{Amount, Value};
use super::node::{DefaultMemory, Node};
use crate::slurm::parse::{Duration, Origin, Parsed, duration};

/// Values of `--exclusive` with which nodes are only not shared with other users.
const SHARED: [&str; 2] = ["user", "mcs"];

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

    fn of_gpus(
        &self,
        long: &'static str,
        name: &'static str,
        read: impl Fn(&OsStr) -> Option<Devices>,
    ) -> Value<Devices> {
        let text = self.parsed.value(long);
        text.map_or(Ok(Devices::new()), |text| read(text).ok_or(name))
    }

    /// GPUs for each task.
    fn gpus_per_task(&self) -> Value<Devices> {
        let mut all = self.of_gpus("gpus-per-task", "--gpus-per-task", devices)?;
        all.extend(self.of_gpus("tres-per-task", "--tres-per-task", |text| {
            Some(per_task(text)?.gpus)
        })?);
        Ok(all)
    }

    /// The tasks that so many GPUs make, where it says how many each has.
    fn tasks_of(&self, gpus: u64) -> Value<u64> {
        let each = self.gpus_per_task()?;
        let fewest = each.iter().map(|(_, count)| *count).min();
        Ok(fewest.map_or(0, |each| gpus.div_ceil(each.max(1))))
    }

    /// The tasks that it names, by their number, or by that of its GPUs.
    fn named_tasks(&self) -> Value<u64> {
        let tasks = self.plain("ntasks", "--ntasks")?.max(self.tasks);
        let gpus = sum(&self.of_gpus("gpus", "--gpus", devices)?);
        Ok(tasks.max(self.tasks_of(gpus)?))
    }

    /// The fewest and the most nodes. A task takes a node at most.
    pub(super) fn nodes(&self) -> Value<(u64, u64)> {
        let listed = self.counted("nodelist", "--nodelist", count_nodes)?;
        let most = match self.parsed.value("nodes") {
            None => None,
            Some(text) => Some(text.to_str().and_then(most_of).ok_or("--nodes")?),
        };
        let tasks = self.named_tasks()?;
        let by_tasks = match self.plain("ntasks-per-node", "--ntasks-per-node")? {
            0 => tasks,
            per_node => tasks.div_ceil(per_node),
        };
        // So many GPUs are on no fewer nodes.
        let gpus = sum(&self.of_gpus("gpus", "--gpus", devices)?);
        let together = match sum(&self.of_gpus("gpus-per-node", "--gpus-per-node", devices)?) {
            0 => self.node.map_or(0, |node| node.gpus),
            per_node => per_node,
        };
        let by_gpus = if together == 0 {
            0
        } else {
            gpus.div_ceil(together)
        };
        // `--spread-job` and `--mincpus` spread tasks, but never over more nodes than tasks. With
        // `--nodes` the range holds.
        let least = match most {
            Some(_) => listed.max(1),
            None => listed.max(by_gpus).max(1),
        };
        Ok((least, most.unwrap_or(by_tasks).max(least)))
    }

    /// What the options of a node's shape multiply to, and how few threads of a core a task may use.
    fn shape(&self) -> Value<(u64, Option<u64>)> {
        let (whole, third) = match self.parsed.value("extra-node-info") {
            None => (1, None),
            Some(text) => shape(text).ok_or("--extra-node-info")?,
        };
        let sockets = self.plain("sockets-per-node", "--sockets-per-node")?.max(1);
        let cores = self.plain("cores-per-socket", "--cores-per-socket")?.max(1);
        let threads = self.plain("threads-per-core", "--threads-per-core")?;
        let product = sockets.saturating_mul(cores).saturating_mul(threads.max(1));
        let per_core = self.plain("ntasks-per-core", "--ntasks-per-core")?;
        let given = [third.unwrap_or(0), threads, per_core];
        let used = given.into_iter().filter(|used| *used > 0).min();
        // Any other hint takes one thread of a core (`verify_hint` in `proc_args.c`).
        let hint = self.parsed.value("hint");
        let one = hint.is_some_and(|hint| !hint.eq_ignore_ascii_case("multithread"))
            || self.node.is_some_and(|node| node.core_for_task);
        Ok((whole.max(product), if one { Some(1) } else { used }))
    }

    /// Whether it says how many tasks it has. Not every version of srun reads every variable.
    fn says_tasks(&self) -> bool {
        let given = self.parsed.last("ntasks");
        given.is_some_and(|given| !matches!(given.origin, Origin::Variable(_)))
    }

    /// The most tasks, without those that a number for each GPU makes.
    fn tasks(&self) -> Value<u64> {
        let (_, nodes) = self.nodes()?;
        let per_node = self.plain("ntasks-per-node", "--ntasks-per-node")?;
        // Slurm makes a task for each thread of that shape where nobody says how many.
        let told = self.says_tasks() && !self.parsed.has("overcommit");
        let of_shape = if told { 1 } else { self.shape()?.0 };
        let on_nodes = nodes.saturating_mul(per_node.max(of_shape));
        Ok(self.named_tasks()?.max(on_nodes))
    }

    /// The most GPUs: of each type that is named, and those without a type.
    pub(super) fn gpus(&self) -> Value<u64> {
        let ((_, nodes), tasks) = (self.nodes()?, self.tasks()?);
        let mut most: BTreeMap<String, u64> = BTreeMap::new();
        let mut counted = |gpus: Devices, times: u64| {
            // A type may stand there twice.
            let mut here: BTreeMap<String, u64> = BTreeMap::new();
            for (kind, count) in gpus {
                let sum = here.entry(kind).or_default();
                *sum = sum.saturating_add(count.saturating_mul(times));
            }
            for (kind, count) in here {
                let most = most.entry(kind).or_default();
                *most = count.max(*most);
            }
        };
        counted(self.of_gpus("gpus", "--gpus", devices)?, 1);
        counted(
            self.of_gpus("gpus-per-node", "--gpus-per-node", devices)?,
            nodes,
        );
        counted(self.gpus_per_task()?, tasks);
        let per_socket = self.of_gpus("gpus-per-socket", "--gpus-per-socket", devices)?;
        if self.parsed.has("gpus-per-socket") {
            // The sockets of a node are the cluster's to know, unless they are asked for.
            let sockets = match self.plain("sockets-per-node", "--sockets-per-node")? {
                0 => return Err("--gpus-per-socket"),
                sockets => sockets,
            };
            counted(per_socket, nodes.saturating_mul(sockets));
        }
        counted(self.of_gpus("gres", "--gres", named_devices)?, nodes);
        // So many tasks share a GPU.
        if self.parsed.has("ntasks-per-gpu") || self.parsed.has("ntasks-per-tres") {
            counted(vec![(String::new(), tasks)], 1);
        }
        let whole = self.of_whole(|node| node.gpus).saturating_mul(nodes);
        let all = most.values();
        Ok(all
            .fold(0u64, |sum, count| sum.saturating_add(*count))
            .max(whole))
    }

    /// The CPUs that it asks for, and what Slurm gives besides because it gives whole cores.
    fn cpus_of_tasks(&self) -> Value<u64> {
        let ((_, nodes), gpus) = (self.nodes()?, self.gpus()?);
        let per_gpu = self.plain("ntasks-per-gpu", "--ntasks-per-gpu")?;
        let per_tres = self.plain("ntasks-per-tres", "--ntasks-per-tres")?;
        let mut tasks = self
            .tasks()?
            .max(per_gpu.max(per_tres).saturating_mul(gpus));
        if !self.says_tasks() {
            tasks = tasks.max(self.tasks_of(gpus)?);
        }
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
        let of_tres = self.counted("tres-per-task", "--tres-per-task", |text| {
            Some(per_task(text)?.cpus)
        })?;
        let each = given.max(kept).max(of_tres).max(1);
        // A thread that is not used is given all the same.
        let threads = self.node.map_or(1, |node| node.threads);
        let (_, used) = self.shape()?;
        let cores = used.map_or(1, |used| threads.div_ceil(used).max(1));
        let rounded = |each: u64, times: u64, nodes: u64| {
            let each = each.saturating_mul(cores);
            let plain = each.saturating_mul(times);
            self.node
                .map_or(plain, |node| node.rounded(each, times, nodes))
        };
        let on_each = |each: u64| rounded(each, 1, 1).saturating_mul(nodes);
        let mut most = rounded(each, tasks, nodes);
        let per_node = self.plain("ntasks-per-node", "--ntasks-per-node")?;
        if per_node.saturating_mul(nodes) >= tasks {
            most = most.min(on_each(each.saturating_mul(per_node)));
        }
        let least = self.plain("mincpus", "--mincpus")?;
        let of_gpu = match self.is_given("cpus-per-gpu") {
            true => self.plain("cpus-per-gpu", "--cpus-per-gpu")?,
            false => self.node.map_or(0, |node| node.cpus_of_gpu),
        };
        Ok(most.max(on_each(least)).max(rounded(of_gpu, gpus, nodes)))
    }

    /// The same, or all of whole nodes.
    fn asked_cpus(&self) -> Value<u64> {
        let (_, nodes) = self.nodes()?;
        let whole = self.of_whole(|node| node.cpus).saturating_mul(nodes);
        Ok(self.cpus_of_tasks()?.max(whole))
    }

    /// By how much Slurm multiplies the CPUs of a task that asks for more memory for each than there is
    /// (`slurm.conf(5)`, `MaxMemPerCPU`).
    fn more_for_memory(&self) -> Value<u64> {
        let per_cpu = self.counted("mem-per-cpu", "--mem-per-cpu", mebibytes)?;
        let most = self.node.and_then(|node| node.most_of_cpu);
        Ok(most.map_or(1, |most| per_cpu.div_ceil(most).max(1)))
    }

    /// The most CPUs.
    pub(super) fn cpus(&self) -> Value<u64> {
        let of_tasks = self.cpus_of_tasks()?;
        let more = of_tasks.saturating_mul(self.more_for_memory()?);
        let asked = more.max(self.asked_cpus()?);
        let Some((node, most)) = self.node.and_then(|node| Some((node, node.most_of_cpu?))) else {
            return Ok(asked);
        };
        let per_node = match self.counted("mem", "--mem", mebibytes)? {
            0 if self.is_given("mem") => node.memory,
            0 => self.default_memory()?.unwrap_or(0),
            given => given,
        };
        let (_, nodes) = self.nodes()?;
        // That many on each node, and so many for each task.
        let of_memory = per_node.div_ceil(most).saturating_mul(nodes);
        Ok(match of_memory > asked {
            true => node.rounded(1, of_memory.saturating_add(self.tasks()?), nodes),
            false => asked,
        })
    }

    /// The most memory in bytes, on all nodes; `None` if it says nothing of memory.
    pub(super) fn memory(&self) -> Value<Option<u64>> {
        let (_, nodes) = self.nodes()?;
        if !self.names_memory() {
            // What it gets instead has to be known.
            self.default_memory()?;
            return Ok(None);
        }
        let per_node = self.counted("mem", "--mem", mebibytes)?;
        let per_cpu = self.counted("mem-per-cpu", "--mem-per-cpu", mebibytes)?;
        let per_gpu = self.counted("mem-per-gpu", "--mem-per-gpu", mebibytes)?;
        let mut most = per_node.saturating_mul(nodes);
        let rounded = per_cpu.next_multiple_of(self.more_for_memory()?);
        if per_cpu > 0 {
            most = most.max(rounded.saturating_mul(self.asked_cpus()?));
        }
        if per_gpu > 0 {
            most = most.max(per_gpu.saturating_mul(self.gpus()?));
        }
        // 0 asks for all that a node has (`sbatch(1)`, `--mem`).
        let all = |long: &str, value: u64| self.is_given(long) && value == 0;
        if all("mem", per_node) || all("mem-per-cpu", per_cpu) || all("mem-per-gpu", per_gpu) {
            let node = self.node.ok_or("--mem")?;
            most = most.max(node.memory.saturating_mul(nodes));
        }
        Ok(Some(most.saturating_mul(1 << 20)))
    }

    fn names_memory(&self) -> bool {
        let mut given = ["mem", "mem-per-cpu", "mem-per-gpu"].into_iter();
        given.any(|long| self.is_given(long))
    }

    /// Whether an option has a value: an empty one asks for nothing.
    fn is_given(&self, long: &str) -> bool {
        self.parsed.value(long).is_some_and(|text| !text.is_empty())
    }

    /// Memory for each node in MiB, for a job that says nothing of memory.
    pub(super) fn default_memory(&self) -> Value<Option<u64>> {
        let (false, Some(node)) = (self.names_memory(), self.node) else {
            return Ok(None);
        };
        let (least, _) = self.nodes()?;
        let cpus = self.asked_cpus()?.div_ceil(least).min(node.cpus);
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
