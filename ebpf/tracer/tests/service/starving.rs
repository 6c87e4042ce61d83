//! Those who want others to be left without an answer or a trace.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use agent_sandbox_events::protocol::{Lifetime, Register, Request, Response, VERSION, Which};
use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::Mode;

use crate::fake::opened;
use crate::world::{Victim, World, in_time, kinds, me, of, registered};

/// A launch waits for a second.
const SOON: Duration = Duration::from_secs(1);

fn step(pid: u32) -> Register {
    let mut register = of(pid);
    register.job = Some(7);
    register.step = Some("0".to_owned());
    register
}

fn remembered(world: &World) -> String {
    std::fs::read_to_string(world.config.state.join("tracer.state.json")).unwrap()
}

/// Descriptors of this process, in which the tracer runs, that are processes: those of other tests, too.
fn held(pid: u32) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten() {
        let info = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let mut lines = info.lines().filter_map(|line| line.strip_prefix("Pid:"));
        count += usize::from(lines.any(|line| line.trim() == pid.to_string()));
    }
    count
}

#[test]
fn joining_again_and_again_holds_nothing_more() {
    let mut world = World::with(|config| config.limits.requests_per_second = 1_000_000);
    let victim = Victim::new();
    let (_first, id) = world.trace(&step(victim.pid()));
    let size = remembered(&world).len();
    for _ in 0..200 {
        assert_eq!(world.trace(&step(victim.pid())).1, id);
    }
    assert_eq!(held(victim.pid()), 1);
    assert_eq!(remembered(&world).len(), size);
    // What a tracer before has written down more than once is held once.
    world.kill();
    let named = remembered(&world);
    let begin = named.find("\"processes\":[").unwrap() + 13;
    let one = &named[begin..begin + named[begin..].find(']').unwrap()];
    let many = vec![one; 300].join(",");
    let path = world.config.state.join("tracer.state.json");
    std::fs::write(path, named.replace(one, &many)).unwrap();
    world.start();
    assert_eq!(held(victim.pid()), 1);
    assert_eq!(remembered(&world).len(), size);
}

#[test]
fn more_processes_than_are_held_are_traced_as_well() {
    let world = World::with(|config| {
        config.limits.requests_per_second = 1_000_000;
        config.limits.processes_per_user = 3;
    });
    let victims: Vec<Victim> = (0..6).map(|_| Victim::new()).collect();
    let ids: BTreeSet<u32> = victims
        .iter()
        .map(|victim| world.trace(&step(victim.pid())).1)
        .collect();
    assert_eq!(ids.len(), 1);
    let all: usize = victims.iter().map(|victim| held(victim.pid())).sum();
    assert_eq!(all, 3);
    let id = *ids.first().unwrap();
    for victim in &victims {
        assert_eq!(world.kernel.inside().marks[&victim.pid()], id);
    }
    // The trace goes on with those that are not held.
    let mut victims = victims;
    victims.drain(..3);
    world.looked();
    assert!(!kinds(&world.records(Which::Trace(id))).contains(&"end"));
    drop(victims);
    world.records_when(Which::Trace(id), |records| kinds(records).contains(&"end"));
}

#[test]
fn a_flood_of_events_keeps_nobody_waiting() {
    let world = World::new();
    let (victim, other) = (Victim::new(), Victim::new());
    let (_first, id) = world.trace(&of(victim.pid()));
    let mut register = of(other.pid());
    register.lifetime = Lifetime::Connection;
    let (asked, passing) = world.trace(&register);
    let event = opened(id, victim.pid(), me(), "/flood");
    // One event takes as long as a thousand do usually.
    let cost = Duration::from_millis(1);
    world.kernel.inside().flood = Some((event, cost));
    world.kernel.wake();
    for _ in 0..3 {
        let begin = Instant::now();
        let status = Request::Status { version: VERSION };
        assert!(world.connect().ask(&status).is_ok());
        in_time(begin, SOON);
    }
    // Another one begins and ends meanwhile.
    let begin = Instant::now();
    let third = Victim::new();
    world.trace(&of(third.pid()));
    assert_eq!(asked.ask(&Request::End).unwrap(), Response::Done);
    in_time(begin, 2 * SOON);
    // What it did before is in its trail, though that is read later.
    let late = opened(passing, other.pid(), me(), "/late");
    world.kernel.inside().events.push_back(late);
    world.kernel.inside().flood = None;
    let records = world.records_when(Which::Trace(passing), |records| {
        kinds(records).last() == Some(&"end")
    });
    assert_eq!(kinds(&records), ["header", "open", "end"]);
}

/// A mount whose server never answers. It answers with an error as soon as this ends.
struct Silent {
    _server: OwnedFd,
    directory: tempfile::TempDir,
}

impl Silent {
    fn new() -> Option<Self> {
        let server = open("/dev/fuse", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty());
        let (0, Ok(server)) = (me(), server) else {
            println!("not checked: a server that is silent: it needs root and /dev/fuse");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&server);
        let data = format!("fd={number},rootmode=40000,user_id=0,group_id=0,allow_other");
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let none = Some("silent");
        mount(
            none,
            directory.path(),
            Some("fuse"),
            flags,
            Some(data.as_str()),
        )
        .unwrap();
        Some(Self {
            _server: server,
            directory,
        })
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = umount2(self.directory.path(), MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_file_whose_server_is_silent_keeps_nobody_waiting() {
    let world = World::new();
    let victim = Victim::new();
    let Some(silent) = Silent::new() else {
        return;
    };
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let file = open(silent.directory.path(), flags, Mode::empty()).unwrap();
    let connection = world.connect();
    let id = registered(&connection, &of(victim.pid()));
    let begin = Instant::now();
    let forbid = Request::Forbid { version: VERSION };
    let answer = connection.ask_with(&forbid, &[file.as_fd()]);
    assert!(
        matches!(answer, Ok(Response::Forbidden { taken: 1, .. })),
        "{answer:?}"
    );
    assert_eq!(connection.ask(&Request::Begin).unwrap(), Response::Done);
    in_time(begin, SOON);
    // The root of such a file system is number 1.
    let inside = world.kernel.inside();
    let mut forbidden = inside.forbidden.iter();
    assert!(forbidden.any(|(trace, _, inode)| (*trace, *inode) == (id, 1)));
}

#[test]
fn secrets_of_a_command_are_not_remembered() {
    let world = World::with(|config| config.redact.patterns = vec!["site-*".to_owned()]);
    let victim = Victim::new();
    let mut register = of(victim.pid());
    let command = [
        "x",
        "--password=hunter2",
        "site-secret",
        "own-secret",
        "plain",
    ];
    register.command = command.map(str::to_owned).to_vec();
    register.redact = vec!["own-*".to_owned()];
    world.trace(&register);
    // And the trail begins with it.
    let written = world.records_when(Which::All, |records| !records.is_empty());
    let header = written[0].to_string();
    for text in [remembered(&world), header] {
        for secret in ["hunter2", "site-secret", "own-secret"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        assert!(text.contains("plain"));
    }
}
