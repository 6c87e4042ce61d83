//! System V and POSIX interprocess communication, keyrings, the user database.

use crate::backend::{PROCESSES, is_landlock};
use crate::probe::{Attack, c, outcome, syscall, tell, tell_call};
use crate::world::{World, not_checked};

pub(crate) const ATTACKS: &[Attack] = &[("ipc", ipc), ("keyrings", keyrings)];

/// Looks for a shared memory segment by its key and for a message queue by its name.
fn ipc(words: &[String]) {
    let key: i32 = words[0].parse().expect("a key");
    // SAFETY: asks for an existing segment; makes none.
    tell_call("segment", unsafe { libc::shmget(key, 0, 0) }.into());
    let queue = c(&words[1]);
    // SAFETY: opens an existing queue; makes none.
    tell_call(
        "queue",
        unsafe { libc::mq_open(queue.as_ptr(), libc::O_RDONLY) }.into(),
    );
    tell(
        "list",
        crate::operations::carry_out(&["read", "/proc/sysvipc/shm"]),
    );
}

#[test]
fn the_hosts_ipc_objects_are_invisible() {
    let world = World::new();
    let key = 0x0c0f_0000 | i32::try_from(std::process::id() & 0xffff).unwrap();
    let queue = format!("/confine-{}", std::process::id());
    let name = c(&queue);
    // SAFETY: makes a segment and a queue that are removed below.
    let (segment, made) = unsafe {
        (
            libc::shmget(key, 4096, libc::IPC_CREAT | 0o600),
            libc::mq_open(
                name.as_ptr(),
                libc::O_CREAT | libc::O_RDWR,
                0o600,
                std::ptr::null::<libc::mq_attr>(),
            ),
        )
    };
    let words = [key.to_string(), queue];
    let plain = world.outside().attack("ipc", &words);
    let report = world.jail([]).attack("ipc", &words);
    // SAFETY: removes what was made above.
    unsafe {
        libc::shmctl(segment, libc::IPC_RMID, std::ptr::null_mut());
        libc::mq_unlink(name.as_ptr());
        libc::mq_close(made);
    }
    assert!(segment >= 0, "shmget");
    assert_eq!(plain.get("segment"), "ok");
    // In a namespace of its own there is none; Landlock has none, and every such call is refused.
    let none = if is_landlock() { "ENOSYS" } else { "ENOENT" };
    assert_eq!(report.get("segment"), none);
    if !world.lacks(PROCESSES, "the list of the host's IPC objects") {
        assert!(!report.get("list").contains(&key.to_string()), "{report:?}");
    }
    if plain.get("queue") == "ok" {
        assert_eq!(report.get("queue"), none);
    } else {
        not_checked("POSIX message queues of the host", "this kernel has none");
    }
}

fn keyrings(_: &[String]) {
    const SESSION_KEYRING: u64 = -3i64 as u64;
    const USER_KEYRING: u64 = -4i64 as u64;
    const GET_ID: u64 = 0;
    for (name, ring) in [("session", SESSION_KEYRING), ("user", USER_KEYRING)] {
        tell(
            name,
            outcome(syscall(libc::SYS_keyctl, &[GET_ID, ring, 1]).min(0)),
        );
    }
    tell_call(
        "add_key",
        syscall(libc::SYS_add_key, &[0, 0, 0, 0, SESSION_KEYRING]),
    );
    tell_call("request_key", syscall(libc::SYS_request_key, &[0, 0, 0, 0]));
}

#[test]
fn keyrings_are_not_there() {
    let world = World::new();
    let report = world.jail([]).attack::<&str>("keyrings", &[]);
    for (what, answer) in report.all() {
        assert_eq!(answer, "ENOSYS", "{what}");
    }
    let plain = world.outside().attack::<&str>("keyrings", &[]);
    if plain.get("user") == "ENOSYS" {
        not_checked("keyrings", "this kernel has none");
    }
}

#[test]
fn the_user_database_names_no_other_user() {
    let world = World::new();
    if world.lacks("users", "other users in the user database") {
        return;
    }
    let me = nix::unistd::getuid().to_string();
    let users = |output: &str| -> Vec<(String, String)> {
        output
            .lines()
            .filter_map(|line| {
                let mut fields = line.split(':');
                Some((fields.next()?.to_owned(), fields.nth(1)?.to_owned()))
            })
            .collect()
    };
    let ordinary = |id: &str| {
        id.parse::<u32>()
            .is_ok_and(|id| (1000..65534).contains(&id))
    };
    let plain = world.outside().run(&["getent", "passwd"]);
    let others: Vec<String> = users(&plain.stdout)
        .into_iter()
        .filter(|(_, id)| ordinary(id) && *id != me)
        .map(|(name, _)| name)
        .collect();
    for database in ["passwd", "group"] {
        let inside = world.jail([]).run(&["getent", database]);
        assert_eq!(inside.code(), 0, "{inside:?}");
        if database == "passwd" {
            for (name, id) in users(&inside.stdout) {
                assert!(!ordinary(&id) || id == me, "{name} ({id})");
            }
            assert!(
                users(&inside.stdout).iter().any(|(_, id)| *id == me),
                "not the caller: {inside:?}"
            );
        }
        for other in &others {
            assert!(
                !inside
                    .stdout
                    .lines()
                    .any(|line| line.split([':', ',']).any(|word| word == other)),
                "{database}: {other}"
            );
        }
    }
    if others.is_empty() {
        not_checked(
            "other users in the user database",
            "this host has no others",
        );
    }
    // Copies of the databases that tools keep.
    for file in [
        "passwd-", "group-", "subuid", "subgid", "subuid-", "subgid-",
    ] {
        let inside = world.jail([]).run(&["cat", &format!("/etc/{file}")]);
        for other in &others {
            assert!(
                !inside
                    .stdout
                    .split([':', ',', '\n'])
                    .any(|word| word == other),
                "/etc/{file}: {other}"
            );
        }
    }
    let homes = world.jail([]).run(&["ls", "/home"]);
    for other in &others {
        assert!(!homes.stdout.lines().any(|line| line == other), "{homes:?}");
    }
}
