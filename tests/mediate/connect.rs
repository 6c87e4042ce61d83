//! `connect(2)` and `bind(2)` through the mediator: which sockets are reached, by whatever path, and
//! that no race changes that.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, getpeername, send, sendto,
    socket, socketpair,
};

use crate::jail::until_it_waits;
use crate::outside::World;

/// The first ABI with scopes.
const SCOPES: i32 = 6;
/// As often a race is tried.
const TRIES: usize = 3000;

fn reached(path: impl AsRef<Path>) -> Result<(), Errno> {
    UnixStream::connect(path)
        .map(drop)
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))
}

fn stream() -> OwnedFd {
    let flags = SockFlag::SOCK_CLOEXEC;
    socket(AddressFamily::Unix, SockType::Stream, flags, None).expect("a socket")
}

/// `connect(2)` with an address in bytes.
fn raw(socket: RawFd, address: &[u8]) -> Result<(), Errno> {
    let (address, length) = (address.as_ptr(), address.len() as libc::socklen_t);
    // SAFETY: the kernel reads that many bytes.
    Errno::result(unsafe { libc::connect(socket, address.cast(), length) }).map(drop)
}

#[test]
fn a_socket_outside_is_reached_by_no_path() {
    let world = World::new();
    let (host, project) = (world.at("outside/host"), world.at("project"));
    symlink(&host, project.join("link")).expect("a link");
    symlink("link", project.join("link-to-link")).expect("a link");
    symlink(world.at("outside"), world.at("stage/directory")).expect("a link");
    fs::hard_link(&host, project.join("hard")).expect("a hard link");
    fs::hard_link(&host, world.at("stage/hard")).expect("a hard link");
    let moved = UnixListener::bind(world.at("outside/before")).expect("a socket");
    fs::rename(world.at("outside/before"), world.at("outside/after")).expect("renamed");
    assert_eq!(reached(&host), Ok(()), "without a jail");
    world.host.accept().expect("that one");
    world.jail(|| {
        std::env::set_current_dir(&project).expect("a directory");
        let outside = fs::OpenOptions::new();
        let outside = {
            use std::os::unix::fs::OpenOptionsExt;
            let mut options = outside;
            let options = options.read(true).custom_flags(libc::O_PATH);
            options
                .open(world.at("outside"))
                .expect("O_PATH needs no right")
        };
        let fd = outside.as_raw_fd();
        let pid = std::process::id();
        let shown = host.display();
        let paths = [
            shown.to_string(),
            format!("/{shown}"),
            "../outside/host".to_owned(),
            "../outside/deep/../host".to_owned(),
            "./.git/../../outside/host".to_owned(),
            "link".to_owned(),
            "link-to-link".to_owned(),
            "hard".to_owned(),
            "../stage/hard".to_owned(),
            "../stage/directory/host".to_owned(),
            "../outside/after".to_owned(),
            format!("/proc/self/root{shown}"),
            format!("/proc/{pid}/root{shown}"),
            format!("/proc/thread-self/root{shown}"),
            "/proc/self/cwd/../outside/host".to_owned(),
            format!("/proc/self/fd/{fd}/host"),
            format!("/proc/{pid}/fd/{fd}/host"),
            format!("/dev/fd/{fd}/host"),
            format!("/proc/{pid}/task/{pid}/cwd/../outside/host"),
        ];
        for path in &paths {
            assert_eq!(reached(path), Err(Errno::EACCES), "{path}");
        }
        // From within the directory, and by a descriptor of the socket itself.
        std::env::set_current_dir(world.at("outside")).expect("chdir needs no right");
        assert_eq!(reached("host"), Err(Errno::EACCES));
        let pinned = nix::fcntl::open(
            "host",
            nix::fcntl::OFlag::O_PATH,
            nix::sys::stat::Mode::empty(),
        );
        let pinned = pinned.expect("O_PATH needs no right");
        let path = format!("/proc/self/fd/{}", pinned.as_raw_fd());
        assert!(reached(&path).is_err(), "{path}");
    });
    world.assert_unreached();
    moved.set_nonblocking(true).expect("a flag");
    assert!(moved.accept().is_err(), "the renamed one was reached");
}

