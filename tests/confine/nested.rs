//! `jail.nested = true`: privileges in namespaces of the agent's own, which must not reach what the
//! jail's own mounts hide or protect.

use std::fs;

use crate::operations::{carry_out, text};
use crate::probe::{Attack, address, c, in_child, syscall, tell, tell_call};
use crate::world::{World, not_checked};

pub(crate) const ATTACKS: &[Attack] = &[("nested", nested)];

/// Becomes root in new namespaces; whether that worked.
fn become_root() -> bool {
    // SAFETY: reads own ids, and changes the namespaces of this child.
    let (uid, gid, made) = unsafe {
        let flags =
            libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
        (libc::getuid(), libc::getgid(), libc::unshare(flags))
    };
    made == 0
        && fs::write("/proc/self/setgroups", "deny").is_ok()
        && fs::write("/proc/self/uid_map", format!("0 {uid} 1")).is_ok()
        && fs::write("/proc/self/gid_map", format!("0 {gid} 1")).is_ok()
}

/// Words: the project, a covered directory in it, a covered file, a read-only directory, the home.
fn nested(words: &[String]) {
    let [project, covered, file, read_only, home] = words else {
        panic!("five words")
    };
    let secrets = |root: &str| -> String {
        let mut found = Vec::new();
        for path in [
            format!("{covered}/secret"),
            file.clone(),
            format!("{home}/.ssh/id_rsa"),
        ] {
            let answer = carry_out(&["read", &format!("{root}{path}")]);
            if answer.contains("secret ") {
                found.push(format!("{root}{path}"));
            }
        }
        for path in ["private/secret", "token"] {
            let answer = carry_out(&["read", &format!("{root}/{path}")]);
            if answer.contains("secret ") {
                found.push(format!("{root}/{path}"));
            }
        }
        found.join(" ")
    };
    let mount = |from: &str, at: &str, kind: &str, flags: u64, data: &str| {
        let (from, at, kind, data) = (c(from), c(at), c(kind), c(data));
        let p = |text: &std::ffi::CString| address(text.as_c_str());
        syscall(
            libc::SYS_mount,
            &[p(&from), p(&at), p(&kind), flags, p(&data)],
        )
    };
    let umount = |at: &str, flags: i32| {
        let at = c(at);
        syscall(libc::SYS_umount2, &[address(at.as_c_str()), flags as u64])
    };
    let attempt = |name: &str, act: &dyn Fn() -> i64, root: &str| {
        in_child(|| {
            if !become_root() {
                tell("privilege", "none");
                return;
            }
            tell("privilege", "root");
            tell_call(&format!("call {name}"), act());
            tell(&format!("leak {name}"), secrets(root));
            for path in [
                format!("{read_only}/file"),
                format!("{project}/.git/config"),
                "/run/agent-sandbox/init".to_owned(),
            ] {
                let answer = carry_out(&["write", &path]);
                tell(&format!("write {name} {path}"), answer);
            }
        });
    };
    let detach = libc::MNT_DETACH;
    for (what, at) in [
        ("cover", covered),
        ("file cover", file),
        ("project", project),
        ("read-only", read_only),
        ("home", home),
    ] {
        attempt(&format!("umount {what}"), &|| umount(at, detach), "");
        attempt(
            &format!("umount {what} twice"),
            &|| umount(at, 0).min(umount(at, detach)),
            "",
        );
        attempt(
            &format!("remount {what}"),
            &|| mount("", at, "", libc::MS_REMOUNT | libc::MS_BIND, ""),
            "",
        );
        attempt(
            &format!("move {what}"),
            &|| mount(at, "/tmp", "", libc::MS_MOVE, ""),
            "/tmp",
        );
    }
    attempt("umount root", &|| umount("/", detach), "");
    attempt("umount tmp", &|| umount("/tmp", detach), "");
    // A bind without what is mounted below it would show what is covered.
    for from in [project.as_str(), "/", home.as_str()] {
        attempt(
            &format!("bind {from}"),
            &|| mount(from, "/tmp", "", libc::MS_BIND, ""),
            "/tmp",
        );
        attempt(
            &format!("bind all {from}"),
            &|| {
                let bound = mount(from, "/tmp", "", libc::MS_BIND | libc::MS_REC, "");
                umount(&format!("/tmp{covered}"), detach);
                umount("/tmp/private", detach);
                umount("/tmp/token", detach);
                mount("", "/tmp", "", libc::MS_REMOUNT | libc::MS_BIND, "");
                bound
            },
            "/tmp",
        );
        // An overlay's layers are private copies without the mounts below (CVE-2021-3732).
        attempt(
            &format!("overlay {from}"),
            &|| {
                mount("x", "/tmp", "tmpfs", 0, "");
                for name in ["e", "m"] {
                    let _ = fs::create_dir(format!("/tmp/{name}"));
                }
                mount(
                    "x",
                    "/tmp/m",
                    "overlay",
                    0,
                    &format!("lowerdir={from}:/tmp/e"),
                )
            },
            "/tmp/m",
        );
        attempt(
            &format!("tree {from}"),
            &|| {
                const CLONE: u64 = 1;
                const EMPTY: u64 = 4;
                let (from, at) = (c(from), c("/tmp"));
                let tree = syscall(
                    libc::SYS_open_tree,
                    &[libc::AT_FDCWD as u64, address(from.as_c_str()), CLONE],
                );
                if tree < 0 {
                    return tree;
                }
                syscall(
                    libc::SYS_move_mount,
                    &[
                        tree as u64,
                        address(c"".to_bytes_with_nul()),
                        libc::AT_FDCWD as u64,
                        address(at.as_c_str()),
                        EMPTY,
                    ],
                )
            },
            "/tmp",
        );
    }
    attempt(
        "propagation",
        &|| {
            let made = mount("", "/", "", libc::MS_REC | libc::MS_SHARED, "");
            umount(covered, detach);
            made
        },
        "",
    );
    attempt(
        "proc",
        &|| mount("proc", "/tmp", "proc", 0, ""),
        "/tmp/1/root",
    );
    attempt("sysfs", &|| mount("sysfs", "/tmp", "sysfs", 0, ""), "/tmp");
    attempt(
        "handle",
        &|| syscall(libc::SYS_open_by_handle_at, &[0, 0, 0]),
        "",
    );
}

