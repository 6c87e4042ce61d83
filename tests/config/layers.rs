//! Which layers a launch has, in which order.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use agent_sandbox::config::load::{Owner, RawLayer, profiles};
use agent_sandbox::config::source::Layer;

use crate::support::{World, names, said, write};

const DEFAULT: &str = "built-in default.toml";
const CLAUDE: &str = "built-in agents/claude.toml";
const USER: &str = "~/.config/agent-sandbox/config.toml";

/// What a layer's `files.read` says.
fn read(layer: &RawLayer) -> Vec<&str> {
    let files = layer.sections.files.as_ref().unwrap();
    files
        .read
        .as_ref()
        .unwrap()
        .iter()
        .map(|path| path.get_ref().as_ref())
        .collect()
}

#[test]
fn weakest_first() {
    let world = World::new();
    write(
        &world.config(),
        "[files]\nread = [\"/u\"]\n[projects.\"~/work\".files]\nread = [\"/p\"]\n",
    );
    let project = world.locations.home.join("work/x");
    let layers = world
        .load_with(
            None,
            Some("/usr/bin/claude"),
            Some(&project),
            &["jail.nested=true"],
        )
        .unwrap();
    assert_eq!(
        names(&layers),
        [DEFAULT, CLAUDE, USER, USER, "--set jail.nested"]
    );
    let kinds = layers.iter().map(|layer| layer.layer).collect::<Vec<_>>();
    assert_eq!(
        kinds,
        [
            Layer::BuiltIn,
            Layer::Profile,
            Layer::User,
            Layer::Project,
            Layer::CommandLine
        ]
    );
    let span = |layer: &RawLayer| {
        layer
            .sections
            .files
            .as_ref()
            .unwrap()
            .read
            .as_ref()
            .unwrap()[0]
            .span()
    };
    assert_eq!(
        layers[2].source(span(&layers[2])).to_string(),
        format!("{USER}:2")
    );
    assert_eq!(
        layers[3].source(span(&layers[3])).to_string(),
        format!("{USER}:4")
    );
    assert_eq!(layers[4].source(0..1).to_string(), "--set jail.nested");
}

#[test]
fn profile_by_command() {
    let world = World::new();
    for command in ["claude", "./claude", "/opt/x/claude"] {
        assert_eq!(
            names(&world.load_command(command).unwrap()),
            [DEFAULT, CLAUDE],
            "{command}"
        );
    }
    for command in ["bash", "claude2", "/claude/bash", "..", "/", ""] {
        assert_eq!(
            names(&world.load_command(command).unwrap()),
            [DEFAULT],
            "{command}"
        );
    }
}

#[test]
fn profile_by_name_wins_over_the_command() {
    let world = World::new();
    write(
        &world.profile("mine.toml"),
        "[profile]\ncommands = [\"mine\"]\n",
    );
    let layers = world
        .load_with(Some("mine"), Some("claude"), None, &[])
        .unwrap();
    assert_eq!(
        names(&layers),
        [DEFAULT, "~/.config/agent-sandbox/profiles/mine.toml"]
    );
    let layers = world
        .load_with(Some("claude"), Some("bash"), None, &[])
        .unwrap();
    assert_eq!(names(&layers), [DEFAULT, CLAUDE]);
}

#[test]
fn users_profile_takes_the_place_of_a_built_in_one() {
    let world = World::new();
    let own = "~/.config/agent-sandbox/profiles/claude.toml";
    // It need not repeat `commands`.
    write(
        &world.profile("claude.toml"),
        "[network]\nmode = \"isolated\"\n",
    );
    assert_eq!(
        names(&world.load_command("claude").unwrap()),
        [DEFAULT, own]
    );
    assert_eq!(
        names(&world.load_with(Some("claude"), None, None, &[]).unwrap()),
        [DEFAULT, own]
    );
}

#[test]
fn users_profile_claims_a_command() {
    let world = World::new();
    let own = "~/.config/agent-sandbox/profiles/lab.toml";
    write(
        &world.profile("lab.toml"),
        "[profile]\ncommands = [\"aider\", \"claude\"]\n",
    );
    assert_eq!(names(&world.load_command("aider").unwrap()), [DEFAULT, own]);
    assert_eq!(
        names(&world.load_command("claude").unwrap()),
        [DEFAULT, own]
    );
    write(
        &world.profile("lab.toml"),
        "[profile]\ncommands = [\"\\u0061ider\"]\n",
    );
    assert_eq!(names(&world.load_command("aider").unwrap()), [DEFAULT, own]);
}

