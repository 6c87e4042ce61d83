//! Job control on a real terminal: keys, stopped jobs, the size of the window.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use agent_sandbox_support::terminal::{Terminal, shell};
use agent_sandbox_support::waiting::{PATIENCE, wait_for};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::world::{World, binary, has, not_checked};

/// How often a job is stopped as soon as it goes on.
const STOPS: usize = 300;

/// A job that is killed if its test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An interactive shell inside a jail.
fn inside(world: &World) -> Terminal {
    let call = world
        .quiet(["bash", "--noprofile", "--norc", "--noediting", "-i"])
        .variable("PS1", "(jail) ");
    let mut terminal = Terminal::start(&call.command());
    terminal.expect("(jail) ");
    terminal
}

/// A shell outside, in which `$A` starts agent-sandbox.
fn outside(world: &World) -> Terminal {
    let call = world
        .quiet(["true"])
        .variable("A", binary().into_os_string());
    shell(call.command())
}

#[test]
fn an_interactive_shell() {
    let world = World::new();
    let mut terminal = inside(&world);
    terminal.line("echo $((6 * 7)); tty");
    terminal.expect("42\r\n/dev/");
    terminal.line("exit 3");
    assert_eq!(terminal.end(), 3);
}

#[test]
fn an_interrupt_ends_the_command_and_not_the_shell() {
    let world = World::new();
    let mut terminal = inside(&world);
    terminal.line("echo started; sleep 100");
    terminal.expect("started\r\n");
    terminal.interrupt();
    terminal.expect("(jail) ");
    terminal.line("echo code $?");
    terminal.expect("code 130");
    terminal.line("exit");
    assert_eq!(terminal.end(), 0);
}

#[test]
fn jobs_of_a_shell_inside() {
    let world = World::new();
    let mut terminal = inside(&world);
    terminal.line("sh -c 'echo started; sleep 100; echo over'");
    terminal.expect("\nstarted\r\n");
    terminal.suspend();
    terminal.expect("Stopped");
    terminal.expect("(jail) ");
    terminal.line("jobs | grep -c sleep; fg");
    terminal.expect("\n1\r\n");
    terminal.interrupt();
    terminal.expect("(jail) ");
    terminal.line("exit 4");
    assert_eq!(terminal.end(), 4);
}

/// ^Z stops the whole job, the shell outside gets the terminal back, and `fg` goes on.
#[test]
fn the_shell_outside_stops_and_continues_the_jail() {
    let world = World::new();
    let mut terminal = outside(&world);
    terminal.line("$A -q sh -c 'echo started; sleep 100; echo over'");
    terminal.expect("\nstarted\r\n");
    terminal.suspend();
    terminal.expect("Stopped");
    terminal.expect("(outer) ");
    terminal.line("jobs; echo listed");
    terminal.expect("Stopped");
    terminal.expect("\nlisted\r\n");
    terminal.line("fg");
    terminal.expect("echo over'\r\n");
    terminal.interrupt();
    terminal.expect("(outer) ");
    terminal.line("echo code $?");
    terminal.expect("code 130");
    terminal.line("exit 0");
    assert_eq!(terminal.end(), 0);
}

/// A time limit leaves ^Z and `fg` as they are, and ends a command that stays stopped.
#[test]
fn a_jail_whose_time_is_limited_stops_and_goes_on() {
    let world = World::new();
    let mut terminal = outside(&world);
    terminal.line(
        "$A -q run --timeout 8s -- sh -c 'trap \"echo goes on \\$((6 * 7))\" CONT; echo started; while :; do sleep 0.1; done'",
    );
    terminal.expect("\nstarted\r\n");
    for _ in 0..2 {
        terminal.stop();
        terminal.expect("(outer) ");
        terminal.line("fg");
        terminal.expect("goes on 42");
    }
    terminal.stop();
    terminal.line("echo is `jobs | grep -c Stopp''ed`");
    terminal.expect("is 1\r\n");
    terminal.expect("time of 8s is over");
    terminal.line("wait %1; echo code $?");
    terminal.expect("code 124");
    terminal.line("exit 0");
    assert_eq!(terminal.end(), 0);
}

