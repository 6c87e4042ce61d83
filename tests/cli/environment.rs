//! What a command finds in its environment.

use crate::world::{CANARY, World};

/// What the environment leads to and the jail does not show is said once, and not with -q.
#[test]
fn what_of_the_environment_is_not_inside_is_said() {
    let world = World::new();
    for directory in ["sw/bin", "env/bin", "bin"] {
        std::fs::create_dir_all(world.home.join(directory)).unwrap();
    }
    let home = world.home.display();
    let path = format!("{home}/sw/bin:{home}/env/bin:{home}/bin:{home}/none:/usr/bin:/bin");
    let call = |words: &[&str]| {
        let call = world.call(words).variable("PATH", &path);
        call.variable("VIRTUAL_ENV", world.home.join("env")).run()
    };
    let note = "agent-sandbox: note: not inside: ~/sw/bin (PATH), ~/env (VIRTUAL_ENV); agent-sandbox explain PATH says why";
    let output = call(&["true"]);
    assert!(output.err().lines().any(|line| line == note), "{output}");
    call(&["-q", "true"]).expect(0, "", "");
    let output = call(&[
        "--read",
        &format!("{home}/sw"),
        "--read",
        &format!("{home}/env"),
        "true",
    ]);
    assert!(!output.err().contains("not inside"), "{output}");
}

/// Of a module that is loaded and not there inside, too, whatever search path it adds to.
#[test]
fn modules_that_are_not_inside_are_said() {
    let world = World::new();
    let home = world.home.display().to_string();
    for directory in ["modules/tool", "sw/tool/bin", "sw/other/bin"] {
        std::fs::create_dir_all(world.home.join(directory)).unwrap();
    }
    std::fs::write(world.home.join("modules/tool/1.2.lua"), "").unwrap();
    let call = |words: &[&str]| {
        let call = world.call(words);
        call.variable("LOADEDMODULES", "tool/1.2:my-other/3:here/1")
            .variable(
                "_LMFILES_",
                format!("{home}/modules/tool/1.2.lua:/etc/passwd:/etc/group"),
            )
            .variable("EBROOTTOOL", format!("{home}/sw/tool"))
            .variable("MY_OTHER_ROOT", format!("{home}/sw/other"))
            .variable("HERE_DIR", "/usr")
            .variable("PATH", format!("{home}/sw/other/bin:/usr/bin:/bin"))
    };
    let note = "agent-sandbox: note: not inside: ~/modules/tool/1.2.lua (module tool/1.2), ~/sw/other (module my-other/3); \
                agent-sandbox explain PATH says why";
    let output = call(&["true"]).run();
    assert!(output.err().lines().any(|line| line == note), "{output}");
    call(&["-q", "true"]).run().expect(0, "", "");
    let output = call(&[
        "--read",
        &format!("{home}/modules"),
        "--read",
        &format!("{home}/sw"),
        "true",
    ])
    .run();
    assert!(!output.err().contains("not inside"), "{output}");
}

/// What is installed into the private home goes with it, which is said once.
#[test]
fn what_is_installed_into_the_private_home_is_said_to_be_gone() {
    let world = World::new();
    std::fs::create_dir_all(world.home.join("real/bin")).unwrap();
    let install = "mkdir -p ~/.local/lib/python3/site-packages/x ~/.local/bin ~/go/bin
                   touch ~/.local/lib/python3/site-packages/x/y.py; ln -s /bin/true ~/.local/bin/x
                   echo x > ~/.bash_history; ln -s \"$PWD\" ~/bin; touch ~/bin/project";
    let said = |world: &World, words: &[&str]| {
        let output = world.call(words).run();
        assert_eq!(output.code, 0, "{output}");
        let lines = output.err().lines().map(str::to_owned).collect::<Vec<_>>();
        let lines = lines.into_iter().filter(|line| line.contains("gone with"));
        lines.collect::<Vec<_>>()
    };
    let line = "agent-sandbox: note: gone with this session's home: ~/.local/lib; what is in the project stays (python3 -m \
                venv .venv, npm install without -g)";
    assert_eq!(said(&world, &["sh", "-c", install]), [line]);
    let fenced = ["--backend", "landlock", "sh", "-c", install];
    assert_eq!(said(&world, &fenced), [line]);
    assert!(said(&world, &["-q", "sh", "-c", install]).is_empty());
    assert!(
        said(
            &world,
            &[
                "sh",
                "-c",
                "echo x > ~/x; mkdir -p ~/.cache/x; echo x > ~/.cache/x/y"
            ]
        )
        .is_empty()
    );
    // What is mounted stays.
    let kept = ["--set", "home.keep=[\"~/.local/lib\"]", "sh", "-c", install];
    assert!(said(&world, &kept).is_empty());
}

