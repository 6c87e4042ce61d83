//! TCP out of a jail whose network is filtered: every connection is led to the filter, with the address that the kernel would have
//! connected to, and nothing else comes to it.

use std::io::{Read, Write};
use std::mem::ManuallyDrop;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use agent_sandbox::sys::passing;
use agent_sandbox::sys::process::{Change, exit_now, landlock_abi, wait};
use agent_sandbox_landlock::access::NETWORK;
use agent_sandbox_landlock::mediator::{Given, WayOut};
use agent_sandbox_support::not_checked;
use agent_sandbox_wire::led;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, socket};
use nix::unistd::Pid;

use crate::jail::{PATIENCE, child, config, in_launcher, start_given};

const CALLS: &[i64] = &[libc::SYS_connect, libc::SYS_listen];
/// Nobody listens there, says the filter.
const CLOSED: u16 = 9;
/// As often a race is tried.
const TRIES: usize = 2000;
/// What whoever is inside says first.
const INSIDE: &[u8; 6] = b"inside";

/// A filter that answers each connection with the address that it was meant for. A connection that does not begin as those inside do
/// is somebody else's, and ends it.
fn filter(mediator: OwnedFd) {
    loop {
        let mut message = [0; led::LONGEST];
        let (length, fd) = match passing::receive(&mediator, &mut message, MsgFlags::empty()) {
            Ok((0, _)) | Err(_) => return,
            Ok(received) => received,
        };
        let to = led::address(&message[..length]).expect("an address");
        match fd {
            None if to.port() == CLOSED => {
                passing::send(&mediator, led::NOBODY, None).expect("sent")
            }
            None => passing::send(&mediator, led::LISTENS, None).expect("sent"),
            Some(fd) => {
                let _ = thread::spawn(move || {
                    let mut stream = TcpStream::from(fd);
                    let mut said = [0; 6];
                    // Who ends it without a word gets none.
                    if stream.read_exact(&mut said).is_ok() {
                        if &said != INSIDE {
                            exit_now(3);
                        }
                        let _ = write!(stream, "{to}");
                    }
                });
            }
        }
    }
}

/// Runs `act` in a jail whose connections are led to such a filter. `beside` is done outside meanwhile, with the listener's address.
fn led_jail(test: &str, act: impl FnOnce(), beside: impl FnOnce(Pid)) {
    if landlock_abi() < NETWORK {
        return not_checked(
            test,
            "Landlock of this kernel has no rights about the network",
        );
    }
    in_launcher(|words| {
        let (ours, theirs) = passing::pair().expect("a pair");
        let filter = child(|| {
            // With the mediator's end it would not see the mediator's.
            nix::unistd::close(ours.as_raw_fd()).expect("closed");
            filter(theirs);
        });
        let given = Given {
            way_out: Some(WayOut::new(ours).expect("listeners")),
            ..Given::default()
        };
        let mediator = start_given(words, given, (config(), config()), CALLS, act);
        beside(mediator);
        assert_eq!(wait(mediator).expect("wait"), Change::Exited(0), "the jail");
        assert_eq!(wait(filter).expect("wait"), Change::Exited(0), "the filter");
    });
}

fn stream_of(family: AddressFamily) -> OwnedFd {
    socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("a socket")
}

/// An address as the kernel has it, of a socket for IPv6 where `six`.
fn bytes(to: SocketAddr, six: bool) -> Vec<u8> {
    let family = if six { libc::AF_INET6 } else { libc::AF_INET };
    let mut all = u16::to_ne_bytes(family as u16).to_vec();
    all.extend(to.port().to_be_bytes());
    match to.ip() {
        std::net::IpAddr::V4(ip) if !six => all.extend(ip.octets()),
        ip => {
            all.extend([0; 4]);
            all.extend(match ip {
                std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                std::net::IpAddr::V6(ip) => ip.octets(),
            });
        }
    }
    all.resize(if six { 28 } else { 16 }, 0);
    all
}

fn connect(socket: RawFd, address: &[u8]) -> Result<(), Errno> {
    // SAFETY: the kernel reads that many bytes.
    let done = unsafe { libc::connect(socket, address.as_ptr().cast(), address.len() as u32) };
    Errno::result(done).map(drop)
}

/// What the filter says of a connection.
fn led_to(stream: &OwnedFd) -> String {
    // The test's socket stays its own.
    let stream = ManuallyDrop::new(unsafe_stream(stream.as_raw_fd()));
    let mut stream = &*stream;
    let mut said = String::new();
    stream.write_all(INSIDE).expect("room");
    stream.read_to_string(&mut said).expect("an answer");
    said
}

fn unsafe_stream(number: RawFd) -> TcpStream {
    // SAFETY: it is open, and whoever calls does not close it twice.
    unsafe { TcpStream::from_raw_fd(number) }
}

