//! The rules of a jail that Landlock makes: each refuses what the kernel would do, and what programs
//! need beside it works.

use std::ffi::c_int;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use crate::harness::{
    FILTERED, HIGH_BIT, ISOLATED, LANDLOCK, Outcome, STRICT, after, call, declare, errno, pointer,
    under, unsigned,
};

const ALL: [agent_sandbox::plan::build::syscalls::Switches; 3] = [LANDLOCK, ISOLATED, FILTERED];

fn socket(family: c_int, kind: c_int) -> i64 {
    call(libc::SYS_socket, &[unsigned(family), unsigned(kind), 0])
}

#[test]
fn local_datagram_sockets_are_not_to_be_had() {
    for kind in [
        libc::SOCK_DGRAM,
        libc::SOCK_RAW,
        libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
    ] {
        let one = || socket(libc::AF_UNIX, kind);
        let pair = || {
            let mut two = [0; 2];
            let arguments = [unsigned(libc::AF_UNIX), unsigned(kind), 0];
            let [family, kind, protocol] = arguments;
            let two = std::ptr::from_mut(&mut two) as u64;
            call(libc::SYS_socketpair, &[family, kind, protocol, two])
        };
        assert!(matches!(under(None, one), Outcome::Returned(0..)));
        assert_eq!(under(None, pair), Outcome::Returned(0));
        for switches in ALL {
            assert_eq!(under(switches, one), errno(libc::EPROTONOSUPPORT));
            assert_eq!(under(switches, pair), errno(libc::EPROTONOSUPPORT));
        }
    }
    let rust = || match UnixDatagram::unbound() {
        Ok(_) => 0,
        Err(error) => -i64::from(error.raw_os_error().unwrap_or(0)),
    };
    assert_eq!(under(LANDLOCK, rust), errno(libc::EPROTONOSUPPORT));
}

/// The mediator would carry out what such a domain forbids.
#[test]
fn no_program_confines_itself_with_landlock_in_vain() {
    const VERSION: u64 = 1;
    let abi = || call(libc::SYS_landlock_create_ruleset, &[0, 0, VERSION]);
    if matches!(under(None, abi), Outcome::Returned(..=0)) {
        declare("this kernel has no Landlock");
    }
    for switches in ALL {
        assert_eq!(under(switches, abi), errno(libc::ENOSYS));
    }
}

#[test]
fn local_streams_and_packets_work() {
    let works = || {
        let mut streams = UnixStream::pair().expect("a pair");
        streams.0.write_all(b"x").expect("room");
        let mut byte = [0];
        streams.1.read_exact(&mut byte).expect("a byte");
        let packets: (OwnedFd, OwnedFd) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .expect("a pair");
        let sent = nix::sys::socket::send(
            packets.0.as_raw_fd(),
            b"yy",
            nix::sys::socket::MsgFlags::MSG_NOSIGNAL,
        );
        i64::from(byte == *b"x") + i64::try_from(sent.expect("room")).expect("two")
    };
    for switches in ALL {
        assert_eq!(under(switches, works), Outcome::Returned(3));
    }
}

#[test]
fn isolated_means_no_network_at_all() {
    for family in [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK] {
        let kind = match family {
            libc::AF_NETLINK => libc::SOCK_RAW,
            _ => libc::SOCK_STREAM,
        };
        let one = || socket(family, kind);
        assert_eq!(under(ISOLATED, one), errno(libc::EAFNOSUPPORT));
        let plain = under(None, one);
        match (plain, under(LANDLOCK, one)) {
            (Outcome::Returned(0..), Outcome::Returned(0..)) => {}
            (plain, fenced) => {
                assert_eq!(plain, fenced);
                declare("this kernel lacks a family of sockets by itself");
            }
        }
    }
}

