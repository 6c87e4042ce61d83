//! What becomes of steps and sessions near a user's limits.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};

use agent_sandbox_events::protocol::{Enforce, Lifetime, Register, Request, Response, Which};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use crate::fake::opened;
use crate::world::{Victim, World, me, of, refused};

fn step(victim: &Victim, session: &str, job: u32, step: &str) -> Register {
    let mut register = of(victim.pid());
    register.session = Some(session.to_owned());
    register.job = Some(job);
    register.step = Some(step.to_owned());
    register
}

fn session(victim: &Victim, session: &str) -> Register {
    let mut register = of(victim.pid());
    register.session = Some(session.to_owned());
    register
}

fn with_limit(traces: u32) -> World {
    World::with(|config| {
        config.limits.traces_per_user = traces;
        config.limits.requests_per_second = 100_000;
    })
}

#[test]
fn steps_without_end_are_all_recorded_and_leave_room_for_sessions() {
    let world = with_limit(8);
    let victims: Vec<Victim> = (0..20).map(|_| Victim::new()).collect();
    let outer = world.trace(&session(&victims[0], "one"));
    let steps: Vec<u32> = (1..12)
        .map(|n| {
            let register = step(&victims[n], "one", 7, &n.to_string());
            let (connection, id) = world.trace(&register);
            drop(connection);
            id
        })
        .collect();
    let ids: BTreeSet<u32> = steps.iter().copied().collect();
    assert_eq!(ids.len(), 3, "half of 8 with the session's: {steps:?}");
    assert!(!ids.contains(&outer.1), "their job comes first: {steps:?}");
    // The last one is marked, and what it does is in the trail of a step of its job.
    let last = steps[10];
    assert_eq!(world.kernel.inside().marks[&victims[11].pid()], last);
    let event = opened(last, victims[11].pid(), me(), "/by-the-last");
    world.kernel.event(event);
    world.records_when(Which::Session("one".to_owned()), |records| {
        records
            .iter()
            .any(|record| record["path"] == "/by-the-last")
    });
    // Another job of the session joins, another session does not.
    let (_connection, other) = world.trace(&step(&victims[12], "one", 8, "batch"));
    assert_eq!(other, outer.1, "the session's own trace comes first");
    let fresh: BTreeSet<u32> = (13..17)
        .map(|n| world.trace(&session(&victims[n], &format!("s{n}"))).1)
        .collect();
    assert_eq!(fresh.len(), 4);
    let ask = |register: Register| world.connect().ask(&Request::Register(Box::new(register)));
    let why = refused(ask(session(&victims[17], "s17")));
    assert!(why.contains("you have 8 traces already"), "{why}");
    // A step of theirs still finds a place, and is told so.
    match ask(step(&victims[18], "s13", 9, "0")).unwrap() {
        Response::Registered { blind, .. } => {
            assert!(blind.iter().any(|one| one.contains("you have many traces")));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_asks_for_more_than_there_is_joins_nothing() {
    let world = with_limit(4);
    let victims: Vec<Victim> = (0..6).map(|_| Victim::new()).collect();
    let (_one, outer) = world.trace(&session(&victims[0], "one"));
    let mut more = step(&victims[1], "one", 7, "0");
    more.missing = true;
    let (_two, own) = world.trace(&more);
    assert_ne!(own, outer);
    let mut denying = step(&victims[2], "one", 8, "0");
    denying.enforce = Enforce::On;
    let (_three, denies) = world.trace(&denying);
    assert!(![outer, own].contains(&denies));
    // Nor another session's, nor one that ends with its connection, nor one with other secrets.
    let mut passing = session(&victims[3], "two");
    passing.lifetime = Lifetime::Connection;
    world.connect();
    let (_four, _) = world.trace(&passing);
    for (session, redact) in [("two", ""), ("three", ""), ("one", "--pin=*")] {
        let mut register = step(&victims[4], session, 9, "0");
        register
            .redact
            .extend((!redact.is_empty()).then(|| redact.to_owned()));
        let request = Request::Register(Box::new(register));
        let why = refused(world.connect().ask(&request));
        assert!(
            why.contains("you have 4 traces already"),
            "{session}: {why}"
        );
    }
}

#[test]
fn what_steps_forbid_leaves_room_for_sessions() {
    let world = World::with(|config| {
        config.limits.forbidden_per_user = 4;
        config.limits.requests_per_second = 100_000;
    });
    let directory = tempfile::tempdir().unwrap();
    let files: Vec<OwnedFd> = (0..3)
        .map(|n| {
            let path = directory.path().join(n.to_string());
            std::fs::write(&path, "").unwrap();
            open(&path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).unwrap()
        })
        .collect();
    let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let victims: Vec<Victim> = (0..3).map(|_| Victim::new()).collect();
    let denying = |register: Register| Register {
        enforce: Enforce::On,
        ..register
    };
    let first = denying(step(&victims[0], "one", 7, "0"));
    let (_one, id) = world.trace_without(&first, &borrowed[..2]);
    let second = denying(step(&victims[1], "one", 7, "1"));
    let (_two, joined) = world.trace_without(&second, &borrowed[1..]);
    assert_eq!(
        world.kernel.inside().marks[&victims[1].pid()],
        id,
        "{joined}"
    );
    let forbidden = |id: u32| {
        let inside = world.kernel.inside();
        inside
            .forbidden
            .iter()
            .filter(|(trace, ..)| *trace == id)
            .count()
    };
    assert_eq!(forbidden(id), 3, "all that either of them has");
    // The same things count once, so there is room for one more in a session of its own.
    let third = denying(session(&victims[2], "two"));
    let (_three, own) = world.trace_without(&third, &borrowed[..1]);
    assert_eq!((forbidden(own), forbidden(id)), (1, 3));
}

#[test]
fn who_has_no_room_need_not_wait_until_ends_are_noticed() {
    let world = with_limit(1);
    for _ in 0..3 {
        let mut victim = Victim::new();
        world.trace(&of(victim.pid()));
        victim.end();
    }
}

#[test]
fn who_begins_and_ends_traces_all_the_time_fills_nothing() {
    let mut world = with_limit(4);
    let victim = Victim::new();
    let mut register = of(victim.pid());
    register.lifetime = Lifetime::Connection;
    let begin_and_end = |world: &World, times: usize| {
        for _ in 0..times {
            let (connection, _) = world.trace(&register);
            assert_eq!(connection.ask(&Request::End).unwrap(), Response::Done);
            let entries = world.kernel.inside().traces.len();
            assert!(entries <= 4, "{entries} entries in the kernel");
        }
    };
    begin_and_end(&world, 30);
    // Those that have ended count after a restart as well.
    world.stop();
    world.start();
    begin_and_end(&world, 30);
}
