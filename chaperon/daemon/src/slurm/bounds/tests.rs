//! What options ask for, and what of it is too much.

use agent_sandbox_wire::bounds::{BoundSet, JobCondition, NameBound, SizeBound};
use agent_sandbox_wire::command::Command;

use super::node::DefaultMemory;
use super::*;
use crate::slurm::parse::parse;

mod allocated;

fn sizes(all: &[(SizeKey, u64)]) -> Vec<SizeBound> {
    let each = all.iter().map(|&(key, most)| SizeBound {
        key,
        most,
        source: "site:3".into(),
    });
    each.collect()
}

fn list(key: NameKey, allowed: &[&str]) -> NameBound {
    NameBound {
        key,
        allowed: allowed.iter().map(|&one| one.to_owned()).collect(),
        source: "site:5".into(),
    }
}

fn of(set: BoundSet) -> Bounds {
    Bounds { sets: vec![set] }
}

fn limits() -> Bounds {
    of(BoundSet {
        sizes: sizes(&[
            (SizeKey::Nodes, 4),
            (SizeKey::Gpus, 8),
            (SizeKey::Minutes, 120),
        ]),
        ..BoundSet::default()
    })
}

fn parsed(command: Command, line: &str) -> Parsed {
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    parse(command, None, &words, &[]).unwrap()
}

/// What is added to a line, or what is too much.
fn judged(bounds: &Bounds, line: &str, node: Option<&Node>) -> Result<String, String> {
    let parsed = parsed(Command::Sbatch, line);
    let chosen = Chosen::of(bounds, &parsed, &Defaults::default());
    let Judgement { breaches, added } = judge(bounds, &parsed, chosen, node, 0);
    let added: Vec<_> = added.iter().map(|word| word.to_string_lossy()).collect();
    match breaches.first() {
        Some(breach) => Err(breach.refusal.message.clone()),
        None => Ok(added.join(" ")),
    }
}

#[test]
fn small_jobs_pass_and_get_what_keeps_them_small() {
    for (line, added) in [
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
        ("-N 1", "--time=120"),
    ] {
        assert_eq!(judged(&limits(), line, None), Ok(added.into()), "{line}");
    }
}

#[test]
fn tasks_of_a_file_count() {
    let parsed = parsed(Command::Srun, "-t1 x");
    let judge = |tasks| {
        let chosen = Chosen::of(&limits(), &parsed, &Defaults::default());
        judge(&limits(), &parsed, chosen, None, tasks)
    };
    assert_eq!(judge(3).added, ["--nodes=1-3"].map(OsString::from));
    assert!(!judge(5).breaches.is_empty());
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
        assert!(judged(&limits(), line, None).is_err(), "{line}");
    }
    assert_eq!(
        judged(&limits(), "-t 1 -N 5", None).unwrap_err(),
        "5 nodes: the policy allows 4 nodes (`slurm.bounds.nodes`, site:3)"
    );
}

const NODE: Node = Node {
    whole: false,
    cpus: 16,
    memory: 64_000,
    gpus: 4,
    threads: 1,
    together: 1,
    core_for_task: false,
    default: DefaultMemory::PerCpu(4000),
    most_of_cpu: None,
    cpus_of_gpu: 0,
};

#[test]
fn cpus_memory_and_what_whole_nodes_have_count() {
    let bounds = of(BoundSet {
        sizes: sizes(&[
            (SizeKey::Cpus, 8),
            (SizeKey::Memory, 16 << 30),
            (SizeKey::Gpus, 4),
            (SizeKey::Array, 10),
        ]),
        ..BoundSet::default()
    });
    let whole = Node {
        whole: true,
        ..NODE
    };
    for line in [
        "--mem=16G",
        "-n 4 -c 2 --mem-per-cpu=2G -N1",
        "-n 8 -N 2 --mem=8G",
        "-G 4 --mem-per-gpu=4096 --cpus-per-gpu=2",
        "--mem=1 -a 1-10%2",
        "--mem=1 --exclusive=user",
    ] {
        let added = if line.contains("-N") { "" } else { "--nodes=1" };
        let judged = judged(&bounds, line, Some(&NODE));
        assert_eq!(judged, Ok(added.into()), "{line}");
    }
    for line in [
        "--mem=17G",
        "--mem=16385",
        "--mem=16385M",
        "--mem=1T",
        "--mem=0",
        "--mem-per-cpu=0",
        "-N 2 --mem=9G",
        "-n 8 --mem-per-cpu=3G -N1",
        "-G 4 --mem-per-gpu=5G",
        "--mem=1 -n 9",
        "--mem=1 -n 3 -c 3",
        "--mem=1 -N 2 --ntasks-per-node=5",
        "--mem=1 --mincpus=9",
        "--mem=1 -G 2 --cpus-per-gpu=5",
        "--mem=1 -G 2 --ntasks-per-gpu=5",
        "--mem=1 --tres-per-task=cpu:9",
        "--mem=1 --tres-per-task=mem:9",
        "--mem=1 --exclusive",
        "--mem=1 --core-spec=1",
        "--mem=1 --thread-spec=1",
        "--mem=1 -a 1-11",
        "--mem=1 -N 9",
        "--mem=x",
    ] {
        assert!(judged(&bounds, line, Some(&NODE)).is_err(), "{line}");
    }
    assert!(judged(&bounds, "--mem=1", Some(&whole)).is_err());
    // A job that says nothing of memory gets what it would get, and never more than the bound.
    assert_eq!(
        judged(&bounds, "-n 2 -N1", Some(&NODE)),
        Ok("--mem=8000M".into())
    );
    assert_eq!(
        judged(&bounds, "-n 8 -N1", Some(&NODE)),
        Ok("--mem=16384M".into())
    );
    assert_eq!(
        judged(&bounds, "-n 8 -N2", Some(&NODE)),
        Ok("--mem=8192M".into())
    );
    let per_node = Node {
        default: DefaultMemory::PerNode(500),
        ..NODE
    };
    assert_eq!(
        judged(&bounds, "-n 2 -N2", Some(&per_node)),
        Ok("--mem=500M".into())
    );
}