/// Every socket that is no stream of TCP, whatever it is called, and what makes a connection go elsewhere.
#[test]
fn filtered_means_tcp_alone() {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    for family in [libc::AF_INET, libc::AF_INET6] {
        for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET, 6] {
            for kind in [
                unsigned(kind),
                unsigned(kind | flags),
                unsigned(kind) | HIGH_BIT,
            ] {
                for protocol in [0, unsigned(libc::IPPROTO_UDP), unsigned(libc::IPPROTO_ICMP)] {
                    let one = || call(libc::SYS_socket, &[unsigned(family), kind, protocol]);
                    assert_eq!(under(FILTERED, one), errno(libc::EPROTONOSUPPORT));
                }
            }
        }
        for protocol in [libc::IPPROTO_SCTP, libc::IPPROTO_MPTCP, 256] {
            let kind = unsigned(libc::SOCK_STREAM | flags);
            let one = || {
                call(
                    libc::SYS_socket,
                    &[unsigned(family), kind, unsigned(protocol)],
                )
            };
            assert_eq!(under(FILTERED, one), errno(libc::EPROTONOSUPPORT));
        }
    }
    let datagrams = || socket(libc::AF_INET, libc::SOCK_DGRAM);
    assert!(matches!(under(LANDLOCK, datagrams), Outcome::Returned(0..)));
    // NETLINK_ROUTE answers questions; NETLINK_USERSOCK reaches other users' processes.
    let netlink = |protocol| {
        move || {
            call(
                libc::SYS_socket,
                &[
                    unsigned(libc::AF_NETLINK),
                    unsigned(libc::SOCK_RAW),
                    protocol,
                ],
            )
        }
    };
    assert!(matches!(
        under(FILTERED, netlink(0)),
        Outcome::Returned(0..)
    ));
    assert!(matches!(
        under(LANDLOCK, netlink(2)),
        Outcome::Returned(0..)
    ));
    assert_eq!(under(FILTERED, netlink(2)), errno(libc::EAFNOSUPPORT));
    // A source route by way of 9.9.9.9; another device; a connection that begins with the first byte that is sent.
    let route = [libc::IPOPT_NOP, 131, 7, 4, 9, 9, 9, 9];
    let on = 1_i32.to_ne_bytes();
    let options: [(c_int, c_int, &[u8]); 3] = [
        (libc::IPPROTO_IP, libc::IP_OPTIONS, &route),
        (libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"lo\0"),
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, &on),
    ];
    for (level, name, value) in options {
        let set = || {
            let one = socket(libc::AF_INET, libc::SOCK_STREAM);
            let length = value.len() as u64;
            let arguments = [
                one as u64,
                unsigned(level),
                unsigned(name),
                value.as_ptr() as u64,
                length,
            ];
            call(libc::SYS_setsockopt, &arguments)
        };
        if under(LANDLOCK, set) != Outcome::Returned(0) {
            declare("this kernel refuses an option by itself");
        }
        assert_eq!(
            under(FILTERED, set),
            errno(libc::EOPNOTSUPP),
            "{level} {name}"
        );
    }
}

/// Sends with an address and `flags` on a fresh TCP socket.
fn send_to(port: u16, flags: c_int) -> i64 {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(std::net::Ipv4Addr::LOCALHOST).to_be(),
        },
        sin_zero: [0; 8],
    };
    let socket = socket(libc::AF_INET, libc::SOCK_STREAM);
    let length = size_of::<libc::sockaddr_in>() as u64;
    let message = pointer(b"hello");
    let arguments = [
        socket as u64,
        message,
        5,
        unsigned(flags | libc::MSG_NOSIGNAL),
        pointer(&address),
        length,
    ];
    call(libc::SYS_sendto, &arguments)
}

#[test]
fn nothing_is_connected_by_sending() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    if under(None, || send_to(port, libc::MSG_FASTOPEN)) != Outcome::Returned(5) {
        declare("this kernel has TCP Fast Open switched off by itself");
    }
    let fast = || send_to(port, libc::MSG_FASTOPEN);
    for switches in [LANDLOCK, FILTERED] {
        assert_eq!(under(switches, fast), errno(libc::EOPNOTSUPP));
    }
    assert_eq!(under(LANDLOCK, || send_to(port, 0)), errno(libc::EPIPE));
    let connected = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        i64::from(stream.write_all(b"x").is_ok())
    };
    assert_eq!(under(LANDLOCK, connected), Outcome::Returned(1));
}

#[test]
fn objects_of_the_node_answer_as_if_the_kernel_had_none() {
    let private = unsigned(libc::IPC_PRIVATE);
    let calls: [(i64, [u64; 3]); 5] = [
        (libc::SYS_shmget, [private, 4096, 0o600]),
        (libc::SYS_semget, [private, 1, 0o600]),
        (libc::SYS_msgget, [private, 0o600, 0]),
        (libc::SYS_mq_open, [pointer(c"none"), 0, 0]),
        (libc::SYS_mq_unlink, [pointer(c"none"), 0, 0]),
    ];
    for (number, arguments) in calls {
        let one = || call(number, &arguments);
        assert_eq!(under(LANDLOCK, one), errno(libc::ENOSYS), "{number}");
    }
    // They outlive their maker, so the one that shows that they are there is removed.
    let made = || {
        let id = call(libc::SYS_shmget, &[private, 4096, 0o600]);
        call(libc::SYS_shmctl, &[id as u64, unsigned(libc::IPC_RMID), 0])
    };
    if under(None, made) != Outcome::Returned(0) {
        declare("this kernel has no System V objects by itself");
    }
}

/// A directory on a file system with attributes and leases: the tester's home.
fn on_disk() -> tempfile::TempDir {
    let home = std::env::var_os("HOME").expect("HOME");
    tempfile::tempdir_in(home).expect("a directory")
}

