//! What one jail may take: processes, memory that looks like files.

use std::fs;
use std::io::Write;

use crate::probe::{Attack, tell};
use crate::world::World;

pub(crate) const ATTACKS: &[Attack] = &[("fork-bomb", fork_bomb), ("fill", fill)];

/// More than any limit here; a jail without one would make this many.
const MOST_FORKS: usize = 400;

/// Makes processes until there are no more to be had.
fn fork_bomb(_: &[String]) {
    let mut children = Vec::new();
    let refused = loop {
        if children.len() == MOST_FORKS {
            break "nothing".to_owned();
        }
        // SAFETY: a probe has one thread; the child only waits.
        match unsafe { libc::fork() } {
            0 => loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            },
            -1 => break format!("{:?}", nix::errno::Errno::last()),
            child => children.push(child),
        }
    };
    tell("made", children.len());
    tell("refused", refused);
    for child in children {
        // SAFETY: the children just made.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }
}

#[test]
fn a_fork_bomb_is_bounded() {
    const LIMIT: usize = 60;
    let world = World::new();
    let plain = world.outside().attack::<&str>("fork-bomb", &[]);
    assert_eq!(plain.get("refused"), "nothing", "{plain:?}");
    let setting = format!("jail.max_processes={LIMIT}");
    for nested in ["jail.nested=false", "jail.nested=true"] {
        let report = world
            .jail(["--set", &setting, "--set", nested])
            .attack::<&str>("fork-bomb", &[]);
        assert_eq!(report.get("refused"), "EAGAIN", "{report:?}");
        let made: usize = report.get("made").parse().unwrap();
        assert!(made < LIMIT, "{made} processes");
    }
}

/// Writes until there is no room; the most that is tried is far above every limit of the test.
fn fill(words: &[String]) {
    const BLOCK: usize = 1 << 20;
    const MOST: usize = 128;
    let block = vec![1u8; BLOCK];
    for directory in words {
        let path = format!("{directory}/fill");
        let mut written = 0;
        let mut refused = "nothing".to_owned();
        match fs::File::create(&path) {
            Err(error) => refused = crate::probe::name(&error),
            Ok(mut file) => {
                for _ in 0..MOST {
                    match file.write_all(&block) {
                        Ok(()) => written += 1,
                        Err(error) => {
                            refused = crate::probe::name(&error);
                            break;
                        }
                    }
                }
            }
        }
        let _ = fs::remove_file(&path);
        tell(directory, format!("{written} {refused}"));
    }
}

#[test]
fn file_systems_in_memory_are_bounded() {
    let world = World::new();
    let home = crate::operations::text(&world.home(""));
    let run = format!("/run/user/{}", nix::unistd::getuid());
    let places = [
        "/tmp", "/var/tmp", "/dev/shm", &home, &run, "/dev", "/", "/run", "/dev/pts", "/home",
    ];
    let sizes = ["jail.tmp_size=3M", "jail.shm_size=2M", "jail.home_size=4M"];
    let mut jail = world.jail(["--set", sizes[0], "--set", sizes[1], "--set", sizes[2]]);
    if crate::backend::is_landlock() {
        jail.command.args(["--set", "landlock.sizes=degraded"]);
    }
    let report = jail.attack("fill", &places);
    let mut closed = vec!["/", "/dev", "/dev/pts", "/home"];
    if crate::backend::is_landlock() {
        closed.extend(["/tmp", "/var/tmp", &home, &run, "/run"]);
    }
    for place in closed {
        let (written, refused) = report.get(place).split_once(' ').unwrap();
        assert!(
            written == "0" && ["EROFS", "EACCES", "EPERM", "ENOENT"].contains(&refused),
            "{place}: {written} MiB, {refused}"
        );
    }
    if world.lacks("sizes", "limits of what is written to private directories") {
        return;
    }
    for (place, most) in [
        ("/tmp", 3),
        ("/var/tmp", 3),
        ("/dev/shm", 2),
        (&home, 4),
        (&run, 64),
        ("/run", 64),
    ] {
        let (written, refused) = report.get(place).split_once(' ').unwrap();
        let written: u32 = written.parse().unwrap();
        assert!(
            written <= most && refused == "ENOSPC",
            "{place}: {written} MiB, {refused}"
        );
    }
}
