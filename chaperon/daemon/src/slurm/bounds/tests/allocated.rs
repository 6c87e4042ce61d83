//! What Slurm makes of options: it is counted, or written into the job.

use super::*;

/// Nodes of two sockets with two cores each, with two threads each, as `sinfo` and `scontrol` describe them.
const THREADS: Node = Node {
    cpus: 8,
    threads: 2,
    together: 2,
    ..NODE
};

fn cpus(most: u64) -> Bounds {
    of(BoundSet {
        sizes: sizes(&[(SizeKey::Cpus, most)]),
        ..BoundSet::default()
    })
}

/// Each as Slurm 22.05 was seen to allocate it on such nodes.
#[test]
fn cpus_that_slurm_gives_unasked_count() {
    for (line, most) in [
        // Tasks that the shape of a node makes.
        ("-B 2:2:1", 8),
        ("-B 2:2:2", 8),
        ("-B 2:64:1", 256),
        ("-N1 --sockets-per-node=2", 2),
        ("--sockets-per-node=64", 64),
        ("-N1 --cores-per-socket=2 --sockets-per-node=2", 4),
        ("-N1 --threads-per-core=2", 2),
        ("-n1 -B 2:2:2", 2),
        // And those that a number of GPUs makes.
        ("--gpus=8 --gpus-per-task=1 -N1-2", 10),
        ("--gpus=8 --tres-per-task=gres/gpu:1 -N1-2", 10),
        ("--gpus=8 --tres-per-task=cpu=2,gres/gpu=4 -N2", 4),
        ("--gpus=4 --ntasks-per-gpu=2 -N1", 8),
        ("--gpus-per-node=4 --gpus-per-task=1 -N1", 4),
        // Threads that are not used.
        ("-n4 --threads-per-core=1 -N1", 8),
        ("-n4 --hint=nomultithread -N1", 8),
        ("-n4 --hint=memory_bound -N1", 8),
        ("-n4 --hint=multithread -N1", 4),
        ("-n4 --ntasks-per-core=1 -N1", 8),
        ("--mincpus=3 --threads-per-core=1 -N1", 6),
        ("-N1 -G2 --cpus-per-gpu=2 --threads-per-core=1", 8),
        // Whole cores, on each node.
        ("", 2),
        ("-n3 -N1", 4),
        ("-n5 -N2", 6),
        ("-n4 -N1-4", 8),
        ("-n4", 8),
        ("-n4 -c2", 8),
        ("-n4 -c3 -N2", 14),
        ("--ntasks-per-node=4 -n4 -N1-4", 16),
        ("--ntasks-per-node=3 -N2", 8),
        ("--mincpus=5 -N2", 12),
        ("--gpus=8 --gpus-per-node=2", 8),
        ("--gpus=8 --gpus-per-node=2 --exclusive", 32),
    ] {
        assert!(judged(&cpus(most), line, Some(&THREADS)).is_ok(), "{line}");
        let less = judged(&cpus(most - 1), line, Some(&THREADS));
        assert!(less.is_err(), "{line}: {less:?}");
    }
    let sockets = Node {
        together: 4,
        ..THREADS
    };
    assert!(judged(&cpus(3), "-n1", Some(&sockets)).is_err());
    let cores = Node {
        core_for_task: true,
        ..THREADS
    };
    assert!(judged(&cpus(7), "-N1 -n4", Some(&cores)).is_err());
    let gpus = Node {
        cpus_of_gpu: 4,
        ..THREADS
    };
    assert!(judged(&cpus(7), "-N1 --gres=gpu:2", Some(&gpus)).is_err());
    let memory = Node {
        most_of_cpu: Some(100),
        default: DefaultMemory::PerCpu(100),
        ..THREADS
    };
    for (line, most) in [
        ("--mem=500 -N1", 6),
        ("--mem=500 -n4 -N4", 24),
        ("--mem-per-cpu=300 -N1", 6),
        ("--mem-per-cpu=300 -n2 -N1", 6),
        ("--mem=0 -N1", 640),
        ("-n2 -N1", 2),
    ] {
        let less = judged(&cpus(most - 1), line, Some(&memory));
        assert!(less.is_err(), "{line}: {less:?}");
    }
    assert!(judged(&cpus(2), "-n2 -N1", Some(&memory)).is_ok());
    let line = "-N1 --exclusive --mem-per-cpu=300";
    assert!(judged(&cpus(8), line, Some(&memory)).is_ok());
    // Not every version reads it.
    let variable = [("SLURM_NPROCS".into(), "1".into())];
    let words = ["-B".into(), "2:2:2".into()];
    let parsed = parse(Command::Srun, None, &words, &variable).unwrap();
    let chosen = Chosen::of(&cpus(7), &parsed, &Defaults::default());
    let judgement = judge(&cpus(7), &parsed, chosen, Some(&THREADS), 0);
    assert!(!judgement.breaches.is_empty());
}

