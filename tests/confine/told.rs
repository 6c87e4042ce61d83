//! What an agent is told of its jail: where it looks for it, with the user's own below, whatever stands
//! there on the host; and the host's files stay as they are.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use crate::backend::is_landlock;
use crate::world::{Output, World};

const PROFILE: &str = "[profile]\ncommands = [\"agent\", \"cat\", \"sh\"]\n\n[profile.instructions]\nname = \"AGENT.md\"\n\
                       at = \"~/.agent/AGENT.md\"\n";
const BY_WAYS: &str = "[profile]\ncommands = [\"cat\"]\n\n[profile.instructions]\nname = \"OTHER.md\"\n\
                       arguments = [\"{file}\"]\n\n[[profile.given]]\nname = \"tool.conf\"\ntext = \"set x\\n\"\n\
                       [profile.given.variables]\nTOOL_CONF = \"{file}\"\nTOOL = \"in {directory}\"\n";
const OURS: &str = "You run in a jail that agent-sandbox made";
const USERS: &str = "# The user's own instructions (`~/.agent/AGENT.md`)";

fn world(profile: &str) -> World {
    let world = World::new();
    world.put(
        &world.home(".config/agent-sandbox/profiles/agent.toml"),
        profile,
    );
    world
}

fn shell(world: &World, options: &[&str], line: &str) -> Output {
    let mut run = world.jail(["-p", "agent"]);
    run.command.args(options);
    run.run(&["bash", "-c", line])
}

/// What the agent reads where it looks.
fn told(world: &World, options: &[&str]) -> String {
    let output = shell(world, options, "cat ~/.agent/AGENT.md");
    assert_eq!(output.code(), 0, "{output:?}");
    output.stdout
}

#[test]
fn it_is_where_the_agent_looks_and_leaves_nothing_behind() {
    let world = world(PROFILE);
    let text = told(&world, &[]);
    assert!(text.contains(OURS), "{text}");
    assert!(
        text.contains(&format!("`{}`", world.project("").display())),
        "{text}"
    );
    assert!(!text.contains(USERS), "{text}");
    assert!(!world.home(".agent").exists(), "made on the host");
    let output = shell(
        &world,
        &[],
        "cmp ~/.agent/AGENT.md $AGENT_SANDBOX_INSTRUCTIONS && stat -c %a $AGENT_SANDBOX_INSTRUCTIONS",
    );
    assert_eq!(output.code(), 0, "{output:?}");
}

#[test]
fn the_users_own_file_follows_and_stays_as_it_is() {
    let world = world(PROFILE);
    let file = world.home(".agent/AGENT.md");
    world.put(&file, "Use tabs.\n");
    let before = fs::metadata(&file).unwrap();
    let text = told(&world, &[]);
    let (ours, users) = text.split_once(USERS).unwrap();
    assert!(ours.contains(OURS), "{text}");
    assert!(users.trim().ends_with("Use tabs."), "{text}");
    let line = "f=$AGENT_SANDBOX_INSTRUCTIONS; { echo evil >> $f; echo evil > $f; rm -f $f; mv $f $f.x; } 2>/dev/null; \
                { echo evil >> ~/.agent/AGENT.md; rm -f ~/.agent/AGENT.md; } 2>/dev/null; cat $f";
    let output = shell(&world, &[], line);
    assert_eq!(output.stdout, text, "{output:?}");
    let after = fs::metadata(&file).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "Use tabs.\n");
    assert_eq!(
        (before.ino(), before.mtime_nsec()),
        (after.ino(), after.mtime_nsec())
    );
    let explained = shell(&world, &[], "agent-sandbox explain ~/.agent/AGENT.md");
    assert_eq!(explained.code(), 0, "{explained:?}");
}

