//! `policy`, `explain`, `profile`, `sessions`, `--dry-run`, the banner: for people and as JSON.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use serde_json::Value;

use crate::world::{CANARY, World, until, wait};

#[test]
fn policy_shows_every_value_with_its_source() {
    let world = World::new();
    world.policy("[home]\nmode = \"restricted\"\n[jail]\ntmp_size = \"1M\"\n");
    let words = [
        "--hide",
        "/opt",
        "--env",
        "X=1",
        "--set",
        "jail.nested=true",
        "policy",
    ];
    let output = world.call(words).run();
    let text = output.out();
    assert_eq!((output.code, output.err().as_str()), (0, ""), "{output}");
    for line in [
        "home.mode = \"restricted\"  # ~/.config/agent-sandbox/config.toml:2",
        "jail.tmp_size = 1048576  # ~/.config/agent-sandbox/config.toml:4",
        "jail.nested = true  # --set jail.nested",
        "files.hide += \"/opt\"  # --hide",
        "env.set += \"X=1\"  # --env",
        "env.pass = []",
    ] {
        assert!(
            text.lines().any(|given| given == line),
            "no line `{line}` in\n{text}"
        );
    }
    let sourced = text.lines().filter(|line| !line.ends_with(" = []"));
    for line in sourced {
        let (_, source) = line
            .rsplit_once("  # ")
            .unwrap_or_else(|| panic!("no source: {line}"));
        assert!(
            source.starts_with("built-in default.toml:")
                || source.starts_with("--")
                || source.starts_with("~/.config/"),
            "{line}"
        );
    }
    let json = world
        .call(["--hide", "/opt", "policy", "--json"])
        .run()
        .json();
    assert_eq!(json["home"]["mode"]["value"], "restricted");
    assert_eq!(
        json["home"]["mode"]["source"],
        "~/.config/agent-sandbox/config.toml:2"
    );
    let hide = json["files"]["hide"].as_array().unwrap();
    assert_eq!(hide.last().unwrap()["value"], "/opt");
    assert_eq!(hide.last().unwrap()["source"], "--hide");
}

#[test]
fn explain_a_path() {
    let world = World::new();
    let file = "~/.config/agent-sandbox/config.toml";
    let ssh = format!(
        "[PLACE]/home/.ssh/id_rsa: hidden: it does not exist inside\n  rule: files.hide `~/.ssh` (built-in default.toml:[..])\n  change: if the jail must have it: add `~/.ssh` to files.unhide in {file}, and give it with files.read; for one run: --set 'files.unhide=[\"~/.ssh\"]' --read [PLACE]/home/.ssh/id_rsa\n"
    );
    world
        .call(["explain", world.home.join(".ssh/id_rsa").to_str().unwrap()])
        .run()
        .expect(0, &ssh, "");
    let quoted = world.call(["explain", "~/.ssh/id_rsa"]).run();
    assert!(
        quoted.out().contains("hidden: it does not exist inside"),
        "{quoted}"
    );
    let bin = "/usr/bin/env: readable inside, not writable\n  rule: files.read `/usr` (built-in default.toml:[..])\n  change: [..]--write[..]\n";
    world
        .call(["explain", "/usr/bin/env"])
        .run()
        .expect(0, bin, "");
    let project = "[PLACE]/home/project/main.c: writable inside\n  rule: the project directory\n  change: to hide it: add `[PLACE]/home/project/main.c` to files.hide in [..], or use --hide\n";
    world
        .call(["explain", "main.c"])
        .run()
        .expect(0, project, "");
    world
        .call(["explain", "./x/../main.c"])
        .run()
        .expect(0, project, "");
    let absent = "/srv/none: not there inside\n  note: it does not exist outside either\n  rule: nothing gives it: the jail shows only what is named\n  change: add `/srv/none` to files.read or files.write in [..], or use --read / --write for one run\n";
    world
        .call(["explain", "/srv/none"])
        .run()
        .expect(0, absent, "");
    let private = world.call(["explain", "/proc"]).run();
    private.expect(0, "/proc: the jail has its own\n  rule: a fresh /proc of the jail's own processes\n  change: this is the same in every jail\n", "");
    // The options of a launch take part.
    let output = world.call(["--hide", "main.c", "explain", "main.c"]).run();
    assert!(
        output.out().contains("hidden") && output.out().contains("(--hide)"),
        "{output}"
    );
    // From a directory that cannot be a project, the rules are explained all the same.
    let output = world
        .call(["explain", "/usr/bin/env"])
        .cwd(&world.home)
        .run();
    output.expect(0, bin, "");
    let json = world.call(["explain", "--json", "~/.netrc"]).run().json();
    assert_eq!(json["verdict"], "hidden");
    assert_eq!(json["exists"], true);
    assert!(
        json["why"].as_str().unwrap().contains("`~/.netrc`"),
        "{json}"
    );
}