/// ^S stops what is written to the terminal, and so does `tcflow(3)` by what runs inside: its time is over all the same.
#[test]
fn a_stopped_terminal_keeps_nobody_alive() {
    let world = World::new();
    let mut terminal = outside(&world);
    terminal.line(
        "$A -q run --timeout 3s -- sh -c 'while :; do date +%N > beat; sleep 0.1; done'; echo code $?",
    );
    let beat = || std::fs::read_to_string(world.project.join("beat")).unwrap_or_default();
    wait_for("the first beat", || (!beat().is_empty()).then_some(())).unwrap();
    terminal.send("\x13");
    wait_for("the last beat", || {
        let before = beat();
        std::thread::sleep(Duration::from_secs(2));
        (beat() == before).then_some(())
    })
    .unwrap();
    terminal.send("\x11");
    terminal.expect("code 124");
    terminal.line("exit 0");
    assert_eq!(terminal.end(), 0);
}

/// Stopped a second time, and in the background.
#[test]
fn a_jail_in_the_background() {
    let world = World::new();
    let mut terminal = outside(&world);
    terminal.line(
        "$A -q sh -c 'trap \"echo goes on \\$((6 * 7))\" CONT; echo started; while :; do sleep 0.1; done'",
    );
    terminal.expect("\nstarted\r\n");
    for _ in 0..3 {
        terminal.stop();
        terminal.expect("(outer) ");
        terminal.line("fg");
        // A key that comes before the shell has continued the job is lost.
        terminal.expect("goes on 42");
    }
    terminal.stop();
    terminal.expect("(outer) ");
    terminal.line("bg; sleep 0.3; jobs; echo listed");
    terminal.expect("Running");
    terminal.expect("\nlisted\r\n");
    terminal.line("kill %1; wait %1; echo code $?");
    terminal.expect("code 143");
    terminal.expect("(outer) ");
    // It reads from the terminal, which belongs to the shell: so it is stopped until it is in front.
    terminal.line("$A -q sh -c 'read word; echo got $word' &");
    terminal.line("until jobs | grep -q Stopp''ed; do sleep 0.1; done; jobs; echo listed");
    terminal.expect("Stopped");
    terminal.expect("\nlisted\r\n");
    terminal.line("fg");
    terminal.expect("got $word'");
    terminal.line("hello");
    terminal.expect("got hello");
    terminal.line("exit 0");
    assert_eq!(terminal.end(), 0);
}

/// What a shell does for ^Z and `fg`, as fast as a program can: nobody continues the command without its children, which would
/// wait for them, in front and deaf to the shell; and the launcher stops no more once the job goes on.
#[test]
fn a_job_that_is_stopped_as_soon_as_it_goes_on() {
    let world = World::new();
    // dash starts programs by vfork(2): one that is stopped in the child's place stops nobody, with or without a jail.
    let script = "trap 'echo goes on' CONT; echo started; while :; do sleep 0.01; done";
    let mut command = world.quiet(["bash", "-c", script]).command();
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut job = Killed(command.spawn().unwrap());
    let group = Pid::from_raw(job.0.id().cast_signed());
    let lines = BufReader::new(job.0.stdout.take().unwrap()).lines();
    let (said, listens) = mpsc::channel();
    thread::spawn(move || {
        lines
            .map_while(Result::ok)
            .all(|line| said.send(line).is_ok())
    });
    let line = || {
        listens
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|error| error.to_string())
    };
    assert_eq!(line(), "started");
    for turn in 0..STOPS {
        killpg(group, Signal::SIGTSTP).unwrap();
        let flags = WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG;
        let status = wait_for("the job to stop", || {
            let status = waitpid(group, Some(flags)).unwrap();
            (status != WaitStatus::StillAlive).then_some(status)
        });
        let stopped = WaitStatus::Stopped(group, Signal::SIGTSTP);
        assert_eq!(status, Ok(stopped), "turn {turn}");
        killpg(group, Signal::SIGCONT).unwrap();
        assert_eq!(line(), "goes on", "turn {turn}");
    }
}

