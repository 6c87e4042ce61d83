//! Processes that are traced already, steps of jobs, and cgroups.

use std::os::fd::AsFd;

use agent_sandbox_events::protocol::{Enforce, EventKind, Lifetime, Request, Response, Which};
use agent_sandbox_events::raw::trace_flags;

use crate::fake::opened;
use crate::world::{Victim, World, kinds, me, of, refused, registered};

/// Files that a trace forbids, as the kernel knows them.
fn forbidden(world: &World, trace: u32) -> Vec<(u32, u64)> {
    let inside = world.kernel.inside();
    let all = inside.forbidden.iter().filter(|(id, ..)| *id == trace);
    all.map(|(_, device, inode)| (*device, *inode)).collect()
}

#[test]
fn what_a_session_has_no_other_trace_gets() {
    let world = World::new();
    let (victim, child) = (Victim::new(), Victim::new());
    let usr = crate::world::path("/usr");
    let mut outer = of(victim.pid());
    outer.enforce = Enforce::On;
    let (_outer, session) = world.trace_without(&outer, &[usr.as_fd()]);
    world.kernel.inside().marks.insert(child.pid(), session);
    let before = forbidden(&world, session);
    // By a trace that is ended at will, and by one that lasts, of another session's name or of none.
    for (pid, name, lifetime) in [
        (victim.pid(), None, Lifetime::Connection),
        (child.pid(), None, Lifetime::Connection),
        (child.pid(), None, Lifetime::Tasks),
        (child.pid(), Some("another1"), Lifetime::Tasks),
    ] {
        let mut inner = of(pid);
        inner.session = name.map(str::to_owned);
        inner.lifetime = lifetime;
        let connection = world.connect();
        registered(&connection, &inner);
        let why = refused(connection.ask(&Request::Begin));
        let said = format!("recorded already, in trace {session} of session k3v9x2m1");
        assert!(
            why.contains(&said) && why.contains("watch k3v9x2m1"),
            "{why}"
        );
    }
    for pid in [victim.pid(), child.pid()] {
        assert_eq!(world.kernel.inside().marks[&pid], session);
    }
    assert_eq!(forbidden(&world, session), before);
    // What was refused takes no place.
    assert_eq!(world.kernel.inside().traces.len(), 1);
    world
        .kernel
        .event(opened(session, victim.pid(), me(), "/still"));
    world.records_when(Which::Trace(session), |records| records.len() == 2);
}

#[test]
fn a_session_takes_its_tasks_along_and_denies_and_shows_no_less() {
    let world = World::new();
    let (victim, other) = (Victim::new(), Victim::new());
    let usr = crate::world::path("/usr");
    let mut outer = of(victim.pid());
    outer.session = None;
    outer.enforce = Enforce::On;
    outer.no_internet = true;
    outer.lifetime = Lifetime::Connection;
    let (connection, passing) = world.trace_without(&outer, &[usr.as_fd()]);
    world.kernel.inside().marks.insert(other.pid(), passing);
    let mut inner = of(victim.pid());
    inner.events = vec![EventKind::Connect];
    inner.every = 100;
    let (_inner, session) = world.trace(&inner);
    {
        let inside = world.kernel.inside();
        let (entry, _) = inside.traces[&session];
        let all = inside.traces[&passing].0.events;
        assert_eq!((entry.events & all, entry.every), (all, 1));
        assert_ne!(entry.flags & trace_flags::ENFORCE, 0);
        assert_ne!(entry.flags & trace_flags::NO_INTERNET, 0);
        assert_eq!(inside.marks[&victim.pid()], session);
        assert_eq!(
            inside.marks[&other.pid()],
            passing,
            "it is not the session's"
        );
    }
    assert_eq!(forbidden(&world, session), forbidden(&world, passing));
    world
        .kernel
        .event(opened(session, victim.pid(), me(), "/in-the-session"));
    world.records_when(Which::Trace(session), |records| records.len() == 2);
    // And the session does not end with it.
    assert_eq!(connection.ask(&Request::End).unwrap(), Response::Done);
    assert_eq!(world.kernel.inside().marks[&other.pid()], 0);
    assert_eq!(world.kernel.inside().marks[&victim.pid()], session);
    assert_eq!(
        kinds(&world.records(Which::Trace(passing))),
        ["header", "end"]
    );
}