/// What `explain` says is what happens.
#[test]
fn explain_tells_the_truth() {
    let world = World::new();
    world.write("home/.config/gh/hosts.yml", CANARY);
    world.write("home/notes.txt", "notes");
    for mode in ["tmpfs", "restricted", "read", "write"] {
        for path in [
            ".ssh/id_rsa",
            ".netrc",
            ".bash_history",
            ".gitconfig",
            "notes.txt",
            ".config/gh/hosts.yml",
            "project/main.c",
        ] {
            let path = world.home.join(path);
            let path = path.to_str().unwrap();
            let json = world
                .call(["--home", mode, "explain", "--json", path])
                .run()
                .json();
            let test = format!(
                "if [ -w {path} ]; then echo writable; elif [ -r {path} ]; then echo read-only; else echo none; fi"
            );
            let output = world.call(["-q", "--home", mode, "sh", "-c", &test]).run();
            let standing = json["verdict"].as_str().unwrap();
            let said = match standing {
                "hidden" | "absent" => "none",
                other => other,
            };
            assert_eq!(output.out().trim(), said, "{mode} {path}: {json}");
        }
    }
}

#[test]
fn explain_a_variable() {
    let world = World::new();
    let hidden = "GITHUB_TOKEN: hidden: it does not exist inside\n  rule: env.hide `[..]` (built-in default.toml:[..])\n  change: to pass it: add `GITHUB_TOKEN` to env.pass in ~/.config/agent-sandbox/config.toml, or use --env GITHUB_TOKEN\n";
    world
        .call(["explain", "--env", "GITHUB_TOKEN"])
        .run()
        .expect(0, hidden, "");
    let passes = "LANG: passes into the jail\n  rule: no rule hides it\n  change: to hide it: add `LANG` to env.hide in ~/.config/agent-sandbox/config.toml, or use --set 'env.hide=[\"LANG\"]' for one run\n";
    world
        .call(["explain", "--env", "LANG"])
        .run()
        .expect(0, passes, "");
    let json = world
        .call(["explain", "--env", "AWS_PROFILE", "--json"])
        .run()
        .json();
    assert_eq!(
        (json["verdict"].as_str(), json["exists"].as_bool()),
        (Some("hidden"), Some(false))
    );
}

#[test]
fn profiles() {
    let world = World::new();
    world.write(
        "home/.config/agent-sandbox/profiles/mine.toml",
        "[profile]\ndescription = \"Mine\"\n",
    );
    let list = world.call(["profile", "list"]).run();
    let text = list.out();
    let row = |name: &str| {
        let mut rows = text.lines().filter(|row| row.starts_with(name));
        rows.next()
            .unwrap_or_else(|| panic!("no {name} in {list}"))
            .to_owned()
    };
    assert_eq!(list.err(), "", "{list}");
    assert!(row("claude ").contains("built in  Claude Code "), "{list}");
    assert!(row("mine ").contains("yours     Mine "), "{list}");
    let json = world.call(["profile", "list", "--json"]).run().json();
    let listed = |name: &str| {
        let mut all = json.as_array().unwrap().iter();
        all.find(|one| one["name"] == name).unwrap().clone()
    };
    assert_eq!(listed("claude")["commands"], serde_json::json!(["claude"]));
    assert_eq!(listed("mine")["description"], "Mine");
    let text = "[profile]\ndescription = \"Mine\"\n";
    let shown = world.call(["profile", "show", "mine", "--text"]).run();
    shown.expect(0, text, "");
    let summary = world.call(["profile", "show", "mine"]).run();
    assert!(summary.out().starts_with("mine: Mine\n"), "{summary}");
    assert!(summary.out().ends_with(text), "{summary}");
    let default = world.call(["profile", "show", "default"]).run();
    assert!(default.out().contains("[network]\n"), "{default}");
    let unknown = "error: there is no profile `clade`\nhint: did you mean `claude`?\nhint: known: [..]claude, [..]mine, [..]default\n";
    world
        .call(["profile", "show", "clade"])
        .run()
        .expect(125, "", unknown);
}

