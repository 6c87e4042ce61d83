//! How ranks end: by a crash of one of them, by a cancellation, by the time limit. Nothing remains.

use std::fs;

use crate::mpi::{plain, world};
use crate::world::{Side, World, until};

/// The processes on this machine that belong to a job: by its control group, or by the environment.
fn processes(world: &World, job: u32) -> Vec<String> {
    let group = format!("/{}/", world.cluster.group_of(job));
    let variables = [format!("SLURM_JOB_ID={job}"), format!("SLURM_JOBID={job}")];
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let read = |name: &str| fs::read(process.path().join(name)).unwrap_or_default();
        let (groups, environment) = (read("cgroup"), read("environ"));
        let marked = environment.split(|byte| *byte == 0).any(|entry| {
            variables
                .iter()
                .any(|variable| variable.as_bytes() == entry)
        });
        if marked || String::from_utf8_lossy(&groups).contains(&group) {
            let comm = String::from_utf8_lossy(&read("comm")).trim().to_owned();
            found.push(format!("{} {comm}", process.file_name().display()));
        }
    }
    found
}

/// Waits for the end of all of a job's processes.
#[track_caller]
fn nothing_remains(world: &World, side: Side) {
    world.settle(side);
    for job in world.jobs(side).keys() {
        until(&format!("the end of the processes of job {job}"), || {
            processes(world, *job).is_empty()
        });
    }
}

/// What a crash says: the exit code, and the lines of srun on how tasks ended.
fn crash(world: &World, side: Side, command: &str) -> (i32, Vec<String>) {
    let output = world.on(side, command).run();
    assert_eq!(output.out().matches("begun ").count(), 3, "{output}");
    nothing_remains(world, side);
    let mut lines: Vec<String> = output
        .err()
        .lines()
        .filter(|line| line.contains(": task 2: "))
        .map(|line| line.replace(" (core dumped)", ""))
        .collect();
    lines.sort();
    for node in &world.cluster.nodes {
        lines = lines
            .iter()
            .map(|line| line.replace(node, "[NODE]"))
            .collect();
    }
    (output.code, lines)
}

#[test]
fn a_rank_that_crashes_takes_the_others_along() {
    let Some(world) = world() else { return };
    if world.lacks("tasks", "tasks that share a jail") {
        return;
    }
    for (command, code) in [
        ("srun -N1 -n3 --mpi=pmix ./crash.openmpi segv", 139),
        ("srun -N1 -n3 --mpi=pmix ./crash.openmpi exit", 137),
        ("srun -N1 -n3 -K --mpi=pmi2 ./crash.mpich segv", 143),
        ("srun -N1 -n3 --mpi=pmix ./crash.openmpi mpi", 7),
        ("srun -N1 -n3 --mpi=pmi2 ./crash.mpich mpi", 137),
    ] {
        let outside = crash(&world, Side::Outside, command);
        let inside = crash(&world, Side::Inside, command);
        // After MPI_Abort it is a race whether srun has anything to say of the task that called it.
        if command.ends_with(" mpi") {
            assert_eq!(inside.0, outside.0, "{command}: {inside:?} {outside:?}");
        } else {
            assert_eq!(inside, outside, "{command}");
        }
        assert_eq!(inside.0, code, "{command}: {inside:?}");
    }
}

#[test]
fn mpirun_ends_with_its_ranks() {
    let Some(world) = world() else { return };
    if world.lacks("system-v", "MPICH, which wants System V segments") {
        return;
    }
    world.write(
        "job.sh",
        "#!/bin/bash\n#SBATCH -N1 -n3 -o job.txt\n\
         ulimit -c 0; for how in segv mpi exit; do mpirun.openmpi -n 3 ./crash.openmpi $how > out.txt 2>&1; echo $how $?; done\n\
         mpiexec.mpich -n 3 ./crash.mpich mpi > out.txt 2>&1; echo mpich $?; rm -f out.txt\n\
         echo processes $(ps -eo comm | grep -c crash)\n",
    );
    // Outside `ps` shows the other side's ranks as well.
    world.same_but("sbatch -Q -W job.sh; echo $?", |text| {
        let text = plain(text);
        let kept = text.lines().filter(|line| !line.starts_with("processes "));
        kept.collect::<Vec<_>>().join("\n")
    });
    let text = world.read("job.txt");
    assert!(text.contains("segv 139\nmpi 7\nexit 3\nmpich "), "{text}");
    assert!(text.ends_with("processes 0\n"), "{text}");
    nothing_remains(&world, Side::Inside);
}

/// Starts jobs of ranks that take their time to end, ends them with `end`, and compares what each rank
/// heard.
fn ended(world: &World, side: Side) {
    for (how, mpi, kind) in [
        ("cancel", "srun --mpi=pmix", "openmpi"),
        ("limit", "srun --mpi=pmi2", "mpich"),
    ] {
        let script = format!(
            "mkdir {how}; sbatch -Q -N1 -n2 -J {how} -o {how}.txt --wrap '{mpi} ./signals.{kind} {how}'"
        );
        world.on(side, &script).run().good();
    }
    for how in ["cancel", "limit"] {
        for rank in 0..2 {
            world.until(side, &format!("{how}.txt"), &format!("begun {rank}"));
        }
    }
    let jobs: Vec<u32> = world.jobs(side).into_keys().collect();
    let [cancelled, limited] = jobs.as_slice() else {
        panic!("{jobs:?}")
    };
    let many = |job: &u32| processes(world, *job).len() > 2;
    assert!(many(cancelled) && many(limited));
    // Looked at twice a minute.
    let job = format!("job={limited}");
    world
        .cluster
        .said("scontrol", ["update", &job, "EndTime=now+1"]);
    world.on(side, &format!("scancel {cancelled}")).run().good();
}

#[test]
fn ranks_hear_of_their_end_once_and_have_time() {
    let Some(world) = world() else { return };
    if world.lacks("tasks", "tasks that share a jail") {
        return;
    }
    let sides = [Side::Outside, Side::Inside];
    for side in sides {
        ended(&world, side);
    }
    let heard = |side: Side| {
        nothing_remains(&world, side);
        let all = ["cancel", "limit"]
            .into_iter()
            .flat_map(|how| (0..2).map(move |rank| format!("{how}/rank-{rank}.txt")));
        all.map(|name| fs::read_to_string(world.place(side).join(&name)).unwrap_or_default())
            .collect::<Vec<_>>()
    };
    // At its time limit Slurm asks twice; on a busy machine the second signal may come while the first
    // still waits, and be one with it (signal(7)).
    let (once, twice) = ("1 SIGTERM\n", "2 SIGTERM\n");
    for side in sides.map(heard) {
        let [cancelled, limited] = side.as_chunks::<2>().0 else {
            panic!("{side:?}")
        };
        assert_eq!(cancelled, &[once, once], "{side:?}");
        let is_one = |text: &String| text == once || text == twice;
        assert!(limited.iter().all(is_one), "{side:?}");
    }
    let text = fs::read_to_string(world.project().join("limit.txt")).unwrap();
    assert!(text.contains("DUE TO TIME LIMIT"), "{text}");
}
