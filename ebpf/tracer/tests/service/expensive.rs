//! Those whose commands take long to look through for secrets, and others who launch meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use agent_sandbox_events::client::Connection;
use agent_sandbox_events::protocol::{Register, Request, Which};

use crate::fake::executed;
use crate::world::{PATIENCE, Victim, World, elsewhere, me, of, told};

const NOBODY: u32 = 65534;
/// A launch, from its first packet to the last answer, whatever others do. In a debug build and on a machine that stalls,
/// too: without what is tested a launch waits for many comparisons, and each takes half a second of a release.
const SOON: Duration = Duration::from_secs(2);
/// So long the attack goes on.
const ATTACK: Duration = Duration::from_secs(3);

/// A command and patterns that once took half a second to compare.
fn hostile(pid: u32) -> Register {
    Register {
        command: vec!["sh".to_owned(), "-c".to_owned(), " -key $(".repeat(2040)],
        redact: vec!["*a*a*a*a*a*a*a*b".to_owned(); 64],
        session: Some("h0st1le2".to_owned()),
        ..of(pid)
    }
}

#[test]
#[ignore = "runs as another user"]
fn begins_all_the_time() {
    let Some((_, socket)) = told() else {
        return;
    };
    let begun = Instant::now();
    let victims: Vec<Victim> = (0..8).map(|_| Victim::new()).collect();
    let mut count = 0;
    while begun.elapsed() < ATTACK {
        for victim in &victims {
            let Ok(connection) = Connection::open(socket.as_ref(), PATIENCE) else {
                continue;
            };
            let register = Request::Register(Box::new(hostile(victim.pid())));
            if connection.ask(&register).is_ok() {
                count += u32::from(connection.ask(&Request::Begin).is_ok());
                let _ = connection.ask(&Request::End);
            }
        }
    }
    println!("{count} traces");
    assert!(count > 0);
}

/// The slowest of the launches until that is over.
fn slowest(world: &World, over: &AtomicBool) -> Duration {
    let mut slowest = Duration::ZERO;
    while !over.load(Ordering::SeqCst) {
        let victim = Victim::new();
        let begin = Instant::now();
        let connection = world.connect();
        let register = Request::Register(Box::new(of(victim.pid())));
        assert!(connection.ask(&register).is_ok());
        assert!(connection.ask(&Request::Begin).is_ok());
        slowest = slowest.max(begin.elapsed());
        // Whoever launches all the time would have to wait for that.
        std::thread::sleep(Duration::from_millis(50));
        let _ = connection.ask(&Request::End);
    }
    slowest
}

/// The slowest launch, and how long it may have taken: the machine is as busy for launches at a service that nobody attacks, at
/// the same time.
fn slowest_and_most(world: &World, over: &AtomicBool) -> (Duration, Duration) {
    let control = World::new();
    let (slow, machine) = std::thread::scope(|scope| {
        let machine = scope.spawn(|| slowest(&control, over));
        (slowest(world, over), machine.join().unwrap())
    });
    println!("the slowest launch took {slow:?}, and without an attack {machine:?}");
    (slow, SOON + 2 * machine)
}

#[test]
fn commands_that_take_long_keep_nobody_else_waiting() {
    let world = World::new();
    let socket = world.config.socket.display().to_string();
    let over = AtomicBool::new(false);
    let (slowest, most) = std::thread::scope(|scope| {
        let attack = scope.spawn(|| {
            let said = elsewhere(
                "expensive::begins_all_the_time",
                &world,
                &socket,
                NOBODY,
                false,
            );
            over.store(true, Ordering::SeqCst);
            said
        });
        let slowest = slowest_and_most(&world, &over);
        if let Some(said) = attack.join().unwrap() {
            print!("{said}");
        }
        slowest
    });
    assert!(slowest < most, "{slowest:?}");
}

/// Programs that are started with such arguments: what there is no time for is left out, and said to be.
#[test]
fn arguments_that_take_long_are_left_out() {
    // Everybody here is one user, who may ask as often as they like: what programs' arguments cost is meant.
    let world = World::with(|config| config.limits.requests_per_second = 1_000_000);
    let (attacker, victim) = (Victim::new(), Victim::new());
    let (_first, hostile) = world.trace(&hostile(attacker.pid()));
    let over = AtomicBool::new(false);
    let count = AtomicU32::new(0);
    let (slowest, most) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            while begun.elapsed() < ATTACK {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let arguments = format!("sh\0-c\0{number}{}\0", "a b ".repeat(480));
                let pid = attacker.pid();
                let event = executed(hostile, pid, me(), "/bin/sh", arguments.as_bytes());
                world.kernel.event(event);
                std::thread::sleep(Duration::from_millis(1));
            }
            over.store(true, Ordering::SeqCst);
        });
        slowest_and_most(&world, &over)
    });
    println!("{} programs", count.load(Ordering::SeqCst));
    assert!(slowest < most, "{slowest:?}");
    // A program of the same user's is recorded with its arguments again, once time has passed.
    let begun = Instant::now();
    let (_second, other) = world.trace(&of(victim.pid()));
    let shown = loop {
        let event = executed(other, victim.pid(), me(), "/bin/ls", b"ls\0-l\0");
        world.kernel.event(event);
        let records = world.records(Which::Trace(other));
        let shown = records
            .iter()
            .any(|record| record["arguments"] == serde_json::json!(["ls", "-l"]));
        if shown || begun.elapsed() > PATIENCE {
            break shown;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    assert!(shown);
    let records = world.records(Which::Trace(hostile));
    let programs: Vec<_> = records
        .iter()
        .filter(|record| record["event"] == "exec")
        .collect();
    let left_out = |record: &&&serde_json::Value| {
        record["arguments"] == serde_json::json!(["[...]"])
            && record["weak"] == serde_json::json!(["truncated"])
    };
    let left_out = programs.iter().filter(left_out).count();
    println!("{} records, {left_out} without arguments", programs.len());
    assert!(left_out > 0 && left_out < programs.len(), "{left_out}");
    assert_eq!(programs.len(), count.load(Ordering::SeqCst) as usize);
}
