//! Large and many.

use crate::world::{Side, World};

#[test]
fn a_large_script_is_submitted_or_refused_with_both_sizes() {
    let Some(world) = World::new() else { return };
    // 3.9 MB that compress.
    world.write(
        "large.sh",
        format!(
            "#!/bin/bash\n#SBATCH -o large.txt\n{}\necho ran\n",
            "# the same line again\n".repeat(185_000)
        ),
    );
    world.inside("sbatch large.sh").run().good();
    world.settle(Side::Inside);
    assert_eq!(world.read("large.txt"), "ran\n");
    // More than Slurm takes.
    world.write(
        "huge.sh",
        format!(
            "#!/bin/bash\n{}\n",
            "# the same line again\n".repeat(400_000)
        ),
    );
    let outside = world.outside("sbatch huge.sh").run();
    let inside = world.inside("sbatch huge.sh; sbatch < huge.sh").run();
    assert!(outside.code != 0 && inside.code != 0, "{outside}\n{inside}");
    assert!(inside.err().contains("sbatch: error: "), "{inside}");
    // 4 MB that do not compress.
    let output = world.inside("(printf '#!/bin/bash\nexit\n'; head -c 4000000 /dev/urandom | tr -d '\\0\\r') > random.sh; sbatch random.sh").run();
    assert!(
        output.code != 0 && output.err().contains("sbatch: error: "),
        "{output}"
    );
    assert!(output.err().chars().any(|c| c.is_ascii_digit()), "{output}");
}

#[test]
fn ten_thousand_tasks_are_submitted_seen_and_cancelled() {
    let Some(world) = World::new() else { return };
    let largest = world.cluster.said("scontrol", ["show", "config"]);
    let line = largest
        .lines()
        .find(|line| line.starts_with("MaxArraySize"));
    let size: u32 = line
        .and_then(|line| line.split('=').nth(1))
        .and_then(|n| n.trim().parse().ok())
        .unwrap();
    let tasks = 10_000.min(size - 1);
    if tasks < 10_000 {
        crate::cluster::not_checked(&format!("the cluster takes arrays of {tasks} tasks"));
    }
    let output = world
        .inside(&format!(
            "id=$(sbatch --parsable -H -a 1-{tasks} --wrap true) && squeue -h -r -j $id -o %K | wc -l && squeue -h -j $id | wc -l; scancel $id; squeue -h -j $id | wc -l"
        ))
        .run();
    assert_eq!(
        output.out().split_whitespace().collect::<Vec<_>>(),
        [tasks.to_string().as_str(), "1", "0"],
        "{output}"
    );
}

#[test]
fn limits_of_the_policy_hold() {
    let Some(world) = World::new() else { return };
    for (limit, call) in [
        ("slurm.bounds.nodes=1", "sbatch -H -N2 --wrap true"),
        ("slurm.bounds.nodes=1", "srun -N2 true"),
        ("slurm.bounds.minutes=5", "sbatch -H -t 10 --wrap true"),
        ("slurm.bounds.gpus=1", "sbatch -H --gres=gpu:2 --wrap true"),
        ("slurm.bounds.gpus=1", "sbatch -H -G 2 --wrap true"),
        (
            "slurm.bounds.gpus=1",
            "sbatch -H --gres=shard:2 --wrap true",
        ),
        (
            "slurm.bounds.gpus=1",
            "sbatch -H --gres=mps:101 --wrap true",
        ),
        ("slurm.bounds.gpus=1", "sbatch -H --exclusive --wrap true"),
        (
            "slurm.bounds.gpus=1",
            "SBATCH_EXCLUSIVE=1 sbatch -H --wrap true",
        ),
        ("slurm.bounds.gpus=1", "srun --exclusive true"),
        (
            "slurm.limits.jobs=1",
            "id=$(sbatch -W --parsable --wrap true) && sbatch -H --wrap true > /dev/null && scontrol requeue $id",
        ),
        (
            "slurm.limits.jobs=1",
            "id=$(sbatch -W --parsable --wrap true) && sbatch -H --wrap true > /dev/null && scontrol requeuehold $id",
        ),
        (
            "slurm.limits.jobs=2",
            "sbatch -H --wrap true > /dev/null; sbatch -H --wrap true > /dev/null; sbatch -H --wrap true",
        ),
        ("slurm.limits.jobs=2", "sbatch -H -a 1-3 --wrap true"),
    ] {
        let output = world.inside(call).set(limit).run();
        assert!(
            output.code != 0 && output.err().contains(&limit[..13]),
            "{limit}: {call}: {output}"
        );
        world.inside("scancel --me").run();
    }
    // Nor are they passed by a change afterwards.
    let output = world
        .inside("id=$(sbatch --parsable -H -t 3 --wrap true); scontrol update job=$id TimeLimit=60 || echo refused; squeue -h -j $id -o %l")
        .set("slurm.bounds.minutes=5")
        .run();
    assert!(
        output.out().contains("refused") && output.out().contains("3:00"),
        "{output}"
    );
}

