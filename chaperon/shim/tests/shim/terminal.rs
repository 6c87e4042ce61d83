//! The shim at a terminal, under a shell with job control.

use std::process::Command;

use agent_sandbox_support::terminal::{self, Terminal};
use agent_sandbox_wire::message::{End, FromShim, Stream, ToShim};

use crate::chaperon::{ShimDirectory, Talk};

/// A shell with job control, in which `$SHIM` is the shim.
fn shell(place: &ShimDirectory) -> Terminal {
    let shim = place.shim();
    let mut command = Command::new("bash");
    command
        .envs(
            shim.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("SHIM", shim.get_program())
        .current_dir(place.dir.path());
    terminal::shell(command)
}

fn run(talk: &mut Talk, argv: &[&str]) {
    talk.send(&ToShim::Run {
        argv: argv.iter().map(|&word| word.into()).collect(),
        environment: vec![b"PS1=(inner) ".to_vec()],
    });
}

const SHELL: [&str; 5] = ["bash", "--noprofile", "--norc", "--noediting", "-i"];

/// The outer shell works as before.
#[track_caller]
fn is_back(terminal: &mut Terminal, code: i32) {
    terminal.expect("(outer) ");
    terminal.line("echo code=$?.");
    terminal.expect("echo code=$?.");
    terminal.expect(&format!("code={code}."));
    terminal.expect("(outer) ");
}

#[test]
fn keys_and_sizes_are_told() {
    let place = ShimDirectory::new();
    let mut terminal = shell(&place);
    terminal.line("$SHIM");
    let mut talk = place.accept();
    terminal.resize(44, 80);
    assert_eq!(talk.receive(), FromShim::Signal(libc::SIGWINCH));
    terminal.interrupt();
    assert_eq!(talk.receive(), FromShim::Signal(libc::SIGINT));
    talk.send(&ToShim::Output {
        stream: Stream::Output,
        bytes: vec![b'y'; 20_000],
    });
    terminal.expect(&"y".repeat(20_000));
    talk.end(End::Signal(libc::SIGINT));
    is_back(&mut terminal, 130);
}

#[test]
fn it_is_suspended_and_comes_back() {
    let place = ShimDirectory::new();
    let mut terminal = shell(&place);
    terminal.line("$SHIM");
    let mut talk = place.accept();
    terminal.suspend();
    assert_eq!(talk.receive(), FromShim::Signal(libc::SIGTSTP));
    terminal.expect("Stopped");
    is_back(&mut terminal, 148);
    terminal.line("fg");
    assert_eq!(talk.receive(), FromShim::Signal(libc::SIGCONT));
    talk.end(End::Code(3));
    is_back(&mut terminal, 3);
}

#[test]
fn a_shell_inside_has_job_control() {
    let place = ShimDirectory::new();
    let mut terminal = shell(&place);
    terminal.line("$SHIM");
    let mut talk = place.accept();
    run(&mut talk, &SHELL);
    terminal.expect("(inner) ");
    terminal.line("sleep 100");
    terminal.expect("sleep 100");
    terminal.suspend();
    terminal.expect("Stopped");
    terminal.expect("(inner) ");
    terminal.line("fg");
    terminal.expect("sleep 100");
    terminal.interrupt();
    terminal.expect("(inner) ");
    talk.hears_nothing();
    terminal.line("exit 12");
    assert_eq!(talk.receive(), FromShim::RunEnded(End::Code(12)));
    talk.end(End::Code(12));
    is_back(&mut terminal, 12);
}

#[test]
fn a_command_inside_is_suspended_with_the_shim() {
    let place = ShimDirectory::new();
    let mut terminal = shell(&place);
    terminal.line("$SHIM");
    let mut talk = place.accept();
    run(
        &mut talk,
        &["sh", "-c", "echo begun; read word; echo got $word; exit 8"],
    );
    terminal.expect("begun");
    terminal.suspend();
    terminal.expect("Stopped");
    is_back(&mut terminal, 148);
    talk.hears_nothing();
    terminal.line("fg");
    terminal.expect("$SHIM");
    terminal.line("this");
    terminal.expect("got this");
    assert_eq!(talk.receive(), FromShim::RunEnded(End::Code(8)));
    talk.end(End::Code(8));
    is_back(&mut terminal, 8);
}

#[test]
fn a_shell_that_is_killed_leaves_the_terminal_as_it_was() {
    let place = ShimDirectory::new();
    let mut terminal = shell(&place);
    terminal.line("stty -a | grep -o '.echo '; $SHIM");
    let mut talk = place.accept();
    run(&mut talk, &SHELL);
    terminal.expect("(inner) ");
    terminal.line("stty -echo -icanon; kill -9 $$");
    assert_eq!(
        talk.receive(),
        FromShim::RunEnded(End::Signal(libc::SIGKILL))
    );
    // With the terminal its own again, it is told of keys.
    terminal.interrupt();
    assert_eq!(talk.receive(), FromShim::Signal(libc::SIGINT));
    talk.send(&ToShim::Run {
        argv: ["sh", "-c", "stty -a"].map(Into::into).to_vec(),
        environment: Vec::new(),
    });
    terminal.expect(" icanon");
    terminal.expect(" echo ");
    assert_eq!(talk.receive(), FromShim::RunEnded(End::SUCCESS));
    talk.end(End::SUCCESS);
    is_back(&mut terminal, 0);
}

#[test]
fn an_allocation_that_ends_takes_its_shell_along() {
    let place = ShimDirectory::new();
    let mut terminal = shell(&place);
    terminal.line("$SHIM");
    let mut talk = place.accept();
    run(&mut talk, &SHELL);
    terminal.expect("(inner) ");
    talk.end(End::FAILURE);
    is_back(&mut terminal, 1);
}
