//! Many processes that arrive at once.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use agent_sandbox::share::join_socket::{Arrival, JoinDirectories, StepId, accept};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{MsgFlags, recv, send};

use crate::world::{Child, First, World, hear, place};

const PROCESSES: usize = 128;
const ROUNDS: usize = 50;

/// The server ends the step as soon as it is alone.
const EAGER: u8 = b'e';
/// The server stays until everybody was there.
const STEADY: u8 = b's';

/// What a process says at the end of a round.
const FIRST: u8 = b'F';
const MEMBER: u8 = b'M';
/// Its connection ended without an answer.
const LOST: u8 = b'L';
/// Another server of the step was alive.
const TWO: u8 = b'2';
const FAILED: u8 = b'!';

/// Keeps the step, as simply as a server can.
fn keep(first: First, how: u8, alive: &Path) -> u8 {
    let First {
        listener,
        connection,
        claim,
        ..
    } = first;
    let mark = || OpenOptions::new().write(true).create_new(true).open(alive);
    if mark().is_err() {
        return TWO;
    }
    let mut own = Some(connection);
    let mut members: Vec<OwnedFd> = Vec::new();
    let mut seen = 0;
    loop {
        while let Some(member) = accept(&listener).unwrap() {
            let _ = send(member.as_raw_fd(), b"!", MsgFlags::MSG_NOSIGNAL);
            members.push(member);
            seen += 1;
        }
        if how == EAGER || seen == PROCESSES {
            own = None;
        }
        if members.is_empty() {
            assert!(own.is_none());
            std::fs::remove_file(alive).unwrap();
            let Some(member) = claim.retire(&listener).unwrap() else {
                return FIRST;
            };
            if mark().is_err() {
                return TWO;
            }
            let _ = send(member.as_raw_fd(), b"!", MsgFlags::MSG_NOSIGNAL);
            members.push(member);
            seen += 1;
        }
        let mut all: Vec<PollFd<'_>> = std::iter::once(&listener)
            .chain(&members)
            .map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN))
            .collect();
        poll(&mut all, PollTimeout::NONE).unwrap();
        let gone: Vec<bool> = all[1..].iter().map(|one| one.any().unwrap()).collect();
        let mut gone = gone.into_iter();
        members.retain(|_| !gone.next().unwrap());
    }
}

fn answered(connection: &OwnedFd) -> bool {
    loop {
        match recv(connection.as_raw_fd(), &mut [0], MsgFlags::empty()) {
            Err(Errno::EINTR) => {}
            answer => return answer == Ok(1),
        }
    }
}

fn attend(directories: &JoinDirectories, how: u8, alive: &Path) -> u8 {
    match directories.arrive(&place(7), StepId::Step(0)) {
        Err(error) => {
            // Not for the harness, which would keep it.
            let _ = writeln!(std::io::stderr(), "{error:#}");
            FAILED
        }
        Ok(Arrival::Member(connection)) if answered(&connection) => MEMBER,
        Ok(Arrival::Member(_)) => LOST,
        Ok(first) => keep(First::of(first).unwrap(), how, alive),
    }
}

#[test]
fn of_many_that_arrive_at_once_one_is_the_first() {
    let world = World::new();
    let directories = world.join_directories();
    let alive = world.path().join("alive");
    let mut all: Vec<Child> = (0..PROCESSES)
        .map(|_| {
            Child::new(|line| {
                while let Ok(how) = hear(line) {
                    let end = attend(&directories, how, &alive);
                    line.write_all(&[end]).unwrap();
                }
            })
        })
        .collect();
    let mut firsts = 0;
    for round in 0..ROUNDS {
        let how = if round % 2 == 0 { STEADY } else { EAGER };
        for child in &mut all {
            child.say(how);
        }
        let ends: Vec<u8> = all.iter_mut().map(Child::hear).collect();
        let count = |end: u8| ends.iter().filter(|one| **one == end).count();
        let first = count(FIRST);
        let shown = String::from_utf8_lossy(&ends);
        assert_eq!(first + count(MEMBER), PROCESSES, "{round}: {shown}");
        assert!(
            first == 1 || (how == EAGER && first > 0),
            "{round}: {shown}"
        );
        assert_eq!(world.names(&world.base(0)), [""; 0], "{round}");
        firsts += first;
    }
    println!("{firsts} servers in {ROUNDS} rounds");
}

/// Those who waited for a server that was killed find another.
#[test]
fn a_killed_server_is_followed_by_another() {
    let world = World::new();
    let directories = world.join_directories();
    let alive = world.path().join("alive");
    let mut server = Child::new(|line| {
        let _first = world.first(StepId::Step(0));
        line.write_all(b"!").unwrap();
        std::thread::sleep(Duration::from_secs(60));
    });
    server.hear();
    let mut all: Vec<Child> = (0..8)
        .map(|_| {
            Child::new(|line| {
                let connection = world.member(StepId::Step(0));
                line.write_all(b"!").unwrap();
                assert!(!answered(&connection));
                drop(connection);
                let end = attend(&directories, EAGER, &alive);
                line.write_all(&[end]).unwrap();
            })
        })
        .collect();
    for child in &mut all {
        child.hear();
    }
    kill(server.pid, Signal::SIGKILL).unwrap();
    let ends: Vec<u8> = all.iter_mut().map(Child::hear).collect();
    let shown = String::from_utf8_lossy(&ends);
    assert!(ends.contains(&FIRST), "{shown}");
    assert!(
        ends.iter().all(|end| [FIRST, MEMBER].contains(end)),
        "{shown}"
    );
    assert_eq!(world.names(&world.base(0)), [""; 0]);
}

/// Of any two steps that begin at once, one lists the other, and not both each other.
#[test]
fn rooms_agree_on_their_order() {
    const ROOMS: u32 = 32;
    let world = World::new();
    let mut all: Vec<Child> = (0..ROOMS)
        .map(|id| {
            let world = &world;
            Child::new(move |line| {
                hear(line).unwrap();
                let first = world.first(StepId::Step(id));
                let mut listed = [0; ROOMS as usize];
                for step in &first.earlier {
                    let StepId::Step(other) = step else { panic!() };
                    listed[*other as usize] = 1;
                }
                line.write_all(&listed).unwrap();
                hear(line).unwrap();
            })
        })
        .collect();
    for child in &mut all {
        child.say(b'!');
    }
    let lists: Vec<Vec<u8>> = all
        .iter_mut()
        .map(|child| (0..ROOMS).map(|_| child.hear()).collect())
        .collect();
    for (one, list) in lists.iter().enumerate() {
        for (other, theirs) in lists.iter().enumerate() {
            let listed = u8::from(one != other);
            assert_eq!(list[other] + theirs[one], listed, "{one} {other}");
        }
    }
}
