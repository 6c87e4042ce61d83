//! Paths that change while a call is decided on.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::world::*;

/// So often each race is run.
const TRIES: usize = 3000;

/// Does one thing again and again while another is tried [`TRIES`] times, and until the first has had
/// its turns; how often the other succeeded.
fn race(disturb: impl Fn() + Send + Sync, attempt: impl Fn() -> bool) -> usize {
    tried(disturb, attempt, 0)
}

/// The same with something that succeeds at one of the two ends: tried until it has, since a busy machine may
/// let every try meet the other.
fn wins(disturb: impl Fn() + Send + Sync, attempt: impl Fn() -> bool) -> bool {
    tried(disturb, attempt, 1) > 0
}

fn tried(disturb: impl Fn() + Send + Sync, attempt: impl Fn() -> bool, enough: usize) -> usize {
    const TURNS: usize = 300;
    let over = AtomicBool::new(false);
    let turns = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                disturb();
                turns.fetch_add(1, Ordering::Relaxed);
            }
        });
        let begin = std::time::Instant::now();
        let mut done = 0;
        let mut tries = 0;
        while tries < TRIES || turns.load(Ordering::Relaxed) < TURNS || done < enough {
            done += usize::from(attempt());
            tries += 1;
            // Two threads in step with each other, each waiting for the same filter, would meet the same end every time.
            for _ in 0..(tries * 37) % 1000 {
                std::hint::spin_loop();
            }
            if begin.elapsed() > crate::jail::PATIENCE {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
        assert!(turns.load(Ordering::Relaxed) > 20, "there was no race");
        done
    })
}

fn exchange(one: &str, other: &str) {
    let _ = rename2(one, other, libc::RENAME_EXCHANGE);
}

#[test]
fn a_link_that_flips_gives_only_what_either_end_gives() {
    let world = World::new();
    world.jailed(|| {
        fs::create_dir("dir").expect("mkdir");
        fs::write("dir/config", "").expect("write");
        symlink("dir", "one").expect("symlink");
        symlink(".git", "other").expect("symlink");
        let flip = || exchange("one", "other");
        let write = libc::O_WRONLY | libc::O_TRUNC;
        assert!(wins(flip, || open("one/config", write).is_ok()));
        assert!(wins(flip, || truncate("one/config", 0).is_ok()));
        assert!(wins(flip, || chmod("one/config", 0o666).is_ok()));
        assert!(wins(flip, || touch("one/config").is_ok()));
        let create = libc::O_CREAT | libc::O_RDWR | libc::O_EXCL;
        fs::create_dir("dir/hooks").expect("mkdir");
        assert!(wins(flip, || {
            let made = open("one/hooks/x", create).is_ok();
            made && fs::remove_file("dir/hooks/x").is_ok()
        }));
        fs::write("evil", "evil").expect("write");
        race(flip, || {
            fs::rename("evil", "one/config").is_ok() && fs::write("evil", "evil").is_ok()
        });
        race(flip, || {
            let done = fs::hard_link("one/config", "stolen").is_ok();
            let _ = fs::write("stolen", "evil");
            let _ = fs::remove_file("stolen");
            done
        });
        race(flip, || {
            fs::remove_file("one/config").is_ok() && fs::write("dir/config", "").is_ok()
        });
    });
    world.assert_closed();
}

#[test]
fn a_directory_that_becomes_a_link_leads_no_further() {
    let world = World::new();
    world.jailed(|| {
        fs::create_dir_all("dir/hooks").expect("mkdir");
        fs::write("dir/config", "").expect("write");
        symlink(".git", "link").expect("symlink");
        let flip = || exchange("dir", "link");
        let write = libc::O_WRONLY | libc::O_TRUNC;
        assert!(wins(flip, || open("dir/config", write).is_ok()));
        assert!(wins(flip, || chmod("dir/config", 0o666).is_ok()));
        assert!(wins(flip, || truncate("dir/config", 0).is_ok()));
        let create = libc::O_CREAT | libc::O_RDWR | libc::O_EXCL;
        assert!(wins(flip, || {
            let made = open("dir/hooks/x", create).is_ok();
            let _ = fs::remove_file("dir/hooks/x");
            made
        }));
    });
    world.assert_closed();
}

#[test]
fn a_last_link_that_flips_gives_only_what_either_end_gives() {
    let world = World::new();
    world.jailed(|| {
        fs::write("mine", "").expect("write");
        symlink("mine", "one").expect("symlink");
        symlink("hidden", "other").expect("symlink");
        symlink("../out/file", "third").expect("symlink");
        let flip = || {
            exchange("one", "other");
            exchange("one", "third");
        };
        let read = |path| fs::read_to_string(path).is_ok_and(|text| text == SECRET);
        assert_eq!(race(flip, || read("one")), 0);
        let write = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
        race(flip, || open("one", write).is_ok());
        race(flip, || chmod("one", 0o666).is_ok());
        race(flip, || mark("one").is_ok());
        race(flip, || {
            let done = linkat(libc::AT_FDCWD, "one", "stolen", libc::AT_SYMLINK_FOLLOW).is_ok();
            let stolen = read("stolen");
            let _ = fs::write("stolen", "");
            let _ = fs::remove_file("stolen");
            assert!(!stolen, "the secret has another name");
            done
        });
        // The name is a file and a link in turn.
        fs::write("plain", "").expect("write");
        let flip = || exchange("plain", "other");
        race(flip, || open("plain", write | libc::O_NOFOLLOW).is_ok());
        assert_eq!(race(flip, || read("plain")), 0);
    });
    world.assert_closed();
}

