//! Nothing of a jail outlives it.

use std::time::{Duration, Instant};

use agent_sandbox::sys::process::{Change, wait};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe, setsid};

use crate::jail::{child, ended, hear, in_launcher, possible, runs, say, start, until};

fn sleep() {
    std::thread::sleep(Duration::from_secs(600));
}

/// A process in a session of its own whose parents are gone, as daemons are.
fn daemon(act: impl FnOnce()) {
    let first = child(|| {
        setsid().expect("setsid");
        child(act);
    });
    wait(first).expect("wait");
}

#[test]
fn daemons_end_with_the_jail() {
    if !possible() {
        return;
    }
    in_launcher(|words| {
        let (reader, writer) = pipe().expect("a pipe");
        let mediator = start(words, &[libc::SYS_connect], || {
            for _ in 0..5 {
                daemon(|| {
                    agent_sandbox::sys::process::ignore_all();
                    daemon(sleep);
                    say(&writer, b"d");
                    sleep();
                });
            }
            // A subreaper inside keeps its orphans to itself, but not from the end.
            daemon(|| {
                nix::sys::prctl::set_child_subreaper(true).expect("subreaper");
                daemon(sleep);
                say(&writer, b"d");
                sleep();
            });
            // One that is stopped.
            daemon(|| {
                say(&writer, b"d");
                let _ = nix::sys::signal::raise(Signal::SIGSTOP);
                sleep();
            });
            assert_eq!(hear(&reader), [b'd'; 7]);
        });
        drop(writer);
        assert_eq!(wait(mediator).expect("wait"), Change::Exited(0));
        assert!(ended(reader), "somebody is left");
        assert_eq!(
            nix::sys::wait::wait(),
            Err(Errno::ECHILD),
            "left to the launcher"
        );
    });
}

/// Processes that do nothing but fork, as many as there may be.
#[test]
fn a_fork_bomb_ends_with_the_jail() {
    const MOST: u64 = 300;
    if !possible() {
        return;
    }
    if nix::unistd::geteuid().is_root() {
        println!("not checked: a fork bomb: root is under no limit of processes");
        return;
    }
    in_launcher(|words| {
        let (reader, writer) = pipe().expect("a pipe");
        let mediator = start(words, &[libc::SYS_connect], || {
            let (_, hard) = getrlimit(Resource::RLIMIT_NPROC).expect("getrlimit");
            // Other tests run as the same user, and count.
            let most = (MOST + 200).min(hard);
            setrlimit(Resource::RLIMIT_NPROC, most, most).expect("setrlimit");
            daemon(|| {
                let mut full = false;
                loop {
                    // SAFETY: the child goes on as its parent does, and neither allocates.
                    if unsafe { libc::fork() } < 0 {
                        if Errno::last() != Errno::EAGAIN {
                            break;
                        }
                        // As many are there as there may be.
                        if !std::mem::replace(&mut full, true) {
                            say(&writer, b"b");
                        }
                    }
                    // SAFETY: the call touches no memory.
                    unsafe { libc::usleep(500) };
                    while nix::sys::wait::waitpid(None, Some(nix::sys::wait::WaitPidFlag::WNOHANG))
                        .is_ok_and(|status| status != nix::sys::wait::WaitStatus::StillAlive)
                    {
                    }
                }
            });
            assert_eq!(hear(&reader), *b"b");
        });
        drop(writer);
        let begin = Instant::now();
        assert_eq!(wait(mediator).expect("wait"), Change::Exited(0));
        assert!(ended(reader), "somebody is left");
        println!("the bomb took {:?}", begin.elapsed());
        assert_eq!(
            nix::sys::wait::wait(),
            Err(Errno::ECHILD),
            "left to the launcher"
        );
    });
}

/// An attendant that is killed takes everything with it, and is no success.
#[test]
fn the_jail_ends_with_the_attendant() {
    if !possible() {
        return;
    }
    in_launcher(|words| {
        let (reader, writer) = pipe().expect("a pipe");
        let mediator = start(words, &[libc::SYS_connect], || {
            say(&writer, &nix::unistd::getppid().as_raw().to_ne_bytes());
            daemon(sleep);
            sleep();
        });
        drop(writer);
        let attendant = Pid::from_raw(i32::from_ne_bytes(hear(&reader)));
        kill(attendant, Signal::SIGKILL).expect("kill");
        assert_eq!(
            wait(mediator).expect("wait"),
            Change::Exited(128 + libc::SIGKILL)
        );
        assert!(ended(reader), "somebody is left");
    });
}

/// So it does when it never got as far as a filter.
#[test]
fn a_command_that_was_not_started_ends_the_mediator() {
    if !possible() {
        return;
    }
    in_launcher(|_| {
        let mediator = agent_sandbox_landlock::mediator::start(crate::jail::config(), &[], |_| {
            agent_sandbox::sys::process::exit_now(7)
        })
        .expect("a mediator");
        assert_eq!(wait(mediator).expect("wait"), Change::Exited(7));
    });
}

/// The attendant and the command are in the process group of the launcher, whatever the mediator is
/// in, and end with the mediator.
#[test]
fn keys_of_the_terminal_reach_the_command() {
    if !possible() {
        return;
    }
    in_launcher(|words| {
        let (reader, writer) = pipe().expect("a pipe");
        let own = nix::unistd::getpgrp();
        let mediator = start(words, &[libc::SYS_connect], || {
            let group = nix::unistd::getpgrp() == own;
            say(&writer, &[u8::from(group)]);
            sleep();
        });
        drop(writer);
        assert_eq!(hear(&reader), [1]);
        assert_ne!(nix::unistd::getpgid(Some(mediator)), Ok(own));
        let since = agent_sandbox_landlock::mediator::ending::start_of(mediator).expect("it lives");
        kill(mediator, Signal::SIGKILL).expect("kill");
        wait(mediator).expect("wait");
        agent_sandbox_landlock::mediator::ending::end_leftovers(since);
        until("the end", || !runs(mediator));
        assert!(ended(reader), "somebody is left");
    });
}
