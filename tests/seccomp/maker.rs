//! The socket maker of a rank room: that its answers are the kernel's own, what it survives, and that
//! nothing opens without it.

use std::ffi::{c_int, c_void};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use agent_sandbox::share::sockets::Maker;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, connect, getsockopt, socketpair, sockopt,
};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getgid, getuid};

use crate::tasks::{abstract_address, bound, child, enter, name, result, succeeds, task, unix};

/// What a descriptor's flags are: close-on-exec, non-blocking.
fn flags(socket: &OwnedFd) -> (bool, bool) {
    use nix::fcntl::{FcntlArg, fcntl};
    let of_descriptor = fcntl(socket, FcntlArg::F_GETFD).expect("F_GETFD");
    let of_file = fcntl(socket, FcntlArg::F_GETFL).expect("F_GETFL");
    (
        of_descriptor & libc::FD_CLOEXEC != 0,
        of_file & libc::O_NONBLOCK != 0,
    )
}

/// Flags, numbers and errors are those that the kernel gives without the maker.
#[test]
fn results_are_the_kernels_own() {
    let kinds = 0..12;
    let all_flags = [
        0,
        libc::SOCK_CLOEXEC,
        libc::SOCK_NONBLOCK,
        libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
        1 << 20,
    ];
    let ask = || -> Vec<_> {
        kinds
            .clone()
            .flat_map(|kind| all_flags.map(|flags| kind | flags))
            .flat_map(|kind| [0, 1, 2, -1].map(|protocol| (kind, protocol)))
            .map(|(kind, protocol)| {
                let free = fs::File::open("/dev/null").expect("a file").as_raw_fd();
                // SAFETY: the call touches no memory.
                let made = result(unsafe { libc::socket(libc::AF_UNIX, kind, protocol) });
                let what = made.map(|socket| {
                    let kind = getsockopt(&socket, sockopt::SockType).expect("SO_TYPE");
                    (socket.as_raw_fd() == free, flags(&socket), kind)
                });
                (kind, protocol, what)
            })
            .collect()
    };
    let limit = nix::sys::resource::Resource::RLIMIT_NOFILE;
    // Both ask in a child with the same descriptors open.
    let maker = Maker::start().expect("a maker");
    let (read, write) = nix::unistd::pipe().expect("a pipe");
    succeeds(child(|| {
        let plain = format!("{:?}", ask());
        nix::unistd::write(&write, plain.as_bytes()).expect("write");
    }));
    succeeds(task(&maker, || {
        let handed = format!("{:?}", ask());
        let mut plain = vec![0; handed.len() + 1];
        let length = nix::unistd::read(&read, &mut plain).expect("read");
        assert_eq!(
            String::from_utf8_lossy(&plain[..length]),
            handed,
            "with and without the maker"
        );
        let (_, hard) = nix::sys::resource::getrlimit(limit).expect("getrlimit");
        nix::sys::resource::setrlimit(limit, 3, hard).expect("setrlimit");
        assert_eq!(unix(SockType::Stream).map(drop), Err(Errno::EMFILE));
        nix::sys::resource::setrlimit(limit, 256, hard).expect("setrlimit");
        unix(SockType::Stream).expect("a socket again");
    }));
}

