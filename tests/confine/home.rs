//! Credentials in the home directory: absent in every mode, by every name.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::backend::{assert_answers, is_as_good, is_landlock};
use crate::op;
use crate::operations::text;
use crate::world::{CREDENTIALS, World};

const MODES: [&str; 4] = ["tmpfs", "restricted", "read", "write"];

fn reads(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| op!("read", path)).collect()
}

#[test]
fn credentials_are_absent_in_every_home_mode() {
    let world = World::new();
    let paths = world.credentials();
    let plain = world.outside().operations(&reads(&paths));
    assert!(
        plain.iter().all(|answer| answer.starts_with("ok:secret")),
        "{plain:?}"
    );
    for mode in MODES {
        let run = || world.jail(["--home", mode]);
        for (path, answer) in paths.iter().zip(run().operations(&reads(&paths))) {
            let absent = is_as_good(&answer, "ENOENT");
            assert!(absent, "{mode}: {}: {answer}", path.display());
        }
        // Nor do listings name them: each directory above a credential, as far as it is shown.
        let mut above: Vec<PathBuf> = paths
            .iter()
            .flat_map(|path| path.ancestors().skip(1))
            .filter(|above| above.starts_with(world.home("")))
            .map(PathBuf::from)
            .collect();
        above.sort();
        above.dedup();
        let lists: Vec<String> = above.iter().map(|path| op!("list", path)).collect();
        for (directory, names) in above.iter().zip(run().operations(&lists)) {
            for name in names.trim_start_matches("ok:").split(',') {
                let path = directory.join(name);
                assert!(!paths.contains(&path), "{mode}: listed {}", path.display());
                let whole = [".ssh", ".aws", ".kube", ".docker", ".gnupg", ".mozilla"];
                assert!(
                    whole.iter().all(|hidden| path != world.home(hidden)),
                    "{mode}: listed {}",
                    path.display()
                );
            }
        }
        let note = run().operation(op!("read", world.home("notes/today.txt")));
        let expected = if mode == "tmpfs" {
            "ENOENT"
        } else {
            "ok:harmless\\n"
        };
        assert!(is_as_good(&note, expected), "{mode}: {note}");
    }
}

#[test]
fn nothing_that_runs_at_login_can_be_left_behind() {
    let world = World::new();
    fs::remove_dir_all(world.home(".ssh")).unwrap();
    world.put(&world.home(".local/bin/tool"), "#!/bin/sh\n");
    world.put(&world.home(".config/plain/file"), "kept\n");
    let run = || world.jail(["--home", "write"]);
    // What does not exist yet may be made inside, and stays there.
    let new = [
        ".ssh/authorized_keys",
        ".ssh/rc",
        ".bashrc",
        ".bash_login",
        ".config/autostart/x.desktop",
        ".config/systemd/user/x.service",
        ".config/environment.d/x.conf",
        ".config/agent-sandbox/config.toml",
        ".local/state/agent-sandbox/x",
        ".config/git/config",
        ".claude/settings.json",
        ".aws/config2",
        ".vimrc",
        ".pam_environment",
        "new-entry",
    ];
    let mut operations = Vec::new();
    for name in new {
        let path = world.home(name);
        let mut above: Vec<_> = path
            .ancestors()
            .skip(1)
            .take_while(|above| *above != world.home(""))
            .collect();
        above.reverse();
        operations.extend(above.iter().map(|above| op!("mkdir", above)));
        operations.push(op!("create", &path));
    }
    run().operations(&operations);
    for name in new {
        if CREDENTIALS.iter().any(|own| own.starts_with(name)) {
            continue;
        }
        let path = world.home(name);
        assert!(!path.exists(), "came into being on the host: {name}");
    }
    // What exists cannot be changed, moved or replaced.
    let profile = world.home(".profile");
    let bin = world.home(".local/bin");
    let answers = run().operations(&[
        op!("append", &profile, "evil"),
        op!("truncate", &profile),
        op!("chmod", "777", &profile),
        op!("unlink", &profile),
        op!("rename", &profile, &world.home("moved")),
        op!("put", bin.join("tool"), "evil"),
        op!("create", bin.join("git")),
        op!("rename", &bin, &world.home(".local/moved")),
        op!("append", world.home(".gitconfig"), "[core]\n\tpager = evil"),
        // A positive control: the rest is writable.
        op!("put", world.home("notes/today.txt"), "changed\n"),
        op!("put", world.home(".config/plain/file"), "changed\n"),
    ]);
    let expected = [
        "EROFS", "EROFS", "EROFS", "EBUSY", "EBUSY", "EROFS", "EROFS", "EBUSY", "EROFS", "ok", "ok",
    ];
    assert_answers(&answers, &expected, "what exists");
    assert_eq!(fs::read_to_string(&profile).unwrap(), "# the user's own\n");
    assert_eq!(fs::read_to_string(bin.join("tool")).unwrap(), "#!/bin/sh\n");
    assert!(!bin.join("git").exists());
    assert_eq!(
        fs::read_to_string(world.home("notes/today.txt")).unwrap(),
        "changed\n"
    );
}