#[test]
fn what_cannot_be_connected_to_is_answered_as_by_the_kernel() {
    let world = World::new();
    world.jail(|| {
        std::env::set_current_dir(world.at("stage")).expect("a directory");
        fs::write("file", "").expect("a file");
        assert_eq!(reached("nothing"), Err(Errno::ENOENT));
        assert_eq!(reached("nothing/there"), Err(Errno::ENOENT));
        assert_eq!(reached("file/there"), Err(Errno::ENOTDIR));
        assert_eq!(reached("file"), Err(Errno::ECONNREFUSED));
        symlink("loop", "loop").expect("a link");
        assert_eq!(reached("loop"), Err(Errno::ELOOP));
        let socket = stream();
        let fd = socket.as_raw_fd();
        assert_eq!(raw(fd, &[]), Err(Errno::EINVAL));
        assert_eq!(raw(fd, &[1]), Err(Errno::EINVAL));
        assert_eq!(raw(fd, &[1, 0]), Err(Errno::EINVAL), "no name");
        assert_eq!(
            raw(fd, &[2, 0, b'x', 0]),
            Err(Errno::EINVAL),
            "another family"
        );
        assert_eq!(raw(fd, &[1; 129]), Err(Errno::EINVAL), "too long");
        assert_eq!(raw(9999, &[1, 0, b'x']), Err(Errno::EBADF));
        let file = fs::File::open("file").expect("a file");
        assert_eq!(raw(file.as_raw_fd(), &[1, 0, b'x']), Err(Errno::ENOTSOCK));
        // SAFETY: the kernel looks at the address and answers.
        let nowhere = unsafe { libc::connect(fd, std::ptr::without_provenance(8), 16) };
        assert_eq!(Errno::result(nowhere), Err(Errno::EFAULT));
    });
}

#[test]
fn a_socket_made_inside_is_reached_and_has_the_mode_that_was_meant() {
    let world = World::new();
    world.jail(|| {
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o027));
        std::env::set_current_dir(world.at("project")).expect("a directory");
        for path in ["../stage/own", "own", ".git/own"] {
            let listener =
                UnixListener::bind(path).unwrap_or_else(|error| panic!("{path}: {error}"));
            let mode = fs::metadata(path).expect("a socket").permissions().mode();
            assert_eq!(mode & 0o7777, 0o750, "{path}");
            let mut client =
                UnixStream::connect(path).unwrap_or_else(|error| panic!("{path}: {error}"));
            let (mut server, _) = listener.accept().expect("a client");
            client.write_all(b"x").expect("written");
            let mut byte = [0];
            server.read_exact(&mut byte).expect("read");
            assert_eq!(&byte, b"x");
            // SAFETY: geteuid(2) cannot fail.
            let uid = unsafe { libc::geteuid() };
            let peer =
                nix::sys::socket::getsockopt(&server, nix::sys::socket::sockopt::PeerCredentials);
            assert_eq!(peer.expect("a peer").uid(), uid);
            assert!(UnixListener::bind(path).is_err(), "{path}: twice");
        }
        for closed in [".git/config", ".git/closed", "../outside/own"] {
            assert!(UnixListener::bind(closed).is_err(), "{closed}");
            assert!(fs::symlink_metadata(closed).is_err(), "{closed}");
        }
    });
    assert!(fs::symlink_metadata(world.at("project/.git/own")).is_ok());
}

