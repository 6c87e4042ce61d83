//! Exit codes, and which words are the command.

use std::fs;
use std::os::unix::fs::symlink;

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
        hint: --read [PLACE]/home/tools shows it for one run; for good: add \"~/tools\" to home.read in ~/.config/agent-sandbox/config.toml\n";
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

/// A program that npm installed: a link to a script, which needs other files of its package and of another one,
/// and an interpreter that stands in the home as well. Following the hint once is enough.
#[test]
fn the_hint_about_a_package_names_what_it_needs() {
    let world = World::new();
    let modules = "home/npm/node_modules";
    world.program("home/node-22/bin/node", "#!/bin/sh\nexec sh \"$@\"\n");
    world.write("home/node-22/lib/node.txt", "");
    world.program(
        &format!("{modules}/@lab/agent/bin/agent.js"),
        "#!/usr/bin/env node\n. \"$(dirname \"$(readlink -f \"$0\")\")/../../../needed/index\"\n",
    );
    world.write(&format!("{modules}/needed/index"), "echo an agent\n");
    fs::create_dir(world.place.join(modules).join(".bin")).unwrap();
    let link = world.place.join(modules).join(".bin/agent");
    symlink("../@lab/agent/bin/agent.js", &link).unwrap();
    // As it is, and by a link in a directory that the jail shows.
    fs::create_dir_all(world.home.join("bin")).unwrap();
    symlink(&link, world.home.join("bin/agent")).unwrap();
    let home = world.home.display();
    for directory in ["npm/node_modules/.bin", "bin"] {
        let path = format!("{home}/{directory}:{home}/node-22/bin:/usr/bin:/bin");
        let call = |words: &[&str]| world.call(words).variable("PATH", &path).run();
        let output = call(&["agent"]);
        output.expect(
            127,
            "",
            "error: `agent`: command not found in the jail\n\
             hint: it exists outside, as `[PLACE]/home/npm/node_modules/@lab/agent/bin/agent.js`, and the jail does not show it\n\
             hint: --read [PLACE]/home/node-22 --read [PLACE]/home/npm/node_modules shows it for one run; for good: \
             add \"~/node-22\", \"~/npm/node_modules\" to home.read in ~/.config/agent-sandbox/config.toml\n",
        );
        let (node, npm) = (
            format!("{home}/node-22"),
            format!("{home}/npm/node_modules"),
        );
        let shown = call(&["-q", "--read", &node, "--read", &npm, "agent"]);
        shown.expect(0, "an agent\n", "");
        // Only what is missing is named.
        let rest = call(&["-q", "--read", &node, "agent"]);
        assert!(rest.err().contains("hint: --read"), "{rest}");
        assert!(
            !rest.err().contains("--read [PLACE]/home/node-22"),
            "{rest}"
        );
    }
    world.policy("[home]\nread = [\"~/node-22\", \"~/npm/node_modules\"]\n");
    let path = format!("{home}/bin:{home}/node-22/bin:/usr/bin:/bin");
    let call = world.quiet(["agent"]).variable("PATH", &path);
    call.run().expect(0, "an agent\n", "");
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
