//! A session that is started in an allocation: in the shell of `salloc`, in a batch script, by `srun`. What
//! it may do there, compared with the same outside; and jobs that it must not take for its own.

use agent_sandbox_support::terminal::Terminal;

use crate::call::Output;
use crate::mpi;
use crate::world::{Side, World, until};

/// The shell of `salloc`, as a terminal session of its own, which a login is.
const SALLOC: &[&str] = &["setsid", "--wait", "salloc", "-Q", "-N1", "-n2"];
/// A task of a step on a node. It holds what it runs on, so steps below it overlap.
const SRUN: &[&str] = &["srun", "-Q", "-N1", "-n1", "-J", "given"];
/// The batch script, whose arguments are a command.
const BATCH: &str =
    "#!/bin/bash\n#SBATCH -N1 -n2 -Q -o /dev/null\nexec > said.txt 2>&1\n\"$@\"\necho ended $?\n";
const SBATCH: &[&str] = &["sbatch", "-Q", "-W", "batch.sh"];

/// What is done in an allocation: what it shows, and the script.
const USES: &[(&str, &str)] = &[
    (
        "steps",
        "srun hostname; srun -l bash -c 'echo $SLURM_PROCID of $SLURM_NTASKS, step $SLURM_STEP_ID' | sort",
    ),
    (
        "a step of a size",
        "srun --overlap -n1 -c1 -J named bash -c 'echo $SLURM_NTASKS $SLURM_CPUS_PER_TASK $SLURM_JOB_NAME'; echo in | srun -n1 cat",
    ),
    (
        "exit codes",
        "srun -n1 bash -c 'exit 7'; echo $?; srun -Q -n1 bash -c 'kill -9 $$' 2> /dev/null; echo $?",
    ),
    (
        "variables",
        "env | grep ^SLURM_ | grep -v _CONF= | cut -d= -f1 | sort; echo; srun -n1 env | grep ^SLURM_ | grep -v _CONF= | cut -d= -f1 | sort",
    ),
    (
        "squeue",
        "squeue --me -h -o '%i %j %T %D %C' | grep $SLURM_JOB_ID; squeue -h -j $SLURM_JOB_ID -o '%i %u %P %l'; squeue -h -s --me -o %i | grep -F $SLURM_JOB_ID. | grep -v -e extern -e interactive",
    ),
    (
        "scontrol",
        "scontrol show job $SLURM_JOB_ID | grep -oE '(JobId|JobName|UserId|JobState|NumNodes|NumCPUs|TimeLimit)=[^ ]*'",
    ),
    (
        "sacct",
        "until sacct -n -X -P -j $SLURM_JOB_ID -o JobID,User,State,AllocCPUS,Timelimit | grep . ; do sleep 0.2; done",
    ),
    (
        "sstat",
        "srun --overlap -n1 -J long bash -c 'touch up; until [ -e over ]; do sleep 0.1; done' & until [ -e up ]; do sleep 0.1; done
sleep 1; sstat -n -P -j $(squeue -h -s -j $SLURM_JOB_ID -o '%i %j' | grep long | cut -d' ' -f1) -o JobID,NTasks; touch over; wait; rm up over",
    ),
    (
        "a step of its own is cancelled",
        "srun --overlap -n1 -J mine sleep 100 2> /dev/null & until squeue -h -s -j $SLURM_JOB_ID -o '%i %j' | grep mine > step.txt; do sleep 0.1; done\nread step name < step.txt; rm step.txt; scancel $step; echo $?; wait $!; echo $?; squeue -h -j $SLURM_JOB_ID -o %T",
    ),
    (
        "sbatch",
        "SBATCH_JOB_NAME=by-variable sbatch -Q -W -n1 -o out.txt --wrap 'echo $SLURM_NTASKS $SLURM_JOB_NAME $SLURM_JOB_NUM_NODES; srun -l echo step'; echo $?",
    ),
    (
        "what sbatch hands on",
        "sbatch -Q -W -n1 -o out.txt --wrap 'env | grep ^SLURM_ | grep -v -e _CONF= -e _UMASK= | cut -d= -f1 | sort'; echo $?",
    ),
    (
        "salloc in it",
        "salloc -Q -n1 bash -c 'srun echo inner; echo $SLURM_NTASKS'",
    ),
];