#[test]
fn the_nodes_that_were_counted_are_written_into_the_job() {
    let memory = of(BoundSet {
        sizes: sizes(&[(SizeKey::Memory, 16 << 30)]),
        ..BoundSet::default()
    });
    let gpus = of(BoundSet {
        sizes: sizes(&[(SizeKey::Gpus, 16)]),
        ..BoundSet::default()
    });
    for (bounds, line, added) in [
        (
            &gpus,
            "--gpus=16 --gpus-per-node=4 --exclusive",
            "--nodes=4",
        ),
        (&gpus, "--gpus=8 --spread-job", "--nodes=2"),
        (&gpus, "-n3 --gpus=8", "--nodes=2-3"),
        (&gpus, "--gpus=4 --gpus-per-task=1", "--nodes=1-4"),
        (&gpus, "-N2 --exclusive", ""),
        (&cpus(64), "-n8 --exclusive", ""),
        (&memory, "--mem=1G -n4", "--nodes=1-4"),
        (&memory, "--mem=1G --gpus=8", "--nodes=2"),
    ] {
        let judged = judged(bounds, line, Some(&NODE));
        match line.contains("-n8") {
            true => assert!(judged.is_err(), "{line}"),
            false => assert_eq!(judged, Ok(added.into()), "{line}"),
        }
    }
    // Eight nodes, of which each is given as a whole.
    let line = "--gpus=16 --gpus-per-node=2 --exclusive";
    assert!(judged(&gpus, line, Some(&NODE)).is_err());
    assert!(judged(&memory, "--gpus=8 --mem=9G", Some(&NODE)).is_err());
    // Of what is too much because of the nodes, they are named.
    let parsed = parsed(Command::Sbatch, "-n 64 --mem=1G");
    let chosen = Chosen::of(&memory, &parsed, &Defaults::default());
    let judgement = judge(&memory, &parsed, chosen, Some(&NODE), 0);
    let hint = "it may be on 64 nodes: say how many with --nodes";
    assert_eq!(judgement.breaches[0].refusal.hints[1], hint);
    // srun may let other options count more than a variable.
    let variable = [("SLURM_NNODES".into(), "2".into())];
    let parsed = parse(Command::Srun, None, &["--mem=1G".into()], &variable).unwrap();
    let chosen = Chosen::of(&memory, &parsed, &Defaults::default());
    let judgement = judge(&memory, &parsed, chosen, Some(&NODE), 0);
    assert_eq!(judgement.added, ["--nodes=2"].map(OsString::from));
}

#[test]
fn gpus_of_several_types_add_up() {
    let gpus = of(BoundSet {
        sizes: sizes(&[(SizeKey::Gpus, 4)]),
        ..BoundSet::default()
    });
    for line in [
        "--gpus-per-node=a100:2 --gres=gpu:v100:3",
        "--gpus=a100:3 --gpus-per-node=v100:2",
        "--gres=gpu:a100:2,gpu:v100:3",
        "--gpus=a100:4 --gres=shard:1",
        "--gpus-per-node=a:3 --gres=gpu:A:3",
        "--gpus=a=8",
        "--gres=gpu:a*8",
    ] {
        assert!(judged(&gpus, line, Some(&NODE)).is_err(), "{line}");
    }
    for line in [
        "--gpus-per-node=a100:2 --gres=gpu:a100:4",
        "--gpus=4 --gpus-per-node=2",
    ] {
        assert!(judged(&gpus, line, Some(&NODE)).is_ok(), "{line}");
    }
}

/// Slurm looks for some words anywhere in the value.
#[test]
fn what_a_task_asks_for_is_understood_or_refused() {
    let all = of(BoundSet {
        names: vec![list(NameKey::Licenses, &["matlab", "erver"])],
        sizes: sizes(&[(SizeKey::Gpus, 4), (SizeKey::Cpus, 4)]),
        ..BoundSet::default()
    });
    for line in [
        "--tres-per-task=license/server:1",
        "--tres-per-task=cpu:1,xlicense/server:1",
        "--tres-per-task=LICENSE/server:1",
        "--tres-per-task=license/matlab/license/server:1",
        "--tres-per-task=xgres/gpu:8",
        "--tres-per-task=GRES/gpu:8",
        "--tres-per-task=license/matlab:1gres/gpu:8",
        "--tres-per-task=foo/cpu:8",
        "--tres-per-task=gpu:8",
        "--tres-per-task=CPU:8",
        "--tres-per-task=cpu:8k",
        "--tres-per-task=mem:9",
        "--tres-per-task=gres:gpu:8",
        "--tres-per-task=gres/gpu:a100=8",
        "--tres-per-task=cpu=5",
        "--tres-per-task=cpu",
    ] {
        assert!(judged(&all, line, Some(&NODE)).is_err(), "{line}");
    }
    for line in [
        "--tres-per-task=cpu=4,gres/gpu:a100:4",
        "--tres-per-task=gres:gpu=2,license/matlab=2",
        "--tres-per-task=license:erver:1,cpu:2",
    ] {
        assert!(judged(&all, line, Some(&NODE)).is_ok(), "{line}");
    }
}

/// Without it Slurm would choose.
#[test]
fn a_default_that_nobody_knows_is_refused() {
    let memory = of(BoundSet {
        sizes: sizes(&[(SizeKey::Memory, 16 << 30)]),
        ..BoundSet::default()
    });
    for line in ["--tres-per-task=cpu:x", "-N1 -c 2 --gpus-per-socket=1"] {
        assert!(judged(&memory, line, Some(&NODE)).is_err(), "{line}");
        let line = format!("--mem=1G {line}");
        assert!(judged(&memory, &line, Some(&NODE)).is_ok() != line.contains("tres"));
    }
}
