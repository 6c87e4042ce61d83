//! Output that comes from the chaperon.

use std::fs::File;
use std::io::Read;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use agent_sandbox_wire::frame::{self, PART};
use agent_sandbox_wire::message::{End, FromShim, Stream, ToShim};
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::unistd::pipe2;

use crate::chaperon::{ShimDirectory, Talk, complains, died_of};

fn print(talk: &mut Talk, stream: Stream, bytes: &[u8]) {
    talk.send(&ToShim::Output {
        stream,
        bytes: bytes.to_vec(),
    });
}

#[test]
fn goes_to_its_stream() {
    let place = ShimDirectory::new();
    let (shim, mut talk) = place.begin(&mut place.shim());
    print(&mut talk, Stream::Output, b"one ");
    print(&mut talk, Stream::Error, b"two\xff\0");
    print(&mut talk, Stream::Output, b"");
    print(&mut talk, Stream::Output, b"three");
    talk.end(End::Code(7));
    drop(talk);
    let output = shim.output();
    assert_eq!(output.stdout, b"one three");
    assert_eq!(output.stderr, b"two\xff\0");
    assert_eq!(output.status.code(), Some(7));
}

/// Something that shows what is lost or comes twice.
fn pattern(parts: usize) -> Vec<Vec<u8>> {
    let part = |number: usize| {
        let bytes = (0..PART).map(|at| ((at * 31 + number * 7) % 251) as u8);
        bytes.collect()
    };
    (0..parts).map(part).collect()
}

#[test]
fn arrives_whole_in_a_pipe() {
    let place = ShimDirectory::new();
    let (shim, mut talk) = place.begin(&mut place.shim());
    let parts = pattern(64);
    let expected = parts.concat();
    thread::spawn(move || {
        for part in &parts {
            print(&mut talk, Stream::Output, part);
        }
        talk.end(End::SUCCESS);
    });
    let output = shim.output();
    assert!(output.status.success());
    assert!(output.stdout == expected);
}

#[test]
fn arrives_whole_in_a_file() {
    let place = ShimDirectory::new();
    let file = File::create(place.path("out")).unwrap();
    let (shim, mut talk) = place.begin(place.shim().stdout(file));
    let parts = pattern(16);
    for part in &parts {
        print(&mut talk, Stream::Output, part);
    }
    talk.end(End::SUCCESS);
    assert!(shim.output().status.success());
    assert!(std::fs::read(place.path("out")).unwrap() == parts.concat());
}

#[test]
fn arrives_whole_where_writing_does_not_wait() {
    let place = ShimDirectory::new();
    let (reader, writer) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).unwrap();
    let (shim, mut talk) = place.begin(place.shim().stdout(writer));
    let parts = pattern(4);
    let expected = parts.concat();
    let sender = thread::spawn(move || {
        for part in &parts {
            print(&mut talk, Stream::Output, part);
        }
        talk.end(End::SUCCESS);
        talk
    });
    let mut reader = File::from(reader);
    let mut all = Vec::new();
    while all.len() < expected.len() {
        thread::sleep(Duration::from_millis(1));
        let mut buffer = vec![0; 50_000];
        match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => all.extend_from_slice(&buffer[..got]),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    assert!(all == expected);
    drop(sender.join().unwrap());
    assert!(shim.output().status.success());
}

#[test]
fn that_nobody_reads_ends_the_shim_as_any_program() {
    let place = ShimDirectory::new();
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
    let (shim, mut talk) = place.begin(place.shim().stdout(writer));
    drop(reader);
    // Another test's child may hold the other end until it has become its program.
    let line = ToShim::Output {
        stream: Stream::Output,
        bytes: b"x".to_vec(),
    };
    while frame::send(&mut talk.stream, &line).is_ok() {
        thread::sleep(Duration::from_millis(5));
    }
    let output = shim.output();
    died_of(output.status, libc::SIGPIPE);
    assert_eq!(output.stderr, b"");
}

#[test]
fn that_cannot_be_written_is_an_error() {
    let place = ShimDirectory::new();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (shim, mut talk) = place.begin(place.shim().stdout(full));
    print(&mut talk, Stream::Output, b"x");
    print(&mut talk, Stream::Output, b"x");
    talk.end(End::SUCCESS);
    let output = shim.output();
    complains(
        &output,
        1,
        "sbatch: error: cannot write standard output: No space left",
    );
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn that_nobody_takes_can_be_interrupted() {
    let place = ShimDirectory::new();
    let (shim, mut talk) = place.begin(place.shim().stdout(Stdio::piped()));
    print(&mut talk, Stream::Output, &vec![b'x'; 1 << 20]);
    // The pipe is full when the shim has taken the message, which no socket holds whole, and sleeps.
    shim.becomes('S');
    shim.signal(Signal::SIGWINCH);
    assert_eq!(talk.receive(), FromShim::Signal(libc::SIGWINCH));
    shim.signal(Signal::SIGINT);
    assert_eq!(talk.receive(), FromShim::Signal(libc::SIGINT));
    let mut shim = shim;
    died_of(shim.status(), libc::SIGINT);
}

#[test]
fn before_the_chaperon_ends_is_written_all_the_same() {
    let place = ShimDirectory::new();
    let (shim, mut talk) = place.begin(&mut place.shim());
    print(&mut talk, Stream::Output, &vec![b'x'; 100_000]);
    drop(talk);
    let output = shim.output();
    assert_eq!(output.stdout.len(), 100_000);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        text,
        "sbatch: error: the chaperon ended before the command did\n"
    );
}