fn nonblocking(socket: &OwnedFd, on: bool) {
    let stream = ManuallyDrop::new(unsafe_stream(socket.as_raw_fd()));
    stream.set_nonblocking(on).expect("a flag");
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

#[test]
fn every_connection_is_led_to_the_filter_with_its_address() {
    let real = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let real_at = real.local_addr().expect("its address");
    led_jail(
        "every_connection_is_led_to_the_filter_with_its_address",
        || {
            for (to, meant, six) in [
                ("198.18.0.1:443", "198.18.0.1:443", false),
                ("0.0.0.0:80", "127.0.0.1:80", false),
                ("255.255.255.255:1", "255.255.255.255:1", false),
                ("198.18.0.1:443", "198.18.0.1:443", true),
                ("[2001:db8::1]:22", "[2001:db8::1]:22", true),
                ("[::]:80", "[::1]:80", true),
                (&*real_at.to_string(), &*real_at.to_string(), false),
            ] {
                let family = if six {
                    AddressFamily::Inet6
                } else {
                    AddressFamily::Inet
                };
                let one = stream_of(family);
                match connect(one.as_raw_fd(), &bytes(at(to), six)) {
                    Err(Errno::ENETUNREACH) if six && meant.starts_with('[') => {
                        not_checked("IPv6 of this host", "its loopback has no address");
                        continue;
                    }
                    connected => assert_eq!(connected, Ok(()), "{to}"),
                }
                // The listener itself is an address as any other.
                let by = ManuallyDrop::new(unsafe_stream(one.as_raw_fd()));
                let by = by.peer_addr().expect("a peer");
                assert_eq!(led_to(&one), meant, "{to}");
                let other = stream_of(family);
                assert_eq!(connect(other.as_raw_fd(), &bytes(by, six)), Ok(()));
                let canonical = SocketAddr::new(by.ip().to_canonical(), by.port());
                assert_eq!(led_to(&other), canonical.to_string());
            }
            let one = stream_of(AddressFamily::Inet);
            let closed = bytes(at(&format!("198.18.0.1:{CLOSED}")), false);
            assert_eq!(connect(one.as_raw_fd(), &closed), Err(Errno::ECONNREFUSED));
            // It is as it was.
            assert_eq!(
                connect(one.as_raw_fd(), &bytes(at("1.2.3.4:5"), false)),
                Ok(())
            );
            assert_eq!(led_to(&one), "1.2.3.4:5");
        },
        |_| {},
    );
    real.set_nonblocking(true).expect("a flag");
    assert!(real.accept().is_err(), "somebody was reached");
}

#[test]
fn a_socket_behaves_as_with_the_kernel() {
    led_jail(
        "a_socket_behaves_as_with_the_kernel",
        || {
            let (a, b) = (
                bytes(at("1.2.3.4:5"), false),
                bytes(at("5.6.7.8:9999"), false),
            );
            let one = stream_of(AddressFamily::Inet);
            let number = one.as_raw_fd();
            nonblocking(&one, true);
            assert_eq!(connect(number, &a), Err(Errno::EINPROGRESS));
            assert_eq!(connect(number, &b), Ok(()), "what was begun");
            assert_eq!(connect(number, &b), Err(Errno::EISCONN));
            nonblocking(&one, false);
            assert_eq!(led_to(&one), "1.2.3.4:5");
            // Disconnected, and used again.
            assert_eq!(connect(number, &[0; 16]), Ok(()));
            assert_eq!(connect(number, &b), Ok(()));
            let twin = one.try_clone().expect("dup");
            assert_eq!(connect(twin.as_raw_fd(), &a), Err(Errno::EISCONN));
            assert_eq!(led_to(&twin), "5.6.7.8:9999");
            for (address, errno) in [
                (&a[..15], Errno::EINVAL),
                (&a[..1], Errno::EINVAL),
                (&bytes(at("1.2.3.4:5"), true)[..], Errno::EAFNOSUPPORT),
            ] {
                let other = stream_of(AddressFamily::Inet);
                assert_eq!(connect(other.as_raw_fd(), address), Err(errno));
            }
            // IPv6 alone.
            let six = stream_of(AddressFamily::Inet6);
            nix::sys::socket::setsockopt(&six, nix::sys::socket::sockopt::Ipv6V6Only, &true)
                .expect("an option");
            let mapped = bytes(at("1.2.3.4:5"), true);
            assert_eq!(connect(six.as_raw_fd(), &mapped), Err(Errno::ENETUNREACH));
        },
        |_| {},
    );
}

#[test]
fn no_race_leads_elsewhere_than_the_filter_is_told() {
    let real = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let real_at = real.local_addr().expect("its address");
    led_jail(
        "no_race_leads_elsewhere_than_the_filter_is_told",
        || {
            let (one, other) = (bytes(at("1.2.3.4:5"), false), bytes(real_at, false));
            let said = ["1.2.3.4:5".to_owned(), real_at.to_string()];
            let address: &'static mut [u8] = Box::leak(one.clone().into_boxed_slice());
            let place = address.as_mut_ptr() as usize;
            let over = AtomicBool::new(false);
            let seen = [const { AtomicUsize::new(0) }; 2];
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        for bytes in [&other, &one] {
                            // SAFETY: the memory stays, and whoever reads it meanwhile is the kernel.
                            unsafe {
                                std::ptr::copy_nonoverlapping(
                                    bytes.as_ptr(),
                                    place as *mut u8,
                                    bytes.len(),
                                );
                            }
                        }
                    }
                });
                for _ in 0..TRIES {
                    let stream = stream_of(AddressFamily::Inet);
                    // SAFETY: the kernel reads 16 bytes, which are there.
                    let done = unsafe { libc::connect(stream.as_raw_fd(), place as *const _, 16) };
                    if done == 0 {
                        let led = led_to(&stream);
                        // Half of one address and half of the other is an address, too.
                        if let Some(which) = said.iter().position(|text| *text == led) {
                            seen[which].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                over.store(true, Ordering::Relaxed);
            });
            assert!(
                seen.iter().all(|seen| seen.load(Ordering::Relaxed) > 0),
                "{seen:?}"
            );
        },
        |_| {},
    );
    real.set_nonblocking(true).expect("a flag");
    assert!(real.accept().is_err(), "somebody was reached");
}

