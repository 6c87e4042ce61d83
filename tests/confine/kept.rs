//! What an agent keeps from session to session of a project, as hostile commands leave it for the next
//! launch, and as they change it while that is under way.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::chosen::{LANDLOCK, is_landlock};
use crate::races::Flipper;
use crate::world::{REFUSED, Run, World, not_checked, wait_for};

const PROFILE: &str = r#"
[profile]
description = "A tool"
commands = ["tool"]

[profile.state]
directories = ["~/.tool"]
login = ["~/.tool/login.json"]
settings = ["~/.tool/settings.json", "~/.tool/rules", "~/.tool/deep/in/settings.json"]

[[profile.state.seed]]
from = "~/.tool.json"
to = "~/.tool/state.json"
keys = ["account"]

[profile.instructions]
name = "TOOL.md"
at = "~/.tool/TOOL.md"
"#;

/// What the user's settings say.
const SETTINGS: &str = "the user's settings\n";
/// What a session sees if all is well, and in this order.
const LOOK: &str = "cat ~/.tool/settings.json ~/.tool/deep/in/settings.json ~/.tool/rules/one";

/// A home in which the tool has been used outside of any jail.
fn world() -> World {
    let world = World::new();
    world.put(
        &world.home(".config/agent-sandbox/profiles/tool.toml"),
        PROFILE,
    );
    for name in ["settings.json", "deep/in/settings.json", "rules/one"] {
        world.put(&world.home(".tool").join(name), SETTINGS);
    }
    world.secret(&world.home(".tool/history"));
    fs::create_dir_all(world.home(".local/state")).unwrap();
    world.put(
        &world.home(".tool.json"),
        &format!("{{\"account\": 7, \"others\": \"{}\"}}", world.marker),
    );
    world
}

fn tool(world: &World) -> Run<'_> {
    world
        .jail(["-p", "tool"])
        .option("--env", format!("REAL={}", world.home("").display()))
}

fn sh(world: &World, script: &str) -> String {
    let output = tool(world).run(&["sh", "-c", script]);
    assert_eq!(output.code(), 0, "{output:?}");
    output.stdout
}

/// The tool's directory in the store of the world's project.
fn kept(world: &World) -> PathBuf {
    let stores = world.home(".local/state/agent-sandbox/kept");
    let project = world.project("").display().to_string();
    let own = fs::read_dir(&stores).unwrap().find_map(|entry| {
        let store = entry.unwrap().path();
        let of = fs::read_to_string(store.join("project")).unwrap();
        (of.trim_end() == project).then_some(store)
    });
    own.unwrap().join("home/.tool")
}

/// Everything in the home but agent-sandbox's own: what each file is, and what it says.
fn everything(world: &World) -> BTreeMap<PathBuf, String> {
    let own = world.home(".local/state/agent-sandbox");
    let mut all = BTreeMap::new();
    let mut left = vec![world.home("")];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let is = path.symlink_metadata().unwrap();
            if path == own {
                continue;
            }
            let says = match is.is_file() {
                true => String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned(),
                false => String::new(),
            };
            let names = match is.is_dir() {
                true => 0,
                false => is.nlink(),
            };
            if is.is_dir() {
                left.push(path.clone());
            }
            all.insert(path, format!("{:o} {names} {says}", is.mode()));
        }
    }
    all
}

/// Nothing of the user's has changed since `before`.
#[track_caller]
fn assert_untouched(world: &World, before: &BTreeMap<PathBuf, String>, when: &str) {
    let after = everything(world);
    let paths = before.keys().chain(after.keys());
    let changed: Vec<_> = paths
        .filter(|path| before.get(*path) != after.get(*path))
        .map(|path| (path, before.get(path), after.get(path)))
        .collect();
    assert!(changed.is_empty(), "{when}: {changed:?}");
}