#[test]
fn two_profiles_claim_a_command() {
    let world = World::new();
    write(
        &world.profile("a.toml"),
        "[profile]\ncommands = [\"aider\"]\n",
    );
    write(
        &world.profile("b.toml"),
        "[profile]\ncommands = [\"aider\"]\n",
    );
    let error = world.load_command("aider").expect_err("is accepted");
    assert!(
        said(&error).contains("`a` and `b` both claim the command `aider`"),
        "{error}"
    );
    assert!(world.load_with(Some("a"), Some("aider"), None, &[]).is_ok());
}

#[test]
fn a_broken_profile_stops_only_the_launch_that_may_use_it() {
    let world = World::new();
    write(
        &world.profile("broken.toml"),
        "[profile]\ncommands = [\"aider\"\n",
    );
    assert_eq!(names(&world.load_command("bash").unwrap()), [DEFAULT]);
    assert_eq!(
        names(
            &world
                .load_with(Some("claude"), Some("aider"), None, &[])
                .unwrap()
        ),
        [DEFAULT, CLAUDE]
    );
    for error in [
        world.load_command("aider").expect_err("is accepted"),
        world
            .load_with(Some("broken"), Some("bash"), None, &[])
            .expect_err("is accepted"),
        profiles(&world.locations).expect_err("is accepted"),
    ] {
        assert!(said(&error).contains("profiles/broken.toml:"), "{error}");
    }
}

#[test]
fn a_profile_that_cannot_be_trusted_stops_every_choice_by_command() {
    let world = World::new();
    symlink("gone", world.profile("gone.toml")).unwrap();
    let error = world.load_command("bash").expect_err("is accepted");
    assert!(
        said(&error).contains("profiles/gone.toml is a symbolic link"),
        "{error}"
    );
    assert!(
        world
            .load_with(Some("claude"), Some("bash"), None, &[])
            .is_ok()
    );
}

#[test]
fn what_editors_leave_behind_is_no_profile() {
    let world = World::new();
    for name in [".#x.toml", ".toml", "x.toml~", "README"] {
        write(&world.profile(name), "bash [");
    }
    fs::create_dir(world.profile("old")).unwrap();
    assert_eq!(names(&world.load_command("bash").unwrap()), [DEFAULT]);
    let all = profiles(&world.locations).unwrap();
    assert!(all.iter().all(|entry| entry.owner == Owner::BuiltIn));
}

#[test]
fn unknown_profile() {
    let world = World::new();
    write(&world.profile("mine.toml"), "");
    let error = world
        .load_with(Some("cluade"), None, None, &[])
        .expect_err("is accepted");
    let near =
        "unknown profile `cluade`\nhint: did you mean `claude`? There are: `aider`, `claude`, ";
    assert!(said(&error).starts_with(near), "{}", said(&error));
    let error = world
        .load_with(Some("zzz"), None, None, &[])
        .expect_err("is accepted");
    let said = said(&error);
    let far = "unknown profile `zzz`\nhint: there are: `aider`, `claude`, ";
    assert!(said.starts_with(far), "{said}");
    for profile in profiles(&world.locations).unwrap() {
        assert!(said.contains(&format!("`{}`", profile.name)), "{said}");
    }
}

#[test]
fn names_that_would_leave_the_directory() {
    let world = World::new();
    write(&world.config(), "");
    for name in [
        "",
        ".",
        "..",
        "../config",
        "/etc/x",
        "a/b",
        ".hidden",
        "A",
        "a b",
        "a\n",
        "ä",
    ] {
        let error = world
            .load_with(Some(name), None, None, &[])
            .expect_err(name);
        assert!(
            said(&error).contains("cannot be the name of a profile"),
            "{name}: {error}"
        );
    }
}

