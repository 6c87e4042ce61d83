//! Rules of a filtered network that change while its session runs: by the user, and never by who is inside.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::backend::is_landlock;
use crate::network::{server, this_host};
use crate::world::{Output, Running, World, launcher, not_checked, wait_for};

/// Calls the launcher outside of a jail.
fn outside(world: &World, words: &[&str]) -> Output {
    let launcher = launcher();
    let all = [&[launcher.to_str().unwrap()], words].concat();
    world.outside().run(&all)
}

/// The id of the one session that runs, once it has done as far as this file.
fn session(world: &World, file: &str) -> String {
    wait_for(file, || world.project(file).exists().then_some(())).unwrap();
    let list = outside(world, &["sessions"]).stdout;
    let line = list.lines().nth(1).unwrap_or_else(|| panic!("{list}"));
    line.split_whitespace().next().unwrap().to_owned()
}

/// Waits for a line in the record of hosts.
fn recorded(world: &World, words: &str) {
    let seen = || {
        let log = outside(world, &["log", "--network"]).stdout;
        log.contains(words).then_some(())
    };
    wait_for(words, seen).unwrap();
}

/// A step of the script inside: what it asks, and then waits for a file.
fn step(name: &str, ask: &str) -> String {
    format!(
        "echo \"{name}: $({ask} 2>&1)\"; touch {name}; until [ -e after-{name} ]; do sleep 0.05; done; "
    )
}

fn go_on(world: &World, name: &str) {
    fs::write(world.project(&format!("after-{name}")), "").unwrap();
}

fn line<'a>(output: &'a Output, name: &str) -> &'a str {
    let begins = format!("{name}: ");
    let mut lines = output.stdout.lines();
    lines
        .find(|line| line.starts_with(&begins))
        .unwrap_or_else(|| panic!("{name}: {output:?}"))
}

fn started<'a>(world: &'a World, host: &str, steps: &[String]) -> Running<'a> {
    let private = format!("network.private=[\"{host}\"]");
    world
        .loud([
            "--set",
            "network.mode=filtered",
            "--set",
            &private,
            "--set",
            "network.deny=[\"bad.example\"]",
        ])
        .start(&["bash", "-c", &steps.concat()])
}

#[test]
fn a_session_that_runs_is_given_a_host_from_outside_alone() {
    let Some((host, _)) = this_host() else { return };
    let world = World::new();
    let port = server();
    let ask = format!("curl -sS -m 20 http://{host}:{port}/");
    let attack = "agent-sandbox allow anything evil.example; \
                  find / -xdev -name '*.socket' -path '*sessions*' 2>/dev/null | wc -l; \
                  ls ~/.local/state/agent-sandbox/sessions";
    let running = started(
        &world,
        &host,
        &[
            step("before", &ask),
            step("given", &ask),
            step("inside", attack),
        ],
    );
    let id = session(&world, "before");
    let target = format!("{host}:{port}");
    for (words, why) in [
        (vec!["allow", "nobody", &target], "no session `nobody`"),
        (vec!["allow", &id, "bad.example"], "network.deny"),
        (vec!["allow", &id, "https://a.example/"], "URL"),
        (vec!["allow", &id, "\", \"*"], "no host"),
        (vec!["allow", &id, "a.example:1-2000"], "ports"),
    ] {
        let refused = outside(&world, &words);
        assert_eq!(refused.code(), 125, "{words:?}: {refused:?}");
        assert!(refused.stderr.contains(why), "{words:?}: {refused:?}");
    }
    let socket = world.home(&format!(".local/state/agent-sandbox/sessions/{id}.socket"));
    let mode = fs::metadata(&socket).map(|meta| meta.permissions().mode() & 0o777);
    assert!(mode.is_err() || matches!(mode, Ok(0o600)), "{mode:?}");
    let given = outside(&world, &["allow", &id, &target]);
    assert_eq!(given.code(), 0, "{given:?}");
    recorded(
        &world,
        &format!("{target} given with `agent-sandbox allow`"),
    );
    ["before", "given", "inside"]
        .iter()
        .for_each(|name| go_on(&world, name));
    let output = running.wait();
    assert!(!line(&output, "before").contains("served"), "{output:?}");
    assert!(line(&output, "given").contains("served"), "{output:?}");
    assert!(
        output.stderr.contains("gives itself no hosts"),
        "{output:?}"
    );
    assert!(line(&output, "inside").ends_with(": 0"), "{output:?}");
    assert!(!socket.exists());
    assert_eq!(outside(&world, &["allow", &id, &target]).code(), 125);
}

