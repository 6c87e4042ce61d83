//! The conversation with the chaperon, made by hand inside the jail: what is not well said ends that
//! connection and nothing else. This executable is its own client.

use std::io::{IoSlice, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use agent_sandbox_wire::SOCKET;
use agent_sandbox_wire::frame::{self, LONGEST, PREFACE};
use agent_sandbox_wire::message::{Call, End, FromShim, ToShim};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use crate::world::World;

/// Names what this executable does when it runs inside.
const PROBE: &str = "AGENT_SANDBOX_SLURM_PROBE";
/// Long enough for an answer, on a busy machine.
const ANSWER: Duration = Duration::from_secs(20);

fn connect() -> UnixStream {
    // The variable is there where the socket is not at its usual place (Landlock).
    let at = std::env::var_os("AGENT_SANDBOX_CHAPERON").unwrap_or_else(|| SOCKET.into());
    let stream = UnixStream::connect(at).unwrap();
    stream.set_read_timeout(Some(ANSWER)).unwrap();
    stream.set_write_timeout(Some(ANSWER)).unwrap();
    stream
}

fn call(command: &[u8], arguments: &[&[u8]]) -> Vec<u8> {
    let call = Call {
        command: command.to_vec(),
        arguments: arguments.iter().map(|word| word.to_vec()).collect(),
        cwd: std::env::current_dir()
            .unwrap()
            .into_os_string()
            .into_encoded_bytes(),
        environment: Vec::new(),
        umask: 0o22,
    };
    frame::encode(&FromShim::Call(call)).unwrap()
}

/// Sends bytes with so many copies of standard input.
fn send(stream: &UnixStream, bytes: &[u8], descriptors: usize) -> bool {
    let fds = vec![0; descriptors];
    let rights = [ControlMessage::ScmRights(&fds)];
    let rights = if descriptors == 0 { &[] } else { &rights[..] };
    let bytes = [IoSlice::new(bytes)];
    sendmsg::<()>(
        stream.as_raw_fd(),
        &bytes,
        rights,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )
    .is_ok()
}

/// Everything that is answered until the end of the connection, in words.
fn answers(stream: &mut UnixStream) -> String {
    let mut all = Vec::new();
    let ended = stream.read_to_end(&mut all);
    let mut rest = all.strip_prefix(&PREFACE[..]).unwrap_or(&all);
    let mut said = String::new();
    while let Some((length, body)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some(body_here) = body.get(..length) else {
            break;
        };
        match frame::decode::<ToShim>(body_here) {
            Ok(ToShim::Output { bytes, .. }) => said.push_str(&String::from_utf8_lossy(&bytes)),
            Ok(ToShim::End(End::Code(code))) => said.push_str(&format!("<{code}>")),
            Ok(other) => said.push_str(&format!("{other:?}")),
            Err(error) => said.push_str(&error.to_string()),
        }
        rest = &body[length..];
    }
    match ended {
        Ok(_) => said,
        Err(error) => format!("{said} but {error}"),
    }
}

/// The inside half: prints one line for each attack.
fn probe() {
    let say = |what: &str, answer: &str| println!("{what}: {}", answer.escape_debug());
    // Who says no more is gone, and its command is ended: an answer is waited for without that.
    let ask = |what: &str, bytes: &[u8]| {
        let mut stream = connect();
        send(&stream, bytes, 3);
        say(what, &answers(&mut stream));
    };
    let talk = |what: &str, bytes: &[u8], descriptors: usize| {
        let mut stream = connect();
        send(&stream, bytes, descriptors);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        say(what, &answers(&mut stream));
    };
    let greet = |body: &[u8]| [&PREFACE[..], body].concat();
    talk("nothing", b"", 0);
    talk("garbage", &[0xff; 4096], 0);
    talk("http", b"GET / HTTP/1.1\r\n\r\n", 0);
    talk("version", &[b'a', b's', b'c', 99, 0, 0, 0, 0], 3);
    talk("length", &greet(&u32::MAX.to_le_bytes()), 3);
    talk("longest", &greet(&(LONGEST as u32).to_le_bytes()), 3);
    talk("cut", &greet(&call(b"squeue", &[])[..20]), 3);
    talk(
        "no message",
        &greet(&[4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]),
        3,
    );
    talk("no descriptors", &greet(&call(b"squeue", &[])), 0);
    talk("too few", &greet(&call(b"squeue", &[])), 1);
    talk("too many", &greet(&call(b"squeue", &[])), 100);
    talk(
        "signal first",
        &greet(&frame::encode(&FromShim::Signal(9)).unwrap()),
        3,
    );
    talk(
        "answer first",
        &greet(&frame::encode(&FromShim::ContentEnds).unwrap()),
        3,
    );
    for command in [
        &b"bash"[..],
        b"/bin/sh",
        b"../../bin/sh",
        b"sbatch\0",
        b"",
        b"\xff\xfe",
        b"scrun",
    ] {
        ask(
            "command",
            &greet(&call(command, &[b"-c", b"cat ~/.ssh/id_rsa"])),
        );
    }
    ask("NUL", &greet(&call(b"squeue", &[b"-o", b"%i\0--version"])));
    // Two calls at once, and signals that make no sense.
    let mut twice = greet(&call(b"sinfo", &[b"-h"]));
    twice.extend(call(b"scontrol", &[b"token"]));
    for signal in [-1, 0, 9, 19, 1000] {
        twice.extend(frame::encode(&FromShim::Signal(signal)).unwrap());
    }
    talk("twice", &twice, 3);
    // Many that say nothing and stay: others are served all the same.
    let silent: Vec<UnixStream> = (0..150).map(|_| connect()).collect();
    ask(
        "beside silent ones",
        &greet(&call(b"sinfo", &[b"--version"])),
    );
    drop(silent);
    // One that asks and goes, many times.
    for _ in 0..200 {
        let mut stream = connect();
        let _ = stream.write_all(&greet(b""));
    }
    ask("after all", &greet(&call(b"sinfo", &[b"--version"])));
    println!("the end");
}

#[test]
fn what_is_said_by_hand_does_no_harm() {
    if std::env::var_os(PROBE).is_some() {
        return probe();
    }
    let Some(world) = World::new() else { return };
    let own = std::env::current_exe().unwrap();
    let thread = std::thread::current();
    let test = thread.name().unwrap();
    let script = format!(
        "squeue -h > /dev/null; {PROBE}=1 {} --exact {test} --nocapture --test-threads 1 < /dev/null; \
         squeue -h > /dev/null && echo \"still served\"",
        own.display()
    );
    let output = world.inside(&script).option("--read").option(&own).run();
    let said = output.out();
    assert!(
        said.contains("the end\n") && said.contains("still served\n"),
        "{output}"
    );
    for line in said.lines().filter(|line| line.starts_with("command: ")) {
        assert!(
            line.contains("no command of Slurm") || line.contains("error"),
            "{line}"
        );
    }
    for what in ["beside silent ones", "after all"] {
        let line = said
            .lines()
            .find(|line| line.starts_with(&format!("{what}: ")))
            .unwrap();
        assert!(line.contains("<0>"), "{line}");
    }
    // EAGAIN: no answer and no end within that time.
    assert!(
        !said.contains("(os error 11)"),
        "a connection was left open: {output}"
    );
    world.check(&output);
}

#[test]
fn nobody_outside_of_this_jail_reaches_its_chaperon() {
    let Some(world) = World::new() else { return };
    let running = world
        .inside(
            "squeue -h > /dev/null; echo ready > ready.txt; until [ -e over ]; do sleep 0.05; done",
        )
        .start();
    world.until(crate::world::Side::Inside, "ready.txt", "ready");
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    assert!(!std::path::Path::new(SOCKET).exists());
    // Its name is bound in a directory of the jail's own.
    for side in [
        world.outside(&format!("[ -e {SOCKET} ] && echo there")),
        world.inside("sleep 0; ls /run/agent-sandbox/slurm; sinfo --version"),
    ] {
        let output = side.run();
        assert!(!output.out().contains("there"), "{output}\n{sockets}");
    }
    world.write("over", "");
    running.end();
}