/// Where steps take turns, an inner one waits for the outer, outside as inside.
fn overlapping(script: &str) -> String {
    script
        .replace("srun --overlap ", "srun ")
        .replace("srun ", "srun --overlap ")
}

#[track_caller]
fn all_uses(before: &[&str], adapt: fn(&str) -> String, leave_out: &[&str]) {
    let Some(world) = World::new() else { return };
    let mut wrong = Vec::new();
    for (what, script) in USES.iter().filter(|(what, _)| !leave_out.contains(what)) {
        world.clear();
        world.write("batch.sh", BATCH);
        let (world, script) = (&world, adapt(script));
        let same = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            world.same_started_by(before, &script, str::to_owned)
        }));
        let text = match &same {
            Ok(output) => format!("{output}\n{}", world.read("said.txt")),
            Err(_) => String::new(),
        };
        let refused = [
            "is not one of",
            "not used in this session",
            "command not found",
        ];
        let as_outside = same.is_ok() && !refused.iter().any(|words| text.contains(words));
        println!("{:6} {what}", if as_outside { "same" } else { "DIFFERS" });
        if !as_outside {
            wrong.push(*what);
        }
    }
    assert!(wrong.is_empty(), "not as outside: {wrong:?}");
}

#[test]
fn a_session_in_the_shell_of_salloc_works_in_the_allocation() {
    all_uses(SALLOC, str::to_owned, &[]);
}

#[test]
fn a_session_in_a_batch_script_works_in_the_job() {
    all_uses(SBATCH, overlapping, &[]);
}

#[test]
fn a_session_in_a_step_works_in_the_job() {
    all_uses(SRUN, overlapping, &[]);
}

#[test]
fn each_task_of_a_step_may_start_a_session() {
    let Some(world) = World::new() else { return };
    let each = "echo session $SLURM_PROCID; srun --overlap -N1 -n1 -w $SLURMD_NODENAME echo step of $SLURM_PROCID";
    let sorted = |text: &str| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    world.same_started_by(&["srun", "-Q", "-N2", "-n2"], each, sorted);
}

#[test]
fn mpirun_runs_in_the_allocation() {
    let Some(world) = mpi::world() else { return };
    if world.lacks("tmp", "Open MPI, which wants /tmp") {
        return;
    }
    let script = "mpirun.openmpi -n 2 ./ring.openmpi; echo $?; mpirun.openmpi -n 2 hostname";
    let two = &["setsid", "--wait", "salloc", "-Q", "-N2", "-n2"];
    for before in [SALLOC, two] {
        let output = world.same_started_by(before, script, mpi::plain);
        assert!(output.out().contains("sum 3 of 2\n0\n"), "{output}");
    }
}

/// As people do it: `salloc` opens a shell, on the node where the site has it so, and there they start.
#[test]
fn a_session_is_started_in_the_shell_that_salloc_opens() {
    let Some(world) = World::new() else { return };
    let mut launcher = world.cluster.launcher.display().to_string();
    for option in crate::chosen::options() {
        launcher.push_str(&format!(" {option}"));
    }
    let shell = world.outside("").words(["salloc", "-Q", "-n2"]);
    let mut terminal = Terminal::start(&shell.at_terminal());
    terminal.line("PS1='(al''loc) '");
    terminal.expect("(alloc) ");
    terminal.line(&format!(
        "{} bash -c 'srun -n1 echo \"ste\"p $SLURM_JOB_ID; scancel $SLURM_JOB_ID'",
        launcher
    ));
    terminal.expect("agent-sandbox: in Slurm job ");
    terminal.expect("\nstep ");
    terminal.expect("is the allocation in which this session was started");
    terminal.expect("(alloc) ");
    terminal.line("exit");
    terminal.end();
    world.settle(Side::Outside);
}

#[test]
fn a_session_is_a_shell_at_the_terminal_of_a_step() {
    let Some(world) = World::new() else { return };
    let call = world
        .inside("")
        .words(["bash", "--noprofile", "--norc", "--noediting", "-i"])
        .option("--env")
        .option("PS1=(jail) ")
        .started_by(&["srun", "-Q", "-n1", "--pty"]);
    let mut terminal = Terminal::start(&call.at_terminal());
    terminal.expect("(jail) ");
    terminal.line("srun --overlap cat ~/.ssh/id_rsa; srun --overlap echo \"ste\"p $SLURM_STEP_ID");
    terminal.expect("\nstep 0");
    terminal.expect("(jail) ");
    terminal.line("exit");
    assert!(
        !terminal.screen().contains(&world.cluster.marker),
        "{}",
        terminal.screen()
    );
    terminal.end();
    world.settle(Side::Inside);
}

