//! Which directory is a project, and what a project may say.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::backend::{is_as_good, launcher_words};
use crate::op;
use crate::operations::text;
use crate::probe::{Attack, address, c, syscall};
use crate::world::{World, launcher, not_checked};

pub(crate) const ATTACKS: &[Attack] = &[("bind-and-run", bind_and_run)];

#[test]
fn home_by_another_name_is_no_project() {
    let world = World::new();
    let home = text(&world.home(""));
    symlink(&home, world.project("link")).unwrap();
    symlink("../..", world.project("relative")).unwrap();
    symlink(world.project("link"), world.base("chain")).unwrap();
    let names = [
        home.clone(),
        format!("{home}/"),
        format!("{home}//."),
        format!("{home}/work/.."),
        format!("{home}/work/project/../../"),
        format!("{home}/../home"),
        "../..".to_owned(),
        text(&world.project("link")),
        text(&world.project("relative")),
        format!("{}/", text(&world.base("chain"))),
        format!("/proc/self/root{home}"),
        "/proc/self/cwd/../..".to_owned(),
        // What contains it.
        text(&world.base("")),
        text(&world.base("").parent().unwrap()),
        "/".to_owned(),
        "/home".to_owned(),
        "/..".to_owned(),
        "/proc/self/root".to_owned(),
        "/proc/1/cwd".to_owned(),
    ];
    for name in &names {
        let output = world.jail(["-C", name]).run(&["true"]);
        output.refused("");
    }
    // The current directory is the project where none is named.
    for directory in [world.home(""), world.base(""), PathBuf::from("/")] {
        world.jail([]).cwd(&directory).run(&["true"]).refused("");
        world
            .jail(["-C", "/proc/self/cwd"])
            .cwd(&directory)
            .run(&["true"])
            .refused("");
    }
    let liar = world
        .jail([])
        .cwd(&world.home(""))
        .env("PWD", world.project(""));
    liar.run(&["true"]).refused("");
}

#[test]
fn what_the_launcher_itself_relies_on_is_no_project() {
    let world = World::new();
    for name in [".config/agent-sandbox", ".local/state/agent-sandbox"] {
        fs::create_dir_all(world.home(name)).unwrap();
    }
    let binary = launcher().canonicalize().unwrap();
    let mut directories = vec![
        world.home(".config"),
        world.home(".config/agent-sandbox"),
        world.home(".local"),
        world.home(".local/state"),
        world.home(".local/state/agent-sandbox"),
        binary.parent().unwrap().to_path_buf(),
        world.home(".ssh"),
        world.home(".config/gh"),
    ];
    directories.extend(
        [
            "/etc",
            "/usr",
            "/tmp",
            "/var/tmp",
            "/dev/shm",
            "/run",
            "/proc/self",
        ]
        .map(PathBuf::from),
    );
    for directory in &directories {
        let output = world.jail([]).option("-C", directory).run(&["true"]);
        output.refused("");
        if !directory.starts_with("/usr") {
            continue;
        }
        let output = world.jail([]).option("--write", directory).run(&["true"]);
        assert_ne!(output.code(), 101, "{output:?}");
    }
}

/// In a mount namespace of its own: binds a directory to another name, then runs a command.
fn bind_and_run(words: &[String]) {
    let [from, to, command @ ..] = words else {
        panic!("too few words")
    };
    let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
    // SAFETY: a probe has one thread; its namespaces are its own.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) };
    if unshared != 0 {
        crate::probe::tell("no namespaces", std::io::Error::last_os_error());
        return;
    }
    fs::write("/proc/self/setgroups", "deny").expect("setgroups");
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).expect("the uid map");
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).expect("the gid map");
    let (from, to) = (c(from), c(to));
    let bound = syscall(
        libc::SYS_mount,
        &[
            address(from.as_c_str()),
            address(to.as_c_str()),
            0,
            libc::MS_BIND,
            0,
        ],
    );
    assert_eq!(bound, 0, "mount: {}", std::io::Error::last_os_error());
    panic!("{}", Command::new(&command[0]).args(&command[1..]).exec());
}

