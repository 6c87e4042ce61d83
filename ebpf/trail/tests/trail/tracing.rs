//! `agent-sandbox trace`: the command, its end, and what is shown of it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use agent_sandbox_events::ask::{Ask, Target, Trace, What};
use agent_sandbox_events::protocol::{EventKind, Lifetime, Register, Request, Scope, Which};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fake::{Fake, until};
use crate::output::{ask, program, text};
use crate::records::{self, Writer};

fn traced(fake: &Fake, change: impl FnOnce(&mut Trace), words: &[&str]) -> Command {
    traced_at(fake.socket(), change, words)
}

fn traced_at(socket: &Path, change: impl FnOnce(&mut Trace), words: &[&str]) -> Command {
    let mut trace = Trace {
        target: Target::Command,
        events: vec![EventKind::Exec, EventKind::Open],
        missing: false,
        report: false,
        output: None,
    };
    change(&mut trace);
    let mut command = program(&ask(socket, What::Trace(trace)));
    command.args(words);
    command
}

fn fake() -> Fake {
    Fake::new(Vec::new())
}

fn registered(fake: &Fake) -> Register {
    let found = fake.asked().into_iter().find_map(|request| match request {
        Request::Register(register) => Some(*register),
        _ => None,
    });
    found.unwrap()
}

#[test]
fn the_commands_streams_and_its_exit_code_are_its_own() {
    let fake = fake();
    let mut command = traced(
        &fake,
        |_| {},
        &["sh", "-c", "echo out; echo err >&2; exit 7"],
    );
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output.stdout), "out\n");
    let errors = text(&output.stderr);
    assert!(
        errors.contains("err\n") && errors.contains("# end: all tasks have ended\n"),
        "{errors}"
    );
    let asked = fake.asked();
    let register = registered(&fake);
    assert_eq!(register.lifetime, Lifetime::Connection);
    assert_eq!(register.events, [EventKind::Exec, EventKind::Open]);
    assert_eq!(register.command[..2], ["sh", "-c"]);
    assert!(register.scope.process.is_some() && register.scope.cgroup.is_none());
    assert!(asked.contains(&Request::Begin) && asked.contains(&Request::End));
    assert!(asked.iter().any(|request| matches!(
        request,
        Request::Files {
            which: Which::Trace(99),
            ..
        }
    )));
}

#[test]
fn the_command_is_held_until_its_trace_has_begun() {
    let fake = fake();
    let mark = fake.place.path().join("ran");
    fake.refuse("no");
    let words = ["touch", mark.to_str().unwrap()];
    let output = traced(&fake, |_| {}, &words).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(
        text(&output.stderr),
        "error: the tracer refuses: no\nhint: ask an administrator\n"
    );
    assert!(!mark.exists());
    // Nor without a tracer.
    let none = fake.place.path().join("none.sock");
    let output = traced_at(&none, |_| {}, &words).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).starts_with("error: no tracer runs on this node"));
    assert!(!mark.exists());
}

#[test]
fn the_command_gets_what_it_would_have_without_a_trace() {
    let fake = fake();
    // A shell would take signals back itself; grep and ls do not.
    for words in [
        &[
            "grep",
            "-E",
            "^(Sig(Blk|Ign|Cgt)|NoNewPrivs):",
            "/proc/self/status",
        ][..],
        &["sh", "-c", "exec ls /proc/self/fd"],
        &["cat", "/proc/self/cmdline"],
    ] {
        let traced = traced(&fake, |_| {}, words).output().unwrap();
        let plain = Command::new(words[0]).args(&words[1..]).output().unwrap();
        assert_eq!(text(&traced.stdout), text(&plain.stdout), "{words:?}");
    }
}