/// What must leave the allocation as it is.
const CONTROL: &str = r#"J=$SLURM_JOB_ID
for words in "scancel $J" "scancel -s USR1 $J" "scancel -b $J" "scancel -f $J" "scancel ${J}_0" "scancel $J.batch" "scancel $J.extern" \
    "scontrol requeue $J" "scontrol suspend $J" "scontrol hold $J" "scontrol update job=$J TimeLimit=1" "scontrol update jobid=$J Name=taken" \
    "scontrol top $J" "scontrol notify $J words" "scontrol write batch_script $J -" "sacct -B -j $J"; do
    $words >> did.txt 2>&1 && echo "done: $words"
done
N=$SLURM_JOB_NAME # Other tests have jobs, too.
scancel --me -n $N 2>> did.txt; scancel -u $USER -n $N 2>> did.txt; scancel -t RUNNING -n $N 2>> did.txt
srun --overlap -n1 bash -c "scancel $J; scancel $J.0; scancel --me -n $N; scontrol update job=$J TimeLimit=1" > step.txt 2>&1
squeue -h -j $J -o 'still %T %j'
"#;

#[track_caller]
fn is_left_alone(world: &World, before: &[&str], options: &[&str]) -> Output {
    world.write("batch.sh", BATCH);
    let mut call = world.inside(CONTROL).started_by(before);
    for option in options {
        call = call.set(option);
    }
    let output = call.run();
    world.settle(Side::Inside);
    let text = format!("{}{}", output.out(), world.read("said.txt"));
    let did = world.read("did.txt");
    assert!(
        text.contains("still RUNNING") && !text.contains("done:"),
        "{output}\n{text}\n{did}\n{}",
        world.read("step.txt")
    );
    assert!(did.contains("(`slurm.allocation` is `steps`)"), "{did}");
    output
}

#[test]
fn the_allocation_is_the_users_to_cancel_and_change() {
    let Some(world) = World::new() else { return };
    let salloc: Vec<&str> = SALLOC.iter().copied().chain(["-J", "kept"]).collect();
    is_left_alone(&world, &salloc, &[]);
    is_left_alone(&world, &salloc, &["slurm.scope=user"]);
    let sbatch = ["sbatch", "-Q", "-W", "-J", "kept", "batch.sh"];
    is_left_alone(&world, &sbatch, &["slurm.scope=user"]);
}

#[test]
fn an_array_task_is_the_users_by_either_number() {
    let Some(world) = World::new() else { return };
    let by_array = "scancel ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID && echo done:; scancel $SLURM_ARRAY_JOB_ID && echo done:\nsrun -n1 echo a step\n";
    world.write("batch.sh", BATCH);
    for set in ["slurm.scope=project", "slurm.scope=user"] {
        let before = [
            "sbatch",
            "-Q",
            "-W",
            "-J",
            "kept-array",
            "--array=3",
            "batch.sh",
        ];
        let call = world.inside(&format!("{by_array}{CONTROL}"));
        call.started_by(&before).set(set).run();
        world.settle(Side::Inside);
        let text = world.read("said.txt");
        assert!(
            text.contains("a step") && text.contains("still RUNNING") && !text.contains("done:"),
            "{set}: {text}\n{}",
            world.read("did.txt")
        );
    }
}

#[test]
fn a_step_of_somebody_else_in_the_allocation_is_not_cancelled() {
    let Some(world) = World::new() else { return };
    let before: Vec<&str> = SALLOC
        .iter()
        .copied()
        .chain(["bash", "-c", "srun --overlap -n1 -J theirs sleep 100 & until squeue -h -s -j $SLURM_JOB_ID -o %j | grep -q theirs; do sleep 0.1; done; \"$@\"; kill $!; wait", "bash"])
        .collect();
    let output = world
        .inside(
            "scancel $SLURM_JOB_ID.0; echo $?; squeue -h -s -j $SLURM_JOB_ID -o %j | grep theirs",
        )
        .started_by(&before)
        .run();
    world.settle(Side::Inside);
    assert!(
        output.out().starts_with("1\ntheirs\n")
            && output.err().contains("is no step that this session runs"),
        "{output}"
    );
}