#[test]
fn it_stands_over_the_file_of_a_shared_directory() {
    let world = world(PROFILE);
    let file = world.home(".agent/AGENT.md");
    world.put(&file, "Use tabs.\n");
    world.put(&world.home(".agent/settings"), "mine\n");
    let shared = [
        "--set",
        "home.write=[\"~/.agent\"]",
        "--set",
        "home.protect=[\"~/.agent/settings\"]",
    ];
    let output = shell(
        &world,
        &shared,
        "cat ~/.agent/AGENT.md; echo more > ~/.agent/other",
    );
    assert_eq!(output.code(), 0, "{output:?}");
    if is_landlock() {
        // It says that it cannot, and the file is the user's.
        assert!(
            output
                .stderr
                .contains("Landlock cannot show the text about the jail there"),
            "{output:?}"
        );
        assert_eq!(output.stdout, "Use tabs.\n");
    } else {
        assert!(
            output.stdout.contains(OURS) && output.stdout.contains("Use tabs."),
            "{output:?}"
        );
        let evil = shell(
            &world,
            &shared,
            "rm -f ~/.agent/AGENT.md; mv ~/.agent/AGENT.md x; echo evil > ~/.agent/AGENT.md",
        );
        assert_ne!(evil.code(), 0, "{evil:?}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "Use tabs.\n");
    assert_eq!(
        fs::read_to_string(world.home(".agent/other")).unwrap(),
        "more\n"
    );
}

#[test]
fn what_is_no_plain_file_of_the_users_is_not_merged() {
    let world = world(PROFILE);
    let file = world.home(".agent/AGENT.md");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let refused = |why: &str, said: &str| {
        let output = shell(&world, &[], "cat $AGENT_SANDBOX_INSTRUCTIONS");
        assert_eq!(output.code(), 0, "{why}: {output:?}");
        assert!(output.stdout.contains(OURS), "{why}: {output:?}");
        assert!(
            !output.stdout.contains(USERS) && !output.stdout.contains(&world.marker),
            "{why}: {output:?}"
        );
        assert!(output.stderr.contains(said), "{why}: {output:?}");
        fs::remove_file(&file).unwrap();
    };
    symlink(world.home(".ssh/id_rsa"), &file).unwrap();
    refused("a link to a key", "hides it");
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    refused("a FIFO", "no regular file");
    let huge = fs::File::create(&file).unwrap();
    huge.set_len(1 << 40).unwrap();
    refused("a terabyte", "above 64 KiB");
    symlink("/dev/zero", &file).unwrap();
    refused("a device", "no regular file");
    symlink(world.project("notes"), &file).unwrap();
    world.secret(&world.home("private"));
    symlink(world.home("private"), world.project("notes")).unwrap();
    refused(
        "a link that a session left in the project",
        "could be the jail's own",
    );
}

#[test]
fn a_link_of_the_users_leads_to_it() {
    let world = world(PROFILE);
    world.put(&world.home(".dotfiles/agent.md"), "Use tabs.\n");
    fs::create_dir(world.home(".agent")).unwrap();
    symlink("../.dotfiles/agent.md", world.home(".agent/AGENT.md")).unwrap();
    let text = told(&world, &[]);
    assert!(text.contains(OURS) && text.contains("Use tabs."), "{text}");
    let link = fs::read_link(world.home(".agent/AGENT.md")).unwrap();
    assert_eq!(link, Path::new("../.dotfiles/agent.md"));
}

#[test]
fn variables_and_arguments_lead_to_files() {
    let world = world(BY_WAYS);
    let output = world.jail(["-p", "agent"]).run(&["cat"]);
    assert_eq!(output.code(), 0, "{output:?}");
    assert!(output.stdout.contains(OURS), "{output:?}");
    let line = "cat \"$TOOL_CONF\"; test \"$TOOL\" = \"in ${TOOL_CONF%/*}\" && cat \"$AGENT_SANDBOX_INSTRUCTIONS\"";
    let output = shell(&world, &[], line);
    assert!(
        output.stdout.starts_with("set x\n") && output.stdout.contains(OURS),
        "{output:?}"
    );
    let mut run = world.jail(["-p", "agent"]);
    run.command.env("TOOL_CONF", "mine");
    let output = run.run(&["sh", "-c", "echo $TOOL_CONF"]);
    assert_eq!(output.stdout, "mine\n", "{output:?}");
    assert!(
        output
            .stderr
            .contains("`$TOOL_CONF`: it is set already and stays so"),
        "{output:?}"
    );
}

#[test]
fn it_can_be_switched_off_and_is_shown_before() {
    let world = world(PROFILE);
    let off = shell(
        &world,
        &["--set", "agents.instructions=off"],
        "echo \"<$AGENT_SANDBOX_INSTRUCTIONS>\"; ls ~/.agent",
    );
    assert!(off.stdout.starts_with("<>\n") && off.code() != 0, "{off:?}");
    let dry = shell(&world, &["--dry-run"], "true");
    assert!(
        dry.stdout.contains("/instructions/AGENT.md")
            && dry.stdout.contains("profile.instructions"),
        "{dry:?}"
    );
    let mut run = world.jail(["-p", "agent"]);
    run.command
        .arg("explain")
        .arg(world.home(".agent/AGENT.md"));
    let output = run.command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("the jail has its own"), "{output:?}");
    assert!(said.contains("agents.instructions = \"off\""), "{output:?}");
}