#[test]
fn a_file_that_is_open_for_reading_stays_as_it_is() {
    const FS_IOC_GETFLAGS: u64 = 0x8008_6601;
    const FS_IOC_SETFLAGS: u64 = 0x4008_6602;
    let directory = on_disk();
    let path = directory.path().join("file");
    fs::write(&path, "x").expect("a file");
    let file = File::open(&path).expect("it is there");
    let descriptor = unsigned(file.as_raw_fd());
    let flags = |change: u64| {
        let mut flags = 0_u64;
        let at = std::ptr::from_mut(&mut flags) as u64;
        let got = call(libc::SYS_ioctl, &[descriptor, FS_IOC_GETFLAGS, at]);
        if got < 0 {
            return got;
        }
        // FS_NODUMP_FL, which its owner may set.
        flags ^= change;
        let at = std::ptr::from_mut(&mut flags) as u64;
        call(libc::SYS_ioctl, &[descriptor, FS_IOC_SETFLAGS, at])
    };
    if under(None, || flags(0x40)) != Outcome::Returned(0) {
        declare("this file system has no flags");
        let set = || call(libc::SYS_ioctl, &[descriptor, FS_IOC_SETFLAGS, 0]);
        assert_eq!(under(LANDLOCK, set), errno(libc::EPERM));
        return;
    }
    assert_eq!(under(LANDLOCK, || flags(0x40)), errno(libc::EPERM));
}

#[test]
fn leases_and_signals_by_descriptors() {
    let directory = on_disk();
    let path = directory.path().join("file");
    fs::write(&path, "x").expect("a file");
    // Opened in the child: a lease belongs to the open file, and would stay with the parent's.
    let fcntl = |command: c_int, value: u64| {
        let path = &path;
        move || {
            let file = File::open(path).expect("it is there");
            let descriptor = unsigned(file.as_raw_fd());
            call(libc::SYS_fcntl, &[descriptor, unsigned(command), value])
        }
    };
    let lease = fcntl(libc::F_SETLEASE, unsigned(libc::F_RDLCK));
    if under(None, lease) != Outcome::Returned(0) {
        declare("this file system has no leases");
    }
    let own = fcntl(libc::F_SETOWN, u64::from(std::process::id()));
    let told = fcntl(libc::F_SETFL, unsigned(libc::O_ASYNC));
    for switches in ALL {
        assert_eq!(under(switches, lease), errno(libc::EPERM));
        assert_eq!(under(switches, own), errno(libc::EPERM));
        assert_eq!(under(switches, told), errno(libc::EPERM));
        for (command, value) in [
            (libc::F_GETFD, 0),
            (libc::F_SETFD, unsigned(libc::FD_CLOEXEC)),
            (libc::F_SETFL, unsigned(libc::O_NONBLOCK)),
        ] {
            let plain = fcntl(command, value);
            assert!(matches!(under(switches, plain), Outcome::Returned(0..)));
        }
        let lock = || {
            let file = File::options().write(true).open(&path).expect("writable");
            i64::from(file.try_lock().is_ok())
        };
        assert_eq!(under(switches, lock), Outcome::Returned(1));
    }
}

/// A lease holds up whoever opens the file outside, until the kernel breaks it.
#[test]
fn leases_are_refused() {
    let directory = on_disk();
    let path = directory.path().join("file");
    fs::write(&path, "x").expect("a file");
    let lease = || {
        let file = File::open(&path).expect("it is there");
        let descriptor = unsigned(file.as_raw_fd());
        let arguments = [
            descriptor,
            unsigned(libc::F_SETLEASE),
            unsigned(libc::F_RDLCK),
        ];
        call(libc::SYS_fcntl, &arguments)
    };
    assert_eq!(under(STRICT, lease), errno(libc::EPERM));
}

#[test]
fn programs_start_and_namespaces_do_not() {
    let work = || {
        let thread = std::thread::spawn(|| 1).join().unwrap_or(0);
        let spawned = Command::new("true").status();
        let forked = Command::new("true").current_dir("/").status();
        thread
            + i64::from(spawned.is_ok_and(|status| status.success()))
            + i64::from(forked.is_ok_and(|status| status.success()))
    };
    for switches in ALL {
        assert_eq!(under(switches, work), Outcome::Returned(3));
        let unshare = || call(libc::SYS_unshare, &[unsigned(libc::CLONE_NEWUSER)]);
        assert_eq!(under(switches, unshare), errno(libc::EPERM));
    }
}

/// The C library finds interfaces by a socket of whatever family it gets.
#[test]
fn interfaces_have_numbers() {
    // SAFETY: a name of the caller's, which the call only reads.
    let loopback = || i64::from(unsafe { libc::if_nametoindex(c"lo".as_ptr()) });
    let plain = under(None, loopback);
    assert_ne!(plain, Outcome::Returned(0), "a host without a loopback");
    assert_eq!(after(Some(LANDLOCK), || (), |()| loopback()), plain);
}