#[test]
fn the_policy_gives_the_allocation_or_takes_it() {
    let Some(world) = World::new() else { return };
    let script = "scontrol update job=$SLURM_JOB_ID TimeLimit=2 && echo changed; scancel $SLURM_JOB_ID; echo $?";
    let call = world.inside(script).started_by(SALLOC);
    let output = call.set("slurm.allocation=control").run();
    assert!(output.out().starts_with("changed\n0\n"), "{output}");
    world.settle(Side::Inside);
    let call = world.inside("srun -n1 true; echo $?").started_by(SALLOC);
    let output = call.set("slurm.allocation=off").run();
    assert!(
        output.out() == "1\n" && output.err().contains("is not one of this project's jobs"),
        "{output}"
    );
}

/// A job of this world's that runs; what it would tell a step of it.
#[track_caller]
fn other(world: &World) -> String {
    let place = world.place(Side::Outside);
    let words = [
        "sbatch",
        "--parsable",
        "-n1",
        "-D",
        place.to_str().unwrap(),
        "-o",
        "/dev/null",
    ];
    let script = ["--wrap", "sleep 300"];
    let id = world.real(&[&words[..], &script].concat()).good().word();
    let running = || world.real(&["squeue", "-h", "-j", &id, "-o", "%T"]).word() == "RUNNING";
    until(&format!("job {id} runs"), running);
    id
}

/// A session that is told that it runs in another job.
#[track_caller]
fn pretends(world: &World, before: &[&str], job: &str) -> Output {
    let script = "srun --overlap -n1 true && echo entered; scancel $SLURM_JOB_ID && echo cancelled
        squeue -h -j $SLURM_JOB_ID -o %j; scontrol update job=$SLURM_JOB_ID TimeLimit=1 && echo changed; true";
    let variables: Vec<String> = [
        ("SLURM_JOB_ID", job),
        ("SLURM_JOBID", job),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "0"),
        ("SLURMD_NODENAME", &world.cluster.nodes[0]),
        ("SLURM_NTASKS", "1"),
        ("SLURM_CLUSTER_NAME", "../../../x"),
    ]
    .map(|(name, value)| format!("{name}={value}"))
    .to_vec();
    let mut words: Vec<&str> = before.iter().copied().chain(["env"]).collect();
    words.extend(variables.iter().map(String::as_str));
    let output = world.inside(script).started_by(&words).run();
    let (said, did) = (output.err(), output.out());
    assert!(
        said.contains(&format!("job {job} is not used in this session: it ")),
        "{output}"
    );
    // scancel of a number that no job has returns 0, as Slurm's does.
    let unknown = said.contains("it is not known to Slurm");
    for word in ["entered", "cancelled", "changed", "wrap"] {
        let harmless = unknown && word == "cancelled";
        assert!(harmless || !did.contains(word), "{output}");
    }
    output
}

#[test]
fn a_variable_alone_makes_no_job_the_sessions() {
    let (Some(world), Some(project)) = (World::new(), World::new()) else {
        return;
    };
    let bob = World::of(world.cluster, &world.cluster.bob);
    let (theirs, bobs) = (other(&project), other(&bob));
    let fresh = &["setsid", "--wait"];
    let output = pretends(&world, fresh, &theirs);
    assert!(
        output.err().contains("was not made for this process"),
        "{output}"
    );
    let output = pretends(&world, fresh, &bobs);
    assert!(output.err().contains("is another user's"), "{output}");
    // In an allocation, and on a node of another job.
    pretends(&world, SALLOC, &theirs);
    pretends(&world, SRUN, &theirs);
    pretends(&world, SALLOC, &bobs);
    for id in ["0", "999999999", "7x", "../x"] {
        pretends(&world, fresh, id);
    }
    for (world, id) in [(&project, &theirs), (&bob, &bobs)] {
        let state = world
            .real(&["squeue", "-h", "-j", id, "-o", "%T %l"])
            .word();
        assert!(state.starts_with("RUNNING"), "{state}");
    }
}

