//! `agent-sandbox run --timeout` and `--result`: what a program gets of a run.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::world::{World, root, until, wait};

/// Runs a script with a result, which is the answer with the exit status.
fn result(world: &World, options: &[&str], script: &str) -> (i32, Value) {
    let file = world.place.join("result.json");
    let words = ["-q", "run", "--result", file.to_str().unwrap()];
    let words = words.into_iter().chain(options.iter().copied());
    let output = world.call(words.chain(["--", "sh", "-c", script])).run();
    let text = fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("no result: {error}: {}", output.err()));
    (output.code, serde_json::from_str(&text).unwrap())
}

/// Every `null` has its reason, and nothing else has one.
#[track_caller]
fn expect_reasons(result: &Value) {
    let keys = result.as_object().unwrap();
    let nulls: BTreeSet<&str> = keys
        .iter()
        .filter(|(_, value)| value.is_null())
        .map(|(key, _)| key.as_str())
        .collect();
    let reasons = result["reasons"].as_object().unwrap();
    let given: BTreeSet<&str> = reasons.keys().map(String::as_str).collect();
    assert_eq!(nulls, given, "{result:#}");
    assert!(
        reasons
            .values()
            .all(|reason| !reason.as_str().unwrap().is_empty())
    );
}

#[test]
fn a_result_says_how_it_went() {
    let world = World::new();
    let script = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; printf 12345 > new; exit 3";
    let (status, result) = result(&world, &[], script);
    expect_reasons(&result);
    assert_eq!(status, 3);
    assert_eq!(result["version"], 1);
    assert_eq!((&result["status"], &result["exit"]), (&3.into(), &3.into()));
    assert_eq!(result["end"], "exit");
    assert_eq!(result["project"], world.project.to_str().unwrap());
    assert_eq!(result["project_changed_files"], 1);
    assert_eq!(result["project_changed_bytes"], 5);
    assert_eq!(result["jobs"], serde_json::json!([]));
    assert_eq!(result["refusals"], serde_json::json!([]));
    assert!(result["wall_seconds"].as_f64().unwrap() > 0.0);
    assert!(result["cpu_seconds"].as_f64().unwrap() > 0.0, "{result:#}");
    assert!(result["peak_memory_bytes"].as_u64().unwrap() > 1 << 20);
    assert!(
        result["reasons"]["signal"]
            .as_str()
            .unwrap()
            .contains("no signal")
    );
    // Nothing else is left beside it.
    let names = fs::read_dir(&world.place).unwrap().flatten();
    let names: BTreeSet<_> = names.map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["home", "result.json"].map(Into::into).into());
}

/// The same of a jail that Landlock makes, whose private directories stand outside.
#[test]
fn a_result_of_landlocks_jail() {
    let world = World::new();
    let landlock = ["--backend", "landlock"];
    let (status, told) = result(&world, &landlock, "printf 12345 > new; exit 3");
    expect_reasons(&told);
    assert_eq!((status, &told["exit"]), (3, &3.into()));
    assert_eq!(told["project_changed_bytes"], 5);
    assert!(
        told["peak_memory_bytes"].as_u64().unwrap() > 1 << 20,
        "{told:#}"
    );
    let (status, told) = result(
        &world,
        &["--backend", "landlock", "--timeout", "0.3"],
        "exec sleep 50",
    );
    assert_eq!((status, &told["end"]), (124, &"timeout".into()));
    // There every such jail may make files, and one of its own could be taken for the result.
    let at = format!("/dev/shm/result-{}.json", std::process::id());
    let words = [
        "-q",
        "--backend",
        "landlock",
        "run",
        "--result",
        &at,
        "true",
    ];
    let output = world.call(words).run();
    assert_eq!(output.code, 125);
    let writes = "the jail can write in `/dev/shm`";
    assert!(output.err().contains(writes), "{}", output.err());
}

