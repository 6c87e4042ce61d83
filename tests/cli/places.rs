//! Where things stand: projects and homes by other names, the current directory, private places.

use std::fs;
use std::os::unix::fs::symlink;

use crate::world::{CANARY, World};

#[test]
fn the_project_is_writable_and_real() {
    let world = World::new();
    world
        .sh("echo text > made && mkdir -p a/b && mv a c && ls")
        .run()
        .expect(0, "c\nmade\nmain.c\n", "");
    assert_eq!(
        fs::read_to_string(world.project.join("made")).unwrap(),
        "text\n"
    );
    assert!(world.project.join("c/b").is_dir());
}

#[test]
fn credentials_do_not_exist() {
    let world = World::new();
    for mode in ["tmpfs", "restricted", "read", "write"] {
        let output = world
            .call([
                "-q",
                "--home",
                mode,
                "cat",
                "../.ssh/id_rsa",
                "../.netrc",
                "../.bash_history",
            ])
            .run();
        let missing = |name: &str| format!("cat: ../{name}: No such file or directory\n");
        let text = [".ssh/id_rsa", ".netrc", ".bash_history"]
            .map(missing)
            .concat();
        output.expect(1, "", &text);
    }
}

#[test]
fn the_current_directory_is_kept() {
    let world = World::new();
    let deep = world.project.join("a/b");
    fs::create_dir_all(&deep).unwrap();
    let project = world.project.to_str().unwrap();
    let output = world.call(["-q", "-C", project, "pwd"]).cwd(&deep).run();
    output.expect(0, "[PLACE]/home/project/a/b\n", "");
    // From a place that the jail does not show, the command begins in the project.
    let output = world
        .call(["-q", "-C", project, "pwd"])
        .cwd(world.home.join(".ssh"))
        .run();
    output.expect(0, "[PLACE]/home/project\n", "");
    // A relative name of the project.
    let output = world.call([
        "-q",
        "-C",
        "../..",
        "sh",
        "-c",
        "pwd; echo $AGENT_SANDBOX_PROJECT",
    ]);
    let text = "[PLACE]/home/project/a/b\n[PLACE]/home/project\n";
    output.cwd(&deep).run().expect(0, text, "");
}

/// By both of its names, as the user knows it.
#[test]
fn a_project_behind_a_link() {
    let world = World::new();
    let real = world.place.join("scratch/ada/work");
    fs::create_dir_all(&real).unwrap();
    let link = world.home.join("work");
    symlink(&real, &link).unwrap();
    let script = format!(
        "echo 1 > {}/one && echo 2 > {}/two && cat one two",
        link.display(),
        real.display()
    );
    let call = world.call(["-q", "-C", link.to_str().unwrap(), "sh", "-c", &script]);
    call.cwd(&link).run().expect(0, "1\n2\n", "");
    let call = world
        .sh("cat one && ls ~/work")
        .cwd(&link)
        .variable("PWD", &link);
    call.run().expect(0, "1\none\ntwo\n", "");
}

#[test]
fn a_home_behind_a_link() {
    let world = World::new();
    let link = world.place.join("people");
    symlink(&world.home, &link).unwrap();
    let project = link.join("project");
    let script =
        "echo $HOME; cd && cat .gitconfig && ls -A; cat .ssh/id_rsa; echo text > ~/project/made";
    let call = world
        .sh(script)
        .variable("HOME", &link)
        .cwd(&project)
        .variable("PWD", &project);
    let text = "[PLACE]/people\n[user]\n\tname = Ada\n.cache\n.gitconfig\nproject\n";
    call.run()
        .expect(0, text, "cat: .ssh/id_rsa: No such file or directory\n");
    assert!(world.project.join("made").exists());
    let output = world
        .call(["-C", link.to_str().unwrap(), "true"])
        .variable("HOME", &link)
        .run();
    assert!(
        output.err().contains("it is your home directory"),
        "{output}"
    );
    // The policy beside the linked home is the user's.
    world.policy("[env.set]\nMINE = \"1\"\n");
    world
        .sh("echo $MINE")
        .variable("HOME", &link)
        .run()
        .expect(0, "1\n", "");
}

