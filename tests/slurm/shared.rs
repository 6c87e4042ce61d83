//! What the tasks of a job share on a node, and what they do not share with the node.

use crate::mpi::{plain, world};
use crate::world::{Side, until};

/// Steps that are there at the same time: each waits for all.
const MEET: &str = r#"n=$1; for dir in /tmp /dev/shm; do
    echo $n > $dir/meet.$SLURM_JOB_ID.$n
    until [ $(ls $dir/meet.$SLURM_JOB_ID.* | wc -l) = 4 ]; do sleep 0.02; done
done
sleep 0.$n; echo over $n; exit $n
"#;

#[test]
fn steps_at_once_share_the_jail() {
    let Some(world) = world() else { return };
    if world.lacks("tasks", "tasks that share a jail") {
        return;
    }
    world.write("meet.sh", format!("#!/bin/bash\n{MEET}"));
    world.write(
        "steps.sh",
        r#"#!/bin/bash
#SBATCH -N1 -n4 -o steps.txt
# One after another, and what the first leaves the next one finds.
srun -n1 --exact sh -c 'echo left > /tmp/left.$SLURM_JOB_ID'
srun -n2 --exact sh -c 'cat /tmp/left.$SLURM_JOB_ID'
cat /tmp/left.$SLURM_JOB_ID; rm /tmp/left.$SLURM_JOB_ID
for how in --exact --overlap; do
    for n in 1 2 3 4; do srun -n1 $how ./meet.sh $n 2> /dev/null > $n.txt & pids[n]=$!; done
    for n in 1 2 3 4; do wait ${pids[n]}; echo $? $(cat $n.txt); done
    rm /tmp/meet.$SLURM_JOB_ID.* /dev/shm/meet.$SLURM_JOB_ID.*
done
# Ranks of two steps at once.
srun -n2 --exact --mpi=pmix ./ring.openmpi > 1.txt & srun -n2 --exact --mpi=pmi2 ./ring.mpich > 2.txt & wait
cat 1.txt 2.txt
for n in 1 2 3; do srun -n2 --overlap --mpi=pmix ./shm.openmpi > $n.txt & done; wait
for n in 1 2 3; do grep -c ok $n.txt; rm $n.txt; done; rm 4.txt
"#,
    );
    world.same_but("sbatch -Q -W steps.sh; echo $?", plain);
    let meetings = "1 over 1\n2 over 2\n3 over 3\n4 over 4\n".repeat(2);
    let expected = format!("left\nleft\nleft\n{meetings}sum 3 of 2\nsum 3 of 2\n3\n3\n3\n");
    let text = world.read("steps.txt");
    let text: String = text
        .lines()
        .filter(|line| !line.starts_with("srun: "))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(text, expected);
}

/// Ranks find each other by abstract sockets, as those of NCCL do. The node's own are out of reach,
/// for ranks and for a task that is alone.
#[test]
fn abstract_sockets_lead_to_the_other_ranks_alone() {
    let Some(world) = world() else { return };
    if world.lacks("tasks", "tasks that share a jail") {
        return;
    }
    let name = format!("suite-{}", world.cluster.marker);
    let host = world
        .outside(&format!("exec ./abstract serve {name} > serving.txt"))
        .start();
    world.until(Side::Outside, "serving.txt", "serving");
    let script = format!(
        r#"./abstract call {name}
        srun -Q -n2 --mpi=pmix ./abstract call {name} 2> /dev/null
        srun -Q -n1 ./abstract call {name} 2> /dev/null
        sbatch -Q -W -o batch.txt -n2 --wrap './abstract call {name}; srun -Q ./abstract call {name} 2> /dev/null'
        cat batch.txt"#
    );
    let output = world.outside(&script).run();
    assert_eq!(output.out(), "reached\n".repeat(7), "the control: {output}");
    let output = world.inside(&script).run();
    // Landlock denies it to the session; in jobs the name is nobody's.
    let denied = "not reached: Operation not permitted\n";
    let refused = "not reached: Connection refused\n".repeat(6);
    assert_eq!(output.out(), format!("{denied}{refused}"), "{output}");
    // The same name is free for the ranks, and leads to them. On one node: abstract names do not cross.
    let pair = format!(
        "srun -N1 -n4 ./abstract pair {name}; srun -N1 -n2 --mpi=pmi2 ./abstract pair other-{name}"
    );
    let output = world.inside(&pair).run().good();
    assert_eq!(output.out(), "pair 6 of 4\npair 1 of 2\n", "{output}");
    host.signal(nix::sys::signal::Signal::SIGKILL);
    host.end();
}

/// Two jobs of one user on one node have nothing in common.
#[test]
fn two_jobs_do_not_share() {
    let Some(world) = world() else { return };
    if world.lacks("tasks", "tasks that share a jail") {
        return;
    }
    let name = format!("apart-{}", world.cluster.marker);
    world.write(
        "apart.sh",
        format!(
            "#!/bin/bash\necho $1 > /tmp/{name}.$1; echo $1 > /dev/shm/{name}.$1; ipcmk -M 4096 > /dev/null\n\
             touch here.$1; until [ -e here.1 ] && [ -e here.2 ]; do sleep 0.02; done; sleep 0.3\n\
             cd /; ls /tmp/{name}.* /dev/shm/{name}.* | wc -l; ipcs -m | grep -c 4096\n\
             readlink /proc/self/ns/ipc /proc/self/ns/pid /proc/self/ns/user\n"
        ),
    );
    let node = &world.cluster.nodes[0];
    world
        .inside(&format!(
            "for n in 1 2; do srun -Q -w {node} -n2 --overcommit -c1 -o job-$n-%t.txt ./apart.sh $n & done; wait"
        ))
        .run()
        .good();
    let seen = |job: u32| {
        let task = |task: u32| world.read(&format!("job-{job}-{task}.txt"));
        let both = (task(0), task(1));
        assert_eq!(both.0, both.1, "tasks of one step differ");
        both.0
    };
    let (first, second) = (seen(1), seen(2));
    // Its own file in each of the two directories, and one segment of each of its tasks.
    assert!(
        first.starts_with("2\n2\n") && second.starts_with("2\n2\n"),
        "{first}{second}"
    );
    for (one, other) in first.lines().zip(second.lines()).skip(2) {
        assert_ne!(one, other);
    }
    until("the end of the jobs", || {
        world
            .jobs(Side::Inside)
            .values()
            .flatten()
            .all(|state| state != "RUNNING")
    });
}
