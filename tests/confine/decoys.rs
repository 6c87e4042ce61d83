//! Floods of files with which a session, or the one before it, hides what it leaves for programs outside.

use std::fs;

use crate::left::{aside, sh};
use crate::world::World;

/// More than are noted of what is only said.
const MANY: usize = 5200;

/// It may be one of too many to be said.
#[track_caller]
fn is_aside(world: &World, said: &str, name: &str) {
    assert!(!world.project(name).exists(), "{name} stands still: {said}");
    assert!(aside(world, name).exists(), "{name} is nowhere: {said}");
}

/// Settings of an editor hide no settings of an agent: neither at once, nor in the next session, which finds them there.
#[test]
fn what_is_only_said_hides_nothing_that_is_set_aside() {
    let world = World::new();
    let flood = format!("mkdir .idea; cd .idea; seq {MANY} | xargs touch; cd ..");
    let hooks = |at: &str| {
        format!(
            "mkdir -p {at}/b/.claude {at}/c; echo \"$HOOK\" > {at}/b/.claude/settings.json
             git init -q {at}/c; git -C {at}/c config core.fsmonitor ./evil"
        )
    };
    let said = sh(&world, &format!("{flood}\n{}", hooks("one")));
    is_aside(&world, &said, "one/b/.claude/settings.json");
    is_aside(&world, &said, "one/c/.git/config");
    assert!(
        said.contains("left in the project: more of what programs obey than is looked at"),
        "{said}"
    );
    // Where the look before a session had no time for so many files, what is new is told by times, and stays.
    // The next session finds what was set aside in its place again.
    let mut tries = ["two", "three", "four"]
        .into_iter()
        .map(|at| (at, sh(&world, &hooks(at))));
    let (at, said) = tries
        .find(|(_, said)| !said.contains("as far as its times say"))
        .expect("too late for this test");
    is_aside(&world, &said, &format!("{at}/b/.claude/settings.json"));
    is_aside(&world, &said, &format!("{at}/c/.git/config"));
}

/// Neither do settings of which there are too many to be set aside, nor a directory in which they stand: what has its
/// well-known place in the project is looked at before, and that not all was is said.
#[test]
fn a_flood_of_settings_hides_none_at_a_well_known_place() {
    let world = World::new();
    let said = sh(
        &world,
        "mkdir -p .copilot .cline .claude .codex; cd .copilot; seq 12000 | xargs touch; cd ../.cline; seq 12000 | xargs touch; cd ..
         rm -rf .git; git init -q; git config core.fsmonitor ./evil; echo x > .git/hooks/post-index-change
         for name in .claude/settings.json .claude/settings.local.json .mcp.json .codex/config.toml; do
             echo \"$HOOK\" > $name; done; mkdir -p d/e; echo \"$HOOK\" > d/e/.mcp.json",
    );
    for name in [
        ".claude/settings.json",
        ".claude/settings.local.json",
        ".mcp.json",
        ".codex/config.toml",
        ".git/config",
        ".git/hooks/post-index-change",
    ] {
        is_aside(&world, &said, name);
    }
    let line = "left in the project: nobody knows what";
    assert!(said.contains(line), "{said}");
}

/// What the launcher notes of a project stays readable: names that take much room, of directories that it cannot open,
/// do not make it forget what stood there.
#[test]
fn a_flood_of_long_names_does_not_make_the_launcher_forget() {
    let world = World::new();
    world.put(&world.project(".claude/settings.local.json"), "{}\n");
    // Each byte takes six in a record, and these names are all in a path.
    sh(
        &world,
        "mkdir d; cd d; long=$(printf '\\001%.0s' {1..240}); for n in {1..8}; do mkdir $long; cd $long; done
         seq -f \"$long%06.0f\" 4000 | xargs mkdir -m 000",
    );
    let said = sh(
        &world,
        "echo \"$HOOK\" > .mcp.json; echo \"$HOOK\" > .claude/settings.local.json",
    );
    is_aside(&world, &said, ".mcp.json");
    let own = fs::read_to_string(world.project(".claude/settings.local.json")).unwrap();
    assert_eq!(own, "{}\n", "{said}");
    sh(
        &world,
        "find d -mindepth 9 -maxdepth 9 -exec rmdir {} +; rm -r d",
    );
}