#[test]
fn nothing_opens_without_the_maker() {
    let maker = Maker::start().expect("a maker");
    let name = name("dead");
    let _outside = bound(SockType::Stream, &abstract_address(&name));
    let pid = maker.pid();
    let task = task(&maker, || {
        unix(SockType::Stream).expect("while it lives");
        kill(pid, Signal::SIGTERM).expect("kill");
        kill(pid, Signal::SIGINT).expect("kill");
        unix(SockType::Stream).expect("it ignores what can be ignored");
        kill(pid, Signal::SIGKILL).expect("kill");
        // The kernel lets go of the listener when the maker has gone.
        loop {
            match unix(SockType::Stream) {
                Err(errno) => break assert_eq!(errno, Errno::ENOSYS),
                Ok(socket) => {
                    let connected = connect(socket.as_raw_fd(), &abstract_address(&name));
                    assert_eq!(connected, Err(Errno::ECONNREFUSED));
                }
            }
        }
        for kind in [SockType::Stream, SockType::SeqPacket, SockType::Datagram] {
            assert_eq!(unix(kind).map(drop), Err(Errno::ENOSYS));
        }
        socketpair(
            AddressFamily::Unix,
            SockType::Stream,
            None,
            SockFlag::empty(),
        )
        .expect("a pair needs no maker");
    });
    succeeds(task);
    let mut polled = [PollFd::new(maker.as_fd(), PollFlags::empty())];
    assert_eq!(poll(&mut polled, 1000_u16), Ok(1));
    assert!(
        polled[0]
            .revents()
            .is_some_and(|e| e.contains(PollFlags::POLLHUP))
    );
}

/// It ends with the process that started it, killed as it may be.
#[test]
fn the_maker_ends_with_its_starter() {
    let (read, write) = nix::unistd::pipe().expect("a pipe");
    let starter = child(|| {
        let maker = Maker::start().expect("a maker");
        let pid = maker.pid().as_raw().to_ne_bytes();
        nix::unistd::write(&write, &pid).expect("write");
        nix::unistd::pause();
    });
    let mut pid = [0; 4];
    nix::unistd::read(&read, &mut pid).expect("read");
    let pid = Pid::from_raw(i32::from_ne_bytes(pid));
    let links = |what: &str| fs::read_link(format!("/proc/{pid}/{what}"));
    if getuid().is_root() {
        let open = fs::read_dir(format!("/proc/{pid}/fd"))
            .expect("fds")
            .count();
        assert_eq!(open, 4, "the standard streams and the command socket");
        assert_ne!(
            links("ns/net").expect("a namespace"),
            fs::read_link("/proc/self/ns/net").expect("a namespace")
        );
    } else {
        assert!(links("ns/net").is_err(), "not dumpable");
    }
    kill(starter, Signal::SIGKILL).expect("kill");
    waitpid(starter, None).expect("wait");
    for _ in 0..1000 {
        // A zombie until whoever adopted it waits.
        match fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) if !stat.contains(") Z ") => std::thread::sleep(Duration::from_millis(5)),
            _ => return,
        }
    }
    panic!("the maker outlives its starter");
}

/// A copy that a forked process drops takes nothing from the room.
#[test]
fn a_copy_ends_nothing() {
    let maker = Maker::start().expect("a maker");
    let copy = &maker;
    succeeds(child(|| {
        // SAFETY: this process leaves by `_exit` and uses the original no more.
        drop(unsafe { std::ptr::read(copy) });
    }));
    succeeds(task(&maker, || {
        drop(unix(SockType::Stream).expect("a socket"))
    }));
}

#[test]
fn many_tasks_at_once() {
    const TASKS: usize = 64;
    const SOCKETS: usize = 100;
    let maker = Maker::start().expect("a maker");
    let tasks: Vec<Pid> = (0..TASKS)
        .map(|_| {
            task(&maker, || {
                let all: Vec<OwnedFd> = (0..SOCKETS)
                    .map(|_| unix(SockType::Stream).expect("a socket"))
                    .collect();
                let mut numbers: Vec<RawFd> = all.iter().map(AsRawFd::as_raw_fd).collect();
                numbers.dedup();
                assert_eq!(numbers.len(), SOCKETS);
            })
        })
        .collect();
    tasks.into_iter().for_each(succeeds);
}

static ALARMS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_alarm(_: c_int) {
    ALARMS.fetch_add(1, Ordering::Relaxed);
}

