//! What may be done to other processes, and to which.

use std::time::Duration;

use agent_sandbox::sys::process::{Change, wait};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, pipe, setpgid};

use crate::jail::{call, child, hear, in_jail, in_launcher, possible, runs, say, start};

const CHANGES: &[i64] = &[
    libc::SYS_prlimit64,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
];
const SIGNALS: &[i64] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
];

fn sleep() {
    std::thread::sleep(Duration::from_secs(600));
}

fn number(process: Pid) -> u64 {
    process.as_raw() as u64
}

fn address<T>(of: &T) -> u64 {
    std::ptr::from_ref(of) as u64
}

/// A number that no process has: the last that there can be.
fn nobody() -> u64 {
    let most = std::fs::read_to_string("/proc/sys/kernel/pid_max").expect("pid_max");
    most.trim().parse::<u64>().expect("a number") - 1
}

/// Each change, of one process, with what it takes.
fn changes(of: u64) -> Vec<(&'static str, Result<i64, i32>)> {
    let (_, hard) = getrlimit(Resource::RLIMIT_CORE).expect("getrlimit");
    let limit = [0, hard];
    let mask = [1u64; 1];
    let none = 0i32;
    // struct sched_attr: size, policy, flags, nice, priority, …
    let mut attributes = [0u32; 12];
    attributes[0] = 48;
    attributes[4] = 5;
    let core = u64::from(libc::RLIMIT_CORE);
    let process = u64::from(libc::PRIO_PROCESS);
    // IOPRIO_CLASS_BE, 6
    let io = 2 << 13 | 6;
    vec![
        (
            "prlimit",
            call(libc::SYS_prlimit64, [of, core, address(&limit), 0]),
        ),
        (
            "setpriority",
            call(libc::SYS_setpriority, [process, of, 5, 0]),
        ),
        ("ioprio_set", call(libc::SYS_ioprio_set, [1, of, io, 0])),
        (
            "sched_setaffinity",
            call(libc::SYS_sched_setaffinity, [of, 8, address(&mask), 0]),
        ),
        (
            "sched_setscheduler",
            call(libc::SYS_sched_setscheduler, [of, 0, address(&none), 0]),
        ),
        (
            "sched_setparam",
            call(libc::SYS_sched_setparam, [of, address(&none), 0, 0]),
        ),
        (
            "sched_setattr",
            call(libc::SYS_sched_setattr, [of, address(&attributes), 0, 0]),
        ),
    ]
}

fn all(of: u64, expected: Result<i64, i32>) {
    for (name, done) in changes(of) {
        assert_eq!(done, expected, "{name} of {of}");
    }
}

/// What the changes have made of a process.
fn assert_changed(process: Pid) {
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).expect("limits");
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core"))
        .expect("a line");
    assert_eq!(core.split_ascii_whitespace().nth(4), Some("0"), "{core}");
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("status");
    assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
    // SAFETY: the call touches no memory.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, process.as_raw().cast_unsigned()) };
    assert_eq!(nice, 5);
    // SAFETY: as above.
    let io = unsafe { libc::syscall(libc::SYS_ioprio_get, 1, process.as_raw()) };
    assert_eq!(io, 2 << 13 | 6);
}

#[test]
fn processes_of_the_jail_are_changed_and_no_others() {
    if !possible() {
        return;
    }
    in_launcher(|words| {
        let launcher = std::process::id();
        let outside = child(sleep);
        let before = std::fs::read_to_string(format!("/proc/{outside}/limits")).expect("limits");
        let mediator = start(words, CHANGES, || {
            let own = std::process::id();
            let attendant = nix::unistd::getppid();
            let other = child(|| {
                child(sleep);
                sleep();
            });
            all(number(other), Ok(0));
            assert_changed(other);
            // Every number that is the caller's own means the caller.
            all(u64::from(own), Ok(0));
            all(0, Ok(0));
            assert_changed(nix::unistd::getpid());
            // A thread of its own.
            let (reader, writer) = pipe().expect("a pipe");
            std::thread::scope(|scope| {
                let (done, wait_until_done) = std::sync::mpsc::channel::<()>();
                scope.spawn(move || {
                    say(&writer, &nix::unistd::gettid().as_raw().to_ne_bytes());
                    // Until the other end is gone.
                    let _ = wait_until_done.recv();
                });
                all(
                    number(Pid::from_raw(i32::from_ne_bytes(hear(&reader)))),
                    Ok(0),
                );
                drop(done);
            });
            // Who is not of the jail.
            for stranger in [u64::from(launcher), number(outside), number(attendant), 1] {
                all(stranger, Err(libc::EPERM));
            }
            all(nobody(), Err(libc::ESRCH));
            let negative = changes(u64::from(u32::MAX));
            assert!(
                negative.iter().all(|(_, done)| done.is_err()),
                "{negative:?}"
            );
        });
        assert_eq!(wait(mediator).expect("wait"), Change::Exited(0));
        let after = std::fs::read_to_string(format!("/proc/{outside}/limits")).expect("limits");
        assert_eq!(before, after);
        nix::sys::signal::kill(outside, Signal::SIGKILL).expect("kill");
        wait(outside).expect("wait");
    });
}

