//! Commands that the chaperon has run inside the jail.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use agent_sandbox_support::waiting::until;
use agent_sandbox_wire::message::{End, FromShim, ToShim};
use nix::sys::signal::Signal;

use crate::chaperon::{ShimDirectory, Talk, died_of};

fn run(talk: &mut Talk, argv: &[&str]) {
    talk.send(&ToShim::Run {
        argv: argv.iter().map(|&word| word.into()).collect(),
        environment: vec![
            b"SLURM_JOB_ID=17".to_vec(),
            b"ODD=\xff=".to_vec(),
            b"=x".to_vec(),
        ],
    });
}

#[test]
fn run_with_the_streams_and_the_environment() {
    let place = ShimDirectory::new();
    let (shim, mut talk) = place.begin(place.shim().env("KEPT", "yes"));
    run(
        &mut talk,
        &[
            "sh",
            "-c",
            "cat; echo $SLURM_JOB_ID $KEPT; echo err >&2; exit 9",
        ],
    );
    let mut shim = shim;
    shim.0.stdin.take().unwrap().write_all(b"typed ").unwrap();
    assert_eq!(talk.receive(), FromShim::RunEnded(End::Code(9)));
    run(&mut talk, &["sh", "-c", "kill -TERM $$"]);
    assert_eq!(
        talk.receive(),
        FromShim::RunEnded(End::Signal(libc::SIGTERM))
    );
    talk.end(End::Code(9));
    let output = shim.output();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "typed 17 yes\n");
    assert_eq!(output.stderr, b"err\n");
    assert_eq!(output.status.code(), Some(9));
}

#[test]
fn without_a_name_are_the_users_shell() {
    let place = ShimDirectory::new();
    fs::write(place.path("shell"), "#!/bin/sh\necho shell $# $0\n").unwrap();
    fs::set_permissions(place.path("shell"), fs::Permissions::from_mode(0o755)).unwrap();
    let (shim, mut talk) = place.begin(place.shim().env("SHELL", place.path("shell")));
    run(&mut talk, &[]);
    assert_eq!(talk.receive(), FromShim::RunEnded(End::SUCCESS));
    talk.end(End::SUCCESS);
    let output = shim.output();
    let expected = format!("shell 0 {}\n", place.path("shell").display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    let (shim, mut talk) = place.begin(place.shim().env_remove("SHELL").stdin(Stdio::null()));
    run(&mut talk, &[]);
    assert_eq!(talk.receive(), FromShim::RunEnded(End::SUCCESS));
    talk.end(End::SUCCESS);
    assert!(shim.output().status.success());
}

#[test]
fn may_be_scripts_without_an_interpreter() {
    let place = ShimDirectory::new();
    fs::write(place.path("script"), "echo $1\n").unwrap();
    fs::set_permissions(place.path("script"), fs::Permissions::from_mode(0o755)).unwrap();
    let (shim, mut talk) = place.begin(&mut place.shim());
    run(&mut talk, &["./script", "word"]);
    assert_eq!(talk.receive(), FromShim::RunEnded(End::SUCCESS));
    talk.end(End::SUCCESS);
    assert_eq!(shim.output().stdout, b"word\n");
}

#[test]
fn that_cannot_be_started_have_an_errno() {
    let place = ShimDirectory::new();
    let (shim, mut talk) = place.begin(&mut place.shim());
    run(&mut talk, &["./missing"]);
    assert_eq!(talk.receive(), FromShim::Failed(libc::ENOENT));
    run(&mut talk, &["no-such-command-anywhere"]);
    assert_eq!(talk.receive(), FromShim::Failed(libc::ENOENT));
    run(&mut talk, &["/dev/null"]);
    assert_eq!(talk.receive(), FromShim::Failed(libc::EACCES));
    run(&mut talk, &["a\0b"]);
    assert_eq!(talk.receive(), FromShim::Failed(libc::EINVAL));
    talk.end(End::FAILURE);
    assert_eq!(shim.output().status.code(), Some(1));
}

/// What a command prints when it is started by the shim, and when by this test.
fn both_ways(argv: &[&str]) -> (String, String) {
    let place = ShimDirectory::new();
    let (shim, mut talk) = place.begin(&mut place.shim());
    run(&mut talk, argv);
    assert_eq!(talk.receive(), FromShim::RunEnded(End::SUCCESS));
    talk.end(End::SUCCESS);
    let ours = Command::new(argv[0]).args(&argv[1..]).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(shim.output().stdout), text(ours.stdout))
}

#[test]
fn have_the_signals_of_any_program() {
    let (theirs, ours) = both_ways(&["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]);
    assert!(ours.contains("SigIgn"));
    assert_eq!(theirs, ours);
}

#[test]
fn inherit_no_descriptors() {
    let (theirs, ours) = both_ways(&["sh", "-c", "exec 9</dev/null; ls /proc/$$/fd"]);
    assert!(ours.contains('9'));
    assert_eq!(theirs, ours);
}

/// Runs a child that writes the signals that it gets to a file, and waits until it can.
fn trapping(place: &ShimDirectory, talk: &mut Talk) {
    let script = "for s in INT TERM HUP USR1; do trap \"echo $s >> got\" $s; done
        trap 'exit 4' USR2; echo > ready; while [ -e ready ]; do sleep 0.01; done";
    run(talk, &["bash", "-c", script]);
    appears(place, "ready", "\n");
}

#[track_caller]
fn appears(place: &ShimDirectory, name: &str, text: &str) {
    until(&format!("{text:?} in {name}"), || {
        fs::read_to_string(place.path(name)).unwrap_or_default() == text
    });
}

#[test]
fn get_what_is_meant_for_them() {
    let place = ShimDirectory::new();
    let (shim, mut talk) = place.begin(place.shim().process_group(0));
    trapping(&place, &mut talk);
    // A terminal sends these to both: the chaperon hears nothing of them.
    for signal in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGWINCH] {
        shim.signal(signal);
    }
    talk.hears_nothing();
    shim.signal(Signal::SIGTERM);
    assert_eq!(talk.receive(), FromShim::Signal(libc::SIGTERM));
    appears(&place, "got", "TERM\n");
    talk.send(&ToShim::Signal(libc::SIGHUP));
    appears(&place, "got", "TERM\nHUP\n");
    talk.send(&ToShim::Signal(libc::SIGUSR2));
    assert_eq!(talk.receive(), FromShim::RunEnded(End::Code(4)));
    // Nobody is there any more.
    talk.send(&ToShim::Signal(libc::SIGUSR2));
    shim.signal(Signal::SIGINT);
    assert_eq!(talk.receive(), FromShim::Signal(libc::SIGINT));
    talk.end(End::Signal(libc::SIGINT));
    died_of(shim.output().status, libc::SIGINT);
}

#[test]
fn are_hung_up_when_the_chaperon_ends() {
    let place = ShimDirectory::new();
    let (mut shim, mut talk) = place.begin(&mut place.shim());
    trapping(&place, &mut talk);
    drop(talk);
    assert_eq!(shim.status().code(), Some(1));
    appears(&place, "got", "HUP\n");
}

#[test]
fn stop_and_go_on_with_the_shim() {
    let place = ShimDirectory::new();
    let (shim, mut talk) = place.begin(place.shim().process_group(0));
    run(&mut talk, &["sh", "-c", "kill -STOP $$; exit 6"]);
    shim.becomes('T');
    shim.signal(Signal::SIGCONT);
    assert_eq!(talk.receive(), FromShim::RunEnded(End::Code(6)));
    talk.end(End::Code(6));
    assert_eq!(shim.output().status.code(), Some(6));
}