#[test]
fn a_result_tells_signals_and_what_was_not_started() {
    let world = World::new();
    let (status, killed) = result(&world, &[], "kill -9 $$");
    expect_reasons(&killed);
    assert_eq!(status, 137);
    assert_eq!(
        (&killed["end"], &killed["signal"]),
        (&"signal".into(), &9.into())
    );
    let file = world.place.join("result.json");
    let words = [
        "-q",
        "run",
        "--result",
        file.to_str().unwrap(),
        "no-such-command",
    ];
    let output = world.call(words).run();
    assert_eq!(output.code, 127);
    let missing: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    expect_reasons(&missing);
    assert_eq!(
        (&missing["end"], &missing["status"]),
        (&"error".into(), &127.into())
    );
    assert!(
        missing["error"]
            .as_str()
            .unwrap()
            .contains("no-such-command")
    );
    assert!(missing["wall_seconds"].is_null());
}

/// The page has a row for each key, and no other.
#[test]
fn every_key_of_a_result_is_documented() {
    let world = World::new();
    let (_, result) = result(&world, &[], "true");
    let page = fs::read_to_string(root().join("docs/reference/result.md")).unwrap();
    let rows: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(key, _)| key)
        .collect();
    let keys = result.as_object().unwrap();
    let keys: BTreeSet<&str> = keys.keys().map(String::as_str).collect();
    assert_eq!(rows, keys);
}

#[test]
fn a_command_is_ended_when_its_time_is_over() {
    let world = World::new();
    for (script, signal) in [
        ("exec sleep 100", Value::from(15)),
        // What it makes of the signal changes nothing for the caller.
        (
            "trap 'exit 0' TERM; while :; do sleep 0.05; done",
            Value::Null,
        ),
    ] {
        let begun = Instant::now();
        let (status, result) = result(&world, &["--timeout", "3s"], script);
        expect_reasons(&result);
        assert_eq!(status, 124, "{script}");
        assert_eq!(
            (&result["end"], &result["signal"]),
            (&"timeout".into(), &signal)
        );
        assert!(begun.elapsed() < Duration::from_secs(12), "it was killed");
    }
    let call = world.call(["-q", "run", "--timeout", "1h", "sh", "-c", "exit 4"]);
    assert_eq!(call.run().code, 4);
}

/// Nothing in the jail outlives SIGKILL, whatever it does about SIGTERM.
#[test]
fn a_command_that_ignores_its_end_is_killed_with_all_in_the_jail() {
    let world = World::new();
    let mark = format!("86{}", std::process::id());
    let script = format!("trap '' TERM; setsid sleep {mark} & while :; do sleep 1; done");
    let begun = Instant::now();
    let (status, result) = result(&world, &["--timeout", "3s"], &script);
    assert_eq!(status, 124);
    assert_eq!(
        (&result["end"], &result["signal"]),
        (&"timeout".into(), &9.into())
    );
    assert!(begun.elapsed() >= Duration::from_secs(13));
    let gone = || {
        !fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&mark)
        })
    };
    until("the last process is gone", gone);
}

/// A launcher that nobody continues: nobody watches a caller that is a program. It stops like its command, or is stopped with
/// its process group, as processes of the jail can do on kernels before Landlock ABI 6.
#[test]
fn a_command_that_is_stopped_ends_when_its_time_is_over() {
    let world = World::new();
    let file = world.place.join("result.json");
    for (backend, script, by_others) in [
        ("bwrap", "kill -STOP $$", false),
        ("landlock", "kill -STOP $$", false),
        ("bwrap", "echo started; exec sleep 100", true),
        // Stopped again when it is asked to end.
        (
            "bwrap",
            "trap 'kill -STOP $$' TERM; kill -STOP $$; while :; do sleep 1; done",
            false,
        ),
    ] {
        let begun = Instant::now();
        let words = ["-q", "--backend", backend, "run", "--result"];
        let words = words.into_iter().chain([file.to_str().unwrap()]);
        let run = ["--timeout", "2s", "--", "sh", "-c", script];
        let mut child = world.call(words.chain(run)).start();
        if by_others {
            let mut line = [0; 8];
            let mut output = child.stdout.take().unwrap();
            output.read_exact(&mut line).unwrap();
            let pid = Pid::from_raw(child.id().try_into().unwrap());
            kill(pid, Signal::SIGSTOP).unwrap();
        }
        let status = wait(&mut child, script);
        assert_eq!(status.code(), Some(124), "{backend}: {script}");
        let told: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(told["end"], "timeout", "{script}");
        let killed = script.starts_with("trap");
        assert_eq!(told["signal"], if killed { 9 } else { 15 }, "{script}");
        let most = if killed { 20 } else { 11 };
        assert!(begun.elapsed() < Duration::from_secs(most), "{script}");
    }
}

