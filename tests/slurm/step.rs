//! srun: as an allocation of its own and as a step of a job.

use nix::sys::signal::Signal;

use crate::world::{PATIENCE, Side, World, until};

#[test]
fn srun_runs_a_command_as_outside() {
    let Some(world) = World::new() else { return };
    world.write("prog.sh", "#!/bin/bash\necho \"[$1] $(pwd)\"\nexit 3\n");
    let by_path = world.lacks("slurm-commands", "Slurm's commands by their paths");
    let srun = if by_path { "srun" } else { "/usr/bin/srun" };
    let script = r#"srun hostname; echo $?
        srun ./prog.sh 'a b'; echo $?
        srun bash -c 'kill -9 $$' 2> /dev/null; echo $?
        srun no-such-command 2> /dev/null; echo $?
        srun -Q true; echo $?
        srun -J name bash -c 'echo $SLURM_JOB_NAME'
        cd /; srun pwd; srun -D /usr pwd; /usr/bin/srun id -un"#;
    world.same(&script.replace("/usr/bin/srun", srun));
}

#[test]
fn tasks_are_counted_and_labelled() {
    let Some(world) = World::new() else { return };
    world.same("srun -n2 -l bash -c 'echo $SLURM_PROCID of $SLURM_NTASKS' | sort; srun -N2 -l bash -c 'echo $SLURM_NODEID' | sort");
    world.same("srun -n3 bash -c 'exit $SLURM_PROCID' 2> /dev/null; echo $?");
    world.same("srun --ntasks=2 --ntasks-per-node=1 --nodes=2 echo task");
}

#[test]
fn standard_streams_pass_through_srun() {
    let Some(world) = World::new() else { return };
    world.same(
        r#"printf 'one\ntwo\n' | srun cat
        srun bash -c 'echo out; echo err >&2' 2> err.txt
        head -c 3000000 /dev/zero | srun cat | wc -c
        srun seq 1000 | tail -n 1
        echo x | srun -n2 -l cat | sort
        echo x | srun -n2 --input=1 -l cat | sort
        srun --input=none cat; echo $?
        srun cat < /dev/null; echo $?"#,
    );
}

#[test]
fn files_of_srun_are_opened_in_the_jail() {
    let Some(world) = World::new() else { return };
    world.same(
        r#"echo in > in.txt
        srun -o out.txt echo text
        srun -n2 -o 'task-%t.txt' bash -c 'echo $SLURM_PROCID'
        srun -n2 -l -o both.txt bash -c 'echo x'; sort -o both.txt both.txt
        srun -o o.txt -e e.txt bash -c 'echo o; echo e >&2'
        srun -i in.txt cat
        srun -o job-%j-%x.txt -J n echo job
        srun --open-mode=append -o out.txt echo more
        srun -o none hidden; srun -o none echo hidden
        srun -o /nowhere/x.txt echo x 2> /dev/null; [ $? = 0 ] || echo failed"#,
    );
}

#[test]
fn each_line_of_a_multi_prog_file_runs() {
    let Some(world) = World::new() else { return };
    world.write(
        "multi.conf",
        "# a comment\n0 echo first %t %o\n1-2 echo 'the others' %t %o\n* echo rest %t\n",
    );
    world.same("srun -n4 -l --multi-prog multi.conf | sort; echo $?");
    world.write("bad.conf", "0 echo x\n");
    world.same("srun -n2 --multi-prog bad.conf > /dev/null 2>&1; [ $? = 0 ] || echo failed");
    world.same("srun -n2 --multi-prog missing.conf > /dev/null 2>&1; [ $? = 0 ] || echo failed");
}

#[test]
fn steps_of_a_batch_script_run() {
    let Some(world) = World::new() else { return };
    world.write(
        "steps.sh",
        "#!/bin/bash\n#SBATCH -N 1 -n 2 -o steps.txt\n\
         srun -l hostname | sort\nsrun -n1 bash -c 'echo step $SLURM_STEP_ID of $SLURM_JOB_ID; pwd'\n\
         srun -n1 --exclusive sleep 0 & srun -n1 --exclusive sleep 0 & wait\n\
         echo in | srun -n1 cat\nsrun -n2 -o step-%j-%s-%t.txt echo file\nsrun bash -c 'exit 3'\necho $?\nexit 4\n",
    );
    world.same(
        r#"id=$(sbatch --parsable steps.sh)
        until sacct -X -n -j "$id" -o State | grep -qE 'COMPLETED|FAILED'; do sleep 0.3; done
        sacct -P -n -j "$id" -o JobID,JobName,State,ExitCode | grep -v extern"#,
    );
}

#[test]
fn steps_of_other_nodes_run_in_jails() {
    let Some(world) = World::new() else { return };
    world.write(
        "nodes.sh",
        "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=1 -o nodes.txt\n\
         srun -l bash -c 'ls ~/.ssh 2>&1 | wc -l; echo $SLURM_NODEID' | sort\n\
         srun cat ~/.ssh/id_rsa\n",
    );
    world.attack("sbatch nodes.sh");
}

#[test]
fn an_interrupt_ends_srun_and_its_step() {
    let Some(world) = World::new() else { return };
    let running = world
        .inside("trap 'echo trapped' INT; srun bash -c 'echo begun > begun.txt; sleep 60'; echo $?")
        .start();
    world.until(Side::Inside, "begun.txt", "begun");
    running.signal(Signal::SIGTERM);
    let output = running.end();
    assert!(output.code != 0, "{output}");
    world.settle(Side::Inside);
}

#[test]
fn srun_ends_with_its_caller() {
    let Some(world) = World::new() else { return };
    world
        .inside("srun bash -c 'echo begun > begun.txt; sleep 300' & p=$!\nuntil [ -e begun.txt ]; do sleep 0.1; done\nkill -9 $p; wait $p; echo $?")
        .run()
        .good();
    until("the end of the step", || {
        world
            .jobs(Side::Inside)
            .values()
            .flatten()
            .all(|state| state != "RUNNING")
    });
    assert!(PATIENCE.as_secs() < 300);
}

#[test]
fn what_srun_refuses_is_said() {
    let Some(world) = World::new() else { return };
    for call in [
        "srun --ntasks=0 true",
        "srun --mem=900G true",
        "srun -p nowhere true",
    ] {
        world.same(&format!("{call}; echo $?"));
    }
    world.both_fail("srun");
}