#[test]
fn a_directory_that_moves_leads_no_further() {
    let world = World::new();
    world.jailed(|| {
        fs::create_dir("x").expect("mkdir");
        fs::write("config", "").expect("write");
        fs::create_dir("hooks").expect("mkdir");
        let there_and_back = || {
            let _ = fs::rename("x", ".git/x");
            let _ = fs::rename(".git/x", "x");
        };
        let held = open("x", libc::O_PATH | libc::O_DIRECTORY).expect("hold");
        let write = libc::O_WRONLY | libc::O_TRUNC;
        let config = || openat(held.as_raw_fd(), "../config", write, 0).is_ok();
        assert!(wins(there_and_back, config));
        let create = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        let hook = || {
            let made = openat(held.as_raw_fd(), "../hooks/x", create, 0o600).is_ok();
            let _ = fs::remove_file("hooks/x");
            made
        };
        assert!(wins(there_and_back, hook));
        race(there_and_back, || {
            fs::write("evil", "evil").is_ok() && fs::rename("evil", "x/../config").is_ok()
        });
        // The directory below one that the kernel lets be renamed.
        fs::create_dir("src/y").expect("mkdir");
        let out_and_in = || {
            let _ = fs::rename("src/y", "y");
            let _ = fs::rename("y", ".git/y");
            let _ = fs::rename(".git/y", "src/y");
        };
        let held = open("src/y", libc::O_PATH | libc::O_DIRECTORY).expect("hold");
        race(out_and_in, || {
            openat(held.as_raw_fd(), "../config", write, 0).is_ok()
        });
    });
    world.assert_closed();
}

#[test]
fn a_path_that_changes_in_memory_is_read_once() {
    let world = World::new();
    world.jailed(|| {
        fs::write("mine/../abc".trim_start_matches("mine/../"), "").expect("write");
        let fine = b"././././abc\0";
        let closed = b".git/config\0";
        let memory = fine.map(std::sync::atomic::AtomicU8::new);
        let address = memory.as_ptr().cast::<libc::c_char>();
        let flip = || {
            for text in [closed, fine] {
                for (place, &byte) in memory.iter().zip(text) {
                    place.store(byte, Ordering::Relaxed);
                }
            }
        };
        // SAFETY: the calls read bytes that stay where they are and have a 0 at the end.
        unsafe {
            let write = libc::O_RDWR | libc::O_TRUNC;
            assert!(wins(flip, || {
                let fd = libc::open(address, write);
                fd >= 0 && libc::close(fd) == 0
            }));
            assert!(wins(flip, || libc::chmod(address, 0o666) == 0));
            assert!(wins(flip, || libc::truncate(address, 0) == 0));
            race(flip, || {
                libc::unlink(address) == 0 && fs::write("abc", "").is_ok()
            });
        }
    });
    world.assert_closed();
}

#[test]
fn descriptors_that_change_are_taken_once() {
    let world = World::new();
    world.jailed(|| {
        fs::create_dir("dir").expect("mkdir");
        fs::write("dir/config", "").expect("write");
        let [one, other] =
            ["dir", ".git"].map(|path| open(path, libc::O_PATH | libc::O_DIRECTORY).expect("hold"));
        let used = one.try_clone().expect("dup");
        let number = used.as_raw_fd();
        // SAFETY: the calls touch no memory; the number stays this test's.
        let flip = || unsafe {
            libc::dup3(other.as_raw_fd(), number, libc::O_CLOEXEC);
            libc::dup3(one.as_raw_fd(), number, libc::O_CLOEXEC);
        };
        let write = libc::O_WRONLY | libc::O_TRUNC;
        assert!(wins(flip, || openat(number, "config", write, 0).is_ok()));
        let [mine, closed] =
            ["dir/config", ".git/config"].map(|path| open(path, libc::O_RDONLY).expect("open"));
        // SAFETY: as above.
        let flip = || unsafe {
            libc::dup3(closed.as_raw_fd(), number, libc::O_CLOEXEC);
            libc::dup3(mine.as_raw_fd(), number, libc::O_CLOEXEC);
        };
        // SAFETY: the call touches no memory.
        assert!(wins(flip, || unsafe { libc::fchmod(number, 0o666) } == 0));
        let reopen = || open(format!("/proc/self/fd/{number}"), write).is_ok();
        assert!(wins(flip, reopen));
    });
    world.assert_closed();
}
