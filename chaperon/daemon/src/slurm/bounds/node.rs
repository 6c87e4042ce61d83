//! What the nodes of a job's partitions have, and what Slurm gives there beside what a job asks for.

use std::ffi::OsString;
use std::rc::Rc;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;

use super::Place;
use super::amounts::named_gpus;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::slurm::ask::ask;

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
    /// CPUs of a core.
    pub threads: u64,
    /// CPUs that no two jobs share: those of a core, or of a socket.
    pub together: u64,
    /// Whether no two tasks share a core (`slurm.conf(5)`, `CR_ONE_TASK_PER_CORE`).
    pub core_for_task: bool,
    /// What a job gets that says nothing of memory.
    pub default: DefaultMemory,
    /// The most memory of a CPU in MiB: who asks for more gets more CPUs (`MaxMemPerCPU`).
    pub most_of_cpu: Option<u64>,
    /// The CPUs that come with a GPU (`DefCpuPerGPU`).
    pub cpus_of_gpu: u64,
}

/// Memory in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultMemory {
    /// For each CPU.
    PerCpu(u64),
    /// On each node.
    PerNode(u64),
}

impl Node {
    /// The most CPUs of whole cores for so many times so many, on so many nodes.
    pub(super) fn rounded(&self, each: u64, times: u64, nodes: u64) -> u64 {
        let (all, together) = (each.saturating_mul(times), self.together.max(1));
        if each.is_multiple_of(together) {
            return all;
        }
        let most = all.saturating_add(nodes.min(times).saturating_mul(together - 1));
        most / together * together
    }

    /// Takes what Slurm says of the job's partitions and of the cluster.
    fn configured(&mut self, partitions: &[Words<'_>], cluster: &Words<'_>) {
        let most_of_cpu = |words: &Words<'_>| words.number("MaxMemPerCPU");
        let own = partitions.iter();
        self.most_of_cpu = own
            .filter_map(|own| most_of_cpu(own).or_else(|| most_of_cpu(cluster)))
            .min();
        let all = || partitions.iter().chain([cluster]);
        let gpus = all().filter_map(|words| words.value("JobDefaults"));
        let gpus = gpus.flat_map(|defaults| defaults.split(','));
        let gpus = gpus.filter_map(|one| one.strip_prefix("DefCpuPerGPU=")?.parse().ok());
        self.cpus_of_gpu = gpus.max().unwrap_or(0);
        self.whole |= cluster.value("SelectType") == Some("select/linear");
        // Since 26.05; before that it is sinfo's OVERSUBSCRIBE.
        let exclusive = partitions.iter().filter_map(|own| own.value("Exclusive"));
        self.whole |= exclusive.into_iter().any(is_whole);
        let selects = |what: &str| {
            let mut parameters = all().filter_map(|words| words.value("SelectTypeParameters"));
            parameters.any(|text| text.to_ascii_uppercase().contains(what))
        };
        self.core_for_task = selects("CR_ONE_TASK_PER_CORE");
        if !selects("CR_SOCKET") {
            self.together = self.threads;
        }
        // It is written into the job, so that any of several partitions will do.
        let own = partitions.first().and_then(Words::default_memory);
        if let Some(default) = own.or_else(|| cluster.default_memory()) {
            self.default = default;
        }
    }
}

/// Whether a job gets whole nodes with this `Exclusive` of its own or of its partition, as `scontrol show` has it since Slurm
/// 26.05 (`NO`, `USER`, `MCS`, `NODE`, `TOPO`; the last means `NODE` as well).
pub(super) fn is_whole(exclusive: &str) -> bool {
    !["NO", "USER", "MCS"].contains(&exclusive)
}

/// `KEY=VALUE` words.
#[derive(Clone)]
pub(super) struct Words<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Words<'a> {
    /// Of a line that has many.
    pub(super) fn of_line(line: &'a str) -> Self {
        let words = line.split_ascii_whitespace();
        Self(words.filter_map(|word| word.split_once('=')).collect())
    }

    /// Of lines that have one each.
    fn of_lines(text: &'a str) -> Self {
        let words = text.lines().filter_map(|line| line.split_once('='));
        let words = words.map(|(key, value)| (key.trim(), value.trim()));
        Self(words.collect())
    }

