//! Privileges, namespaces, devices, settings of the kernel.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::backend::{is_as_good, is_landlock};
use crate::op;
use crate::probe::{Attack, address, c, in_child, outcome, syscall, tell, tell_call};
use crate::world::{World, not_checked};

pub(crate) const ATTACKS: &[Attack] = &[
    ("namespaces", namespaces),
    ("mounts", mounts),
    ("refused-calls", refused_calls),
    ("setuid", setuid),
    ("setuid-bit", setuid_bit),
];

#[test]
fn no_privilege_is_left() {
    let world = World::new();
    let output = world.jail([]).run(&["cat", "/proc/self/status"]);
    let field = |name: &str| {
        let line = output
            .stdout
            .lines()
            .find(|line| line.starts_with(name))
            .expect(name);
        line.split_whitespace()
            .skip(1)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(field("NoNewPrivs:"), "1");
    assert_eq!(field("Seccomp:"), "2");
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    let uid = nix::unistd::getuid();
    assert_eq!(field("Uid:"), format!("{uid} {uid} {uid} {uid}"));
    let maps = world.jail([]).operations(&[
        op!("read", "/proc/self/uid_map"),
        op!("read", "/proc/self/setgroups"),
    ]);
    let map: Vec<&str> = maps[0]
        .trim_start_matches("ok:")
        .trim_end_matches("\\n")
        .split_whitespace()
        .collect();
    if is_landlock() {
        // The host's own user namespace.
        let outside = fs::read_to_string("/proc/self/uid_map").unwrap();
        let outside: Vec<&str> = outside.split_whitespace().collect();
        return assert_eq!(map, outside);
    }
    // One id, the caller's: what it is called in the namespace around does not matter.
    assert_eq!(
        (map[0], map[2], map.len()),
        (uid.to_string().as_str(), "1", 3)
    );
    assert_eq!(maps[1], "ok:deny\\n");
}

/// Runs a program that is setuid root, and looks at who it is while it waits for a password.
fn setuid(words: &[String]) {
    // SAFETY: a program that ends early is no reason to end, too.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    for program in words {
        let child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = child else { continue };
        let mut seen = BTreeSet::new();
        for _ in 0..40 {
            let status =
                fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
            let uids = status
                .lines()
                .find(|line| line.starts_with("Uid:"))
                .unwrap_or_default();
            seen.extend(uids.split_whitespace().nth(2).map(str::to_owned));
            if seen.len() > 1 || child.try_wait().is_ok_and(|end| end.is_some()) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let _ = child.stdin.take().map(|mut pipe| pipe.write_all(b"\n"));
        let _ = child.kill();
        let _ = child.wait();
        tell(program, seen.into_iter().collect::<Vec<_>>().join(","));
    }
}

#[test]
fn setuid_programs_gain_nothing() {
    let world = World::new();
    let programs: Vec<&str> = [
        "/usr/bin/su",
        "/bin/su",
        "/usr/bin/passwd",
        "/usr/bin/chsh",
        "/usr/bin/sudo",
        "/usr/bin/newgrp",
        "/usr/bin/mount",
    ]
    .into_iter()
    .filter(|path| {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        fs::metadata(path)
            .is_ok_and(|meta| meta.uid() == 0 && meta.permissions().mode() & 0o4000 != 0)
    })
    .collect();
    if programs.is_empty() {
        not_checked("setuid programs", "this host has none");
        return;
    }
    let plain = world.outside().attack("setuid", &programs);
    assert!(
        plain
            .all()
            .any(|(_, uids)| uids.split(',').any(|uid| uid == "0")),
        "{plain:?}"
    );
    let me = nix::unistd::getuid().to_string();
    let report = world.jail([]).attack("setuid", &programs);
    for (program, uids) in report.all() {
        assert_eq!(uids, me, "{program}");
    }
}

fn namespaces(_: &[String]) {
    for (name, flag) in [
        ("user", libc::CLONE_NEWUSER),
        ("mount", libc::CLONE_NEWNS),
        ("pid", libc::CLONE_NEWPID),
        ("net", libc::CLONE_NEWNET),
        ("ipc", libc::CLONE_NEWIPC),
        ("uts", libc::CLONE_NEWUTS),
        ("cgroup", libc::CLONE_NEWCGROUP),
        ("time", 0x80),
    ] {
        in_child(|| {
            // SAFETY: changes the namespaces of this child.
            tell_call(
                &format!("unshare {name}"),
                unsafe { libc::unshare(flag | libc::CLONE_NEWUSER) }.into(),
            );
        });
        in_child(|| {
            // SAFETY: as above.
            tell_call(
                &format!("unshare {name} alone"),
                unsafe { libc::unshare(flag) }.into(),
            );
        });
        let made = syscall(
            libc::SYS_clone,
            &[
                (flag | libc::CLONE_NEWUSER | libc::SIGCHLD) as u64,
                0,
                0,
                0,
                0,
            ],
        );
        if made == 0 {
            // SAFETY: the new process ends at once.
            unsafe { libc::_exit(0) };
        }
        tell(&format!("clone {name}"), outcome(made.min(0)));
    }
    for name in ["user", "mnt", "pid", "net"] {
        if let Ok(file) = fs::File::open(format!("/proc/self/ns/{name}")) {
            use std::os::fd::AsRawFd;
            let result = syscall(libc::SYS_setns, &[file.as_raw_fd() as u64, 0]);
            tell_call(&format!("setns {name}"), result);
        }
    }
    tell_call("clone3", syscall(libc::SYS_clone3, &[0, 0]));
}

#[test]
fn no_namespace_can_be_made_or_entered() {
    let world = World::new();
    let report = world.jail([]).attack::<&str>("namespaces", &[]);
    for (what, answer) in report.all() {
        assert!(["EPERM", "ENOSYS"].contains(&answer), "{what}: {answer}");
    }
    let plain = world.outside().attack::<&str>("namespaces", &[]);
    assert_eq!(plain.get("unshare user"), "ok", "{plain:?}");
}

/// Every way to change what is mounted.
fn mounts(words: &[String]) {
    let read_only = c(&words[0]);
    let (tmpfs, root) = (c"tmpfs", c"/");
    let p = |text: &std::ffi::CStr| address(text);
    const REMOUNT: u64 = libc::MS_REMOUNT | libc::MS_BIND;
    let at = libc::AT_FDCWD as u64;
    let calls: &[(&str, i64, &[u64])] = &[
        (
            "remount",
            libc::SYS_mount,
            &[0, p(&read_only), 0, REMOUNT, 0],
        ),
        ("remount /", libc::SYS_mount, &[0, p(root), 0, REMOUNT, 0]),
        (
            "mount",
            libc::SYS_mount,
            &[p(tmpfs), p(c"/tmp"), p(tmpfs), 0, 0],
        ),
        (
            "cgroup",
            libc::SYS_mount,
            &[p(c"x"), p(c"/tmp"), p(c"cgroup2"), 0, 0],
        ),
        (
            "sysfs",
            libc::SYS_mount,
            &[p(c"x"), p(c"/tmp"), p(c"sysfs"), 0, 0],
        ),
        (
            "bind",
            libc::SYS_mount,
            &[p(root), p(c"/tmp"), 0, libc::MS_BIND, 0],
        ),
        (
            "umount",
            libc::SYS_umount2,
            &[p(&read_only), libc::MNT_DETACH as u64],
        ),
        (
            "umount home",
            libc::SYS_umount2,
            &[p(c"/tmp"), libc::MNT_DETACH as u64],
        ),
        ("pivot", libc::SYS_pivot_root, &[p(c"/tmp"), p(c"/tmp")]),
        ("chroot", libc::SYS_chroot, &[p(c"/tmp")]),
        ("fsopen", libc::SYS_fsopen, &[p(tmpfs), 0]),
        ("fspick", libc::SYS_fspick, &[at, p(root), 0]),
        ("open_tree", libc::SYS_open_tree, &[at, p(root), 1]),
        (
            "mount_setattr",
            libc::SYS_mount_setattr,
            &[at, p(&read_only), 0, 0, 0],
        ),
        (
            "move_mount",
            libc::SYS_move_mount,
            &[at, p(&read_only), at, p(c"/tmp"), 0],
        ),
    ];
    for (name, number, arguments) in calls {
        tell_call(name, syscall(*number, arguments));
    }
}

#[test]
fn nothing_can_be_mounted_or_uncovered() {
    let world = World::new();
    let data = world.home("data");
    world.put(&data.join("file"), "data\n");
    let report = world
        .jail([])
        .option("--read", &data)
        .attack("mounts", &[&data]);
    for (what, answer) in report.all() {
        assert!(["EPERM", "ENOSYS"].contains(&answer), "{what}: {answer}");
    }
}

fn refused_calls(_: &[String]) {
    let calls: &[(&str, i64, &[u64])] = &[
        ("io_uring_setup", libc::SYS_io_uring_setup, &[1, 0]),
        ("io_uring_enter", libc::SYS_io_uring_enter, &[0, 0, 0, 0]),
        ("userfaultfd", libc::SYS_userfaultfd, &[1]),
        ("bpf", libc::SYS_bpf, &[0, 0, 0]),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, &[0, 0, 0]),
        ("kcmp", libc::SYS_kcmp, &[1, 1, 0, 0, 0]),
        ("quotactl", libc::SYS_quotactl, &[0, 0, 0, 0]),
        ("syslog", libc::SYS_syslog, &[3, 0, 0]),
        ("reboot", libc::SYS_reboot, &[0, 0, 0, 0]),
        ("keyctl", libc::SYS_keyctl, &[0, 0]),
        ("vsock", libc::SYS_socket, &[40, 1, 0]),
        ("packet", libc::SYS_socket, &[17, 3, 0]),
        ("alg", libc::SYS_socket, &[38, 5, 0]),
    ];
    for (name, number, arguments) in calls {
        tell_call(name, syscall(*number, arguments));
    }
    #[cfg(target_arch = "x86_64")]
    {
        const X32: i64 = 0x4000_0000;
        tell_call("x32 getpid", syscall(X32 | libc::SYS_getpid, &[]));
        const I386_GETPID: i64 = 20;
        let mut answer = I386_GETPID;
        // SAFETY: the 32-bit entry of the kernel; getpid touches no memory. The kernel leaves
        // r8 to r11 undefined there.
        unsafe {
            std::arch::asm!("int 0x80", inout("rax") answer, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
        }
        tell(
            "i386 getpid",
            if answer == -i64::from(libc::ENOSYS) {
                "ENOSYS".to_owned()
            } else {
                answer.to_string()
            },
        );
    }
    // SAFETY: names of this jail's own UTS namespace.
    tell_call(
        "sethostname",
        unsafe { libc::sethostname(c"x".as_ptr(), 1) }.into(),
    );
    tell_call("clock_settime", syscall(libc::SYS_clock_settime, &[0, 0]));
}

#[test]
fn calls_past_the_filter_are_refused() {
    let world = World::new();
    let report = world.jail([]).attack::<&str>("refused-calls", &[]);
    for (what, answer) in report.all() {
        assert!(
            ["EPERM", "ENOSYS", "EAFNOSUPPORT"].contains(&answer),
            "{what}: {answer}"
        );
    }
}

#[test]
fn settings_of_the_kernel_are_read_only() {
    let world = World::new();
    let files = [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/sysrq",
        "/proc/sys/vm/drop_caches",
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sys/user/max_user_namespaces",
        "/proc/sysrq-trigger",
        "/proc/irq/default_smp_affinity",
        "/proc/timer_list",
        "/proc/kcore",
        "/sys/power/state",
        "/sys/kernel/uevent_helper",
        "/sys/devices/system/cpu/cpu0/online",
        "/sys/fs/cgroup/cgroup.procs",
        "/sys/kernel/security/lsm",
        "/sys/kernel/debug",
        "/sys/kernel/tracing",
        "/sys/fs/bpf",
        "/sys/module/kernel/parameters/panic",
    ];
    for options in [
        ["--set", "jail.nested=false"],
        ["--set", "jail.nested=true"],
        ["--set", "network.mode=isolated"],
    ] {
        let writes: Vec<String> = files.iter().map(|file| op!("write", file)).collect();
        for (file, answer) in files.iter().zip(world.jail(options).operations(&writes)) {
            let refused = ["EROFS", "EACCES", "ENOENT", "EPERM", "EISDIR"];
            assert!(
                refused.contains(&answer.as_str()),
                "{file}: {answer} ({options:?})"
            );
        }
    }
    // Settings of the jail's own IPC namespace may be its own; the host keeps its values.
    let own = "/proc/sys/kernel/shmmni";
    let before = fs::read_to_string(own).unwrap();
    world.jail([]).operation(op!("put", own, "77"));
    assert_eq!(fs::read_to_string(own).unwrap(), before);
    let answers = world.jail([]).operations(&[
        op!("list", "/sys/fs"),
        op!("list", "/sys/kernel/debug"),
        op!("read", "/proc/self/cgroup"),
    ]);
    for answer in &answers[..2] {
        assert!(is_as_good(answer, "ENOENT"), "{answers:?}");
    }
    if world.lacks("cgroup", "names of the host's cgroups") {
        return;
    }
    for line in answers[2]
        .trim_start_matches("ok:")
        .split("\\n")
        .filter(|line| !line.is_empty())
    {
        assert!(line.ends_with(":/"), "a cgroup of the host by name: {line}");
    }
}

/// Makes a program that runs as the user for whoever starts it, in every way to give a mode.
fn setuid_bit(words: &[String]) {
    const AT: u64 = libc::AT_FDCWD as u64;
    const SYS_FCHMODAT2: i64 = 452;
    let (file, new) = (c(&words[0]), c(&format!("{}-new", words[0])));
    let (old, fresh) = (address(file.as_c_str()), address(new.as_c_str()));
    let opened = fs::File::open(&words[0]).expect("the file");
    let fd = std::os::fd::AsRawFd::as_raw_fd(&opened) as u64;
    for bits in [0o4755u64, 0o2755, 0o6777] {
        let create = (libc::O_CREAT | libc::O_WRONLY) as u64;
        // struct open_how of openat2(2): flags, mode, resolve.
        let how = [create, bits, 0];
        let calls: &[(&str, i64, &[u64])] = &[
            #[cfg(target_arch = "x86_64")]
            ("chmod", libc::SYS_chmod, &[old, bits]),
            #[cfg(target_arch = "x86_64")]
            ("creat", libc::SYS_creat, &[fresh, bits]),
            #[cfg(target_arch = "x86_64")]
            ("open", libc::SYS_open, &[fresh, create, bits]),
            ("fchmod", libc::SYS_fchmod, &[fd, bits]),
            ("fchmodat", libc::SYS_fchmodat, &[AT, old, bits]),
            ("fchmodat2", SYS_FCHMODAT2, &[AT, old, bits, 0]),
            ("openat", libc::SYS_openat, &[AT, fresh, create, bits]),
            (
                "openat2",
                libc::SYS_openat2,
                &[AT, fresh, address(&how), 24],
            ),
            (
                "mknodat",
                libc::SYS_mknodat,
                &[AT, fresh, bits | 0o100_000, 0],
            ),
        ];
        for (name, number, arguments) in calls {
            syscall(*number, arguments);
            for path in [&words[0], &format!("{}-new", words[0])] {
                use std::os::unix::fs::PermissionsExt;
                let mode = fs::metadata(path).map_or(0, |meta| meta.permissions().mode());
                let key = format!("{name} {bits:o} {}", path == &words[0]);
                tell(&key, if mode & 0o6000 == 0 { "no" } else { "set" });
            }
            let _ = fs::remove_file(format!("{}-new", words[0]));
            let _ = fs::set_permissions(
                &words[0],
                std::os::unix::fs::PermissionsExt::from_mode(0o755),
            );
        }
    }
}

/// Another user of the node who starts such a program would be the user, outside of every jail.
#[test]
fn no_file_gets_a_setuid_bit() {
    let world = World::new();
    let file = world.project("program");
    world.put(&file, "x");
    let report = world.jail([]).attack("setuid-bit", &[&file]);
    for (what, answer) in report.all() {
        assert_eq!(answer, "no", "{what}");
    }
    let plain = world.outside().attack("setuid-bit", &[&file]);
    assert_eq!(plain.get("fchmod 4755 true"), "set");
}
