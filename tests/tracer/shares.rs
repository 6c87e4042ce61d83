//! One ring for all users of a node: who makes more events than are read loses their own, and nobody else's.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use agent_sandbox_events::protocol::{EventKind, Register, Request, Response, Which};
use agent_sandbox_events::record::What;
use agent_sandbox_support::waiting::PATIENCE;

use crate::cluster::put;
use crate::site::{Site, probed};
use crate::users::{connect, read, register};

/// What an ordinary program opens: so many files a second, for so long.
const PAUSE: Duration = Duration::from_millis(2);
const WORK: Duration = Duration::from_secs(4);
/// Of each name that is opened in vain so many components have so many bytes.
const COMPONENTS: usize = 15;
const BYTES: usize = 200;

fn awaited(path: &Path) {
    let end = Instant::now() + PATIENCE;
    while !path.exists() {
        assert!(Instant::now() < end, "no {}", path.display());
        std::thread::sleep(PAUSE);
    }
}

fn begun(missing: bool) -> agent_sandbox_events::client::Connection {
    let connection = connect();
    let asked = Register {
        events: vec![EventKind::Open],
        missing,
        ..register(Some(std::process::id()), None)
    };
    let answer = connection.ask(&Request::Register(Box::new(asked)));
    assert!(matches!(answer, Ok(Response::Registered { .. })));
    assert!(matches!(
        connection.ask(&Request::Begin),
        Ok(Response::Done)
    ));
    connection
}

/// Opens files, each of its own name, at an ordinary speed, while the other user floods.
fn work() {
    let connection = begun(false);
    fs::write("ready", "").unwrap();
    awaited(Path::new("go"));
    let (begin, mut count) = (Instant::now(), 0);
    while begin.elapsed() < WORK {
        let path = format!("of-the-share-{count}");
        File::create(&path).unwrap();
        fs::remove_file(&path).unwrap();
        count += 1;
        std::thread::sleep(PAUSE);
    }
    fs::write("worked", "").unwrap();
    awaited(Path::new("read"));
    drop(connection);
    let end = Instant::now() + PATIENCE;
    loop {
        let records = read(Which::All).unwrap();
        if records
            .iter()
            .any(|record| matches!(record.what, What::End(_)))
        {
            let lost = records.iter().map(|record| record.lost).max();
            let seen = records.iter().filter(|record| match &record.what {
                What::Open(open) => open.path.contains("/of-the-share-"),
                _ => false,
            });
            println!(
                "opened {count}, seen {}, lost {}",
                seen.count(),
                lost.unwrap()
            );
            return;
        }
        assert!(Instant::now() < end, "the trail does not end: {records:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Opens what there is not, each time by another long name, on all processors.
fn flood() {
    let _connection = begun(true);
    let directory = format!("/{}", format!("{}/", "x".repeat(BYTES)).repeat(COMPONENTS));
    let count = AtomicU64::new(0);
    fs::write("flooding", "").unwrap();
    let (begin, over) = (Instant::now(), Path::new("over"));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while begin.elapsed() < PATIENCE && !over.exists() {
                    for _ in 0..500 {
                        let number = count.fetch_add(1, Ordering::Relaxed);
                        assert!(File::open(format!("{directory}{number}")).is_err());
                    }
                }
            });
        }
    });
    println!("flooded {count:?}");
}

#[test]
fn who_floods_the_ring_loses_their_own() {
    if let Some(words) = probed() {
        return if words == ["work"] { work() } else { flood() };
    }
    // What bob fills the disk with is of no interest.
    let Some(site) = Site::new("[keep]\nfile_bytes = 1048576\nuser_bytes = 8388608\n") else {
        return;
    };
    let (alice, bob) = (site.alice(), site.bob());
    let of = |directory: &Path, name: &str| -> PathBuf {
        let path = directory.join(name);
        let _ = fs::remove_file(&path);
        path
    };
    let hers = ["ready", "go", "worked", "read"].map(|name| of(&alice.user.dir, name));
    let his = ["flooding", "over"].map(|name| of(&bob.user.dir, name));
    let (worked, flooded) = std::thread::scope(|scope| {
        let worker = scope.spawn(|| site.probe(alice.user, &["work".to_owned()]));
        awaited(&hers[0]);
        let flooder = scope.spawn(|| site.probe(bob.user, &["flood".to_owned()]));
        awaited(&his[0]);
        put(alice.user, &hers[1], b"", 0o644);
        awaited(&hers[2]);
        put(bob.user, &his[1], b"", 0o644);
        let flooded = flooder.join().unwrap().out();
        put(alice.user, &hers[3], b"", 0o644);
        (worker.join().unwrap().out(), flooded)
    });
    for path in hers.iter().chain(&his) {
        let _ = fs::remove_file(path);
    }
    let status = site.service.status();
    println!("{worked}{flooded}{} lost", status.lost);
    assert!(status.lost > 0, "no flood: {flooded}");
    let line = worked
        .lines()
        .find_map(|line| line.split_once("opened "))
        .unwrap()
        .1;
    let numbers: Vec<u64> = line
        .split(|sign: char| !sign.is_ascii_digit())
        .filter_map(|word| word.parse().ok())
        .collect();
    let [opened, seen, lost] = numbers[..] else {
        panic!("{worked}")
    };
    // On a busy machine she comes to less than a hundred a second.
    assert!(opened > 100, "{worked}");
    assert_eq!((seen, lost), (opened, 0), "{worked}{flooded}");
}