#[test]
fn sessions_are_listed_while_they_run() {
    let world = World::new();
    world
        .call(["sessions"])
        .run()
        .expect(0, "no session runs on this node\n", "");
    let mut child = world.quiet(["sleep", "100"]).start();
    let listed = || -> Vec<Value> {
        let json = world.call(["sessions", "--json"]).run().json();
        let mine = json.as_array().unwrap().iter();
        // Other tests of the same user have sessions of their own.
        mine.filter(|session| session["pid"].as_u64() == Some(child.id().into()))
            .cloned()
            .collect()
    };
    until("the session's record", || !listed().is_empty());
    let session = listed().remove(0);
    assert_eq!(session["command"], "sleep");
    assert_eq!(session["project"], world.project.to_str().unwrap());
    let text = world.call(["sessions"]).run();
    assert!(text.out().starts_with("SESSION "), "{text}");
    let id = session["id"].as_str().unwrap().to_owned();
    assert!(
        text.out()
            .lines()
            .any(|line| line.starts_with(&id) && line.contains("sleep")),
        "{text}"
    );
    // A /proc that does not show it says nothing of it, as with hidepid.
    let call = world.call(["sessions", "--json"]).command();
    let variables = call.get_envs();
    let seen = Command::new("bwrap")
        .args(["--dev-bind", "/", "/", "--tmpfs", "/proc"])
        .args(["--ro-bind", "/proc/sys", "/proc/sys", "--"])
        .arg(call.get_program())
        .args(call.get_args())
        .env_clear()
        .envs(variables.filter_map(|(name, value)| Some((name, value?))))
        .output()
        .unwrap();
    assert!(seen.status.success(), "{seen:?}");
    assert!(
        String::from_utf8_lossy(&seen.stdout).contains(&id),
        "{seen:?}"
    );
    assert!(!listed().is_empty(), "its record was removed");
    // Killed, it cannot take its record away: whoever lists next does.
    child.kill().unwrap();
    assert_eq!(wait(&mut child, "sleep").signal(), Some(9));
    let text = world.call(["sessions"]).run();
    assert!(!text.out().contains(&id), "{text}");
}

/// Arguments may hold secrets: the record has the command's name alone.
#[test]
fn a_session_record_holds_no_arguments() {
    let world = World::new();
    let script = format!("cat /dev/null # {CANARY}\nread wait");
    let mut child = world.sh(&script).start();
    let pid = u64::from(child.id());
    until("the session's record", || {
        let output = world.call(["sessions", "--json"]).run();
        assert!(!output.out().contains(CANARY), "{output}");
        output
            .json()
            .as_array()
            .unwrap()
            .iter()
            .any(|session| session["pid"].as_u64() == Some(pid))
    });
    drop(child.stdin.take());
    wait(&mut child, "sh");
}