#[test]
fn an_agent_names_no_other_job_as_the_allocation() {
    let (Some(world), Some(project)) = (World::new(), World::new()) else {
        return;
    };
    let theirs = other(&project);
    let script = format!(
        "export SLURM_JOB_ID={theirs} SLURM_JOBID={theirs}
        srun --overlap -n1 true && echo entered; scancel {theirs} && echo cancelled
        {} -q -- true && echo nested; true",
        world.cluster.launcher.display()
    );
    let output = world.inside(&script).started_by(SALLOC).run();
    assert!(
        output.out().is_empty() && output.err().contains("is not one of"),
        "{output}"
    );
}

/// A program that Slurm would start on the node, beside the step and outside of its jail.
#[test]
fn variables_of_the_shell_start_nothing_outside_of_the_jail() {
    let Some(world) = World::new() else { return };
    world.write("prolog.sh", "#!/bin/bash\ncat ~/.ssh/id_rsa > prolog.txt\n");
    let place = |side| world.place(side).join("prolog.sh").display().to_string();
    for name in [
        "SLURM_TASK_PROLOG",
        "SLURM_PROLOG",
        "SLURM_TASK_EPILOG",
        "SLURM_EPILOG",
    ] {
        let run = |side: Side| {
            let variable = format!("{name}={}", place(side));
            let words: Vec<&str> = SALLOC.iter().copied().chain(["env", &variable]).collect();
            let output = world.on(side, "srun -n1 true").started_by(&words).run();
            world.settle(side);
            output
        };
        run(Side::Outside);
        let control = world.place(Side::Outside).join("prolog.txt");
        until(&format!("{name} is obeyed outside"), || {
            std::fs::read_to_string(&control).is_ok_and(|text| text.contains(&world.cluster.marker))
        });
        std::fs::remove_file(&control).unwrap();
        let output = run(Side::Inside);
        world.check(&output);
    }
}

#[test]
fn doctor_and_the_agents_instructions_say_what_holds() {
    let Some(world) = World::new() else { return };
    let doctor = |before: &[&str]| {
        let launcher = world.cluster.launcher.to_str().unwrap();
        let words: Vec<&str> = before.iter().copied().chain([launcher, "doctor"]).collect();
        let said = world.real(&words).out();
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let said = doctor(SALLOC);
    assert!(
        said.contains("slurm-allocation") && said.contains("steps of a session run in it"),
        "{said}"
    );
    let theirs = other(&world);
    let variable = format!("SLURM_JOB_ID={theirs}");
    let said = doctor(&["setsid", "--wait", "env", &variable]);
    assert!(
        said.contains("is not used in a session: it was not made for this process"),
        "{said}"
    );
    assert!(!doctor(&["setsid", "--wait"]).contains("slurm-allocation"));
    let told = world
        .inside("cat \"$AGENT_SANDBOX_INSTRUCTIONS\"; echo job $SLURM_JOB_ID")
        .option("-p")
        .option("generic")
        .started_by(SALLOC)
        .run()
        .good()
        .out();
    let job = told.trim_end().rsplit(' ').next().unwrap().to_owned();
    assert!(
        told.contains(&format!(
            "allocation of the user's, job {job} (2 CPUs, 1 node)"
        )),
        "{told}"
    );
}

/// Of an array the task in which the session was started is its own, and no other.
#[test]
fn other_tasks_of_the_array_are_the_users() {
    let Some(world) = World::new() else { return };
    let others = "for job in $(squeue -h -r -j $SLURM_ARRAY_JOB_ID -o %A) $SLURM_ARRAY_JOB_ID; do \
         [ $job = $SLURM_JOB_ID ] && continue; \
         scancel $job && echo done: $job; scontrol update job=$job TimeLimit=2 && echo done: $job; \
         srun --jobid=$job -n1 echo done: a step of $job; done\n";
    world.write("batch.sh", BATCH);
    for set in ["slurm.allocation=steps", "slurm.allocation=control"] {
        let before = [
            "sbatch",
            "-Q",
            "-W",
            "-J",
            "kept-tasks",
            "--array=1-2",
            "batch.sh",
        ];
        let call = world.inside(&format!("{others}srun -n1 echo a step\n"));
        call.started_by(&before).set(set).run();
        world.settle(Side::Inside);
        let text = world.read("said.txt");
        assert!(
            text.contains("a step") && !text.contains("done:"),
            "{set}: {text}\n{}",
            world.read("did.txt")
        );
    }
}