    pub(super) fn value(&self, key: &str) -> Option<&'a str> {
        let mut words = self.0.iter();
        words
            .find(|(known, _)| *known == key)
            .map(|(_, value)| *value)
    }

    fn number(&self, key: &str) -> Option<u64> {
        let number = self.value(key)?.parse().ok();
        number.filter(|number| *number > 0)
    }

    fn default_memory(&self) -> Option<DefaultMemory> {
        let per_cpu = self.number("DefMemPerCPU").map(DefaultMemory::PerCpu);
        per_cpu.or_else(|| self.number("DefMemPerNode").map(DefaultMemory::PerNode))
    }
}

/// What nodes of a job's partitions have; of the default one if it names none.
///
/// # Errors
/// Slurm does not say it.
pub(super) async fn node(session: &Rc<Session>, place: &Place) -> Result<Node, Refusal> {
    // Slurm 22.05 takes no --partition beside --all, without which hidden partitions are left out.
    let words = [
        "--noheader",
        "--all",
        "--exact",
        "--noconvert",
        "--format=%P|%h|%c|%m|%Y|%Z|%G",
    ];
    let nodes = said(session, Command::Sinfo, &words).await?;
    let words = ["--all", "--oneliner", "show", "partition"];
    let partitions = said(session, Command::Scontrol, &words).await?;
    let cluster = said(session, Command::Scontrol, &["show", "config"]).await?;
    read(&nodes, &partitions, &cluster, &place.partitions).ok_or_else(unknown)
}

fn unknown() -> Refusal {
    Refusal::mistake("Slurm does not say what nodes of the job's partitions have")
        .hint("the policy bounds GPUs, CPUs or memory: name a partition that is there")
}

async fn said(session: &Rc<Session>, command: Command, words: &[&str]) -> Result<String, Refusal> {
    let words = words.iter().map(OsString::from).collect();
    let said = ask(session, command, words, Vec::new()).await?;
    match said.end {
        End::SUCCESS => Ok(String::from_utf8_lossy(&said.output).into_owned()),
        _ => Err(unknown()),
    }
}

/// By what `sinfo`, `scontrol show partition` and `scontrol show config` say.
fn read(nodes: &str, partitions: &str, cluster: &str, named: &[String]) -> Option<Node> {
    let mut node = most(nodes, named)?;
    let all: Vec<Words<'_>> = partitions.lines().map(Words::of_line).collect();
    let is = |words: &Words<'_>, name: &str| words.value("PartitionName") == Some(name);
    let own: Vec<Words<'_>> = match named {
        [] => {
            let default = |words: &Words<'_>| words.value("Default") == Some("YES");
            all.into_iter().filter(default).collect()
        }
        // As they are named.
        named => {
            let its = named
                .iter()
                .map(|name| all.iter().find(|words| is(words, name)).cloned());
            its.collect::<Option<_>>()?
        }
    };
    node.configured(&own, &Words::of_lines(cluster));
    Some(node)
}