/// The jobs of this project that Slurm has in its queue.
fn queued(world: &World) -> usize {
    let jobs = world.jobs(Side::Inside);
    let over = |state: &&String| matches!(&***state, "HELD" | "PENDING" | "RUNNING");
    jobs.values().flatten().filter(over).count()
}

#[test]
fn sessions_at_the_same_time_submit_no_more_than_the_limit() {
    let Some(world) = World::new() else { return };
    let script = "echo up >> up.txt; until [ $(wc -l < up.txt) -ge 8 ]; do sleep 0.05; done; sbatch -H --wrap true";
    let sessions: Vec<_> = (0..8)
        .map(|_| world.inside(script).set("slurm.limits.jobs=3").start())
        .collect();
    let outputs: Vec<_> = sessions.into_iter().map(|session| session.end()).collect();
    let submitted = outputs.iter().filter(|output| output.code == 0).count();
    let said: String = outputs.iter().map(ToString::to_string).collect();
    assert_eq!((queued(&world), submitted), (3, 3), "{said}");
    for output in outputs.iter().filter(|output| output.code != 0) {
        assert!(output.err().contains("slurm.limits.jobs"), "{output}");
    }
    world.inside("scancel --me").run();
}

#[test]
fn steps_of_a_job_submit_no_more_than_the_limit() {
    let Some(world) = World::new() else { return };
    // Each node has a chaperon of its own. The job itself counts.
    let output = world
        .inside(
            "sbatch -W -N2 -n2 -o out.txt --wrap \
             'srun -N2 -n2 bash -c \"for i in 1 2 3 4 5 6; do sbatch -H --wrap true & done; wait\"'; true",
        )
        .set("slurm.limits.jobs=4")
        .run();
    let text = world.read("out.txt");
    assert_eq!(queued(&world), 3, "{output}\n{text}");
    assert!(text.contains("slurm.limits.jobs"), "{text}");
    world.inside("scancel --me").run();
}

/// A session's queries are counted together, whoever of it asks.
#[test]
fn the_pace_of_queries_is_the_sessions() {
    let Some(world) = World::new() else { return };
    let asks = "for i in {1..15}; do squeue -h > /dev/null; done";
    let begun = std::time::Instant::now();
    let script = format!("sbatch -W -N2 -n2 -o out.txt --wrap 'srun -N2 -n2 bash -c \"{asks}\"'");
    world
        .inside(&script)
        .set("slurm.limits.queries_per_minute=60")
        .run()
        .good();
    // 30 of them and some that the chaperons ask themselves, of which 20 may come at once.
    let took = begun.elapsed().as_secs();
    assert!(took >= 9, "{took} s: {}", world.read("out.txt"));
}

