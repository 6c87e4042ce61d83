//! Help, version, and command lines that mean nothing.

use crate::world::World;

#[test]
fn help_names_every_option_and_subcommand() {
    let world = World::new();
    for flag in ["--help", "-h"] {
        let output = world.call([flag]).run();
        assert_eq!((output.code, output.err().as_str()), (0, ""), "{output}");
        let text = output.out();
        assert!(
            text.starts_with("Run a command, such as an AI coding agent, in a jail"),
            "{text}"
        );
        for word in [
            "--project",
            "--profile",
            "--backend",
            "--read",
            "--write",
            "--hide",
            "--env",
            "--home",
            "--set",
            "--dry-run",
            "--json",
            "--quiet",
            "--verbose",
            "--version",
            "run COMMAND",
            "policy",
            "explain PATH",
            "profile list",
            "profile show",
            "sessions",
            "125",
            "126",
            "127",
            "128+N",
        ] {
            assert!(
                text.contains(word),
                "{flag} says nothing about {word}: {text}"
            );
        }
    }
    for words in [&["policy"][..], &["explain"], &["profile"], &["sessions"]] {
        let output = world.call(words.iter().chain(&["--help"])).run();
        assert_eq!(output.code, 0, "{output}");
        assert!(
            output
                .out()
                .contains(&format!("Usage: agent-sandbox {}", words[0])),
            "{output}"
        );
    }
}

#[test]
fn version() {
    let world = World::new();
    let text = format!("agent-sandbox {}\n", env!("CARGO_PKG_VERSION"));
    for flag in ["--version", "-V"] {
        world.call([flag]).run().expect(0, &text, "");
    }
    // It needs no home and no working directory.
    world
        .call(["--version"])
        .without_variable("HOME")
        .run()
        .expect(0, &text, "");
}

#[test]
fn no_command() {
    let world = World::new();
    let text = "error: no command given\n\nUsage: agent-sandbox [OPTIONS] [--] COMMAND [ARGS]…\n       \
        agent-sandbox [OPTIONS] SUBCOMMAND\n\nFor more information, try '--help'.\n";
    world.call::<&str>([]).run().expect(125, "", text);
    world.call(["-q"]).run().expect(125, "", text);
    world.call(["--"]).run().expect(125, "", text);
    let text =
        "error: `agent-sandbox run` needs a command\n\nFor more information, try '--help'.\n";
    world.call(["run"]).run().expect(125, "", text);
    world.call(["run", "--"]).run().expect(125, "", text);
}

#[test]
fn an_option_that_does_not_exist() {
    let world = World::new();
    let output = world.call(["--raed", "/usr", "true"]).run();
    output.expect(
        125,
        "",
        "error: unexpected argument '--raed' found\n\n[..]'--read'[..]\n...\n",
    );
    let output = world.call(["policy", "--jsno"]).run();
    output.expect(
        125,
        "",
        "error: unexpected argument '--jsno' found\n\n[..]'--json'[..]\n...\n",
    );
    world.call(["--read"]).run().expect(
        125,
        "",
        "error: a value is required for '--read <PATH>' but none was supplied\n...\n",
    );
    world.call(["--backend", "docker", "true"]).run().expect(
        125,
        "",
        "error: invalid value 'docker' for '--backend <BACKEND>'\n...\n",
    );
}

#[test]
fn subcommands_with_words_that_mean_nothing() {
    let world = World::new();
    for (words, message) in [
        (
            &["explain"][..],
            "`agent-sandbox explain` needs one of PATH, --env NAME, --host NAME, --slurm LINE and --backend",
        ),
        (
            &["explain", "x", "--env", "Y"],
            "`agent-sandbox explain` takes one of PATH, --env NAME, --host NAME and --slurm LINE",
        ),
        (
            &["explain", "--env", "X", "--env", "Y"],
            "`agent-sandbox explain` takes one of PATH, --env NAME, --host NAME and --slurm LINE",
        ),
        (
            &["profile", "list", "x"],
            "`agent-sandbox profile list` takes no name",
        ),
        (
            &["profile", "show"],
            "`agent-sandbox profile show` needs a NAME",
        ),
    ] {
        let text = format!("error: {message}\n\nFor more information, try '--help'.\n");
        world.call(words).run().expect(125, "", &text);
    }
    for words in [
        &["policy", "x"][..],
        &["sessions", "x"],
        &["profile", "drop"],
        &["explain", "x", "y"],
    ] {
        let output = world.call(words).run();
        assert_eq!((output.code, output.out().as_str()), (125, ""), "{output}");
        assert!(output.err().starts_with("error: "), "{output}");
    }
}

#[test]
fn options_of_the_policy_are_checked() {
    let world = World::new();
    for (words, message) in [
        (
            &["--home", "nonsense", "true"][..],
            "error: --home `nonsense` is none of: tmpfs, restricted, read, write\n",
        ),
        (
            &["--env", "", "true"],
            "error: --env `` names no variable\n",
        ),
        (
            &["--env", "=x", "true"],
            "error: --env `=x` names no variable\n",
        ),
        (
            &["--set", "home.mode=wriet", "true"],
            "error: --set home.mode: unknown value `wriet`\n...\nhint: did you mean \"write\"? valid: tmpfs, restricted, read, write\n",
        ),
        (
            &["--set", "home.mdoe=read", "true"],
            "error: --set home.mdoe: unknown key `mdoe`\n...\nhint: did you mean `mode`?[..]\n",
        ),
        (
            &["--set", "hoem.mode=read", "true"],
            "error: --set hoem.mode: unknown section `hoem`\n...\nhint: did you mean [..]home[..]\n",
        ),
        (
            &["--set", "jail.tmp_size=lots", "true"],
            "error: --set jail.tmp_size: `lots` is not a size\n...\nhint: [..]\n",
        ),
        (
            &["--set", "files.timeout_ms=0", "true"],
            "error: --set files.timeout_ms: `0` is out of range\n...\nhint: [..]\n",
        ),
        (
            &["--set", "nonsense", "true"],
            "error: --set nonsense[..]\nhint: [..]\n",
        ),
        (
            &["--read", "/usr/*/x", "true"],
            "error: --read `/usr/*/x` has a `*` before its last component; only there may one stand\n",
        ),
        (&["-C", "", "true"], "error: [..]\n...\n"),
    ] {
        world.call(words).run().expect(125, "", message);
    }
    world
        .call(["--backend", "bwrap", "-q", "true"])
        .run()
        .expect(0, "", "");
    world
        .call(["--backend", "auto", "-q", "true"])
        .run()
        .expect(0, "", "");
}