#[test]
fn options_of_run_are_judged() {
    let world = World::new();
    for (words, says) in [
        (&["run", "--timeout", "soon", "true"][..], "is no time"),
        (&["run", "--timeout", "0", "true"], "leave --timeout out"),
        (&["run", "--result", "/", "true"], "names no file"),
        (&["run", "--result", "/nowhere/x", "true"], "does not exist"),
        (&["run", "--result", "/proc/x", "true"], "its directory"),
        (
            &["run", "--dry-run", "--timeout", "1m", "true"],
            "--dry-run",
        ),
    ] {
        let output = world.call(words).run();
        assert_eq!(output.code, 125, "{words:?}");
        assert!(output.err().contains(says), "{words:?}: {}", output.err());
    }
}

/// Runs with `--result FILE`, which must be refused before anything starts.
#[track_caller]
fn expect_refused(world: &World, file: &Path, says: &str) {
    let words = ["-q", "run", "--result", file.to_str().unwrap()];
    let output = world
        .call(words.into_iter().chain(["--", "touch", "started"]))
        .run();
    assert_eq!(output.code, 125, "{}: {}", file.display(), output.err());
    assert!(output.err().contains(says), "{}", output.err());
    assert!(
        !world.project.join("started").exists(),
        "{}",
        file.display()
    );
}

/// Attacks on the file: a place that the jail can write, ways that an earlier session has bent.
#[test]
fn a_result_never_stands_where_the_jail_writes() {
    let world = World::new();
    let victim = world.write("home/.ssh/result.json", "victim");
    let outside = world.place.join("outside");
    fs::create_dir(&outside).unwrap();
    let writes = "the jail can write in";
    expect_refused(&world, Path::new("result.json"), writes);
    expect_refused(
        &world,
        &world.project.join("sub/../result.json"),
        "does not exist",
    );
    fs::create_dir(world.project.join("sub")).unwrap();
    expect_refused(&world, &world.project.join("sub/result.json"), writes);
    // A directory of the project that is a link to the keys.
    symlink(world.home.join(".ssh"), world.project.join("out")).unwrap();
    expect_refused(&world, &world.project.join("out/result.json"), writes);
    // A way of the user's own that leads through the project.
    symlink(world.project.join("out"), outside.join("way")).unwrap();
    expect_refused(&world, &outside.join("way/result.json"), writes);
    // From outside into the project.
    symlink(world.project.join("sub"), outside.join("in")).unwrap();
    expect_refused(&world, &outside.join("in/result.json"), writes);
    // The file itself is a link, or no file.
    symlink(&victim, outside.join("link")).unwrap();
    expect_refused(&world, &outside.join("link"), "no regular file");
    fs::create_dir(outside.join("directory")).unwrap();
    expect_refused(&world, &outside.join("directory"), "no regular file");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "victim");
    // What a profile or option makes writable counts as the project does.
    let file = outside.join("result.json");
    let write = ["--write", outside.to_str().unwrap()];
    let words = ["-q", "run", "--result", file.to_str().unwrap()];
    let call = world.call(words.into_iter().chain(write).chain(["true"]));
    let output = call.run();
    assert_eq!(output.code, 125);
    assert!(output.err().contains(writes), "{}", output.err());
}

#[test]
fn an_older_result_is_gone_before_the_command_starts() {
    let world = World::new();
    let file = world.write("result.json", "old");
    let words = ["-q", "run", "--result", file.to_str().unwrap()];
    let script = ["sh", "-c", "echo started; exec sleep 100"];
    let mut child = world.call(words.into_iter().chain(script)).start();
    until("the old result is gone", || !file.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    // A launcher that was killed leaves none: nobody takes an old one for it.
    assert!(!file.exists());
}
