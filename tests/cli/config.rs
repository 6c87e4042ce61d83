//! What is wrong with a policy file is said with the file, the line and the nearest word, and
//! nothing is started.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::world::World;

const FILE: &str = "~/.config/agent-sandbox/config.toml";

#[test]
fn mistakes_in_a_policy_file() {
    for (text, message) in [
        (
            "[files]\nraed = []\n",
            "error: unknown key `raed`[..]\n --> FILE:2:1\n...\nhint: did you mean `read`?[..]\n",
        ),
        (
            "[fiels]\nread = []\n",
            "error: unknown section `fiels`[..]\n --> FILE:1:2\n...\nhint: did you mean [..]files[..]\n",
        ),
        ("\n[files\n", "error: [..]\n --> FILE:2:[..]\n...\n"),
        (
            "[home]\nmode = \"wriet\"\n",
            "error: unknown value `wriet`\n --> FILE:2:8\n...\nhint: did you mean \"write\"? valid: tmpfs, restricted, read, write\n",
        ),
        (
            "[jail]\nnested = \"yes\"\n",
            "error: [..]\n --> FILE:2:10\n...\n",
        ),
        (
            "[files]\nread = [\"relative\"]\n",
            "error: path `relative` is relative; write `/…`, `~/…` or `$NAME/…`\n --> FILE:2:9\n...\n",
        ),
        (
            "[home]\nread = [\"/usr\"]\n",
            "error: path `/usr` does not lie below the home directory\n --> FILE:2:9\n...\nhint: [..]\n",
        ),
        (
            "[devices]\nallow = [\"/etc\"]\n",
            "error: `/etc` is not a path below /dev\n --> FILE:2:10\n...\n",
        ),
        (
            "[trace]\nredact = [\"*a*a*a*a*a*a*a*a*\"]\n",
            "error: a pattern with more than 8 `*`\n --> FILE:2:11\n...\nhint: [..]\n",
        ),
    ] {
        let world = World::new();
        world.policy(text);
        let message = message.replace("FILE", FILE);
        for words in [
            &["true"][..],
            &["--dry-run", "true"],
            &["policy"],
            &["explain", "/usr"],
        ] {
            world.call(words).run().expect(125, "", &message);
        }
    }
}

#[test]
fn files_that_cannot_be_trusted_or_read() {
    let world = World::new();
    let path = world.policy("[files]\n");
    let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o666);
    let text = format!(
        "error: {FILE} can be changed by its group and other users\nhint: chmod go-w {FILE}\n"
    );
    world.call(["true"]).run().expect(125, "", &text);
    mode(0o000);
    let text = format!(
        "error: cannot read {FILE}: Permission denied (os error 13)\nhint: make it readable: chmod u+r {FILE}\n"
    );
    world.call(["true"]).run().expect(125, "", &text);
    mode(0o600);
    world.quiet(["true"]).run().expect(0, "", "");
    fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    let text = format!("error: {FILE} is larger than 1 MiB\nhint: [..]\n");
    world.call(["true"]).run().expect(125, "", &text);
    fs::write(&path, b"[files]\n# \xff\n").unwrap();
    let text = format!("error: {FILE}:2: not UTF-8 text\nhint: save the file as UTF-8\n");
    world.call(["true"]).run().expect(125, "", &text);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let text = format!("error: {FILE} is not a regular file\nhint: [..]\n");
    world.call(["true"]).run().expect(125, "", &text);
    fs::remove_dir(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    world.call(["true"]).run().expect(125, "", &text);
}

#[test]
fn profiles_that_do_not_exist_or_are_broken() {
    let world = World::new();
    let text = "error: unknown profile `clade`\nhint: did you mean `claude`? There are: `aider`, `claude`, [..]\n";
    world
        .call(["-p", "clade", "true"])
        .run()
        .expect(125, "", text);
    world.call(["-p", "../x", "true"]).run().expect(
        125,
        "",
        "error: `../x` cannot be the name of a profile\nhint: [..]\n",
    );
    world.write(
        "home/.config/agent-sandbox/profiles/mine.toml",
        "[profile]\ncommands = [\"sh\"]\n[files]\nraed = []\n",
    );
    let text = "error: unknown key `raed`[..]\n --> ~/.config/agent-sandbox/profiles/mine.toml:4:1\n...\nhint: [..]\n";
    world
        .call(["-p", "mine", "true"])
        .run()
        .expect(125, "", text);
    // It may have been the one for `sh`; it is none for `true`.
    world.call(["sh", "-c", "true"]).run().expect(125, "", text);
    world.quiet(["true"]).run().expect(0, "", "");
}

/// A profile is chosen by the name of the command, and by `-p`.
#[test]
fn a_profile_applies() {
    let world = World::new();
    world.write(
        "home/.config/agent-sandbox/profiles/mine.toml",
        "[profile]\ndescription = \"Mine\"\ncommands = [\"sh\"]\n[env.set]\nFROM_PROFILE = \"yes\"\n",
    );
    world.sh("echo $FROM_PROFILE").run().expect(0, "yes\n", "");
    world
        .quiet(["bash", "-c", "echo $FROM_PROFILE"])
        .run()
        .expect(0, "\n", "");
    world
        .call(["-q", "-p", "mine", "bash", "-c", "echo $FROM_PROFILE"])
        .run()
        .expect(0, "yes\n", "");
}

/// Sections for a project are in the user's file, by path.
#[test]
fn sections_for_a_project() {
    let world = World::new();
    world.policy("[projects.\"~/project\".env.set]\nHERE = \"1\"\n[projects.\"~/other\".env.set]\nTHERE = \"1\"\n");
    fs::create_dir_all(world.home.join("other")).unwrap();
    world.sh("echo $HERE/$THERE").run().expect(0, "1/\n", "");
    world
        .sh("echo $HERE/$THERE")
        .cwd(world.home.join("other"))
        .run()
        .expect(0, "/1\n", "");
    // A policy in the project means nothing: the agent can write there.
    world.write(
        "home/project/.config/agent-sandbox/config.toml",
        "[network]\nmode = \"nonsense\"\n",
    );
    world.write("home/project/agent-sandbox.toml", "nonsense");
    world.sh("echo $HERE").run().expect(0, "1\n", "");
}
