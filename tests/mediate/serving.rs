//! Calls side by side, callers that are gone, a mediator that is gone.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use agent_sandbox::sys::process::{Change, wait};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
};
use nix::unistd::{Pid, pipe};

use crate::jail::{
    PATIENCE, call, child, hear, in_jail, in_launcher, possible, runs, say, start, until,
    until_it_waits,
};

/// A socket at which one waits to be accepted, and the next waits for that.
fn crowded(address: &UnixAddr) -> (impl AsRawFd, impl AsRawFd) {
    let listening = stream();
    bind(listening.as_raw_fd(), address).expect("bind");
    listen(&listening, Backlog::new(0).expect("a backlog")).expect("listen");
    let first = stream();
    connect(first.as_raw_fd(), address).expect("the first");
    (listening, first)
}

fn stream() -> std::os::fd::OwnedFd {
    socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::empty(),
        None,
    )
    .expect("a socket")
}

/// The own soft limit of files, by a call that is handed over.
fn asks() -> Result<i64, i32> {
    call(
        libc::SYS_prlimit64,
        [0, u64::from(libc::RLIMIT_NOFILE), 0, 0],
    )
}

#[test]
fn what_is_not_handed_over_by_the_filter_gets_enosys() {
    in_jail(&[libc::SYS_getppid, libc::SYS_prlimit64], || {
        assert_eq!(call(libc::SYS_getppid, [0; 4]), Err(libc::ENOSYS));
        assert_eq!(asks(), Ok(0));
    });
}

/// Callers that wait for another neither hold others up nor each other.
#[test]
fn calls_that_wait_do_not_keep_others_waiting() {
    const WAITING: usize = 40;
    let directory = tempfile::tempdir().expect("a directory");
    let address = UnixAddr::new(&directory.path().join("s")).expect("an address");
    in_jail(&[libc::SYS_connect, libc::SYS_prlimit64], || {
        let (listening, first) = crowded(&address);
        let (reader, writer) = pipe().expect("a pipe");
        let waiting: Vec<Pid> = (0..WAITING)
            .map(|_| {
                child(|| {
                    let socket = stream();
                    say(&writer, b"w");
                    connect(socket.as_raw_fd(), &address).expect("connected in the end");
                    say(&writer, b"c");
                })
            })
            .collect();
        assert_eq!(hear(&reader), [b'w'; WAITING]);
        let begin = Instant::now();
        for _ in 0..100 {
            assert_eq!(asks(), Ok(0));
        }
        assert!(begin.elapsed() < PATIENCE, "held up");
        assert!(waiting.iter().all(|&pid| runs(pid)));
        // Each that is accepted makes room for the next.
        let mut accepted = Vec::new();
        for _ in 0..=WAITING {
            accepted.push(nix::sys::socket::accept(listening.as_raw_fd()).expect("accept"));
        }
        assert_eq!(hear(&reader), [b'c'; WAITING]);
        for pid in waiting {
            assert_eq!(wait(pid).expect("wait"), Change::Exited(0));
        }
        drop(first);
    });
}

/// Those who are killed while their call waits free their threads: more come than there are threads.
#[test]
fn callers_that_are_killed_leave_no_thread_behind() {
    const TOGETHER: usize = 50;
    let directory = tempfile::tempdir().expect("a directory");
    let address = UnixAddr::new(&directory.path().join("s")).expect("an address");
    in_jail(&[libc::SYS_connect, libc::SYS_prlimit64], || {
        let (_listening, _first) = crowded(&address);
        for _ in 0..4 {
            let (reader, writer) = pipe().expect("a pipe");
            let waiting: Vec<Pid> = (0..TOGETHER)
                .map(|_| {
                    child(|| {
                        let socket = stream();
                        say(&writer, b"w");
                        let _ = connect(socket.as_raw_fd(), &address);
                        say(&writer, b"never");
                    })
                })
                .collect();
            assert_eq!(hear(&reader), [b'w'; TOGETHER]);
            waiting.iter().copied().for_each(until_it_waits);
            for pid in waiting {
                kill(pid, Signal::SIGKILL).expect("kill");
                assert_eq!(wait(pid).expect("wait"), Change::Killed(libc::SIGKILL));
            }
            let begin = Instant::now();
            assert_eq!(asks(), Ok(0));
            assert!(begin.elapsed() < PATIENCE, "no thread is left");
        }
    });
}