#[test]
fn a_symlinked_credential_is_hidden_where_it_leads() {
    let world = World::new();
    let (in_project, common) = (world.project("cloud"), world.base("common"));
    fs::rename(world.home(".aws"), &in_project).unwrap();
    symlink(&in_project, world.home(".aws")).unwrap();
    fs::create_dir(&common).unwrap();
    fs::rename(world.home(".netrc"), common.join("netrc")).unwrap();
    symlink("../common/netrc", world.home(".netrc")).unwrap();
    world.put(&common.join("data"), "data\n");
    for mode in MODES {
        let answers = world
            .jail(["--home", mode])
            .option("--read", &common)
            .operations(&[
                op!("read", in_project.join("credentials")),
                op!("read", world.home(".aws/credentials")),
                op!("read", common.join("netrc")),
                op!("read", world.home(".netrc")),
                op!("read", common.join("data")),
            ]);
        let expected = ["ENOENT", "ENOENT", "ENOENT", "ENOENT", "ok:data\\n"];
        assert_answers(&answers, &expected, mode);
    }
}

#[test]
fn a_hidden_path_stays_hidden_when_it_is_given() {
    let world = World::new();
    symlink(world.home(".ssh"), world.project("innocent")).unwrap();
    symlink(world.home(".ssh/id_rsa"), world.project("key")).unwrap();
    let home = text(&world.home(""));
    let project = text(&world.project(""));
    let names = [
        format!("{home}/.ssh"),
        format!("{home}/.ssh/"),
        format!("{home}/.ssh/id_rsa"),
        format!("{home}/./notes/../.ssh"),
        format!("{home}//.ssh//id_rsa"),
        format!("{project}/innocent"),
        format!("{project}/key"),
        format!("/proc/self/root{home}/.ssh"),
        "/proc/self/cwd/../../.ssh".to_owned(),
        home.clone(),
        text(&world.base("")),
    ];
    let paths = reads(&[
        world.home(".ssh/id_rsa"),
        world.project("innocent/id_rsa"),
        world.project("key"),
    ]);
    for option in ["--read", "--write"] {
        for name in &names {
            let output = world
                .jail([option, name])
                .start_attack("operations", &paths)
                .wait();
            if output.code() == 0 {
                for (_, answer) in output.report().all() {
                    let absent = is_as_good(answer, "ENOENT");
                    assert!(absent, "{option} {name}: {answer}");
                }
            } else {
                output.refused("");
            }
        }
    }
}

#[test]
fn what_is_hidden_in_the_project_stays_covered() {
    let world = World::new();
    let (directory, file) = (world.project("private"), world.project("token"));
    world.secret(&directory.join("deep/secret"));
    world.secret(&file);
    let run = || {
        world
            .jail([])
            .option("--hide", &directory)
            .option("--hide", &file)
    };
    let answers = run().operations(&[
        op!("read", directory.join("deep/secret")),
        op!("list", &directory),
        op!("create", directory.join("new")),
        op!("rename", &directory, world.project("elsewhere")),
        op!("rmdir", &directory),
        op!("exchange", &directory, world.project("README")),
        op!("read", &file),
        op!("append", &file, "x"),
        op!("unlink", &file),
        op!("rename", &file, world.project("elsewhere")),
        op!("link", &file, world.project("elsewhere")),
        op!("rename", world.project("README"), &file),
    ]);
    // Where a mount covers it something empty is seen, and where Landlock does, it is closed.
    let seen = if is_landlock() { "EACCES" } else { "ok" };
    let expected = [
        "ENOENT", seen, "EROFS", "EBUSY", "EBUSY", "EBUSY", seen, "EACCES", "EBUSY", "EBUSY",
        "EXDEV", "EBUSY",
    ];
    assert_answers(&answers, &expected, "covered");
    assert!(fs::read_to_string(&file).unwrap().contains(&world.marker));
}

/// A directory above something hidden could be renamed: the next launch, which goes by the path,
/// would find nothing to hide.
#[test]
fn a_hidden_path_cannot_be_moved_into_view() {
    let world = World::new();
    let hidden = world.project("a/b/private");
    world.secret(&hidden.join("secret"));
    // By a rule for the project, and by the built-in rule for a link that leads into the project.
    let linked = world.project("c/d/cloud");
    fs::create_dir_all(world.project("c/d")).unwrap();
    fs::rename(world.home(".aws"), &linked).unwrap();
    symlink(&linked, world.home(".aws")).unwrap();
    let run = || world.jail([]).option("--hide", &hidden);
    run().operations(&[
        op!("rename", world.project("a/b"), world.project("a/moved")),
        op!("rename", world.project("a"), world.project("gone")),
        op!("rename", world.project("c/d"), world.project("c/moved")),
        op!("rename", world.project("c"), world.project("lost")),
    ]);
    let mut paths = Vec::new();
    for first in ["a", "gone"] {
        for second in ["b", "moved"] {
            paths.push(world.project(&format!("{first}/{second}/private/secret")));
        }
    }
    for first in ["c", "lost"] {
        for second in ["d", "moved"] {
            paths.push(world.project(&format!("{first}/{second}/cloud/credentials")));
        }
    }
    for answer in run().operations(&reads(&paths)) {
        assert!(is_as_good(&answer, "ENOENT"), "{answer}");
    }
}
