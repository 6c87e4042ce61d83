//! A job that is changed, as it would be, against the bounds.

use std::ffi::OsStr;

use agent_sandbox_wire::bounds::{BoundSet, Bounds, NameKey, SizeBound, SizeKey};

use super::{Change, Growth, Kind, counts, relative};
use crate::refusal::{Reason, Refusal};
use crate::slurm::bounds::{self, Amount, Place, Rules, StandingJob, count_nodes};
use crate::slurm::parse::Duration;

/// A job, as it would be.
pub(super) fn changed(mut job: StandingJob, changes: &[Change]) -> StandingJob {
    let mut times = Vec::new();
    for change in changes {
        job.becomes(change.name, &change.value);
        if change.kind == Kind::Limit {
            times.extend(time(change));
        }
    }
    if !times.is_empty() {
        job.sizes(SizeKey::Minutes, &times);
    }
    job
}

/// Holds a job, as it would be, against the bounds.
pub(super) fn allowed(
    bounds: &Bounds,
    job: &StandingJob,
    changes: &[Change],
) -> Result<(), Refusal> {
    let rules = Rules::about(bounds, &job.place);
    for change in changes {
        let option = OPTIONS.iter().find(|(name, _)| *name == change.name);
        match option {
            Some((_, long)) => {
                bounds::first(bounds::judge_option(&rules, long).into_iter().collect())?
            }
            // Nobody knows which option it stands for.
            None if rules.about_options() => {
                return Err(refused(change.name, "slurm.bounds.options", None));
            }
            None => {}
        }
        grows(&rules, change)?;
    }
    // One that becomes shorter is no more than it is. What is changed otherwise may run that did not before.
    let shorter = |change: &Change| change.kind == Kind::Limit && time(change).is_none();
    match changes.iter().all(shorter) {
        true => Ok(()),
        false => bounds::first(job.asked.breaches(&rules)),
    }
}

/// Refuses to move a job to where its size, its options or its features are bounded that were not where it was: Slurm says of
/// a job that waits the least that it will have, and not by which options it asks.
pub(super) fn moves(bounds: &Bounds, from: &Place, to: &Place) -> Result<(), Refusal> {
    let before = Rules::surely_about(bounds, from);
    let known = |set: &BoundSet| before.sets().any(|one| std::ptr::eq(one, set));
    for set in Rules::about(bounds, to).sets().filter(|set| !known(set)) {
        let size = set.sizes.iter().find(|size| size.key != SizeKey::Minutes);
        let size = size.map(|size| (size.key.name(), &size.source));
        let mut names = set.names.iter();
        let names = names.find(|list| matches!(list.key, NameKey::Options | NameKey::Constraints));
        let names = names.map(|list| (list.key.name(), &list.source));
        let denied = set
            .denied
            .first()
            .map(|(_, source)| ("slurm.bounds.deny_options", source));
        if let Some((key, source)) = size.or(names).or(denied) {
            return Err(refused("Partition or Account", key, Some(source)));
        }
    }
    Ok(())
}