#[test]
fn state_stays_with_its_project_and_the_users_is_out_of_reach() {
    let world = world();
    let before = everything(&world);
    let seen = sh(
        &world,
        &format!(
            "{LOOK}; cat ~/.tool/state.json; head -1 ~/.tool/TOOL.md; ls -A ~/.tool; echo mine > ~/.tool/history"
        ),
    );
    let listed = "TOOL.md\ndeep\nrules\nsettings.json\nstate.json\n";
    let expected = format!(
        "{}{{\"account\":7}}\n# Your jail\n{listed}",
        SETTINGS.repeat(3)
    );
    assert_eq!(seen, expected);
    assert_eq!(sh(&world, "cat ~/.tool/history"), "mine\n");
    assert_untouched(&world, &before, "after");

    // Another project has none of it, and does not reach it.
    let path = kept(&world).join("history");
    let other = world.outer("other");
    fs::create_dir(&other).unwrap();
    for options in [vec![], vec!["--home", "read"], vec!["--home", "write"]] {
        let mut run = tool(&world).cwd(&other).env("KEPT", &path);
        run.command.args(["--env", "KEPT"]).args(&options);
        let script = "cat ~/.tool/history; cat \"$KEPT\" && echo reached; ls \"$REAL/.local/state/agent-sandbox/kept\"";
        let output = run.run(&["sh", "-c", script]);
        assert!(!output.stdout.contains("mine"), "{options:?} {output:?}");
        assert!(!output.stdout.contains("reached"), "{options:?} {output:?}");
        assert!(
            !output.stdout.contains("work+project"),
            "{options:?} {output:?}"
        );
    }
    // Nor by asking for it.
    for list in ["--read", "--write"] {
        for at in [&path, &world.home(".local/state"), &world.home(".local")] {
            let run = tool(&world).cwd(&other).option(list, at).env("KEPT", &path);
            let output = run
                .option("--env", "KEPT")
                .run(&["sh", "-c", "cat \"$KEPT\""]);
            assert!(
                !output.stdout.contains("mine"),
                "{list} {} {output:?}",
                at.display()
            );
        }
    }
}

#[test]
fn settings_are_read_only_and_come_back() {
    let world = world();
    let before = everything(&world);
    for name in [
        "settings.json",
        "rules/one",
        "rules/new",
        "deep/in/settings.json",
        "TOOL.md",
    ] {
        let output = tool(&world).run(&["sh", "-c", &format!("echo evil > ~/.tool/{name}")]);
        assert_ne!(output.code(), 0, "{name}: {output:?}");
    }
    sh(
        &world,
        "cd ~/.tool && rm -rf settings.json deep rules TOOL.md && mkdir rules && echo evil | tee settings.json rules/one",
    );
    assert_untouched(&world, &before, "after");
    let output = tool(&world).run(&["sh", "-c", LOOK]);
    assert_eq!(output.stdout, SETTINGS.repeat(3));
    // What was in the way is not lost, and the user is told.
    for name in ["settings.json", "rules"] {
        let line = format!("`~/.tool/{name}`: an agent put something in its place");
        assert!(output.stderr.contains(&line), "{output:?}");
        assert!(kept(&world).join(format!("{name}.aside")).exists());
    }
    assert_untouched(&world, &before, "after");
}

/// What hostile commands leave behind. `REAL` is the path of the user's home.
const PLANTS: &[(&str, &str)] = &[
    (
        "a link to a key",
        "ln -sfn \"$REAL/.ssh/id_rsa\" settings.json",
    ),
    ("a link to nothing", "ln -sfn \"$REAL/made\" settings.json"),
    (
        "a link to nothing, as bubblewrap sees it",
        "ln -sfn \"/oldroot$REAL/made\" settings.json",
    ),
    ("a link to itself", "ln -sfn settings.json settings.json"),
    ("a link to a directory", "ln -sfn \"$REAL/.ssh\" rules"),
    ("a link as instructions", "ln -sfn \"$REAL/made\" TOOL.md"),
    (
        "a link above",
        "rm -rf deep/in; ln -sfn \"$REAL/.ssh\" deep/in",
    ),
    (
        "a link further above",
        "rm -rf deep; ln -sfn \"$REAL\" deep",
    ),
    (
        "a relative link above",
        "rm -rf deep; ln -sfn ../../../../../.. deep",
    ),
    ("a file above", "rm -rf deep; echo x > deep"),
    ("a FIFO above", "rm -rf deep; mkfifo deep"),
    (
        "FIFOs",
        "rm -f settings.json state.json login.json; mkfifo settings.json state.json login.json",
    ),
    (
        "directories",
        "rm -f settings.json state.json login.json TOOL.md; mkdir settings.json state.json login.json TOOL.md; touch settings.json/x",
    ),
    (
        "closed directories",
        "chmod 000 deep/in; chmod 000 deep; chmod 000 .",
    ),
    ("open directories", "chmod 777 deep/in deep ."),
    (
        "closed files",
        "rm settings.json; echo x > settings.json; chmod 000 settings.json state.json",
    ),
    (
        "a link as the seeded file",
        "ln -sfn \"$REAL/.tool.json\" state.json",
    ),
    (
        "a link to nothing as the seeded file",
        "ln -sfn \"$REAL/made\" state.json",
    ),
    ("an endless seeded file", "truncate -s 1T state.json"),
    (
        "a deep seeded file",
        "head -c 1000000 /dev/zero | tr '\\0' '[' > state.json",
    ),
    (
        "a link as the login",
        "ln -sfn \"$REAL/.ssh/id_rsa\" login.json",
    ),
    (
        "a link to the user's state as the login",
        "ln -sfn \"$REAL/.tool/history\" login.json",
    ),
    ("an endless login", "truncate -s 1T login.json"),
    ("a login with two names", "echo x > two; ln two login.json"),
    ("an empty login", ": > login.json"),
    (
        "thousands of names",
        "i=0; while [ $i -lt 4000 ]; do : > n$i; i=$((i+1)); done",
    ),
    (
        "the whole directory as a link",
        "cd ..; rm -rf .tool; mv .tool gone; ln -s \"$REAL/.ssh\" .tool; true",
    ),
];