fn world_with_covers() -> World {
    let world = World::new();
    world.secret(&world.project("private/secret"));
    world.secret(&world.project("token"));
    world.put(&world.project(".git/config"), "[core]\n");
    world.put(&world.home("data/file"), "data\n");
    world
}

#[test]
fn nested_namespaces_uncover_nothing() {
    let world = world_with_covers();
    let words = [
        world.project(""),
        world.project("private"),
        world.project("token"),
        world.home("data"),
        world.home(""),
    ];
    let report = world
        .jail(["--set", "jail.nested=true"])
        .option("--hide", &words[1])
        .option("--hide", &words[2])
        .option("--read", &words[3])
        .attack("nested", &words);
    if report.get("privilege") != "root" {
        if world.lacks("nested", "nested namespaces") {
            return;
        }
        not_checked("nested namespaces", "this host permits none inside another");
        return;
    }
    for (what, answer) in report.all() {
        if what.starts_with("leak ") {
            assert_eq!(answer, "", "{what}");
        }
        if what.starts_with("write ") {
            assert_ne!(answer, "ok", "{what}");
        }
    }
}

/// The sandbox that some agents bring along works, and shows no more than the jail.
#[test]
fn a_nested_bubblewrap_works_and_uncovers_nothing() {
    let world = world_with_covers();
    let (covered, data) = (world.project("private"), world.home("data"));
    let run = || {
        world
            .jail(["--set", "jail.nested=true"])
            .option("--hide", &covered)
            .option("--read", &data)
    };
    let works = run().run(&[
        "bwrap",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-net",
        "echo",
        "works",
    ]);
    if works.code() != 0 {
        if world.lacks("nested", "a nested bubblewrap") {
            return;
        }
        not_checked(
            "a nested bubblewrap",
            works.stderr.lines().next().unwrap_or("it failed"),
        );
        return;
    }
    assert_eq!(works.stdout, "works\n");
    let (secret, file) = (text(&covered.join("secret")), text(&data.join("file")));
    let script = format!(
        "cat {secret} {} 2>/dev/null; umount -l {} 2>/dev/null; mount -o remount,rw,bind {} 2>/dev/null; cat {secret} 2>/dev/null; echo evil >> {file}",
        text(&world.home(".ssh/id_rsa")),
        text(&covered),
        text(&data)
    );
    for bind in ["--bind", "--dev-bind"] {
        let output = run().run(&[
            "bwrap",
            "--unshare-user",
            "--uid",
            "0",
            "--cap-add",
            "ALL",
            bind,
            "/",
            "/",
            "sh",
            "-c",
            &script,
        ]);
        assert!(!output.stdout.contains(&world.marker), "{output:?}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "data\n");
}

/// Files of the cgroup that a session runs in are often the user's, as below `systemd --user`: who mounts the cgroups ends what is in
/// them (`cgroup.kill`) and changes limits.
#[test]
fn nested_namespaces_mount_no_cgroups() {
    let world = World::new();
    let script = "mkdir -p cgroups; for kind in cgroup2 cgroup; do \
                  unshare -UrmC sh -c \"mount -t $kind x cgroups && echo mounted $kind with a namespace\"; \
                  unshare -Urm sh -c \"mount -t $kind x cgroups && echo mounted $kind\"; done; echo tried";
    let plain = world.outside().run(&["sh", "-c", script]);
    if !plain.stdout.contains("mounted cgroup2 with") {
        not_checked(
            "mounts of cgroups",
            "nobody can mount them here, in no namespace",
        );
    }
    let nested = world.jail(["--set", "jail.nested=true"]);
    let inside = nested.run(&["sh", "-c", script]);
    assert_eq!(inside.stdout, "tried\n", "{}", inside.stderr);
}
