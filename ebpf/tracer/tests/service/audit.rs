//! The audit record of root's: what users' programs hand over, and what hostile ones try.

use std::fs::Permissions;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use agent_sandbox_events::audit::{Handed, LONGEST_NAME, Verdict, What, microseconds};
use agent_sandbox_events::client::encode;
use agent_sandbox_events::handover::Handover;
use agent_sandbox_events::protocol::{Request, Response, VERSION};
use nix::sys::socket::{MsgFlags, send};
use serde_json::Value;

use crate::fake::tried;
use crate::world::{
    PATIENCE, Victim, World, elsewhere, in_time, me, of, refused, registered, told,
};

/// Another user, who has nothing to do with it.
const STRANGER: u32 = 48_152;
/// The session that [`of`] names.
const SESSION: &str = "k3v9x2m1";
/// What a submission may be held up, by the issue.
const MOST: Duration = Duration::from_millis(1);

fn sbatch(session: &str, job: u32) -> Handed {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Handed {
        version: VERSION,
        session: session.to_owned(),
        time: microseconds(now.unwrap().as_secs_f64()),
        missed: 0,
        what: What::Slurm {
            pid: 7,
            command: "sbatch".to_owned(),
            verdict: Verdict::Allowed,
            reason: None,
            jobs: vec![job],
            more_jobs: 0,
            suppressed: 0,
        },
    }
}

fn handed(handed: Handed) -> Request {
    Request::Audit(Box::new(handed))
}

/// All lines of the record.
fn lines(world: &World) -> Vec<Value> {
    fn of(directory: &Path, all: &mut Vec<Value>) {
        let Ok(entries) = std::fs::read_dir(directory) else {
            return;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                of(&path, all);
                continue;
            }
            let text = std::fs::read_to_string(path).unwrap();
            all.extend(
                text.lines()
                    .map(|line| serde_json::from_str::<Value>(line).unwrap()),
            );
        }
    }
    let mut all = Vec::new();
    of(&world.config.audit, &mut all);
    all
}

