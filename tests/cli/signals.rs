//! Signals that other processes send to the launcher, and the end of a jail with its launcher.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Child;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::world::{World, code, until, wait};

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap())
}

/// Waits for a line of the command's.
fn expect_line(child: &mut Child, text: &str) {
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line.trim_end(), text);
    child.stdout = Some(reader.into_inner());
}

#[test]
fn signals_reach_the_command() {
    let world = World::new();
    for (signal, name) in [
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
        (Signal::SIGALRM, "ALRM"),
    ] {
        let script = format!("trap 'exit 9' {name}; echo started; while :; do sleep 0.05; done");
        let mut child = world.quiet(["bash", "-c", &script]).start();
        expect_line(&mut child, "started");
        kill(pid(&child), signal).unwrap();
        assert_eq!(code(wait(&mut child, name)), 9, "{name}");
    }
}

#[test]
fn signals_end_a_command_that_does_not_handle_them() {
    let world = World::new();
    for (signal, expected) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
        (Signal::SIGUSR1, 138),
    ] {
        let mut child = world.sh("echo started; exec sleep 100").start();
        expect_line(&mut child, "started");
        kill(pid(&child), signal).unwrap();
        assert_eq!(
            code(wait(&mut child, signal.as_str())),
            expected,
            "{signal}"
        );
    }
}

/// Two signals one after the other, as `timeout` and batch systems send them.
#[test]
fn a_command_may_take_its_time_to_end() {
    let world = World::new();
    let script = "trap 'echo term' TERM; trap 'echo usr1; exit 5' USR1; echo started; while :; do sleep 0.05; done";
    let mut child = world.quiet(["bash", "-c", script]).start();
    expect_line(&mut child, "started");
    kill(pid(&child), Signal::SIGTERM).unwrap();
    expect_line(&mut child, "term");
    kill(pid(&child), Signal::SIGUSR1).unwrap();
    expect_line(&mut child, "usr1");
    assert_eq!(code(wait(&mut child, "USR1")), 5);
}

/// Whether some process outside has this among its arguments.
fn runs(mark: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|text| {
            text.split(|&byte| byte == 0)
                .any(|word| word == mark.as_bytes())
        })
    })
}

/// Nothing of a jail outlives its launcher, not even what has left its session.
#[test]
fn a_killed_launcher_takes_the_jail_along() {
    let world = World::new();
    let mark = format!("1234.{}", std::process::id());
    let script =
        format!("setsid sh -c 'trap \"\" HUP TERM; sleep {mark}' & sleep 0.2; echo started; wait");
    let mut child = world.sh(&script).start();
    expect_line(&mut child, "started");
    until("the process in the jail", || runs(&mark));
    child.kill().unwrap();
    assert_eq!(wait(&mut child, "the launcher").signal(), Some(9));
    until("the end of the jail", || !runs(&mark));
}

/// What the command leaves running ends with it.
#[test]
fn the_jail_ends_with_its_command() {
    let world = World::new();
    let mark = format!("4321.{}", std::process::id());
    let script = format!("setsid sleep {mark} > /dev/null 2>&1 < /dev/null & sleep 0.1; exit 3");
    world.sh(&script).run().expect(3, "", "");
    until("the end of what was left", || !runs(&mark));
}

/// Orphans are reaped: a process table does not fill up.
#[test]
fn orphans_are_reaped() {
    let world = World::new();
    let script = "for i in 1 2 3 4 5 6 7 8; do (true &) ; done; sleep 0.3
        for i in $(seq 100); do n=$(grep -l '^State:.Z' /proc/[0-9]*/status | wc -l); [ $n != 0 ] || break; sleep 0.1; done; echo $n";
    world.sh(script).run().expect(0, "0\n", "");
}
