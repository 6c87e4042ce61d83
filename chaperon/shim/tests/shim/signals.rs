//! Signals that the shim gets.

use std::os::unix::process::CommandExt;

use agent_sandbox_wire::message::{End, FromShim, ToShim};
use nix::sys::signal::Signal;

use crate::chaperon::{Shim, ShimDirectory, Talk};

#[test]
fn are_told_in_place_of_acting() {
    let place = ShimDirectory::new();
    let (shim, mut talk) = place.begin(&mut place.shim());
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGALRM,
        Signal::SIGWINCH,
        Signal::SIGCONT,
    ] {
        shim.signal(signal);
        assert_eq!(talk.receive(), FromShim::Signal(signal as i32));
    }
    talk.end(End::Code(5));
    assert_eq!(shim.output().status.code(), Some(5));
}

#[test]
fn that_the_caller_ignores_stay_ignored() {
    let place = ShimDirectory::new();
    let mut command = place.shim_after("trap '' HUP INT; exec \"$0\"");
    let (shim, mut talk) = place.begin(&mut command);
    shim.signal(Signal::SIGHUP);
    shim.signal(Signal::SIGINT);
    shim.signal(Signal::SIGUSR1);
    assert_eq!(talk.receive(), FromShim::Signal(libc::SIGUSR1));
    talk.hears_nothing();
    talk.end(End::SUCCESS);
    assert!(shim.output().status.success());
}

/// A shim in a process group of its own, as a shell with job control starts it.
fn job(place: &ShimDirectory) -> (Shim, Talk) {
    place.begin(place.shim().process_group(0))
}

#[test]
fn a_stop_is_told_and_done_and_undone() {
    let place = ShimDirectory::new();
    let (shim, mut talk) = job(&place);
    for _ in 0..2 {
        shim.signal(Signal::SIGTSTP);
        assert_eq!(talk.receive(), FromShim::Signal(libc::SIGTSTP));
        shim.becomes('T');
        // The answer to what it told: it is not a second stop.
        talk.send(&ToShim::Stopped);
        shim.signal(Signal::SIGCONT);
        assert_eq!(talk.receive(), FromShim::Signal(libc::SIGCONT));
        talk.hears_nothing();
        shim.becomes('S');
    }
    talk.end(End::SUCCESS);
    assert!(shim.output().status.success());
}

#[test]
fn it_stops_with_the_real_command() {
    let place = ShimDirectory::new();
    let (shim, mut talk) = job(&place);
    talk.send(&ToShim::Stopped);
    shim.becomes('T');
    shim.signal(Signal::SIGCONT);
    assert_eq!(talk.receive(), FromShim::Signal(libc::SIGCONT));
    talk.hears_nothing();
    talk.end(End::SUCCESS);
    assert!(shim.output().status.success());
}

#[test]
fn it_does_not_stop_where_nobody_would_let_it_go_on() {
    let place = ShimDirectory::new();
    let mut command = place.shim();
    let mut orphan = std::process::Command::new("setsid");
    orphan
        .arg(command.get_program())
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(place.dir.path());
    command = orphan;
    let (mut shim, mut talk) = place.begin(&mut command);
    shim.signal(Signal::SIGTSTP);
    assert_eq!(talk.receive(), FromShim::Signal(libc::SIGTSTP));
    assert_eq!(talk.receive(), FromShim::Signal(libc::SIGCONT));
    talk.end(End::SUCCESS);
    assert!(shim.status().success());
}