#[test]
fn arguments_are_those_that_the_kernel_takes() {
    in_jail(CHANGES, || {
        let other = number(child(sleep));
        let nofile = u64::from(libc::RLIMIT_NOFILE);
        let mut old = [0u64; 2];
        let asked = call(libc::SYS_prlimit64, [other, nofile, 0, address(&old)]);
        assert_eq!(asked, Ok(0));
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("getrlimit");
        assert_eq!(*std::hint::black_box(&mut old), [soft, hard]);
        // Nobody gets more than the kernel gives it.
        if !nix::unistd::geteuid().is_root() {
            let more = [hard, hard.saturating_add(1)];
            let raised = call(libc::SYS_prlimit64, [other, nofile, address(&more), 0]);
            assert!(hard == u64::MAX || raised == Err(libc::EPERM), "{raised:?}");
        }
        let bad = 8;
        for (number, arguments, errno) in [
            (libc::SYS_prlimit64, [other, nofile, bad, 0], libc::EFAULT),
            (libc::SYS_prlimit64, [other, nofile, 0, bad], libc::EFAULT),
            (libc::SYS_prlimit64, [other, 99, 0, 0], libc::EINVAL),
            (libc::SYS_setpriority, [7, other, 0, 0], libc::EINVAL),
            (libc::SYS_setpriority, [2, 1 << 20, 0, 0], libc::EPERM),
            (libc::SYS_ioprio_set, [9, other, 0, 0], libc::EINVAL),
            (libc::SYS_ioprio_set, [1, other, 5 << 13, 0], libc::EINVAL),
            (
                libc::SYS_sched_setaffinity,
                [other, 8, bad, 0],
                libc::EFAULT,
            ),
            (libc::SYS_sched_setscheduler, [other, 0, 0, 0], libc::EINVAL),
            (
                libc::SYS_sched_setscheduler,
                [other, 77, address(&old), 0],
                libc::EINVAL,
            ),
            (libc::SYS_sched_setparam, [other, 0, 0, 0], libc::EINVAL),
            (libc::SYS_sched_setattr, [other, 0, 0, 0], libc::EINVAL),
            (libc::SYS_sched_setattr, [other, bad, 0, 0], libc::EFAULT),
        ] {
            assert_eq!(
                call(number, arguments),
                Err(errno),
                "{number} {arguments:?}"
            );
        }
        // A structure that is longer than the kernel's: with zeroes, and with something else.
        let mut attributes = [0u32; 32];
        attributes[0] = 128;
        let set = |attributes: &[u32; 32], flags| {
            call(
                libc::SYS_sched_setattr,
                [other, address(attributes), flags, 0],
            )
        };
        assert_eq!(set(&attributes, 0), Ok(0));
        assert_eq!(set(&attributes, 1), Err(libc::EINVAL));
        attributes[31] = 1;
        assert_eq!(set(&attributes, 0), Err(libc::E2BIG));
        attributes[0] = 47;
        assert_eq!(set(&attributes, 0), Err(libc::E2BIG));
        attributes[0] = 4097;
        assert_eq!(set(&attributes, 0), Err(libc::E2BIG));
        // A mask that is longer than any.
        let mask = vec![u64::MAX; 1024];
        let length = size_of_val(mask.as_slice()) as u64;
        let whole = [other, length, mask.as_ptr() as u64, 0];
        assert_eq!(call(libc::SYS_sched_setaffinity, whole), Ok(0));
    });
}

#[test]
fn priorities_of_many_reach_the_jail_alone() {
    if !possible() {
        return;
    }
    in_launcher(|words| {
        // In one process group with the jail.
        let outside = child(sleep);
        let mediator = start(words, CHANGES, || {
            let (fellow, other) = (child(sleep), child(sleep));
            setpgid(other, other).expect("setpgid");
            let nice = |of: Pid| {
                // SAFETY: the call touches no memory.
                unsafe { libc::getpriority(libc::PRIO_PROCESS, of.as_raw().cast_unsigned()) }
            };
            let group = u64::from(libc::PRIO_PGRP);
            assert_eq!(call(libc::SYS_setpriority, [group, 0, 4, 0]), Ok(0));
            assert_eq!((nice(fellow), nice(other), nice(outside)), (4, 0, 0));
            assert_eq!(nice(nix::unistd::getppid()), 0, "the attendant");
            assert_eq!(
                call(libc::SYS_setpriority, [group, number(other), 6, 0]),
                Ok(0)
            );
            assert_eq!((nice(fellow), nice(other)), (4, 6));
            assert_eq!(
                call(libc::SYS_setpriority, [group, nobody(), 6, 0]),
                Err(libc::ESRCH)
            );
            let user = u64::from(libc::PRIO_USER);
            assert_eq!(call(libc::SYS_setpriority, [user, 0, 8, 0]), Ok(0));
            assert_eq!((nice(fellow), nice(other), nice(outside)), (8, 8, 0));
            assert_eq!(call(libc::SYS_ioprio_set, [3, 0, 2 << 13 | 7, 0]), Ok(0));
        });
        assert_eq!(wait(mediator).expect("wait"), Change::Exited(0));
        nix::sys::signal::kill(outside, Signal::SIGKILL).expect("kill");
        wait(outside).expect("wait");
    });
}

