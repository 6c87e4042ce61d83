//! The filter that hands calls over to the mediator, against the running kernel: each call that is meant
//! comes to the listener, and the others do not.

use std::os::fd::{AsFd, OwnedFd};

use agent_sandbox::sys::notify::Buffers;
use agent_sandbox::sys::{passing, privileges};
use agent_sandbox_landlock::access::HandedOver;
use agent_sandbox_landlock::handed_over;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::MsgFlags;

use crate::tasks::{child, succeeds};

/// What the mediator of these tests answers: nothing else does.
const ANSWER: Errno = Errno::EXFULL;

/// Runs `body` in a child under the filter. Every call that it hands over is answered with [`ANSWER`].
fn under(which: HandedOver, body: impl FnOnce()) {
    let (ours, theirs) = passing::pair().expect("a pair");
    let task = child(|| {
        privileges::no_new_privileges().expect("no_new_privs");
        let program = handed_over::program(which);
        let listener = privileges::filter_with_listener(&program).expect("a listener");
        passing::send(&theirs, b"l", Some(listener.as_fd())).expect("sent");
        drop(listener);
        body();
    });
    drop(theirs);
    let received = passing::receive(&ours, &mut [0], MsgFlags::empty());
    let listener: OwnedFd = received.expect("a message").1.expect("a listener");
    let mut buffers = Buffers::new().expect("buffers");
    loop {
        let mut polled = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, nix::poll::PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            polled => polled.expect("poll"),
        };
        // No process is left under the filter.
        if !polled[0]
            .revents()
            .is_some_and(|events| events.contains(PollFlags::POLLIN))
        {
            break;
        }
        if let Ok(call) = buffers.receive(&listener) {
            let _ = buffers.refuse(&listener, call.id, ANSWER as i32);
        }
    }
    succeeds(task);
}

/// A call with arguments of which the kernel itself could make nothing but an error.
fn answered(number: i64, arguments: [u64; 4]) -> Option<Errno> {
    let [a, b, c, d] = arguments;
    // SAFETY: no argument is an address that is mapped, so that the kernel touches no memory.
    let done = unsafe { libc::syscall(number, a, b, c, d) };
    Errno::result(done).err()
}

const BAD: u64 = u64::MAX;

#[test]
fn what_is_always_handed_over_comes_and_what_is_about_the_caller_does_not() {
    under(HandedOver::default(), || {
        for number in [
            libc::SYS_connect,
            libc::SYS_fchmod,
            libc::SYS_fchmodat,
            452, // fchmodat2
            libc::SYS_fchown,
            libc::SYS_fchownat,
            libc::SYS_utimensat,
            libc::SYS_setxattr,
            libc::SYS_fremovexattr,
            463, // setxattrat
            466, // removexattrat
            libc::SYS_inotify_add_watch,
        ] {
            assert_eq!(answered(number, [BAD; 4]), Some(ANSWER), "{number}");
        }
        // Nobody has this pid (PID_MAX_LIMIT).
        let other = 1 << 23;
        for number in [
            libc::SYS_prlimit64,
            libc::SYS_sched_setaffinity,
            libc::SYS_sched_setscheduler,
            libc::SYS_sched_setparam,
            libc::SYS_sched_setattr,
        ] {
            assert_eq!(
                answered(number, [other, BAD, BAD, BAD]),
                Some(ANSWER),
                "{number}"
            );
            let own = answered(number, [1 << 32, BAD, BAD, BAD]);
            assert_ne!(own, Some(ANSWER), "{number}: the low half is 0");
        }
        // PRIO_PROCESS, and the value that everybody may choose.
        let (process, nicest) = (0, 19);
        let own = answered(libc::SYS_setpriority, [process, 0, nicest, 0]);
        assert_eq!(own, None);
        assert_eq!(
            answered(libc::SYS_setpriority, [process, other, 0, 0]),
            Some(ANSWER)
        );
        assert_eq!(answered(libc::SYS_setpriority, [2, 0, 0, 0]), Some(ANSWER));
        assert_eq!(answered(libc::SYS_ioprio_set, [2, 0, 0, 0]), Some(ANSWER));
        assert_ne!(answered(libc::SYS_ioprio_set, [1, 0, BAD, 0]), Some(ANSWER));
        for number in [
            libc::SYS_read,
            libc::SYS_openat,
            libc::SYS_mkdirat,
            libc::SYS_kill,
            libc::SYS_truncate,
            libc::SYS_bind,
        ] {
            let own = answered(number, [BAD, BAD, BAD, BAD]);
            assert_ne!(own, Some(ANSWER), "{number}");
        }
    });
}

#[test]
fn each_switch_hands_over_its_calls() {
    let here = libc::AT_FDCWD as u64;
    let open = |flags: i32| answered(libc::SYS_openat, [here, BAD, flags as u64 | 1 << 32, 0]);
    let none = HandedOver::default();
    let (changes, listings, opens) = (
        HandedOver {
            changes: true,
            ..none
        },
        HandedOver {
            listings: true,
            ..none
        },
        HandedOver {
            opens: true,
            ..none
        },
    );
    let (signals, truncations) = (
        HandedOver {
            signals: true,
            ..none
        },
        HandedOver {
            truncations: true,
            ..none
        },
    );
    // By switch: reading, writing, emptying, listing.
    for (which, expected) in [
        (none, [false; 4]),
        (changes, [false, true, true, false]),
        (listings, [false, false, false, true]),
        (opens, [true; 4]),
        (truncations, [false, false, true, false]),
    ] {
        under(which, || {
            let flags = [
                libc::O_RDONLY,
                libc::O_WRONLY,
                libc::O_TRUNC,
                libc::O_DIRECTORY,
            ];
            assert_eq!(flags.map(|flags| open(flags) == Some(ANSWER)), expected);
            let truncate = answered(libc::SYS_truncate, [BAD, 0, 0, 0]) == Some(ANSWER);
            assert_eq!(truncate, which.changes || which.truncations);
            for number in [libc::SYS_mkdirat, libc::SYS_renameat2, libc::SYS_bind] {
                let handed = answered(number, [BAD; 4]) == Some(ANSWER);
                assert_eq!(handed, which.changes, "{number}");
            }
        });
    }
    let executions = HandedOver {
        executions: true,
        ..none
    };
    for which in [none, executions] {
        under(which, || {
            let handed = answered(libc::SYS_execve, [BAD; 4]) == Some(ANSWER);
            assert_eq!(handed, which.executions);
        });
    }
    under(signals, || {
        // Signal 0 to this process itself: the kernel would let it be.
        let own = u64::from(std::process::id());
        assert_eq!(answered(libc::SYS_kill, [own, 0, 0, 0]), Some(ANSWER));
        assert_eq!(answered(libc::SYS_tgkill, [own, own, 0, 0]), Some(ANSWER));
    });
}
