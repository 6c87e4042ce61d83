//! Who makes the mounts of a jail: the launcher takes the host's where it may, and bubblewrap makes them where it may not.

use std::path::PathBuf;
use std::process::Command;

use crate::backend::is_landlock;
use crate::operations::text;
use crate::world::{World, not_checked};

/// What each mount of a jail shows, where, and with which flags, as `/proc/self/mountinfo` has it (`proc(5)`); and what the
/// launcher logged.
fn mounts(world: &World, preload: Option<&PathBuf>) -> (Vec<String>, String) {
    let mut run = world.jail([]).env("AGENT_SANDBOX_LOG", "launch=debug");
    if let Some(preload) = preload {
        run = run.env("LD_PRELOAD", text(preload));
    }
    let output = run.run(&["cat", "/proc/self/mountinfo"]);
    assert_eq!(output.code(), 0, "{output:?}");
    let mut all: Vec<_> = output
        .stdout
        .lines()
        .map(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            let kind = line
                .split(" - ")
                .nth(1)
                .and_then(|rest| rest.split(' ').next());
            format!(
                "{} {} {} {}",
                fields[4],
                fields[3],
                fields[5],
                kind.unwrap_or_default()
            )
        })
        .collect();
    all.sort();
    (all, output.stderr)
}

/// Where a process may have no namespaces of its own, though bubblewrap may (a profile of AppArmor says so), the jail is the same.
#[test]
fn a_jail_is_the_same_whoever_makes_its_mounts() {
    const WHAT: &str = "mounts that the launcher takes from the host";
    if is_landlock() {
        return not_checked(WHAT, "Landlock mounts nothing");
    }
    let world = World::new();
    world.put(
        &world.project("none.c"),
        "#include <errno.h>\nint unshare(int flags) { errno = EPERM; return -1; }\n",
    );
    let preload = world.base("none.so");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o", &text(&preload), "none.c"])
        .current_dir(world.project(""))
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return not_checked(WHAT, "there is no C compiler");
    }
    let (taken, log) = mounts(&world, None);
    if !log.contains("mounts are taken from the host") || log.contains("count=0") {
        return not_checked(
            WHAT,
            "this kernel or this bubblewrap is older, or it was refused",
        );
    }
    let (made, log) = mounts(&world, Some(&preload));
    assert!(log.contains("bubblewrap makes all mounts"), "{log}");
    assert_eq!(taken, made);
    // Nothing of the host has more than it must.
    for mount in taken {
        let fields: Vec<_> = mount.split(' ').collect();
        let [at, _, flags, _] = fields[..] else {
            panic!("{mount}");
        };
        let has = |flag: &str| flags.split(',').any(|one| one == flag);
        assert!(has("nosuid"), "{mount}");
        assert!(
            has("nodev") || has("noexec") || at.starts_with("/dev/"),
            "{mount}"
        );
    }
}
