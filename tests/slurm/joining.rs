//! That every process of a job's jail is confined like the first, and attacks on the way in: from
//! inside of a room, from another job, from another user.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use crate::call::{Output, Running};
use crate::cluster::{cluster, not_checked, put};
use crate::processes::{marked, meeting, servers};
use crate::steps::{built, mark, with_probe, with_ranks};
use crate::world::{BOBS, Side, World, until};

/// Each kind of a process of a job's: in the room that was made with the jail, and in one beside;
/// alone under Landlock, and one of several with sockets of their own.
const KINDS: [&str; 8] = [
    "batch", "step", "rank.0", "rank.1", "pmi.0", "pmi.1", "first", "many.1",
];

/// Runs `./probe WORDS` as each of them; what it said is in `KIND.txt`.
fn in_all(world: &World, words: &str) {
    world.write(
        "all.sh",
        format!(
            "#!/bin/bash\n#SBATCH -N1 -n2 -o all.txt\n./probe {words} > batch.txt < /dev/null\n\
             srun -Q -n1 -o step.txt ./probe {words}\nsrun -Q -n2 -o rank.%t.txt ./probe {words}\n\
             srun -Q -n2 --mpi=pmi2 -o pmi.%t.txt ./probe {words}\n"
        ),
    );
    // The last two make the jail themselves.
    world
        .inside(&format!(
            "sbatch -W --mem-per-cpu=100M all.sh && srun -Q -N1 -n1 --mem=200M -o first.txt ./probe {words} &&
             srun -Q -N1 -n2 --mem=200M -o many.%t.txt ./probe {words}"
        ))
        .run()
        .good();
    assert_eq!(world.read("all.txt"), "");
}