#[test]
fn abstract_names_outside_are_out_of_reach() {
    let world = World::new();
    let name = format!("agent-sandbox-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let outside = UnixListener::bind_addr(&address).expect("a socket");
    outside.set_nonblocking(true).expect("a flag");
    world.jail(|| {
        let refused = UnixStream::connect_addr(&address).map(drop);
        let refused = refused.map_err(|error| error.raw_os_error());
        assert_eq!(refused, Err(Some(libc::EPERM)));
        let own = SocketAddr::from_abstract_name(format!("{name}-inside")).expect("a name");
        let listener = UnixListener::bind_addr(&own).expect("a socket");
        let reached = UnixStream::connect_addr(&own).map(drop);
        if world.abi < SCOPES {
            assert_eq!(
                reached.map_err(|error| error.raw_os_error()),
                Err(Some(libc::EPERM))
            );
        } else {
            reached.expect("an own one");
            listener.accept().expect("a client");
        }
    });
    assert!(outside.accept().is_err(), "it was reached");
}

#[test]
fn other_families_connect_as_ever() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = listener.local_addr().expect("an address");
    let port = address.port().to_be_bytes();
    let family = (libc::AF_INET as u16).to_ne_bytes();
    let to = [&family[..], &port, &[127, 0, 0, 1], &[0; 8]].concat();
    world.jail(|| {
        let mut client = TcpStream::connect(address).expect("connected");
        client.write_all(b"x").expect("written");
        // Without waiting: the same answer as the kernel's, and the flag stays the caller's.
        let flags = SockFlag::SOCK_NONBLOCK;
        let waiting = socket(AddressFamily::Inet, SockType::Stream, flags, None).expect("a socket");
        let begun = raw(waiting.as_raw_fd(), &to);
        assert_eq!(begun, Err(Errno::EINPROGRESS));
        let mut polled = [nix::poll::PollFd::new(
            waiting.as_fd(),
            nix::poll::PollFlags::POLLOUT,
        )];
        assert_eq!(nix::poll::poll(&mut polled, 2000_u16), Ok(1));
        let error = nix::sys::socket::getsockopt(&waiting, nix::sys::socket::sockopt::SocketError);
        assert_eq!(error, Ok(0));
        // The first call after the end of the wait says so.
        assert_eq!(raw(waiting.as_raw_fd(), &to), Ok(()));
        assert_eq!(raw(waiting.as_raw_fd(), &to), Err(Errno::EISCONN));
        // A datagram socket is connected, and let go by an address without a family.
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        datagrams.connect(address).expect("connected");
        assert!(datagrams.peer_addr().is_ok());
        assert_eq!(raw(datagrams.as_raw_fd(), &[0; 16]), Ok(()));
        assert!(datagrams.peer_addr().is_err());
        let refused = TcpStream::connect(("127.0.0.1", 1)).map(drop);
        assert_eq!(
            refused.map_err(|error| error.kind()),
            Err(ErrorKind::ConnectionRefused)
        );
    });
}

