//! Other users, and other namespaces. What runs there is a test of this program that is ignored otherwise.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use agent_sandbox_events::client::Connection;
use agent_sandbox_events::protocol::{EventKind, Request, Response, Scope, VERSION, Which};
use agent_sandbox_events::trails::Source;
use nix::fcntl::{AT_FDCWD, AtFlags, FcntlArg, fcntl};
use nix::unistd::linkat;

use crate::fake::opened;
use crate::world::{Victim, World, elsewhere, kinds, of, records, refused, told};

/// Nobody's uid, and one of nobody else.
const NOBODY: u32 = 65534;
const STRANGER: u32 = 54321;

#[test]
#[ignore = "runs as another user"]
fn takes_anothers_process() {
    let Some((connection, pid)) = told() else {
        return;
    };
    let register = Request::Register(Box::new(of(pid.parse().unwrap())));
    let others = refused(connection.ask(&register));
    assert!(others.contains("there is no process"), "{others}");
    let missing = refused(connection.ask(&Request::Register(Box::new(of(4_000_000)))));
    let without = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    assert_eq!(
        without(&others),
        without(&missing),
        "it does not tell which processes there are"
    );
}

#[test]
fn nobody_has_anothers_process_traced() {
    let world = World::new();
    let victim = Victim::new();
    elsewhere(
        "others::takes_anothers_process",
        &world,
        &victim.pid().to_string(),
        NOBODY,
        false,
    );
    assert!(world.kernel.inside().marks.is_empty());
}

#[test]
#[ignore = "runs in another pid namespace"]
fn takes_a_process_by_its_inner_number() {
    let Some((connection, _)) = told() else {
        return;
    };
    let pid = std::process::id();
    assert!(pid < 10, "it is in no namespace of its own: {pid}");
    let why = refused(connection.ask(&Request::Register(Box::new(of(pid)))));
    assert!(why.contains("in another pid namespace"), "{why}");
}

#[test]
fn numbers_of_another_pid_namespace_are_not_believed() {
    let world = World::new();
    elsewhere(
        "others::takes_a_process_by_its_inner_number",
        &world,
        "",
        0,
        true,
    );
    assert!(world.kernel.inside().marks.is_empty());
}

#[test]
#[ignore = "runs as another user"]
fn reads_everything() {
    let Some((connection, trace)) = told() else {
        return;
    };
    let trace = Which::Trace(trace.parse().unwrap());
    for which in [Which::All, trace, Which::Session("k3v9x2m1".to_owned())] {
        assert!(records(&connection, which).is_empty());
    }
    // Not by the names of the files either, which can be guessed.
    let ask = |request: Request| connection.ask(&request).unwrap();
    let files = Request::Files {
        version: VERSION,
        which: Which::All,
        after: None,
    };
    assert_eq!(ask(files), Response::Files(Vec::new()));
    let me = nix::unistd::getuid().as_raw();
    for (uid, name) in [
        (0, "k3v9x2m1@node1-1.jsonl"),
        (me, "k3v9x2m1@node1-1.jsonl"),
        (me, "../0/k3v9x2m1@node1-1.jsonl"),
        (me, "/etc/shadow"),
    ] {
        let files = vec![(uid, name.to_owned())];
        let open = Request::Open {
            version: VERSION,
            files,
        };
        assert_eq!(ask(open), Response::Opened(vec![false]), "{uid} {name}");
    }
}

#[test]
fn everybody_reads_their_own_records_and_root_reads_all() {
    let world = World::new();
    let victim = Victim::new();
    let (_connection, id) = world.trace(&of(victim.pid()));
    world.kernel.event(opened(id, victim.pid(), 0, "/mine"));
    elsewhere(
        "others::reads_everything",
        &world,
        &id.to_string(),
        STRANGER,
        false,
    );
    assert!(kinds(&world.records(Which::All)).contains(&"header"));
}

#[test]
#[ignore = "runs as another user"]
fn traces_itself() {
    let Some((connection, _)) = told() else {
        return;
    };
    let victim = Victim::new();
    let mut register = of(victim.pid());
    register.session = Some("mine".to_owned());
    let request = Request::Register(Box::new(register));
    let answer = connection.ask(&request).unwrap();
    assert!(matches!(answer, Response::Registered { .. }), "{answer:?}");
    assert_eq!(connection.ask(&Request::Begin).unwrap(), Response::Done);
    drop(connection);
    let (connection, _) = told().unwrap();
    let mine = records(&connection, Which::All);
    assert_eq!(mine[0]["uid"], nix::unistd::getuid().as_raw());
    cannot_change_what_is_lent(&connection);
}

