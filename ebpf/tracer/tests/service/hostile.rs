//! Those who write packets by hand.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use agent_sandbox_events::client::{Connection, decode, encode};
use agent_sandbox_events::protocol::{
    EventKind, Lifetime, OPENED, PACKET_BYTES, Request, Response, Scope, VERSION, Which,
};
use agent_sandbox_events::trails::Source;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, Shutdown, UnixAddr, recv, sendmsg, shutdown};

use crate::world::{PATIENCE, Victim, World, me, of, refused, registered};

/// Sends bytes as a packet, with descriptors; says what comes back, none at the end.
fn say(connection: &Connection, packet: &[u8], with: &[RawFd]) -> Option<Response> {
    let socket = connection.as_fd().as_raw_fd();
    let rights = [ControlMessage::ScmRights(with)];
    let rights = if with.is_empty() {
        &[][..]
    } else {
        &rights[..]
    };
    let parts = [IoSlice::new(packet)];
    if let Err(error) = sendmsg::<UnixAddr>(socket, &parts, rights, MsgFlags::MSG_NOSIGNAL, None) {
        println!("cannot send: {error}");
        return None;
    }
    hear(connection)
}

fn hear(connection: &Connection) -> Option<Response> {
    let mut buffer = vec![0; PACKET_BYTES];
    let socket = connection.as_fd().as_raw_fd();
    match recv(socket, &mut buffer, MsgFlags::empty()) {
        Ok(0) | Err(_) => None,
        Ok(length) => decode(&buffer[..length]),
    }
}

fn files() -> Request {
    Request::Files {
        version: VERSION,
        which: Which::All,
        after: None,
    }
}

fn is_served(world: &World) {
    let answer = world.connect().ask(&Request::Status { version: VERSION });
    assert!(matches!(answer, Ok(Response::Status(_))), "{answer:?}");
}

fn is_closed(connection: &Connection) -> bool {
    hear(connection).is_none()
}

