//! `doctor`: what it says on this machine, and of things that are made wrong for it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::world::{CANARY, Call, Output, World, binary, has, not_checked, wait};

/// Without Slurm, of which a test machine may have the commands and no cluster.
const ALONE: [&str; 3] = ["--set", "slurm.mode=off", "doctor"];

fn doctor<'a>(world: &'a World, words: &[&str]) -> Call<'a> {
    world.call([&ALONE[..], words].concat())
}

/// The lines by name; whatever the exit code is.
#[track_caller]
fn read(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output}"))
}

#[track_caller]
fn line<'a>(json: &'a Value, name: &str) -> &'a Value {
    let all = json["checks"].as_array().unwrap();
    let line = all.iter().find(|line| line["name"] == name);
    line.unwrap_or_else(|| panic!("no `{name}` in {json:#}"))
}

#[track_caller]
fn says(json: &Value, name: &str, status: &str, found: &str) {
    let line = line(json, name);
    let text = line["found"].as_str().unwrap();
    assert!(
        line["status"] == status && text.contains(found),
        "expected {status} `{found}`: {line:#}"
    );
}

#[test]
fn a_session_would_start_here_and_the_keys_are_stable() {
    let world = World::new();
    let begun = Instant::now();
    let output = doctor(&world, &["--json"]).run();
    println!("doctor took {} ms", begun.elapsed().as_millis());
    let json = output.json();
    assert_eq!(output.err(), "");
    for (key, kind) in [
        ("version", "string"),
        ("node", "string"),
        ("executable", "string"),
        ("digest", "string"),
        ("backend", "string"),
        ("why", "string"),
        ("starts", "bool"),
        ("checks", "array"),
        ("absent", "array"),
        ("parts", "object"),
    ] {
        let value = &json[key];
        let good = match kind {
            "string" => value.is_string(),
            "bool" => value.is_boolean(),
            "object" => value.is_object(),
            _ => value.is_array(),
        };
        assert!(good, "{key}: {json:#}");
    }
    assert_eq!(json.as_object().unwrap().len(), 10, "{json:#}");
    let mut names = BTreeSet::new();
    for line in json["checks"].as_array().unwrap() {
        let status = line["status"].as_str().unwrap();
        assert!(["ok", "degraded", "broken"].contains(&status), "{line:#}");
        let fix = line["fix"].as_str().unwrap();
        assert_eq!(fix.is_empty(), status == "ok", "{line:#}");
        assert!(!line["found"].as_str().unwrap().is_empty(), "{line:#}");
        assert!(line["group"].is_string(), "{line:#}");
        assert!(
            names.insert(line["name"].as_str().unwrap().to_owned()),
            "twice: {line:#}"
        );
    }
    for name in ["jail-bwrap", "jail-landlock", "session"] {
        says(&json, name, "ok", "a session started and ended");
        assert!(line(&json, name)["milliseconds"].is_u64(), "{json:#}");
    }
    says(
        &json,
        "filtered-network",
        "ok",
        "a session reached what it may reach",
    );
    assert_eq!(json["starts"], true);
    assert_eq!(json["backend"], "bwrap");
}

/// What it may not reach is no fault of the node's, and a session that cannot be had is no fault of other sessions'.
#[test]
fn a_filtered_network_is_tried_as_far_as_the_policy_permits() {
    let world = World::new();
    world.policy("[network]\ndeny = [\"localhost\"]\n");
    let json = doctor(&world, &["--json"]).run().json();
    let found = "a session started and ended; connections were not tried";
    says(&json, "filtered-network", "ok", found);
    // Under Landlock the mediator leads connections (its ABI 4), and a server on the host's loopback is reached as well.
    world.policy("");
    let json = doctor(&world, &["--json", "--backend", "landlock"]).run();
    let json = json.json();
    says(&json, "session", "ok", "a session started");
    let reached = "a session reached what it may reach";
    says(&json, "filtered-network", "ok", reached);
}