/// What can be made without connect(2) reaches nobody either.
#[test]
fn an_address_in_a_message_leads_nowhere() {
    let world = World::new();
    let packets = socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_NONBLOCK,
        None,
    );
    let packets = packets.expect("a socket");
    let place = world.at("outside/packets");
    let address = UnixAddr::new(&place).expect("an address");
    nix::sys::socket::bind(packets.as_raw_fd(), &address).expect("bound");
    nix::sys::socket::listen(
        &packets,
        nix::sys::socket::Backlog::new(8).expect("a number"),
    )
    .expect("listens");
    let host = UnixAddr::new(&world.at("outside/host")).expect("an address");
    let none = MsgFlags::MSG_NOSIGNAL;
    world.jail(|| {
        for kind in [SockType::Datagram, SockType::Raw] {
            let refused = Err(Errno::EPROTONOSUPPORT);
            let flags = SockFlag::SOCK_CLOEXEC;
            assert_eq!(
                socket(AddressFamily::Unix, kind, flags, None).map(drop),
                refused
            );
            assert_eq!(
                socketpair(AddressFamily::Unix, kind, None, flags).map(drop),
                refused
            );
        }
        let unconnected = stream();
        let sent = sendto(unconnected.as_raw_fd(), b"x", &host, none);
        assert_eq!(sent, Err(Errno::EOPNOTSUPP));
        let pair =
            |kind| socketpair(AddressFamily::Unix, kind, None, SockFlag::empty()).expect("a pair");
        let (one, _other) = pair(SockType::Stream);
        assert_eq!(
            sendto(one.as_raw_fd(), b"x", &host, none),
            Err(Errno::EISCONN)
        );
        let (one, other) = pair(SockType::SeqPacket);
        assert_eq!(sendto(one.as_raw_fd(), b"x", &address, none), Ok(1));
        let mut byte = [0];
        let came = nix::sys::socket::recv(other.as_raw_fd(), &mut byte, MsgFlags::MSG_DONTWAIT);
        assert_eq!(came, Ok(1), "it went to its peer");
        let unconnected = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::empty(),
            None,
        );
        let unconnected = unconnected.expect("a socket");
        assert_eq!(
            sendto(unconnected.as_raw_fd(), b"x", &address, none),
            Err(Errno::ENOTCONN)
        );
        assert_eq!(
            send(unconnected.as_raw_fd(), b"x", none),
            Err(Errno::ENOTCONN)
        );
    });
    world.assert_unreached();
    assert_eq!(
        nix::sys::socket::accept(packets.as_raw_fd()),
        Err(Errno::EAGAIN)
    );
}

/// The path, the address in memory and the descriptor's number change while the call is judged.
#[test]
fn no_race_leads_outside() {
    let world = World::new();
    let (own, host) = (world.at("stage/own"), world.at("outside/host"));
    world.jail(|| {
        std::env::set_current_dir(world.at("stage")).expect("a directory");
        let listener = UnixListener::bind("own").expect("a socket");
        listener.set_nonblocking(true).expect("a flag");
        let drain = || while listener.accept().is_ok() {};
        let over = AtomicBool::new(false);
        let (mut reached_own, mut refused) = (0, 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for to in [&own, &host] {
                        let _ = fs::remove_file("next");
                        symlink(to, "next").expect("a link");
                        fs::rename("next", "flips").expect("renamed");
                    }
                }
            });
            for _ in 0..TRIES {
                match reached("flips") {
                    Ok(()) => reached_own += 1,
                    Err(Errno::EACCES | Errno::ENOENT | Errno::EAGAIN) => refused += 1,
                    Err(errno) => panic!("{errno}"),
                }
                drain();
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(
            reached_own > 0 && refused > 0,
            "{reached_own} {refused}: no race"
        );

        // Two addresses of one length, one of which a thread copies over the other and back.
        let outside = host.display().to_string();
        let stage = world.at("stage").display().to_string();
        let padded = format!("{stage}{}own", "/".repeat(outside.len() - stage.len() - 3));
        let bytes = |path: &str| {
            let mut bytes = vec![1, 0];
            bytes.extend(path.as_bytes());
            bytes.push(0);
            bytes
        };
        let choices = [bytes(&padded), bytes(&outside)];
        let mut address = choices[0].clone();
        let at = address.as_mut_ptr().expose_provenance();
        let size = address.len();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for choice in &choices {
                        // SAFETY: the buffer lives as long as the scope; a race is what is tried, with
                        // the kernel alone.
                        unsafe {
                            let to: *mut u8 = std::ptr::with_exposed_provenance_mut(at);
                            std::ptr::copy_nonoverlapping(choice.as_ptr(), to, size);
                        }
                    }
                }
            });
            for _ in 0..TRIES {
                let socket = stream();
                // SAFETY: as above; the kernel reads that many bytes.
                unsafe {
                    let from: *const u8 = std::ptr::with_exposed_provenance(at);
                    libc::connect(socket.as_raw_fd(), from.cast(), size as libc::socklen_t);
                }
                drain();
            }
            over.store(true, Ordering::Relaxed);
        });
        drop(address);

        // The number is now a local socket and now one of another family.
        let address = UnixAddr::new(&host).expect("an address");
        let target = stream();
        let number = target.as_raw_fd();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for family in [AddressFamily::Unix, AddressFamily::Inet] {
                        let flags = SockFlag::empty();
                        let other =
                            socket(family, SockType::Stream, flags, None).expect("a socket");
                        // SAFETY: the number stays open, and is this test's.
                        unsafe { libc::dup2(other.as_raw_fd(), number) };
                    }
                }
            });
            for _ in 0..TRIES {
                let done = connect(number, &address);
                assert!(done.is_err(), "connected");
                assert!(getpeername::<UnixAddr>(number).is_err());
            }
            over.store(true, Ordering::Relaxed);
        });
        drain();
    });
    world.assert_unreached();
}