/// Each way to signal one process.
fn signal_each_way(to: Pid, signal: i32) -> Vec<(&'static str, Result<i64, i32>)> {
    let (number, signal) = (number(to), signal as u64);
    // siginfo_t: number, errno; code; sender, user; value.
    let mut info = [0u64; 16];
    info[1] = u64::from(libc::SI_QUEUE.cast_unsigned());
    info[3] = 4711;
    let info = address(&info);
    let pidfd = call(libc::SYS_pidfd_open, [number, 0, 0, 0]).unwrap_or(-1) as u64;
    let all = vec![
        ("kill", call(libc::SYS_kill, [number, signal, 0, 0])),
        ("tkill", call(libc::SYS_tkill, [number, signal, 0, 0])),
        (
            "tgkill",
            call(libc::SYS_tgkill, [number, number, signal, 0]),
        ),
        (
            "sigqueue",
            call(libc::SYS_rt_sigqueueinfo, [number, signal, info, 0]),
        ),
        (
            "tgsigqueue",
            call(libc::SYS_rt_tgsigqueueinfo, [number, number, signal, info]),
        ),
        (
            "pidfd",
            call(libc::SYS_pidfd_send_signal, [pidfd, signal, 0, 0]),
        ),
        (
            "pidfd queue",
            call(libc::SYS_pidfd_send_signal, [pidfd, signal, info, 0]),
        ),
    ];
    let _ = nix::unistd::close(pidfd as i32);
    all
}

#[test]
fn processes_of_the_jail_are_signalled_and_no_others() {
    if !possible() {
        return;
    }
    in_launcher(|words| {
        let launcher = nix::unistd::getpid();
        let outside = child(sleep);
        let mediator = start(words, SIGNALS, || {
            // One that counts what it gets.
            let (reader, writer) = pipe().expect("a pipe");
            let counts = child(|| {
                let mut set = nix::sys::signal::SigSet::empty();
                set.add(Signal::SIGUSR2);
                set.add(Signal::SIGTERM);
                set.thread_block().expect("blocked");
                say(&writer, b"up");
                loop {
                    // SAFETY: all zeroes is a siginfo_t, which the call fills in.
                    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
                    // SAFETY: as above.
                    let got = unsafe { libc::sigwaitinfo(set.as_ref(), &raw mut info) };
                    // SAFETY: a signal that was queued by a process has these.
                    let (sender, value) = unsafe { (info.si_pid(), info.si_value().sival_ptr) };
                    let queued = info.si_code == libc::SI_QUEUE;
                    let from = queued && sender == nix::unistd::getppid().as_raw();
                    let whole = from && value as usize == 4711;
                    say(
                        &writer,
                        &[u8::try_from(got).expect("small"), u8::from(whole)],
                    );
                }
            });
            let usr2 = libc::SIGUSR2 as u8;
            assert_eq!(hear(&reader), *b"up");
            for (name, done) in signal_each_way(counts, libc::SIGUSR2) {
                assert_eq!(done, Ok(0), "{name}");
            }
            // Signals of one kind that are pending are one.
            let [first, _] = hear::<2>(&reader);
            assert_eq!(first, usr2);
            let mut info = [0u64; 16];
            info[1] = u64::from(libc::SI_QUEUE.cast_unsigned());
            info[3] = 4711;
            let queue = [number(counts), libc::SIGTERM as u64, address(&info), 0];
            assert_eq!(call(libc::SYS_rt_sigqueueinfo, queue), Ok(0));
            while hear::<2>(&reader) != [libc::SIGTERM as u8, 1] {}
            // As the kernel says, nobody pretends to be it.
            std::hint::black_box(&mut info)[1] = 0;
            assert_eq!(call(libc::SYS_rt_sigqueueinfo, queue), Err(libc::EPERM));
            for stranger in [launcher, outside, nix::unistd::getppid(), Pid::from_raw(1)] {
                for (name, done) in signal_each_way(stranger, 0) {
                    assert_eq!(done, Err(libc::EPERM), "{name} to {stranger}");
                }
            }
            for (name, done) in signal_each_way(Pid::from_raw(nobody() as i32), 0) {
                let expected = if name.starts_with("pidfd") {
                    libc::EBADF
                } else {
                    libc::ESRCH
                };
                assert_eq!(done, Err(expected), "{name}");
            }
            assert_eq!(
                call(libc::SYS_kill, [number(counts), 65, 0, 0]),
                Err(libc::EINVAL)
            );
            let null = std::fs::File::open("/dev/null").expect("null");
            let fd = std::os::fd::AsRawFd::as_raw_fd(&null) as u64;
            assert_eq!(
                call(libc::SYS_pidfd_send_signal, [fd, 0, 0, 0]),
                Err(libc::EBADF)
            );
            assert!(runs(counts));
        });
        assert_eq!(wait(mediator).expect("wait"), Change::Exited(0));
        assert!(runs(outside));
        nix::sys::signal::kill(outside, Signal::SIGKILL).expect("kill");
        wait(outside).expect("wait");
    });
}

