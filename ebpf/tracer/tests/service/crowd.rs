//! Many who look for trails at once, and others who wait for an answer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use agent_sandbox_events::client::Connection;
use agent_sandbox_events::protocol::{Request, Response, VERSION, Which};

use crate::world::{PATIENCE, Victim, World, me, of};

const READERS: usize = 60;
/// So many files each of them looks through.
const FILES: usize = 500;
/// An answer to one comes after those to all others.
const AT_LAST: Duration = Duration::from_secs(60);

/// How much of the answers to others are answers to those who look, at the worst, while one waits.
fn waited(answered: &AtomicU64, mut ask: impl FnMut()) -> u64 {
    let before = answered.load(Ordering::SeqCst);
    ask();
    answered.load(Ordering::SeqCst) - before
}

/// Looks through all of it, over and over again.
fn look(connection: &Connection, stop: &AtomicBool, answered: &AtomicU64) {
    let files = Request::Files {
        version: VERSION,
        which: Which::All,
        after: None,
    };
    while !stop.load(Ordering::SeqCst) {
        match connection.ask(&files) {
            Ok(Response::Files(files)) => assert!(!files.is_empty()),
            other => panic!("{other:?}"),
        }
        answered.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn many_who_read_keep_nobody_waiting() {
    // As many requests as they like: it is what one costs that matters.
    let world = World::with(|config| config.limits.requests_per_second = 1_000_000);
    let victim = Victim::new();
    let (_connection, _) = world.trace(&of(victim.pid()));
    let directory = world.config.records.join(me().to_string());
    for n in 0..FILES {
        std::fs::write(directory.join(format!("{n}@node1-1.jsonl")), "").unwrap();
    }
    let open = |_| Connection::open(&world.config.socket, AT_LAST).unwrap();
    let connections: Vec<Connection> = (0..READERS).map(open).collect();
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for connection in &connections {
            scope.spawn(|| look(connection, &stop, &answered));
        }
        let begin = Instant::now();
        while answered.load(Ordering::SeqCst) < 2 * READERS as u64 {
            assert!(begin.elapsed() < PATIENCE, "nobody is answered");
            std::thread::sleep(Duration::from_millis(5));
        }
        // Whoever asks for something else comes before all of them, whatever the machine's speed: in the order in
        // which requests come, each of them would have its turn before.
        let mut most = 0;
        for _ in 0..10 {
            most = most.max(waited(&answered, || {
                let status = Request::Status { version: VERSION };
                assert!(world.connect().ask(&status).is_ok());
            }));
        }
        // A launch, from its first packet to the last answer.
        let other = Victim::new();
        let begun = waited(&answered, || drop(world.trace(&of(other.pid()))));
        stop.store(true, Ordering::SeqCst);
        println!("at most {most} of {READERS} came before a status, {begun} before a launch");
        assert!(most < READERS as u64 / 2 && begun < READERS as u64);
    });
}