#[test]
fn what_is_no_request_is_refused_and_ends_the_conversation() {
    let world = World::new();
    let list = encode(&files()).unwrap();
    let mut longer = list.clone();
    longer.push(0);
    let mut register = encode(&Request::Register(Box::new(of(1)))).unwrap();
    register.truncate(register.len() - 3);
    // The number of the strings of a command that is longer than the packet.
    let huge = [0, VERSION as u8, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
    let packets: [&[u8]; 7] = [
        &[0xff; 40],
        &[7],
        &longer,
        &register,
        &huge,
        &vec![0; PACKET_BYTES],
        &vec![0; PACKET_BYTES + 5000],
    ];
    for packet in packets {
        let connection = world.connect();
        let answer = say(&connection, packet, &[]);
        assert!(
            matches!(answer, Some(Response::Refused { .. })),
            "{answer:?}"
        );
        assert!(is_closed(&connection), "{:?}", &packet[..1]);
    }
    // A packet without bytes is the end of the conversation.
    let connection = world.connect();
    assert!(say(&connection, &[], &[]).is_none());
    is_served(&world);
}

#[test]
fn every_packet_of_two_bytes_is_survived() {
    let world = World::with(|config| config.limits.requests_per_second = 1_000_000);
    for first in 0..=255_u8 {
        for second in [0, 1, 2, 0x7f, 0x80, 0xff] {
            // A packet that is no whole request gets no answer for a moment.
            let connection = Connection::open(&world.config.socket, Duration::from_millis(20));
            say(&connection.unwrap(), &[first, second], &[]);
        }
    }
    is_served(&world);
}

#[test]
fn another_version_is_refused_with_a_hint() {
    let world = World::new();
    let victim = Victim::new();
    let mut register = of(victim.pid());
    register.version = VERSION + 1;
    let version = VERSION + 1;
    let requests = [
        Request::Register(Box::new(register)),
        Request::Files {
            version,
            which: Which::All,
            after: None,
        },
        Request::Open {
            version,
            files: Vec::new(),
        },
        Request::Status { version },
        Request::Forbid { version },
    ];
    for request in requests {
        let why = refused(world.connect().ask(&request));
        assert!(
            why.contains("same version") || why.contains("descriptors"),
            "{why}"
        );
    }
}

#[test]
fn requests_out_of_order_are_refused() {
    let world = World::new();
    let victim = Victim::new();
    let connection = world.connect();
    assert!(refused(connection.ask(&Request::Begin)).contains("register a trace first"));
    assert!(refused(connection.ask(&Request::End)).contains("no trace has begun"));
    let usr = crate::world::path("/usr");
    let forbid = Request::Forbid { version: VERSION };
    let why = refused(connection.ask_with(&forbid, &[usr.as_fd()]));
    assert!(why.contains("register a trace first"), "{why}");
    registered(&connection, &of(victim.pid()));
    let again = Request::Register(Box::new(of(victim.pid())));
    assert!(refused(connection.ask(&again)).contains("has a trace already"));
    assert!(refused(connection.ask(&forbid)).contains("no descriptors"));
    assert_eq!(connection.ask(&Request::Begin).unwrap(), Response::Done);
    assert!(refused(connection.ask(&Request::Begin)).contains("has begun already"));
    assert!(refused(connection.ask(&again)).contains("has a trace already"));
}

#[test]
fn names_and_scopes_without_sense_are_refused() {
    let world = World::new();
    let victim = Victim::new();
    let ask = |change: &dyn Fn(&mut agent_sandbox_events::protocol::Register)| {
        let mut register = of(victim.pid());
        change(&mut register);
        refused(world.connect().ask(&Request::Register(Box::new(register))))
    };
    let session = |text: &str| ask(&|register| register.session = Some(text.to_owned()));
    for text in ["../../../etc", "", "a/b", ".", "a\nb", "x y"] {
        assert!(session(text).contains("a session's id"), "{text}");
    }
    assert!(ask(&|register| register.step = Some("1".to_owned())).contains("without a job"));
    let scope = |process, descendants, cgroup| {
        ask(&|register| {
            register.scope = Scope {
                process,
                descendants,
                cgroup,
            };
        })
    };
    assert!(scope(None, false, None).contains("neither a process nor a cgroup"));
    assert!(scope(None, true, Some(1)).contains("descendants of no process"));
    for pid in [0, u32::MAX, i32::MAX as u32] {
        assert!(
            scope(Some(pid), false, None).contains("there is no process"),
            "{pid}"
        );
    }
    let cgroup = scope(None, false, Some(u64::MAX));
    assert!(cgroup.contains("cgroup"), "{cgroup}");
    let redact = ask(&|register| register.redact = vec!["x".to_owned(); 1000]);
    assert!(!redact.is_empty());
    let redact = ask(&|register| register.redact = vec!["x".repeat(10_000)]);
    assert!(!redact.is_empty());
}

#[test]
fn long_lists_are_cut_and_not_believed() {
    let world = World::new();
    let victim = Victim::new();
    let mut register = of(victim.pid());
    register.events = vec![EventKind::Open; 20_000];
    register.command = vec!["\u{1}".repeat(8); 4000];
    let (_connection, id) = world.trace(&register);
    let records = world.records(Which::Trace(id));
    assert_eq!(records[0]["events"], serde_json::json!(["open"]));
    let line = records[0].to_string();
    assert!(line.len() < 60_000, "{}", line.len());
}

#[test]
fn descriptors_of_all_kinds_are_looked_at_and_closed() {
    let world = World::with(|config| config.limits.requests_per_second = 100_000);
    let victim = Victim::new();
    let connection = world.connect();
    registered(&connection, &of(victim.pid()));
    let open = |path: &str, flags: nix::fcntl::OFlag| -> OwnedFd {
        nix::fcntl::open(path, flags, nix::sys::stat::Mode::empty()).unwrap()
    };
    let o_path = nix::fcntl::OFlag::O_PATH;
    let (reading, writing) = nix::unistd::pipe().unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    let memory = nix::sys::memfd::memfd_create("x", nix::sys::memfd::MFdFlags::empty()).unwrap();
    let epoll = nix::sys::epoll::Epoll::new(nix::sys::epoll::EpollCreateFlags::empty()).unwrap();
    let deleted = tempfile::tempfile().unwrap();
    let good = [
        open("/usr", o_path),
        open("/usr/bin/env", o_path),
        open("/proc/self/exe", o_path),
        open("/dev/null", o_path),
        open(world.config.socket.to_str().unwrap(), o_path),
        open(&format!("/proc/self/fd/{}", deleted.as_raw_fd()), o_path),
    ];
    let socket = connection.as_fd().as_raw_fd();
    let opened = open("/usr", nix::fcntl::OFlag::O_RDONLY);
    let bad = [
        opened.as_raw_fd(),
        reading.as_raw_fd(),
        writing.as_raw_fd(),
        one.as_raw_fd(),
        other.as_raw_fd(),
        memory.as_raw_fd(),
        epoll.0.as_raw_fd(),
        socket,
    ];
    let mut all: Vec<RawFd> = good.iter().map(AsRawFd::as_raw_fd).collect();
    all.extend(bad);
    let forbid = encode(&Request::Forbid { version: VERSION }).unwrap();
    let before = descriptors();
    let answer = say(&connection, &forbid, &all);
    let Some(Response::Forbidden { taken, blind }) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(taken, 6, "{blind:?}");
    assert!(!blind.is_empty());
    assert_eq!(connection.ask(&Request::Begin).unwrap(), Response::Done);
    // 253 of them are as many as the kernel lets through, and more than are taken.
    let many = vec![good[0].as_raw_fd(); 253];
    for _ in 0..20 {
        let answer = say(&connection, &forbid, &many);
        assert!(
            matches!(answer, Some(Response::Refused { .. })),
            "{answer:?}"
        );
        let answer = say(&connection, &forbid, &many[..250]);
        assert!(
            matches!(answer, Some(Response::Forbidden { taken: 250, .. })),
            "{answer:?}"
        );
    }
    // With a request that has no use for them.
    let status = encode(&Request::Status { version: VERSION }).unwrap();
    let useless = world.connect();
    let answer = say(&useless, &status, &many[..3]);
    assert!(
        matches!(answer, Some(Response::Refused { .. })),
        "{answer:?}"
    );
    assert!(is_closed(&useless));
    is_served(&world);
    // Other tests of this process open some, too, and close them.
    let deadline = Instant::now() + Duration::from_secs(30);
    while descriptors() >= before + 200 {
        assert!(Instant::now() < deadline, "{before} {}", descriptors());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn what_is_forbidden_is_bounded() {
    let world = World::with(|config| {
        config.limits.forbidden_per_user = 3;
        config.limits.requests_per_second = 100_000;
    });
    let directory = tempfile::tempdir().unwrap();
    let files: Vec<OwnedFd> = (0..5)
        .map(|n| {
            let file = directory.path().join(n.to_string());
            std::fs::write(&file, "").unwrap();
            crate::world::path(file.to_str().unwrap())
        })
        .collect();
    let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let victim = Victim::new();
    let forbid = Request::Forbid { version: VERSION };
    for _ in 0..3 {
        let connection = world.connect();
        registered(&connection, &of(victim.pid()));
        let why = refused(connection.ask_with(&forbid, &borrowed));
        assert!(why.contains("you have 3 forbidden files already"), "{why}");
        let answer = connection.ask_with(&forbid, &borrowed[..3]);
        assert!(
            matches!(answer, Ok(Response::Forbidden { taken: 3, .. })),
            "{answer:?}"
        );
        // The same again is nothing more.
        let answer = connection.ask_with(&forbid, &borrowed[..3]);
        assert!(answer.is_ok(), "{answer:?}");
        drop(connection);
    }
}

#[test]
fn a_thousand_connections_leave_room_for_others() {
    let world = World::with(|config| {
        config.limits.connections = 200;
        config.limits.connections_per_user = 64;
        config.limits.requests_per_second = 1000;
    });
    let (_, hard) =
        nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    let most = hard.min(8192);
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, most, hard).unwrap();
    let first = world.connect();
    let mut refusals = 0;
    let mut all = Vec::new();
    for _ in 0..1000 {
        let connection = world.connect();
        let answer = connection.ask(&Request::Status { version: VERSION });
        refusals += usize::from(answer.is_err());
        all.push(connection);
    }
    // Root may have all of them, others fewer.
    let most = if me() == 0 { 199 } else { 63 };
    assert_eq!(1000 - refusals, most);
    let answer = first.ask(&Request::Status { version: VERSION });
    assert!(answer.is_ok(), "{answer:?}");
    drop(all);
    let begin = Instant::now();
    while world
        .connect()
        .ask(&Request::Status { version: VERSION })
        .is_err()
    {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn traces_of_one_user_are_bounded() {
    let world = World::with(|config| config.limits.traces_per_user = 3);
    let victims: Vec<Victim> = (0..4).map(|_| Victim::new()).collect();
    let mut all: Vec<_> = victims[..3]
        .iter()
        .map(|victim| {
            let mut register = of(victim.pid());
            register.lifetime = Lifetime::Connection;
            world.trace(&register)
        })
        .collect();
    let last = Request::Register(Box::new(of(victims[3].pid())));
    let why = refused(world.connect().ask(&last));
    assert!(why.contains("you have 3 traces already"), "{why}");
    all.pop();
    world.served();
    assert!(world.connect().ask(&last).is_ok());
}

#[test]
fn whoever_asks_all_the_time_waits() {
    let world = World::with(|config| config.limits.requests_per_second = 50);
    let connection = world.connect();
    let begin = Instant::now();
    // Five seconds' worth at once, and then as many as come to one.
    for _ in 0..300 {
        connection
            .ask(&Request::Status { version: VERSION })
            .unwrap();
    }
    let took = begin.elapsed();
    assert!(took > Duration::from_millis(800), "{took:?}");
}

#[test]
fn whoever_takes_no_answers_gets_no_more() {
    let world = World::with(|config| config.limits.requests_per_second = 1_000_000);
    let connection = Connection::open(&world.config.socket, Duration::from_millis(500)).unwrap();
    let status = Request::Status { version: VERSION };
    let mut sent = 0_u32;
    while connection.send(&status).is_ok() {
        sent += 1;
        assert!(sent < 1_000_000, "everything is taken");
    }
    is_served(&world);
    // And all that were taken are answered.
    let mut answered = 0;
    while hear(&connection).is_some() {
        answered += 1;
    }
    assert_eq!(answered, sent);
}

/// Descriptors that nobody has received count against what root may have.
#[test]
fn whoever_does_not_receive_files_gets_no_more() {
    let world = World::with(|config| config.limits.requests_per_second = 1_000_000);
    let victim = Victim::new();
    world.trace(&of(victim.pid()));
    let connection = Connection::open(&world.config.socket, Duration::from_millis(500)).unwrap();
    let all = connection.files(&Which::All, None).unwrap();
    let files: Vec<_> = all.into_iter().map(|file| (file.uid, file.name)).collect();
    let files = vec![files[0].clone(); OPENED];
    let open = |files| Request::Open {
        version: VERSION,
        files,
    };
    let why = refused(connection.ask(&open(vec![files[0].clone(); OPENED + 1])));
    assert!(why.contains("at most"), "{why}");
    for _ in 0..20 {
        connection.send(&open(files.clone())).unwrap();
    }
    is_served(&world);
    // One answer comes, and the next one when it is received.
    let mut came = Vec::new();
    connection.next_with(&mut came).unwrap();
    let again = recv(
        connection.as_fd().as_raw_fd(),
        &mut [0; 64],
        MsgFlags::MSG_DONTWAIT,
    );
    assert_eq!((came.len(), again), (OPENED, Err(Errno::EAGAIN)));
    for _ in 1..20 {
        let mut came = Vec::new();
        connection.next_with(&mut came).unwrap();
        assert_eq!(came.len(), OPENED);
    }
}

/// Closing one end takes nothing of what is on its way out of the other's queue.
#[test]
fn what_nobody_receives_counts_when_the_connection_is_cut() {
    let world = World::with(|config| {
        config.limits.requests_per_second = 1_000_000;
        config.limits.connections = 4;
        config.limits.connections_per_user = 4;
    });
    let victim = Victim::new();
    world.trace(&of(victim.pid()));
    let connection = world.connect();
    let all = connection.files(&Which::All, None).unwrap();
    let files: Vec<_> = all.into_iter().map(|file| (file.uid, file.name)).collect();
    drop(connection);
    let status = Request::Status { version: VERSION };
    let is_refused =
        || format!("{:?}", world.connect().ask(&status)).contains("connections already");
    let mut hoarders = Vec::new();
    let begin = Instant::now();
    while !is_refused() {
        assert!(begin.elapsed() < PATIENCE, "{} connections", hoarders.len());
        let hoarder = world.connect();
        let asked = Request::Open {
            version: VERSION,
            files: vec![files[0].clone(); OPENED],
        };
        if hoarder.send(&asked).is_err() {
            continue;
        }
        // It has come, and stays where it is.
        let socket = hoarder.as_fd().as_raw_fd();
        let _ = recv(socket, &mut [0; 64], MsgFlags::MSG_PEEK);
        let _ = shutdown(socket, Shutdown::Both);
        hoarders.push(hoarder);
        assert!(hoarders.len() < 64, "any number of them");
    }
    drop(hoarders);
    while !matches!(world.connect().ask(&status), Ok(Response::Status(_))) {
        assert!(begin.elapsed() < PATIENCE, "they count for ever");
    }
}

#[test]
fn leaving_midway_leaves_nothing() {
    let world = World::with(|config| {
        config.limits.traces_per_user = 2;
        config.limits.requests_per_second = 100_000;
    });
    let victim = Victim::new();
    let usr = crate::world::path("/usr");
    for stage in 0..9 {
        let connection = world.connect();
        if stage % 3 > 0 {
            registered(&connection, &of(victim.pid()));
        }
        if stage % 3 > 1 {
            let forbid = Request::Forbid { version: VERSION };
            connection.ask_with(&forbid, &[usr.as_fd()]).unwrap();
        }
        if stage > 5 {
            // In the middle of an answer.
            connection.send(&files()).unwrap();
        }
        drop(connection);
    }
    world.served();
    let inside = world.kernel.inside();
    assert!(inside.traces.is_empty() && inside.forbidden.is_empty() && inside.marks.is_empty());
    drop(inside);
    world.trace(&of(victim.pid()));
}