/// The lines in which two kinds may not differ.
fn comparable(text: &str) -> BTreeSet<String> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, value) = (words.next()?, words.next().unwrap_or_default());
        match name {
            // Its number; and how many filters there are, which is looked at by itself.
            "status" if value == "NStgid:" || value == "Seccomp_filters:" => None,
            // What Slurm says is of one step, and SLURM_UMASK and the like of one kind. slurmstepd
            // sets TMPDIR for the first task of a node. HOSTNAME and ENVIRONMENT: batch scripts. SRUN_DEBUG and, since 24.11,
            // SLURMD_DEBUG: srun.
            "variable" if value.starts_with("SLURM_") || value.starts_with("PMI_") => None,
            "variable"
                if [
                    "SRUN_DEBUG",
                    "SLURMD_DEBUG",
                    "TMPDIR",
                    "HOSTNAME",
                    "ENVIRONMENT",
                ]
                .contains(&value) =>
            {
                None
            }
            // A pipe, a file, or /dev/null.
            "fd" if value.parse::<i32>().is_ok_and(|number| number > 2) => None,
            "fd" => Some(format!("fd {value}")),
            // The script is the batch script's.
            "mount" if line.contains("/slurm_script ") => None,
            // Root, place, options; a mount that is covered by one of its kind is the same line
            // twice. Files that the jail was given have random names.
            "mount" => {
                let root = if value.starts_with("/bindfile") {
                    "file"
                } else {
                    value
                };
                // Outside of a job srun does not say how much memory the step has (Slurm 22.05).
                // What is ours has room for what stands in it, the batch script too.
                let shared = line.contains(" /dev/shm ")
                    || line.contains(" /run/agent-sandbox ")
                    || root.starts_with("/covers/");
                let words = words.map(|word| match word.split_once(",size=") {
                    Some((before, after)) if shared => {
                        let after = after.trim_start_matches(|c| c != ',');
                        format!("{before}{after}")
                    }
                    _ => word.to_owned(),
                });
                let words: Vec<String> = words.collect();
                Some(format!("mount {root} {}", words.join(" ")))
            }
            _ => Some(line.to_owned()),
        }
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn every_process_is_confined_like_the_first() {
    let Some(world) = with_ranks() else { return };
    in_all(&world, "fields");
    let first = comparable(&world.read("batch.txt"));
    for kind in KINDS {
        let text = world.read(&format!("{kind}.txt"));
        let found = comparable(&text);
        let differing: Vec<_> = first.symmetric_difference(&found).collect();
        assert!(
            found.len() > 80 && differing.is_empty(),
            "{kind}: {differing:#?}"
        );
        // Local sockets are made elsewhere: that is the second filter.
        let lines: BTreeSet<&str> = text.lines().collect();
        assert!(
            lines.contains("status Seccomp_filters:\t2"),
            "{kind}: {text}"
        );
        // What the host mounts later stays outside: a rank has no Landlock to hold it back, and
        // others could hand it over.
        let receives = |line: &&&str| line.contains(" master:") || line.contains(" shared:");
        let open: Vec<_> = lines.iter().filter(receives).collect();
        assert_eq!(open, [&""; 0], "{kind}");
        let fds: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("fd "))
            .collect();
        let socket = kind.starts_with("pmi");
        assert_eq!(fds.len(), 3 + usize::from(socket), "{kind}: {fds:?}");
        let pmi = fds.iter().filter(|fd| fd.contains("socket"));
        assert_eq!(pmi.count(), usize::from(socket), "{kind}: {fds:?}");
        assert_eq!(text.contains("variable PMI_FD"), socket, "{kind}");
        for line in text
            .lines()
            .filter(|line| line.starts_with("variable AGENT_SANDBOX"))
        {
            let known = [
                "AGENT_SANDBOX",
                "AGENT_SANDBOX_PROJECT",
                "AGENT_SANDBOX_SESSION",
            ];
            assert!(known.contains(&&line[9..]), "{kind}: {line}");
        }
    }
    // And the first is confined.
    let lines: BTreeSet<&str> = first.iter().map(String::as_str).collect();
    let none = "0000000000000000";
    for set in ["Inh", "Prm", "Eff", "Bnd", "Amb"] {
        assert!(
            lines.contains(format!("status Cap{set}:\t{none}").as_str()),
            "{lines:#?}"
        );
    }
    // The C library keeps signals 32 and 33 to itself; who started slurmd may have ignored them.
    let ignored = |line: &&&str| line.starts_with("status SigIgn:");
    let ignored = lines.iter().find(ignored).and_then(|line| line.get(15..));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    assert_eq!(ignored.map(|mask| mask & !(3 << 31)), Some(0), "{lines:#?}");
    for field in ["SigBlk", "SigCgt", "SigPnd", "ShdPnd"] {
        assert!(
            lines.contains(format!("status {field}:\t{none}").as_str()),
            "{lines:#?}"
        );
    }
    for line in [
        "status NoNewPrivs:\t1",
        "status Seccomp:\t2",
        "status TracerPid:\t0",
        "status Threads:\t1",
        "securebits 0",
        "dumpable 1",
        "keepcaps 0",
        "pdeathsig 0",
        "subreaper 0",
        "setgroups deny",
    ] {
        assert!(lines.contains(line), "{line}: {lines:#?}");
    }
}

/// Somebody outside who listens at an abstract name, to be ended with [`end_listener`].
pub(crate) fn listener(world: &World, name: &str) -> Running {
    let running = world
        .outside(&format!("./probe listen {name} over"))
        .start();
    until("the listener", || {
        world.place(Side::Outside).join("over.up").exists()
    });
    let control = world.outside(&format!("./probe connect {name}")).run();
    assert_eq!(control.out(), "connect 0\n", "{control}");
    running
}

pub(crate) fn end_listener(world: &World, running: Running) {
    put(
        world.user,
        &world.place(Side::Outside).join("over"),
        b"",
        0o644,
    );
    running.end();
}

#[test]
fn every_process_is_refused_the_same() {
    let Some(world) = with_probe() else { return };
    let name = mark(&world, "host");
    let outside = listener(&world, &name);
    in_all(&world, &format!("calls {name}"));
    end_listener(&world, outside);
    let expected = world.read("batch.txt");
    assert!(expected.lines().count() > 90, "{expected}");
    for kind in KINDS {
        assert_eq!(world.read(&format!("{kind}.txt")), expected, "{kind}");
    }
    assert!(expected.ends_with("abstract refused\n"), "{expected}");
    // What harms nobody: reading settings, settings of the jail's own System V objects, a
    // terminal of one's own, the jail's own file systems.
    let harmless = |line: &&str| {
        let read = line.starts_with("open /proc/sys/") && line.ends_with(" 0 0");
        let own = ["/proc/sys/kernel/shmmax", "/dev/ptmx", "/tmp/x", "/run/"];
        let own = own
            .iter()
            .any(|path| line.starts_with(&format!("open {path}")));
        read || own || line.starts_with("personality ")
    };
    let allowed: Vec<&str> = expected
        .lines()
        .filter(|line| line.ends_with(" 0"))
        .filter(|line| !harmless(line))
        .collect();
    assert_eq!(allowed, [""; 0], "{expected}");
}