#[test]
fn what_is_set_inside() {
    let world = World::new();
    let script = "echo $AGENT_SANDBOX; echo $AGENT_SANDBOX_PROJECT; echo $HOME; echo $PWD; echo $XDG_RUNTIME_DIR; echo ${#AGENT_SANDBOX_SESSION}";
    let uid = nix::unistd::getuid();
    let text = format!(
        "1\n[PLACE]/home/project\n[PLACE]/home\n[PLACE]/home/project\n/run/user/{uid}\n8\n"
    );
    world.sh(script).run().expect(0, &text, "");
    let unset = world
        .sh("echo ${TMPDIR-unset} ${OLDPWD-unset}")
        .variable("OLDPWD", "/etc")
        .run();
    unset.expect(0, "unset unset\n", "");
    world
        .sh("echo $TMPDIR")
        .variable("TMPDIR", world.place.join("t"))
        .run()
        .expect(0, "/tmp\n", "");
    // Each session has an id of its own, whatever the caller says.
    let ids = [1, 2].map(|_| {
        world
            .sh("echo $AGENT_SANDBOX_SESSION")
            .variable("AGENT_SANDBOX_SESSION", "forged")
            .run()
            .out()
    });
    assert!(ids[0] != ids[1] && !ids[0].contains("forged"), "{ids:?}");
}

#[test]
fn secrets_do_not_pass_unless_they_are_named() {
    let world = World::new();
    let secrets = [
        ("MY_API_KEY", "1"),
        ("AWS_ACCESS_KEY_ID", "AKIA"),
        ("SSH_AUTH_SOCK", "/tmp/x"),
        ("KUBECONFIG", "/x"),
        ("SLURM_JWT", "x"),
        ("PGPASSWORD", "x"),
        ("DISPLAY", ":0"),
        ("INNOCENT", "https://ada:secret@example.org/"),
        ("ALSO_INNOCENT", "glpat-0123456789"),
    ];
    let mut call = world.quiet(["env"]);
    for (name, value) in secrets {
        call = call.variable(name, value);
    }
    let output = call.variable("HARMLESS", "yes").run();
    let text = output.out();
    for name in secrets
        .map(|(name, _)| name)
        .into_iter()
        .chain(["GITHUB_TOKEN"])
    {
        assert!(
            !text
                .lines()
                .any(|line| line.starts_with(&format!("{name}="))),
            "{name} passes: {output}"
        );
    }
    assert!(!text.contains(CANARY), "{output}");
    assert!(text.lines().any(|line| line == "HARMLESS=yes"), "{output}");
    let passed = world.call([
        "-q",
        "--env",
        "GITHUB_TOKEN",
        "--env",
        "NEW=a=b",
        "--env",
        "EMPTY=",
        "sh",
        "-c",
        "echo $GITHUB_TOKEN $NEW ${EMPTY-unset}",
    ]);
    passed
        .run()
        .expect(0, &format!("ghp_{CANARY}-and-more a=b\n"), "");
}

/// Nowhere inside, not in any process's memory of its start either.
#[test]
fn no_hidden_value_can_be_recovered() {
    let world = World::new();
    let script = format!(
        "cat /proc/*/environ /proc/*/cmdline 2> /dev/null | tr '\\0' '\\n' | grep -c '^GITHUB_TOKEN=\\|{}'; true",
        &CANARY[..8]
    );
    // The pattern itself stands in the shell's own arguments; the value of the variable does not.
    let output = world
        .quiet(["sh", "-c", &script.replace(&CANARY[..8], "ghp_can[a]ry")])
        .run();
    output.expect(0, "0\n", "");
}

#[test]
fn odd_names_and_values_pass_unchanged() {
    let world = World::new();
    let value = "a b\tc\n\u{e9}\\'\"$(x)";
    let call = world
        .quiet(["sh", "-c", "printf %s \"$ODD\""])
        .variable("ODD", value);
    assert_eq!(call.run().stdout, value.as_bytes());
    let call = world
        .quiet(["env"])
        .by(["env", "BASH_FUNC_f%%=() { echo f; }", "a.b-c=1"]);
    let output = call.run();
    assert!(
        output.out().contains("a.b-c=1\n") && output.out().contains("BASH_FUNC_f%%=() { echo f; }"),
        "{output}"
    );
}

/// A profile gives its agent a key and a login; who hides them does not want that.
#[test]
fn a_profile_gives_nothing_that_the_user_hides() {
    let world = World::new();
    world.write(
        "home/.codex/auth.json",
        "{\"OPENAI_API_KEY\": \"sk-of-a-file\"}",
    );
    let codex = || {
        let script = "cat ~/.codex/auth.json; echo \"[$OPENAI_API_KEY]\"";
        let call = world.call(["-q", "-p", "codex", "sh", "-c", script]);
        call.variable("OPENAI_API_KEY", "sk-of-mine").run().out()
    };
    assert_eq!(
        codex(),
        "{\"OPENAI_API_KEY\":\"sk-of-a-file\"}\n[sk-of-mine]\n"
    );
    // The copy that the project has of the login is no longer the user's to hide.
    std::fs::remove_dir_all(world.home.join(".local/state/agent-sandbox/kept")).unwrap();
    world.policy("[files]\nhide = [\"~/.codex/auth.json\"]\n[env]\nhide = [\"OPENAI_API_KEY\"]\n");
    assert_eq!(codex(), "[]\n");
}