/// The most of a node of these partitions, of lines `PARTITION|OVERSUBSCRIBE|CPUS|MEMORY|CORES|THREADS|GRES`. If there
/// are none, the default partition's, which has a star, if there is one.
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
        let fields: Vec<&str> = line.splitn(7, '|').map(str::trim).collect();
        let [_, shared, cpus, memory, cores, threads, gres] = fields[..] else {
            return None;
        };
        let (cpus, memory): (u64, u64) = (cpus.parse().ok()?, memory.parse().ok()?);
        let (cores, threads): (u64, u64) = (cores.parse().ok()?, threads.parse().ok()?);
        let one = Node {
            whole: shared.eq_ignore_ascii_case("EXCLUSIVE"),
            cpus,
            memory,
            gpus: gpus(gres)?,
            threads,
            together: cores.checked_mul(threads)?,
            core_for_task: false,
            most_of_cpu: None,
            cpus_of_gpu: 0,
            default: DefaultMemory::PerCpu(memory / cpus.max(1)),
        };
        most = Some(most.map_or(one, |most| Node {
            whole: most.whole || one.whole,
            cpus: most.cpus.max(one.cpus),
            memory: most.memory.max(one.memory),
            gpus: most.gpus.max(one.gpus),
            threads: most.threads.max(one.threads),
            together: most.together.max(one.together),
            default: match (most.default, one.default) {
                (DefaultMemory::PerCpu(most), DefaultMemory::PerCpu(one)) => {
                    DefaultMemory::PerCpu(most.min(one))
                }
                (most, _) => most,
            },
            ..one
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

    fn named(names: &[&str]) -> Vec<String> {
        names.iter().map(|&one| one.to_owned()).collect()
    }

    #[test]
    fn the_most_of_a_node_counts() {
        let text = "debug*|NO|8|4000|4|2|(null)\ndebug*|NO|4|8000|4|1|gpu:2\n\
                    gpu|EXCLUSIVE|64|500|16|2|gpu:a100:4(S:0,1),gpu:v100:4,shard:32\ncpu|NO|1|1|1|1|\n";
        let node = |whole, cpus, memory, gpus, (threads, together), share| Node {
            whole,
            cpus,
            memory,
            gpus,
            threads,
            together,
            core_for_task: false,
            default: DefaultMemory::PerCpu(share),
            most_of_cpu: None,
            cpus_of_gpu: 0,
        };
        let of = |text: &str, names: &[&str]| most(text, &named(names));
        assert_eq!(of(text, &[]), Some(node(false, 8, 8000, 2, (2, 8), 500)));
        let all = ["debug", "gpu", "cpu"];
        assert_eq!(of(text, &all), Some(node(true, 64, 8000, 8, (2, 32), 1)));
        assert_eq!(of(text, &["gpu"]), Some(node(true, 64, 500, 8, (2, 32), 7)));
        assert_eq!(of(text, &["gpu", "none"]), None);
        assert_eq!(
            of("cpu*|NO|1|1|1|1|(null)\n", &[]),
            Some(node(false, 1, 1, 0, (1, 1), 1))
        );
        for odd in [
            "gpu|NO|1|1|1|1|gpu:a:b:c:d\n",
            "cpu|NO|4+|1|1|1|(null)\n",
            "cpu|NO|4|1|1|1+|(null)\n",
            "x\n",
            "",
        ] {
            assert_eq!(of(odd, &[]), None, "{odd}");
        }
    }

    /// As Slurm 22.05 says it.
    #[test]
    fn what_slurm_gives_by_its_configuration_is_read() {
        let nodes = "debug*|NO|8|8000|2|2|gpu:4\nmm|NO|8|8000|2|2|gpu:4\ngp|NO|8|8000|2|2|gpu:4\n";
        let partitions = "PartitionName=debug Default=YES SelectTypeParameters=NONE JobDefaults=(null) \
                          DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED\n\
                          PartitionName=mm Default=NO JobDefaults=(null) DefMemPerCPU=90 MaxMemPerCPU=100\n\
                          PartitionName=gp Default=NO SelectTypeParameters=CR_Socket_Memory \
                          JobDefaults=DefCpuPerGPU=2,DefMemPerGPU=500 DefMemPerNode=700 MaxMemPerNode=UNLIMITED\n";
        let cluster = "DefMemPerCPU            = 100\nJobDefaults             = (null)\n\
                       MaxMemPerNode           = UNLIMITED\nSelectType              = select/cons_tres\n\
                       SelectTypeParameters    = CR_CORE_MEMORY\n";
        let of = |cluster: &str, names: &[&str]| {
            read(nodes, partitions, cluster, &named(names)).unwrap()
        };
        let debug = of(cluster, &[]);
        assert_eq!(debug.default, DefaultMemory::PerCpu(100));
        assert_eq!(
            (debug.together, debug.whole, debug.core_for_task),
            (2, false, false)
        );
        assert_eq!((debug.most_of_cpu, debug.cpus_of_gpu), (None, 0));
        let exclusive = |value: &str| {
            let partitions = partitions.replace(
                "Default=NO JobDefaults",
                &format!("Default=NO Exclusive={value} JobDefaults"),
            );
            read(nodes, &partitions, cluster, &named(&["mm"]))
                .unwrap()
                .whole
        };
        let values = ["NO", "USER", "NODE", "TOPO"];
        assert_eq!(values.map(exclusive), [false, false, true, true]);
        let both = of(cluster, &["gp", "mm"]);
        assert_eq!(both.default, DefaultMemory::PerNode(700));
        assert_eq!(
            (both.most_of_cpu, both.cpus_of_gpu, both.together),
            (Some(100), 2, 4)
        );
        let other = "DefMemPerNode = UNLIMITED\nMaxMemPerCPU = 300\nSelectType = select/linear\n\
                     SelectTypeParameters = CR_ONE_TASK_PER_CORE\nJobDefaults = DefCpuPerGPU=3\n";
        let other = of(other, &["debug"]);
        assert!(other.whole && other.core_for_task);
        assert_eq!((other.most_of_cpu, other.cpus_of_gpu), (Some(300), 3));
        assert_eq!(other.default, DefaultMemory::PerCpu(1000));
        assert_eq!(read(nodes, partitions, cluster, &named(&["none"])), None);
    }
}