/// Connections that are made side by side are not taken for each other, also where others come to the same listener.
#[test]
fn whoever_else_comes_to_the_listener_gets_nowhere() {
    let (port, ask) = (shared::<AtomicUsize>(), shared::<AtomicBool>());
    led_jail(
        "whoever_else_comes_to_the_listener_gets_nowhere",
        || {
            let one = stream_of(AddressFamily::Inet);
            assert_eq!(
                connect(one.as_raw_fd(), &bytes(at("1.2.3.4:5"), false)),
                Ok(())
            );
            let by = ManuallyDrop::new(unsafe_stream(one.as_raw_fd()));
            port.store(
                by.peer_addr().expect("a peer").port().into(),
                Ordering::SeqCst,
            );
            led_to(&one);
            thread::scope(|scope| {
                for thread in 0..4_u16 {
                    scope.spawn(move || {
                        for number in 0..200_u16 {
                            let to = SocketAddr::from((
                                Ipv4Addr::new(1, 2, 3, 4),
                                1000 + thread * 1000 + number,
                            ));
                            let one = stream_of(AddressFamily::Inet);
                            assert_eq!(connect(one.as_raw_fd(), &bytes(to, false)), Ok(()));
                            assert_eq!(led_to(&one), to.to_string());
                        }
                    });
                }
            });
            ask.store(true, Ordering::SeqCst);
        },
        |_| {
            let begun = Instant::now();
            let mut dropped = 0;
            while !ask.load(Ordering::SeqCst) && begun.elapsed() < PATIENCE {
                let Ok(port @ 1..) = u16::try_from(port.load(Ordering::SeqCst)) else {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                };
                // With words at once, and sometimes with a reset behind them.
                let Ok(mut stranger) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else {
                    continue;
                };
                let _ = stranger.write_all(b"stranger");
                if dropped % 2 == 0 {
                    let linger = libc::linger {
                        l_onoff: 1,
                        l_linger: 0,
                    };
                    let _ = nix::sys::socket::setsockopt(
                        &stranger,
                        nix::sys::socket::sockopt::Linger,
                        &linger,
                    );
                }
                dropped += 1;
            }
            assert!(dropped > 0, "no stranger came");
        },
    );
}

/// Memory that processes share.
fn shared<T>() -> &'static T {
    let length = std::num::NonZeroUsize::new(4096).expect("a page");
    let (protection, flags) = (
        nix::sys::mman::ProtFlags::PROT_READ | nix::sys::mman::ProtFlags::PROT_WRITE,
        nix::sys::mman::MapFlags::MAP_SHARED,
    );
    // SAFETY: a new mapping, which stays; all zeroes is a value of the atomic types that it is used for.
    unsafe {
        nix::sys::mman::mmap_anonymous(None, length, protection, flags)
            .expect("memory")
            .cast()
            .as_ref()
    }
}