#[test]
fn what_the_user_writes_holds_in_sessions_that_run() {
    let Some((host, _)) = this_host() else { return };
    let world = World::new();
    let port = server();
    let ask = format!("curl -sS -m 20 http://{host}:{port}/");
    let steps = [
        step("before", &ask),
        step("allowed", &ask),
        step("broken", &ask),
        step("denied", &ask),
    ];
    let running = started(&world, &host, &steps);
    session(&world, "before");
    let config = world.home(".config/agent-sandbox/config.toml");
    let changes = "the policy in the user's files has changed";
    world.put(
        &config,
        &format!("[network]\nallow = [\"{host}:{port}\"]\n"),
    );
    recorded(&world, changes);
    go_on(&world, "before");
    session(&world, "allowed");
    // What is no policy changes nothing; a file takes the place of another, as editors do it.
    let beside = world.home(".config/agent-sandbox/new.toml");
    world.put(&beside, "[network]\nallow = [\n");
    fs::rename(&beside, &config).unwrap();
    recorded(&world, "they stay as they are");
    go_on(&world, "allowed");
    session(&world, "broken");
    world.put(
        &config,
        &format!("[network]\nallow = [\"{host}:{port}\"]\ndeny = [\"{host}\"]\n"),
    );
    let twice = || {
        let log = outside(&world, &["log", "--network"]).stdout;
        (log.matches(changes).count() == 2).then_some(())
    };
    wait_for("the second change", twice).unwrap();
    go_on(&world, "broken");
    go_on(&world, "denied");
    let output = running.wait();
    for (name, served) in [
        ("before", false),
        ("allowed", true),
        ("broken", true),
        ("denied", false),
    ] {
        assert_eq!(
            line(&output, name).contains("served"),
            served,
            "{name}: {output:?}"
        );
    }
    let told = output
        .stderr
        .matches("the network's rules stay as they are");
    assert_eq!(told.count(), 1, "{output:?}");
}

#[test]
fn what_the_user_removes_holds_at_once_and_an_editor_that_saves_removes_nothing() {
    if is_landlock() {
        return not_checked(
            "rules that change",
            "Landlock makes no network of the jail's own",
        );
    }
    let Some((host, _)) = this_host() else { return };
    let world = World::new();
    let port = server();
    let ask = format!("curl -sS -m 20 http://{host}:{port}/");
    let steps = [step("saved", &ask), step("removed", &ask)];
    let private = format!("network.private=[\"{host}\"]");
    let config = world.home(".config/agent-sandbox/config.toml");
    let text = format!("[network]\nallow = [\"{host}:{port}\"]\n");
    world.put(&config, &text);
    let profile = world.home(".config/agent-sandbox/profiles/mine.toml");
    world.put(&profile, "[network]\nallow = [\"mine.example\"]\n");
    let running = world
        .loud([
            "--set",
            "network.mode=filtered",
            "--set",
            &private,
            "--profile",
            "mine",
        ])
        .start(&[
            "bash",
            "-c",
            &format!(
                "touch up; until [ -e go ]; do sleep 0.05; done; {}",
                steps.concat()
            ),
        ]);
    session(&world, "up");
    // As vim does where it may: the old file gets another name, and a new one is written.
    let changes = "the policy in the user's files has changed";
    fs::rename(&config, world.home(".config/agent-sandbox/config.toml~")).unwrap();
    world.put(&config, &text);
    fs::write(world.project("go"), "").unwrap();
    session(&world, "saved");
    // Nothing happens for that long.
    std::thread::sleep(std::time::Duration::from_millis(700));
    let log = outside(&world, &["log", "--network"]).stdout;
    assert!(!log.contains(changes), "{log}");
    fs::remove_file(&config).unwrap();
    recorded(&world, changes);
    go_on(&world, "saved");
    session(&world, "removed");
    // A profile that was asked for and is gone is no policy.
    fs::remove_file(&profile).unwrap();
    recorded(&world, "they stay as they are");
    go_on(&world, "removed");
    let output = running.wait();
    assert!(line(&output, "saved").contains("served"), "{output:?}");
    assert!(!line(&output, "removed").contains("served"), "{output:?}");
    assert!(
        output.stderr.contains("rules stay as they are"),
        "{output:?}"
    );
}