#[test]
fn it_is_read_on_eighty_columns() {
    let world = World::new();
    let output = doctor(&world, &[]).run();
    let text = output.out();
    assert_eq!((output.code, output.err().as_str()), (0, ""), "{output}");
    assert!(!text.contains('\u{1b}'), "no colour: {output}");
    for heading in [
        "Node",
        "Jail",
        "Files",
        "Policy",
        "Tools",
        "Not part of this version",
    ] {
        assert!(
            text.lines().any(|line| line == heading),
            "no heading `{heading}`: {output}"
        );
    }
    assert!(
        text.ends_with(
            "A session would start. bubblewrap makes its jail: it works here, and is the\n    first choice.\n"
        ),
        "{output}"
    );
    let long: Vec<&str> = text
        .lines()
        .filter(|line| line.chars().count() > 80 && line.trim().contains(' '))
        .filter(|line| !line.contains("[PLACE]"))
        .collect();
    assert!(long.is_empty(), "{long:?}");
    // Only problems; and where there is none, nothing.
    let quiet = doctor(&world, &["-q"]).run();
    let problems = text
        .lines()
        .filter(|line| line.starts_with("  degraded"))
        .count();
    assert_eq!(
        quiet
            .out()
            .lines()
            .filter(|line| line.starts_with("  degraded"))
            .count(),
        problems
    );
    assert!(!quiet.out().contains("  ok  "), "{quiet}");
}

#[test]
fn it_leaves_nothing_and_tells_no_secret() {
    let world = World::new();
    world.policy(&format!("[env.set]\nMY_TOKEN = \"{CANARY}\"\n"));
    // Not the records that sessions of other tests make meanwhile.
    let before = files(&world.place);
    for words in [&["--json"][..], &[], &["--backend", "landlock"]] {
        let output = doctor(&world, words).run();
        assert_eq!(output.code, 0, "{output}");
        assert!(!output.out().contains(CANARY), "{output}");
    }
    assert_eq!(files(&world.place), before);
    assert_eq!(scratch(), BTreeSet::new());
}

/// Ended in the middle, it ends what it started, and leaves nothing either.
#[test]
fn ended_by_a_signal_it_leaves_nothing() {
    let world = World::new();
    for delay in [1, 30, 80, 150] {
        let mut child = doctor(&world, &[]).start();
        std::thread::sleep(Duration::from_millis(delay));
        kill(
            Pid::from_raw(child.id().try_into().unwrap()),
            Signal::SIGTERM,
        )
        .unwrap();
        let _ = wait(&mut child, "doctor");
    }
    assert_eq!(scratch(), BTreeSet::new());
    let own = world.place.display().to_string();
    let left: Vec<String> = processes()
        .into_iter()
        .filter(|words| words.contains(&own))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Directories of trials that are there and whose doctor is not.
fn scratch() -> BTreeSet<String> {
    // Other tests of this suite run at the same time, each for well below this.
    const PATIENCE: Duration = Duration::from_secs(10);
    let until = Instant::now() + PATIENCE;
    let all = || {
        let mut all = BTreeSet::new();
        for entry in fs::read_dir("/tmp").unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let own = entry.metadata().is_ok_and(|meta| {
                std::os::unix::fs::MetadataExt::uid(&meta) == nix::unistd::getuid().as_raw()
            });
            if own && name.starts_with("agent-sandbox-doctor.") {
                all.insert(name);
            }
        }
        all
    };
    let mut left = all();
    while !left.is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
        left = left.intersection(&all()).cloned().collect();
    }
    left
}

fn processes() -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let words = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    words
        .map(|words| String::from_utf8_lossy(&words).replace('\0', " "))
        .collect()
}

