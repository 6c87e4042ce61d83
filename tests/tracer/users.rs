//! Users of one node against each other: everybody has their own records, and traces their own processes. The
//! attacks speak to the socket by hand: this executable is their client.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agent_sandbox_events::client::{Connection, Unanswered};
use agent_sandbox_events::protocol::{
    Enforce, EventKind, Lifetime, Register, Request, Response, Scope, VERSION, Which,
};
use agent_sandbox_events::record::{Record, What};
use agent_sandbox_events::trails::{self, Reader};

use crate::cluster::cluster;
use crate::site::{Site, probed};
use crate::world::Side;

/// Long enough for an answer, on a busy machine.
const ANSWER: Duration = Duration::from_secs(20);

fn socket() -> PathBuf {
    std::env::var_os("SOCKET").unwrap().into()
}

pub(crate) fn connect() -> Connection {
    Connection::open(&socket(), ANSWER).unwrap()
}

/// A request for the trace of a process, as a tool of the user's own would make it.
pub(crate) fn register(process: Option<u32>, cgroup: Option<u64>) -> Register {
    Register {
        version: VERSION,
        session: None,
        job: None,
        step: None,
        command: vec!["by hand".to_owned()],
        scope: Scope {
            process,
            descendants: true,
            cgroup,
        },
        events: vec![EventKind::Exec, EventKind::Open],
        every: 1,
        missing: false,
        hidden: Vec::new(),
        redact: Vec::new(),
        enforce: Enforce::Off,
        no_internet: false,
        no_user_namespace: false,
        lifetime: Lifetime::Connection,
    }
}

/// `Some` is why it is refused.
fn refused(answer: Result<Response, Unanswered>) -> Option<String> {
    match answer {
        Err(Unanswered::Refused { why, .. }) => Some(why),
        // It hung up.
        Err(Unanswered::Broken(error)) => Some(error.to_string()),
        Ok(_) => None,
        Err(other) => panic!("{other}"),
    }
}

/// Every record that one gets.
pub(crate) fn read(which: Which) -> Result<Vec<Record>, String> {
    let read = || -> Result<Vec<Record>, Unanswered> {
        let mut reader = Reader::new(connect(), which)?;
        let mut records = Vec::new();
        loop {
            let more = reader.read()?;
            if more.is_empty() {
                return Ok(records);
            }
            records.extend(more.into_iter().map(|(record, _)| record));
        }
    };
    read().map_err(|error| refused(Err(error)).expect("a refusal"))
}