#[test]
fn a_step_in_the_trace_of_its_job_is_recorded_there() {
    let world = World::new();
    let victim = Victim::new();
    let mut job = of(victim.pid());
    job.job = Some(7);
    let (_job, whole) = world.trace(&job);
    job.step = Some("0".to_owned());
    job.events = vec![EventKind::Open];
    let (connection, _) = world.trace(&job);
    drop(connection);
    assert_eq!(world.kernel.inside().marks[&victim.pid()], whole);
    // One that shows more is not the same.
    job.missing = true;
    let connection = world.connect();
    registered(&connection, &job);
    assert!(refused(connection.ask(&Request::Begin)).contains("recorded already"));
}

#[test]
fn children_are_traced_with_their_process_if_that_is_asked() {
    let world = World::new();
    let register = |descendants: bool| {
        let mut register = of(std::process::id());
        register.scope.descendants = descendants;
        register.lifetime = Lifetime::Connection;
        register
    };
    let child = Victim::new();
    let refusal = world
        .connect()
        .ask(&Request::Register(Box::new(register(true))));
    let why = crate::world::refused(refusal);
    assert!(why.contains("does not trace itself"), "{why}");
    // A shell with a child.
    let mut shell = std::process::Command::new("sh");
    let shell = shell.args(["-c", "sleep 60 2>/dev/null & echo $!; wait"]);
    let mut shell = shell.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let output = shell.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
    let grandchild: u32 = line.trim().parse().unwrap();
    for descendants in [false, true] {
        let mut register = register(descendants);
        register.scope.process = Some(shell.id());
        let (connection, id) = world.trace(&register);
        let inside = world.kernel.inside();
        assert_eq!(inside.marks[&shell.id()], id);
        let marked = inside.marks.get(&grandchild).copied().unwrap_or(0) == id;
        assert_eq!(marked, descendants);
        assert!(!inside.marks.contains_key(&child.pid()));
        drop(inside);
        // A connection that is closed is seen to be a moment later.
        assert_eq!(connection.ask(&Request::End).unwrap(), Response::Done);
    }
    let _ = std::process::Command::new("kill")
        .arg(grandchild.to_string())
        .status();
    let _ = shell.kill();
    let _ = shell.wait();
}

