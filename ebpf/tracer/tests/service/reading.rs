//! Who reads what, and how fast.

use std::time::{Duration, Instant};

use agent_sandbox_events::client::Connection;
use agent_sandbox_events::protocol::{HiddenNames, Register, Which};
use agent_sandbox_events::record::What;
use agent_sandbox_events::trails::{self, Reader};

use crate::fake::{opened, tried};
use crate::world::{PATIENCE, Victim, World, me, of};

/// The paths in what comes, until there are so many.
fn paths(reader: &mut Reader<Connection>, enough: usize) -> Vec<String> {
    let mut paths = Vec::new();
    let begin = Instant::now();
    while paths.len() < enough {
        assert!(begin.elapsed() < PATIENCE, "{paths:?}");
        let records = reader.follow().unwrap();
        if records.is_empty() {
            std::thread::sleep(Duration::from_millis(20));
        }
        paths.extend(
            records
                .into_iter()
                .filter_map(|(record, _)| match record.what {
                    What::Open(open) => Some(open.path),
                    _ => None,
                }),
        );
    }
    paths
}

#[test]
fn who_follows_misses_nothing_and_gets_nothing_twice() {
    // Also where one file follows another.
    let world = World::with(|config| config.keep.file_bytes = 1 << 16);
    let victim = Victim::new();
    let (_connection, id) = world.trace(&of(victim.pid()));
    let open = |n: u32| {
        world
            .kernel
            .event(opened(id, victim.pid(), me(), &format!("/f{n}")))
    };
    (0..500).for_each(open);
    let which = Which::Session("k3v9x2m1".to_owned());
    let mut follower = Reader::new(world.connect(), which).unwrap();
    (500..1000).for_each(open);
    let expected: Vec<String> = (0..1000).map(|n| format!("/f{n}")).collect();
    assert_eq!(paths(&mut follower, 1000), expected);
    let records = world.config.records.join(me().to_string());
    assert!(std::fs::read_dir(records).unwrap().count() > 1);
}

#[test]
fn who_follows_one_trace_gets_no_other() {
    let world = World::new();
    let victims = [Victim::new(), Victim::new()];
    let (_one, first) = world.trace(&of(victims[0].pid()));
    let mut register = of(victims[1].pid());
    register.session = Some("other".to_owned());
    let (_two, second) = world.trace(&register);
    let mut follower = Reader::new(world.connect(), Which::Trace(second)).unwrap();
    world
        .kernel
        .event(opened(first, victims[0].pid(), me(), "/first"));
    world
        .kernel
        .event(opened(second, victims[1].pid(), me(), "/second"));
    assert_eq!(paths(&mut follower, 1), ["/second"]);
}

#[test]
fn a_session_is_followed_with_the_jobs_that_it_starts_later() {
    let world = World::new();
    let victims = [Victim::new(), Victim::new()];
    let (_one, _) = world.trace(&of(victims[0].pid()));
    let which = Which::Session("k3v9x2m1".to_owned());
    let mut follower = Reader::new(world.connect(), which).unwrap();
    let mut register = of(victims[1].pid());
    register.job = Some(7);
    let (_two, job) = world.trace(&register);
    world
        .kernel
        .event(opened(job, victims[1].pid(), me(), "/by-the-job"));
    assert_eq!(paths(&mut follower, 1), ["/by-the-job"]);
}

#[test]
fn what_there_is_is_listed() {
    let world = World::new();
    let listed = || trails::list(&world.connect()).unwrap();
    assert_eq!(listed(), (Vec::new(), false));
    let mut victim = Victim::new();
    let (_connection, id) = world.trace(&of(victim.pid()));
    let (all, more) = listed();
    assert!(!more);
    assert_eq!((all.len(), all[0].trail.trace, all[0].live), (1, id, true));
    victim.end();
    world.records_when(Which::All, |records| {
        crate::world::kinds(records).contains(&"end")
    });
    assert!(!listed().0[0].live);
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