#[test]
fn without_the_mediator_calls_fail_and_the_launcher_ends_what_is_left() {
    if !possible() {
        return;
    }
    in_launcher(|words| {
        let (reader, writer) = pipe().expect("a pipe");
        let mediator = start(words, &[libc::SYS_prlimit64, libc::SYS_getppid], || {
            assert_eq!(asks(), Ok(0));
            say(&writer, b"r");
            until("ENOSYS", || asks() == Err(libc::ENOSYS));
            say(&writer, b"e");
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        drop(writer);
        assert_eq!(hear(&reader), *b"r");
        // What can be ignored is.
        for signal in [
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGHUP,
            Signal::SIGTSTP,
        ] {
            kill(mediator, signal).expect("kill");
        }
        // Each has arrived when none is pending.
        let status = || std::fs::read_to_string(format!("/proc/{mediator}/status"));
        until("the signals", || {
            let pending = |line: &&str| line.starts_with("SigPnd:") || line.starts_with("ShdPnd:");
            let none = |line: &str| line.ends_with("\t0000000000000000");
            status().is_ok_and(|text| text.lines().filter(pending).all(none))
        });
        assert!(runs(mediator));
        let since = agent_sandbox_landlock::mediator::ending::start_of(mediator).expect("it lives");
        kill(mediator, Signal::SIGKILL).expect("kill");
        assert_eq!(wait(mediator).expect("wait"), Change::Killed(libc::SIGKILL));
        assert_eq!(hear(&reader), *b"e");
        let own = child(|| std::thread::sleep(Duration::from_secs(600)));
        agent_sandbox_landlock::mediator::ending::end_leftovers(since);
        // The pipe's other end was the command's alone.
        let mut rest = [0; 1];
        assert_eq!(nix::unistd::read(&reader, &mut rest), Ok(0));
        // What the launcher has started itself goes on.
        assert!(runs(own));
        kill(own, Signal::SIGKILL).expect("kill");
        wait(own).expect("wait");
        assert_eq!(nix::sys::wait::wait(), Err(Errno::ECHILD));
    });
}

#[test]
fn a_mediator_that_cannot_confine_itself_says_why_and_starts_nothing() {
    if !possible() {
        return;
    }
    in_launcher(|_| {
        let mut config = crate::jail::config();
        config.rules[0].id = Some((u64::MAX, u64::MAX));
        let started = agent_sandbox_landlock::mediator::start(config, &[], |_| panic!("started"));
        let error = started.expect_err("a mediator").to_string();
        assert!(error.contains("was replaced"), "{error}");
        assert_eq!(nix::sys::wait::wait(), Err(Errno::ECHILD));
    });
}

/// A reader of the command's output sees its end when the command has ended, and the launcher that of
/// its socket when the attendant has.
#[test]
fn the_mediator_holds_nothing_open() {
    if !possible() {
        return;
    }
    in_launcher(|words| {
        let (reader, writer) = pipe().expect("a pipe");
        let (go, gone) = pipe().expect("a pipe");
        let mediator = start(words, &[libc::SYS_prlimit64], || {
            assert_eq!(asks(), Ok(0));
            say(&writer, b"r");
            let _ = hear::<1>(&go);
        });
        drop(writer);
        assert_eq!(hear(&reader), *b"r");
        let mut links = Vec::new();
        for entry in std::fs::read_dir(format!("/proc/{mediator}/fd"))
            .into_iter()
            .flatten()
        {
            links.push(std::fs::read_link(entry.expect("an entry").path()).expect("a link"));
        }
        let root = nix::unistd::geteuid().is_root();
        assert_eq!(links.is_empty(), !root, "it can be looked into");
        for link in links {
            let link = link.to_string_lossy().into_owned();
            assert!(link == "/dev/null" || link.contains("seccomp"), "{link}");
        }
        let stat = agent_session(mediator);
        assert_eq!(stat, mediator.as_raw(), "a session of its own");
        say(&gone, b"g");
        assert_eq!(wait(mediator).expect("wait"), Change::Exited(0));
        let mut rest = [0; 1];
        assert_eq!(nix::unistd::read(&reader, &mut rest), Ok(0));
    });
}

fn agent_session(process: Pid) -> i32 {
    nix::unistd::getsid(Some(process))
        .expect("a session")
        .as_raw()
}
