//! Which file of a name is used, and whose; a site of whoever runs the tests.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::*;
use crate::config::load;
use crate::config::site::Site;
use crate::config::when::Circumstances;

#[test]
fn built_in_table_says_what_the_files_say() {
    for (built_in, entry) in PROFILES
        .iter()
        .zip(built_in_profiles().expect("they parse"))
    {
        assert_eq!(entry.name, built_in.name);
        let commands = entry.agent.commands.iter();
        let commands: Vec<&str> = commands.map(|command| command.value.as_str()).collect();
        assert_eq!(commands, built_in.commands, "{}", built_in.name);
        assert!(!entry.agent.description.is_empty(), "{}", built_in.name);
        assert_eq!(entry.agent.name, built_in.name);
    }
    assert!(PROFILES.is_sorted_by_key(|built_in| built_in.name));
}

#[test]
fn only_text_that_can_spell_the_command_is_parsed() {
    assert!(mentions(b"commands = [\"bash\"]", "bash"));
    assert!(mentions(br#"commands = ["\u0062ash"]"#, "bash"));
    assert!(!mentions(b"commands = [\"zsh\"]", "bash"));
    assert!(!mentions(b"", "bash"));
}

/// A home and a site, each with its profiles.
struct World {
    root: tempfile::TempDir,
    locations: Locations,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("home");
        for directory in ["site/profiles", "home/.config/agent-sandbox/profiles"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        for directory in ["site", "site/profiles"] {
            mode(&root.path().join(directory), 0o755);
        }
        let locations = Locations {
            config_dir: home.join(".config/agent-sandbox"),
            site: Site::of_tree(root.path(), nix::unistd::getuid().as_raw()),
            home,
        };
        Self { root, locations }
    }

    fn path(&self, owner: Owner, name: &str) -> PathBuf {
        let directory = match owner {
            Owner::Site => "site/profiles",
            _ => "home/.config/agent-sandbox/profiles",
        };
        self.root
            .path()
            .join(directory)
            .join(format!("{name}.toml"))
    }

    fn write(&self, owner: Owner, name: &str, text: &str) -> PathBuf {
        let path = self.path(owner, name);
        fs::write(&path, text).unwrap();
        mode(&path, 0o644);
        path
    }

    fn load(&self, profiles: &[&str], command: &str) -> Result<Vec<String>, ConfigError> {
        let profiles: Vec<String> = profiles.iter().map(|&name| name.to_owned()).collect();
        let layers = load::load(&Request {
            locations: &self.locations,
            profiles: &profiles,
            command: Some(OsStr::new(command)),
            project: None,
            settled: false,
            set: &[],
            circumstances: &Circumstances::default,
        })?;
        let chosen = layers.iter().filter(|layer| layer.layer == Layer::Profile);
        Ok(chosen.map(|layer| layer.file.to_string()).collect())
    }

    #[track_caller]
    fn has(&self, profiles: &[&str], command: &str, expected: &[&str]) {
        assert_eq!(self.load(profiles, command).unwrap(), expected);
    }

    #[track_caller]
    fn refused(&self, profiles: &[&str], command: &str, words: &[&str]) {
        let error = self.load(profiles, command).expect_err("is accepted");
        let said = format!("{error}\nhint: {}", error.hint().unwrap_or_default());
        for word in words {
            assert!(said.contains(word), "no {word:?} in: {said}");
        }
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

const CLAIMS: &str = "[profile]\ncommands = [\"claude\", \"tool\"]\n";

#[test]
fn of_one_name_the_users_file_comes_before_the_sites_and_the_sites_before_the_built_in_one() {
    let world = World::new();
    world.has(&[], "claude", &["built-in agents/claude.toml"]);
    world.write(Owner::Site, "claude", "");
    let of_site = "/site/profiles/claude.toml";
    world.has(&[], "claude", &[of_site]);
    world.has(&["claude"], "sh", &[of_site]);
    world.write(Owner::User, "claude", "");
    let own = "~/.config/agent-sandbox/profiles/claude.toml";
    world.has(&[], "claude", &[own]);
    world.has(&["claude"], "sh", &[own]);
    let all = profiles(&world.locations).unwrap();
    let found = all.iter().find(|entry| entry.name == "claude").unwrap();
    assert_eq!((found.owner, &*found.file), (Owner::User, own));
    fs::remove_file(world.path(Owner::User, "claude")).unwrap();
    let all = profiles(&world.locations).unwrap();
    let found = all.iter().find(|entry| entry.name == "claude").unwrap();
    assert_eq!((found.owner, &*found.file), (Owner::Site, of_site));
}

#[test]
fn a_command_is_the_users_to_claim_then_the_sites() {
    let world = World::new();
    world.write(Owner::Site, "lab", CLAIMS);
    world.has(&[], "claude", &["/site/profiles/lab.toml"]);
    world.has(&[], "tool", &["/site/profiles/lab.toml"]);
    world.write(Owner::User, "mine", CLAIMS);
    let own = "~/.config/agent-sandbox/profiles/mine.toml";
    world.has(&[], "claude", &[own]);
    // The user's file of the same name, which claims nothing, takes the place of the site's.
    fs::remove_file(world.path(Owner::User, "mine")).unwrap();
    world.write(Owner::User, "lab", "");
    world.has(&[], "tool", &["~/.config/agent-sandbox/profiles/lab.toml"]);
    fs::remove_file(world.path(Owner::User, "lab")).unwrap();
    world.write(Owner::Site, "second", CLAIMS);
    let words = ["both claim the command `tool`", "ask your administrators"];
    world.refused(&[], "tool", &words);
}

#[test]
fn several_profiles_are_layers_in_the_order_given() {
    let world = World::new();
    let (claude, codex) = ("built-in agents/claude.toml", "built-in agents/codex.toml");
    world.has(&["claude", "codex"], "tmux", &[claude, codex]);
    world.has(&["codex", "claude"], "tmux", &[codex, claude]);
    // One that is named twice is one layer.
    world.has(&["codex", "claude", "codex"], "tmux", &[codex, claude]);
    world.refused(
        &["codex", "none"],
        "tmux",
        &["unknown profile `none`", "`codex`"],
    );
}

#[test]
fn a_mistake_of_the_sites_is_for_its_administrators() {
    let world = World::new();
    world.write(
        Owner::Site,
        "lab",
        "[profile]\ncommands = [\"tool\"]\ndescripton = \"x\"\n",
    );
    let words = [
        "/site/profiles/lab.toml:3:1",
        "ask your administrators: did you mean",
    ];
    world.refused(&[], "tool", &words);
    world.refused(&["lab"], "sh", &words);
    // It is not the one, so it stops nothing.
    world.has(&[], "claude", &["built-in agents/claude.toml"]);
    world.write(
        Owner::Site,
        "lab",
        "[profile.state]\ndirectories = [\"/tmp\"]\n",
    );
    let words = [
        "lab.toml:2:16",
        "does not lie below the home directory",
        "ask your administrators",
    ];
    world.refused(&["lab"], "sh", &words);
    world.write(Owner::Site, "Lab", CLAIMS);
    let words = [
        "`Lab` cannot be the name",
        "ask your administrators",
        "/site/profiles/NAME.toml",
    ];
    world.refused(&[], "tool", &words);
}

#[test]
fn what_others_could_have_written_is_no_profile_of_the_sites() {
    let world = World::new();
    let path = world.write(Owner::Site, "lab", CLAIMS);
    let words = [
        "/site/profiles/lab.toml can be changed by",
        "ask your administrators",
    ];
    for wrong in [0o666, 0o664, 0o646] {
        mode(&path, wrong);
        // Whatever command it is: the file could claim it.
        world.refused(&[], "sh", &words);
        world.refused(&["lab"], "sh", &words);
        let listed = profiles(&world.locations).expect_err("is listed");
        assert!(listed.to_string().contains(words[0]), "{listed}");
    }
    mode(&path, 0o644);
    world.has(&[], "tool", &["/site/profiles/lab.toml"]);
    let directory = world.root.path().join("site/profiles");
    mode(&directory, 0o777);
    let words = [
        "/site/profiles",
        "can be changed by",
        "ask your administrators",
    ];
    world.refused(&[], "tool", &words);
    world.refused(&[], "sh", &words);
    // That there is none says nothing either.
    fs::remove_file(&path).unwrap();
    world.refused(&[], "sh", &words);
    world.refused(&["lab"], "sh", &words);
    mode(&directory, 0o755);
    world.has(&[], "sh", &[]);
    symlink("gone", &path).unwrap();
    world.refused(&[], "sh", &["lab.toml", "ask your administrators"]);
    fs::remove_file(&path).unwrap();
    // Another owner's: the site is that of somebody who wrote none of it.
    world.write(Owner::Site, "lab", CLAIMS);
    let other = nix::unistd::getuid().as_raw() + 1;
    let locations = Locations {
        site: Site::of_tree(world.root.path(), other),
        ..world.locations.clone()
    };
    let error = profiles(&locations).expect_err("is listed");
    assert!(
        error.to_string().contains("does not belong to root"),
        "{error}"
    );
}

#[test]
fn a_site_without_profiles_has_none() {
    let world = World::new();
    let directory = world.root.path().join("site/profiles");
    fs::remove_dir(&directory).unwrap();
    world.has(&[], "sh", &[]);
    fs::remove_dir(world.root.path().join("site")).unwrap();
    world.has(&[], "claude", &["built-in agents/claude.toml"]);
    world.refused(&["lab"], "sh", &["unknown profile `lab`", "`generic`"]);
}

#[test]
fn what_editors_leave_behind_in_the_sites_directory_is_no_profile() {
    let world = World::new();
    for name in [".#x.toml", ".toml", "x.toml~", "README"] {
        let path = world.root.path().join("site/profiles").join(name);
        fs::write(&path, "tool [").unwrap();
        mode(&path, 0o644);
    }
    world.has(&[], "tool", &[]);
}
