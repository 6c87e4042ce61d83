//! What a session may take of its node: how many there may be, how long nothing may be done, and what is said where a
//! limit cannot be enforced. What a cgroup enforces is tried in the suite `kernels`, where there is one to be had.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::world::{World, not_checked, until};

/// Whether this login has a cgroup that its user may change: then there is nothing that could not be enforced.
fn has_own_cgroup() -> bool {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    own.contains("/user@")
}

#[test]
fn a_limit_that_cannot_be_enforced_starts_nothing() {
    let world = World::new();
    if has_own_cgroup() {
        return not_checked("a limit without a cgroup", "this login has one");
    }
    for (set, key) in [
        ("limits.memory=1G", "limits.memory"),
        ("limits.cpus=1", "limits.cpus"),
        ("limits.io_weight=10", "limits.io_weight"),
    ] {
        let output = world.call(["-q", "--set", set, "touch", "started"]).run();
        assert_eq!(output.code, 125, "{output}");
        let err = output.err();
        let says = format!("{key} (--set {key}) cannot be enforced");
        assert!(err.contains(&says) && err.contains("cgroup"), "{output}");
        assert!(!world.project.join("started").exists());
    }
    // Of a policy as of an option.
    world.policy("[limits]\nmemory = \"1G\"\n");
    let output = world.quiet(["true"]).run();
    assert_eq!(output.code, 125, "{output}");
    assert!(output.err().contains("config.toml:2"), "{output}");
}

#[test]
fn with_less_a_session_starts_and_says_so_in_one_line() {
    let world = World::new();
    if has_own_cgroup() {
        return not_checked("what stands in for a cgroup", "this login has one");
    }
    for backend in ["bwrap", "landlock"] {
        world.policy(
            "[limits]\nmemory = \"256M\"\ncpus = 1\nio_weight = 10\ncgroup = \"degraded\"\n",
        );
        let script = "ulimit -d; nice; ionice; \
                      python3 -c 'len(bytearray(200 << 20)); print(\"fits\")'; \
                      python3 -c 'len(bytearray(300 << 20))' 2>&1 | tail -n 1; \
                      nice -n -5 true 2> /dev/null; (ulimit -d unlimited) 2> /dev/null || echo stays; \
                      renice -n 0 $$ > /dev/null 2>&1; nice";
        let output = world
            .quiet(["--backend", backend, "sh", "-c", script])
            .run();
        let nicer: i32 = 10 + own_nice();
        let expected =
            format!("262144\n{nicer}\nbest-effort: prio 7\nfits\nMemoryError\nstays\n{nicer}\n");
        assert_eq!(output.out(), expected, "{backend}: {output}");
        let err = output.err();
        let said = err.lines().filter(|line| line.contains("limits.memory"));
        let [line] = said.collect::<Vec<_>>()[..] else {
            panic!("{output}");
        };
        for part in [
            "limits.cpus",
            "limits.io_weight",
            "256M of memory for each process alone",
            "no cgroup of its own",
        ] {
            assert!(line.contains(part), "{output}");
        }
    }
}

fn own_nice() -> i32 {
    let output = std::process::Command::new("nice").output().unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

/// More at once than there may be: exactly as many start as may.
#[test]
fn sessions_are_counted_however_many_start_at_once() {
    const MOST: usize = 3;
    const AT_ONCE: usize = 50;
    let world = World::new();
    let uid = nix::unistd::getuid();
    if Path::new(&format!("/run/user/{uid}")).exists() {
        return not_checked(
            "sessions that start at once",
            "those of other tests are counted in /run/user",
        );
    }
    world.policy(&format!("[limits]\nsessions = {MOST}\n"));
    let script = ["sh", "-c", "echo runs; exec sleep 300"];
    let mut all: Vec<_> = (0..AT_ONCE).map(|_| world.quiet(script).start()).collect();
    let (mut running, mut refused) = (Vec::new(), 0);
    for mut child in all.drain(..) {
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        if line == "runs\n" {
            running.push(child);
            continue;
        }
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{err}");
        assert!(
            err.contains("no more than 3 may (limits.sessions, "),
            "{err}"
        );
        refused += 1;
    }
    assert_eq!((running.len(), refused), (MOST, AT_ONCE - MOST));
    for child in &mut running {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // What was killed counts no more.
    assert_eq!(world.quiet(["true"]).run().code, 0);
}

/// A session in which nothing is done is told, and ended; one that works meanwhile goes on.
#[test]
fn an_idle_session_ends_after_a_warning() {
    if std::env::var_os("AGENT_SANDBOX_TEST_SHORT").is_some() {
        return not_checked(
            "the end of an idle session",
            "a short run does not wait two minutes",
        );
    }
    let world = World::new();
    let idle = ["-q", "--set", "limits.idle_minutes=1"];
    let begun = Instant::now();
    let sleeps = world.call(idle.into_iter().chain(["sleep", "600"])).start();
    let busy = "end=$(($(date +%s) + 135)); while [ $(date +%s) -lt $end ]; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; done; exit 5";
    let mut works = world
        .call(idle.into_iter().chain(["sh", "-c", busy]))
        .start();
    let output = sleeps.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(124), "{err}");
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(lines.len(), 2, "{err}");
    assert!(
        lines[0].contains(
            "it ends in 1m unless something is (limits.idle_minutes, --set limits.idle_minutes)"
        ),
        "{err}"
    );
    assert!(
        lines[1].contains("nothing was done in this session for 1m"),
        "{err}"
    );
    let took = begun.elapsed();
    assert!(
        (Duration::from_secs(118)..Duration::from_secs(145)).contains(&took),
        "{took:?}"
    );
    until("the session that works ends by itself", || {
        works.try_wait().unwrap().is_some()
    });
    assert_eq!(works.wait().unwrap().code(), Some(5));
}

/// Of a mapping of a process: how large it is, and how much of it is in memory, in kB.
fn mapping(process: u32, name: &str) -> (u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps")).unwrap();
    let mut lines = text.lines().skip_while(|line| !line.ends_with(name));
    let mut number = |key: &str| -> u64 {
        let line = lines.find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    (number("Size:"), number("Rss:"))
}

/// As many launchers wait on a login node as it has sessions.
#[test]
fn a_launcher_that_waits_has_little_in_memory() {
    let world = World::new();
    for backend in ["bwrap", "landlock"] {
        let started = world.project.join(backend);
        let script = format!("touch {backend}; sleep 300");
        let words = ["--backend", backend, "sh", "-c", &script];
        let mut child = world.quiet(words).start();
        until("the command", || started.exists());
        let launcher = child.id();
        // What planning took is gone: all pages of a stack are in memory until they are given back.
        until("the stack to be given back", || {
            let (size, resident) = mapping(launcher, "[stack]");
            resident + 32 <= size
        });
        let (size, resident) = mapping(launcher, "[heap]");
        assert!(
            size > 400 && resident < 256,
            "{backend}: {resident} of {size} kB"
        );
        let status = std::fs::read_to_string(format!("/proc/{launcher}/status")).unwrap();
        assert!(status.contains("\nThreads:\t1\n"), "{status}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
