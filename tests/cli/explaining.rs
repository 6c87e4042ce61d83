//! `explain`: hosts, devices, command lines of Slurm's, the ways to another verdict, and bad questions.

use serde_json::Value;

use crate::world::{CANARY, World};

const CONFIG: &str = "~/.config/agent-sandbox/config.toml";

fn json(world: &World, words: &[&str]) -> Value {
    let words = [words, &["--json"]].concat();
    let output = world.call(words).run();
    assert_eq!((output.code, output.err().as_str()), (0, ""), "{output}");
    output.json()
}

#[test]
fn a_host() {
    let world = World::new();
    let open = format!(
        "example.org:443: can be connected to from inside\n  note: as from outside: firewalls and proxies are as they are there; the name was not looked up\n  rule: network.mode `open` (built-in default.toml:[..])\n  change: to cut the jail off from every host: network.mode = \"isolated\" in {CONFIG}, or --set network.mode=isolated for one run\n"
    );
    world
        .call(["explain", "--host", "example.org:443"])
        .run()
        .expect(0, &open, "");
    world.policy("[network]\nmode = \"isolated\"\n");
    let isolated = format!(
        "localhost: cannot be connected to from inside\n  note: the jail has a loopback of its own: it reaches what was started inside\n  rule: network.mode `isolated` ({CONFIG}:2)\n  change: network.mode = \"open\" in {CONFIG}, or --set network.mode=open for one run\n"
    );
    world
        .call(["explain", "--host", "localhost"])
        .run()
        .expect(0, &isolated, "");
    // The options of a launch take part.
    let told = json(
        &world,
        &[
            "--set",
            "network.mode=open",
            "explain",
            "--host",
            "[::1]:22",
        ],
    );
    assert_eq!(told["verdict"], "reachable");
    assert_eq!(told["possible"], true);
    assert_eq!(told["forbidden_by"], Value::Null);
    // A socket with a name is a path, and its rule that of the path.
    let told = json(&world, &["explain", "--host", "/run/munge/munge.socket.2"]);
    assert_ne!(told["verdict"], "reachable", "{told}");
    let told = json(&world, &["explain", "--host", "@/tmp/.X11-unix/X0"]);
    assert_eq!(told["verdict"], "unreachable", "{told}");
}

#[test]
fn a_device() {
    let world = World::new();
    let null = "/dev/null: the jail has its own\n  rule: a minimal /dev\n  change: this is the same in every jail\n";
    world
        .call(["explain", "/dev/null"])
        .run()
        .expect(0, null, "");
    let missing = format!(
        "/dev/no-such-node: not there inside\n  note: it does not exist outside either\n  rule: no rule of devices.allow names it\n  change: add `/dev/no-such-node` to devices.allow in {CONFIG}, or use --set 'devices.allow=[\"/dev/no-such-node\"]' for one run\n"
    );
    world
        .call(["explain", "/dev/no-such-node"])
        .run()
        .expect(0, &missing, "");
    let denied = json(&world, &["explain", "/dev/sda"]);
    assert_eq!(
        (&denied["verdict"], &denied["possible"]),
        (&Value::from("hidden"), &Value::from(false)),
        "{denied}"
    );
    // What is said to be the way is one: the rule takes part as it is proposed.
    let words = [
        "--set",
        "devices.allow=[\"/dev/no-such-node\"]",
        "explain",
        "/dev/no-such-node",
    ];
    let allowed = json(&world, &words);
    assert!(
        allowed["why"]
            .as_str()
            .unwrap()
            .starts_with("devices.allow `/dev/no-such-node`"),
        "{allowed}"
    );
}

#[test]
fn what_was_hardly_meant_as_a_path() {
    let world = World::new();
    for (asked, way) in [
        ("https://example.org/x", "explain --host example.org"),
        ("git@github.com:x/y", "explain --host github.com"),
        ("NAME=value", "explain --env NAME"),
        ("$HOME", "explain --env HOME"),
        ("~root", "the home of another user"),
    ] {
        let told = json(&world, &["explain", asked]);
        let notes = told["notes"].as_array().unwrap();
        let said = |note: &Value| note.as_str().unwrap().contains(way);
        assert!(notes.iter().any(said), "{asked}: {told:#}");
    }
    // A file that has such a name is what was meant.
    world.write("home/project/NAME", "x");
    let told = json(&world, &["explain", "NAME"]);
    assert_eq!(told["notes"], Value::Array(Vec::new()), "{told:#}");
    // What is proposed can be typed.
    let told = world.call(["explain", "--env", "MY_*TOKEN"]).run();
    assert!(told.out().contains("or use --env 'MY_*TOKEN'"), "{told}");
}

/// Advice about a path does not hide that no session starts around it.
#[test]
fn a_directory_that_is_no_project_is_said() {
    let world = World::new();
    world.policy("[project]\nparents = [\"/srv/projects\"]\n");
    let told = json(&world, &["explain", "."]);
    let note = told["notes"][0].as_str().unwrap_or_default();
    assert!(
        note.starts_with("no session starts here: ") && note.contains("project.parents"),
        "{told:#}"
    );
    let told = json(&world, &["explain", "/usr/bin/env"]);
    assert!(
        !told["notes"].to_string().contains("no session"),
        "{told:#}"
    );
}