#[track_caller]
fn lines_when(world: &World, right: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let begin = Instant::now();
    loop {
        let all = lines(world);
        if right(&all) {
            return all;
        }
        assert!(begin.elapsed() < PATIENCE, "{all:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_request_is_kept_as_what_its_user_said() {
    let world = World::new();
    let mut victim = Victim::new();
    let (_connection, trace) = world.trace(&of(victim.pid()));
    let connection = world.connect();
    for (session, job) in [(SESSION, 1), ("another1", 2)] {
        let answer = connection.ask(&handed(sbatch(session, job)));
        assert_eq!(answer.unwrap(), Response::Done);
    }
    let all = lines(&world);
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(
        (&all[0]["uid"], &all[0]["trace"], &all[0]["jobs"][0]),
        (&me().into(), &trace.into(), &1.into())
    );
    // No session of that id is traced for this user: whoever reads it can tell.
    assert_eq!(
        (&all[1]["session"], &all[1]["trace"]),
        (&"another1".into(), &Value::Null)
    );
    // What was denied is counted by the tracer itself, and stands at the end.
    for _ in 0..3 {
        let denied = tried(trace, victim.pid(), me(), "/denied", -libc_eacces());
        world.kernel.event(denied);
    }
    world.served();
    victim.end();
    world.kernel.inside().marks.clear();
    let all = lines_when(&world, |all| all.iter().any(|line| line["kind"] == "end"));
    let end = all.iter().find(|line| line["kind"] == "end").unwrap();
    assert_eq!(
        (&end["session"], &end["denials"]),
        (&SESSION.into(), &3.into())
    );
}

fn libc_eacces() -> i32 {
    nix::errno::Errno::EACCES as i32
}

#[test]
#[ignore = "runs as another user"]
fn speaks_for_a_session_of_another() {
    let Some((connection, session)) = told() else {
        return;
    };
    assert_eq!(
        connection.ask(&handed(sbatch(&session, 66))).unwrap(),
        Response::Done
    );
}

#[test]
fn nobody_speaks_for_another() {
    let world = World::new();
    let victim = Victim::new();
    let (_connection, _) = world.trace(&of(victim.pid()));
    let test = "audit::speaks_for_a_session_of_another";
    if elsewhere(test, &world, SESSION, STRANGER, false).is_none() {
        return;
    }
    let all = lines(&world);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(
        (&all[0]["uid"], &all[0]["trace"]),
        (&STRANGER.into(), &Value::Null)
    );
    let own = world.config.audit.join(STRANGER.to_string());
    assert_eq!(std::fs::read_dir(own).unwrap().count(), 1);
}

#[test]
#[ignore = "runs as a process of a session"]
fn speaks_out_of_a_session() {
    let Some((connection, session)) = told() else {
        return;
    };
    registered(&connection, &of(std::process::id()));
    assert_eq!(connection.ask(&Request::Begin).unwrap(), Response::Done);
    let why = refused(connection.ask(&handed(sbatch(&session, 1))));
    assert!(why.contains("comes out of session"), "{why}");
}

#[test]
fn what_is_inside_a_session_says_nothing() {
    let world = World::new();
    let test = "audit::speaks_out_of_a_session";
    if elsewhere(test, &world, SESSION, STRANGER, false).is_some() {
        let said = lines(&world);
        assert!(said.iter().all(|line| line["kind"] == "end"), "{said:?}");
    }
}

/// Whoever leaves its connection ends before the tracer sees it.
const UNSEEN: &str = "unseen";

/// Packet and answer stand in a directory.
#[test]
#[ignore = "runs as another process, which ends"]
fn leaves_its_connection_to_a_child() {
    let Some((mut connection, directory)) = told() else {
        return;
    };
    if !Path::new(&directory).join(UNSEEN).exists() {
        registered(&connection, &of(std::process::id()));
        assert_eq!(connection.ask(&Request::Begin).unwrap(), Response::Done);
        connection = told().unwrap().0;
        let status = Request::Status { version: VERSION };
        connection.ask(&status).unwrap();
    }
    let script = "while kill -0 $1; do sleep 0.05; done; cat $0/packet >&0; dd bs=65536 count=1 of=$0/answer";
    let socket = connection.as_fd().try_clone_to_owned().unwrap();
    let mut child = Command::new("sh");
    child
        .args(["-c", script, &directory, &std::process::id().to_string()])
        .stdin(socket)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    drop(child.spawn().unwrap());
}

/// What the tracer answers to a process that says something by the connection of another one; none where nobody can be
/// somebody else.
fn answer_to_a_child(world: &World, unseen: bool) -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    let everybody = Permissions::from_mode(0o777);
    std::fs::set_permissions(directory.path(), everybody).unwrap();
    let packet = encode(&handed(sbatch(SESSION, 1))).unwrap();
    std::fs::write(directory.path().join("packet"), packet).unwrap();
    let test = "audit::leaves_its_connection_to_a_child";
    let argument = directory.path().to_str().unwrap();
    // The tracer asks its kernel in each turn, and accepts nothing as long as that does not answer.
    let busy = unseen.then(|| {
        std::fs::write(directory.path().join(UNSEEN), "").unwrap();
        world.kernel.inside()
    });
    elsewhere(test, world, argument, STRANGER, false)?;
    drop(busy);
    let begin = Instant::now();
    loop {
        let answer = std::fs::read_to_string(directory.path().join("answer")).unwrap_or_default();
        if !answer.is_empty() {
            return Some(answer);
        }
        assert!(begin.elapsed() < PATIENCE, "no answer");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Who was inside a session when it connected says nothing by a child that goes on.
#[test]
fn who_was_inside_says_nothing_by_another() {
    let world = World::new();
    let Some(answer) = answer_to_a_child(&world, false) else {
        return;
    };
    assert!(answer.contains("comes out of session"), "{answer}");
    let said = lines(&world);
    assert!(said.iter().all(|line| line["kind"] == "end"), "{said:?}");
}

/// Of who has ended before the connection was accepted nobody knows whether it was inside.
#[test]
fn who_ended_unseen_says_nothing_by_another() {
    let world = World::new();
    let Some(answer) = answer_to_a_child(&world, true) else {
        return;
    };
    assert!(answer.contains("had ended before it was seen"), "{answer}");
    assert_eq!(lines(&world), Vec::<Value>::new());
}

#[test]
fn what_is_no_record_is_refused() {
    let world = World::new();
    let connection = world.connect();
    let mut long = sbatch(SESSION, 1);
    if let What::Slurm { command, .. } = &mut long.what {
        *command = "x".repeat(LONGEST_NAME + 1);
    }
    let mut many = sbatch(SESSION, 1);
    if let What::Slurm { jobs, .. } = &mut many.what {
        *jobs = (0..10_000).collect();
    }
    let mut old = sbatch(SESSION, 1);
    old.version = VERSION + 1;
    let paths = ["../../etc/x", "", ".", "a/b", "a\nb", "\u{1b}[2J"];
    for wrong in [long, many, old]
        .into_iter()
        .chain(paths.map(|path| sbatch(path, 1)))
    {
        refused(connection.ask(&handed(wrong)));
    }
    assert!(lines(&world).is_empty());
    // The same connection is served on.
    assert_eq!(
        connection.ask(&handed(sbatch(SESSION, 1))).unwrap(),
        Response::Done
    );
}

/// Packets without end, of which no answer is taken.
#[test]
fn a_flood_is_bounded_and_others_are_served() {
    let world = World::new();
    let flood = world.connect();
    let packet = encode(&handed(sbatch(SESSION, 1))).unwrap();
    let begin = Instant::now();
    let mut sent = 0;
    while begin.elapsed() < Duration::from_secs(3) {
        match send(flood.as_fd().as_raw_fd(), &packet, MsgFlags::MSG_DONTWAIT) {
            Ok(_) => sent += 1,
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    let kept = lines(&world).len();
    println!("{sent} sent, {kept} kept");
    // A thousand at once, and fifty a second.
    assert!(kept <= 1000 + 50 * 6, "{kept}");
    // The launch of another session need not wait.
    let asked = Instant::now();
    world.served();
    in_time(asked, Duration::from_secs(1));
}

#[test]
fn nothing_is_lost_while_the_tracer_is_away_and_nobody_waits() {
    let mut world = World::new();
    let mut handover = Handover::new(&world.config.socket);
    let hand = |handover: &mut Handover, job| {
        let begin = Instant::now();
        handover.hand(sbatch(SESSION, job), Instant::now());
        begin.elapsed()
    };
    hand(&mut handover, 1);
    lines_when(&world, |all| all.len() == 1);
    world.kill();
    let slow = (2..300).map(|job| hand(&mut handover, job)).max().unwrap();
    assert!(slow < Duration::from_millis(50), "{slow:?}");
    assert!(handover.is_waiting());
    world.start();
    let begin = Instant::now();
    while handover.is_waiting() {
        handover.go_on(Instant::now());
        assert!(begin.elapsed() < PATIENCE, "{handover:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    hand(&mut handover, 300);
    let all = lines_when(&world, |all| all.iter().any(|line| line["jobs"][0] == 300));
    let jobs: std::collections::BTreeSet<u64> = all
        .iter()
        .map(|line| line["jobs"][0].as_u64().unwrap())
        .collect();
    let missed: u64 = all.iter().filter_map(|line| line["missed"].as_u64()).sum();
    // What had room is there, and the rest is counted.
    assert_eq!(jobs.len() as u64 + missed, 300, "{jobs:?}");
    assert!(jobs.len() > 250, "{}", jobs.len());
}

#[test]
fn a_submission_is_not_held_up() {
    let world = World::new();
    let mut handover = Handover::new(&world.config.socket);
    let mut times: Vec<Duration> = (0..200)
        .map(|job| {
            let begin = Instant::now();
            handover.hand(sbatch(SESSION, job), Instant::now());
            let taken = begin.elapsed();
            // As far apart as submissions are.
            std::thread::sleep(Duration::from_millis(5));
            taken
        })
        .collect();
    times.sort_unstable();
    println!(
        "median {:?}, of a hundred the slowest {:?}",
        times[100], times[198]
    );
    assert!(times[100] < MOST, "{:?}", times[100]);
}
