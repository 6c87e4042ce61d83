//! What people do every day and programs expect of the place in which they run: names, signals and
//! directories are as outside, whichever backend makes the jail.

use crate::world::{Side, World};

/// Programs find their own name, and what `ps` shows of them, by where Slurm puts the script.
#[test]
fn a_batch_script_has_the_name_that_slurm_gives_it() {
    let Some(world) = World::new() else { return };
    world.write(
        "name.sh",
        "#!/bin/bash\n#SBATCH -o name.txt\necho \"${0##*/}\"; basename \"${BASH_SOURCE[0]}\"; cat /proc/$$/comm\n\
         tr '\\0' '\\n' < /proc/$$/cmdline | sed 's|.*/||'; no-such-command 2>&1 | sed 's|.*/||'\n",
    );
    world.same("sbatch -Q -W name.sh; echo $?");
    let text = world.read("name.txt");
    assert!(
        text.starts_with("slurm_script\nslurm_script\nslurm_script\n"),
        "{text}"
    );
}

/// What catches a signal in a step catches it, from whomever it comes.
#[test]
fn a_step_catches_what_it_traps() {
    let Some(world) = World::new() else { return };
    for signal in ["INT", "TERM", "USR1", "HUP"] {
        world.clear();
        world.write(
            "trap.sh",
            format!(
                "#!/bin/bash\ntrap 'echo got {signal} >> caught.txt; exit 3' {signal}\necho ready > ready.txt\n\
                 while :; do sleep 0.1; done\n"
            ),
        );
        world.same(&format!(
            "srun -Q -J trap$$ ./trap.sh > /dev/null 2>&1 & p=$!
             until [ -s ready.txt ]; do sleep 0.1; done
             id=$(squeue -h -o %A --me -n trap$$ | head -n1)
             scancel -Q -s {signal} $id; wait $p; echo $?; cat caught.txt"
        ));
    }
}

/// The interrupt key, at a terminal that the step has.
#[test]
fn a_step_catches_the_interrupt_key() {
    let Some(world) = World::new() else { return };
    world.write(
        "trap.sh",
        "#!/bin/bash\ntrap 'echo \"got\" INT; exit 3' INT\necho \"rea\"dy\nwhile :; do sleep 0.1; done\n",
    );
    for side in [Side::Outside, Side::Inside] {
        let mut terminal = crate::terminal::shell(&world, side);
        terminal.line("srun --pty ./trap.sh; echo \"code\" $?");
        terminal.expect("ready");
        terminal.interrupt();
        terminal.expect("got INT");
        terminal.expect("code 3");
        terminal.expect("(outer) ");
        terminal.line("exit");
        terminal.end();
        world.settle(side);
    }
}

/// Programs have the paths of Slurm's commands built in, and people type them.
#[test]
fn slurms_commands_work_by_their_paths() {
    let Some(world) = World::new() else { return };
    world.write(
        "job.sh",
        "#!/bin/bash\n#SBATCH -o job.txt\n/usr/bin/srun -n1 echo step; echo \"$@\"\n",
    );
    world.same(
        r#"/usr/bin/sbatch -W --parsable job.sh a 'b c' | sed 's/[0-9]*//'; /bin/scontrol --version
        cd /usr/bin; ./sinfo -h -o %P; cd - > /dev/null; ln -s /usr/bin/sinfo sinfo; ./sinfo -h -o %P; rm sinfo
        find /usr/bin/sinfo -exec {} -h -o %P \; ; echo /usr/bin/sinfo | xargs -I{} {} -h -o %P
        perl -e 'system("/usr/bin/sinfo", "-h", "-o", "%P"); print $?, "\n"; exec {"/usr/bin/scontrol"} "scontrol", "--version"'
        test -x /usr/bin/python3 && python3 -c 'import os, subprocess, threading
run = lambda: subprocess.run(["/usr/bin/sinfo", "-h", "-o", "%P"], check=True)
run()
threads = [threading.Thread(target=run) for _ in range(8)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
print(os.spawnv(os.P_WAIT, "/usr/bin/scancel", ["scancel", "--version"]))'
        /usr/bin/srun -Q -n2 bash -c 'echo task'; /usr/bin/no-such-command; echo $?; cat job.txt"#,
    );
}

/// The session's own jail starts the ranks of an allocation that it asked for.
#[test]
fn mpirun_starts_ranks_in_an_allocation() {
    let Some(world) = crate::mpi::world() else {
        return;
    };
    world.same_but(
        "salloc -Q -N1 -n2 mpirun.openmpi -n 2 ./ring.openmpi; echo $?
         salloc -Q -N1 -n2 bash -c 'mpirun.openmpi ./ring.openmpi; echo $?'
         salloc -Q -N2 -n2 mpirun.openmpi ./ring.openmpi 2>&1 | tail -n1",
        crate::mpi::plain,
    );
}