fn files(below: &Path) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut waiting = vec![below.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap().flatten() {
            all.insert(entry.path().display().to_string());
            if entry.file_type().unwrap().is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    all
}

#[test]
fn a_home_is_no_project_and_says_so() {
    let world = World::new();
    let output = doctor(&world, &["--json"]).cwd(&world.home).run();
    assert_eq!(output.code, 0, "a session starts in a project: {output}");
    let json = read(&output);
    says(&json, "project", "degraded", "home directory");
    says(&json, "session", "ok", "a session started");
    // But not in the one that was named.
    let home = world.home.to_str().unwrap();
    let output = doctor(&world, &["--json", "-C", home]).run();
    assert_eq!(output.code, 1, "{output}");
    let json = read(&output);
    says(&json, "project", "broken", "home directory");
    assert_eq!(
        (&json["starts"], &json["backend"]),
        (&Value::Bool(false), &Value::Null)
    );
}

#[test]
fn a_home_behind_a_link_is_described() {
    let world = World::new();
    let link = world.place.join("link");
    symlink(&world.home, &link).unwrap();
    let output = doctor(&world, &["--json"]).variable("HOME", &link).run();
    let json = read(&output);
    says(
        &json,
        "home",
        "degraded",
        "is a link that others than administrators can change",
    );
    let fix = line(&json, "home")["fix"].as_str().unwrap();
    assert_eq!(fix, format!("export HOME='{}'", world.home.display()));
    // A home that everybody may write.
    fs::set_permissions(&world.home, fs::Permissions::from_mode(0o777)).unwrap();
    let json = read(&doctor(&world, &["--json"]).run());
    says(
        &json,
        "home",
        "degraded",
        "others may write there (mode 0777)",
    );
}

#[test]
fn a_broken_policy_is_shown_with_its_line() {
    let world = World::new();
    world.policy("[jail]\nmax_proceses = 3\n");
    let output = world.call(["doctor"]).run();
    assert_eq!(output.code, 1, "{output}");
    let text = output.out();
    for words in [
        "  broken   policy           ",
        "config.toml:2",
        "max_proceses = 3",
        "did you mean `max_processes`",
        "No session would start: ",
    ] {
        assert!(text.contains(words), "no `{words}`: {output}");
    }
    let json = read(&doctor(&world, &["--json"]).run());
    assert_eq!(json["digest"], Value::Null);
}

/// A section for a directory that is not there changes nothing, and nobody would notice.
#[test]
fn a_section_for_no_directory_is_said() {
    let world = World::new();
    let text = "[projects.\"~/project\".jail]\nmax_processes = 500\n[projects.\"~/proiect\".jail]\nmax_processes = 400\n";
    world.policy(text);
    let json = read(&doctor(&world, &["--json"]).run());
    says(
        &json,
        "policy",
        "degraded",
        "no such directory: [projects.\"~/proiect\"]",
    );
}

/// Of what depends on it nothing is claimed.
#[test]
fn with_a_policy_that_cannot_be_read_nobody_says_that_there_is_no_slurm() {
    let world = World::new();
    let policy = world.policy("");
    fs::set_permissions(&policy, fs::Permissions::from_mode(0o000)).unwrap();
    let output = world.call(["doctor", "--json"]).run();
    assert_eq!(output.code, 1, "{output}");
    let json = read(&output);
    says(&json, "policy", "broken", "config.toml");
    says(&json, "slurm-commands", "degraded", "nobody looked");
}

#[test]
fn a_policy_that_no_jail_can_have_is_in_the_way() {
    let world = World::new();
    world.policy("[jail]\nusers = \"filtered\"\n");
    let output = doctor(&world, &["--json", "--backend", "landlock"]).run();
    assert_eq!(output.code, 1, "{output}");
    let json = read(&output);
    says(&json, "session", "broken", "the same as jail-landlock");
    says(&json, "jail-landlock", "broken", "what the policy demands");
    says(&json, "jail-bwrap", "ok", "started");
    let fix = line(&json, "jail-landlock")["fix"].as_str().unwrap();
    assert!(fix.contains("landlock.users=degraded"), "{fix}");
}

/// In a user namespace of one's own, as in some containers: root is not root there, and no other can
/// be made. Nothing can be trusted, and it says so.
#[test]
fn in_a_user_namespace_of_ones_own_nothing_can_be_trusted() {
    let world = World::new();
    let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
    // In the outer one the user is root and sets the limit; in the inner one the user is himself.
    let script = format!(
        "echo 1 > /proc/sys/user/max_user_namespaces && \
         exec unshare --user --map-user={uid} --map-group={gid} \"$@\""
    );
    let outer = [
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        &script,
        "sh",
    ];
    let output = doctor(&world, &["--json"]).by(outer).run();
    if output.stdout.is_empty() {
        return not_checked("doctor in a user namespace", &output.err());
    }
    let json = read(&output);
    assert_eq!((output.code, &json["starts"]), (1, &Value::Bool(false)));
    says(
        &json,
        "user-namespaces",
        "broken",
        "user.max_user_namespaces",
    );
    let fix = line(&json, "user-namespaces")["fix"].as_str().unwrap();
    assert_eq!(
        fix,
        "ask your administrators: raise user.max_user_namespaces"
    );
    says(
        &json,
        "bubblewrap",
        "broken",
        "`/usr/bin/bwrap` is not root's own",
    );
    says(&json, "jail-landlock", "broken", "there is no place");
    says(&json, "node-local", "broken", "neither /tmp");
}

#[test]
fn a_program_of_ours_that_is_missing_is_named() {
    if !has("squeue") {
        return not_checked("doctor without a shim", "no Slurm on this machine");
    }
    let world = World::new();
    let alone = world.place.join("bin/agent-sandbox");
    fs::create_dir(alone.parent().unwrap()).unwrap();
    fs::copy(binary(), &alone).unwrap();
    let output = std::process::Command::new(alone)
        .args(["doctor", "--json"])
        .current_dir(&world.project)
        .env_clear()
        .envs(world.environment())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    says(
        &json,
        "slurm-programs",
        "broken",
        "not installed: agent-sandbox-chaperon, agent-sandbox-shim",
    );
    says(&json, "session", "broken", "the same as jail-bwrap");
}

#[test]
fn inside_a_jail_it_refuses() {
    let world = World::new();
    let program = binary();
    let directory = program.parent().unwrap().display().to_string();
    for words in [&["doctor"][..], &["doctor", "--nodes", "debug"]] {
        let inside = [&["--read", &directory, program.to_str().unwrap()], words].concat();
        let output = world.quiet(inside).run();
        assert_eq!((output.code, output.out().as_str()), (125, ""), "{output}");
        assert!(
            output
                .err()
                .starts_with("error: this is the inside of a jail"),
            "{output}"
        );
    }
}

#[test]
fn doctor_starts_no_program_of_the_projects() {
    let world = World::new();
    let all = [
        "tmux", "bwrap", "squeue", "sinfo", "srun", "scontrol", "bash", "sh", "true", "date",
    ];
    let ran = world.place.join("ran");
    for name in all {
        let script = format!("#!/bin/sh\ntouch {}\n", ran.display());
        world.program(&format!("home/project/bin/{name}"), &script);
    }
    let path = format!("{}:/usr/bin:/bin", world.project.join("bin").display());
    let output = doctor(&world, &["--json"]).variable("PATH", &path).run();
    says(&read(&output), "tmux", "ok", "/home/project/bin/tmux");
    let _ = world
        .call(["doctor", "--nodes", "debug"])
        .variable("PATH", &path)
        .run();
    assert!(!ran.exists(), "{output}");
}

#[test]
fn names_of_partitions_and_nodes_are_strict() {
    let world = World::new();
    for name in ["a b", "", "a\nb", ",a", "a;b", "a/b", "$a"] {
        let output = world.call(["doctor", "--nodes", name]).run();
        assert_eq!((output.code, output.out().as_str()), (125, ""), "{output}");
        assert!(output.err().contains("no name of a partition"), "{output}");
    }
}
