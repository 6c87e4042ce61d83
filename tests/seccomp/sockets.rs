//! Local sockets in a rank room, against the running kernel: what a task may and may not do with what
//! the maker gave it, and with what the kernel makes without the maker.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use agent_sandbox::seccomp::notify;
use agent_sandbox::share::sockets::Maker;
use agent_sandbox::sys::{fds, passing, privileges};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, bind, connect, getsockname,
    getsockopt, listen, recv, send, sendto, socket, socketpair, sockopt,
};
use nix::unistd::getuid;

use crate::harness::{Filter, HIGH_BIT, STRICT};
use crate::tasks::{
    KINDS, abstract_address, accepted, bound, child, enter, in_task, name, raw_pair, raw_socket,
    succeeds, task, unix,
};

#[test]
fn path_names_work_as_ever() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| UnixAddr::new(&directory.path().join(name)).expect("a short path");
    in_task(|| {
        for (kind, path) in KINDS.into_iter().zip(["stream", "seqpacket"]) {
            let listener = bound(kind, &at(path));
            let client = unix(kind).expect("a socket");
            connect(client.as_raw_fd(), &at(path)).expect("connect");
            let server = accepted(&listener);
            send(client.as_raw_fd(), b"hello", MsgFlags::empty()).expect("send");
            let mut buffer = [0; 16];
            let got = recv(server.as_raw_fd(), &mut buffer, MsgFlags::empty());
            assert_eq!(got, Ok(5));
            let peer = getsockopt(&server, sockopt::PeerCredentials).expect("credentials");
            assert_eq!(peer.pid(), std::process::id().cast_signed());
            let peer = getsockopt(&client, sockopt::PeerCredentials).expect("credentials");
            assert_eq!(peer.pid(), std::process::id().cast_signed());
        }
        let server = bound(SockType::Datagram, &at("datagram"));
        let client = unix(SockType::Datagram).expect("a socket");
        sendto(
            client.as_raw_fd(),
            b"hi",
            &at("datagram"),
            MsgFlags::empty(),
        )
        .expect("sendto");
        let mut buffer = [0; 16];
        let got = recv(server.as_raw_fd(), &mut buffer, MsgFlags::empty());
        assert_eq!(got, Ok(2));
    });
    for path in ["stream", "seqpacket", "datagram"] {
        let file = fs::symlink_metadata(directory.path().join(path)).expect("the socket's file");
        assert_eq!(file.uid(), getuid().as_raw(), "{path}");
    }
}

#[test]
fn the_socket_belongs_to_the_user() {
    in_task(|| {
        let socket = unix(SockType::Stream).expect("a socket");
        let status = nix::sys::stat::fstat(&socket).expect("fstat");
        assert_eq!(status.st_uid, getuid().as_raw());
    });
}

#[test]
fn a_path_outside_sees_the_task() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("outside");
    let outside = UnixListener::bind(&path).expect("bind");
    let maker = Maker::start().expect("a maker");
    let task = task(&maker, || {
        let mut stream = UnixStream::connect(&path).expect("connect");
        stream.write_all(b"x").expect("write");
        let _ = stream.read(&mut [0]);
    });
    let (mut stream, _) = outside.accept().expect("accept");
    stream.read_exact(&mut [0]).expect("read");
    let peer = getsockopt(&stream, sockopt::PeerCredentials).expect("credentials");
    assert_eq!(peer.pid(), task.as_raw());
    assert_eq!(peer.uid(), getuid().as_raw());
    drop(stream);
    succeeds(task);
}