#[test]
fn dry_run_shows_each_line_with_its_source_and_no_values() {
    let world = World::new();
    let secret = "value-that-no-rule-knows";
    let call = |json: &[&str]| {
        let words = ["--dry-run", "--env", "PASSED=value-on-the-command-line"]
            .iter()
            .chain(json)
            .copied();
        let words: Vec<&str> = words.chain(["touch", "made"]).collect();
        world
            .call(words)
            .variable("HARMLESS", secret)
            .variable("MY_TOKEN", CANARY)
    };
    let output = call(&[]).run();
    assert_eq!((output.code, output.err().as_str()), (0, ""), "{output}");
    assert!(
        !world.project.join("made").exists(),
        "a dry run ran something"
    );
    let text = output.out();
    for value in [secret, "value-on-the-command-line", CANARY] {
        assert!(!text.contains(value), "shows the value {value}:\n{text}");
    }
    assert!(
        text.starts_with("command      touch made\nproject      [PLACE]/home/project\n"),
        "{text}"
    );
    assert!(text.contains("  HARMLESS  [no rule hides it]\n"), "{text}");
    assert!(
        text.contains("  MY_TOKEN  [env.hide `*TOKEN` (built-in default.toml:"),
        "{text}"
    );
    assert!(
        text.contains("  write     [PLACE]/home/project  [the project directory]\n"),
        "{text}"
    );
    assert!(
        text.contains("  [PLACE]/home/.ssh  [files.hide `~/.ssh` (built-in default.toml:"),
        "{text}"
    );
    let count = "paths of the built-in lists that this host does not have (--json names them)";
    let lines = text.lines().filter(|line| line.starts_with("  "));
    for line in lines.filter(|line| !line.ends_with(count)) {
        assert!(
            line.ends_with(']') && line.contains("  ["),
            "no source: {line}"
        );
    }
    let output = call(&["--json"]).run();
    for value in [secret, "value-on-the-command-line", CANARY] {
        assert!(
            !output.out().contains(value),
            "shows the value {value}:\n{output}"
        );
    }
    let json = output.json();
    assert_eq!(json["command"], serde_json::json!(["touch", "made"]));
    assert_eq!(json["project"], world.project.to_str().unwrap());
    let all = ["mounts", "hidden_files", "omitted"]
        .iter()
        .map(|key| &json[*key]);
    let variables = ["visible", "hidden"]
        .iter()
        .map(|key| &json["environment"][*key]);
    for list in all.chain(variables) {
        for entry in list.as_array().unwrap() {
            assert!(
                entry["why"].as_str().is_some_and(|why| !why.is_empty()),
                "no source: {entry}"
            );
        }
    }
}

#[test]
fn the_banner() {
    let world = World::new();
    let banner = "agent-sandbox: jailed in [PLACE]/home/project (writable), network open (--set network.mode=filtered), session [..]\n";
    let output = world.call(["true"]).run();
    assert!(
        output
            .err()
            .lines()
            .skip(1)
            .all(|line| line.starts_with("agent-sandbox: warning: ")),
        "{output}"
    );
    let first = output.err().lines().next().unwrap_or_default().to_owned();
    assert!(crate::transcript::like(banner, &first), "{output}");
    let isolated = world.call(["--set", "network.mode=isolated", "true"]).run();
    isolated.expect(0, "", &banner.replace("open", "isolated"));
    let filtered = world.call(["--set", "network.mode=filtered", "true"]).run();
    let said = filtered.err();
    let id = said.trim_end().rsplit(' ').next().unwrap_or_default();
    let way = format!("network filtered (agent-sandbox allow {id} HOST), session {id}\n");
    assert!(id.len() == 8 && said.ends_with(&way), "{filtered}");
    world.call(["-q", "true"]).run().expect(0, "", "");
    // It stands before what the command says, and what starts nothing has none.
    let output = world.call(["sh", "-c", "echo command >&2"]).run();
    assert!(output.err().ends_with("\ncommand\n"), "{output}");
    let missing = "error: `no-such-command`: command not found in the jail\n";
    world
        .call(["no-such-command"])
        .run()
        .expect(127, "", missing);
    // What is left out is said if somebody asked for it by an option, or with -v.
    let left =
        "agent-sandbox: note: `/srv/none`: it does not exist [files.read `/srv/none` (--read)]";
    let loud = world.call(["--read", "/srv/none", "true"]).run();
    assert!(loud.err().lines().any(|line| line == left), "{loud}");
    world.policy("[files]\nread = [\"/srv/none\"]\n");
    let left = "agent-sandbox: note: `/srv/none`: it does not exist [files.read `/srv/none` (~/.config/agent-sandbox/config.toml:2)]";
    let verbose = world.call(["-v", "true"]).run();
    assert!(verbose.err().lines().any(|line| line == left), "{verbose}");
    let output = world.call(["true"]).run();
    assert!(!output.err().contains("note:"), "{output}");
}

/// Of a reader that has seen enough nobody complains.
#[test]
fn a_reader_that_leaves() {
    let world = World::new();
    let call = world.call(["policy"]).by([
        "bash",
        "-c",
        "\"$@\" | head -n 1; echo ${PIPESTATUS[0]}",
        "bash",
    ]);
    let output = call.run();
    assert!(
        output.out().ends_with("\n0\n") && output.err().is_empty(),
        "{output}"
    );
    let full = world
        .call(["policy"])
        .by(["sh", "-c", "exec \"$@\" > /dev/full", "sh"])
        .run();
    full.expect(
        125,
        "",
        "error: cannot write to standard output: No space left on device (os error 28)\n",
    );
    drop(fs::read_dir(&world.place));
}
