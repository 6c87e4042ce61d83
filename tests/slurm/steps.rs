//! What the tasks of a job share on a node, and how long it lives: one jail for the job, a room with
//! its own processes for the batch script and for each step.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster::put;
use crate::processes::{Process, launchers, marked, meeting, servers, tasks};
use crate::world::{Side, World, until};

/// A world with the program `probe` (`steps/probe.c`) in both directories.
pub(crate) fn with_probe() -> Option<World> {
    let world = World::new()?;
    world.write("probe", built("probe"));
    Some(world)
}

/// The same for a test about tasks that share a jail.
pub(crate) fn with_ranks() -> Option<World> {
    World::steps()?;
    with_probe()
}

/// A program of `steps/`, compiled.
pub(crate) fn built(name: &str) -> Vec<u8> {
    let root = std::env::var_os("AGENT_SANDBOX_ROOT")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join(name);
    let compiled = Command::new("gcc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(root.join(format!("tests/slurm/steps/{name}.c")))
        .status()
        .unwrap();
    assert!(compiled.success());
    fs::read(program).unwrap()
}

/// A word that no other test's processes have in their command lines.
pub(crate) fn mark(world: &World, name: &str) -> String {
    let project = world.project();
    let base = project.parent().unwrap().file_name().unwrap();
    format!("{name}-{}", base.to_str().unwrap().replace('.', "-"))
}

#[test]
fn a_job_has_one_jail_and_each_step_a_room() {
    let Some(world) = with_ranks() else { return };
    let mark = mark(&world, "batch");
    world.write(
        "see.sh",
        "#!/bin/bash\n./probe namespaces | sort > $1.${SLURM_PROCID:-0}.ns\n\
         echo $(cat /tmp/left) $(cat /dev/shm/left) $(ipcs -m | grep -c 4321) > $1.${SLURM_PROCID:-0}.left\n\
         cat /proc/[0-9]*/cmdline 2> /dev/null | tr '\\0' ' ' > $1.${SLURM_PROCID:-0}.processes\necho from-$1 > /tmp/$1\n",
    );
    world.write(
        "job.sh",
        format!(
            "#!/bin/bash\n#SBATCH -N1 -n2 -o job.txt\n./probe stay {mark} & echo tmp > /tmp/left; echo shm > /dev/shm/left\n\
             ipcmk -M 4321 > /dev/null; ./see.sh batch\nsrun -n1 ./see.sh step; srun -n2 ./see.sh ranks\n\
             cat /tmp/step /tmp/ranks; kill %1\n"
        ),
    );
    world.inside("sbatch -W job.sh").run().good();
    assert_eq!(world.read("job.txt"), "from-step\nfrom-ranks\n");
    let of = |name: &str, kind: &str| {
        let text = world.read(&format!("{name}.ns"));
        let line = text.lines().find(|line| line.starts_with(kind));
        line.unwrap_or_else(|| panic!("{name}: {text}")).to_owned()
    };
    let all = ["batch.0", "step.0", "ranks.0", "ranks.1"];
    for kind in ["user", "ipc", "uts", "net"] {
        let different: BTreeSet<_> = all.iter().map(|name| of(name, kind)).collect();
        assert_eq!(different.len(), 1, "{kind}: {different:?}");
    }
    for kind in ["pid", "mnt"] {
        // The steps ran one after the other, and numbers are used again.
        assert_ne!(of("batch.0", kind), of("step.0", kind), "{kind}");
        assert_ne!(of("batch.0", kind), of("ranks.0", kind), "{kind}");
        assert_eq!(of("ranks.0", kind), of("ranks.1", kind));
    }
    for name in all {
        assert_eq!(world.read(&format!("{name}.left")), "tmp shm 1\n", "{name}");
        let seen = world.read(&format!("{name}.processes"));
        assert!(seen.contains("see.sh"), "{name}: {seen}");
        assert_eq!(seen.contains(&mark), name == "batch.0", "{name}: {seen}");
    }
}

#[test]
fn jobs_of_a_user_on_a_node_share_nothing() {
    let Some(world) = with_ranks() else { return };
    let node = world.cluster.nodes[0].clone();
    let name = mark(&world, "abstract");
    // Two of each kind: with Landlock, and with sockets of their own.
    world.write(
        "one.sh",
        format!(
            "#!/bin/bash\necho one > /tmp/one; echo one > /dev/shm/one; ipcmk -M 4321 > /dev/null\n\
             ./probe namespaces | sort > one.$1.ns\n\
             [ ${{SLURM_PROCID:-0}} = 1 ] && {{ until [ -e $1.over.up ]; do sleep 0.05; done; ./probe connect {name}-$1 > one.$1.txt; }}\n\
             [ ${{SLURM_PROCID:-0}} = 1 ] || ./probe listen {name}-$1 $1.over\ntrue\n"
        ),
    );
    world.write(
        "other.sh",
        format!(
            "#!/bin/bash\n{{ ls /tmp/one /dev/shm/one; ipcs -m | grep 4321; }} 2>&1 | grep -v 'No such file'\n\
             ./probe connect {name}-script; ./probe connect {name}-step; ./probe namespaces | sort > other.$1.ns\ntrue\n"
        ),
    );
    world
        .inside(&format!(
            "sbatch -w {node} -o /dev/null -n1 ./one.sh script
             srun -w {node} -N1 -Q -n2 --overcommit -c1 ./one.sh step & running=$!
             until [ -e script.over.up ] && [ -s one.step.txt ]; do sleep 0.05; done
             sbatch -W -w {node} -n1 -o other.script.txt ./other.sh script
             srun -w {node} -N1 -n2 --overcommit -c1 -o other.step%t.txt ./other.sh step
             touch script.over step.over; wait $running"
        ))
        .run()
        .good();
    world.settle(Side::Inside);
    // The control: within a room it is reached.
    assert_eq!(world.read("one.step.txt"), "connect 0\n");
    for file in ["other.script.txt", "other.step0.txt", "other.step1.txt"] {
        let said = world.read(file);
        assert!(
            said.lines().count() == 2
                && said
                    .lines()
                    .all(|line| line == "connect 1" || line == "connect 111"),
            "{file}: {said}"
        );
    }
    for kind in ["user ", "ipc ", "uts ", "mnt ", "pid "] {
        let of = |file: &str| {
            let text = world.read(&format!("{file}.ns"));
            let line = text.lines().find(|line| line.starts_with(kind));
            line.unwrap().to_owned()
        };
        // The others ran one after the other, and numbers are used again.
        for other in ["other.script", "other.step"] {
            let all = BTreeSet::from(["one.script", "one.step", other].map(of));
            assert_eq!(all.len(), 3, "{all:?}");
        }
    }
}

#[test]
fn nodes_keep_their_jails_apart() {
    let Some(world) = with_ranks() else { return };
    world
        .inside(
            "srun -N2 -n4 --ntasks-per-node=2 bash -c 'touch /tmp/$SLURMD_NODENAME; ./probe namespaces > $SLURM_PROCID.ns
             touch here.$SLURM_PROCID; until [ -e here.0 -a -e here.1 -a -e here.2 -a -e here.3 ]; do sleep 0.02; done
             cd /tmp; ls as* > $OLDPWD/$SLURM_PROCID.tmp; echo $SLURMD_NODENAME >> $OLDPWD/$SLURM_PROCID.tmp'",
        )
        .run()
        .good();
    let mut jails = BTreeSet::new();
    for task in 0..4 {
        let seen = world.read(&format!("{task}.tmp"));
        let seen: Vec<&str> = seen.lines().collect();
        assert!(seen.len() == 2 && seen[0] == seen[1], "{seen:?}");
        let spaces = world.read(&format!("{task}.ns"));
        // Each task's own, and the host's.
        let shared = spaces
            .lines()
            .filter(|line| !line.starts_with("cgroup ") && !line.starts_with("net "));
        jails.insert(shared.collect::<Vec<_>>().join("\n"));
    }
    assert_eq!(jails.len(), 2, "{jails:?}");
}

#[test]
fn tasks_that_end_early_disturb_no_others() {
    let Some(world) = World::new() else { return };
    // Whichever of them arrived first and started the server.
    for (dead, end) in [(0, "exit 0"), (1, "exit 3"), (2, "kill -9 $$")] {
        world.same(&format!(
            "srun -N1 -n3 -l bash -c '[ $SLURM_PROCID = {dead} ] && {{ {end}; }}; sleep 0.4; ls /proc > /dev/null && echo on' 2>&1 | sort; echo ${{PIPESTATUS[0]}}"
        ));
    }
}

#[test]
fn a_launcher_that_is_killed_takes_no_other_task_along() {
    let Some(world) = with_ranks() else { return };
    let mark = mark(&world, "task");
    let running = world
        .inside(&format!(
            "srun -N1 -n3 -l bash -c 'echo $SLURM_JOB_ID > job.txt; touch up.$SLURM_PROCID; until [ -e over ]; do sleep 0.05; done; echo on $SLURM_PROCID; : {mark}'; echo ended $?"
        ))
        .start();
    for task in 0..3 {
        until("the tasks", || {
            world.project().join(format!("up.{task}")).exists()
        });
    }
    let job = world.read("job.txt").trim().to_owned();
    let servers: Vec<i32> = servers(&world, &job)
        .iter()
        .map(|server| server.pid)
        .collect();
    assert_eq!(servers.len(), 1, "{servers:?}");
    let tasks = tasks(&world, &job);
    assert_eq!(tasks.len(), 3, "{tasks:?}");
    tasks.iter().min_by_key(|task| task.pid).unwrap().kill();
    std::thread::sleep(Duration::from_millis(300));
    put(world.user, &world.project().join("over"), b"", 0o644);
    let output = running.end();
    assert!(output.out().contains("ended 137"), "{output}");
    // What the killed one had started is in the room to its end, as what a killed task leaves.
    let out = output.out();
    let others = (0..3).filter(|task| out.contains(&format!("{task}: on {task}\n")));
    assert!(others.count() >= 2, "{output}");
}

#[test]
fn steps_of_an_allocation_outlive_the_first() {
    let Some(world) = with_ranks() else { return };
    let output = world
        .inside(
            "salloc -Q -N1 -n3 bash -c '
             (srun -n1 --exact bash -c \"echo shared > /tmp/shared; touch first; until [ -e second ]; do sleep 0.05; done\"; touch first-over) &
             until [ -e first ]; do sleep 0.05; done
             (srun -n1 --exact bash -c \"cat /tmp/shared; touch second; until [ -e third ]; do sleep 0.05; done; cat /tmp/shared /tmp/third\") &
             until [ -e first-over ]; do sleep 0.05; done
             srun -n2 --exact bash -c \"cat /tmp/shared; echo third >> /tmp/third\"; touch third; wait'",
        )
        .run()
        .good();
    let out = output.out();
    assert_eq!(out.matches("shared").count(), 4, "{output}");
    assert_eq!(out.matches("third").count(), 2, "{output}");
    assert_eq!(output.err(), "", "{output}");
}

/// Whatever of Slurm's variables such a step lacks.
#[test]
fn a_step_from_outside_of_a_job_joins_its_jail() {
    let Some(world) = with_ranks() else { return };
    let output = world
        .inside(
            "id=$(sbatch --parsable -N1 -n3 -o /dev/null --wrap 'echo shared > /tmp/shared; touch up; until [ -e over ]; do sleep 0.05; done')
             until [ -e up ]; do sleep 0.05; done; srun --jobid=$id --overlap -n1 cat /tmp/shared; srun --jobid=$id --overlap -n2 cat /tmp/shared; touch over",
        )
        .run();
    world.settle(Side::Inside);
    assert_eq!(output.out(), "shared\nshared\nshared\n", "{output}");
}

#[test]
fn many_tasks_at_once_have_one_room() {
    let Some(world) = with_ranks() else { return };
    let running = world
        .inside(
            "srun -Q -N1 -n128 -O bash -c 'echo $SLURM_JOB_ID > job.txt; readlink /proc/self/ns/pid; : > up.$SLURM_PROCID; until [ -e over ]; do sleep 0.3; done'",
        )
        .start();
    until("the tasks", || {
        let all = fs::read_dir(world.project()).unwrap().flatten();
        all.filter(|entry| entry.file_name().to_str().unwrap().starts_with("up."))
            .count()
            == 128
    });
    let job = world.read("job.txt").trim().to_owned();
    let servers = servers(&world, &job);
    put(world.user, &world.project().join("over"), b"", 0o644);
    let output = running.end().good();
    let out = output.out();
    let spaces: BTreeSet<&str> = out.lines().collect();
    assert_eq!((out.lines().count(), spaces.len()), (128, 1), "{output}");
    assert_eq!(servers.len(), 1, "{servers:?}");
    until("the end of the meeting", || {
        meeting(&world, &job).is_empty()
    });
}

#[test]
fn no_daemon_outlives_its_step() {
    let Some(world) = with_probe() else { return };
    let mark = mark(&world, "daemon");
    let output = world
        .inside(&format!(
            "salloc -Q -N1 -n2 bash -c '
             srun -n1 ./probe daemon {mark} one; echo $?; srun -n2 bash -c \"./probe daemon {mark} two.\\$SLURM_PROCID\"; echo $?
             srun -n2 true; echo $?; ps ax | grep -e {mark} | grep -c [p]robe.stay; touch looked; until [ -e over ]; do sleep 0.05; done'"
        ))
        .start();
    until("the steps", || world.project().join("looked").exists());
    // They ran, all nine of them.
    let lived: usize = ["one", "two.0", "two.1"]
        .iter()
        .map(|file| world.read(file).len())
        .sum();
    let left = marked(&world, &mark);
    let left: Vec<_> = left
        .iter()
        .filter(|process| process.words.get(1).is_some_and(|word| word == "stay"))
        .collect();
    put(world.user, &world.project().join("over"), b"", 0o644);
    let output = output.end().good();
    assert_eq!(lived, 9, "{output}");
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(output.out(), "0\n0\n0\n0\n", "{output}");
    // "Job step creation temporarily disabled": what Slurm says while a step does not end.
    assert_eq!(output.err(), "", "{output}");
}

#[test]
fn nothing_outlives_the_batch_script() {
    let Some(world) = with_probe() else { return };
    let mark = mark(&world, "background");
    // On one node: in a job of two, srun wants both for two tasks, and waits for the processor of the first step.
    world.write(
        "job.sh",
        format!(
            "#!/bin/bash\n#SBATCH -N1 -n3 -o job.txt\necho $SLURM_JOB_ID > id.$1\n./probe daemon {mark} daemons.$1\n\
             srun -n1 --exact ./probe stay {mark} &\nsrun -n2 --exact bash -c \"touch up.$1; ./probe stay {mark}\" &\n\
             until [ -e up.$1 ]; do sleep 0.05; done; exit 5\n"
        ),
    );
    world.inside("sbatch -W job.sh x; echo $?").run().good();
    world.settle(Side::Inside);
    assert_eq!(world.read("daemons.x"), "xxx");
    let job = world.read("id.x").trim().to_owned();
    let states =
        |id: &str| world.real(&["sacct", "-n", "-P", "-j", id, "-o", "JobID,State,ExitCode"]);
    until("the accounting", || {
        let said = states(&job).out();
        said.lines()
            .filter(|line| line.contains("CANCELLED"))
            .count()
            == 2
    });
    assert!(states(&job).out().contains("|FAILED|5:0"));
    until("the end of all its processes", || {
        marked(&world, &mark).is_empty() && launchers(&world, &job).is_empty()
    });
}

#[test]
fn a_server_that_is_killed_takes_its_step_alone() {
    let Some(world) = with_ranks() else { return };
    let mark = mark(&world, "kept");
    let running = world
        .inside(&format!(
            "salloc -Q -N1 -n3 bash -c '
             echo $SLURM_JOB_ID > id; srun -n2 --exact bash -c \"touch up.\\$SLURM_PROCID; ./probe stay {mark}; echo no\" & a=$!
             until [ -e up.0 -a -e up.1 ]; do sleep 0.05; done
             srun -n1 --exact bash -c \"touch other; until [ -e over ]; do sleep 0.05; done; ls /tmp > /dev/null; echo other goes on\" & b=$!
             wait $a; echo ended $?; touch over; wait $b; echo ended $?; srun -n2 echo next; echo ended $?'"
        ))
        .start();
    until("the steps", || world.project().join("other").exists());
    let job = world.read("id").trim().to_owned();
    let all = servers(&world, &job);
    assert_eq!(all.len(), 2, "{all:?}");
    // That of the ranks came first.
    let started = |process: &Process| fs::read_to_string(process.path("stat")).unwrap();
    let age = |process: &Process| -> u64 {
        let stat = started(process);
        let rest = stat.rsplit(')').next().unwrap();
        rest.split_whitespace().nth(19).unwrap().parse().unwrap()
    };
    all.iter().min_by_key(|one| age(one)).unwrap().kill();
    until("the end of its tasks", || {
        marked(&world, &mark)
            .iter()
            .all(|one| one.words.iter().all(|word| word != "stay"))
    });
    let output = running.end();
    let out = output.out();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        lines,
        [
            "ended 137",
            "other goes on",
            "ended 0",
            "next",
            "next",
            "ended 0"
        ],
        "{output}"
    );
}

#[test]
fn what_killed_processes_leave_behind_does_no_harm() {
    let Some(world) = with_ranks() else { return };
    let mark = mark(&world, "left");
    let id = world
        .inside("salloc -Q --no-shell -N1 -n2 -J left; squeue -h -n left -o %i")
        .run()
        .good()
        .word();
    let running = world
        .inside(&format!(
            "srun --jobid={id} -n2 bash -c 'touch up.$SLURM_PROCID; ./probe stay {mark}'; echo ended $?"
        ))
        .start();
    for task in 0..2 {
        until("the tasks", || {
            world.project().join(format!("up.{task}")).exists()
        });
    }
    let doors = |id: &str| -> usize {
        let all = meeting(&world, id);
        all.iter()
            .map(|path| fs::read_dir(path).unwrap().count())
            .sum()
    };
    assert!(doors(&id) >= 2, "a lock and a socket");
    // All of the job at once: none may see that another is gone, clean up, or end by itself.
    let victims = launchers(&world, &id);
    victims.iter().for_each(Process::stop);
    victims.iter().for_each(Process::kill);
    let output = running.end();
    assert!(output.out().contains("ended 137"), "{output}");
    assert!(
        doors(&id) >= 2,
        "the test shows nothing: no socket was left"
    );
    let output = world
        .inside(&format!("srun --jobid={id} -n2 -l echo next | sort; srun --jobid={id} -n1 echo one; scancel {id}"))
        .run()
        .good();
    assert_eq!(output.out(), "0: next\n1: next\none\n", "{output}");
    until("the end of the meeting", || meeting(&world, &id).is_empty());
    assert!(marked(&world, &mark).is_empty());
}

#[test]
fn a_requeued_job_has_a_new_jail() {
    let Some(world) = with_ranks() else { return };
    let mark = mark(&world, "requeued");
    let node = &world.cluster.nodes[0];
    let id = world
        .inside(&format!(
            "sbatch --parsable --requeue -N1 -w {node} -n2 -o r.txt --open-mode=append --wrap '
             ls /tmp/old 2> /dev/null; touch /tmp/old; srun -n2 echo run ${{SLURM_RESTART_COUNT:-0}}
             [ \"$SLURM_RESTART_COUNT\" = 1 ] || srun -n2 ./probe stay {mark}'"
        ))
        .run()
        .good()
        .word();
    until("the second step", || {
        marked(&world, &mark)
            .iter()
            .any(|one| one.words.get(1).is_some_and(|word| word == "stay"))
    });
    world.real(&["scontrol", "requeue", &id]).good();
    until("the first run's end", || {
        world.real(&["squeue", "-h", "-j", &id, "-o", "%r"]).word() == "BeginTime"
    });
    assert!(marked(&world, &mark).is_empty());
    // slurmd takes no job again in the second in which it was revoked.
    std::thread::sleep(Duration::from_millis(1500));
    world.real(&["scontrol", "update", &format!("job={id}"), "StartTime=now"]);
    world.until(Side::Inside, "r.txt", "run 1\nrun 1");
    world.settle(Side::Inside);
    let said = world.read("r.txt");
    assert!(
        said.contains("run 0\nrun 0") && !said.contains("/tmp/old"),
        "{said}"
    );
    until("the end of the meeting", || meeting(&world, &id).is_empty());
}

#[test]
fn shared_memory_is_half_of_the_jobs_memory() {
    let Some(world) = World::new() else { return };
    if world.lacks("sizes", "how much private directories hold") {
        return;
    }
    let size = "df -B1M --output=size /dev/shm | tail -n1 | tr -d \" \"";
    for (set, expected) in [
        (None, "256\n256\n256\n"),
        (Some("jail.shm_size=100M"), "100\n100\n100\n"),
    ] {
        let call = format!(
            "sbatch -W -o s.txt -N1 -n2 --mem=512M --wrap '{size}; srun -n2 bash -c \"{}\"' && cat s.txt",
            size.replace('"', "\\\"")
        );
        let call = world.inside(&call);
        let call = set.into_iter().fold(call, |call, set| call.set(set));
        let output = call.run().good();
        assert!(output.out().ends_with(expected), "{output}");
    }
}

#[test]
fn signals_reach_each_task_once() {
    let Some(world) = World::new() else { return };
    let running = world
        .inside(
            r#"salloc -Q -N1 -n3 bash -c '
            echo $SLURM_JOB_ID > id
            srun -n3 bash -c "trap \"echo got >> got.\$SLURM_PROCID\" USR1; touch up.\$SLURM_PROCID; until [ -e over ]; do sleep 0.05; done" &
            until [ -e once ]; do sleep 0.05; done; for i in 0 1 2; do echo more >> got.$i; done
            scancel -s USR1 $SLURM_JOB_ID.0; for i in 0 1 2; do until [ $(wc -l < got.$i) -ge 3 ]; do sleep 0.1; done; done
            sleep 0.7; touch over; wait'"#,
        )
        .start();
    for task in 0..3 {
        until("the tasks", || {
            world.project().join(format!("up.{task}")).exists()
        });
    }
    std::thread::sleep(Duration::from_millis(200));
    // As slurmstepd does it. Each process of the step gets one where Slurm tracks them otherwise.
    let job = world.read("id").trim().to_owned();
    for process in tasks(&world, &job) {
        kill(Pid::from_raw(process.pid), Signal::SIGUSR1).unwrap();
    }
    until("each task to get it", || {
        (0..3).all(|task| !world.read(&format!("got.{task}")).is_empty())
    });
    std::thread::sleep(Duration::from_millis(400));
    put(world.user, &world.project().join("once"), b"", 0o644);
    running.end().good();
    for task in 0..3 {
        let got = world.read(&format!("got.{task}"));
        let got: Vec<&str> = got.lines().collect();
        // Of scancel there may be two, outside as well: it asks slurmstepd, and srun asks once more.
        assert!(
            got[..2] == ["got", "more"] && (3..=4).contains(&got.len()),
            "task {task}: {got:?}"
        );
    }
}

#[test]
fn a_step_is_stopped_and_goes_on() {
    let Some(world) = World::new() else { return };
    let running = world
        .inside(
            "salloc -Q -N1 -n2 bash -c 'echo $SLURM_JOB_ID > id; srun -n2 bash -c \"until [ -e over ]; do echo x >> count.\\$SLURM_PROCID; sleep 0.02; done\"'; echo ended $?",
        )
        .start();
    let lengths = || ["count.0", "count.1"].map(|file| world.read(file).len());
    until("the tasks", || lengths().iter().all(|length| *length > 4));
    let step = format!("{}.0", world.read("id").trim());
    world
        .inside(&format!("scancel -s STOP {step}"))
        .run()
        .good();
    // The shells that write, each in the jail.
    let writers = || -> Vec<Process> {
        let mut all = marked(&world, "until [ -e over ]");
        all.retain(|process| match &process.words[..] {
            [_, dash, script, ..] => dash == "-c" && script.starts_with("until"),
            _ => false,
        });
        all
    };
    until("the stop", || {
        let all = writers();
        all.len() >= 2 && all.iter().all(Process::is_stopped)
    });
    let before = lengths();
    world
        .inside(&format!("scancel -s CONT {step}"))
        .run()
        .good();
    until("both to go on", || {
        let now = lengths();
        now[0] > before[0] && now[1] > before[1]
    });
    put(world.user, &world.project().join("over"), b"", 0o644);
    let output = running.end();
    assert!(output.out().contains("ended 0"), "{output}");
}
