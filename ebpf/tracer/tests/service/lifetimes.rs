//! When traces begin and end, and what a restart leaves.

use agent_sandbox_events::protocol::{Lifetime, Request, Response, Which};
use agent_sandbox_events::raw::{Kind, trace_flags};
use agent_sandbox_tracer::service::config::{EventName, Required};

use crate::fake::{exited, opened};
use crate::world::{Victim, World, kinds, me, of, refused, registered};

#[test]
fn a_trace_ends_with_its_last_task_and_not_before() {
    let world = World::new();
    let mut victim = Victim::new();
    let (connection, id) = world.trace(&of(victim.pid()));
    drop(connection);
    let (entry, _) = world.kernel.inside().traces[&id];
    let events = Kind::Exec.bit() | Kind::Open.bit() | Kind::Exit.bit();
    assert_eq!((entry.events, entry.uid, entry.parent), (events, me(), 0));
    assert_eq!(entry.flags, trace_flags::RECORD);
    assert_eq!(world.kernel.inside().marks[&victim.pid()], id);
    world
        .kernel
        .event(opened(id, victim.pid(), me(), "/etc/hosts"));
    let records = world.records_when(Which::Trace(id), |records| records.len() >= 2);
    assert_eq!(kinds(&records), ["header", "open"]);
    assert_eq!(records[1]["path"], "/etc/hosts");
    assert_eq!(records[1]["session"], "k3v9x2m1");
    victim.end();
    let records = world.records_when(Which::Trace(id), |records| {
        kinds(records).last() == Some(&"end")
    });
    assert_eq!(records.last().unwrap()["why"], "all tasks have ended");
    // Then nothing of it is left in the kernel.
    world.until(|inside| !inside.traces.contains_key(&id));
}

#[test]
fn a_trace_goes_on_as_long_as_a_task_of_it_lives() {
    let world = World::new();
    let (mut victim, child) = (Victim::new(), Victim::new());
    let (_connection, id) = world.trace(&of(victim.pid()));
    // A process that it has started, as the probes mark it.
    world.kernel.inside().marks.insert(child.pid(), id);
    victim.end();
    world.kernel.event(exited(id, victim.pid(), me()));
    world.looked();
    let records = world.records_when(Which::Trace(id), |records| records.len() > 1);
    assert_eq!(kinds(&records), ["header", "exit"]);
    drop(child);
    world.records_when(Which::Trace(id), |records| kinds(records).contains(&"end"));
}

#[test]
fn no_request_ends_a_trace_of_tasks() {
    let world = World::new();
    let victim = Victim::new();
    let (connection, id) = world.trace(&of(victim.pid()));
    let why = refused(connection.ask(&Request::End));
    assert!(why.contains("ends when its tasks have ended"), "{why}");
    drop(connection);
    world.served();
    assert_eq!(world.kernel.inside().marks[&victim.pid()], id);
    assert_eq!(kinds(&world.records(Which::Trace(id))), ["header"]);
}

#[test]
fn a_trace_of_a_connection_ends_when_it_is_asked_to_and_when_the_connection_is_closed() {
    let world = World::new();
    let victim = Victim::new();
    let mut register = of(victim.pid());
    register.lifetime = Lifetime::Connection;
    let (connection, id) = world.trace(&register);
    world.kernel.event(opened(id, victim.pid(), me(), "/last"));
    assert_eq!(connection.ask(&Request::End).unwrap(), Response::Done);
    let records = world.records(Which::Trace(id));
    assert_eq!(kinds(&records), ["header", "open", "end"]);
    assert_eq!(world.kernel.inside().marks[&victim.pid()], 0);
    let (connection, id) = world.trace(&register);
    drop(connection);
    let records = world.records_when(Which::Trace(id), |records| records.len() == 2);
    assert_eq!(records[1]["why"], "whoever asked has gone");
    assert_eq!(world.kernel.inside().marks[&victim.pid()], 0);
}

#[test]
fn what_the_site_demands_is_recorded_without_being_asked_for() {
    let world = World::with(|config| {
        config.demand = Required {
            events: vec![EventName(Kind::Connect)],
            missing: true,
            every: 5,
        };
    });
    let victim = Victim::new();
    let mut register = of(victim.pid());
    register.events.clear();
    register.every = 1_000_000;
    let (_connection, id) = world.trace(&register);
    let (entry, _) = world.kernel.inside().traces[&id];
    assert_eq!((entry.events, entry.every), (Kind::Connect.bit(), 5));
    assert_eq!(entry.flags, trace_flags::RECORD | trace_flags::MISSING);
    let records = world.records(Which::Trace(id));
    assert_eq!(records[0]["events"], serde_json::json!(["connect"]));
}