/// A handler for SIGALRM, which comes every 50 microseconds.
fn alarms(flags: c_int) {
    // SAFETY: the handler only counts; the structures are local.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_alarm as *const c_void as usize;
        action.sa_flags = flags;
        assert_eq!(
            libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()),
            0
        );
        let mut every: libc::itimerval = std::mem::zeroed();
        every.it_interval.tv_usec = 50;
        every.it_value.tv_usec = 50;
        libc::syscall(
            libc::SYS_setitimer,
            libc::ITIMER_REAL,
            &every,
            std::ptr::null_mut::<c_void>(),
        );
    }
}

/// Signals during the call leak no descriptor and leave the maker at work.
#[test]
fn signals_during_the_call() {
    let maker = Maker::start().expect("a maker");
    for restart in [true, false] {
        succeeds(child(|| {
            enter(&maker);
            let first = unix(SockType::Stream).expect("a socket").as_raw_fd();
            alarms(if restart { libc::SA_RESTART } else { 0 });
            for _ in 0..5000 {
                match unix(SockType::Stream) {
                    Ok(socket) => assert_eq!(socket.as_raw_fd(), first, "a leak"),
                    // As of any call that waits, under a handler that asks for it (signal(7)).
                    Err(Errno::EINTR) if !restart => {}
                    Err(errno) => panic!("{errno}"),
                }
            }
            assert!(ALARMS.load(Ordering::Relaxed) > 0);
        }));
    }
    succeeds(task(&maker, || {
        drop(unix(SockType::Stream).expect("a socket"))
    }));
}

/// Tasks that are killed at any moment of the call leave the maker at work.
#[test]
fn killed_during_the_call() {
    let maker = Maker::start().expect("a maker");
    for round in 0..200 {
        let victim = task(&maker, || {
            loop {
                let _ = unix(SockType::Stream);
            }
        });
        std::thread::sleep(Duration::from_micros(round * 10));
        kill(victim, Signal::SIGKILL).expect("kill");
        waitpid(victim, None).expect("wait");
    }
    succeeds(task(&maker, || {
        drop(unix(SockType::Stream).expect("a socket"))
    }));
    if getuid().is_root() {
        // Listeners of tasks that have gone are closed: none piles up.
        let open = || {
            let open = fs::read_dir(format!("/proc/{}/fd", maker.pid()));
            open.expect("fds").count()
        };
        for _ in 0..1000 {
            if open() == 4 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(open(), 4);
    }
}

/// Where no network namespace can be had there is no maker, and the reason is told.
#[test]
fn no_namespace_no_maker() {
    succeeds(child(|| {
        let (uid, gid) = (getuid(), getgid());
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER).expect("unshare");
        fs::write("/proc/self/uid_map", format!("0 {uid} 1")).expect("a map");
        fs::write("/proc/self/setgroups", "deny").expect("setgroups");
        fs::write("/proc/self/gid_map", format!("0 {gid} 1")).expect("a map");
        fs::write("/proc/sys/user/max_net_namespaces", "0").expect("a limit");
        let refused = Maker::start().expect_err("no maker").raw_os_error();
        assert_eq!(refused, Some(libc::ENOSPC));
        assert_eq!(waitpid(None, None), Err(Errno::ECHILD), "nothing is left");
    }));
}

#[test]
fn only_listeners_are_served() {
    let maker = Maker::start().expect("a maker");
    let file = fs::File::open("/dev/null").expect("a file");
    assert!(maker.serve(file.into()).is_err());
}

/// Prints what a socket costs; no target, the machine's load decides.
#[test]
fn the_cost_of_a_socket() {
    fn per_socket(what: &str) {
        const SOCKETS: u32 = 5000;
        let start = Instant::now();
        for _ in 0..SOCKETS {
            drop(UnixDatagram::unbound().expect("a socket"));
        }
        eprintln!("{what}: {:?} a socket", start.elapsed() / SOCKETS);
    }
    let start = Instant::now();
    let maker = Maker::start().expect("a maker");
    eprintln!("start: {:?}", start.elapsed());
    succeeds(child(|| per_socket("without")));
    succeeds(task(&maker, || per_socket("with")));
    let start = Instant::now();
    maker.end();
    eprintln!("end: {:?}", start.elapsed());
}