/// The host's abstract names are out of reach by every call that takes an address.
#[test]
fn abstract_names_outside_are_out_of_reach() {
    let outside: Vec<(SockType, Vec<u8>, OwnedFd)> =
        [SockType::Stream, SockType::SeqPacket, SockType::Datagram]
            .into_iter()
            .map(|kind| {
                let name = name("outside");
                let socket = bound(kind, &abstract_address(&name));
                (kind, name, socket)
            })
            .collect();
    let attempt = |kind, address: &UnixAddr| {
        let socket = unix(kind)?;
        if kind == SockType::Datagram {
            let fd = socket.as_raw_fd();
            let to = sendto(fd, b"x", address, MsgFlags::empty());
            let message = nix::sys::socket::sendmsg(
                fd,
                &[io::IoSlice::new(b"x")],
                &[],
                MsgFlags::empty(),
                Some(address),
            );
            assert_eq!(to, message);
        }
        connect(socket.as_raw_fd(), address)
    };
    for (kind, name, _socket) in &outside {
        // Without the filter they are within reach: the attempt is a real one.
        assert_eq!(attempt(*kind, &abstract_address(name)), Ok(()), "{kind:?}");
    }
    in_task(|| {
        for (kind, name, _socket) in &outside {
            let refused = Err(Errno::ECONNREFUSED);
            assert_eq!(attempt(*kind, &abstract_address(name)), refused, "{kind:?}");
            // The name is free here, and taking it changes nothing outside.
            drop(bound(*kind, &abstract_address(name)));
        }
    });
}

#[test]
fn tasks_of_one_maker_share_abstract_names() {
    let maker = Maker::start().expect("a maker");
    let other = Maker::start().expect("another maker");
    let name = name("room");
    let (ready, go) = nix::unistd::pipe().expect("a pipe");
    let server = task(&maker, || {
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let listener = UnixListener::bind_addr(&address).expect("bind");
        nix::unistd::write(&go, b"!").expect("write");
        listener.accept().expect("accept");
    });
    nix::unistd::read(&ready, &mut [0]).expect("read");
    let reach = || {
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        UnixStream::connect_addr(&address).map(drop)
    };
    assert!(reach().is_err(), "from outside");
    succeeds(task(&other, || assert!(reach().is_err(), "another room")));
    succeeds(task(&maker, || reach().expect("the same room")));
    succeeds(server);
}

/// As shared-memory transports wake each other: datagrams to names that the kernel chose, with a
/// descriptor.
#[test]
fn tasks_of_one_maker_send_datagrams_with_descriptors() {
    let maker = Maker::start().expect("a maker");
    let (read, write) = nix::unistd::pipe().expect("a pipe");
    let receiver = task(&maker, || {
        let socket = unix(SockType::Datagram).expect("a socket");
        bind(socket.as_raw_fd(), &UnixAddr::new_unnamed()).expect("autobind");
        let address: UnixAddr = getsockname(socket.as_raw_fd()).expect("a name");
        let name = address.as_abstract().expect("an abstract name");
        nix::unistd::write(&write, name).expect("write");
        let mut message = [0; 8];
        let (length, file) =
            passing::receive(&socket, &mut message, MsgFlags::empty()).expect("a message");
        assert_eq!(length, 2);
        let mut text = String::new();
        fs::File::from(file.expect("a descriptor"))
            .read_to_string(&mut text)
            .expect("read");
        assert_eq!(text, "within");
    });
    let mut name = [0; 64];
    let length = nix::unistd::read(&read, &mut name).expect("read");
    succeeds(task(&maker, || {
        let socket = unix(SockType::Datagram).expect("a socket");
        connect(socket.as_raw_fd(), &abstract_address(&name[..length])).expect("connect");
        let file = fds::memory_file(c"test", b"within").expect("a file");
        passing::send(&socket, b"hi", Some(file.as_fd())).expect("send");
    }));
    succeeds(receiver);
}

