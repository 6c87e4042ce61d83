//! A person at a terminal: `srun --pty`, the window's size, and keys.

use agent_sandbox_support::terminal::Terminal;

use crate::world::{Side, World};

pub(crate) fn shell(world: &World, side: Side) -> Terminal {
    let words = ["bash", "--noprofile", "--norc", "--noediting", "-i"];
    let call = world
        .on(side, "")
        .words(words)
        .variable("PS1", "(outer) ")
        .option("--env")
        .option("PS1=(outer) ");
    let mut terminal = Terminal::start(&call.at_terminal());
    terminal.expect("(outer) ");
    terminal
}

#[test]
fn a_shell_in_a_step_is_interactive() {
    let Some(world) = World::new() else { return };
    for side in [Side::Outside, Side::Inside] {
        let mut terminal = shell(&world, side);
        terminal.resize(33, 111);
        terminal.line("srun --pty env PS1='(inner) ' bash --noprofile --norc --noediting");
        terminal.expect("\n(inner) ");
        terminal.line(
            "echo \"job\"=${SLURM_JOB_ID:+set}; stty size; tty > /dev/null && echo \"a tt\"y",
        );
        terminal.expect("job=set");
        terminal.expect("33 111");
        terminal.expect("a tty");
        terminal.resize(44, 122);
        // It travels through srun.
        terminal
            .line("until [ \"$(stty size | tr ' ' x)\" = 44x122 ]; do sleep 0.1; done; stty size");
        terminal.expect("44 122");
        // ^C ends the command and not the shell.
        terminal.line("sleep 60; echo \"after\" $?");
        terminal.interrupt();
        terminal.line("echo \"still\" here");
        terminal.expect("still here");
        terminal.expect("(inner) ");
        terminal.line("cat ~/.ssh/id_rsa | wc -c; exit 9");
        terminal.expect("(outer) ");
        terminal.line("echo \"code\" $?");
        terminal.expect("code 9");
        terminal.expect("(outer) ");
        terminal.line("exit");
        terminal.end();
        world.settle(side);
    }
}

#[test]
fn an_interrupt_reaches_commands_that_wait() {
    let Some(world) = World::new() else { return };
    let mut terminal = shell(&world, Side::Inside);
    // It waits for resources that nobody has now.
    terminal.line("srun --begin=now+1hour true");
    terminal.expect("queued and waiting");
    terminal.interrupt();
    terminal.expect("(outer) ");
    terminal.line("srun bash -c 'echo \"begu\"n; sleep 60'");
    terminal.expect("begun");
    // srun asks for a second one within a second.
    terminal.interrupt();
    terminal.expect("srun: interrupt");
    terminal.send("\x03");
    terminal.expect("(outer) ");
    terminal.line("echo \"still\" here");
    terminal.expect("still here");
    terminal.expect("(outer) ");
    terminal.line("exit");
    terminal.end();
    world.settle(Side::Inside);
}

#[test]
fn a_command_is_stopped_and_goes_on() {
    let Some(world) = World::new() else { return };
    let mut terminal = shell(&world, Side::Inside);
    // It ends when it is told to, so that it cannot be over before it was stopped.
    terminal.line(
        "srun bash -c 'echo \"begu\"n; until [ -e over ]; do sleep 0.1; done; echo \"don\"e'",
    );
    terminal.expect("begun");
    terminal.suspend();
    terminal.expect("Stopped");
    world.write("over", "");
    terminal.line("fg");
    terminal.expect("done");
    terminal.expect("(outer) ");
    terminal.line("exit");
    terminal.end();
    world.settle(Side::Inside);
}

#[test]
fn a_step_reads_no_secret_at_a_terminal() {
    let Some(world) = World::new() else { return };
    let mut terminal = shell(&world, Side::Inside);
    terminal.line("srun --pty cat ~/.ssh/id_rsa; echo \"en\"d");
    terminal.expect("\nend");
    terminal.expect("(outer) ");
    terminal.line("exit");
    assert!(
        !terminal.screen().contains(&world.cluster.marker),
        "{}",
        terminal.screen()
    );
    terminal.end();
}
