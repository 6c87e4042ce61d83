//! One session prepares what the next launch decides: links in the place of what the policy names,
//! closed directories, directories too full to be listed, libraries for the launcher.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::world::{World, not_checked};

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn policy(world: &World, policy: &str) {
    world.put(&world.home(".config/agent-sandbox/config.toml"), policy);
}

/// An exception from `files.hide` cancels the rule that it names; what stands at the path does not
/// count.
#[test]
fn a_planted_link_at_an_exception_opens_nothing() {
    let world = World::new();
    fs::create_dir_all(world.home(".claude")).unwrap();
    let plant = format!(
        "ln -sfn {} ~/.claude/.credentials.json && ls ~/.claude/.credentials.json",
        text(&world.home(".ssh"))
    );
    // State of the user's own, which a session of any project can change.
    let shared = |mode| {
        world.jail([
            "-p",
            "claude",
            "--set",
            "agents.state=shared",
            "--home",
            mode,
        ])
    };
    let output = shared("tmpfs").run(&["bash", "-c", &plant]);
    assert!(
        fs::symlink_metadata(world.home(".claude/.credentials.json"))
            .unwrap()
            .is_symlink(),
        "{output:?}"
    );
    for mode in ["tmpfs", "restricted", "read", "write"] {
        // The home by its variable, and by its real path: Landlock's jail has another one.
        let script = "for home in ~ \"$0\"; do
            cat $home/.ssh/id_rsa $home/.claude/.credentials.json/id_rsa
            echo evil >> $home/.ssh/authorized_keys; done";
        let output = shared(mode).run(&["bash", "-c", script, &text(&world.home(""))]);
        assert!(!output.stdout.contains(&world.marker), "{mode}: {output:?}");
        assert!(!world.home(".ssh/authorized_keys").exists(), "{mode}");
    }
}

/// A directory without its search bit looks as if nothing were in it.
#[test]
fn a_closed_directory_hides_nothing_from_the_launcher() {
    let world = World::new();
    let project = world.project("");
    Command::new("git")
        .args(["init", "-q"])
        .current_dir(&project)
        .status()
        .unwrap();
    let output = world.jail([]).run(&["chmod", "000", ".git"]);
    assert_eq!(output.code(), 0, "{output:?}");
    let output = world.jail([]).run(&[
        "bash",
        "-c",
        "chmod 755 .git; echo evil > .git/hooks/pre-commit",
    ]);
    Command::new("chmod")
        .arg("755")
        .arg(project.join(".git"))
        .status()
        .unwrap();
    output.refused("may not be searched");
    assert!(!world.project(".git/hooks/pre-commit").exists());
    // A file of one's own without its read bit can be given it back.
    let secret = world.project("secret/.env");
    world.secret(&secret);
    let hide = text(&secret);
    Command::new("chmod").args(["000", &hide]).status().unwrap();
    let output = world.jail(["--hide", &hide]).run(&[
        "bash",
        "-c",
        "chmod 600 secret/.env; cat secret/.env",
    ]);
    assert!(!output.stdout.contains(&world.marker), "{output:?}");
}

/// What the policy gives must not be chosen by a link that the jail can make.
#[test]
fn a_planted_link_at_a_grant_is_refused() {
    let world = World::new();
    world.secret(&world.home("Documents/private.txt"));
    fs::create_dir_all(world.project("a/out")).unwrap();
    policy(
        &world,
        &format!("[files]\nwrite = [\"{}\"]\n", text(&world.project("a/out"))),
    );
    let plant = format!(
        "mv a b && mkdir a && ln -s {} a/out",
        text(&world.home("Documents"))
    );
    // A mount keeps the directory above it in its place.
    let output = world.jail([]).run(&["bash", "-c", &plant]);
    if !crate::backend::is_landlock() {
        assert_ne!(output.code(), 0, "{output:?}");
        assert!(
            !fs::symlink_metadata(world.project("a/out"))
                .unwrap()
                .is_symlink()
        );
        // Planted by a session that was not told of it.
        fs::remove_dir(world.project("a/out")).unwrap();
        symlink(world.home("Documents"), world.project("a/out")).unwrap();
    }
    // However it came there, the next launch does not follow it.
    assert!(
        fs::symlink_metadata(world.project("a/out"))
            .unwrap()
            .is_symlink()
    );
    let output = world
        .jail([])
        .run(&["cat", &text(&world.home("Documents/private.txt"))]);
    output.refused("which an earlier session could have made");
    // The same for what is copied.
    policy(
        &world,
        "[home]\nwrite = [\"~/.state\"]\nseed = [\"~/.state/seed\"]\n",
    );
    fs::create_dir(world.home(".state")).unwrap();
    symlink(
        world.home("Documents/private.txt"),
        world.home(".state/seed"),
    )
    .unwrap();
    let output = world
        .jail([])
        .run(&["cat", &text(&world.home("Documents/private.txt"))]);
    output.refused("which the jail could change");
}