#[test]
fn new_files_in_the_home_are_private() {
    let world = World::new();
    world
        .sh("echo x > ~/new && cat ~/new")
        .run()
        .expect(0, "x\n", "");
    assert!(!world.home.join("new").exists());
    let output = world.sh("echo x >> ~/.gitconfig").run();
    assert_eq!(output.code, 2, "{output}");
    assert!(output.err().contains("Read-only file system"), "{output}");
}

#[test]
fn tmp_is_private() {
    let world = World::new();
    let name = format!("agent-sandbox-cli-{}", std::process::id());
    let script = format!("echo x > /tmp/{name} && echo y > /var/tmp/{name} && ls /tmp");
    let output = world.sh(&script).run();
    assert_eq!(output.code, 0, "{output}");
    assert!(!std::path::Path::new("/tmp").join(&name).exists());
    assert!(!std::path::Path::new("/var/tmp").join(&name).exists());
}

#[test]
fn options_give_and_hide_paths() {
    let world = World::new();
    world.write("data/in", "in");
    world.write("data/secret", CANARY);
    let data = world.place.join("data");
    let path = |name: &str| data.join(name).display().to_string();
    let (data, secret) = (data.display().to_string(), path("secret"));
    let all = format!("cat {data}/in; echo; cat {secret}; echo x > {data}/made");
    let given = world
        .call(["-q", "--read", &data, "--hide", &secret, "sh", "-c", &all])
        .run();
    assert!(
        given.out() == "in\n" && given.err().contains("No such file"),
        "{given}"
    );
    assert!(!world.place.join("data/made").exists(), "{given}");
    let given = world
        .call(["-q", "--write", &data, "--hide", &secret, "sh", "-c", &all])
        .run();
    assert!(!given.out().contains(CANARY), "{given}");
    assert_eq!(fs::read_to_string(path("made")).unwrap(), "x\n");
    assert_eq!(fs::read_to_string(&secret).unwrap(), CANARY);
    // The project can be hidden from, too.
    let output = world
        .call(["-q", "--hide", "main.c", "sh", "-c", "cat main.c; ls"])
        .run();
    assert!(!output.out().contains("int main"), "{output}");
}

/// A path that does not exist is left out, and nothing is made for it.
#[test]
fn a_missing_path_makes_nothing() {
    let world = World::new();
    let gone = world.place.join("gone");
    let gone = gone.to_str().unwrap();
    let before = listing(&world);
    for option in ["--read", "--write"] {
        let note = "agent-sandbox: note: `[..]/gone`: it does not exist [files.[..] (--[..])]\n";
        world
            .call(["-q", option, gone, "true"])
            .run()
            .expect(0, "", note);
    }
    world
        .call(["-q", "--hide", gone, "true"])
        .run()
        .expect(0, "", "");
    world.policy("[home]\nwrite = [\"~/none/a\"]\nread = [\"~/none/b\"]\nseed = [\"~/none/c\"]\nprotect = [\"~/project/none\"]\n[files]\nhide = [\"~/project/secret\", \"~/project/none/x\"]\n");
    world.quiet(["true"]).run().expect(0, "", "");
    // What agent-sandbox itself keeps: its policy, and records of sessions.
    let own = [".config", ".local"].map(|name| world.home.join(name).display().to_string());
    let after: Vec<String> = listing(&world)
        .into_iter()
        .filter(|path| !own.iter().any(|own| path.starts_with(own)))
        .collect();
    assert_eq!(before, after);
}

fn listing(world: &World) -> Vec<String> {
    let output = std::process::Command::new("find")
        .arg(&world.place)
        .output()
        .unwrap();
    let mut all: Vec<String> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    all.sort();
    all
}

/// With a home that is given whole, what is hidden or protected in it is still so.
#[test]
fn a_writable_home() {
    let world = World::new();
    world.write("home/.bashrc", "# mine\n");
    world.write("home/.config/git/config", "[alias]\n");
    world.write("home/.config/git/credentials", CANARY);
    world.write("home/notes.txt", "");
    let script = "for f in notes.txt .bashrc .gitconfig .config/git/config; do (echo x >> ~/$f) 2> /dev/null && echo $f; done; cat ~/.config/git/credentials";
    let output = world
        .call(["-q", "--home", "write", "sh", "-c", script])
        .run();
    output.expect(1, "notes.txt\n", "cat: [..]: No such file or directory\n");
}

