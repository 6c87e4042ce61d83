//! What git runs when the user uses it outside: hooks, and programs that configuration names.

use std::fs;
use std::path::Path;

use crate::backend::is_as_good_as_one;
use crate::op;
use crate::operations::text;
use crate::world::World;

/// git outside, as the user runs it.
fn git(world: &World, directory: &Path, words: &[&str]) -> String {
    let mut all = vec!["git".to_owned()];
    all.extend(words.iter().map(|word| (*word).to_owned()));
    let output = world.outside().cwd(directory).run(&all);
    assert_eq!(output.code(), 0, "{all:?}: {output:?}");
    output.stdout
}

fn repository(world: &World, directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    git(world, directory, &["init", "-q", "-b", "main"]);
    fs::create_dir_all(directory.join(".git/hooks")).unwrap();
    fs::write(directory.join(".git/hooks/post-commit"), "#!/bin/sh\n").unwrap();
    git(
        world,
        directory,
        &["commit", "-q", "--allow-empty", "-m", "first"],
    );
}

#[test]
fn hooks_and_configuration_stay() {
    let world = World::new();
    let project = world.project("");
    repository(&world, &project);
    let at = |name: &str| world.project(name);
    let config = fs::read_to_string(at(".git/config")).unwrap();
    let operations = [
        op!("append", at(".git/config"), "[core]\n\tfsmonitor = evil\n"),
        op!("unlink", at(".git/config")),
        op!("rename", at(".git/config"), at("x")),
        op!("rename", at("README"), at(".git/config")),
        op!("exchange", at(".git/config"), at("README")),
        op!("append", at(".git/hooks/post-commit"), "evil"),
        op!("create", at(".git/hooks/pre-commit")),
        op!("rename", at(".git/hooks"), at(".git/old")),
        op!("exchange", at(".git/hooks"), at("other")),
        op!("rename", at(".git"), at("old")),
        op!("unlink", at(".git")),
        op!("rename", &project, world.outer("moved")),
    ];
    fs::create_dir(at("other")).unwrap();
    let answers = world.jail([]).operations(&operations);
    for (operation, answer) in operations.iter().zip(&answers) {
        let refused = ["EROFS", "EBUSY", "EXDEV", "EISDIR", "ENOENT", "EPERM"];
        assert!(is_as_good_as_one(answer, &refused), "{operation}: {answer}");
    }
    assert_eq!(fs::read_to_string(at(".git/config")).unwrap(), config);
    assert_eq!(
        fs::read_dir(at(".git/hooks"))
            .unwrap()
            .filter(|entry| !entry
                .as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .ends_with(".sample"))
            .count(),
        1
    );
    // Work goes on.
    let script =
        "echo x > new && git add new && git commit -q -m second && git checkout -q -b topic";
    let output = world.jail([]).run(&["bash", "-c", script]);
    assert_eq!(output.code(), 0, "{output:?}");
    assert!(git(&world, &project, &["log", "--format=%s"]).starts_with("second"));
    let output = world.jail([]).run(&["git", "config", "core.pager", "evil"]);
    assert_ne!(output.code(), 0);
}

/// What is not there yet can be made in a writable directory, and a link can be replaced: neither can
/// be protected, and both are said before the command starts.
#[test]
fn what_of_gits_cannot_be_protected_is_said() {
    let world = World::new();
    let project = world.project("");
    repository(&world, &project);
    let said = || {
        let output = world.jail(["--dry-run"]).run(&["true"]);
        assert_eq!(output.code(), 0, "{output:?}");
        output.stdout
    };
    assert!(!said().contains("protected"), "{}", said());
    fs::rename(world.project(".git/hooks"), world.project("hooks")).unwrap();
    git(
        &world,
        &project,
        &["config", "extensions.worktreeConfig", "true"],
    );
    let missing = said();
    for name in ["hooks", "config.worktree"] {
        let line = format!(
            "{}: it does not exist",
            text(&project.join(".git").join(name))
        );
        assert!(missing.contains(&line), "{missing}");
    }
    std::os::unix::fs::symlink("../hooks", world.project(".git/hooks")).unwrap();
    assert!(
        said().contains("/.git/hooks: it is a symbolic link"),
        "{}",
        said()
    );
}

#[test]
fn existing_worktree_configuration_stays() {
    let world = World::new();
    let project = world.project("");
    repository(&world, &project);
    git(
        &world,
        &project,
        &["config", "extensions.worktreeConfig", "true"],
    );
    git(&world, &project, &["config", "--worktree", "x.y", "z"]);
    let config = world.project(".git/config.worktree");
    let answers = world.jail([]).operations(&[
        op!("append", &config, "[core]\n\thooksPath = evil\n"),
        op!("unlink", &config),
    ]);
    assert!(answers.iter().all(|answer| answer != "ok"), "{answers:?}");
}

#[test]
fn a_worktree_commits_and_protects_its_repository() {
    let world = World::new();
    let (repo, tree) = (world.base("repo"), world.project("tree"));
    repository(&world, &repo);
    git(&world, &repo, &["worktree", "add", "-q", &text(&tree)]);
    let run = || world.jail([]).cwd(&tree);
    let output = run().run(&["git", "commit", "-q", "--allow-empty", "-m", "from inside"]);
    assert_eq!(output.code(), 0, "{output:?}");
    let subject = git(&world, &tree, &["log", "-1", "--format=%s"]);
    assert_eq!(subject, "from inside\n");
    let operations = [
        op!("append", repo.join(".git/config"), "evil"),
        op!("create", repo.join(".git/hooks/pre-commit")),
        op!("rename", repo.join(".git/hooks"), repo.join(".git/x")),
        op!("rename", repo.join(".git"), repo.join("x")),
    ];
    for (operation, answer) in operations.iter().zip(run().operations(&operations)) {
        assert!(
            is_as_good_as_one(&answer, &["EROFS", "EBUSY"]),
            "{operation}: {answer}"
        );
    }
    // The files beside the repository are another project.
    fs::write(repo.join("file"), "x").unwrap();
    let answer = run().operation(op!("read", repo.join("file")));
    assert!(is_as_good_as_one(&answer, &["ENOENT"]), "{answer}");
}