/// The option for one run that an answer names gives another answer.
#[test]
fn the_way_for_one_run_works() {
    let world = World::new();
    world.write("home/data.txt", "data");
    let ssh = world.home.join(".ssh/id_rsa");
    let ssh = ssh.to_str().unwrap();
    let unhide = "files.unhide=[\"~/.ssh\"]";
    let told = json(&world, &["--set", unhide, "--read", ssh, "explain", ssh]);
    assert_eq!(told["verdict"], "read-only", "{told}");
    let told = json(
        &world,
        &["--set", "env.hide=[\"LANG\"]", "explain", "--env", "LANG"],
    );
    assert_eq!(told["verdict"], "hidden", "{told}");
    let told = json(&world, &["--hide", "main.c", "explain", "main.c"]);
    assert_eq!(told["change"], "leave --hide away");
    world.policy("[files]\nhide = [\"~/data.txt\"]\n");
    let told = json(&world, &["explain", "~/data.txt"]);
    let way = format!("take `~/data.txt` out of files.hide ({CONFIG}:2)");
    assert_eq!(told["change"], way);
    assert!(!told.to_string().contains(CANARY));
}

#[test]
fn a_command_line_of_slurms() {
    let world = World::new();
    world.policy("[slurm.bounds]\nnodes = 4\n");
    let output = world
        .call(["explain", "--slurm", "sbatch -N8 --uid=0 job.sh"])
        .run();
    assert_eq!(output.code, 0, "{output}");
    assert!(output.out().contains("--uid=0: refused: "), "{output}");
    let output = world
        .call(["explain", "--slurm", "sbatch -N8 job.sh"])
        .run();
    for part in [
        "--nodes=8: passes\n".to_owned(),
        format!("error: 8 nodes: the policy allows 4 nodes (`slurm.bounds.nodes`, {CONFIG}:2)\n"),
        format!("  rule: slurm.bounds.nodes = 4 ({CONFIG}:2)\n"),
        format!(
            "  change: slurm.bounds.nodes in {CONFIG}, or --set slurm.bounds.nodes=VALUE for one run\n"
        ),
        "sbatch: this command line is refused\n".to_owned(),
        "  judged when it runs: slurm.limits.jobs = no limit (built-in default.toml:".to_owned(),
    ] {
        assert!(output.out().contains(&part), "no {part:?} in {output}");
    }
    let told = json(
        &world,
        &[
            "--set",
            "slurm.bounds.nodes=8",
            "explain",
            "--slurm",
            "sbatch -N8 x",
        ],
    );
    assert_eq!(told["verdict"], "allowed", "{told}");
    let told = json(&world, &["explain", "--slurm", "squeue"]);
    assert_eq!(
        (&told["verdict"], &told["command"]),
        (&"works".into(), &"squeue".into())
    );
    let told = json(&world, &["explain", "--slurm", "scrontab"]);
    assert_eq!(told["verdict"], "refused");
    assert!(
        told["change"]
            .as_str()
            .unwrap()
            .starts_with("nothing changes it")
    );
}

#[test]
fn bad_questions() {
    let world = World::new();
    let one = "takes one of PATH, --env NAME, --host NAME and --slurm LINE";
    for (words, part) in [
        (
            &["explain"][..],
            "needs one of PATH, --env NAME, --host NAME, --slurm LINE and --backend",
        ),
        (&["explain", "/a", "--host", "b"], one),
        (&["explain", "--env", "A", "--env", "B"], one),
        (&["explain", "--slurm", "sbatch", "--env", "B"], one),
        (&["explain", ""], "this one is empty"),
        (&["explain", "--env", ""], "names no variable"),
        (
            &["explain", "--env", "A=B"],
            "`--env A=B` names no variable",
        ),
        (&["explain", "--host", ""], "`` names no host"),
        (
            &["explain", "--host", "a:99999"],
            "a port is a number from 1 to 65535",
        ),
        (&["explain", "--host", "http://a/"], "it is a URL"),
        (&["explain", "--host", "a b"], "which no name of a host has"),
        (&["explain", "--no-such"], "unexpected argument '--no-such'"),
    ] {
        let output = world.call(words).run();
        assert_eq!(
            (output.code, output.out().as_str()),
            (125, ""),
            "{words:?} {output}"
        );
        assert!(output.err().starts_with("error: "), "{words:?} {output}");
        assert!(output.err().contains(part), "{words:?} {output}");
    }
    let output = world
        .call(["explain", "--slurm"])
        .by(["sh", "-c", "exec \"$@\" \"$(printf 'sbatch \\377')\"", "sh"])
        .run();
    assert_eq!(output.code, 125, "{output}");
    assert!(output.err().contains("is not UTF-8"), "{output}");
}

/// Of an agent's own files it answers for a launch of that agent.
#[test]
fn an_agents_files_are_explained_with_its_profile() {
    let world = World::new();
    world.write("home/.claude/settings.json", "{}");
    for path in [".claude/settings.json", ".claude"] {
        let path = world.home.join(path).display().to_string();
        let (plain, named) = (
            json(&world, &["explain", &path]),
            json(&world, &["-p", "claude", "explain", &path]),
        );
        for key in ["verdict", "why", "change"] {
            assert_eq!(plain[key], named[key], "{plain:#}");
        }
        let note = plain["notes"].as_array().unwrap().last().unwrap();
        assert_eq!(
            note,
            "so with the profile `claude`, which its command takes by itself (-p claude)"
        );
    }
}