/// The options that stand for the same as keys do.
const OPTIONS: [(&str, &str); 48] = [
    ("ArrayTaskThrottle", "array"),
    ("NumCPUs", "ntasks"),
    ("Comment", "comment"),
    ("DelayBoot", "delay-boot"),
    ("TimeLimit", "time"),
    ("TimeMin", "time-min"),
    ("Priority", "priority"),
    ("Nice", "nice"),
    ("CPUsPerTask", "cpus-per-task"),
    ("NumTasks", "ntasks"),
    ("ReqProcs", "ntasks"),
    ("Requeue", "requeue"),
    ("ReqNodes", "nodes"),
    ("NumNodes", "nodes"),
    ("ReqSockets", "sockets-per-node"),
    ("ReqCores", "cores-per-socket"),
    ("ReqThreads", "threads-per-core"),
    ("TasksPerNode", "ntasks-per-node"),
    ("MinCPUsNode", "mincpus"),
    ("MinMemoryNode", "mem"),
    ("MinMemoryCPU", "mem-per-cpu"),
    ("MinTmpDiskNode", "tmp"),
    ("Partition", "partition"),
    ("QOS", "qos"),
    ("ReservationName", "reservation"),
    ("Name", "job-name"),
    ("JobName", "job-name"),
    ("WCKey", "wckey"),
    ("Switches", "switches"),
    ("wait-for-switch", "switches"),
    ("OverSubscribe", "oversubscribe"),
    ("Shared", "oversubscribe"),
    ("Contiguous", "contiguous"),
    ("CoreSpec", "core-spec"),
    ("ThreadSpec", "thread-spec"),
    ("ExcNodeList", "exclude"),
    ("NodeList", "nodelist"),
    ("ReqNodeList", "nodelist"),
    ("Features", "constraint"),
    ("Prefer", "prefer"),
    ("Account", "account"),
    ("Licenses", "licenses"),
    ("Dependency", "dependency"),
    ("EligibleTime", "begin"),
    ("StartTime", "begin"),
    ("Deadline", "deadline"),
    ("MailType", "mail-type"),
    ("MailUser", "mail-user"),
];

/// What a time limit becomes; `None` where it becomes less, whatever it is.
fn time(change: &Change) -> Option<Amount> {
    let (relative, time) = relative(change.sign, &change.value);
    let less = relative && (change.sign == "-" || change.value.starts_with('-'));
    match time {
        _ if less => None,
        // How long the job then is, Slurm alone would know.
        _ if relative => Some(Amount::Endless),
        Some(Duration::Seconds(seconds)) if seconds > 0 => Some(Amount::Of(seconds.div_ceil(60))),
        _ => Some(Amount::Endless),
    }
}

pub(super) fn refused(name: &str, key: &'static str, source: Option<&str>) -> Refusal {
    let place = source.map_or(String::new(), |source| format!(", {source}"));
    Refusal::rule(
        format!(
            "scontrol update of {name} is refused: what the job then has, Slurm alone would know, \
             and the policy bounds it (`{key}`{place})"
        ),
        "submit the job again",
    )
    .because(Reason::Key(key))
}

/// What a change makes of the hours of a job.
pub(super) fn growth(change: &Change) -> Growth {
    let most = |numbers: Vec<u64>| numbers.into_iter().max().unwrap_or(u64::MAX);
    match (change.kind, change.name) {
        (Kind::Limit, "TimeLimit") => match time(change) {
            None => Growth::No,
            Some(Amount::Of(minutes)) => Growth::Minutes(minutes),
            Some(Amount::Endless) => Growth::Unknown,
        },
        (Kind::Nodes, "ExcNodeList") => Growth::No,
        (Kind::Nodes, _) => {
            Growth::Nodes(count_nodes(OsStr::new(&change.value)).unwrap_or(u64::MAX))
        }
        (Kind::Count, "NumNodes" | "ReqNodes") => {
            Growth::Nodes(most(counts(&change.value).unwrap_or_default()))
        }
        (Kind::Size | Kind::Count, _) => Growth::Unknown,
        // More memory than its CPUs have gives more CPUs; other partitions, whole nodes.
        (_, "MinMemoryNode" | "MinMemoryCPU" | "OverSubscribe" | "Shared" | "CoreSpec")
        | (_, "ThreadSpec" | "Partition") => Growth::Unknown,
        _ => Growth::No,
    }
}