/// All sessions of a user submit at the pace of one, and no more a day than there may be, however many there are.
#[test]
fn submissions_are_counted_over_all_sessions_exactly() {
    let Some(world) = World::new() else { return };
    let counted = world.home(".local/state/agent-sandbox/slurm/submissions");
    let _ = std::fs::remove_file(&counted);
    let script = "echo up >> up.txt; until [ $(wc -l < up.txt) -ge 50 ]; do sleep 0.1; done; sbatch -H --wrap true";
    let sessions: Vec<_> = (0..50)
        .map(|_| {
            let session = world.inside(script);
            session.set("slurm.limits.submissions_per_day=20").start()
        })
        .collect();
    let outputs: Vec<_> = sessions.into_iter().map(|session| session.end()).collect();
    let submitted = outputs.iter().filter(|output| output.code == 0).count();
    let said: String = outputs.iter().map(ToString::to_string).collect();
    assert_eq!((queued(&world), submitted), (20, 20), "{said}");
    for output in outputs.iter().filter(|output| output.code != 0) {
        let key = "slurm.limits.submissions_per_day";
        assert!(output.err().contains(key), "{output}");
    }
    world.inside("scancel --me").run();
    let Some(world) = World::new() else { return };
    // Jobs and steps of a session count as well, and what Slurm is not asked for does not.
    let _ = std::fs::remove_file(&counted);
    let script = "sbatch -W -o out.txt --wrap 'sbatch -H --wrap true; srun -n1 true; sbatch -H --wrap true'; true";
    let output = world
        .inside(script)
        .set("slurm.limits.submissions_per_day=2")
        .run();
    assert_eq!(queued(&world), 1, "{output}");
    let text = world.read("out.txt");
    assert!(text.contains("slurm.limits.submissions_per_day"), "{text}");
    world.inside("scancel --me").run();
    // A requeued job is one more, however it came to its end.
    let _ = std::fs::remove_file(&counted);
    let script = "id=$(sbatch -W --parsable --wrap true); scontrol requeuehold $id && scontrol release $id && sleep 3; scontrol requeue $id";
    let output = world
        .inside(script)
        .set("slurm.limits.submissions_per_day=2")
        .run();
    let key = "slurm.limits.submissions_per_day";
    assert!(output.code != 0 && output.err().contains(key), "{output}");
    world.inside("scancel --me").run();
    // A loop goes on, and no faster than it may.
    let _ = std::fs::remove_file(&counted);
    let script = "for i in 1 2 3 4; do sbatch -H --wrap true; echo $SECONDS >> seconds.txt; done";
    let output = world
        .inside(script)
        .set("slurm.limits.submissions_per_minute=3")
        .run()
        .good();
    let times: Vec<u32> = world
        .read("seconds.txt")
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert!(times[2] < 20 && times[3] >= 55, "{times:?}: {output}");
    assert!(
        output.err().contains("slurm.limits.submissions_per_minute"),
        "{output}"
    );
    world.inside("scancel --me").run();
}

/// Fifty sessions submit at the same moment: each gets the number of a job of its own, and none is lost; of as many with a
/// limit of the jobs in the queue as many as it says get one.
#[test]
fn fifty_sessions_at_once_lose_no_submission() {
    for (limit, most) in [("slurm.limits.jobs=0", 50), ("slurm.limits.jobs=7", 7)] {
        let Some(world) = World::new() else { return };
        let counted = world.home(".local/state/agent-sandbox/slurm/submissions");
        let _ = std::fs::remove_file(&counted);
        let script = "echo up >> up.txt; until [ $(wc -l < up.txt) -ge 50 ]; do sleep 0.1; done; sbatch --parsable -H --wrap true";
        let sessions: Vec<_> = (0..50)
            .map(|_| world.inside(script).set(limit).start())
            .collect();
        let outputs: Vec<_> = sessions.into_iter().map(|session| session.end()).collect();
        let good = outputs.iter().filter(|output| output.code == 0);
        let jobs: std::collections::BTreeSet<String> = good.map(|output| output.word()).collect();
        let said: String = outputs.iter().map(ToString::to_string).collect();
        assert_eq!(
            (queued(&world), jobs.len()),
            (most, most),
            "{limit}: {said}"
        );
        assert!(jobs.iter().all(|id| id.parse::<u32>().is_ok()), "{jobs:?}");
        for output in outputs.iter().filter(|output| output.code != 0) {
            assert!(output.err().contains("slurm.limits.jobs"), "{output}");
        }
        world.inside("scancel --me").run();
    }
}

#[test]
fn slurm_can_be_switched_off() {
    let Some(world) = World::new() else { return };
    let output = world
        .inside("squeue; echo $?; sbatch --wrap true; echo $?")
        .set("slurm.mode=\"off\"")
        .run();
    assert!(!output.out().contains('0'), "{output}");
    assert!(
        output.err().contains("slurm.mode") || output.err().contains("not available"),
        "{output}"
    );
}