#[test]
fn each_task_is_in_its_own_cgroup() {
    let Some(world) = with_probe() else { return };
    let config = world.cluster.said("scontrol", ["show", "config"]);
    if !config.contains("proctrack/cgroup") {
        return not_checked("this cluster does not track jobs by cgroups");
    }
    let mark = mark(&world, "cgroup");
    world.inside(&format!(
        "sbatch -n3 -N1 -o /dev/null --wrap './probe stay {mark}-b & srun -n1 --exact ./probe stay {mark}-s & srun -n2 --exact bash -c \"./probe stay {mark}-\\$SLURM_PROCID\"'"
    )).run().good();
    let stay = || {
        let mut all = marked(&world, &mark);
        all.retain(|one| one.words.get(1).is_some_and(|word| word == "stay"));
        all
    };
    until("the tasks", || stay().len() == 4);
    // As the host sees it: inside each is the root.
    let job = *world.jobs(Side::Inside).keys().next().unwrap();
    let group = format!("/{}/", world.cluster.group_of(job));
    let cgroups: Vec<String> = stay()
        .iter()
        .map(|process| {
            let text = fs::read_to_string(process.path("cgroup")).unwrap();
            let mut lines = text.lines();
            let found = lines.find_map(|line| Some(&line[line.find(&group)?..]));
            found
                .unwrap_or_else(|| panic!("{group}: {text}"))
                .to_owned()
        })
        .collect();
    let different: BTreeSet<&String> = cgroups.iter().collect();
    assert_eq!(different.len(), 4, "{cgroups:?}");
    let of = |part: &str| cgroups.iter().filter(|path| path.contains(part)).count();
    assert_eq!(of("/task_0"), 3, "{cgroups:?}");
    assert_eq!((of("/task_1"), of("/step_batch/")), (1, 1), "{cgroups:?}");
    world.inside("scancel --me").run();
    world.settle(Side::Inside);
}

/// Every path by which a room is made that hostile processes have been in must be out of their
/// hands: a false init would be confined by less than they are.
#[test]
fn a_forged_init_is_not_run() {
    let Some(world) = with_probe() else { return };
    let name = mark(&world, "init");
    let outside = listener(&world, &name);
    let project = world.project();
    let project = project.display();
    world.write(
        "init",
        format!("#!/bin/bash\ncd {project}; echo pid $$ > forged.txt; ./probe connect {name} >> forged.txt\n"),
    );
    world.write(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n2 -o job.txt\nmv /run/agent-sandbox /run/old; mkdir /run/agent-sandbox\n\
         ln -s /run/old/slurm /run/agent-sandbox/slurm; ln -s /run/old/shim /run/agent-sandbox/shim; cp init /run/agent-sandbox/init\n\
         cp init /run/agent-sandbox/new; mv -f /run/agent-sandbox/new /run/agent-sandbox/init\n\
         srun -n1 true; srun -n2 true; true\n",
    );
    world.inside("sbatch -W job.sh").run();
    end_listener(&world, outside);
    assert_eq!(world.read("forged.txt"), "", "{}", world.read("job.txt"));
}

