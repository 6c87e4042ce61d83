//! The site's profiles: found by name and by command, replaced by the user's, bounded by what the site
//! enforces, and root's alone.

use std::os::unix::fs::chown;
use std::path::PathBuf;

use crate::widening::{SYSTEM, Tried, stops};
use crate::world::{CANARY, World, mode};

/// A profile of the site's.
fn of_site(world: &World, name: &str, text: &str) -> PathBuf {
    world.site_file(&format!("profiles/{name}.toml"), text)
}

#[test]
fn a_profile_of_the_sites_is_used_and_the_users_takes_its_place() {
    let world = World::new();
    let text = |from: &str| {
        format!(
            "[profile]\ndescription = \"{from}\"\ncommands = [\"sh\"]\n[env.set]\nFROM = \"{from}\"\n"
        )
    };
    of_site(&world, "lab", &text("the site"));
    let says = |expected: &str| {
        for words in [&["-q", "sh"][..], &["-q", "-p", "lab", "sh"]] {
            let words = [words, &["-c", "echo $FROM"]].concat();
            assert_eq!(world.run(&words).ok().stdout, format!("{expected}\n"));
        }
    };
    says("the site");
    let listed = world.run(&["profile", "list"]).ok();
    assert!(listed.stdout.contains("site      the site"), "{listed}");
    let shown = world.run(&["profile", "show", "lab"]).ok();
    let file = "/etc/agent-sandbox/profiles/lab.toml";
    assert!(shown.stdout.contains(file), "{shown}");
    world.profile("lab", &text("the user"));
    says("the user");
    let listed = world.run(&["profile", "list"]).ok();
    assert!(listed.stdout.contains("yours     the user"), "{listed}");
}

#[test]
fn a_profile_of_the_sites_gives_no_more_than_the_site_enforces() {
    stops(
        "files.read",
        |t| format!("[files]\nread = [{SYSTEM}, \"{}\"]\n", t.open("")),
        |t| {
            let text = format!("[files]\nread = [\"{}\"]\n", t.data(""));
            of_site(&t.world, "wide", &text);
            t.cat(&["-p", "wide"], &t.data("secret"))
        },
    );
    stops(
        "state of an agent, its login",
        |_| "[home]\nread = []\nwrite = []\nkeep = []\n[files]\nunhide = []\n".to_owned(),
        |t: &Tried| {
            t.world.write(".codex/auth.json", CANARY);
            let text =
                "[profile.state]\ndirectories = [\"~/.codex\"]\nlogin = [\"~/.codex/auth.json\"]\n";
            of_site(&t.world, "wide", text);
            t.cat(&["-p", "wide"], &t.seen(".codex/auth.json"))
        },
    );
}

#[test]
fn a_profile_that_another_user_could_have_written_stops_the_launch() {
    let world = World::new();
    let path = of_site(&world, "lab", "[profile]\ncommands = [\"tool\"]\n");
    let runs = || world.run(&["-q", "-p", "lab", "sh", "-c", "echo ran"]);
    let refused = |words: &[&str]| {
        let words = [
            words,
            &[
                "error: ",
                "/etc/agent-sandbox/profiles",
                "ask your administrators",
            ],
        ];
        runs().refused(&words.concat());
        // It could claim any command.
        world.run(&["-q", "true"]).refused(&words.concat());
        world.run(&["profile", "list"]).refused(&words.concat());
    };
    runs().ok();
    let own = world.user().uid.as_raw();
    chown(&path, Some(own), None).unwrap();
    refused(&["does not belong to root"]);
    chown(&path, Some(0), None).unwrap();
    mode(&path, 0o666);
    refused(&["can be changed by its group and other users"]);
    mode(&path, 0o644);
    let directory = world.site().join("profiles");
    chown(&directory, Some(own), None).unwrap();
    refused(&["does not belong to root"]);
    chown(&directory, Some(0), None).unwrap();
    runs().ok();
}