#[test]
fn a_command_that_stops_itself() {
    let world = World::new();
    for signal in ["TSTP", "STOP", "TTIN"] {
        let mut terminal = outside(&world);
        terminal.line(&format!(
            "$A -q sh -c 'echo started; kill -{signal} $$; echo resumed; exit 6'"
        ));
        terminal.expect("\nstarted\r\n");
        terminal.expect("Stopped");
        terminal.expect("(outer) ");
        terminal.line("fg");
        terminal.expect("\nresumed\r\n");
        terminal.line("echo code $?");
        terminal.expect("code 6");
        terminal.line("exit 0");
        assert_eq!(terminal.end(), 0, "{signal}");
    }
}

#[test]
fn a_command_that_handles_interrupts() {
    let world = World::new();
    let mut terminal = outside(&world);
    terminal.line("$A -q bash -c 'trap \"echo caught; exit 42\" INT; echo started; while :; do sleep 0.1; done'");
    terminal.expect("\nstarted\r\n");
    terminal.interrupt();
    terminal.expect("caught\r\n");
    terminal.expect("(outer) ");
    terminal.line("echo code $?");
    terminal.expect("code 42");
    terminal.expect("(outer) ");
    // One that takes no notice goes on.
    terminal.line("$A -q bash -c 'trap \"\" INT; echo started; read word; echo got $word'");
    terminal.expect("\nstarted\r\n");
    terminal.interrupt();
    terminal.line("hello");
    terminal.expect("\ngot hello\r\n");
    terminal.expect("(outer) ");
    terminal.line("$A -q bash -c 'trap \"echo quit; exit 43\" QUIT; echo started; while :; do sleep 0.1; done'");
    terminal.expect("\nstarted\r\n");
    terminal.quit();
    terminal.expect("quit\r\n");
    terminal.line("echo code $?");
    terminal.expect("code 43");
}

#[test]
fn the_window_changes_its_size() {
    let world = World::new();
    let call = world.quiet([
        "bash",
        "-c",
        "trap 'stty size' WINCH; stty size; echo started; while :; do sleep 0.1; done",
    ]);
    let mut terminal = Terminal::start(&call.command());
    terminal.expect("24 80\r\nstarted\r\n");
    terminal.resize(40, 120);
    terminal.expect("40 120\r\n");
    terminal.resize(10, 20);
    terminal.expect("10 20\r\n");
    terminal.interrupt();
    assert_eq!(terminal.end(), 130);
}

/// The terminal goes away: so does the jail.
#[test]
fn the_terminal_hangs_up() {
    let world = World::new();
    let call = world.quiet([
        "bash",
        "-c",
        "trap 'touch hung-up; exit' HUP; echo started; while :; do sleep 0.1; done",
    ]);
    let mut terminal = Terminal::start(&call.command());
    terminal.expect("started");
    terminal.hang_up();
    crate::world::until("the handler in the jail", || {
        world.project.join("hung-up").exists()
    });
}

#[test]
fn terminal_modes_are_the_commands_own() {
    let world = World::new();
    let call = world.quiet([
        "bash",
        "-c",
        "stty -echo; echo started; read word; stty echo; echo got $word",
    ]);
    let mut terminal = Terminal::start(&call.command());
    terminal.expect("started\r\n");
    terminal.line("secret");
    terminal.expect("got secret");
    assert!(
        !terminal.screen().contains("secret\r\ngot"),
        "{}",
        terminal.screen()
    );
    assert_eq!(terminal.end(), 0);
}

#[test]
fn a_terminal_multiplexer_inside() {
    if !has("tmux") {
        return not_checked("tmux inside", "tmux is not installed");
    }
    let world = World::new();
    let call = world.quiet([
        "tmux",
        "-f",
        "/dev/null",
        "new-session",
        "echo in tmux; read word; echo got $word > word",
    ]);
    let mut terminal = Terminal::start(&call.command());
    terminal.expect("in tmux");
    terminal.line("hello");
    assert_eq!(terminal.end(), 0);
    assert_eq!(
        std::fs::read_to_string(world.project.join("word")).unwrap(),
        "got hello\n"
    );
}