#[test]
fn the_gpus_of_whole_nodes_count() {
    let gpus = of(BoundSet {
        sizes: sizes(&[(SizeKey::Gpus, 8)]),
        ..BoundSet::default()
    });
    assert!(judged(&gpus, "-N2 --exclusive", Some(&NODE)).is_ok());
    assert!(judged(&gpus, "-N3 --exclusive", Some(&NODE)).is_err());
    assert!(judged(&gpus, "-N3", Some(&NODE)).is_ok());
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
        assert_eq!(array_tasks(text.as_ref()), tasks, "{text}");
    }
}

fn names() -> Bounds {
    of(BoundSet {
        names: vec![
            list(NameKey::Partitions, &["gpu*", "short", "long"]),
            list(NameKey::Partitions, &["short", "gpu-a"]),
            list(NameKey::Accounts, &["proj1"]),
            list(NameKey::Qos, &["low", "normal"]),
            list(NameKey::Reservations, &[]),
            list(NameKey::Constraints, &["a100", "ib*"]),
            list(NameKey::Licenses, &["matlab"]),
        ],
        ..BoundSet::default()
    })
}

#[test]
fn a_job_that_names_nothing_gets_what_is_allowed_first() {
    let all = "--account=proj1 --partition=short --qos=low";
    assert_eq!(judged(&names(), "", None), Ok(all.into()));
    assert_eq!(judged(&names(), "--partition=", None), Ok(all.into()));
    assert_eq!(
        judged(&names(), "-p gpu-a,short -A PROJ1 -q Normal", None),
        Ok("".into())
    );
    // No name of two lists is in both, or there are patterns alone.
    let apart = of(BoundSet {
        names: vec![
            list(NameKey::Partitions, &["a"]),
            list(NameKey::Partitions, &["b"]),
        ],
        ..BoundSet::default()
    });
    assert!(judged(&apart, "", None).is_err());
    assert!(judged(&apart, "-p a", None).is_err());
    let patterns = of(BoundSet {
        names: vec![list(NameKey::Partitions, &["gpu*"])],
        ..BoundSet::default()
    });
    assert_eq!(
        judged(&patterns, "", None).unwrap_err(),
        "no --partition is given, and the policy allows `gpu*` (`slurm.bounds.partitions`, site:5)"
    );
}

#[test]
fn every_name_is_judged_in_every_form() {
    for line in [
        "-p debug",
        "--part=debug",
        "--partition=short,debug",
        "-pshort,",
        "-p short:debug",
        "-p [short]",
        "-A proj2",
        "-A proj1,proj2",
        "-q high",
        "-q low,high",
        "--reservation=x",
        "-C v100",
        "-C a100&v100",
        "-C a100|v100",
        "-C [a100|v100]",
        "-C a100*2&v100*2",
        "-C (a100&v100)*2",
        "-C a100,v100",
        "-C !a100",
        "-C a100*",
        "-C a100~x",
        "--prefer=v100",
        "--batch=v100",
        "-L abaqus",
        // Slurm takes no name between commas for its default, some versions at least.
        "-p ,",
        "-p short,",
        "-A ,",
        "-q ,",
        "-L matlab:2,abaqus:1",
        "-L matlab@other:2",
        "-L matlab;abaqus",
        "-L matlab|abaqus",
        "--tres-per-task=license/abaqus:1",
        "--tres-per-task=license:abaqus",
        "--tres-per-task=cpu:1,license/abaqus=1",
        "--resources=x",
    ] {
        assert!(judged(&names(), line, None).is_err(), "{line}");
    }
    let rest = "-p short -A proj1 -q low";
    for line in [
        "-C a100",
        "-C [a100|ib0]*2",
        "-C a100*2&(ib1|a100)",
        "--prefer=ib7",
        "-L matlab:2",
        "-L matlab",
        "--tres-per-task=license/matlab:1",
        "--reservation=",
    ] {
        let line = format!("{line} {rest}");
        assert_eq!(judged(&names(), &line, None), Ok("".into()), "{line}");
    }
    let parsed = parsed(Command::Sbatch, "-p shrot -A proj1 -q low");
    let chosen = Chosen::of(&names(), &parsed, &Defaults::default());
    let judgement = judge(&names(), &parsed, chosen, None, 0);
    assert_eq!(
        judgement.breaches[0].refusal.hints,
        ["the nearest allowed partition: short"]
    );
}