#[test]
fn what_a_session_leaves_behind_leads_the_next_one_nowhere() {
    for (plant, script) in PLANTS {
        let world = world();
        sh(&world, "true");
        let before = everything(&world);
        let output = tool(&world).run(&["sh", "-c", &format!("cd ~/.tool && {{ {script}; }}")]);
        assert_ne!(output.code(), REFUSED, "{plant}: {output:?}");
        assert_untouched(&world, &before, &format!("{plant}, at once"));
        let start = Instant::now();
        let output = tool(&world).run(&["sh", "-c", LOOK]);
        assert_eq!(output.stdout, SETTINGS.repeat(3), "{plant}: {output:?}");
        assert!(start.elapsed() < Duration::from_secs(10), "{plant}");
        assert_untouched(&world, &before, plant);
        let mode = fs::metadata(kept(&world)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700, "{plant}");
    }
}

/// Launches of one race.
const LAUNCHES: u32 = 25;

#[test]
fn a_session_that_runs_does_not_lead_the_launch_of_another_astray() {
    for (name, other) in [
        ("settings.json", "evil"),
        ("deep", "evil"),
        ("state.json", "evil"),
    ] {
        // Mounts over a place in a directory that others change would be made where a link leads, and
        // bubblewrap has the host's files at /oldroot meanwhile.
        for root in ["", "/oldroot"] {
            let world = world();
            sh(&world, "true");
            let before = everything(&world);
            let target = format!("{root}{}/made", world.home("").display());
            symlink(target, kept(&world).join(other)).unwrap();
            let flipper = Flipper::new(&kept(&world).join(name), &kept(&world).join(other));
            let mut ran = 0;
            for _ in 0..LAUNCHES {
                let output = tool(&world).run(&["sh", "-c", "true"]);
                ran += u32::from(output.code() == 0);
            }
            drop(flipper);
            assert_untouched(&world, &before, &format!("{name} {root}"));
            assert!(ran > 0, "{name}: nothing ran");
        }
    }
}

#[test]
fn a_store_that_is_not_as_it_was_made_is_refused() {
    let world = world();
    sh(&world, "true");
    let (kept, stolen) = (kept(&world), world.home("stolen"));
    fs::rename(&kept, &stolen).unwrap();
    for (what, target) in [
        ("a link", world.home(".ssh")),
        ("a link to itself", kept.clone()),
    ] {
        symlink(target, &kept).unwrap();
        let output = tool(&world).run(&["ls", "-A"]);
        assert_eq!(output.code(), REFUSED, "{what}: {output:?}");
        assert!(
            output.stderr.contains(&*kept.to_string_lossy()),
            "{what}: {output:?}"
        );
        fs::remove_file(&kept).unwrap();
    }
    fs::write(&kept, "").unwrap();
    let output = tool(&world).run(&["true"]);
    assert_eq!(output.code(), REFUSED, "{output:?}");
    fs::remove_file(&kept).unwrap();
    assert_eq!(sh(&world, LOOK), SETTINGS.repeat(3));
}