#[test]
fn home_bound_to_another_name_is_no_project() {
    let world = World::new();
    let other = world.base("other-name");
    fs::create_dir(&other).unwrap();
    // A plan is enough: the namespace that makes the mount possible maps no root, so bubblewrap
    // would not be trusted in it.
    let launch = |project: &str| {
        let project = text(&other.join(project));
        let mut words = vec![text(&world.home("")), text(&other)];
        words.extend(launcher_words(&["--dry-run", "-C", &project, "true"]));
        let attack = world.outside().start_attack("bind-and-run", &words);
        attack.wait()
    };
    let control = launch("work/project");
    if control.stdout.contains("no namespaces") {
        not_checked(
            "a home with two names",
            "this host permits no user namespaces",
        );
        return;
    }
    if control
        .stderr
        .contains("no place for the session's directory")
    {
        not_checked(
            "a home with two names",
            "/tmp is nobody's in such a namespace, so Landlock's sessions have no place",
        );
        return;
    }
    assert_eq!(control.code(), 0, "{control:?}");
    launch("").refused("cannot be the project");
    launch(".ssh").refused("cannot be the project");
}

#[test]
fn files_in_the_project_change_no_policy() {
    let world = World::new();
    let policy = "[files]\nunhide = [\"~/.ssh\"]\nread = [\"~/.ssh\"]\n[home]\nmode = \"read\"\n";
    for name in [
        "config.toml",
        "agent-sandbox.toml",
        ".agent-sandbox.toml",
        ".agent-sandbox/config.toml",
        ".config/agent-sandbox/config.toml",
        "profiles/default.toml",
        "profiles/agents/cat.toml",
        "defaults.toml",
        "AGENTS.md",
        "CLAUDE.md",
        ".env",
        ".envrc",
    ] {
        world.put(&world.project(name), policy);
    }
    world.put(&world.project("README"), policy);
    let answer = world
        .jail([])
        .operation(op!("read", world.home(".ssh/id_rsa")));
    assert!(is_as_good(&answer, "ENOENT"), "{answer}");
    // The same text where it belongs does have an effect.
    world.put(&world.home(".config/agent-sandbox/config.toml"), policy);
    let key = text(&world.home(".ssh/id_rsa"));
    let output = world.outside().run(&launcher_words(&["-q", "cat", &key]));
    assert!(output.stdout.contains(&world.marker), "{output:?}");
}

/// Programs with the names of those that the launcher and init start.
#[test]
fn programs_in_the_project_are_not_taken() {
    let world = World::new();
    let taken = world.project("taken");
    for name in [
        "bwrap",
        "bash",
        "sh",
        "env",
        "true",
        "git",
        "lua",
        "getent",
        "agent-sandbox",
    ] {
        for place in ["", "bin/"] {
            let path = world.project(&format!("{place}{name}"));
            world.put(
                &path,
                &format!("#!/bin/sh\necho {name} >> {}\nexit 42\n", text(&taken)),
            );
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    for path in [
        ".",
        "",
        ".:/usr/bin",
        ":/usr/bin",
        "bin:/usr/bin:/bin",
        "./bin::/usr/bin",
    ] {
        let _ = world.jail([]).env("PATH", path).run(&["true"]);
        assert!(
            !taken.exists(),
            "PATH={path}: {}",
            fs::read_to_string(&taken).unwrap()
        );
    }
    let output = world.jail([]).env("PATH", ".:/usr/bin:/bin").run(&["true"]);
    assert_eq!(output.code(), 0, "{output:?}");
    // Modules are loaded outside, before the jail.
    let lmod = world.base("lmod");
    world.put(&lmod, "#!/bin/sh\necho :\n");
    fs::set_permissions(&lmod, fs::Permissions::from_mode(0o755)).unwrap();
    let output = world
        .jail(["--set", "modules.load=[\"x\"]"])
        .env("LMOD_CMD", &lmod)
        .env("PATH", ".:/usr/bin:/bin")
        .run(&["/bin/true"]);
    assert!(
        !taken.exists(),
        "modules: {} {output:?}",
        fs::read_to_string(&taken).unwrap()
    );
}

/// What the launcher prints may be made of names that an earlier session chose.
#[test]
fn planted_names_do_not_write_to_the_terminal() {
    let world = World::new();
    world.put(
        &world.project(".git"),
        "gitdir: /x/\u{1b}]0;planted\u{7}\u{1b}[8m\n",
    );
    let output = world.jail(["-v"]).run(&["true"]);
    assert!(!output.stderr.contains('\u{1b}'), "{output:?}");
    let output = world.outside().run(&launcher_words(&["true"]));
    assert!(!output.stderr.contains('\u{1b}'), "{output:?}");
    let named = world.outer("\u{1b}]0;planted\u{7}");
    fs::create_dir(&named).unwrap();
    let output = world.outside().cwd(&named).run(&launcher_words(&["true"]));
    assert_eq!(output.code(), 0, "{output:?}");
    assert!(!output.stderr.contains('\u{1b}'), "{output:?}");
}
