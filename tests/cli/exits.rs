//! Exit codes, and which words are the command.

use crate::world::World;

#[test]
fn the_commands_own_code_comes_back() {
    let world = World::new();
    for code in [0, 1, 7, 124, 125, 126, 127, 128, 255] {
        world.sh(&format!("exit {code}")).run().expect(code, "", "");
    }
}

#[test]
fn a_signal_comes_back_as_128_and_its_number() {
    let world = World::new();
    for (signal, code) in [
        ("HUP", 129),
        ("INT", 130),
        ("QUIT", 131),
        ("ABRT", 134),
        ("KILL", 137),
        ("SEGV", 139),
        ("PIPE", 141),
        ("ALRM", 142),
        ("TERM", 143),
    ] {
        world
            .sh(&format!("kill -{signal} $$"))
            .run()
            .expect(code, "", "");
    }
}

#[test]
fn a_real_time_signal_comes_back_likewise() {
    let world = World::new();
    for number in [34, 35, 64] {
        world
            .quiet(["bash", "-c", &format!("kill -{number} $$")])
            .run()
            .expect(128 + number, "", "");
    }
}

#[test]
fn what_cannot_be_executed_is_126() {
    let world = World::new();
    world.write("home/project/plain", "text");
    world.quiet(["./plain"]).run().expect(
        126,
        "",
        "error: cannot execute `./plain`: Permission denied (os error 13)\n",
    );
    world.quiet(["/usr"]).run().expect(
        126,
        "",
        "error: cannot execute `/usr`: Permission denied (os error 13)\n",
    );
    world.program("home/project/broken", "#!/no/such/interpreter\n");
    let broken = world.quiet(["./broken"]).run();
    assert!([126, 127].contains(&broken.code), "{broken}");
}

#[test]
fn what_is_not_there_is_127() {
    let world = World::new();
    let missing = "error: `no-such-command`: command not found in the jail\n";
    world
        .quiet(["no-such-command"])
        .run()
        .expect(127, "", missing);
    world.quiet(["./gone"]).run().expect(
        127,
        "",
        "error: `./gone`: command not found in the jail\n",
    );
    world
        .quiet([""])
        .run()
        .expect(127, "", "error: ``: command not found in the jail\n");
}

/// A command that exists outside and that the jail does not show.
#[test]
fn a_command_that_the_jail_does_not_show_is_explained() {
    let world = World::new();
    world.program("home/tools/mine", "#!/bin/sh\necho mine\n");
    let path = format!("{}:/usr/bin:/bin", world.home.join("tools").display());
    let hint = "error: `mine`: command not found in the jail\n\
        hint: it exists outside, as `[PLACE]/home/tools/mine`, and the jail does not show it\n\
        hint: --read [PLACE]/home/tools shows it for one run; `agent-sandbox explain [PLACE]/home/tools/mine` says more\n";
    world
        .quiet(["mine"])
        .variable("PATH", &path)
        .run()
        .expect(127, "", hint);
    // As the hint says.
    let tools = world.home.join("tools");
    let shown = world.call(["-q", "--read", tools.to_str().unwrap(), "mine"]);
    shown.variable("PATH", &path).run().expect(0, "mine\n", "");
}

/// As execvp(3) has it, and without the current directory, which anybody may have filled.
#[test]
fn the_command_is_searched_as_shells_do() {
    let world = World::new();
    world.program("home/project/script", "echo by sh \"$0\" \"$1\"\n");
    world
        .quiet(["./script", "a b"])
        .run()
        .expect(0, "by sh ./script a b\n", "");
    world.program("home/project/ls", "#!/bin/sh\necho planted\n");
    for path in [":/usr/bin:/bin", ".:/usr/bin:/bin", "/usr/bin::/bin"] {
        let listing = world.quiet(["ls", "main.c"]).variable("PATH", path).run();
        listing.expect(0, "main.c\n", "");
    }
    world
        .quiet(["sh", "-c", "echo $PATH"])
        .variable("PATH", "/usr/bin:/bin:")
        .run()
        .expect(0, "/usr/bin:/bin::/run/agent-sandbox/bin\n", "");
    world
        .quiet(["true"])
        .without_variable("PATH")
        .run()
        .expect(0, "", "");
}

#[test]
fn options_behind_the_command_are_its_own() {
    let world = World::new();
    let words = ["echo", "--read", "x", "-q", "--help", "--", "policy"];
    world
        .quiet(words)
        .run()
        .expect(0, "--read x -q --help -- policy\n", "");
    world
        .call(["-q", "--", "echo", "--", "-v"])
        .run()
        .expect(0, "-- -v\n", "");
    world
        .quiet(["sh", "-c", "printf '<%s>' \"$@\"", "sh", "", "a b", "*"])
        .run()
        .expect(0, "<><a b><*>", "");
}

#[test]
fn a_command_may_be_named_like_a_subcommand() {
    let world = World::new();
    for name in ["policy", "explain", "run", "sessions", "profile"] {
        world.program(
            &format!("home/.local/bin/{name}"),
            "#!/bin/sh\necho mine \"$@\"\n",
        );
    }
    let path = format!("{}:/usr/bin:/bin", world.home.join(".local/bin").display());
    for words in [
        &["-q", "--", "policy", "--json"][..],
        &["-q", "run", "policy", "--json"],
        &["-q", "run", "--", "policy", "--json"],
        &["-q", "--", "run", "--json"],
        &["-q", "run", "run", "--json"],
        &["-q", "--", "explain", "--json"],
        &["-q", "run", "sessions", "--json"],
    ] {
        let output = world.call(words).variable("PATH", &path).run();
        output.expect(0, "mine --json\n", "");
    }
}
