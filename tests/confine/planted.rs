//! What an earlier session left in the project, aimed at the next launch: a `.git` that is not one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::op;
use crate::operations::text;
use crate::world::World;

/// One thing that stands where `.git` should.
type Plant = fn(&World, &Path);

fn pointer(world: &World, at: &Path, to: &Path) {
    world.put(at, &format!("gitdir: {}\n", text(to)));
}

/// Makes `common` look like a repository with a worktree that `.git` belongs to.
fn fake_repository(world: &World, common: &Path, dot_git: &Path) -> PathBuf {
    let own = common.join("worktrees/x");
    world.put(&own.join("gitdir"), &format!("{}\n", text(dot_git)));
    world.put(&own.join("commondir"), "../..\n");
    world.put(&own.join("HEAD"), "ref: refs/heads/main\n");
    for name in ["objects", "refs"] {
        fs::create_dir_all(common.join(name)).unwrap();
    }
    own
}

const PLANTS: &[(&str, Plant)] = &[
    ("a link to the keys", |world, at| {
        symlink(world.home(".ssh"), at).unwrap()
    }),
    ("a link to the home", |world, at| {
        symlink(world.home(""), at).unwrap()
    }),
    ("a relative link", |_, at| {
        symlink("../../.ssh", at).unwrap()
    }),
    ("a link to itself", |_, at| symlink(".git", at).unwrap()),
    ("a FIFO", |_, at| {
        nix::unistd::mkfifo(at, nix::sys::stat::Mode::S_IRWXU).unwrap();
    }),
    ("a pointer to the keys", |world, at| {
        pointer(world, at, &world.home(".ssh"))
    }),
    ("a pointer to the home", |world, at| {
        pointer(world, at, &world.home(""))
    }),
    ("a pointer upwards", |world, at| {
        pointer(world, at, Path::new("../../.ssh"))
    }),
    ("a pointer to nothing", |world, at| {
        pointer(world, at, Path::new("/nowhere/worktrees/x"))
    }),
    ("an endless file", |_, at| {
        fs::File::create(at)
            .and_then(|file| file.set_len(1 << 40))
            .unwrap();
    }),
    ("no text", |_, at| fs::write(at, [0xff; 100]).unwrap()),
    ("a worktree of the keys", |world, at| {
        let own = fake_repository(world, &world.home(".ssh"), at);
        pointer(world, at, &own);
    }),
    (
        "a worktree of a private directory without a way back",
        |world, at| {
            let own = fake_repository(world, &world.home("private"), &world.outer("other/.git"));
            pointer(world, at, &own);
        },
    ),
    ("a worktree whose names are links", |world, at| {
        let own = fake_repository(world, &world.project("fake"), at);
        fs::remove_dir_all(world.project("fake/refs")).unwrap();
        symlink(world.home(".ssh"), world.project("fake/refs")).unwrap();
        pointer(world, at, &own);
    }),
    ("a worktree below a link", |world, at| {
        fake_repository(world, &world.home("private"), &world.outer("other/.git"));
        symlink(world.home("private"), world.project("way")).unwrap();
        pointer(world, at, &world.project("way/worktrees/x"));
    }),
    ("hooks that are the keys", |world, at| {
        fs::create_dir(at).unwrap();
        symlink(world.home(".ssh"), at.join("hooks")).unwrap();
        symlink(world.home(".netrc"), at.join("config")).unwrap();
    }),
    ("hooks that are a FIFO", |_, at| {
        fs::create_dir(at).unwrap();
        for name in ["hooks", "config", "commondir", "config.worktree"] {
            nix::unistd::mkfifo(&at.join(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
        }
    }),
    ("a common directory elsewhere", |world, at| {
        fs::create_dir(at).unwrap();
        world.put(&at.join("commondir"), &text(&world.home(".ssh")));
    }),
];

#[test]
fn a_planted_dot_git_opens_nothing() {
    for (what, plant) in PLANTS {
        let world = World::new();
        world.secret(&world.home("private/secret"));
        plant(&world, &world.project(".git"));
        let mut operations = Vec::new();
        let mut targets = world.credentials();
        targets.push(world.home("private/secret"));
        for below in [
            "id_rsa",
            "hooks/id_rsa",
            "config",
            ".ssh/id_rsa",
            "refs/id_rsa",
        ] {
            targets.push(world.project(".git").join(below));
        }
        operations.extend(targets.iter().map(|path| op!("read", path)));
        let reads = operations.len();
        for directory in [".ssh", "private", ""] {
            operations.push(op!("create", world.home(directory).join("planted")));
        }
        operations.push(op!("create", world.project(".git/planted-through")));
        operations.push(op!("create", world.project(".git/hooks/planted-through")));
        let output = world
            .jail([])
            .start_attack("operations", &operations)
            .wait();
        if output.code() != 0 {
            output.refused("");
        } else {
            let report = output.report();
            for (at, operation) in operations[..reads].iter().enumerate() {
                let answer = report.get(&at.to_string());
                assert!(
                    !answer.contains("secret"),
                    "{what}: {}: {answer}",
                    operation
                );
            }
        }
        for directory in [".ssh", "private", ""] {
            for name in ["planted", "planted-through"] {
                let path = world.home(directory).join(name);
                assert!(!path.exists(), "{what}: {} exists", path.display());
            }
        }
    }
}

/// bubblewrap before 0.5 opens what stands at the place of a mount.
#[test]
fn nothing_waits_at_a_fifo_in_the_project() {
    let world = World::new();
    let config = world.project(".git/config");
    fs::create_dir_all(world.project(".git/hooks")).unwrap();
    nix::unistd::mkfifo(&config, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let since = std::time::Instant::now();
    let output = world.jail([]).run(&["true"]);
    assert!(
        since.elapsed() < std::time::Duration::from_secs(60),
        "{output:?}"
    );
    if output.code() != 0 {
        output.refused(&format!("cannot mount anything over `{}`", text(&config)));
    }
}

/// The same directory seen by a later launch with another, inner project.
#[test]
fn an_outer_session_plants_nothing_for_an_inner_one() {
    let world = World::new();
    let answers = world.jail([]).cwd(&world.outer("")).operations(&[
        op!("rename", world.outer("project"), world.outer("real")),
        op!("symlink", world.home(".ssh"), world.outer("project")),
    ]);
    assert_eq!(answers, ["ok", "ok"]);
    let output = world
        .jail([])
        .cwd(&world.outer(""))
        .option("-C", "project")
        .run(&["ls", "-la"]);
    output.refused("hide");
}