#[test]
fn listing() {
    let world = World::new();
    write(
        &world.profile("aider.toml"),
        "[profile]\ndescription = \"Mine\"\ncommands = [\"aider\"]\n",
    );
    let entry = |name: &str| {
        let mut all = profiles(&world.locations).unwrap().into_iter();
        all.find(|entry| entry.name == name).unwrap()
    };
    let aider = entry("aider");
    assert_eq!(aider.agent.description, "Mine");
    assert_eq!(aider.agent.commands[0].value, "aider");
    assert_eq!(&*aider.file, "~/.config/agent-sandbox/profiles/aider.toml");
    assert_eq!(aider.owner, Owner::User);
    let claude = entry("claude");
    assert_eq!(&*claude.file, CLAUDE);
    assert_eq!(claude.owner, Owner::BuiltIn);
    assert!(claude.text.contains("ANTHROPIC_API_KEY"));
    write(&world.profile("claude.toml"), "");
    assert_eq!(
        &*entry("claude").file,
        "~/.config/agent-sandbox/profiles/claude.toml"
    );
    let all = profiles(&world.locations).unwrap();
    assert!(all.is_sorted_by_key(|entry| entry.name.clone()));
}

#[test]
fn project_sections() {
    let world = World::new();
    let home = &world.locations.home;
    let text = format!(
        "[projects.\"~/work/deep/er\".files]\nread = [\"/3\"]\n\
         [projects.\"~/work\".files]\nread = [\"/1\"]\n\
         [projects.\"{}/work/deep/\".files]\nread = [\"/2\"]\n\
         [projects.\"~/wor\".files]\nread = [\"/no\"]\n\
         [projects.\"~\".files]\nread = [\"/0\"]\n",
        home.display()
    );
    write(&world.config(), text);
    let found = |project: &str| {
        let layers = world
            .load_with(None, None, Some(&home.join(project)), &[])
            .unwrap();
        let projects = layers.iter().filter(|layer| layer.layer == Layer::Project);
        projects
            .flat_map(|layer| read(layer).into_iter().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    assert_eq!(found("work/deep/er/x"), ["/0", "/1", "/2", "/3"]);
    assert_eq!(found("work/deep"), ["/0", "/1", "/2"]);
    assert_eq!(found("work"), ["/0", "/1"]);
    assert_eq!(found("other"), ["/0"]);
    let layers = world
        .load_with(None, None, Some("/elsewhere".as_ref()), &[])
        .unwrap();
    assert_eq!(names(&layers), [DEFAULT, USER]);
}

/// A running session asks again, and by then somebody inside may have put a link in the project's place.
#[test]
fn a_project_that_was_found_is_not_looked_up_again() {
    let world = World::new();
    let home = &world.locations.home;
    fs::create_dir_all(home.join("other")).unwrap();
    symlink("other", home.join("project")).unwrap();
    write(
        &world.config(),
        "[projects.\"~/other\".files]\nread = [\"/o\"]\n[projects.\"~/project\".files]\nread = [\"/p\"]\n",
    );
    // A request of `load` may be kept for longer than a test.
    let project: &Path = Box::leak(home.join("project").into_boxed_path());
    let found = |settled| {
        let layers = world.load(|request| {
            request.project = Some(project);
            request.settled = settled;
        });
        let layers = layers.unwrap();
        let of_project = layers.iter().filter(|layer| layer.layer == Layer::Project);
        of_project
            .map(|layer| read(layer).join(" "))
            .collect::<Vec<_>>()
    };
    assert_eq!(found(true), ["/p"]);
    assert_eq!(found(false), ["/o", "/p"]);
}

#[test]
fn a_project_is_found_by_both_of_its_names() {
    let world = World::new();
    let home = &world.locations.home;
    fs::create_dir_all(home.join("real")).unwrap();
    symlink("real", home.join("link")).unwrap();
    write(
        &world.config(),
        "[projects.\"~/real\".files]\nread = [\"/r\"]\n",
    );
    let layers = world
        .load_with(None, None, Some(&home.join("link")), &[])
        .unwrap();
    assert_eq!(names(&layers), [DEFAULT, USER, USER]);
}

#[test]
fn a_link_of_the_users_own_gives_no_project_anothers_sections() {
    // An agent that may write in ~/work makes ~/work/trusted a link to itself.
    let world = World::new();
    let home = &world.locations.home;
    fs::create_dir_all(home.join("work")).unwrap();
    symlink(".", home.join("work/trusted")).unwrap();
    write(
        &world.config(),
        "[projects.\"~/work/trusted\".files]\nread = [\"/\"]\n",
    );
    if nix::unistd::getuid().is_root() {
        // Root's own links are the system's, but not below somebody else's directory.
        std::os::unix::fs::chown(home, Some(12_345), None).unwrap();
    }
    let layers = world
        .load_with(None, None, Some(&home.join("work")), &[])
        .unwrap();
    assert_eq!(names(&layers), [DEFAULT, USER]);
}

#[test]
fn set() {
    let world = World::new();
    let layers = world
        .load_with(
            None,
            None,
            None,
            &[
                "files.timeout_ms=5000",
                "jail.tmp_size=8G",
                "files.read=[\"/a\", \"/b\"]",
                "env.set.OMP_NUM_THREADS=4",
                "env.set.X=a#b \"c\" \\ \u{1}",
                "home.mode = \"read\"",
                "env.set.EMPTY=",
            ],
        )
        .unwrap();
    let sections = layers[1..]
        .iter()
        .map(|layer| &layer.sections)
        .collect::<Vec<_>>();
    assert_eq!(
        *sections[0]
            .files
            .as_ref()
            .unwrap()
            .timeout_ms
            .as_ref()
            .unwrap()
            .get_ref(),
        5000
    );
    assert_eq!(
        sections[1]
            .jail
            .as_ref()
            .unwrap()
            .tmp_size
            .as_ref()
            .unwrap()
            .get_ref(),
        "8G"
    );
    assert_eq!(read(&layers[3]), ["/a", "/b"]);
    let variable = |at: usize| {
        let set = sections[at].env.as_ref().unwrap().set.as_ref().unwrap();
        set.iter()
            .map(|(name, value)| (name.get_ref().as_ref(), value.get_ref().as_ref()))
            .next()
            .unwrap()
    };
    assert_eq!(variable(3), ("OMP_NUM_THREADS", "4"));
    assert_eq!(variable(4), ("X", "a#b \"c\" \\ \u{1}"));
    assert_eq!(
        sections[5]
            .home
            .as_ref()
            .unwrap()
            .mode
            .as_ref()
            .unwrap()
            .get_ref(),
        "read"
    );
    assert_eq!(variable(6), ("EMPTY", ""));
    assert_eq!(
        names(&layers)[1..3],
        ["--set files.timeout_ms", "--set jail.tmp_size"]
    );
}

#[test]
fn set_is_one_value_and_nothing_else() {
    let world = World::new();
    let layers = world
        .load_with(None, None, None, &["env.set.X=1\nY = 2"])
        .unwrap();
    let set = layers[1]
        .sections
        .env
        .as_ref()
        .unwrap()
        .set
        .as_ref()
        .unwrap();
    assert_eq!(
        set.values()
            .map(|value| value.get_ref().as_ref())
            .collect::<Vec<_>>(),
        ["1\nY = 2"]
    );
    for (option, words) in [
        ("files", "expected section.key=VALUE"),
        ("files=3", "expected section.key=VALUE"),
        ("=3", "expected section.key=VALUE"),
        (".a=3", "expected section.key=VALUE"),
        ("files.\"read\"=[]", "expected section.key=VALUE"),
        ("files.read\n.x=[]", "expected section.key=VALUE"),
        (
            "files.timeout_ms=soon",
            "--set files.timeout_ms: expected a whole number",
        ),
        (
            "files.timeout_ms=1\nread = []",
            "--set files.timeout_ms: expected a whole number",
        ),
        ("files.read=/a", "write a list: `[\"/a\"]`"),
        ("files.raed=[]", "did you mean `read`?"),
        ("flies.read=[]", "did you mean `files`?"),
        ("profile.commands=[\"x\"]", "only in a profile file"),
        ("projects.x={}", "only in the user's own configuration"),
    ] {
        let error = world
            .load_with(None, None, None, &[option])
            .expect_err(option);
        assert!(said(&error).contains(words), "{option}: {}", said(&error));
    }
}

#[test]
fn set_shows_the_value_with_a_caret() {
    let world = World::new();
    let error = world
        .load_with(None, None, None, &["files.raed=[]"])
        .expect_err("is accepted");
    assert_eq!(
        said(&error),
        "--set files.raed: unknown key `raed`\n |\n | files.raed = []\n |       ^^^^\nhint: did you mean `read`?"
    );
}