#[test]
fn nobody_listens_where_others_could_connect() {
    let directory = tempfile::tempdir().expect("a directory");
    led_jail(
        "nobody_listens_where_others_could_connect",
        || {
            for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
                let bound = TcpListener::bind(address).map_err(|error| error.raw_os_error());
                assert!(matches!(bound, Err(Some(libc::EACCES))), "{bound:?}");
            }
            // Without bind(2) the kernel would choose a port.
            for family in [AddressFamily::Inet, AddressFamily::Inet6] {
                let one = stream_of(family);
                // SAFETY: the call touches no memory.
                let done = unsafe { libc::listen(one.as_raw_fd(), 1) };
                assert_eq!(Errno::result(done), Err(Errno::EACCES));
            }
            let name =
                std::os::unix::net::SocketAddr::from_abstract_name(b"way-out").expect("a name");
            let bound = UnixListener::bind_addr(&name).map_err(|error| error.raw_os_error());
            assert!(matches!(bound, Err(Some(libc::EACCES))), "{bound:?}");
            let unnamed = stream_of(AddressFamily::Unix);
            // SAFETY: the call touches no memory.
            let done = unsafe { libc::listen(unnamed.as_raw_fd(), 1) };
            assert_eq!(Errno::result(done), Err(Errno::EINVAL));
            let path = directory.path().join("socket");
            let listener = UnixListener::bind(&path).expect("a socket with a path");
            std::os::unix::net::UnixStream::connect(&path).expect("reached");
            listener.accept().expect("that one");
            fs::remove_file(path).expect("removed");
        },
        |_| {},
    );
}

#[test]
fn without_mediator_or_filter_nothing_is_reached() {
    const TEST: &str = "without_mediator_or_filter_nothing_is_reached";
    if landlock_abi() < NETWORK {
        return not_checked(
            TEST,
            "Landlock of this kernel has no rights about the network",
        );
    }
    let real = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = bytes(real.local_addr().expect("its address"), false);
    // The filter is gone, or answers nonsense, and then what would be right.
    for nonsense in [None, Some(&b"?"[..])] {
        in_launcher(|words| {
            let (ours, theirs) = passing::pair().expect("a pair");
            for _ in 0..4 {
                if let Some(nonsense) = nonsense {
                    passing::send(&theirs, nonsense, None).expect("sent");
                    passing::send(&theirs, led::LISTENS, None).expect("sent");
                }
            }
            let kept = nonsense.is_some().then_some(theirs);
            let given = Given {
                way_out: Some(WayOut::new(ours).expect("listeners")),
                ..Given::default()
            };
            let both = (config(), config());
            let mediator = start_given(words, given, both, CALLS, || {
                for _ in 0..3 {
                    let one = stream_of(AddressFamily::Inet);
                    let connected = connect(one.as_raw_fd(), &address);
                    assert_eq!(connected, Err(Errno::ECONNREFUSED));
                }
            });
            assert_eq!(wait(mediator).expect("wait"), Change::Exited(0));
            drop(kept);
        });
    }
    // The mediator is gone: the command is killed with it, and what it does until then fails.
    in_launcher(|words| {
        let (ours, _theirs) = passing::pair().expect("a pair");
        let begun = shared::<AtomicBool>();
        let given = Given {
            way_out: Some(WayOut::new(ours).expect("listeners")),
            ..Given::default()
        };
        let mediator = start_given(words, given, (config(), config()), CALLS, || {
            begun.store(true, Ordering::SeqCst);
            loop {
                let one = stream_of(AddressFamily::Inet);
                if connect(one.as_raw_fd(), &address).is_ok() {
                    panic!("connected");
                }
            }
        });
        crate::jail::until("the command runs", || begun.load(Ordering::SeqCst));
        kill(mediator, Signal::SIGKILL).expect("killed");
        wait(mediator).expect("wait");
    });
    real.set_nonblocking(true).expect("a flag");
    assert!(real.accept().is_err(), "somebody was reached");
}

/// Prints what a connection costs; no target, the machine's load decides.
#[test]
fn the_cost_of_a_connection_that_is_led() {
    let p50 = |connect: &dyn Fn()| {
        let mut took: Vec<Duration> = (0..500)
            .map(|_| {
                let begun = Instant::now();
                connect();
                begun.elapsed()
            })
            .collect();
        took.sort();
        took[took.len() / 2]
    };
    let real = TcpListener::bind("127.0.0.1:0").expect("a listener");
    sockets_listen(&real);
    let to = real.local_addr().expect("its address");
    let once = |address: &[u8]| {
        let one = stream_of(AddressFamily::Inet);
        assert_eq!(connect(one.as_raw_fd(), address), Ok(()));
    };
    let direct = p50(&|| once(&bytes(to, false)));
    led_jail(
        "the_cost_of_a_connection_that_is_led",
        || {
            let led = p50(&|| once(&bytes(at("1.2.3.4:5"), false)));
            eprintln!("TCP without a jail: p50 {direct:?}; led to a filter: p50 {led:?}");
        },
        |_| {},
    );
}

/// With room for all connections of a test.
fn sockets_listen(listener: &TcpListener) {
    agent_sandbox::sys::sockets::listen(listener, 4096).expect("a listener");
}
