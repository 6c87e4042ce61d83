//! Who reads what, and how fast.

use std::time::{Duration, Instant};

use agent_sandbox_events::client::Connection;
use agent_sandbox_events::protocol::{HiddenNames, Register, Request, Response, VERSION, Which};

use crate::fake::{opened, tried};
use crate::world::{PATIENCE, Victim, World, me, of, refused};

fn read(which: Which, history: bool) -> Request {
    Request::Read {
        version: VERSION,
        which,
        history,
        follow: true,
    }
}

/// The paths in what comes, until there are so many or nothing comes for a while; and the lines left out.
fn paths(connection: &Connection, enough: usize) -> (Vec<String>, u64) {
    let (mut paths, mut dropped) = (Vec::new(), 0);
    while paths.len() < enough {
        match connection.next() {
            Ok(Response::Lines(lines)) => {
                for line in lines
                    .split(|byte| *byte == b'\n')
                    .filter(|line| !line.is_empty())
                {
                    let record: serde_json::Value = serde_json::from_slice(line).unwrap();
                    paths.extend(record["path"].as_str().map(str::to_owned));
                }
            }
            Ok(Response::Dropped { lines }) => dropped += lines,
            Ok(other) => panic!("{other:?}"),
            Err(_) => break,
        }
    }
    (paths, dropped)
}

#[test]
fn who_follows_misses_nothing_and_gets_nothing_twice() {
    let world = World::new();
    let victim = Victim::new();
    let (_connection, id) = world.trace(&of(victim.pid()));
    let open = |n: u32| {
        world
            .kernel
            .event(opened(id, victim.pid(), me(), &format!("/f{n}")))
    };
    (0..500).for_each(open);
    let follower = world.connect();
    follower
        .send(&read(Which::Session("k3v9x2m1".to_owned()), true))
        .unwrap();
    (500..1000).for_each(open);
    let (paths, dropped) = paths(&follower, 1000);
    assert_eq!(dropped, 0);
    let expected: Vec<String> = (0..1000).map(|n| format!("/f{n}")).collect();
    assert_eq!(paths, expected);
}

#[test]
fn who_follows_one_trace_gets_no_other() {
    let world = World::new();
    let victims = [Victim::new(), Victim::new()];
    let (_one, first) = world.trace(&of(victims[0].pid()));
    let mut register = of(victims[1].pid());
    register.session = Some("other".to_owned());
    let (_two, second) = world.trace(&register);
    let follower = world.connect();
    follower.send(&read(Which::Trace(second), false)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    world
        .kernel
        .event(opened(first, victims[0].pid(), me(), "/first"));
    world
        .kernel
        .event(opened(second, victims[1].pid(), me(), "/second"));
    assert_eq!(paths(&follower, 1).0, ["/second"]);
}

#[test]
fn a_follower_that_never_reads_costs_nobody_anything() {
    let world = World::with(|config| config.limits.queue_bytes = 1 << 17);
    let victim = Victim::new();
    let (_connection, id) = world.trace(&of(victim.pid()));
    let follower = Connection::open(&world.config.socket, Duration::from_secs(3)).unwrap();
    follower.send(&read(Which::All, false)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    const EVENTS: u32 = 20_000;
    let name = "x".repeat(100);
    for n in 0..EVENTS {
        world
            .kernel
            .event(opened(id, victim.pid(), me(), &format!("/{name}/{n}")));
    }
    // Others are served, and the trail has all of it.
    let status = Request::Status { version: VERSION };
    let begin = Instant::now();
    loop {
        let Response::Status(status) = world.connect().ask(&status).unwrap() else {
            panic!();
        };
        if status.events >= u64::from(EVENTS) {
            break;
        }
        assert!(begin.elapsed() < 2 * PATIENCE, "{status:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_secs(1));
    // Whoever reads in the end is told how much was left out.
    let (some, dropped) = paths(&follower, usize::MAX);
    assert!(
        dropped > 0 && some.len() < EVENTS as usize,
        "{} {dropped}",
        some.len()
    );
    assert_eq!(some.len() as u64 + dropped, u64::from(EVENTS));
    let records = world.records(Which::Trace(id));
    let count = |record: &serde_json::Value| record["count"].as_u64().unwrap_or(1);
    let opens = records.iter().filter(|record| record["event"] == "open");
    assert_eq!(opens.map(count).sum::<u64>(), u64::from(EVENTS));
}

#[test]
fn the_newest_is_found() {
    let world = World::new();
    let follow = |history| world.connect().ask(&read(Which::Newest, history));
    let why = refused(follow(true));
    assert!(
        why.contains("nothing of yours has been recorded here"),
        "{why}"
    );
    let victim = Victim::new();
    let (_connection, id) = world.trace(&of(victim.pid()));
    let records = world.records(Which::Newest);
    assert_eq!(records[0]["trace"], id);
    let Response::Trails(trails) = world
        .connect()
        .ask(&Request::List { version: VERSION })
        .unwrap()
    else {
        panic!();
    };
    assert_eq!(
        (trails.len(), trails[0].trace, trails[0].live),
        (1, id, true)
    );
}

#[test]
fn a_connection_that_follows_asks_nothing_else() {
    let world = World::new();
    let victim = Victim::new();
    let (tracing, _) = world.trace(&of(victim.pid()));
    let why = refused(tracing.ask(&read(Which::All, false)));
    assert!(why.contains("open another one to read"), "{why}");
    let follower = world.connect();
    follower.send(&read(Which::All, false)).unwrap();
    let why = refused(follower.ask(&Request::Status { version: VERSION }));
    assert!(why.contains("follows records"), "{why}");
}

/// What is hidden does not exist in the jail: attempts on it are told from others, without all that is missing.
#[test]
fn attempts_on_what_is_hidden_are_recorded_and_marked() {
    let world = World::new();
    let victim = Victim::new();
    let register = Register {
        hidden: vec![HiddenNames {
            directory: "/home/ada".to_owned(),
            names: vec![".ssh".to_owned()],
        }],
        ..of(victim.pid())
    };
    let (_connection, id) = world.trace(&register);
    for path in ["/home/ada/.ssh/id_rsa", "/home/ada/none", "/etc/passwd"] {
        let result = if path == "/etc/passwd" {
            0
        } else {
            -libc::ENOENT
        };
        world
            .kernel
            .event(tried(id, victim.pid(), me(), path, result));
    }
    let records = world.records_when(Which::All, |records| {
        records.iter().any(|record| record["path"] == "/etc/passwd")
    });
    let opens: Vec<(&str, bool)> = records
        .iter()
        .filter(|record| record["event"] == "open")
        .map(|record| {
            let hidden = record["hidden"] == true;
            (record["path"].as_str().unwrap(), hidden)
        })
        .collect();
    assert_eq!(
        opens,
        [("/home/ada/.ssh/id_rsa", true), ("/etc/passwd", false)]
    );
}
