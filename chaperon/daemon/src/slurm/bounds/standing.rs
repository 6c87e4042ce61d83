//! A job that is there, by what Slurm says of it: changed, requeued or released it is held against the bounds like a
//! new one.

use std::ffi::OsString;
use std::rc::Rc;

use agent_sandbox_wire::bounds::{Bounds, NameKey, SizeKey};
use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;

use super::amounts::{most_of, named_gpus, total_gpus};
use super::asked::{Amount, Asked, Value};
use super::node::{is_whole, node};
use super::{Breach, Node, OF_NODES, Place, Rules, names};
use crate::refusal::Refusal;
use crate::session::Session;
use crate::slurm::ask::ask;
use crate::slurm::parse::{Duration, duration};

/// What Slurm says of a job, or of a task of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandingJob {
    /// Its account and partitions.
    pub place: Place,
    /// What it asks for.
    pub asked: Asked,
    /// Whether it gets whole nodes, of its own wish.
    pub whole: bool,
    /// Memory that it asks for, in bytes, and whether on each node, or for each CPU. 0 is all of a node.
    pub memory: Option<(u64, bool)>,
}

/// A key of `scontrol show job` that begins a line, and those behind it on that line. What users chose freely
/// (`JobName`, `Comment`, `WCKey`) stands on other lines, or behind them.
const LINES: [(&str, &[&str]); 11] = [
    ("Priority", &["Account", "QOS"]),
    ("RunTime", &["TimeLimit"]),
    ("Partition", &[]),
    ("NumNodes", &["NumCPUs"]),
    ("ReqTRES", &[]),
    ("TRES", &[]),
    (
        "MinCPUsNode",
        &["MinMemoryCPU", "MinMemoryNode", "MinMemoryTRES"],
    ),
    ("Prefer", &[]),
    ("TresPerNode", &[]),
    ("Features", &[]),
    ("OverSubscribe", &["Exclusive", "Licenses"]),
];

impl StandingJob {
    /// A job, and each task of an array that Slurm tells apart.
    ///
    /// # Errors
    /// Slurm does not answer.
    pub async fn all(session: &Rc<Session>, job: &str) -> Result<Vec<Self>, Refusal> {
        let words = ["show", "job", job].map(OsString::from).to_vec();
        let said = ask(session, Command::Scontrol, words, Vec::new()).await?;
        if said.end != End::SUCCESS {
            // What it is, nobody knows: then it is nothing that could be acted on.
            let text = String::from_utf8_lossy(&said.error).trim().to_owned();
            return Err(Refusal::mistake(text));
        }
        let text = String::from_utf8_lossy(&said.output);
        let all: Vec<Self> = text.split("\n\n").filter_map(Self::read).collect();
        // What Slurm says nothing of would be within all bounds.
        match all.is_empty() {
            true => Err(Refusal::mistake(format!("Slurm says nothing of job {job}"))),
            false => Ok(all),
        }
    }