#[test]
fn the_tasks_of_a_step_have_one_trace() {
    let world = World::with(|config| config.limits.traces_per_user = 4);
    let ranks: Vec<Victim> = (0..8).map(|_| Victim::new()).collect();
    let of_step = |pid: u32, step: &str| {
        let mut register = of(pid);
        register.job = Some(17);
        register.step = Some(step.to_owned());
        register
    };
    let mut ids = Vec::new();
    for rank in &ranks {
        let (_connection, id) = world.trace(&of_step(rank.pid(), "0"));
        ids.push(id);
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    for rank in &ranks {
        assert_eq!(world.kernel.inside().marks[&rank.pid()], ids[0]);
    }
    let another = Victim::new();
    let (_connection, other) = world.trace(&of_step(another.pid(), "1"));
    assert_ne!(other, ids[0]);
    assert_eq!(world.kernel.inside().marks[&another.pid()], other);
    // It goes on until the last rank has ended.
    let mut ranks = ranks;
    let last = ranks.pop().unwrap();
    drop(ranks);
    world.looked();
    assert!(!kinds(&world.records(Which::Trace(ids[0]))).contains(&"end"));
    drop(last);
    world.records_when(Which::Trace(ids[0]), |records| {
        kinds(records).contains(&"end")
    });
}

#[test]
fn a_task_that_asks_for_something_else_does_not_join() {
    let world = World::new();
    let victims = [Victim::new(), Victim::new()];
    let mut register = of(victims[0].pid());
    register.job = Some(17);
    let (_one, first) = world.trace(&register);
    register.scope.process = Some(victims[1].pid());
    register.enforce = Enforce::On;
    let (_two, second) = world.trace(&register);
    assert_ne!(first, second);
    // And a session joins nothing.
    let others = [Victim::new(), Victim::new()];
    let mut session = of(others[0].pid());
    let (_three, third) = world.trace(&session);
    session.scope.process = Some(others[1].pid());
    let (_four, fourth) = world.trace(&session);
    assert_ne!(third, fourth);
}

#[test]
fn a_step_that_ends_while_another_task_joins_does_not_refuse_it() {
    let world = World::new();
    let (mut first, second) = (Victim::new(), Victim::new());
    let mut register = of(first.pid());
    register.job = Some(17);
    let (_connection, id) = world.trace(&register);
    register.scope.process = Some(second.pid());
    let connection = world.connect();
    assert_eq!(registered(&connection, &register), id);
    first.end();
    world.records_when(Which::Trace(id), |records| kinds(records).contains(&"end"));
    assert_eq!(connection.ask(&Request::Begin).unwrap(), Response::Done);
    let mark = world.kernel.inside().marks[&second.pid()];
    assert!(mark != 0 && mark != id);
}

#[test]
fn the_tasks_of_a_step_that_all_come_at_once_have_one_trace() {
    let world = World::with(|config| {
        config.limits.traces_per_user = 2;
        config.limits.forbidden_per_user = 1;
    });
    let ranks: Vec<Victim> = (0..20).map(|_| Victim::new()).collect();
    let usr = crate::world::path("/usr");
    let forbid = Request::Forbid {
        version: agent_sandbox_events::protocol::VERSION,
    };
    let connections: Vec<_> = ranks
        .iter()
        .map(|rank| {
            let mut register = of(rank.pid());
            register.job = Some(17);
            register.step = Some("3".to_owned());
            register.enforce = Enforce::On;
            let connection = world.connect();
            registered(&connection, &register);
            connection.ask_with(&forbid, &[usr.as_fd()]).unwrap();
            connection
        })
        .collect();
    // The first of them leaves; the last one is the first to begin.
    for connection in connections[1..].iter().rev() {
        assert_eq!(connection.ask(&Request::Begin).unwrap(), Response::Done);
    }
    drop(connections);
    world.served();
    let inside = world.kernel.inside();
    assert_eq!((inside.traces.len(), inside.forbidden.len()), (1, 1));
    let id = *inside.traces.keys().next().unwrap();
    for rank in &ranks[1..] {
        assert_eq!(inside.marks[&rank.pid()], id);
    }
    drop(inside);
    // Nothing is counted of those that have joined.
    let (_connection, other) = world.trace(&of(ranks[0].pid()));
    assert_ne!(other, id);
}

/// Where a hierarchy of cgroup v1 is mounted.
fn first_version() -> Option<std::path::PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mut all = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (at, kind) = (words.next()?, words.next()?);
        let options = words.next()?;
        // One that needs nothing to be set before a process can come.
        let plain = ["freezer", "pids"].iter().any(|one| options.contains(one));
        (kind == "cgroup" && plain).then(|| std::path::PathBuf::from(at))
    });
    all.next()
}

#[test]
fn a_process_in_a_jobs_cgroup_is_traced_as_that_jobs() {
    let (0, Some(root)) = (me(), first_version()) else {
        println!("not checked: a process in a job's cgroup: it needs root and cgroup v1");
        return;
    };
    let world = World::new();
    let mut victim = Victim::new();
    let top = root.join(format!("slurm_test{}", std::process::id()));
    let job = top.join("uid_0/job_77");
    std::fs::create_dir_all(&job).unwrap();
    std::fs::write(job.join("cgroup.procs"), victim.pid().to_string()).unwrap();
    let ask = |job: u32| {
        let mut register = of(victim.pid());
        register.job = Some(job);
        world.connect().ask(&Request::Register(Box::new(register)))
    };
    let (wrong, right) = (ask(7), ask(77));
    let sentence = |id: u32| {
        let header = world.records(Which::Trace(id)).remove(0);
        header["blind"]
            .to_string()
            .contains("what the user's programs said")
    };
    let mut register = of(victim.pid());
    register.job = Some(77);
    let (_inside, known) = world.trace(&register);
    let outside = Victim::new();
    register.scope.process = Some(outside.pid());
    register.step = Some("0".to_owned());
    let (_outside, said) = world.trace(&register);
    let third = Victim::new();
    let (_session, none) = world.trace(&of(third.pid()));
    let told = [known, said, none].map(sentence);
    victim.end();
    for directory in [&job, &top.join("uid_0"), &top] {
        std::fs::remove_dir(directory).unwrap();
    }
    let why = refused(wrong);
    assert!(why.contains("is of job 77, by its cgroup"), "{why}");
    assert_eq!(
        told,
        [false, true, false],
        "each trail says what its number is worth"
    );
    assert!(
        matches!(right, Ok(Response::Registered { .. })),
        "{right:?}"
    );
}
