//! Slurm's daemon of a step ends before the step does, as a rank can have it: what it leaves is ended.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use crate::cluster::put;
use crate::processes::{Process, launchers, marked, parent, tasks};
use crate::steps::{mark, with_probe};
use crate::world::{PATIENCE, Side, World, until};

/// Outside it does: nobody is left who would end it (Slurm 22.05: nonsense by PMI ends slurmstepd).
#[test]
fn no_task_outlives_the_daemon_of_its_step() {
    let Some(world) = with_probe() else { return };
    let mark = mark(&world, "orphan");
    // Neither task may have said that it wrote: they are ended as soon as the daemon is gone. srun
    // waits for the daemon in vain.
    let running = world
        .inside(&format!(
            "srun -Q -n2 --mpi=pmi2 bash -c 'echo $SLURM_JOB_ID > up.$SLURM_PROCID; until [ -e go ]; do sleep 0.05; done; ./probe garbage; exec ./probe stay {mark}' > /dev/null 2>&1 & step=$!
             until [ -e over ]; do sleep 0.05; done; kill $step; sleep 1; kill -9 $step; true"
        ))
        .start();
    until("the tasks", || {
        ["up.0", "up.1"].iter().all(|up| !world.read(up).is_empty())
    });
    let job = world.read("up.0").trim().to_owned();
    let tasks = tasks(&world, &job);
    assert_eq!(tasks.len(), 2, "{tasks:?}");
    let daemons: BTreeSet<i32> = tasks.iter().map(parent).collect();
    put(world.user, &world.project().join("go"), b"", 0o644);
    until("the end of the step's daemon", || {
        let comm = |pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        daemons.iter().all(|pid| comm(pid) != "slurmstepd\n")
    });
    // They would stay for ten minutes. The session's own shell and srun have the word as well.
    let left = || -> Vec<_> {
        let mut all = marked(&world, &mark);
        all.retain(|one| match &one.words[..] {
            [_, stay, ..] if stay == "stay" => true,
            [_, _, script, ..] => script.starts_with("echo $SLURM_JOB_ID"),
            _ => false,
        });
        all.extend(launchers(&world, &job));
        all
    };
    let deadline = Instant::now() + PATIENCE;
    while !left().is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let survivors = left();
    survivors.iter().for_each(Process::kill);
    put(world.user, &world.project().join("over"), b"", 0o644);
    running.end();
    assert!(survivors.is_empty(), "{survivors:?}");
    world.settle(Side::Inside);
}

/// Ranks that stop what watches over them are ended with Slurm's daemon all the same.
#[test]
fn stopped_tasks_end_with_the_daemon_of_their_step() {
    let Some(world) = World::steps() else {
        return;
    };
    world.write("stop.py", include_str!("steps/stop.py"));
    world
        .inside(
            "srun -Q -N1 -n2 --mpi=pmi2 python3 stop.py & step=$!
             until [ -s alive.0 ] && [ -s alive.1 ] || ! kill -0 $step 2> /dev/null; do sleep 0.05; done
             sleep 4; kill $step; sleep 1; kill -9 $step; true",
        )
        .run();
    until("the end of the ranks", || {
        let mut left = marked(&world, "stop.py");
        left.retain(|process| process.words.first().is_some_and(|word| word == "python3"));
        left.is_empty()
    });
    // On their own they end when they have counted to 99.
    let last = ["alive.0", "alive.1"].map(|name| world.read(name));
    let early = |count: &String| count.parse::<u32>().is_ok_and(|count| count < 99);
    assert!(last.iter().all(early), "{last:?}");
    world.settle(Side::Inside);
}

/// Slurm's own daemon of the step ends of it (22.05: "fatal: this is impossible"), outside as well.
#[test]
fn nonsense_at_the_socket_of_pmi_harms_nobody_else() {
    let Some(world) = with_probe() else { return };
    let output = world
        .inside(
            "srun -Q -n2 bash -c 'touch up; until [ -e over ]; do sleep 0.05; done; echo on' & other=$!; until [ -e up ]; do sleep 0.05; done
             srun -Q -n2 --mpi=pmi2 bash -c 'touch garbage.$SLURM_PROCID; ./probe garbage' > garbage.txt 2>&1 & step=$!
             until [ -e garbage.0 ] || [ -e garbage.1 ] || ! kill -0 $step 2> /dev/null; do sleep 0.05; done
             sleep 2; kill $step 2> /dev/null; sleep 1; kill -9 $step 2> /dev/null; wait $step 2> /dev/null; echo $? > garbage
             srun -Q -n2 --mpi=pmi2 echo next; touch over; wait $other; echo $?",
        )
        .run();
    assert_eq!(output.out(), "next\nnext\non\non\n0\n", "{output}");
    // What slurmstepd says before it ends does not always arrive; srun waits for it in vain.
    let ended = world.read("garbage");
    assert!(!["", "0\n"].contains(&ended.as_str()), "{ended}: {output}");
    let tried = |task| world.project().join(format!("garbage.{task}")).exists();
    assert!(tried(0) || tried(1), "{ended}: {output}");
}
