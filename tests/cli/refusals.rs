//! Circumstances in which nothing is started, and what is said about them.

use std::fs;
use std::os::unix::process::CommandExt;

use agent_sandbox::plan::build::syscalls::{Switches, rules};
use agent_sandbox::seccomp::compile;

use crate::world::{World, not_checked};

/// An outer bubblewrap that shows the host, and what more it takes.
pub(crate) fn outer(more: &[&str]) -> Vec<String> {
    let host = ["bwrap", "--unshare-user", "--dev-bind", "/", "/"];
    host.iter()
        .chain(more)
        .chain(&["--"])
        .map(|word| (*word).to_owned())
        .collect()
}

#[test]
fn projects_that_are_refused() {
    let world = World::new();
    fs::create_dir_all(world.home.join(".config/agent-sandbox")).unwrap();
    let hint = "hint: change into the directory of one project, or name it with -C DIR\n";
    for (project, message) in [
        ("gone", "error: the project directory `[PLACE]/home/project/gone` does not exist\nhint: create it first, or name another with -C DIR\n".to_owned()),
        ("main.c", "error: the project `[PLACE]/home/project/main.c` is not a directory\n".to_owned()),
        ("/", format!("error: `/` cannot be the project: it is the whole file system\n{hint}")),
        ("..", format!("error: `[PLACE]/home/project/..` cannot be the project: it is your home directory\n{hint}")),
        ("../..", format!("error: `[PLACE]/home/project/../..` cannot be the project: it contains your home directory `[PLACE]/home`\n{hint}")),
        ("../.ssh", format!("error: `[PLACE]/home/project/../.ssh` cannot be the project: the rule files.hide `~/.ssh` (built-in default.toml:[..]) hides it\n{hint}")),
        ("../.config", format!("error: `[PLACE]/home/project/../.config` cannot be the project: agent-sandbox keeps its policy or state in `[PLACE]/home/.config/agent-sandbox`\n{hint}")),
        ("/usr", format!("error: `/usr` cannot be the project: it is or contains the system directory `/usr`\n{hint}")),
        ("/tmp", format!("error: `/tmp` cannot be the project: it [..]\n{hint}")),
    ] {
        world.call(["-C", project, "true"]).run().expect(125, "", &message);
    }
}

#[test]
fn a_current_directory_that_is_gone() {
    let world = World::new();
    let gone = world.place.join("gone");
    fs::create_dir(&gone).unwrap();
    let call = world
        .call(["true"])
        .by(["sh", "-c", "rmdir ../gone; exec \"$@\"", "sh"])
        .cwd(&gone);
    call.run().expect(125, "", "error: the current directory cannot be found; does it still exist?: No such file or directory (os error 2)\n");
}

#[test]
fn a_home_that_is_unknown() {
    let world = World::new();
    let text = "error: HOME is not set, so there is no telling which directory to protect\n";
    world
        .call(["true"])
        .without_variable("HOME")
        .run()
        .expect(125, "", text);
    let text = "error: HOME is `relative`, which is not an absolute path\n";
    world
        .call(["true"])
        .variable("HOME", "relative")
        .run()
        .expect(125, "", text);
}

#[test]
fn root() {
    let world = World::new();
    let text = "error: agent-sandbox does not run as root: root's files are not protected by a jail of root's own\n\
        hint: run it as an ordinary user\n";
    world
        .call(["true"])
        .by(["unshare", "--user", "--map-root-user"])
        .run()
        .expect(125, "", text);
}

#[test]
fn the_inside_of_a_jail() {
    let world = World::new();
    let text = "error: this is already the inside of a jail (AGENT_SANDBOX is set)\nhint: a jail cannot hold another; leave it first\n";
    world
        .call(["true"])
        .variable("AGENT_SANDBOX", "1")
        .run()
        .expect(125, "", text);
    // The program itself is there as init, which is not what it is under its own name.
    let text = "error: this is already the inside of a jail, and a jail cannot hold another\n\
        hint: start the command as it is: it has this jail's rights; another agent in a jail of its own is \
        the user's to start, outside\n\
        hint: inside, `agent-sandbox explain PATH`, `--env NAME`, `--host NAME`, `--slurm LINE` and `--backend` work, \
        `agent-sandbox notify TEXT`, `agent-sandbox wait JOBID` and `agent-sandbox budget`\n";
    let again = "exec -a agent-sandbox /run/agent-sandbox/init true";
    world
        .quiet(["bash", "-c", again])
        .run()
        .expect(125, "", text);
    // It does not ask a variable.
    world
        .quiet(["bash", "-c", &format!("unset AGENT_SANDBOX; {again}")])
        .run()
        .expect(125, "", text);
}