#[test]
fn many_threads_connect_at_once_and_one_that_waits_holds_up_nobody() {
    const THREADS: usize = 32;
    const CALLS: usize = 50;
    let world = World::new();
    world.jail(|| {
        std::env::set_current_dir(world.at("stage")).expect("a directory");
        let listener = UnixListener::bind("own").expect("a socket");
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..THREADS * CALLS {
                    listener.accept().expect("a client");
                }
            });
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..CALLS {
                        reached("own").expect("connected");
                    }
                });
            }
        });
        // A queue of one, which is full with two.
        let full = stream();
        nix::sys::socket::bind(
            full.as_raw_fd(),
            &UnixAddr::new("full").expect("an address"),
        )
        .expect("bound");
        nix::sys::socket::listen(&full, nix::sys::socket::Backlog::new(0).expect("a number"))
            .expect("listens");
        let waits_in_line = UnixStream::connect("full").expect("the first");
        let (say, hear) = std::sync::mpsc::channel();
        let caller = || {
            let say = say.clone();
            thread::spawn(move || {
                say.send(nix::unistd::gettid()).expect("somebody listens");
                reached("full")
            })
        };
        let waiting = caller();
        until_it_waits(hear.recv().expect("a thread"));
        assert!(!waiting.is_finished(), "it does not wait");
        let begun = Instant::now();
        let served = thread::spawn(move || listener.accept().map(drop));
        reached("own").expect("another is served");
        served.join().expect("a thread").expect("a client");
        assert!(begun.elapsed() < crate::jail::PATIENCE);
        let first = nix::sys::socket::accept(full.as_raw_fd()).expect("the first");
        assert_eq!(waiting.join().expect("a thread"), Ok(()));
        let _ = nix::unistd::close(first);
        drop(waits_in_line);
        // The mediator ends with a call that waits.
        let _waits = caller();
        until_it_waits(hear.recv().expect("a thread"));
    });
}

/// Prints what a connection costs; no target, the machine's load decides.
#[test]
fn the_cost_of_a_connection() {
    const CONNECTIONS: usize = 2000;
    fn measure(what: &str, place: &Path) {
        let _ = fs::remove_file(place);
        let listener = UnixListener::bind(place).expect("a socket");
        let address = UnixAddr::new(place).expect("an address");
        let mut times: Vec<Duration> = (0..CONNECTIONS)
            .map(|_| {
                let socket = stream();
                let begun = Instant::now();
                connect(socket.as_raw_fd(), &address).expect("connected");
                let took = begun.elapsed();
                listener.accept().expect("a client");
                took
            })
            .collect();
        times.sort_unstable();
        let text = format!(
            "{what}: p50 {:?}, p95 {:?}\n",
            times[CONNECTIONS / 2],
            times[CONNECTIONS * 95 / 100]
        );
        let _ = nix::unistd::write(std::io::stderr(), text.as_bytes());
    }
    let world = World::new();
    let place = world.at("stage/own");
    measure("connect(2) without a jail", &place);
    world.jail(|| measure("connect(2) mediated", &place));
}