#[test]
fn options_are_allowed_and_denied_by_every_name_that_they_have() {
    let bounds = of(BoundSet {
        names: vec![list(NameKey::Options, &["time", "n*", "wrap", "exclusive"])],
        denied: vec![
            ("nice".into(), "site:8".into()),
            ("tasks-per-node".into(), "site:8".into()),
            ("exclusive".into(), "site:9".into()),
        ],
        ..BoundSet::default()
    });
    for line in ["-t 5", "-N1 -n2", "--wrap=true", "--nodelist=n1"] {
        assert!(judged(&bounds, line, None).is_ok(), "{line}");
    }
    for line in [
        "--nice",
        "--nic=5",
        "--exclusive",
        "--ntasks-per-node=2",
        "-p debug",
        "--mem=5",
    ] {
        assert!(judged(&bounds, line, None).is_err(), "{line}");
    }
    // By a variable, also one that is no option's.
    let variable = |name: &str| vec![(OsString::from(name), OsString::from("1"))];
    for (command, name) in [
        (Command::Sbatch, "SBATCH_EXCLUSIVE"),
        (Command::Srun, "SLURM_CPUS_PER_TASK"),
        (Command::Srun, "SLURM_CPU_BIND"),
    ] {
        let parsed = parse(command, None, &["-N1".into()], &variable(name)).unwrap();
        let chosen = Chosen::of(&bounds, &parsed, &Defaults::default());
        let judged = judge(&bounds, &parsed, chosen, None, 0);
        assert!(!judged.breaches.is_empty(), "{name}");
    }
    assert_eq!(unknown_options(&bounds), None);
    let mistyped = of(BoundSet {
        denied: vec![("exlusive".into(), "site:8".into())],
        ..BoundSet::default()
    });
    let breach = unknown_options(&mistyped).unwrap();
    assert!(
        breach
            .refusal
            .message
            .contains("`exlusive` (`slurm.bounds.deny_options`, site:8)")
    );
}

#[test]
fn rules_are_about_the_jobs_that_they_name() {
    let when = |partitions: &[&str], accounts: &[&str]| {
        let some = |all: &[&str]| {
            let all: Vec<String> = all.iter().map(|&one| one.to_owned()).collect();
            (!all.is_empty()).then_some(all)
        };
        JobCondition {
            partitions: some(partitions),
            accounts: some(accounts),
        }
    };
    let bounds = Bounds {
        sets: vec![
            BoundSet {
                sizes: sizes(&[(SizeKey::Nodes, 8)]),
                ..BoundSet::default()
            },
            BoundSet {
                when: when(&["gpu*"], &[]),
                sizes: sizes(&[(SizeKey::Nodes, 2)]),
                ..BoundSet::default()
            },
            BoundSet {
                when: when(&[], &["Students"]),
                names: vec![list(NameKey::Partitions, &["teach"])],
                sizes: sizes(&[(SizeKey::Nodes, 1)]),
                ..BoundSet::default()
            },
        ],
    };
    for (line, added) in [
        ("-p cpu -A staff -N8", Some("")),
        ("-p cpu -A staff -N9", None),
        ("-p gpu-a -A staff -N2", Some("")),
        ("-p gpu-a -A staff -N3", None),
        ("-p cpu,gpu-a -A staff -N3", None),
        ("-p teach -A students -N1", Some("")),
        ("-p teach -A STUDENTS -N2", None),
        ("-p cpu -A students -N1", None),
        ("-A students -N1", Some("--partition=teach")),
        // What Slurm would choose may be anything, until Slurm says it.
        ("-p cpu -N2", None),
        ("-A staff -N3", None),
    ] {
        let expected = added.map(str::to_owned);
        assert_eq!(judged(&bounds, line, None).ok(), expected, "{line}");
    }
    let parsed = parsed(Command::Sbatch, "-N8");
    let nothing = Chosen::of(&bounds, &parsed, &Defaults::default());
    assert_eq!(nothing.lacks(&bounds, false), (true, true));
    let defaults = Defaults {
        account: Some("staff".into()),
        partition: Some("cpu".into()),
    };
    let chosen = Chosen::of(&bounds, &parsed, &defaults);
    assert_eq!(chosen.lacks(&bounds, false), (false, false));
    let judged = judge(&bounds, &parsed, chosen, None, 0);
    assert_eq!(judged.breaches, []);
    assert_eq!(
        judged.added,
        ["--account=staff", "--partition=cpu"].map(OsString::from)
    );
}