/// What stays the kernel's: pairs of streams and sequenced packets. They are connected for good.
#[test]
fn a_pair_reaches_no_abstract_name() {
    let outside: Vec<(SockType, Vec<u8>, OwnedFd)> = KINDS
        .into_iter()
        .map(|kind| {
            let name = name("pair");
            let socket = bound(kind, &abstract_address(&name));
            (kind, name, socket)
        })
        .collect();
    in_task(|| {
        for (kind, name, _socket) in &outside {
            let (one, two) =
                socketpair(AddressFamily::Unix, *kind, None, SockFlag::empty()).expect("a pair");
            let (fd, address) = (one.as_raw_fd(), abstract_address(name));
            assert_eq!(connect(fd, &address), Err(Errno::EISCONN), "{kind:?}");
            let nowhere = libc::sockaddr {
                sa_family: libc::AF_UNSPEC as libc::sa_family_t,
                sa_data: [0; 14],
            };
            // SAFETY: the kernel reads the local structure.
            let apart = unsafe { libc::connect(fd, &nowhere, size_of_val(&nowhere) as u32) };
            assert_eq!(Errno::result(apart), Err(Errno::EINVAL));
            let sent = sendto(fd, b"x", &address, MsgFlags::empty());
            if *kind == SockType::Stream {
                assert_eq!(sent, Err(Errno::EISCONN));
            } else {
                // The address is ignored: it arrives at the other end.
                assert_eq!(sent, Ok(1));
                let got = recv(two.as_raw_fd(), &mut [0; 4], MsgFlags::MSG_DONTWAIT);
                assert_eq!(got, Ok(1));
            }
            // A name of the host's can be taken, but nobody can connect to it.
            let taken = abstract_address(&[name.as_slice(), b"-taken"].concat());
            assert_eq!(bind(fd, &taken), Ok(()));
            let backlog = Backlog::new(1).expect("a backlog");
            assert_eq!(listen(&one, backlog), Err(Errno::EINVAL));
            drop(two);
            assert_eq!(connect(fd, &address), Err(Errno::EISCONN), "{kind:?}");
            assert_eq!(listen(&one, backlog), Err(Errno::EINVAL));
        }
    });
}

/// A socket that an outside process's connection brought in belongs to the host's network. It is
/// connected for good as well.
#[test]
fn an_accepted_socket_reaches_no_abstract_name() {
    let directory = tempfile::tempdir().expect("a directory");
    for (kind, path) in KINDS.into_iter().zip(["stream", "seqpacket"]) {
        let path = UnixAddr::new(&directory.path().join(path)).expect("a short path");
        let name = name("accepted");
        let _outside = bound(kind, &abstract_address(&name));
        let (ready, go) = nix::unistd::pipe().expect("a pipe");
        let maker = Maker::start().expect("a maker");
        let task = task(&maker, || {
            let listener = bound(kind, &path);
            nix::unistd::write(&go, b"!").expect("write");
            let server = accepted(&listener);
            // Until the client is gone.
            let _ = recv(server.as_raw_fd(), &mut [0], MsgFlags::empty());
            for _ in 0..2 {
                let address = abstract_address(&name);
                let fd = server.as_raw_fd();
                assert_eq!(connect(fd, &address), Err(Errno::EISCONN), "{kind:?}");
                let sent = sendto(fd, b"x", &address, MsgFlags::MSG_NOSIGNAL);
                let none = [Err(Errno::EISCONN), Err(Errno::EPIPE), Err(Errno::ENOTCONN)];
                assert!(none.contains(&sent), "{kind:?}: {sent:?}");
                assert_eq!(bind(fd, &abstract_address(b"any")), Err(Errno::EINVAL));
            }
        });
        nix::unistd::read(&ready, &mut [0]).expect("read");
        let client = unix(kind).expect("a socket");
        connect(client.as_raw_fd(), &path).expect("connect");
        drop(client);
        succeeds(task);
    }
}

#[test]
fn datagram_pairs_are_refused() {
    const UNIX: u64 = libc::AF_UNIX as u64;
    in_task(|| {
        for high in [0, HIGH_BIT, u64::MAX << 32] {
            for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
                for flags in [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK] {
                    let refused = raw_pair(UNIX | high, (kind | flags) as u64 | high);
                    assert_eq!(refused.map(drop), Err(Errno::EPROTONOSUPPORT));
                }
            }
            for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
                raw_pair(UNIX | high, kind as u64 | high).expect("a pair");
            }
        }
    });
}