#[test]
fn groups_and_everybody_are_those_of_the_jail() {
    if !possible() {
        return;
    }
    in_launcher(|words| {
        // In one process group with the jail.
        let outside = child(sleep);
        let mediator = start(words, SIGNALS, || {
            let waited = |pid| wait(pid).expect("wait");
            let (one, two, other) = (child(sleep), child(sleep), child(sleep));
            for fellow in [one, two] {
                setpgid(fellow, one).expect("setpgid");
            }
            let minus = |group: Pid| u64::from((-group.as_raw()).cast_unsigned());
            let term = libc::SIGTERM as u64;
            assert_eq!(call(libc::SYS_kill, [minus(one), term, 0, 0]), Ok(0));
            for fellow in [one, two] {
                assert_eq!(waited(fellow), Change::Killed(libc::SIGTERM));
            }
            assert!(runs(other));
            assert_eq!(
                call(libc::SYS_kill, [minus(one), term, 0, 0]),
                Err(libc::ESRCH)
            );
            // The caller's own group, and itself in it.
            let fellow = child(sleep);
            setpgid(fellow, fellow).expect("setpgid");
            let caller = child(|| {
                setpgid(Pid::from_raw(0), fellow).expect("setpgid");
                let _ = call(libc::SYS_kill, [0, term, 0, 0]);
                sleep();
            });
            for one in [fellow, caller] {
                assert_eq!(waited(one), Change::Killed(libc::SIGTERM));
            }
            // Everybody but the caller.
            assert!(runs(other));
            let more = child(sleep);
            let everybody = u64::from(u32::MAX);
            assert_eq!(
                call(libc::SYS_kill, [everybody, libc::SIGKILL as u64, 0, 0]),
                Ok(0)
            );
            for fellow in [other, more] {
                assert_eq!(waited(fellow), Change::Killed(libc::SIGKILL));
            }
            // To itself.
            let aborted = child(|| {
                agent_sandbox::sys::process::default_signals().expect("default");
                let _ = nix::sys::signal::raise(Signal::SIGUSR1);
            });
            assert_eq!(waited(aborted), Change::Killed(libc::SIGUSR1));
        });
        assert_eq!(wait(mediator).expect("wait"), Change::Exited(0));
        assert!(runs(outside));
        nix::sys::signal::kill(outside, Signal::SIGKILL).expect("kill");
        wait(outside).expect("wait");
    });
}

/// The kernel stops and ends whole groups by itself, for what one of them does to the terminal or by
/// ending.
#[test]
fn no_group_outside_is_joined() {
    if !possible() {
        return;
    }
    in_launcher(|words| {
        let outside = child(sleep);
        setpgid(outside, outside).expect("setpgid");
        let mediator = start(words, &[libc::SYS_setpgid], || {
            let own = nix::unistd::getpgrp();
            let join = |process: Pid, group: Pid| setpgid(process, group);
            let nobody = Pid::from_raw(0);
            assert_eq!(join(nobody, outside), Err(Errno::EPERM));
            let fellow = child(sleep);
            assert_eq!(join(fellow, outside), Err(Errno::EPERM));
            // What a shell does with a pipeline, and back.
            assert_eq!(join(fellow, fellow), Ok(()));
            assert_eq!(join(nobody, fellow), Ok(()));
            assert_eq!(join(nobody, own), Ok(()));
            assert_eq!(join(nobody, nobody), Ok(()));
            assert_eq!(join(fellow, nix::unistd::getpid()), Ok(()));
        });
        assert_eq!(wait(mediator).expect("wait"), Change::Exited(0));
        assert!(runs(outside));
        nix::sys::signal::kill(outside, Signal::SIGKILL).expect("kill");
        wait(outside).expect("wait");
    });
}