/// The user has the file, and nothing that it can do with it changes it or opens it anew.
fn cannot_change_what_is_lent(connection: &Connection) {
    let name = connection.files(&Which::All, None).unwrap().remove(0);
    let file = connection.open(vec![(name.uid, name.name)]).unwrap();
    let file = file.into_iter().next().flatten().unwrap();
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    let before = file.metadata().unwrap();
    assert_eq!((before.uid(), before.mode() & 0o777), (0, 0o600));
    assert!((&file).write_all(b"x").is_err());
    assert!(file.set_len(0).is_err());
    for write in [false, true] {
        let opened = File::options().read(!write).write(write).open(&again);
        assert_eq!(opened.unwrap_err().raw_os_error(), Some(libc::EACCES));
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    assert!(file.set_permissions(mode).is_err());
    assert!(file.set_modified(std::time::SystemTime::now()).is_err());
    assert!(std::os::unix::fs::fchown(&file, Some(before.uid() + 1), None).is_err());
    let here = std::env::temp_dir().join(format!("linked-{}", std::process::id()));
    let flags = AtFlags::AT_SYMLINK_FOLLOW;
    assert!(linkat(AT_FDCWD, again.as_str(), AT_FDCWD, &here, flags).is_err());
    assert!(linkat(&file, "", AT_FDCWD, &here, AtFlags::AT_EMPTY_PATH).is_err());
    assert!(fcntl(&file, FcntlArg::F_GETFL).is_ok_and(|flags| flags & libc::O_ACCMODE == 0));
}

#[test]
fn anybody_has_their_own_process_traced() {
    let world = World::new();
    let Some(_) = elsewhere("others::traces_itself", &world, "", NOBODY, false) else {
        return;
    };
    let records = world.records(Which::All);
    assert_eq!(records[0]["uid"], NOBODY, "root reads it");
    let (entry, _) = *world.kernel.inside().traces.values().next().unwrap();
    assert_eq!(entry.uid, NOBODY);
}

#[test]
fn root_has_a_users_process_traced_as_the_users() {
    let world = World::new();
    if crate::world::me() != 0 {
        return println!("not checked: a user's process that root names: it needs root");
    }
    let mut command = std::process::Command::new("setpriv");
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "sleep",
        "60",
    ]);
    let victim = Victim(command.spawn().unwrap());
    let begin = std::time::Instant::now();
    let status = format!("/proc/{}/status", victim.pid());
    while !std::fs::read_to_string(&status)
        .unwrap()
        .contains("Uid:\t65534\t65534")
    {
        assert!(begin.elapsed() < crate::world::PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let (_connection, id) = world.trace(&of(victim.pid()));
    assert_eq!(world.kernel.inside().traces[&id].0.uid, NOBODY);
    assert_eq!(world.records(Which::Trace(id))[0]["uid"], NOBODY);
}

/// A cgroup that ends with the test.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Option<Self> {
        let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = text.lines().find(|line| line.contains(" - cgroup2 "));
        let point = line
            .and_then(|line| line.split(' ').nth(4))
            .map(PathBuf::from);
        let path = point?.join(format!("{name}-{}", std::process::id()));
        match std::fs::create_dir(&path) {
            Ok(()) => Some(Self(path)),
            Err(_) => None,
        }
    }

    fn id(&self) -> u64 {
        std::fs::metadata(&self.0).unwrap().ino()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn of_cgroup(id: u64) -> Request {
    let mut register = of(1);
    register.events = vec![EventKind::Exec];
    register.scope = Scope {
        process: None,
        descendants: false,
        cgroup: Some(id),
    };
    Request::Register(Box::new(register))
}

#[test]
#[ignore = "runs as another user"]
fn takes_a_cgroup() {
    let Some((connection, argument)) = told() else {
        return;
    };
    let (id, mine) = argument.split_once(' ').unwrap();
    let answer = connection.ask(&of_cgroup(id.parse().unwrap()));
    if mine == "mine" {
        assert!(
            matches!(answer, Ok(Response::Registered { .. })),
            "{answer:?}"
        );
        assert_eq!(connection.ask(&Request::Begin).unwrap(), Response::Done);
    } else {
        let why = refused(answer);
        assert!(why.contains("there is no cgroup"), "{why}");
    }
}

#[test]
fn a_cgroup_is_traced_for_its_owner_and_for_whoever_is_in_it() {
    let world = World::new();
    let Some(group) = Group::new("tracer-test") else {
        return println!("not checked: whose cgroup may be traced: none can be made here");
    };
    let take = |whose: &str, uid| {
        let argument = format!("{} {whose}", group.id());
        elsewhere("others::takes_a_cgroup", &world, &argument, uid, false)
    };
    let Some(_) = take("roots", NOBODY) else {
        return;
    };
    let whole = std::fs::metadata(group.0.parent().unwrap()).unwrap().ino();
    let argument = format!("{whole} roots");
    elsewhere("others::takes_a_cgroup", &world, &argument, NOBODY, false);
    assert!(world.kernel.inside().cgroups.is_empty());
    std::os::unix::fs::chown(&group.0, Some(NOBODY), None).unwrap();
    take("mine", NOBODY);
    assert_eq!(world.kernel.inside().cgroups.len(), 1);
    let id = world.kernel.inside().cgroups[&group.id()];
    assert_eq!(world.kernel.inside().traces[&id].0.uid, NOBODY);
    // Not even root may have it for somebody else, as tasks of it would be taken from there.
    std::os::unix::fs::chown(&group.0, Some(STRANGER), None).unwrap();
    let why = refused(world.connect().ask(&of_cgroup(group.id())));
    assert!(why.contains("traced for another user"), "{why}");
    // It ends when the cgroup is gone, and not before.
    let other = Victim::new();
    let (_connection, ends) = world.trace(&of(other.pid()));
    drop(other);
    // One without a task has ended meanwhile.
    world.records_when(Which::Trace(ends), |records| {
        kinds(records).contains(&"end")
    });
    assert!(!kinds(&world.records(Which::Trace(id))).contains(&"end"));
    drop(group);
    world.records_when(Which::Trace(id), |records| kinds(records).contains(&"end"));
    assert!(world.kernel.inside().cgroups.is_empty());
}

#[test]
fn a_cgroup_has_one_trace_and_gives_it_to_what_lasts() {
    let world = World::new();
    let Some(group) = Group::new("tracer-twice") else {
        return println!("not checked: cgroups that are traced twice: none can be made here");
    };
    if crate::world::me() != 0 {
        return println!("not checked: cgroups that are traced twice: it needs root");
    }
    let Request::Register(mut register) = of_cgroup(group.id()) else {
        return;
    };
    let of = |world: &World| world.kernel.inside().cgroups.get(&group.id()).copied();
    register.lifetime = agent_sandbox_events::protocol::Lifetime::Connection;
    let (passing, first) = world.trace(&register);
    register.lifetime = agent_sandbox_events::protocol::Lifetime::Tasks;
    let (_lasting, second) = world.trace(&register);
    assert_eq!(of(&world), Some(second));
    assert_eq!(passing.ask(&Request::End).unwrap(), Response::Done);
    assert_ne!(first, second);
    assert_eq!(of(&world), Some(second));
    for lifetime in [
        agent_sandbox_events::protocol::Lifetime::Tasks,
        agent_sandbox_events::protocol::Lifetime::Connection,
    ] {
        register.lifetime = lifetime;
        let again = world.connect();
        crate::world::registered(&again, &register);
        let why = refused(again.ask(&Request::Begin));
        assert!(why.contains(&format!("in trace {second}")), "{why}");
    }
    // A process that a passing trace has does not bring its cgroup along.
    let victim = Victim::new();
    let mut of_process = self::of(victim.pid());
    of_process.lifetime = agent_sandbox_events::protocol::Lifetime::Connection;
    let (_passing, _) = world.trace(&of_process);
    let both = world.connect();
    register.scope.process = Some(victim.pid());
    register.lifetime = agent_sandbox_events::protocol::Lifetime::Tasks;
    crate::world::registered(&both, &register);
    let why = refused(both.ask(&Request::Begin));
    assert!(why.contains(&format!("in trace {second}")), "{why}");
    assert_eq!(of(&world), Some(second));
    assert!(Path::new(&group.0).exists());
}
