//! Many who read a long trail at once, and others who wait for an answer.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use agent_sandbox_events::client::{Connection, decode};
use agent_sandbox_events::protocol::{PACKET_BYTES, Request, Response, VERSION, Which};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv};

use crate::fake::opened;
use crate::world::{PATIENCE, Victim, World, me, of};

const READERS: usize = 60;
/// Without turns an answer takes more than a second here, in a debug build on two busy cores.
const SOON: Duration = Duration::from_millis(300);

fn status(world: &World) -> Duration {
    let begin = Instant::now();
    let status = Request::Status { version: VERSION };
    assert!(world.connect().ask(&status).is_ok());
    begin.elapsed()
}

/// Reads as fast as it can, over and over again.
fn readers(connections: &[Connection], stop: &AtomicBool, bytes: &AtomicU64) {
    let read = Request::Read {
        version: VERSION,
        which: Which::All,
        history: true,
        follow: false,
    };
    for connection in connections {
        connection.send(&read).unwrap();
    }
    let mut packet = vec![0; PACKET_BYTES];
    while !stop.load(Ordering::SeqCst) {
        let mut set: Vec<PollFd<'_>> = connections
            .iter()
            .map(|connection| PollFd::new(connection.as_fd(), PollFlags::POLLIN))
            .collect();
        poll(&mut set, PollTimeout::from(100_u8)).unwrap();
        for connection in connections {
            let fd = connection.as_fd().as_raw_fd();
            let Ok(length) = recv(fd, &mut packet, MsgFlags::MSG_DONTWAIT) else {
                continue;
            };
            assert_ne!(length, 0, "a reader was thrown out");
            bytes.fetch_add(length as u64, Ordering::SeqCst);
            if length < 16 && decode::<Response>(&packet[..length]) == Some(Response::Done) {
                connection.send(&read).unwrap();
            }
        }
    }
}

#[test]
fn many_who_read_keep_nobody_waiting() {
    // As many requests as they like: it is what one costs that matters.
    let world = World::with(|config| config.limits.requests_per_second = 1_000_000);
    let victim = Victim::new();
    let (_connection, id) = world.trace(&of(victim.pid()));
    let name = "x".repeat(3000);
    for n in 0..4000 {
        let path = format!("/{n}/{name}");
        world.kernel.event(opened(id, victim.pid(), me(), &path));
    }
    let begin = Instant::now();
    let trails = || {
        let files = std::fs::read_dir(world.config.records.join(me().to_string())).unwrap();
        files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum::<u64>()
    };
    while trails() < 12_000_000 {
        assert!(begin.elapsed() < 3 * PATIENCE, "{}", trails());
        std::thread::sleep(Duration::from_millis(50));
    }
    let connections: Vec<Connection> = (0..READERS).map(|_| world.connect()).collect();
    let (stop, bytes) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut slowest, mut begun) = (Duration::ZERO, Duration::ZERO);
    std::thread::scope(|scope| {
        scope.spawn(|| readers(&connections, &stop, &bytes));
        while bytes.load(Ordering::SeqCst) < 10_000_000 {
            assert!(begin.elapsed() < 6 * PATIENCE, "nobody reads");
            std::thread::sleep(Duration::from_millis(20));
        }
        for _ in 0..10 {
            slowest = slowest.max(status(&world));
        }
        // A launch, from its first packet to the last answer.
        let other = Victim::new();
        let begin = Instant::now();
        world.trace(&of(other.pid()));
        begun = begin.elapsed();
        stop.store(true, Ordering::SeqCst);
    });
    println!("the slowest status {slowest:?}, a trace begun in {begun:?}");
    assert!(slowest < SOON && begun < 2 * SOON, "{slowest:?} {begun:?}");
}