    /// From the lines about one job.
    fn read(block: &str) -> Option<Self> {
        if !block.trim_start().starts_with("JobId=") {
            return None;
        }
        let mut found: Vec<(&str, &str)> = Vec::new();
        for line in block.lines().skip(1) {
            let words: Vec<(&str, &str)> = line
                .split_ascii_whitespace()
                .filter_map(|word| word.split_once('='))
                .collect();
            let Some((first, _)) = words.first() else {
                continue;
            };
            let own = line.trim_start().starts_with(first);
            if let Some((_, behind)) = LINES.iter().find(|(key, _)| own && key == first) {
                // `Network`, which a user chooses, ends the line of `Exclusive`, which is the second word there.
                let wanted = |(at, (key, _)): &(usize, &(&str, &str))| {
                    key == first || behind.contains(key) && (*key != "Exclusive" || *at == 1)
                };
                let wanted = words.iter().enumerate().filter(wanted);
                found.extend(wanted.map(|(_, word)| word));
            }
            if *first == "Reservation" {
                found.extend(words.first());
            }
        }
        let value = |key: &str| {
            let found = found.iter().find(|(known, _)| *known == key);
            let none = |text: &&str| !matches!(*text, "" | "(null)" | "N/A");
            found.map(|(_, text)| *text).filter(none)
        };
        let mut asked = Asked::default();
        let named = [
            (NameKey::Partitions, "Partition"),
            (NameKey::Accounts, "Account"),
            (NameKey::Qos, "QOS"),
            (NameKey::Reservations, "Reservation"),
            (NameKey::Constraints, "Features"),
            (NameKey::Constraints, "Prefer"),
            (NameKey::Licenses, "Licenses"),
        ];
        for (key, name) in named {
            let Some(text) = value(name) else { continue };
            let names = match key {
                NameKey::Constraints => names::features(text.as_ref()),
                NameKey::Licenses => names::licenses(text.as_ref()),
                _ => names::list(text.as_ref()),
            };
            asked.names.push((key, names.ok_or(name)));
        }
        let list = |key: &str| {
            let text = value(key)?;
            names::list(text.as_ref())
        };
        let place = Place {
            account: list("Account").and_then(|names| names.into_iter().next()),
            partitions: list("Partition").unwrap_or_default(),
        };
        // `2-4` is a range, and since 23.02 `2,8` a list.
        let most = |key: &'static str| -> Option<Value<Amount>> {
            let most = most_of(value(key)?);
            Some(most.map(Amount::Of).ok_or(key))
        };
        let sizes = &mut asked.sizes;
        sizes.extend(most("NumNodes").map(|size| (SizeKey::Nodes, size)));
        sizes.extend(most("NumCPUs").map(|size| (SizeKey::Cpus, size)));
        if let Some(tres) = value("ReqTRES").or(value("TRES")) {
            let gpus = total_gpus(tres.as_ref()).ok_or("TRES");
            sizes.push((SizeKey::Gpus, gpus.map(Amount::Of)));
            let memory = tres.split(',').find_map(|one| one.strip_prefix("mem="));
            let memory = memory.map(|text| bytes(text).map(Amount::Of).ok_or("TRES"));
            sizes.extend(memory.map(|memory| (SizeKey::Memory, memory)));
        }
        // What counts by the node cannot be counted.
        if sizes
            .iter()
            .any(|(key, size)| *key == SizeKey::Nodes && size.is_err())
        {
            sizes.extend(OF_NODES.map(|key| (key, Err("NumNodes"))));
        }
        if let Some(text) = value("TimeLimit") {
            let minutes = match duration(text) {
                Some(Duration::Seconds(seconds)) => Ok(Amount::Of(seconds.div_ceil(60))),
                Some(Duration::Unlimited) => Ok(Amount::Endless),
                // The partition's, which is set when it starts.
                None if text == "Partition_Limit" => Ok(Amount::Endless),
                None => Err("TimeLimit"),
            };
            sizes.push((SizeKey::Minutes, minutes));
        }
        if let Some(each) = value("TresPerNode") {
            // Of a job that is not there yet Slurm counts the fewest nodes.
            let nodes = asked.size(SizeKey::Nodes).unwrap_or(1);
            let gpus = named_gpus(each.as_ref()).ok_or("TresPerNode");
            let gpus = gpus.map(|each| Amount::Of(each.saturating_mul(nodes)));
            asked.sizes.push((SizeKey::Gpus, gpus));
        }
        let per_node = value("MinMemoryNode").and_then(|text| Some((bytes(text)?, true)));
        let per_cpu = value("MinMemoryCPU").and_then(|text| Some((bytes(text)?, false)));
        // Memory by the GPU, since 24.11: before that Slurm says 0 for each node, which is all of it.
        let per_gpu = value("MinMemoryTRES").map(|_| (0, true));
        Some(Self {
            place,
            asked,
            // Before 26.05 `NO` is what `--exclusive` makes of it, `OK` what nobody asked for.
            whole: match value("Exclusive") {
                Some(exclusive) => is_whole(exclusive),
                None => matches!(value("OverSubscribe"), Some("NO" | "EXCLUSIVE")),
            },
            memory: per_gpu.or(per_node).or(per_cpu),
        })
    }

    /// Counts what Slurm says of a job when it starts, and not before: the most nodes, and whole ones.
    ///
    /// # Errors
    /// Slurm does not say what the nodes have.
    pub async fn count(&mut self, session: &Rc<Session>) -> Result<(), Refusal> {
        let rules = Rules::about(&session.order.bounds, &self.place);
        if OF_NODES.into_iter().any(|key| rules.most(key).is_some()) {
            let node = node(session, &self.place).await?;
            self.count_on(&node);
        }
        Ok(())
    }

    fn count_on(&mut self, node: &Node) {
        let asked = &mut self.asked;
        let nodes = asked.size(SizeKey::Nodes).unwrap_or(1);
        let mut cpus = asked.size(SizeKey::Cpus).unwrap_or(1);
        let of = |size: u64| Ok(Amount::Of(size));
        if self.whole || node.whole {
            cpus = cpus.max(node.cpus.saturating_mul(nodes));
            let gpus = node.gpus.saturating_mul(nodes);
            asked.sizes.push((SizeKey::Gpus, of(gpus)));
        }
        asked.sizes.push((SizeKey::Cpus, of(cpus)));
        let all = (node.memory << 20, true);
        if let Some((each, on_node)) = self.memory.map(|one| if one.0 == 0 { all } else { one }) {
            let times = if on_node { nodes } else { cpus };
            let memory = of(each.saturating_mul(times));
            asked.sizes.push((SizeKey::Memory, memory));
        }
    }

    /// Takes a new value for a key of `scontrol update`, if it is one of names; whether it is.
    pub fn becomes(&mut self, key: &str, value: &str) -> bool {
        // Without a name it would get Slurm's default, whatever that is.
        let named = || names::list(value.as_ref()).filter(|names| !names.is_empty());
        let (key, names) = match key {
            "Partition" => (NameKey::Partitions, named()),
            "Account" => (NameKey::Accounts, named()),
            "QOS" => (NameKey::Qos, named()),
            "ReservationName" => (NameKey::Reservations, names::list(value.as_ref())),
            "Features" => (NameKey::Constraints, names::features(value.as_ref())),
            "Licenses" => (NameKey::Licenses, names::licenses(value.as_ref())),
            // It is asked for besides.
            "Prefer" => {
                let names = names::features(value.as_ref()).ok_or("Prefer");
                self.asked.names.push((NameKey::Constraints, names));
                return true;
            }
            _ => return false,
        };
        match (key, &names) {
            (NameKey::Partitions, names) => {
                self.place.partitions = names.clone().unwrap_or_default();
            }
            (NameKey::Accounts, names) => {
                self.place.account = names.clone().and_then(|names| names.into_iter().next());
            }
            _ => {}
        }
        self.asked.names.retain(|(known, _)| *known != key);
        self.asked.names.push((key, names.ok_or("the new value")));
        true
    }

    /// Takes new sizes for those of their kind.
    pub fn sizes(&mut self, key: SizeKey, amounts: &[Amount]) {
        self.asked.sizes.retain(|(known, _)| *known != key);
        let amounts = amounts.iter().map(|amount| (key, Ok(*amount)));
        self.asked.sizes.extend(amounts);
    }

    /// What of it is too much.
    pub fn breaches(&self, bounds: &Bounds) -> Vec<Breach> {
        self.asked.breaches(&Rules::about(bounds, &self.place))
    }
}

