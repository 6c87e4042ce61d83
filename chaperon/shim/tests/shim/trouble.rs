//! No chaperon, or none that can be talked to: a clear error in bounded time.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Output;
use std::time::{Duration, Instant};

use agent_sandbox_wire::frame::{LONGEST, PREFACE};
use agent_sandbox_wire::{SOCKET_VARIABLE, VERSION};
use nix::sys::signal::Signal;
use nix::sys::socket::{Backlog, listen};

use crate::chaperon::{Shim, ShimDirectory, complains, died_of};

/// What the shim allows the chaperon, and what a loaded machine may add.
const BOUND: Duration = Duration::from_secs(12);

#[test]
fn no_socket() {
    let place = ShimDirectory::new();
    let mut command = place.shim();
    command.env(SOCKET_VARIABLE, place.path("missing"));
    let output = Shim(command.spawn().unwrap()).output();
    complains(
        &output,
        1,
        "sbatch: error: Slurm is not available in this jail: it has no chaperon\nhint: ",
    );
}

#[test]
fn no_place_for_a_socket() {
    let place = ShimDirectory::new();
    let mut command = place.shim();
    command.env(SOCKET_VARIABLE, place.path("missing/socket"));
    let output = Shim(command.spawn().unwrap()).output();
    complains(
        &output,
        1,
        "sbatch: error: Slurm is switched off in this jail (slurm.mode)\nhint: ",
    );
}

#[test]
fn nobody_listens() {
    let place = ShimDirectory::new();
    let dead = place.path("dead");
    drop(UnixListener::bind(&dead).unwrap());
    let mut command = place.shim();
    command.env(SOCKET_VARIABLE, dead);
    let output = Shim(command.spawn().unwrap()).output();
    complains(
        &output,
        1,
        "sbatch: error: Slurm is not available in this jail: its chaperon has ended\nhint: ",
    );
}

#[test]
fn no_answer() {
    let place = ShimDirectory::new();
    let begun = Instant::now();
    let shim = Shim(place.shim().spawn().unwrap());
    let _held = place.connection();
    complains(
        &shim.output(),
        1,
        "sbatch: error: the chaperon of this session does not answer\nhint: ",
    );
    assert!(begun.elapsed() < BOUND);
}

#[test]
fn no_answer_and_interrupted() {
    let place = ShimDirectory::new();
    let shim = Shim(place.shim().spawn().unwrap());
    let _held = place.connection();
    shim.signal(Signal::SIGINT);
    died_of(shim.output().status, libc::SIGINT);
}

#[test]
fn nobody_takes_the_connection() {
    let place = ShimDirectory::new();
    listen(place.listener(), Backlog::new(0).unwrap()).unwrap();
    let begun = Instant::now();
    // One fits into a queue of none (`listen(2)`).
    let _first = UnixStream::connect(place.path("socket")).unwrap();
    let shim = Shim(place.shim().spawn().unwrap());
    complains(
        &shim.output(),
        1,
        "sbatch: error: the chaperon of this session does not answer\nhint: ",
    );
    assert!(begun.elapsed() < BOUND);
}

/// A chaperon that answers the preface with this, and ends.
fn answered_with(bytes: &[u8]) -> Output {
    let place = ShimDirectory::new();
    let shim = Shim(place.shim().spawn().unwrap());
    let mut stream = place.connection();
    stream.write_all(bytes).unwrap();
    let mut preface = [0; 4];
    stream.read_exact(&mut preface).unwrap();
    drop(stream);
    shim.output()
}

#[test]
fn another_version() {
    let theirs = VERSION + 1;
    let output = answered_with(&[b'a', b's', b'c', theirs]);
    let text = format!(
        "this command speaks version {VERSION} with the chaperon, the chaperon of this session version {theirs}\nhint: "
    );
    complains(&output, 1, &text);
}

#[test]
fn something_else() {
    complains(
        &answered_with(b"HTTP/1.1 400"),
        1,
        "what answers in place of the chaperon is none",
    );
}

#[test]
fn a_connection_that_ends_at_once() {
    complains(&answered_with(b""), 1, "refused the connection");
    complains(&answered_with(b"as"), 1, "refused the connection");
    complains(
        &answered_with(&PREFACE),
        1,
        "the chaperon ended before the command did",
    );
}

#[test]
fn a_connection_that_ends_after_the_call() {
    let place = ShimDirectory::new();
    let (shim, talk) = place.begin(&mut place.shim());
    drop(talk);
    complains(
        &shim.output(),
        1,
        "sbatch: error: the chaperon ended before the command did\n",
    );
}

#[test]
fn a_connection_that_ends_within_a_message() {
    let place = ShimDirectory::new();
    let (shim, mut talk) = place.begin(&mut place.shim());
    talk.stream.write_all(&[100, 0, 0, 0, 2]).unwrap();
    drop(talk);
    complains(
        &shim.output(),
        1,
        "the chaperon ended before the command did",
    );
}

#[test]
fn messages_that_make_no_sense() {
    let long = u32::try_from(LONGEST + 1).unwrap().to_le_bytes();
    for bytes in [&long[..], &[1, 0, 0, 0, 200], &[0, 0, 0, 0], &[255; 8]] {
        let place = ShimDirectory::new();
        let (shim, mut talk) = place.begin(&mut place.shim());
        talk.stream.write_all(bytes).unwrap();
        complains(
            &shim.output(),
            1,
            "sbatch: error: the chaperon sent what makes no sense\n",
        );
    }
}