/// The kernel takes domain, type and protocol as `int`: high halves are no way round.
#[test]
fn high_bits_are_no_bypass() {
    let name = name("high");
    let _outside = bound(SockType::Stream, &abstract_address(&name));
    in_task(|| {
        for high in [0, HIGH_BIT, 1 << 63, u64::MAX << 32] {
            let socket = raw_socket(
                libc::AF_UNIX as u64 | high,
                libc::SOCK_STREAM as u64 | high,
                high,
            )
            .expect("a socket");
            let connected = connect(socket.as_raw_fd(), &abstract_address(&name));
            assert_eq!(connected, Err(Errno::ECONNREFUSED), "{high:x}");
        }
    });
}

#[test]
fn other_families_stay_in_the_hosts_network() {
    let outside = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = outside.local_addr().expect("an address");
    in_task(|| {
        TcpStream::connect(address).expect("connect");
        socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::empty(),
            None,
        )
        .expect("a netlink socket");
    });
}

/// As in a jail: the task is in a user namespace below that of the maker's starter, and the maker
/// in one beside it.
#[test]
fn from_another_user_namespace() {
    const INSIDE: u32 = 1234;
    /// `SIOCGSKNS` (`netdevice(7)`'s family; include/uapi/linux/sockios.h): a socket's namespace.
    const GET_NAMESPACE: libc::Ioctl = 0x894c;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("inside");
    let maker = Maker::start().expect("a maker");
    succeeds(child(|| {
        let uid = getuid();
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER).expect("unshare");
        fs::write("/proc/self/uid_map", format!("{INSIDE} {uid} 1")).expect("a map");
        privileges::drop_all().expect("no rights");
        enter(&maker);
        let listener = bound(SockType::Stream, &UnixAddr::new(&path).expect("a path"));
        let status = nix::sys::stat::fstat(&listener).expect("fstat");
        assert_eq!(status.st_uid, INSIDE);
        let client = UnixStream::connect(&path).expect("connect");
        let server = accepted(&listener);
        for end in [server, client.into()] {
            let peer = getsockopt(&end, sockopt::PeerCredentials).expect("credentials");
            assert_eq!(peer.uid(), INSIDE);
            // SAFETY: the call touches no memory.
            let namespace = unsafe { libc::ioctl(end.as_raw_fd(), GET_NAMESPACE) };
            assert_eq!(Errno::result(namespace), Err(Errno::EPERM));
        }
    }));
    let file = fs::symlink_metadata(&path).expect("the socket's file");
    assert_eq!(file.uid(), getuid().as_raw());
}

/// Both programs of a task: neither weakens the other, whichever came first.
#[test]
fn beside_the_table() {
    let name = name("both");
    let _outside = bound(SockType::Stream, &abstract_address(&name));
    let maker = Maker::start().expect("a maker");
    for table_first in [true, false] {
        succeeds(child(|| {
            if table_first {
                Filter::new(STRICT).install();
            }
            enter(&maker);
            if !table_first {
                Filter::new(STRICT).install();
            }
            let socket = unix(SockType::Stream).expect("a socket");
            let connected = connect(socket.as_raw_fd(), &abstract_address(&name));
            assert_eq!(connected, Err(Errno::ECONNREFUSED));
            let (unix, packet) = (libc::AF_UNIX as u64, 10 | HIGH_BIT);
            assert_eq!(
                raw_socket(unix, packet, 0).map(drop),
                Err(Errno::EAFNOSUPPORT)
            );
            #[cfg(target_arch = "x86_64")]
            {
                let x32 = 0x4000_0000 | libc::SYS_socket;
                // SAFETY: the call touches no memory.
                let made = unsafe { libc::syscall(x32, libc::AF_UNIX, libc::SOCK_STREAM, 0) };
                assert_eq!(Errno::result(made), Err(Errno::ENOSYS));
            }
            let second = privileges::filter_with_listener(&notify::program());
            let errno = second
                .map(drop)
                .expect_err("one listener only")
                .raw_os_error();
            assert_eq!(errno, Some(libc::EBUSY));
        }));
    }
}