/// Refuses what makes a job larger in a way that is not counted here, where its size is bounded.
fn grows(rules: &Rules<'_>, change: &Change) -> Result<(), Refusal> {
    use SizeKey::{Cpus, Gpus, Memory, Nodes};
    let name = change.name;
    let nodes = |text: &str| count_nodes(OsStr::new(text)).unwrap_or(u64::MAX);
    let within = |most: u64, numbers: &[u64]| numbers.iter().all(|number| *number <= most);
    let fewer = |bound: &SizeBound| match change.kind {
        Kind::Nodes => within(bound.most, &[nodes(&change.value)]),
        Kind::Count => within(bound.most, &counts(&change.value).unwrap_or_default()),
        _ => false,
    };
    let sizes: &[SizeKey] = match change.kind {
        Kind::Size => &[Nodes, Gpus, Cpus, Memory],
        // So many processors, or so many nodes.
        Kind::Count => &[Nodes, Gpus, Cpus, Memory],
        Kind::Nodes if name != "ExcNodeList" => &[Nodes, Gpus, Cpus, Memory],
        // Who asks for more memory than a CPU has gets more CPUs.
        Kind::Word if matches!(name, "MinMemoryNode" | "MinMemoryCPU") => &[Memory, Cpus],
        // Whole nodes, with all that is in them.
        Kind::Word if matches!(name, "OverSubscribe" | "Shared") => &[Gpus, Cpus, Memory],
        Kind::Number if matches!(name, "CoreSpec" | "ThreadSpec") => &[Gpus, Cpus, Memory],
        _ => return Ok(()),
    };
    for bound in sizes.iter().filter_map(|key| rules.most(*key)) {
        let counted = bound.key == Nodes && name != "NumCPUs";
        if !(counted && fewer(bound)) {
            return Err(refused(name, bound.key.name(), Some(&bound.source)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use agent_sandbox_wire::bounds::{JobCondition, NameBound};

    use super::super::{KEYS, read};
    use super::*;

    /// With bounds on sizes, as the policy has them.
    fn sizes(sizes: &[(SizeKey, u64)]) -> Bounds {
        let sizes = sizes.iter().map(|&(key, most)| SizeBound {
            key,
            most,
            source: "enforced.toml:3".into(),
        });
        let set = BoundSet {
            sizes: sizes.collect(),
            ..BoundSet::default()
        };
        Bounds { sets: vec![set] }
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn written(given: &[&str], bounds: &Bounds) -> Result<(), Refusal> {
        let (_, changes) = read(&words(given))?;
        allowed(bounds, &changed(StandingJob::default(), &changes), &changes)
    }

    #[test]
    fn every_key_stands_for_an_option() {
        for (name, _, kind) in KEYS {
            let of = OPTIONS.iter().filter(|(key, _)| *key == name).count();
            let expected = usize::from(!matches!(kind, Kind::Refused(_)));
            assert_eq!(of, expected, "{name}");
        }
    }

    #[test]
    fn what_makes_hours_more_is_counted_or_unknown() {
        let of = |word: &str| {
            let (_, changes) = read(&words(&["JobId=5", word])).unwrap();
            growth(&changes[0])
        };
        for (word, expected) in [
            ("TimeLimit=90", Growth::Minutes(90)),
            ("TimeLimit=2-0", Growth::Minutes(2880)),
            ("TimeLimit-=5", Growth::No),
            ("TimeLimit=-5", Growth::No),
            ("TimeLimit+=5", Growth::Unknown),
            ("TimeLimit=+5", Growth::Unknown),
            ("TimeLimit=0", Growth::Unknown),
            ("TimeLimit=UNLIMITED", Growth::Unknown),
            ("TimeMin=90", Growth::No),
            ("NumNodes=2-4", Growth::Nodes(4)),
            ("ReqNodes=3", Growth::Nodes(3)),
            ("NodeList=n[1-3]", Growth::Nodes(3)),
            ("ExcNodeList=n[1-3]", Growth::No),
            ("NumCPUs=8", Growth::Unknown),
            ("NumTasks=8", Growth::Unknown),
            ("MinCPUsNode=8", Growth::Unknown),
            ("MinMemoryNode=8G", Growth::Unknown),
            ("OverSubscribe=NO", Growth::Unknown),
            ("Partition=x", Growth::Unknown),
            ("ArrayTaskThrottle=9", Growth::No),
            ("Nice=5", Growth::No),
        ] {
            assert_eq!(of(word), expected, "{word}");
        }
    }

    #[test]
    fn limits_hold() {
        let limits = sizes(&[(SizeKey::Minutes, 60), (SizeKey::Nodes, 2)]);
        for word in [
            "TimeLimit=61",
            "TimeLimit=UNLIMITED",
            "TimeLimit+=1",
            "TimeLimit=+1",
            "TimeMin=61",
            "NumNodes=3",
            "ReqNodes=1-3",
            "NumCPUs=8",
            "numtasks=8",
            "ReqProcs=8",
            "TasksPerNode=1",
            "MinCPUsNode=64",
            "CPUsPerTask=64",
            "NodeList=n[1-3]",
        ] {
            assert!(written(&["JobId=5", word], &limits).is_err(), "{word}");
        }
        // Each of them, whatever stands behind it.
        for words in [
            ["TimeLimit=61", "TimeMin=5"],
            ["TimeLimit=61", "TimeLimit=5"],
            ["TimeLimit=61", "TimeLimit-=1"],
        ] {
            let given = ["JobId=5", words[0], words[1]];
            assert!(written(&given, &limits).is_err(), "{words:?}");
        }
        let gpus = sizes(&[(SizeKey::Gpus, 2)]);
        for word in ["NumNodes=2", "NumCPUs=8", "NumTasks=2", "NodeList=n1"] {
            assert!(written(&["JobId=5", word], &gpus).is_err(), "{word}");
            assert!(
                written(&["JobId=5", word], &Bounds::default()).is_ok(),
                "{word}"
            );
        }
        for word in [
            "TimeLimit=60",
            "TimeLimit=1:00:00",
            "TimeLimit-=10",
            "TimeLimit=-10",
            "NumNodes=1-2",
            "NodeList=n[1-2]",
            "ExcNodeList=n[1-9]",
            "Nice=5",
        ] {
            assert!(written(&["JobId=5", word], &limits).is_ok(), "{word}");
        }
    }

    /// A time or a dependency starts what waited.
    #[test]
    fn a_job_outside_of_the_bounds_is_not_changed_so_that_it_runs() {
        let bounds = sizes(&[(SizeKey::Minutes, 60)]);
        let mut job = StandingJob::default();
        job.sizes(SizeKey::Minutes, &[Amount::Of(61)]);
        let judged = |word: &str| {
            let (_, changes) = read(&words(&["JobId=5", word])).unwrap();
            allowed(&bounds, &changed(job.clone(), &changes), &changes)
        };
        for word in [
            "Priority=4294967295",
            "StartTime=now",
            "Dependency=",
            "Nice=0",
        ] {
            assert!(judged(word).is_err(), "{word}");
        }
        assert!(judged("TimeLimit-=1").is_ok());
        assert!(judged("TimeLimit=60").is_ok());
    }

    /// What a job that waits will have there, Slurm does not say: of `-N1-8` one node's CPUs.
    #[test]
    fn a_job_does_not_move_to_where_its_size_or_its_options_are_bounded() {
        let there = |partition: &[&str], account: Option<&str>| Place {
            account: account.map(str::to_owned),
            partitions: words(partition),
        };
        let conditional = |set: BoundSet| Bounds {
            sets: vec![BoundSet {
                when: JobCondition {
                    partitions: Some(words(&["gpu*"])),
                    accounts: Some(words(&["proj1"])),
                },
                ..set
            }],
        };
        let size = |key| conditional(sizes(&[(key, 8)]).sets.remove(0));
        let denied = conditional(BoundSet {
            denied: vec![("exclusive".into(), "enforced.toml:9".into())],
            ..BoundSet::default()
        });
        for bounds in [
            size(SizeKey::Cpus),
            size(SizeKey::Array),
            size(SizeKey::Nodes),
            denied,
        ] {
            let moved = |from: Place, to: Place| moves(&bounds, &from, &to).is_ok();
            let gpu = || there(&["gpu1"], Some("proj1"));
            assert!(!moved(there(&["cpu"], Some("proj1")), gpu()));
            assert!(!moved(
                there(&["cpu"], Some("proj1")),
                there(&["cpu", "gpu1"], Some("proj1"))
            ));
            assert!(!moved(there(&["gpu1"], Some("proj2")), gpu()));
            assert!(
                !moved(there(&["gpu1"], None), gpu()),
                "nobody knows where it was"
            );
            assert!(moved(gpu(), gpu()) && moved(gpu(), there(&["cpu"], Some("proj1"))));
            assert!(moved(gpu(), there(&["gpu2"], Some("proj1"))));
        }
        let time = size(SizeKey::Minutes);
        assert!(
            moves(
                &time,
                &there(&["cpu"], Some("proj1")),
                &there(&["gpu1"], Some("proj1"))
            )
            .is_ok()
        );
    }

    #[test]
    fn a_job_that_moves_is_bounded_where_it_goes() {
        let list = |key, allowed: &[&str]| NameBound {
            key,
            allowed: words(allowed),
            source: "enforced.toml:7".into(),
        };
        let bounds = Bounds {
            sets: vec![
                BoundSet {
                    names: vec![
                        list(NameKey::Partitions, &["cpu", "gpu"]),
                        list(NameKey::Licenses, &["matlab"]),
                        list(NameKey::Accounts, &["proj1"]),
                    ],
                    denied: vec![("nice".into(), "enforced.toml:9".into())],
                    ..BoundSet::default()
                },
                BoundSet {
                    when: JobCondition {
                        partitions: Some(words(&["gpu*"])),
                        accounts: None,
                    },
                    names: vec![list(NameKey::Qos, &["short"])],
                    sizes: sizes(&[(SizeKey::Minutes, 30)]).sets.remove(0).sizes,
                    ..BoundSet::default()
                },
            ],
        };
        let job = StandingJob {
            place: bounds::Place {
                account: None,
                partitions: words(&["cpu"]),
            },
            asked: bounds::Asked {
                names: vec![
                    (NameKey::Partitions, Ok(words(&["cpu"]))),
                    (NameKey::Qos, Ok(words(&["normal"]))),
                ],
                sizes: vec![(SizeKey::Minutes, Ok(Amount::Of(60)))],
            },
            ..StandingJob::default()
        };
        for (given, refused) in [
            (&["Partition=cpu"][..], None),
            (&["part=gpu"], Some("qos")),
            (&["Partition=gpu", "QOS=short"], Some("minutes")),
            (&["Partition=gpu", "QOS=short", "TimeLimit=30"], None),
            (&["Partition=cpu,gpu", "QOS=short"], Some("minutes")),
            (&["Partition=secret"], Some("partitions")),
            (&["Partition=cpu,secret"], Some("partitions")),
            (&["Licenses=matlab:2"], None),
            (&["L=matlab,other"], Some("licenses")),
            // Slurm would take its default.
            (
                &["Partition=", "QOS=short", "TimeLimit=30"],
                Some("partitions"),
            ),
            (
                &["Partition=,", "QOS=short", "TimeLimit=30"],
                Some("partitions"),
            ),
            (
                &["Partition=cpu,", "QOS=short", "TimeLimit=30"],
                Some("partitions"),
            ),
            (&["Account="], Some("accounts")),
            (&["Partition=gpu", "TimeLimit=30", "QOS="], Some("qos")),
            (&["Partition=gpu", "TimeLimit=30", "QOS=,"], Some("qos")),
            (&["ReservationName="], None),
            (&["Nice=-5"], Some("deny_options")),
            (&["ArrayTaskThrottle=3"], None),
            (&["Comment=Partition=secret"], None),
        ] {
            let mut given = words(given);
            given.push("JobId=5".into());
            let (_, changes) = read(&given).unwrap();
            let reason = allowed(&bounds, &changed(job.clone(), &changes), &changes).err();
            let reason = reason.map(|refusal| refusal.reason.to_string());
            let expected = refused.map(|key| format!("policy slurm.bounds.{key}"));
            assert_eq!(reason, expected, "{given:?}");
        }
    }
}