#[test]
fn how_the_command_ends_is_how_it_ends() {
    let fake = fake();
    let end = |words: &[&str]| {
        let output = traced(&fake, |_| {}, words).output().unwrap();
        (output.status.code().unwrap(), text(&output.stderr))
    };
    assert_eq!(end(&["sh", "-c", "kill -9 $$"]).0, 137);
    let (code, said) = end(&["no-such-command-anywhere"]);
    assert_eq!(code, 127);
    assert_eq!(
        said,
        "error: `no-such-command-anywhere` was not found in PATH\n"
    );
    let (code, said) = end(&["/etc/passwd"]);
    assert_eq!(code, 126);
    assert!(said.contains("not executable"), "{said}");
    // A script without `#!`, as execvp(3) starts it.
    let script = fake.place.path().join("script");
    fs::write(&script, "exit 5\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, mode).unwrap();
    assert_eq!(end(&[script.to_str().unwrap()]).0, 5);
}

#[test]
fn events_are_shown_as_they_come() {
    let fake = fake();
    let out = fake.place.path().join("out");
    let path = out.to_str().unwrap().to_owned();
    let mut child = traced(&fake, |trace| trace.output = Some(path), &["sleep", "60"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    fake.followed();
    let mut writer = Writer::command(99);
    let verdict = records::denied("permissions", "EACCES");
    let what = records::open(5, "cat", "/a\x1b[1m", &["read"], verdict);
    fake.happen(records::line(&writer.write(what)));
    let shown = || fs::read_to_string(&out).unwrap_or_default();
    until(|| shown().contains("open      /a\\u{1b}[1m (read) = denied by permissions (EACCES)\n"));
    // A signal is the command's.
    kill(
        Pid::from_raw(i32::try_from(child.id()).unwrap()),
        Signal::SIGTERM,
    )
    .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    let text = shown();
    assert!(text.lines().last().unwrap().starts_with("# "), "{text}");
}

#[test]
fn a_flood_is_shown_whole_and_in_order() {
    let fake = fake();
    let mark = fake.place.path().join("go");
    let script = format!("until [ -e {} ]; do sleep 0.05; done", mark.display());
    let mut command = traced(&fake, |_| {}, &["sh", "-c", &script]);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    fake.followed();
    let mut writer = Writer::command(99);
    let all: Vec<String> = (0..2000).map(|number| format!("{number:04}")).collect();
    for number in &all {
        let path = format!("/file{number}");
        let what = records::open(5, "cat", &path, &["read"], records::allowed());
        fake.happen(records::line(&writer.write(what)));
    }
    fs::write(&mark, "").unwrap();
    let said = text(&child.wait_with_output().unwrap().stderr);
    let shown: Vec<&str> = said
        .lines()
        .filter_map(|line| line.split_once("/file")?.1.split(' ').next())
        .collect();
    assert_eq!(shown, all, "{said}");
}

#[test]
fn a_report_comes_at_the_end() {
    let fake = fake();
    let output = traced(&fake, |trace| trace.report = true, &["true"])
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert!(said.starts_with("trace 99 on n1, user 1000\n"), "{said}");
    assert!(said.contains("\nWhat could not be seen\n"), "{said}");
}

#[test]
fn a_process_is_traced_until_it_ends_or_somebody_interrupts() {
    let fake = fake();
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = sleeper.id();
    let start = || {
        let mut command = traced(&fake, |trace| trace.target = Target::Process(pid), &[]);
        command.stderr(Stdio::null()).spawn().unwrap()
    };
    let mut first = start();
    fake.followed();
    assert_eq!(
        registered(&fake).scope,
        Scope {
            process: Some(pid),
            descendants: true,
            cgroup: None
        }
    );
    kill(
        Pid::from_raw(i32::try_from(first.id()).unwrap()),
        Signal::SIGINT,
    )
    .unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(0));
    let mut second = start();
    fake.followed();
    sleeper.kill().unwrap();
    assert_eq!(second.wait().unwrap().code(), Some(0));
    sleeper.wait().unwrap();
    let third = start().wait().unwrap();
    assert_eq!(third.code(), Some(125));
}

#[test]
fn a_tracer_that_ends_leaves_the_command_alone() {
    let mut fake = fake();
    let mark = fake.place.path().join("go");
    let script = format!(
        "until [ -e {} ]; do sleep 0.05; done; exit 3",
        mark.display()
    );
    let child = traced(&fake, |_| {}, &["sh", "-c", &script])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    fake.followed();
    fake.stop();
    fs::write(&mark, "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("# the tracer has ended; what follows is not traced\n"));
}

#[test]
fn records_are_printed_as_json() {
    let fake = fake();
    let trace = Trace {
        target: Target::Command,
        events: vec![EventKind::Exec],
        missing: true,
        report: false,
        output: None,
    };
    let ask = Ask {
        json: true,
        ..ask(fake.socket(), What::Trace(trace))
    };
    let output = program(&ask).arg("true").output().unwrap();
    let said = text(&output.stderr);
    let record: agent_sandbox_events::record::Record =
        serde_json::from_str(said.trim_end()).unwrap();
    assert_eq!(record.trail.trace, 99);
    assert!(registered(&fake).missing);
}
