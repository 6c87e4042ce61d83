//! The launcher without shared libraries, for nodes that differ: a real jail, and who is known in it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::world::{Done, TestPrefix, not_checked};

/// The static launcher with the others beside it, if it could be built here.
fn launcher(what: &str) -> Option<PathBuf> {
    let found = std::env::var_os("AGENT_SANDBOX_TEST_STATIC").map(PathBuf::from);
    let found = found.filter(|path| path.exists());
    if found.is_none() {
        not_checked(
            what,
            "Rust's musl target is not installed, so there is no static launcher",
        );
    }
    found
}

#[test]
fn a_static_launcher_makes_a_jail() {
    let Some(launcher) = launcher("a jail by the static launcher") else {
        return;
    };
    let place = TestPrefix::new();
    // No interpreter is named in it: nothing is loaded when it starts.
    let mut ldd = place.command("ldd");
    ldd.arg(&launcher).env("LC_ALL", "C");
    let done = Done::of(ldd);
    let said = format!("{}{}", done.out, done.err);
    assert!(
        said.contains("statically linked") || said.contains("not a dynamic"),
        "{said}"
    );
    place.write("home/.ssh/id_rsa", "canary-3f9c1e");
    let run = |program: &std::path::Path, script: &str| {
        let mut command: Command = place.command(program);
        command
            .args(["-q", "sh", "-c", script])
            .current_dir(place.home.join("project"));
        Done::of(command)
    };
    let script = "cat ~/.ssh/id_rsa 2> /dev/null || echo hidden; echo done > file; id -un; id -Gn; getent passwd $(id -u)";
    let by_static = run(&launcher, script).ok();
    assert!(by_static.out.starts_with("hidden\n"), "{by_static}");
    assert_eq!(
        fs::read_to_string(place.home.join("project/file")).unwrap(),
        "done\n"
    );
    // The jail is the same, down to the user's names.
    let beside = std::env::var_os("AGENT_SANDBOX_BIN")
        .map(PathBuf::from)
        .unwrap();
    assert_eq!(by_static.out, run(&beside, script).ok().out);
    assert_eq!(run(&launcher, "exit 3").code, 3);
    assert_eq!(run(&launcher, "kill -9 $$").code, 137);
    // Landlock's jail has a mediator of calls, which is the same code.
    let mut fenced = place.command(&launcher);
    fenced
        .args(["--backend", "landlock", "-q", "sh", "-c"])
        .arg("cat ~/.ssh/id_rsa 2> /dev/null || echo hidden; mkdir a; mv a b; ls")
        .current_dir(place.home.join("project"));
    let done = Done::of(fenced);
    if done.code == 125 && done.err.contains("error: Landlock cannot make the jail") {
        not_checked(
            "Landlock's jail by the static launcher",
            done.err.lines().next().unwrap_or(""),
        );
    } else {
        assert_eq!(done.ok().out, "hidden\nb\nfile\n");
    }
}

#[test]
fn both_launchers_plan_the_same() {
    let Some(launcher) = launcher("the static launcher's plan") else {
        return;
    };
    let place = TestPrefix::new();
    let beside = std::env::var_os("AGENT_SANDBOX_BIN")
        .map(PathBuf::from)
        .unwrap();
    let plan = |program: &std::path::Path| {
        let mut command = place.command(program);
        command
            .args(["--dry-run", "true"])
            .current_dir(place.home.join("project"));
        let text = Done::of(command).ok().out;
        // The programs stand in other directories, which are given as such.
        let own = program.parent().unwrap().display().to_string();
        text.replace(&own, "[PROGRAMS]")
    };
    assert_eq!(plan(&launcher), plan(&beside));
}