#[test]
fn a_process_that_ends_before_the_trace_begins_is_not_mistaken_for_another() {
    let world = World::with(|config| config.limits.traces_per_user = 2);
    for _ in 0..5 {
        let mut victim = Victim::new();
        let connection = world.connect();
        let id = registered(&connection, &of(victim.pid()));
        victim.end();
        let why = refused(connection.ask(&Request::Begin));
        assert!(why.contains("the process has ended meanwhile"), "{why}");
        let inside = world.kernel.inside();
        assert!(!inside.traces.contains_key(&id) && !inside.marks.values().any(|mark| *mark == id));
    }
    // And it has used nothing up.
    let victim = Victim::new();
    world.trace(&of(victim.pid()));
}

#[test]
fn traces_go_on_after_a_crash_and_say_that_the_tracer_was_away() {
    let mut world = World::new();
    let (victim, other) = (Victim::new(), Victim::new());
    let (_first, id) = world.trace(&of(victim.pid()));
    let mut register = of(other.pid());
    register.lifetime = Lifetime::Connection;
    let (_second, passing) = world.trace(&register);
    assert!(
        world
            .serve()
            .unwrap_err()
            .to_string()
            .contains("another tracer runs")
    );
    world
        .kernel
        .event(opened(id, victim.pid(), me(), "/before"));
    world.records_when(Which::Trace(id), |records| records.len() == 2);
    world.kill();
    // Meanwhile the probes go on.
    world
        .kernel
        .event(opened(id, victim.pid(), me(), "/meanwhile"));
    // It was there for the last time a while ago.
    let lock = world.config.state.join("tracer.lock");
    let lock = std::fs::File::options().write(true).open(lock);
    let before = std::time::SystemTime::now() - std::time::Duration::from_secs(5);
    lock.unwrap().set_modified(before).unwrap();
    world.start();
    world.kernel.event(opened(id, victim.pid(), me(), "/after"));
    let paths = |records: &[serde_json::Value]| -> Vec<String> {
        let paths = records.iter().filter_map(|record| record["path"].as_str());
        paths.map(str::to_owned).collect()
    };
    let records = world.records_when(Which::Trace(id), |records| paths(records).len() == 3);
    assert_eq!(paths(&records), ["/before", "/meanwhile", "/after"]);
    let away = records.iter().find(|record| record["event"] == "away");
    let seconds = away.unwrap_or_else(|| panic!("{records:#?}"))["seconds"]
        .as_f64()
        .unwrap();
    assert!((5.0..60.0).contains(&seconds), "{seconds}");
    let numbers: Vec<u64> = records
        .iter()
        .map(|record| record["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    // The connection of the other one has gone with the tracer.
    let records = world.records_when(Which::Trace(passing), |records| {
        kinds(records).last() == Some(&"end")
    });
    assert_eq!(records.last().unwrap()["why"], "whoever asked has gone");
    assert_eq!(world.kernel.inside().marks[&other.pid()], 0);
    // New traces get new numbers.
    let third = Victim::new();
    let (_third, fresh) = world.trace(&of(third.pid()));
    assert!(fresh > id && fresh > passing);
}

#[test]
fn a_tracer_that_is_told_to_end_leaves_traces_to_the_next_one() {
    let mut world = World::new();
    let victim = Victim::new();
    let files = crate::world::path("/usr");
    let (_connection, id) =
        world.trace_without(&of(victim.pid()), &[std::os::fd::AsFd::as_fd(&files)]);
    let known = world.kernel.inside().forbidden.clone();
    world.stop();
    assert!(
        world.kernel.inside().traces.contains_key(&id),
        "denials hold meanwhile"
    );
    // The next one is of another version, whose probes know nothing yet.
    {
        let mut inside = world.kernel.inside();
        inside.traces.clear();
        inside.marks.clear();
        inside.forbidden.clear();
    }
    world.start();
    let inside = world.kernel.inside();
    assert!(inside.traces.contains_key(&id));
    assert_eq!(inside.marks[&victim.pid()], id);
    assert_eq!(inside.forbidden, known);
}

#[test]
fn traces_of_which_nothing_is_remembered_end() {
    let mut world = World::new();
    let victim = Victim::new();
    let (_connection, id) = world.trace(&of(victim.pid()));
    world.kill();
    std::fs::remove_file(world.config.state.join("tracer.state.json")).unwrap();
    world.start();
    world.until(|inside| !inside.traces.contains_key(&id));
    assert_eq!(world.kernel.inside().marks[&victim.pid()], 0);
    let (_connection, fresh) = world.trace(&of(victim.pid()));
    assert!(fresh > id + 1, "no task can have the mark of a new one");
}