/// Bytes of `500M`, `15.50G`, rounded up.
fn bytes(text: &str) -> Option<u64> {
    let shift = match text.as_bytes().last()? {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        b'T' => 40,
        b'P' => 50,
        _ => return text.parse::<u64>().ok()?.checked_mul(1 << 20),
    };
    let number = &text[..text.len() - 1];
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if part.len() > 9 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let unit = 1u64 << shift;
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let part = match part {
        "" => 0,
        digits => {
            let scale = 10u128.pow(u32::try_from(digits.len()).ok()?);
            let part = digits.parse::<u128>().ok()? * u128::from(unit);
            u64::try_from(part.div_ceil(scale)).ok()?
        }
    };
    whole.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "JobId=12 JobName=x Partition=free Account=free\n   \
        UserId=ada(1000) GroupId=ada(1000) MCS_label=N/A\n   \
        Priority=4294901757 Nice=0 Account=proj1 QOS=normal WCKey=* Account=free\n   \
        JobState=PENDING Reason=JobHeldUser Dependency=(null)\n   \
        RunTime=00:00:00 TimeLimit=1-00:00:00 TimeMin=N/A\n   \
        Partition=debug,long AllocNode:Sid=localhost:2\n   ReqNodeList=(null) ExcNodeList=(null)\n   \
        NodeList=\n   NumNodes=2-4 NumCPUs=8 NumTasks=8 CPUs/Task=1\n   \
        TRES=cpu=8,mem=1.50G,node=2,billing=8,gres/gpu=2\n   \
        Features=a100|[b*2&c] DelayBoot=00:00:00\n   Reservation=course\n   \
        OverSubscribe=OK Contiguous=0 Licenses=matlab:2 Network=(null)\n   Command=/x Features=no\n";

    #[test]
    fn a_job_is_what_slurm_says_and_not_what_it_is_called() {
        let job = StandingJob::read(SHOWN).unwrap();
        let names = |all: &[&str]| Ok(all.iter().map(|&one| one.to_owned()).collect());
        assert_eq!(job.place.account.as_deref(), Some("proj1"));
        assert_eq!(job.place.partitions, ["debug", "long"]);
        assert_eq!(
            job.asked.names,
            [
                (NameKey::Partitions, names(&["debug", "long"])),
                (NameKey::Accounts, names(&["proj1"])),
                (NameKey::Qos, names(&["normal"])),
                (NameKey::Reservations, names(&["course"])),
                (NameKey::Constraints, names(&["a100", "b", "c"])),
                (NameKey::Licenses, names(&["matlab"])),
            ]
        );
        assert_eq!(
            job.asked.sizes,
            [
                (SizeKey::Nodes, Ok(Amount::Of(4))),
                (SizeKey::Cpus, Ok(Amount::Of(8))),
                (SizeKey::Gpus, Ok(Amount::Of(2))),
                (SizeKey::Memory, Ok(Amount::Of(3 << 29))),
                (SizeKey::Minutes, Ok(Amount::Of(1440))),
            ]
        );
        assert_eq!(StandingJob::read("\n"), None);
    }

    /// What Slurm 22.05 says of pending jobs is about the fewest nodes, and not about whole ones.
    #[test]
    fn what_a_pending_job_will_get_counts() {
        let node = Node {
            whole: false,
            cpus: 8,
            memory: 8000,
            gpus: 4,
            threads: 2,
            together: 2,
            core_for_task: false,
            default: super::super::node::DefaultMemory::PerCpu(100),
            most_of_cpu: None,
            cpus_of_gpu: 0,
        };
        let job = |nodes: &str, memory: &str, shared: &str| {
            let text = format!(
                "JobId=12 JobName=x\n   NumNodes={nodes} NumCPUs=1 NumTasks=1\n   \
                 TRES=cpu=1,mem=200M,node=1,gres/gpu=2,gres/gpu:a100=2\n   \
                 MinCPUsNode=1 {memory} MinTmpDiskNode=0\n   \
                 OverSubscribe={shared} Contiguous=0 Licenses=(null)\n   \
                 Command=/x MinMemoryNode=1\n   TresPerNode=gres:gpu:2\n"
            );
            StandingJob::read(&text).unwrap()
        };
        let most = |mut job: StandingJob, node: &Node| {
            job.count_on(node);
            [SizeKey::Gpus, SizeKey::Cpus, SizeKey::Memory].map(|key| {
                let sizes = job.asked.sizes.iter().filter(|(known, _)| *known == key);
                let numbers = sizes.map(|(_, size)| match size {
                    Ok(Amount::Of(size)) => *size,
                    other => panic!("{other:?}"),
                });
                numbers.max().unwrap()
            })
        };
        let mebibyte = 1 << 20;
        let per_node = job("1-3", "MinMemoryNode=200M", "OK");
        assert_eq!(most(per_node, &node), [6, 1, 600 * mebibyte]);
        let whole = job("1-3", "MinMemoryCPU=100M", "NO");
        assert_eq!(most(whole, &node), [12, 24, 2400 * mebibyte]);
        for (exclusive, cpus) in [("NO", 1), ("NODE", 24)] {
            let job = job(
                "1-3",
                "MinMemoryCPU=100M",
                &format!("NO Exclusive={exclusive}"),
            );
            assert_eq!(most(job, &node)[1], cpus, "{exclusive}");
        }
        let all = job("2-2", "MinMemoryNode=0", "OK");
        assert_eq!(most(all, &node), [4, 1, 16_000 * mebibyte]);
        let by_gpu = job("1-3", "MinMemoryTRES=100M", "OK");
        assert_eq!(most(by_gpu, &node), [6, 1, 24_000 * mebibyte]);
        let listed = job("1,3", "MinMemoryNode=200M", "NO");
        assert_eq!(most(listed, &node), [12, 24, 600 * mebibyte]);
        let said = job(
            "1",
            "MinMemoryCPU=100M",
            "NO Contiguous=0 Network=x Exclusive=NO",
        );
        assert!(said.whole, "the user's word");
        let odd = job("some", "MinMemoryNode=200M", "OK");
        for key in OF_NODES {
            let sizes = odd.asked.sizes.iter();
            assert!(
                sizes
                    .filter(|(known, _)| *known == key)
                    .any(|(_, size)| size.is_err())
            );
        }
        let moved = job("1", "MinMemoryCPU=100M", "OK");
        let there = Node {
            whole: true,
            ..node
        };
        assert_eq!(most(moved, &there), [4, 8, 800 * mebibyte]);
    }
}