/// A session's jail with the host's places for temporary files sees nothing of where tasks meet.
#[test]
fn no_jail_sees_where_tasks_meet() {
    let Some(world) = with_ranks() else { return };
    let id = salloc(&world);
    let running = world
        .inside(&format!("srun --jobid={id} -n2 bash -c 'touch up; until [ -e over ]; do sleep 0.05; done'; echo $?"))
        .start()
        .until("the step", || world.project().join("up").exists());
    assert_eq!(meeting(&world, &id).len(), 1);
    // Where a launcher is installed none may write; it may be /var/tmp.
    for (option, places) in [
        ("--write", &["/tmp"][..]),
        ("--read", &["/tmp", "/var/tmp"]),
    ] {
        let script = format!(
            "for base in {0}; do at=$base/agent-sandbox-$(id -u)
                 [ ! -e $at ] || find $at -mindepth 1 2>&1; touch $at/x; mkdir $at/y; mv $at $at.old; rmdir $at; rm -rf $at
                 ln -s . $at; chmod 777 $at; for fd in /proc/[0-9]*/fd/*; do readlink $fd; done | grep sandbox.
             done 2> /dev/null; ls -A /tmp/agent-sandbox-$(id -u); echo looked",
            places.join(" ")
        );
        // What other tests have there comes and goes: such a launch is to be tried again, as its hint says.
        let mut tries = (0..9).map(|_| {
            let options = places.iter().flat_map(|place| [option, place]);
            options
                .fold(world.inside(&script), |call, word| call.option(word))
                .run()
        });
        let gone = |output: &Output| output.err().contains("bwrap: Can't find source path");
        let output = tries.find(|output| !gone(output)).unwrap();
        assert_eq!(output.out(), "looked\n", "{option}: {output}");
    }
    assert_eq!(meeting(&world, &id).len(), 1);
    let output = world
        .inside(&format!(
            "srun --jobid={id} --overlap -n1 echo next; touch over; sleep 0.5; scancel {id}"
        ))
        .run();
    assert_eq!(output.out(), "next\n", "{output}");
    assert_eq!(running.end().out(), "0\n");
}

/// An allocation that stays until it is cancelled.
fn salloc(world: &World) -> String {
    let name = mark(world, "kept");
    let call = format!(
        "salloc -Q --no-shell -N1 -n3 -J {name} || echo ended with $?; squeue -h -n {name} -o %i"
    );
    let output = world.inside(&call).run().good();
    let id = output.word();
    let appeared = id.parse::<u32>().is_ok();
    assert!(appeared, "an allocation did not appear: {output}");
    id
}

/// bob's tasks, as nobody else's tests have any where his meet.
#[test]
fn nobody_is_met_at_a_forged_place() {
    let Some(cluster) = cluster() else { return };
    let _alone = BOBS.lock();
    let world = World::of(cluster, &cluster.bob);
    world.write("probe", built("probe"));
    let base = format!("/tmp/agent-sandbox-{}", world.user.uid);
    let base = Path::new(&base);
    // Another user made it, as if for everybody.
    let _ = fs::remove_dir_all(base.join("queries"));
    let _ = fs::remove_dir(base);
    if base.exists() {
        return not_checked("bob has jobs, or what they left");
    }
    let (uid, gid) = (cluster.alice.uid.as_raw(), cluster.alice.gid.as_raw());
    for mode in [0o700, 0o777] {
        fs::create_dir(base).unwrap();
        chown(base, Some(uid), Some(gid)).unwrap();
        fs::set_permissions(base, fs::Permissions::from_mode(mode)).unwrap();
        let output = world.inside("srun -Q -n2 echo fine; sbatch -W -Q -n2 -o o.txt --wrap 'srun -n1 echo fine' > /dev/null; cat o.txt").run();
        let used = fs::read_dir(base).unwrap().count();
        fs::remove_dir_all(base).unwrap();
        assert_eq!(
            (output.out().as_str(), used),
            ("fine\nfine\nfine\n", 0),
            "{mode:o}: {output}"
        );
    }
    if world.lacks("tasks", "tasks that share a jail") {
        return;
    }
    // A process in a jail with the host's /tmp made it, after a cleaner had removed the cover with
    // the directory: as it ought to be, and with a socket where the next step's tasks ask first.
    let id = salloc(&world);
    let node = world.real(&["squeue", "-h", "-j", &id, "-o", "%N"]).word();
    let base_ = base.display();
    let room = format!("{base_}/{node}.{id}");
    let forger = world
        .inside(&format!(
            "touch ready; until [ -e removed ]; do sleep 0.05; done; here=$PWD; mkdir -m 700 {base_} || exit
             mkdir -m 700 {room} && cd {room} || exit
             : > lock; chmod 600 lock; $here/probe forge 0000000001.step-0 $here/forged.txt"
        ))
        .option("--write")
        .option("/tmp")
        .start();
    until("the forger", || world.project().join("ready").exists());
    let _ = fs::remove_dir_all(base);
    put(world.user, &world.project().join("removed"), b"", 0o644);
    until("the forged socket", || {
        world.read("forged.txt").contains("listens")
    });
    let output = world
        .inside(&format!(
            "srun --jobid={id} -n2 touch ran; echo $?; scancel {id}"
        ))
        .run();
    put(
        world.user,
        &world.project().join("forged.txt.over"),
        b"",
        0o644,
    );
    let forged = forger.end();
    fs::remove_dir_all(base).unwrap();
    assert!(output.err().contains("inside a jail"), "{output}\n{forged}");
    assert!(!world.project().join("ran").exists(), "{output}");
    assert!(!world.read("forged.txt").contains("and spoke"), "{output}");
}

#[test]
fn init_and_attendants_are_closed_to_ranks() {
    let Some(world) = with_ranks() else { return };
    for tasks in 1..3 {
        let output = world
            .inside(&format!("srun -Q -n{tasks} ./probe pry | sort -u"))
            .run()
            .good();
        let out = output.out();
        // prlimit(2) asks for the same ids alone, and limits cannot be raised.
        let reached: Vec<&str> = out
            .lines()
            .filter(|line| line.ends_with(" 0") && !line.contains(" prlimit "))
            .collect();
        assert_eq!(reached, [""; 0], "{output}");
        for name in ["init ", "agent-sandbox "] {
            let tried = out.lines().filter(|line| line.starts_with(name)).count();
            assert!(tried >= 18, "{name}: {output}");
        }
    }
}

/// Its own room, and nothing else: the other step, the script and what stands around them go on.
#[test]
fn a_rank_that_kills_everything_kills_its_room() {
    let Some(world) = with_ranks() else { return };
    let running = world
        .inside(
            "salloc -Q -N1 -n4 bash -c '
             echo $SLURM_JOB_ID > id; srun -n1 --exact bash -c \"touch other; until [ -e over ]; do sleep 0.05; done; squeue -h -o one | head -n1\" & other=$!
             until [ -e other ]; do sleep 0.05; done
             srun -n3 --exact bash -c \"touch up.\\$SLURM_PROCID; [ \\$SLURM_PROCID = 1 ] || exec sleep 300; until [ -e up.0 -a -e up.2 ]; do sleep 0.05; done; kill -9 1; exec ./probe slaughter\"; echo $?
             srun -n3 --exact bash -c \"ls /proc | grep -c ^1$\"; echo $?; touch over; wait $other; echo $?'",
        )
        .start();
    let output = running.end();
    let out = output.out();
    let out = out.replace("killed 0\n", "");
    assert_eq!(out, "137\n1\n1\n1\n0\none\n0\n", "{output}");
}

#[test]
fn inside_no_task_can_be_started_by_hand() {
    let Some(world) = with_probe() else { return };
    let script = "for word in task job; do /run/agent-sandbox/init $word; echo $?; env SLURM_PROCID=0 SLURM_JOB_ID=${SLURM_JOB_ID:-7} AGENT_SANDBOX_STEP=1 AGENT_SANDBOX_STEP_0=x /run/agent-sandbox/init $word $PWD/x; echo $?; done";
    let launcher = world.cluster.launcher.display().to_string();
    world.write(
        "by-hand.sh",
        format!(
            "#!/bin/bash\n{script}\n{}\n",
            script.replace("/run/agent-sandbox/init", &launcher)
        ),
    );
    let output = world
        .inside("srun -Q -n2 ./by-hand.sh; sbatch -Q -W -o o.txt by-hand.sh > /dev/null; cat o.txt")
        .run();
    let codes: Vec<String> = output
        .out()
        .lines()
        .filter(|line| line.parse::<i32>().is_ok())
        .map(str::to_owned)
        .collect();
    assert_eq!(codes.len(), 24, "{output}");
    assert!(codes.iter().all(|code| code != "0"), "{output}");
}

/// A rank that uses up what it may have of sockets does so for itself.
#[test]
fn many_sockets_of_some_ranks_leave_the_others_theirs() {
    let Some(world) = with_ranks() else { return };
    let output = world
        .inside(
            "srun -Q -N1 -n4 -l bash -c '[ $SLURM_PROCID != 0 ] || ulimit -n 20; ./probe sockets 10000; ps ax -o comm= | sort | uniq -c | grep -E \"init|agent-sandbox\" | tr -s \" \"' | sort",
        )
        .run()
        .good();
    let out = output.out();
    for task in 1..4 {
        assert!(out.contains(&format!("{task}: failed 0\n")), "{output}");
    }
    assert!(
        out.contains("0: failed ") && !out.contains("0: failed 0\n"),
        "{output}"
    );
    // The maker is none of those that a rank sees.
    for line in out
        .lines()
        .filter(|line| line.contains("init") || line.contains("agent-sandbox"))
    {
        let count: u32 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(
            count <= if line.contains("init") { 1 } else { 4 },
            "{output}"
        );
    }
}

#[test]
fn another_policy_does_not_join() {
    let Some(world) = World::steps() else {
        return;
    };
    let id = salloc(&world);
    let running = world
        .inside(&format!("srun --jobid={id} -n2 --exact bash -c 'echo shared > /tmp/shared; touch up; until [ -e over ]; do sleep 0.05; done'"))
        .start()
        .until("the step", || world.project().join("up").exists());
    let step = |words: &str| format!("srun --jobid={id} -n1 --exact {words}");
    // Another session under the same policy.
    let output = world.inside(&step("cat /tmp/shared")).run().good();
    assert_eq!(output.out(), "shared\n", "{output}");
    let touch = step("touch ran; echo $?");
    let other = [
        (
            world.inside(&touch).set("jail.max_processes=100"),
            "policy files or --set options differ",
        ),
        (
            world.inside(&touch).option("--write").option("/tmp"),
            "options of the command line differ",
        ),
    ];
    for (call, why) in other {
        let output = call.run();
        assert!(
            output.err().contains(&format!(
                "job {id} has a jail on this node under another policy: {why}"
            )) && output.err().contains("hint: ")
                && output.out() == "125\n",
            "{output}"
        );
        assert!(!world.project().join("ran").exists(), "{output}");
    }
    put(world.user, &world.project().join("over"), b"", 0o644);
    running.end().good();
    // With the last room its policy ends.
    let output = world
        .inside(&format!("{touch}; scancel {id}"))
        .set("jail.max_processes=100")
        .run();
    assert_eq!(output.out(), "0\n", "{output}");
}

#[test]
fn each_room_has_its_own_way_to_slurm() {
    let Some(world) = World::steps() else {
        return;
    };
    let see =
        "stat -c %d:%i /run/agent-sandbox/slurm/chaperon; squeue -h -j $SLURM_JOB_ID -o %i-%T";
    world.write("see.sh", format!("#!/bin/bash\n{see}\n"));
    world.write(
        "job.sh",
        "#!/bin/bash\n#SBATCH -N1 -n3 -o batch.txt\n./see.sh; srun -n1 --exact -o step.txt bash -c './see.sh; touch up; until [ -e over ]; do sleep 0.05; done' &\n\
         until [ -e up ]; do sleep 0.05; done; srun -n2 --exact -o rank%t.txt ./see.sh; touch over; wait; ./see.sh\necho $SLURM_JOB_ID\n",
    );
    world.inside("sbatch -W job.sh").run().good();
    let of = |name: &str| world.read(&format!("{name}.txt"));
    let batch = of("batch");
    let batch: Vec<&str> = batch.lines().collect();
    assert!(batch.len() == 5 && batch[..2] == batch[2..4], "{batch:?}");
    let mut sockets = BTreeSet::from([batch[0].to_owned()]);
    for name in ["step", "rank0", "rank1"] {
        let said = of(name);
        let (socket, state) = said.trim().split_once('\n').unwrap();
        assert_eq!(state, format!("{}-RUNNING", batch[4]), "{name}");
        sockets.insert(socket.to_owned());
    }
    assert_eq!(sockets.len(), 3, "{sockets:?}");
    assert_eq!(of("rank0"), of("rank1"));
    until("the end of the servers", || {
        servers(&world, batch[4]).is_empty()
    });
}