/// What decides about later sessions is not writable, though its directory is.
#[test]
fn settings_of_agents_are_kept() {
    let world = World::new();
    let settings = world.write("home/.claude/settings.json", "{}");
    world.write("home/.claude/state", "");
    let script = "echo s > ~/.claude/state && (echo x > ~/.claude/settings.json) 2> /dev/null; rm -f ~/.claude/settings.json 2> /dev/null; mv ~/.claude ~/.other 2> /dev/null; ls ~/.claude";
    let claude = |script: &str, state: &str| {
        let state = format!("agents.state={state}");
        let words = ["-q", "-p", "claude", "--set", &state, "sh", "-c", script];
        world.call(words).run()
    };
    let output = claude(script, "shared");
    output.expect(0, "CLAUDE.md\nsettings.json\nstate\n", "");
    assert_eq!(fs::read_to_string(&settings).unwrap(), "{}");
    // Of the project's own state the entry can be removed, and is there again.
    claude(script, "project").expect(0, "CLAUDE.md\nstate\n", "");
    assert_eq!(fs::read_to_string(&settings).unwrap(), "{}");
    let script = "cat ~/.claude/settings.json; ls ~/.claude";
    let listed = "{}CLAUDE.md\nsettings.json\nstate\n";
    claude(script, "project").expect(0, listed, "");
}

/// A session takes away its own right to look into a directory, so that the next one does not see
/// what is to be protected there.
#[test]
fn settings_behind_a_closed_directory_are_kept() {
    let world = World::new();
    let settings = world.write("home/.claude/settings.json", "{}");
    let claude = |script: &str| world.call(["-q", "-p", "claude", "sh", "-c", script]).run();
    claude("chmod 000 ~/.claude");
    let second = claude("chmod 700 ~/.claude; echo evil > ~/.claude/settings.json");
    let _ = std::process::Command::new("chmod")
        .arg("700")
        .arg(world.home.join(".claude"))
        .status();
    assert_eq!(fs::read_to_string(&settings).unwrap(), "{}", "{second}");
}

/// A session closes a directory of the project through which a link at a credential's place leads,
/// so that the next one does not see where it leads.
#[test]
fn credentials_behind_a_closed_directory_stay_hidden() {
    let world = World::new();
    fs::remove_dir_all(world.home.join(".ssh")).unwrap();
    world.write("home/project/dotfiles/ssh/id_rsa", CANARY);
    symlink("project/dotfiles/ssh", world.home.join(".ssh")).unwrap();
    let read = "cat dotfiles/ssh/id_rsa ~/.ssh/id_rsa 2> /dev/null; true";
    world.sh(read).run().expect(0, "", "");
    let said = "agent-sandbox: left in the project: `dotfiles` cannot be looked into\n";
    world.sh("chmod 000 dotfiles").run().expect(0, "", said);
    let second = world.sh(&format!("chmod 700 dotfiles; {read}")).run();
    let _ = std::process::Command::new("chmod")
        .arg("700")
        .arg(world.project.join("dotfiles"))
        .status();
    assert!(!second.out().contains(CANARY), "{second}");
}

/// The project is writable throughout, though its home is readable and something in it is hidden.
#[test]
fn a_project_in_a_readable_home() {
    let world = World::new();
    world.write("home/project/src/a.c", "");
    world.write("home/project/secret", CANARY);
    let secret = world.project.join("secret");
    let secret = secret.to_str().unwrap();
    for mode in ["restricted", "read", "write"] {
        let script = "echo x > src/new && echo y > new && cat secret";
        let output = world
            .call(["-q", "--home", mode, "--hide", secret, "sh", "-c", script])
            .run();
        assert!(
            !output.err().contains("Read-only") && !output.out().contains(CANARY),
            "{mode}: {output}"
        );
        assert_eq!(
            fs::read_to_string(world.project.join("src/new")).unwrap(),
            "x\n",
            "{mode}"
        );
        fs::remove_file(world.project.join("src/new")).unwrap();
    }
}

/// A repository whose `.git` is hidden is a project like any other.
#[test]
fn a_hidden_repository() {
    let world = World::new();
    world.write("home/project/.git/config", "[core]\n");
    world.write("home/project/.git/hooks/x", "");
    let output = world
        .call([
            "-q",
            "--hide",
            ".git",
            "sh",
            "-c",
            "ls -A .git; echo x > new",
        ])
        .run();
    output.expect(0, "", "");
}
