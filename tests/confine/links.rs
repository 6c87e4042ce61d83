//! Dotfiles kept in a project: links in the home lead into what a session can write, and a session
//! changes where they lead for the next one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::world::World;

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Moves something of the home into `work/dotfiles`, leaves a link, and gives the path there.
fn into_dotfiles(world: &World, name: &str, there: &str) -> std::path::PathBuf {
    let end = world.outer("dotfiles").join(there);
    fs::create_dir_all(end.parent().unwrap()).unwrap();
    fs::rename(world.home(name), &end).unwrap();
    symlink(&end, world.home(name)).unwrap();
    end
}

/// The policy file is a link into the project: the project is refused, for it holds the policy.
#[test]
fn a_linked_policy_makes_its_place_no_project() {
    let world = World::new();
    world.put(&world.home(".config/agent-sandbox/config.toml"), "");
    let end = into_dotfiles(&world, ".config/agent-sandbox/config.toml", "as.toml");
    let dotfiles = end.parent().unwrap();
    let output = world.jail([]).cwd(dotfiles).run(&["true"]);
    output.refused("keeps its policy or state");
    // By a chain of links, of which the middle one could be replaced.
    fs::remove_file(world.home(".config/agent-sandbox/config.toml")).unwrap();
    fs::rename(world.home(".config"), world.home("realconfig")).unwrap();
    symlink(world.home("realconfig"), dotfiles.join("config")).unwrap();
    symlink(dotfiles.join("config"), world.home(".config")).unwrap();
    let output = world.jail([]).cwd(dotfiles).run(&["true"]);
    output.refused("which the jail could change");
}

/// A hidden name that leads through two links, the second one in the project.
#[test]
fn a_chain_of_links_to_a_credential_is_refused() {
    let world = World::new();
    let end = into_dotfiles(&world, ".ssh", "secret/ssh");
    let dotfiles = world.outer("dotfiles");
    fs::remove_file(world.home(".ssh")).unwrap();
    symlink("secret/ssh", dotfiles.join("ssh")).unwrap();
    symlink(dotfiles.join("ssh"), world.home(".ssh")).unwrap();
    let read = format!("rm -f ssh; cat {}/id_rsa", text(&end));
    let output = world.jail([]).cwd(&dotfiles).run(&["bash", "-c", &read]);
    output.refused("which the jail could change");
}

/// A protected file behind a link: the directory above its end is kept in its place.
#[test]
fn a_protected_file_behind_a_link_cannot_be_moved_away() {
    let world = World::new();
    world.put(&world.home(".gitconfig"), "[user]\n");
    let end = into_dotfiles(&world, ".gitconfig", "git/gitconfig");
    let script = "mv git g2; mkdir -p git; echo '[core] pager = evil' > git/gitconfig";
    let output = world
        .jail([])
        .cwd(&world.outer("dotfiles"))
        .run(&["bash", "-c", script]);
    assert_ne!(output.code(), 0, "{output:?}");
    assert_eq!(fs::read_to_string(end).unwrap(), "[user]\n");
    assert_eq!(
        fs::read_to_string(world.home(".gitconfig")).unwrap(),
        "[user]\n"
    );
}

/// One project's session plants a link that another project's policy leads through.
#[test]
fn a_link_planted_in_another_project_gives_nothing() {
    let world = World::new();
    world.put(&world.home("Documents/private.txt"), &world.marker);
    fs::create_dir(world.home(".claude")).unwrap();
    let end = into_dotfiles(&world, ".claude", "claude");
    let dotfiles = world.outer("dotfiles");
    let plant = "rmdir claude && ln -s ../../Documents claude";
    let output = world.jail([]).cwd(&dotfiles).run(&["bash", "-c", plant]);
    assert_eq!(output.code(), 0, "{output:?}");
    assert!(fs::symlink_metadata(end).unwrap().is_symlink());
    let read = "cat ~/.claude/private.txt; echo x > ~/.claude/new";
    let run = world.jail(["-p", "claude", "--set", "agents.state=shared"]);
    let output = run.run(&["bash", "-c", read]);
    output.refused("which an earlier session could have made");
    assert!(!world.home("Documents/new").exists());
}

/// With the whole home writable, directories above protected names are still the session's own.
#[test]
fn a_writable_home_keeps_new_services_to_itself() {
    let world = World::new();
    fs::create_dir_all(world.home(".local/share/applications")).unwrap();
    // The home by its variable, and by its real path: Landlock's jail has another one.
    let script = "for home in ~ \"$0\"; do cd $home && \
                  mkdir -p .local/share/systemd/user .local/share/dbus-1/services .config/autostart; \
                  touch .local/share/systemd/user/e.service .local/share/dbus-1/services/e .config/autostart/e; done";
    world
        .jail(["--home", "write"])
        .run(&["bash", "-c", script, &text(&world.home(""))]);
    for made in [
        ".local/share/systemd",
        ".local/share/dbus-1",
        ".config/autostart",
    ] {
        assert!(!world.home(made).exists(), "{made}");
    }
}

/// `commondir` of a worktree chooses the configuration that git obeys there.
#[test]
fn pointers_of_other_worktrees_stay() {
    let world = World::new();
    let project = world.project("");
    let git = |words: &[&str]| {
        let status = std::process::Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(words)
            .current_dir(&project)
            .env("HOME", world.home(""))
            .status();
        assert!(status.unwrap().success(), "{words:?}");
    };
    git(&["init", "-q"]);
    git(&["commit", "-q", "--allow-empty", "-m", "first"]);
    git(&["worktree", "add", "-q", &text(&world.outer("other"))]);
    let pointer = world.project(".git/worktrees/other/commondir");
    let before = fs::read_to_string(&pointer).unwrap();
    let script = "echo $PWD/evil > .git/worktrees/other/commondir; mv .git/worktrees .git/w2; \
                  mv .git/worktrees/other .git/worktrees/o2";
    let output = world.jail([]).run(&["bash", "-c", script]);
    assert_ne!(output.code(), 0, "{output:?}");
    assert_eq!(fs::read_to_string(&pointer).unwrap(), before);
}

/// `KUBECONFIG` holds a list.
#[test]
fn each_part_of_a_list_in_a_variable_is_hidden() {
    let world = World::new();
    for name in ["k1", "k2"] {
        world.secret(&world.project(name));
    }
    let list = format!(
        "{}:{}",
        text(&world.project("k1")),
        text(&world.project("k2"))
    );
    let output = world
        .jail([])
        .env("KUBECONFIG", &list)
        .run(&["cat", "k1", "k2"]);
    assert!(!output.stdout.contains(&world.marker), "{output:?}");
}

/// A copy does not take the place of the project.
#[test]
fn a_seed_leaves_the_project_alone() {
    let world = World::new();
    world.put(
        &world.home(".config/agent-sandbox/config.toml"),
        "[home]\nseed = [\"~/work\"]\n",
    );
    let output = world.jail([]).run(&["bash", "-c", "echo more >> README"]);
    assert_eq!(output.code(), 0, "{output:?}");
    assert!(
        fs::read_to_string(world.project("README"))
            .unwrap()
            .contains("more")
    );
}