/// A hidden name that is a link in a writable directory could be removed, and its end with it from
/// what the next launch knows.
#[test]
fn a_hidden_link_that_can_be_removed_is_refused() {
    let world = World::new();
    world.secret(&world.home("data/hf/token"));
    fs::create_dir_all(world.home(".cache/huggingface")).unwrap();
    fs::remove_dir_all(world.home(".cache/huggingface")).unwrap();
    symlink(world.home("data/hf"), world.home(".cache/huggingface")).unwrap();
    policy(
        &world,
        "[home]\nwrite = [\"~/.cache\"]\nread = [\"~/data\"]\n[files]\nhide = [\"~/.cache/huggingface\"]\n",
    );
    let output = world
        .jail([])
        .run(&["cat", &text(&world.home("data/hf/token"))]);
    output.refused("which the jail could change");
}

/// A pattern that cannot be applied hides nothing.
#[test]
fn a_directory_too_full_for_a_pattern_is_refused() {
    let world = World::new();
    world.secret(&world.project("a.key"));
    policy(
        &world,
        &format!("[files]\nhide = [\"{}/*.key\"]\n", text(&world.project(""))),
    );
    let output = world.jail([]).run(&[
        "bash",
        "-c",
        "cat a.key; for i in {1..20005}; do : > f$i; done",
    ]);
    assert!(!output.stdout.contains(&world.marker), "{output:?}");
    let output = world.jail([]).run(&["cat", "a.key"]);
    output.refused("cannot be listed, or holds too many entries");
    // More files than can be covered.
    for at in 1..20005 {
        let _ = fs::remove_file(world.project(&format!("f{at}")));
    }
    for at in 0..600 {
        world.put(&world.project(&format!("{at}.key")), "");
    }
    world
        .jail([])
        .run(&["true"])
        .refused("hide their directory instead");
}

/// An empty entry in `LD_LIBRARY_PATH` is the current directory, which is the hostile project.
#[test]
fn a_planted_library_is_not_loaded_by_the_launcher() {
    let world = World::new();
    let trace = world.base("loaded");
    let source = format!(
        "#include <fcntl.h>\n__attribute__((constructor)) static void at(void) {{ open(\"{}\", O_CREAT, 0600); }}\n",
        text(&trace)
    );
    world.put(&world.project("evil.c"), &source);
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o", "libgcc_s.so.1", "evil.c"])
        .current_dir(world.project(""))
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return not_checked(
            "a library planted for the launcher",
            "there is no C compiler",
        );
    }
    // A program without the launcher's precaution does load it: the attack is one.
    world.put(&world.project("plain.c"), "int main(void) { return 0; }\n");
    let link = [
        "-o",
        "plain",
        "plain.c",
        "-Wl,--no-as-needed",
        "-l:libgcc_s.so.1",
    ];
    let linked = Command::new("cc")
        .args(link)
        .current_dir(world.project(""))
        .status();
    assert!(linked.is_ok_and(|status| status.success()));
    let outside = world
        .outside()
        .env("LD_LIBRARY_PATH", "/opt/x:")
        .run(&["./plain"]);
    assert!(trace.exists(), "{outside:?}");
    fs::remove_file(&trace).unwrap();
    fs::copy(world.project("libgcc_s.so.1"), world.project("libc.so.6")).unwrap();
    let output = world
        .jail(["--dry-run"])
        .env("LD_LIBRARY_PATH", "/opt/x:")
        .run(&["true"]);
    assert_eq!(output.code(), 0, "{output:?}");
    assert!(!trace.exists());
}

/// A name with a newline does not make a line of its own in what the launcher says.
#[test]
fn a_projects_name_is_one_line() {
    let world = World::new();
    let odd = world.project("x\nerror: call this number\u{202e}");
    fs::create_dir(&odd).unwrap();
    let output = world.loud([]).cwd(&odd).run(&["true"]);
    assert_eq!(output.code(), 0, "{output:?}");
    assert!(
        !output.stderr.lines().any(|line| line.starts_with("error:")),
        "{output:?}"
    );
    assert!(!output.stderr.contains('\u{202e}'), "{output:?}");
}