#[test]
fn a_login_that_is_made_inside_is_kept_for_the_user() {
    let world = world();
    let login = world.home(".tool/login.json");
    let output = tool(&world).run(&["sh", "-c", "echo one > ~/.tool/login.json"]);
    let line = "agent-sandbox: the login made in this project was kept: ~/.tool/login.json\n";
    assert_eq!(output.stderr.matches(line).count(), 1, "{output:?}");
    assert_eq!(fs::read_to_string(&login).unwrap(), "one\n");
    assert_eq!(
        fs::metadata(&login).unwrap().permissions().mode() & 0o7777,
        0o600
    );
    let inode = fs::metadata(&login).unwrap().ino();

    // Another project has it, too, and what is refreshed there is the user's, however it is written.
    let other = world.outer("other");
    fs::create_dir(&other).unwrap();
    let scripts = [
        "cat ~/.tool/login.json; echo two > ~/.tool/login.json",
        "cat ~/.tool/login.json; cd ~/.tool; echo three > new; mv new login.json",
    ];
    for (script, says) in scripts.iter().zip(["one\n", "two\n"]) {
        let output = tool(&world).cwd(&other).run(&["sh", "-c", script]);
        assert_eq!(output.stdout, says, "{output:?}");
        assert!(!output.stderr.contains("was kept"), "{output:?}");
    }
    assert_eq!(sh(&world, "cat ~/.tool/login.json"), "three\n");
    assert_eq!(fs::metadata(&login).unwrap().ino(), inode);

    // Whoever logs out is logged out.
    fs::remove_file(&login).unwrap();
    assert_eq!(
        sh(&world, "cat ~/.tool/login.json 2>&1 || true")
            .lines()
            .count(),
        1
    );
    assert!(!login.exists());
}

/// A project has a copy of the login, which must not outlive it; one that was made inside is the project's.
#[test]
fn logging_out_outside_reaches_the_copies() {
    let world = World::new();
    let (file, account) = (
        world.home(".claude/.credentials.json"),
        world.home(".claude.json"),
    );
    let log_in = |name: &str| {
        let text = format!("{{\"claudeAiOauth\": {{\"accessToken\": \"{name}\"}}, \"other\": 1}}");
        world.put(&file, &text);
        world.put(
            &account,
            &format!("{{\"oauthAccount\": \"{name}\", \"theme\": \"dark\"}}"),
        );
    };
    let inside = |script: &str| {
        let output = world.jail(["-p", "claude"]).run(&["sh", "-c", script]);
        assert_eq!(output.code(), 0, "{output:?}");
        output.stdout
    };
    let look = "cd ~/.claude; cat .credentials.json .claude.json 2>&-; true";
    let with = |script: &str| format!("{script}; {look}");
    log_in("ada");
    assert_eq!(inside(look).matches("\"ada\"").count(), 2);
    // The agent notes something, so that its copies are newer than the user's.
    let note = "sed -i 's/}$/,\"history\":[]}/' ~/.claude/.claude.json ~/.claude/.credentials.json";
    assert_eq!(inside(&with(note)).matches("\"ada\"").count(), 2);
    // `claude /logout`.
    fs::remove_file(&file).unwrap();
    world.put(&account, "{\"theme\": \"dark\"}");
    let says = inside(look);
    assert!(!says.contains("ada") && !says.contains("Oauth"), "{says}");
    assert!(
        says.contains("\"theme\":") && says.contains("\"history\":"),
        "{says}"
    );
    // Another login, of the project's own, stays although the user has none.
    let own =
        "echo '{\"claudeAiOauth\": {\"accessToken\": \"own\"}}' > ~/.claude/.credentials.json";
    assert!(inside(&with(own)).contains("own"));
    assert!(inside(look).contains("own"));
    assert!(!file.exists());
    // What cannot be read says nothing.
    std::thread::sleep(Duration::from_millis(20));
    log_in("eve");
    assert_eq!(inside(look).matches("\"eve\"").count(), 2);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(inside(look).matches("\"eve\"").count(), 2);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    world.put(&file, "{\"other\": 1}");
    assert_eq!(inside(look).matches("\"eve\"").count(), 1);
}

#[test]
fn a_login_outlives_a_launcher_that_is_killed() {
    let world = world();
    let login = world.home(".tool/login.json");
    let mut running = tool(&world).start(&["sh", "-c", "echo one > ~/.tool/login.json; sleep 60"]);
    let inside = || {
        kept_if_any(&world).is_some_and(|kept| {
            fs::read(kept.join("login.json")).is_ok_and(|says| says == b"one\n")
        })
    };
    wait_for("the login", || inside().then_some(())).unwrap();
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    assert!(!login.exists());
    let output = tool(&world).run(&["sh", "-c", "cat ~/.tool/login.json"]);
    assert_eq!(output.stdout, "one\n", "{output:?}");
    assert!(
        output.stderr.contains("was kept: ~/.tool/login.json"),
        "{output:?}"
    );
    assert_eq!(fs::read_to_string(&login).unwrap(), "one\n");
}

fn kept_if_any(world: &World) -> Option<PathBuf> {
    let stores = world.home(".local/state/agent-sandbox/kept");
    let first = fs::read_dir(stores).ok()?.next()?.ok()?.path();
    Some(first.join("home/.tool"))
}

