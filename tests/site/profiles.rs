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

/// `@agent` in what the site enforces stands for hosts that the site's profile of a name says, or the built-in one:
/// who could add hosts to it by a profile file would open every host.
#[test]
fn a_users_profile_does_not_widen_the_sites_set_of_agents() {
    let world = World::new();
    world.enforced("[network]\nmode = \"filtered\"\nallow = [\"@agent\"]\n");
    of_site(
        &world,
        "lab",
        "[profile]\nhosts = [\"models.example.org\"]\n",
    );
    let reaches = |profile: &str, host: &str| {
        let words = ["-p", profile, "explain", "--json", "--host", host];
        world.run(&words).json()["verdict"] == "reachable"
    };
    let tried = || {
        [
            reaches("claude", "api.anthropic.com"),
            reaches("claude", "evil.example"),
            reaches("lab", "models.example.org"),
            reaches("lab", "evil.example"),
        ]
    };
    assert_eq!(tried(), [true, false, true, false]);
    for name in ["claude", "lab", "mine"] {
        world.profile(
            name,
            "[profile]\nhosts = [\"evil.example\", \"api.anthropic.com\", \"models.example.org\"]\n",
        );
    }
    assert_eq!(tried(), [true, false, true, false]);
    // The site has no profile of this name: nothing is allowed for it.
    for host in ["evil.example", "api.anthropic.com", "models.example.org"] {
        assert!(!reaches("mine", host), "{host}");
    }
    world.user_config("[network]\nallow = [\"evil.example\"]\n");
    assert_eq!(tried(), [true, false, true, false]);
}

#[test]
fn agents_that_the_site_does_not_allow_are_refused() {
    let world = World::new();
    world.enforced("[agents]\nallowed = [\"claude\", \"lab-*\"]\n");
    let text = "[profile]\ncommands = [\"true\"]\n";
    world.profile("mine", text);
    let refused = [
        "error: the agent `mine` may not be used",
        "`agents.allowed` (/etc/agent-sandbox/enforced.toml:2) has claude, lab-*",
        "hint: use one of these, or ask your administrators",
    ];
    world.run(&["-q", "true"]).refused(&refused);
    world
        .run(&["-q", "-p", "mine", "sh", "-c", "true"])
        .refused(&refused);
    // The user's own list adds nothing, and may leave the rest out.
    world.user_config("[agents]\nallowed = [\"*\"]\n");
    world.run(&["-q", "true"]).refused(&refused);
    world.run(&["-q", "-p", "claude", "sh", "-c", "true"]).ok();
    world.run(&["-q", "sh", "-c", "true"]).ok();
    world.user_config("[agents]\nallowed = [\"lab-*\"]\n");
    world
        .run(&["-q", "-p", "claude", "sh", "-c", "true"])
        .refused(&["config.toml:2", "or add it to the list"]);
    of_site(&world, "lab-one", text);
    // One that says nothing of an agent is one.
    world.profile("mine", "[network]\nmode = \"isolated\"\n");
    world
        .run(&["-q", "-p", "mine", "sh", "-c", "true"])
        .refused(&["the agent `mine` may not be used"]);
    world.run(&["-q", "true"]).ok();
}

#[test]
fn the_site_speaks_first_to_each_agent() {
    let world = World::new();
    world.enforced("[agents]\npreamble = \"\"\"\nAsk before you use more than 8 GPUs.\n\"\"\"\n");
    let profile = "[profile]\ncommands = [\"cat\"]\n[profile.instructions]\nname = \"A.md\"\narguments = [\"{file}\"]\n";
    world.profile("tool", profile);
    let told = |set: &str| world.run(&["-q", "--set", set, "cat"]).ok().stdout;
    let head = "# What your site asks of you\n\nAsk before you use more than 8 GPUs.\n\n";
    let both = told("agents.instructions=given");
    assert!(both.starts_with(&format!("{head}# Your jail\n")), "{both}");
    assert_eq!(told("agents.instructions=off"), head);
    world
        .run(&["-q", "--set", "agents.preamble=do as you like", "cat"])
        .refused(&["what all agents are told is the site's to say"]);
}
