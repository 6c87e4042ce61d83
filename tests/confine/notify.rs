//! `agent-sandbox notify`: a sign to the person in front of the terminal, also from where an agent's hooks
//! run; and nothing more than that.

use agent_sandbox_support::terminal::Terminal;

use crate::world::World;

/// A terminal at which a line of a shell runs in a jail.
fn at(world: &World, line: &str) -> Terminal {
    let mut run = world.jail([]);
    run.command
        .env("TERM", "xterm")
        .args(["--", "bash", "-c", line]);
    Terminal::start(&run.command)
}

const SIGN: &str = "\x07\x1b]9;Agent: it waits\x07\x1b]777;notify;Agent;it waits\x07";

#[test]
fn the_person_in_front_is_told() {
    let world = World::new();
    let mut terminal = at(
        &world,
        "agent-sandbox notify Agent 'it waits'; echo code $?",
    );
    terminal.expect(SIGN);
    terminal.expect("code 0");
    assert_eq!(terminal.end(), 0);
}

#[test]
fn a_hook_without_a_terminal_of_its_own_finds_the_sessions() {
    let world = World::new();
    for line in [
        // In the background, with its output taken away.
        "(agent-sandbox notify Agent 'it waits' </dev/null >/dev/null 2>&1 &) ; sleep 2",
        // In a session of its own, as programs start what must not be disturbed.
        "setsid -w agent-sandbox notify Agent 'it waits' </dev/null >/dev/null 2>&1; echo code $?",
        "setsid -w bash -c 'agent-sandbox notify Agent \"it waits\" </dev/null 2>/dev/null | cat'; echo over",
    ] {
        let mut terminal = at(&world, line);
        terminal.expect(SIGN);
        assert_eq!(terminal.end(), 0, "{line}");
    }
}

#[test]
fn a_background_job_is_not_stopped_for_it() {
    let world = World::new();
    let line = "stty tostop; set -m; agent-sandbox notify Agent 'it waits' & wait $!; echo code $?";
    let mut terminal = at(&world, line);
    terminal.expect(SIGN);
    terminal.expect("code 0");
    assert_eq!(terminal.end(), 0);
}

#[test]
fn what_it_says_commands_no_terminal() {
    let world = World::new();
    let line = "agent-sandbox notify $'a\\e]52;c;eA==\\a' $'x\\e[2J\\ny'; echo; echo over";
    let mut terminal = at(&world, line);
    terminal.expect("\r\nover");
    let screen = terminal.screen();
    assert!(
        !screen.contains("\x1b]52") && !screen.contains("\x1b[2J"),
        "{screen:?}"
    );
    assert_eq!(screen.matches('\x07').count(), 3, "{screen:?}");
    assert_eq!(terminal.end(), 0);
}

#[test]
fn in_a_tmux_of_the_jail_it_is_handed_on() {
    let world = World::new();
    let mut terminal = at(
        &world,
        "TMUX=/tmp/tmux-1/default,1,0 agent-sandbox notify 'it waits'; echo over",
    );
    terminal.expect("\x07\x1bPtmux;\x1b\x1b]9;it waits\x07\x1b\\");
    terminal.expect("\x1bPtmux;\x1b\x1b]777;notify;agent-sandbox;it waits\x07\x1b\\");
    terminal.expect("over");
    assert_eq!(terminal.end(), 0);
}

#[test]
fn without_a_terminal_it_says_so() {
    let world = World::new();
    let output = world
        .jail([])
        .run(&["setsid", "-w", "agent-sandbox", "notify", "it waits"]);
    assert_eq!(output.code(), 1, "{output:?}");
    let expected = "error: nobody can be notified: neither this process nor one above it has a terminal\nhint: ";
    assert!(output.stderr.contains(expected), "{output:?}");
    assert_eq!(output.stdout, "");
    let output = world.jail([]).run(&["agent-sandbox", "notify"]);
    assert_eq!(output.code(), 125, "{output:?}");
}