#[test]
fn a_subcommand_that_is_spelt_wrong() {
    let world = World::new();
    let hint = "hint: did you mean the subcommand `doctor`?\n";
    let outside = world.quiet(["docter"]).run();
    assert_eq!(outside.code, 127, "{outside}");
    assert!(outside.err().ends_with(hint), "{outside}");
    let inside = world.quiet(["bash", "-c", "agent-sandbox docter"]).run();
    assert_eq!(inside.code, 125, "{inside}");
    assert!(inside.err().contains(hint), "{inside}");
    // What a command ends with itself is no mistake of the user's.
    let own = world.quiet(["bash", "-c", "exit 127"]).run();
    assert!(!own.err().contains("did you mean"), "{own}");
}

#[test]
fn what_works_outside_alone_says_so_inside() {
    let world = World::new();
    for words in ["policy", "doctor", "profile list", "sessions", "log"] {
        let said = world
            .quiet(["bash", "-c", &format!("agent-sandbox {words}")])
            .run();
        assert_eq!(said.code, 125, "{words}: {said}");
        assert!(
            said.err()
                .contains("are outside\nhint: ask the user to run it outside\n"),
            "{words}: {said}"
        );
    }
}

#[test]
fn bubblewrap_is_not_installed() {
    let world = World::new();
    let places = [
        "/usr/bin/bwrap",
        "/usr/local/bin/bwrap",
        "/bin/bwrap",
        "/opt/bubblewrap/bin/bwrap",
    ];
    let mut cover: Vec<&str> = Vec::new();
    for place in places
        .into_iter()
        .filter(|place| fs::metadata(place).is_ok())
    {
        if fs::canonicalize(place).is_ok_and(|real| real == std::path::Path::new(place)) {
            cover.extend(["--ro-bind", "/dev/null", place]);
        }
    }
    let call = world.call(["--backend", "bwrap", "true"]);
    let output = call.by(outer(&cover)).run();
    output.expect(
        125,
        "",
        "error: bubblewrap (bwrap) is not installed: looked in /usr/bin, /usr/local/bin, /bin, /opt/bubblewrap/bin[..]\n\
         hint: user: this node cannot run the jail as it is; ask its administrator\n\
         hint: admin: install the package `bubblewrap` (0.4 or newer)\n",
    );
}

/// A site's policy that is somebody's but the system's root's is not passed over. What the site's files
/// do where they are root's is the suite `site`'s.
#[test]
fn a_policy_of_the_site_that_is_not_roots() {
    let world = World::new();
    let policy = world.write("site.toml", "[network]\nmode = \"isolated\"\n");
    let policy = policy.to_str().unwrap();
    for name in ["enforced.toml", "defaults.toml"] {
        let place = format!("/etc/agent-sandbox/{name}");
        let text = format!(
            "error: {place}: /[..], on the way to it, does not belong to root (it is uid [..]'s)\n\
             hint: ask your administrators: chown -h root /[..]\n"
        );
        for words in [
            &["true"][..],
            &["--dry-run", "true"],
            &["policy"],
            &["explain", "/usr"],
        ] {
            let site = outer(&["--tmpfs", "/etc", "--ro-bind", policy, &place]);
            world.call(words).by(site).run().expect(125, "", &text);
        }
    }
}

/// A node on which users may make no user namespaces: a filter of system calls refuses them, as
/// container runtimes do.
#[test]
fn no_user_namespaces() {
    let world = World::new();
    let filter = compile(&rules(Switches {
        nested: false,
        keyctl: false,
        mediated: false,
        besides: &[],
    }))
    .unwrap();
    let mut command = world.call(["--backend", "bwrap", "true"]).command();
    // SAFETY: the closure makes two system calls between fork and exec and allocates nothing; the
    // program that it points to lives in `filter`, which it owns.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog {
                len: (filter.len() / 8) as u16,
                filter: filter.as_ptr().cast_mut().cast(),
            };
            let installed = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0;
            if installed {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        });
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{text}");
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("agent-sandbox: "))
        .collect();
    assert_eq!(
        lines[0],
        "error: user namespaces may not be created here (a container's or the site's rule): Operation not permitted (os error 1)",
        "{text}"
    );
    assert!(
        lines[1].starts_with("hint: bubblewrap said: bwrap: "),
        "{text}"
    );
    assert_eq!(
        lines[2..],
        [
            "hint: user: this node cannot run the jail as it is; ask its administrator",
            "hint: admin: permit unprivileged user namespaces, or run outside of the container",
        ],
        "{text}"
    );
    not_checked(
        "a node whose sysctl switches user namespaces off",
        "an ordinary user cannot set it for a namespace in which root's files are root's",
    );
}

/// A directory as a standard stream would be an open way out of the jail.
#[test]
fn a_directory_as_a_standard_stream() {
    let world = World::new();
    let call = world
        .call(["true"])
        .by(["sh", "-c", "exec \"$@\" < /", "sh"]);
    call.run().expect(125, "", "error: standard input is a directory, which would be open inside the jail\nhint: redirect it from or to a file\n");
}
