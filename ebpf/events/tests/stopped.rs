//! The asking end of the socket while its process is stopped.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: a test's own processes and sockets"
)]

use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agent_sandbox_events::client::{Connection, decode, encode};
use agent_sandbox_events::protocol::{PACKET_BYTES, Request, Response, VERSION};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind, listen, recv,
    send, socket,
};

/// Names the socket for the process that asks: this test itself, started once more.
const ASKS: &str = "AGENT_SANDBOX_TEST_ASKS";
const NAME: &str = "a_process_that_is_stopped_while_it_waits_has_its_answer";

/// The letter of the state, as `proc_pid_stat(5)` has it.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn wait_for(pid: u32, letter: char) {
    let begin = Instant::now();
    while state(pid) != Some(letter) {
        assert!(begin.elapsed() < Duration::from_secs(20), "{letter}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal(pid: u32, name: &str) {
    let done = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(done.is_ok_and(|done| done.success()));
}

#[test]
fn a_process_that_is_stopped_while_it_waits_has_its_answer() {
    if let Some(path) = std::env::var_os(ASKS) {
        let connection = Connection::open(&PathBuf::from(path), Duration::from_secs(20)).unwrap();
        let answer = connection.ask(&Request::Status { version: VERSION });
        assert!(matches!(answer, Ok(Response::Done)), "{answer:?}");
        return;
    }
    let path = std::env::temp_dir().join(format!("stopped-{}", std::process::id()));
    let listens = socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .unwrap();
    bind(listens.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    listen(&listens, Backlog::new(1).unwrap()).unwrap();
    let asks = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--test-threads=1", "--nocapture"])
        .env(ASKS, &path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let accepted = accept(listens.as_raw_fd());
    std::fs::remove_file(&path).unwrap();
    let accepted = accepted.unwrap();
    let mut packet = vec![0; PACKET_BYTES];
    let length = recv(accepted, &mut packet, MsgFlags::empty()).unwrap();
    let asked: Option<Request> = decode(&packet[..length]);
    assert!(matches!(asked, Some(Request::Status { .. })));

    // It has asked; it waits within a moment.
    std::thread::sleep(Duration::from_millis(300));
    signal(asks.id(), "-STOP");
    wait_for(asks.id(), 'T');
    signal(asks.id(), "-CONT");
    wait_for(asks.id(), 'S');
    std::thread::sleep(Duration::from_millis(300));
    let answer = encode(&Response::Done).unwrap();
    send(accepted, &answer, MsgFlags::MSG_NOSIGNAL).ok();
    let output = asks.wait_with_output().unwrap();
    std::io::stderr().write_all(&output.stdout).unwrap();
    assert!(output.status.success());
}