/// Of whom there are records among these.
fn owners(records: &[Record]) -> Vec<u32> {
    let mut all: Vec<u32> = records.iter().map(|record| record.trail.uid).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// What bob sees, who is told alice's session.
fn look_as_bob(words: &[String]) {
    let own = nix::unistd::getuid().as_raw();
    let [session, job] = words else {
        panic!("{words:?}")
    };
    assert_eq!(owners(&read(Which::All).unwrap()), [own]);
    let (listed, _) = trails::list(&connect()).unwrap();
    assert!(
        !listed.is_empty() && listed.iter().all(|one| one.trail.uid == own),
        "{listed:?}"
    );
    let of_hers = [
        Which::Session(session.clone()),
        Which::Job(job.parse().unwrap()),
        Which::Session(format!("../{session}")),
        Which::Session("../../../../etc".to_owned()),
    ];
    for which in of_hers {
        let text = format!("{which:?}");
        let records = read(which).unwrap_or_default();
        assert!(records.is_empty(), "{text}: {records:?}");
    }
    for trace in 0..64 {
        let records = read(Which::Trace(trace)).unwrap_or_default();
        assert!(
            records.iter().all(|record| record.trail.uid == own),
            "{trace}: {records:?}"
        );
    }
    println!("looked");
}

#[test]
fn two_users_see_only_their_own() {
    if let Some(words) = probed() {
        return look_as_bob(&words);
    }
    let Some(site) = Site::new("") else { return };
    let (alice, bob) = (site.alice(), site.bob());
    alice.write("of-alice.txt", "alice\n");
    bob.write("of-bob.txt", "bob\n");
    let output = alice
        .inside("sbatch -W -o job.txt --wrap 'cat of-alice.txt'; cat of-alice.txt > /dev/null")
        .set("trace.mode=required")
        .run()
        .good();
    alice.settle(Side::Inside);
    let job = crate::jobs::number(&output.out());
    bob.inside("cat of-bob.txt")
        .set("trace.mode=required")
        .run()
        .good();
    let of = |uid: u32| {
        site.ended("session", move |trail| {
            trail.of.uid == uid && trail.of.job.is_none() && trail.of.session.is_some()
        })
    };
    let hers = of(alice.user.uid.as_raw());
    let his = of(bob.user.uid.as_raw());
    assert!(hers.has_opened("of-alice.txt") && his.has_opened("of-bob.txt"));
    let session = hers.of.session.clone().unwrap();
    // By the program.
    let report = alice.launcher(&["report", &session, "--json"]).good().out();
    assert!(
        report.contains("of-alice.txt") && !report.contains("of-bob.txt"),
        "{report}"
    );
    for words in [
        &["report", &session, "--json"][..],
        &["report", &job.to_string(), "--json"],
    ] {
        let denied = bob.launcher(words);
        assert!(
            denied.code != 0 && !denied.out().contains("of-alice.txt"),
            "{denied}"
        );
    }
    let newest = bob.launcher(&["report", "--json"]).good().out();
    assert!(
        newest.contains("of-bob.txt") && !newest.contains("of-alice.txt"),
        "{newest}"
    );
    // Root is shown all, and one user's alone where it names one.
    let launcher = &cluster().unwrap().launcher;
    let root = |words: &[&str]| {
        let mut command = Command::new(launcher);
        command
            .args(["report", "--json", "--socket"])
            .arg(site.service.socket());
        let output = command.args(words).output().unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (alices, bobs) = (alice.user.name.as_str(), bob.user.name.as_str());
    for (words, opened) in [
        (&[][..], "of-bob.txt"),
        (&["--user", alices], "of-alice.txt"),
        (&["--user", bobs], "of-bob.txt"),
        (&[&session], "of-alice.txt"),
    ] {
        let (good, report) = root(words);
        assert!(good && report.contains(opened), "{words:?}: {report}");
    }
    assert!(!root(&[&session, "--user", bobs]).0);
    assert_ne!(bob.launcher(&["report", "--user", alices]).code, 0);
    // By hand.
    let looked = site.probe(bob.user, &[session, job.to_string()]);
    assert!(looked.out().contains("looked\n"), "{looked}");
    // And root's files are root's.
    let records = site.service.records().display().to_string();
    let tried = bob
        .outside(&format!("cat {records}/*/*; ls -R {records}"))
        .run();
    assert!(
        !tried.out().contains("of-alice.txt") && tried.out().trim().is_empty(),
        "{tried}"
    );
}

/// What bob tries to have traced, who is told processes of others.
fn trace_as_bob(words: &[String]) {
    let own = nix::unistd::getuid().as_raw();
    for word in words {
        let pid = word.parse().unwrap();
        let connection = connect();
        let answer = connection.ask(&Request::Register(Box::new(register(Some(pid), None))));
        assert!(refused(answer).is_some(), "the process {pid} is traced");
        // And the connection has no trace now.
        assert!(refused(connection.ask(&Request::Begin)).is_some());
    }
    // The cgroup that everybody is in: of that only one's own tasks are recorded.
    let everything = cgroup2();
    let connection = connect();
    let answer = connection.ask(&Request::Register(Box::new(register(None, everything))));
    let traced = match answer {
        Ok(Response::Registered { trace, .. }) => {
            assert!(matches!(
                connection.ask(&Request::Begin),
                Ok(Response::Done)
            ));
            Some(trace)
        }
        other => {
            assert!(refused(other).is_some());
            None
        }
    };
    println!("traced");
    std::io::stdout().flush().unwrap();
    // Alice works meanwhile.
    let over = Path::new("over");
    while !over.exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    // To be seen, where anything is.
    assert!(Command::new("/bin/true").status().unwrap().success());
    let is_his = |record: &Record| match &record.what {
        What::Exec(exec) => exec.path.ends_with("/true"),
        _ => false,
    };
    // What was before it is there when it is.
    let end = Instant::now() + ANSWER;
    let records = loop {
        let records = read(Which::All).unwrap_or_default();
        if traced.is_none() || records.iter().any(is_his) {
            break records;
        }
        assert!(Instant::now() < end, "{records:?}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(owners(&records).iter().all(|uid| *uid == own));
    let hers = records.iter().filter(|record| match &record.what {
        What::Open(open) => open.path.contains("of-alice.txt"),
        What::Exec(exec) => exec
            .arguments
            .iter()
            .any(|word| word.contains("of-alice.txt")),
        _ => false,
    });
    assert_eq!(hers.count(), 0);
    let his = records.iter().any(is_his);
    assert_eq!(his, traced.is_some(), "{records:?}");
    println!("not hers");
}

/// The id of the root of cgroup v2: the inode number of its directory (cgroups(7)).
fn cgroup2() -> Option<u64> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts
        .lines()
        .find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
    let directory = line.split(' ').nth(1)?;
    Some(std::os::unix::fs::MetadataExt::ino(
        &std::fs::metadata(directory).ok()?,
    ))
}

#[test]
fn a_user_cannot_trace_anothers_processes() {
    if let Some(words) = probed() {
        return trace_as_bob(&words);
    }
    let Some(site) = Site::new("") else { return };
    let (alice, bob) = (site.alice(), site.bob());
    alice.write("of-alice.txt", "alice\n");
    let hers = alice
        .outside("until [ -e over ]; do sleep 0.05; done; cat of-alice.txt")
        .start();
    let session = alice
        .inside("until [ -e over ]; do sleep 0.05; done; cat of-alice.txt")
        .start();
    let others = [
        hers.pid().as_raw(),
        session.pid().as_raw(),
        1,
        i32::try_from(std::process::id()).unwrap(),
        site.service.pid().as_raw(),
        0,
        i32::MAX,
    ];
    let words = others.map(|pid| pid.to_string());
    let over = bob.user.dir.join("over");
    let _ = std::fs::remove_file(&over);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| site.probe(bob.user, &words));
        // Once bob has what he can get.
        std::thread::sleep(Duration::from_secs(2));
        alice.write("over", "");
        hers.end().good();
        session.end().good();
        crate::cluster::put(bob.user, &over, b"", 0o644);
        let said = looking.join().unwrap().out();
        assert!(said.contains("not hers\n"), "{said}");
    });
    std::fs::remove_file(&over).unwrap();
    // Her own session has her records all the same.
    let trail = site.ended("session", |trail| trail.of.session.is_some());
    trail.whole();
    assert!(trail.has_opened("of-alice.txt"), "{}", trail.brief());
}

