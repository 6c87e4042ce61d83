//! Who listens: that it is the process that answers.

use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use agent_sandbox::share::join_socket::{StepId, accept};
use agent_sandbox::share::peer::{is_server, judge};
use agent_sandbox::sys::process::descriptor_of;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
};
use nix::unistd::getpid;

use crate::world::{Child, World, hear, place};

fn local() -> OwnedFd {
    let flags = SockFlag::SOCK_CLOEXEC;
    socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap()
}

/// A socket of this process's at which another listens.
fn listened_by_another(path: &Path) -> (OwnedFd, Child) {
    let listener = local();
    bind(listener.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
    let mut other = Child::new(|line| {
        listen(&listener, Backlog::new(8).unwrap()).unwrap();
        line.write_all(b"!").unwrap();
        let _ = hear(line);
    });
    other.hear();
    (listener, other)
}

fn connected(path: &Path) -> OwnedFd {
    let connection = local();
    connect(connection.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
    connection
}

#[test]
fn who_answers_is_who_listens() {
    let world = World::new();
    let path = world.path().join("socket");
    let (_listener, other) = listened_by_another(&path);
    let connection = connected(&path);
    let server = descriptor_of(other.pid).unwrap();
    assert!(is_server(&connection, &server).unwrap());
    // The process that waits has a descriptor of itself at most; neither it nor one that shows no
    // process is the server's.
    let own = descriptor_of(getpid()).unwrap();
    assert!(!is_server(&connection, &own).unwrap());
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    assert!(is_server(&connection, &null).is_err());
    // One that has ended is nobody's; its number may be another's by now.
    let ended = Child::new(|_| {});
    let descriptor = descriptor_of(ended.pid).unwrap();
    drop(ended);
    assert!(!is_server(&connection, &descriptor).unwrap());
    drop(other);
    assert!(is_server(&connection, &server).is_err());
    assert!(is_server(&connection, &own).is_err());
}

/// A server that was forked listens itself only a moment later.
#[test]
fn a_server_that_was_forked_is_waited_for() {
    let world = World::new();
    let path = world.path().join("socket");
    let listener = local();
    bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    listen(&listener, Backlog::new(8).unwrap()).unwrap();
    let connection = connected(&path);
    let forked = Child::new(|line| {
        let _ = hear(line);
    });
    let server = descriptor_of(forked.pid).unwrap();
    assert!(is_server(&connection, &server).unwrap());
    // The other way round it is nobody's child.
    let (_listener, _other) = listened_by_another(&world.path().join("another"));
    let connection = connected(&world.path().join("another"));
    assert!(!is_server(&connection, &server).unwrap());
}

#[test]
fn who_arrives_is_who_connected() {
    let world = World::new();
    let first = world.first(StepId::Batch);
    let own = descriptor_of(getpid()).unwrap();
    let connection = accept(&first.listener).unwrap().unwrap();
    judge(&connection, Some(&own), None).unwrap();
    let other = Child::new(|line| {
        let _ = hear(line);
    });
    let descriptor = descriptor_of(other.pid).unwrap();
    let error = judge(&connection, Some(&descriptor), None).unwrap_err();
    assert!(error.to_string().contains("may not join"), "{error:#}");
}

/// The socket lives on in another process; who listened does not.
#[test]
fn a_listener_that_has_ended_is_not_believed() {
    let world = World::new();
    let _first = world.first(StepId::Step(1));
    let path = world.job().join("0000000002.batch");
    let (_listener, other) = listened_by_another(&path);
    world
        .join_directories()
        .arrive(&place(7), StepId::Batch)
        .unwrap();
    drop(other);
    let short = world.patient(Duration::from_millis(50));
    let error = short.arrive(&place(7), StepId::Batch).unwrap_err();
    assert!(error.to_string().contains("waited"), "{error:#}");
}

/// The task that forked a server may have ended before those are answered that came in between: they
/// tell this from every other reason, and ask again.
#[test]
fn who_listened_and_has_ended_is_told_from_others() {
    let world = World::new();
    let path = world.path().join("socket");
    let (_listener, other) = listened_by_another(&path);
    let connection = connected(&path);
    drop(other);
    let own = descriptor_of(getpid()).unwrap();
    let error = is_server(&connection, &own).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}