/// A core file of the launcher, or of who keeps the rules, would be written into the project, with the user's variables in it.
#[test]
fn the_launcher_and_what_it_forks_leave_no_core_file() {
    if is_landlock() {
        return not_checked(
            "who keeps the rules",
            "Landlock makes no network of the jail's own",
        );
    }
    let world = World::new();
    let steps = [step("up", "true")];
    let running = started(&world, "localhost", &steps);
    session(&world, "up");
    let list = outside(&world, &["sessions"]).stdout;
    let launcher = list
        .lines()
        .nth(1)
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap();
    let children =
        fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap();
    let named = |process: &&str| {
        let comm = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        comm.trim_end() == "agent-sandbox"
    };
    let forked: Vec<&str> = children.split_whitespace().filter(named).collect();
    assert!(!forked.is_empty(), "nobody keeps the rules: {children}");
    // The kernel shows the memory of a process to its user as far as it dumps it (`proc(5)`, `PR_SET_DUMPABLE`).
    assert!(fs::read("/proc/self/environ").is_ok());
    // Of the launcher's memory nothing is dumped, and its user's other launchers see it still (core(5)).
    let filter = fs::read_to_string(format!("/proc/{launcher}/coredump_filter")).unwrap();
    assert_eq!(filter.trim(), "00000000");
    for process in forked {
        let environment = fs::read(format!("/proc/{process}/environ"));
        let kind = environment.map_err(|error| error.kind());
        assert_eq!(
            kind,
            Err(std::io::ErrorKind::PermissionDenied),
            "{process} of {children}"
        );
    }
    go_on(&world, "up");
    assert_eq!(running.wait().code(), 0);
}

#[test]
fn a_policy_that_the_session_can_change_is_not_followed() {
    let Some((host, _)) = this_host() else { return };
    let world = World::new();
    let port = server();
    let write = format!("printf '[network]\nallow = [\"{host}:{port}\"]\n' > policy.toml");
    let ask = format!("curl -sS -m 20 http://{host}:{port}/");
    let running = started(
        &world,
        &host,
        &[step("written", &write), step("asked", &ask)],
    );
    let id = session(&world, "written");
    // A launch would refuse a directory of policy in its project; the user makes the link later.
    fs::create_dir_all(world.home(".config/agent-sandbox")).unwrap();
    let config = world.home(".config/agent-sandbox/config.toml");
    symlink(world.project("policy.toml"), config).unwrap();
    // Whoever reads the policy now would read what was written inside.
    let refused = outside(&world, &["allow", &id, "other.example"]);
    assert!(
        refused.stderr.contains("which this session can change"),
        "{refused:?}"
    );
    go_on(&world, "written");
    go_on(&world, "asked");
    let output = running.wait();
    assert!(!line(&output, "asked").contains("served"), "{output:?}");
}

/// A profile that was a link to a file in the project when the session began, which may hold what the user wrote there.
#[test]
fn a_profile_that_the_session_can_change_is_not_followed() {
    let Some((host, _)) = this_host() else { return };
    let world = World::new();
    let port = server();
    let write = format!(
        "printf '[profile]\ncommands = [\"bash\"]\n[network]\nallow = [\"{host}:{port}\"]\n' > mine.toml"
    );
    let ask = format!("curl -sS -m 20 http://{host}:{port}/");
    let running = started(
        &world,
        &host,
        &[step("written", &write), step("asked", &ask)],
    );
    let id = session(&world, "written");
    let profiles = world.home(".config/agent-sandbox/profiles");
    fs::create_dir_all(&profiles).unwrap();
    symlink(world.project("mine.toml"), profiles.join("mine.toml")).unwrap();
    let refused = outside(&world, &["allow", &id, "other.example"]);
    assert!(
        refused.stderr.contains("which this session can change"),
        "{refused:?}"
    );
    go_on(&world, "written");
    go_on(&world, "asked");
    let output = running.wait();
    assert!(!line(&output, "asked").contains("served"), "{output:?}");
}

/// A program inside holds the port that the user's next rule is for.
#[test]
fn what_the_user_takes_away_is_gone_whoever_holds_the_ports() {
    if is_landlock() {
        let why = "where Landlock makes the jail nobody inside holds a port";
        return not_checked("ports that programs inside hold", why);
    }
    let Some((host, _)) = this_host() else { return };
    let world = World::new();
    let port = server();
    let ask = format!("curl -sS -m 20 http://{host}:{port}/");
    let config = world.home(".config/agent-sandbox/config.toml");
    let allow = format!("[network]\nallow = [\"{host}:{port}\", \"other.example:7\"");
    world.put(&config, &format!("{allow}]\n"));
    let hold = "python3 -c 'import socket, time\ns = socket.create_server((\"\", 47811))\n\
                open(\"held\", \"w\")\ntime.sleep(600)' & until [ -e held ]; do sleep 0.05; done; ";
    let running = started(
        &world,
        &host,
        &[hold.to_owned(), step("before", &ask), step("after", &ask)],
    );
    session(&world, "before");
    world.put(
        &config,
        &format!("{allow}, \"third.example:47811\"]\ndeny = [\"{host}\"]\n"),
    );
    recorded(&world, "a program in the jail has port 47811");
    go_on(&world, "before");
    go_on(&world, "after");
    let output = running.wait();
    assert!(line(&output, "before").contains("served"), "{output:?}");
    assert!(!line(&output, "after").contains("served"), "{output:?}");
    assert!(
        output.stderr.contains("hold, but for new ports"),
        "{output:?}"
    );
}