/// What alice tries against the trace of her own session, whose shell she is told.
fn stop_as_alice(words: &[String]) {
    let shell: u32 = words[0].parse().unwrap();
    let trace: u32 = words[1].parse().unwrap();
    // There is no word that ends it.
    let connection = connect();
    assert!(
        refused(connection.ask(&Request::End)).is_some(),
        "an end without a trace"
    );
    // A trace of one's own on the same process, that records as little as possible, to be ended at once or to last.
    for lifetime in [Lifetime::Connection, Lifetime::Tasks] {
        let connection = connect();
        let least = Register {
            events: Vec::new(),
            every: u32::MAX,
            lifetime,
            ..register(Some(shell), None)
        };
        if let Ok(Response::Registered { trace: own, .. }) =
            connection.ask(&Request::Register(Box::new(least)))
        {
            assert_ne!(own, trace);
            let why = refused(connection.ask(&Request::Begin)).expect("a refusal");
            assert!(why.contains("recorded already"), "{why}");
        }
    }
    // The session's own name, taken for a trace of something else.
    let mut child = Command::new("/bin/sleep")
        .arg("600")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let connection = connect();
    let same = Register {
        session: Some(words[2].clone()),
        lifetime: Lifetime::Tasks,
        ..register(Some(child.id()), None)
    };
    if connection.ask(&Request::Register(Box::new(same))).is_ok() {
        let _ = connection.ask(&Request::Begin);
        assert!(
            refused(connection.ask(&Request::End)).is_some(),
            "a session's trace was ended"
        );
    }
    child.kill().unwrap();
    child.wait().unwrap();
    println!("tried");
}

