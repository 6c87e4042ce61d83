//! salloc: the shell and the command run in this session's jail, steps in those of the nodes.

use agent_sandbox_support::terminal::Terminal;

use crate::world::{Side, World};

#[test]
fn a_command_runs_in_the_allocation() {
    let Some(world) = World::new() else { return };
    world.same(
        r#"salloc -n2 bash -c 'echo $SLURM_NTASKS $SLURM_JOB_NAME; srun -l echo step | sort'; echo $?
        salloc -Q -n1 bash -c 'exit 5'; echo $?
        echo typed | salloc -Q cat"#,
    );
}

#[test]
fn an_allocation_without_a_shell_takes_steps() {
    let Some(world) = World::new() else { return };
    world.same(
        r#"salloc --no-shell -J kept -n1 2> said.txt; echo $?
        id=$(grep -oE 'allocation [0-9]+' said.txt | grep -oE '[0-9]+' | tail -n1); rm said.txt
        squeue -h -j $id -o '%j %T %u'
        srun --jobid=$id -n1 bash -c 'echo step $SLURM_JOB_NAME'
        scancel $id; echo $?"#,
    );
}

#[test]
fn a_shell_runs_in_the_allocation() {
    let Some(world) = World::new() else { return };
    let call = world
        .inside("")
        .words(["bash", "--noprofile", "--norc", "--noediting", "-i"])
        .option("--env")
        .option("PS1=(jail) ");
    let mut terminal = Terminal::start(&call.at_terminal());
    terminal.expect("(jail) ");
    terminal
        .line("salloc -Q -n1 -J typed env PS1='(typed) ' bash --noprofile --norc --noediting -i");
    terminal.expect("\n(typed) ");
    terminal.line("echo \"job $SLURM_JOB_ID:\" $SLURM_JOB_NAME");
    terminal.expect(": typed");
    terminal.line("srun cat ~/.ssh/id_rsa; srun echo \"ste\"p");
    terminal.expect("\nstep");
    terminal.expect("(typed) ");
    terminal.line("exit");
    terminal.expect("(jail) ");
    terminal.line("echo \"o\"ver $SLURM_JOB_ID.");
    terminal.expect("over .");
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

#[test]
fn a_step_of_an_allocation_reads_no_secret() {
    let Some(world) = World::new() else { return };
    world.attack("salloc -Q -n1 srun cat ~/.ssh/id_rsa");
    world.attack("salloc -Q -n1 bash -c 'srun bash -c \"cat ~/.aws/credentials\"'");
    world.attack("salloc -Q -n1 /usr/bin/srun cat ~/.ssh/id_rsa");
}