#[test]
fn a_session_does_not_take_the_login_from_another_one() {
    let world = world();
    let script = "echo one > ~/.tool/login.json; until [ -e stop ]; do sleep 0.05; done; cat ~/.tool/login.json";
    let first = tool(&world).start(&["sh", "-c", script]);
    let made = || kept_if_any(&world).is_some_and(|kept| kept.join("login.json").exists());
    wait_for("the login", || made().then_some(())).unwrap();
    // It is the user's by now, and the first session has no other way to it than its own file.
    assert_eq!(sh(&world, "cat ~/.tool/login.json"), "one\n");
    fs::write(world.project("stop"), "").unwrap();
    let output = first.wait();
    assert_eq!(output.stdout, "one\n", "{output:?}");
}

#[test]
fn sessions_at_once_share_what_their_project_keeps_and_nothing_else() {
    let world = world();
    let before = everything(&world);
    // None of the directories is there yet.
    let projects: Vec<PathBuf> = (0..5)
        .map(|number| world.outer(&format!("p{number}")))
        .collect();
    for project in &projects {
        fs::create_dir(project).unwrap();
    }
    let script = format!(
        "{LOOK}; echo $$ > ~/.tool/$N; until [ -e ~/.tool/0 ] && [ -e ~/.tool/1 ]; do sleep 0.05; done; \
         echo x > ~/.tool/seen-$N; until [ -e ~/.tool/seen-0 ] && [ -e ~/.tool/seen-1 ]; do sleep 0.05; done; \
         {LOOK}; ls ~/.tool"
    );
    let all: Vec<_> = projects
        .iter()
        .flat_map(|project| [(project, "0"), (project, "1")])
        .map(|(project, number)| {
            let run = tool(&world)
                .cwd(project)
                .option("--env", format!("N={number}"));
            run.start(&["sh", "-c", &script])
        })
        .collect();
    let listed = "0\n1\nTOOL.md\ndeep\nrules\nseen-0\nseen-1\nsettings.json\nstate.json\n";
    for running in all {
        let output = running.wait();
        assert_eq!(output.code(), 0, "{output:?}");
        assert_eq!(
            output.stdout,
            format!("{}{listed}", SETTINGS.repeat(6)),
            "{output:?}"
        );
        assert!(!output.stderr.contains("note:"), "{output:?}");
    }
    for project in &projects {
        fs::remove_dir(project).unwrap();
    }
    assert_untouched(&world, &before, "after");
}

/// On a node without namespaces a job of the same project has another kind of jail.
#[test]
fn a_session_of_the_other_kind_leaves_the_links_as_they_are() {
    if is_landlock() {
        // The same two jails, the other way round.
        return;
    }
    let world = world();
    world.put(&world.home(".tool/login.json"), "one\n");
    let look = format!("{LOOK}; cat ~/.tool/login.json; head -1 ~/.tool/TOOL.md");
    let script = format!("touch started; until [ -e stop ]; do sleep 0.05; done; {look}");
    let first = tool(&world).start(&["sh", "-c", &script]);
    let started = || world.project("started").exists().then_some(());
    wait_for("the first session", started).unwrap();
    let mut other = tool(&world);
    other.command.args(LANDLOCK);
    let output = other.run(&["sh", "-c", &look]);
    let expected = format!("{}one\n# Your jail\n", SETTINGS.repeat(3));
    if output.code() == REFUSED {
        not_checked(
            "a jail by Landlock beside one by bubblewrap",
            output.stderr.trim(),
        );
    } else {
        assert_eq!(output.stdout, expected, "{output:?}");
    }
    fs::write(world.project("stop"), "").unwrap();
    let output = first.wait();
    assert_eq!(output.stdout, expected, "{output:?}");
}

#[test]
fn shared_state_is_made_once_and_for_the_user_alone() {
    let world = world();
    fs::remove_dir_all(world.home(".tool")).unwrap();
    let run = || tool(&world).option("--set", "agents.state=shared");
    let output = run().run(&["sh", "-c", "echo x > ~/.tool/history"]);
    assert_eq!(output.code(), 0, "{output:?}");
    let is = |at: &Path| fs::metadata(at).unwrap().permissions().mode() & 0o7777;
    assert_eq!(is(&world.home(".tool")), 0o700);
    assert_eq!(
        fs::read_to_string(world.home(".tool/history")).unwrap(),
        "x\n"
    );

    // A link there is the user's; what it leads to is not made.
    fs::remove_dir_all(world.home(".tool")).unwrap();
    symlink(world.home("missing"), world.home(".tool")).unwrap();
    let output = run().run(&["true"]);
    assert!(!world.home("missing").exists(), "{output:?}");
}