#[test]
fn a_user_cannot_stop_a_sessions_trace() {
    if let Some(words) = probed() {
        return stop_as_alice(&words);
    }
    let Some(site) = Site::new("") else { return };
    site.policy("mode = \"required\"");
    let world = site.alice();
    // Nor by a word of the policy.
    let off = world.inside("true").set("trace.mode=off").run();
    let narrowed = off.code == 0 || off.err().contains("trace.mode");
    assert!(narrowed, "{off}");
    let before = site.trails();
    assert_eq!(
        before.len(),
        usize::from(off.code == 0),
        "a session without a trail: {off}"
    );
    let running = world
        .inside("echo up > up.txt; until [ -e over ]; do sleep 0.05; done; cat after.txt; cat after.txt")
        .start();
    world.write("after.txt", "after\n");
    world.until(Side::Inside, "up.txt", "up");
    let earlier: Vec<_> = before.into_iter().map(|trail| trail.of).collect();
    let trail = site.once("session", |trail| {
        let started = trail.started();
        !earlier.contains(&trail.of) && started.iter().any(|exec| exec.path.ends_with("/bash"))
    });
    let shell = trail
        .started()
        .into_iter()
        .find(|exec| exec.path.ends_with("/bash"))
        .map(|exec| exec.actor.pid)
        .unwrap_or_else(|| panic!("{}", trail.brief()));
    let words = [
        shell.to_string(),
        trail.of.trace.to_string(),
        trail.of.session.clone().unwrap(),
    ];
    let said = site.probe(world.user, &words);
    assert!(said.out().contains("tried\n"), "{said}");
    world.write("over", "");
    running.end().good();
    let own = trail.of.clone();
    let trail = site.ended("session", move |trail| trail.of == own);
    trail.whole();
    assert!(trail.has_opened("after.txt"), "{}", trail.brief());
    let cats = trail
        .started()
        .into_iter()
        .filter(|exec| exec.path.ends_with("/cat"));
    assert_eq!(cats.count(), 2, "{}", trail.brief());
}

/// What is no request, and too much of everything.
fn speak_nonsense() {
    let raw = |bytes: &[u8], descriptors: usize| {
        let connection = connect();
        let fds = vec![connection.as_fd().as_raw_fd(); descriptors];
        let rights = [nix::sys::socket::ControlMessage::ScmRights(&fds)];
        let rights = if fds.is_empty() { &[][..] } else { &rights[..] };
        let _ = nix::sys::socket::sendmsg::<()>(
            connection.as_fd().as_raw_fd(),
            &[std::io::IoSlice::new(bytes)],
            rights,
            nix::sys::socket::MsgFlags::MSG_NOSIGNAL,
            None,
        );
        refused(connection.next())
    };
    for bytes in [
        &[][..],
        &[0xff],
        &[0xff; 4096],
        b"GET / HTTP/1.1\r\n\r\n",
        &[0; 65536],
    ] {
        let said = raw(bytes, 0);
        assert!(said.is_some(), "{} bytes are answered", bytes.len());
    }
    let status =
        agent_sandbox_events::client::encode(&Request::Status { version: VERSION }).unwrap();
    assert!(
        raw(&[&status[..], &[0]].concat(), 0).is_some(),
        "a request with something behind it"
    );
    let strange = Request::Status {
        version: VERSION + 1,
    };
    assert!(
        refused(connect().ask(&strange)).is_some(),
        "another version"
    );
    // With descriptors that nobody wants, many times: they are closed.
    for _ in 0..50 {
        raw(&status, 200);
    }
    // Another kind of socket.
    assert!(UnixStream::connect(socket()).is_err());
    // Connections that say nothing, as many as one gets; and one that asks all the time.
    let mut silent = Vec::new();
    while let Ok(connection) = Connection::open(&socket(), Duration::from_millis(200)) {
        silent.push(connection);
        if silent.len() == 2000 {
            break;
        }
    }
    println!("nonsense {}", silent.len());
    std::io::stdout().flush().unwrap();
    std::thread::sleep(Duration::from_secs(2));
}

#[test]
fn nonsense_and_too_much_harm_nobody_else() {
    if probed().is_some() {
        return speak_nonsense();
    }
    let Some(site) = Site::new("") else { return };
    let (alice, bob) = (site.alice(), site.bob());
    let resident = |site: &Site| {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", site.service.pid())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap()
            .to_owned();
        line.split_whitespace()
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let descriptors = |site: &Site| {
        std::fs::read_dir(format!("/proc/{}/fd", site.service.pid()))
            .unwrap()
            .count()
    };
    let before = (resident(&site), descriptors(&site));
    alice.write("quiet.txt", "quiet\n");
    std::thread::scope(|scope| {
        let loud = scope.spawn(|| site.probe(bob.user, &["loud".to_owned()]));
        for _ in 0..4 {
            alice
                .inside("cat quiet.txt")
                .set("trace.mode=required")
                .run()
                .good();
            std::thread::sleep(Duration::from_millis(500));
        }
        let said = loud.join().unwrap();
        assert!(said.out().contains("nonsense "), "{said}");
    });
    site.ended("session", |trail| trail.has_opened("quiet.txt"));
    let after = (resident(&site), descriptors(&site));
    assert!(
        after.0 < before.0 + 8192,
        "memory in kB: {before:?} {after:?}"
    );
    assert!(after.1 <= before.1 + 8, "descriptors: {before:?} {after:?}");
}
