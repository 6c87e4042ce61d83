//! The system calls that are refused besides where Landlock and the mediator are the whole jail.
//!
//! With bubblewrap these calls meet a namespace or a read-only mount. Landlock judges opening,
//! making, linking and removing files, signals and `ptrace(2)`, and nothing else that is done with
//! a path or a descriptor. What is left is carried out by the mediator ([`super::mediator`]) or refused
//! here. What asks for ptrace access to another process (`process_vm_readv`, `pidfd_getfd`,
//! `move_pages`, `perf_event_open` of a task, …) needs no rule: Landlock keeps it within the domain.

use agent_sandbox_base::plan::model::syscalls::{Answer, SyscallRule, When, always, int_is, on};
use agent_sandbox_base::policy::NetworkMode;

/// The rules that such a jail has besides those of a jail of bubblewrap's. There is no network of the jail's own: where it is
/// isolated, sockets of networks are refused; where it is filtered, all but those of TCP.
#[must_use]
pub const fn besides(network: NetworkMode) -> &'static [&'static [SyscallRule]] {
    match network {
        NetworkMode::Isolated => &[RULES, ISOLATED],
        NetworkMode::Filtered => &[RULES, FILTERED],
        NetworkMode::Open => &[RULES],
    }
}

// ioctl(2) of file systems: include/uapi/linux/{fs,fscrypt,fsverity,btrfs,msdos_fs}.h,
// fs/ext4/ext4.h; the numbers hold on 64-bit machines.

/// FS_IOC_SETFLAGS: chattr(1).
const SET_FLAGS: u64 = 0x4008_6602;
/// FS_IOC_SETVERSION and EXT4_IOC_SETVERSION.
const SET_VERSION: u64 = 0x4008_7602;
const EXT4_SET_VERSION: u64 = 0x4008_6604;
/// FS_IOC_FSSETXATTR.
const SET_XATTR: u64 = 0x401c_5820;
/// FS_IOC_SET_ENCRYPTION_POLICY.
const SET_ENCRYPTION: u64 = 0x800c_6613;
/// FS_IOC_ADD_ENCRYPTION_KEY, FS_IOC_REMOVE_ENCRYPTION_KEY.
const ADD_KEY: u64 = 0xc050_6617;
const REMOVE_KEY: u64 = 0xc040_6618;
/// FS_IOC_ENABLE_VERITY.
const ENABLE_VERITY: u64 = 0x4080_6685;
/// FAT_IOCTL_SET_ATTRIBUTES.
const FAT_SET_ATTRIBUTES: u64 = 0x4004_7211;
/// BTRFS_IOC_SUBVOL_SETFLAGS.
const BTRFS_SET_FLAGS: u64 = 0x4008_941a;
/// FIOASYNC: include/uapi/asm-generic/ioctls.h.
const FILE_ASYNC: u64 = 0x5452;
/// FIOSETOWN and SIOCSPGRP: include/uapi/asm-generic/sockios.h.
const FILE_SET_OWNER: u64 = 0x8901;
const SOCKET_SET_GROUP: u64 = 0x8902;

// fcntl(2): include/uapi/asm-generic/fcntl.h, include/uapi/linux/fcntl.h.

/// F_SETOWN, F_SETSIG and F_SETOWN_EX.
const SET_OWNER: u64 = 8;
const SET_SIGNAL: u64 = 10;
const SET_OWNER_EX: u64 = 15;
/// F_NOTIFY.
const NOTIFY: u64 = 1026;

/// include/linux/socket.h.
const AF_UNIX: u64 = 1;
/// include/linux/socket.h.
const AF_INET: u64 = 2;
/// include/linux/socket.h.
const AF_INET6: u64 = 10;
/// include/linux/socket.h.
const AF_NETLINK: u64 = 16;
/// include/uapi/linux/in.h.
const IPPROTO_IP: u64 = 0;
/// include/uapi/linux/in.h.
const IPPROTO_TCP: u64 = 6;
/// include/uapi/linux/in.h.
const IPPROTO_IPV6: u64 = 41;
/// include/uapi/asm-generic/socket.h.
const SOL_SOCKET: u64 = 1;
/// IP_OPTIONS: include/uapi/linux/in.h.
const IP_OPTIONS: u64 = 4;
/// IPV6_2292RTHDR, IPV6_2292PKTOPTIONS and IPV6_RTHDR: include/uapi/linux/in6.h.
const OLD_ROUTE: u64 = 5;
const OLD_OPTIONS: u64 = 6;
const ROUTE: u64 = 57;
/// SO_BINDTODEVICE and SO_BINDTOIFINDEX: include/uapi/asm-generic/socket.h.
const BIND_TO_DEVICE: u64 = 25;
const BIND_TO_INDEX: u64 = 62;
/// TCP_FASTOPEN_CONNECT: include/uapi/linux/tcp.h.
const FAST_OPEN_CONNECT: u64 = 30;
/// include/linux/net.h: the part of a socket's type that is not a flag.
const SOCK_TYPE_MASK: u64 = 0xf;
/// include/linux/socket.h.
const MSG_FASTOPEN: u64 = 0x2000_0000;

/// A local socket whose type is SOCK_DGRAM (2) or SOCK_RAW (3), of which the kernel makes a datagram
/// socket (net/unix/af_unix.c).
const LOCAL_DATAGRAMS: When = When::All(&[
    int_is(0, AF_UNIX),
    When::ArgMasked {
        index: 1,
        mask: SOCK_TYPE_MASK & !1,
        equals: 2,
        width32: true,
    },
]);

/// A socket of this family and of a type that is not SOCK_STREAM (1): SOCK_DGRAM and SOCK_RAW (2 and 3), and those from 4 to 7. There
/// are no others of these families; SOCK_PACKET (10) has a rule of its own.
macro_rules! no_stream {
    ($family:expr, $mask:expr, $equals:expr) => {
        When::All(&[
            int_is(0, $family),
            When::ArgMasked {
                index: 1,
                mask: $mask,
                equals: $equals,
                width32: true,
            },
        ])
    };
}

/// A stream of this family whose protocol is not TCP (0 is that as well).
macro_rules! no_tcp {
    ($family:expr) => {
        When::All(&[
            int_is(0, $family),
            When::ArgMasked {
                index: 1,
                mask: SOCK_TYPE_MASK,
                equals: 1,
                width32: true,
            },
            When::ArgNotIn {
                index: 2,
                values: &[0, IPPROTO_TCP],
                width32: true,
            },
        ])
    };
}

/// The types 2 and 3, and those from 4 to 7, by their bits.
const DATAGRAM_BITS: (u64, u64) = (0xe, 2);
const OTHER_BITS: (u64, u64) = (0xc, 4);

/// An option of a socket (`setsockopt(2)`).
macro_rules! option {
    ($level:expr, $name:expr) => {
        When::All(&[int_is(1, $level), int_is(2, $name)])
    };
}

/// F_SETFL (4) with O_ASYNC: include/uapi/asm-generic/fcntl.h.
const ASYNCHRONOUS: When = When::All(&[
    int_is(1, 4),
    When::ArgAnyBit {
        index: 2,
        bits: 0x2000,
        width32: true,
    },
]);

/// MSG_FASTOPEN in the flags of a call that sends.
const fn fast_open(index: u8) -> When {
    When::ArgAnyBit {
        index,
        bits: MSG_FASTOPEN,
        width32: true,
    }
}

const SYSTEM_V: &str = "System V objects belong to the whole node, and any process of the user may take them: the jail has no \
     such objects of its own here, and gets none of the node's; ENOSYS is the answer of a kernel built without them";
const QUEUES: &str =
    "POSIX message queues have names on the whole node; the jail has none of its own here";
const DATAGRAMS: &str = "each message names the socket that it goes to, in memory, which this filter cannot read: a datagram \
     socket reaches every service of the user";
const FAST_OPEN: &str = "connects without connect(2), which the mediator carries out; without the flag the connection takes \
     one more round trip";
const ATTRIBUTES: &str = "changes attributes of a file that is open for reading alone, also outside the writable directories";
const ENCRYPTION: &str = "adds and removes keys and policies of encrypted directories, which belong to the user and not to \
     the jail";
const WATCH: &str = "watches a directory by signals; inotify stays for watching one's own files";
const SIGNAL_BY_FILE: &str = "makes the kernel send signals to other processes of the user: Landlock scopes them from ABI 6 on, and \
     many kernels with it look at one process of a group alone";
const OWN_DOMAIN: &str = "a program that confines itself with Landlock would not be confined where the mediator carries calls out; \
     ENOSYS tells it that it cannot";
const SIGNAL_BY_TERMINAL: &str = "on a terminal it makes the kernel send signals to the group in the foreground, which may be \
     another job of the user's shell";
const NETWORK: &str = "`network.mode = \"isolated\"`: there is no network namespace here, so there is no socket of a network \
     either, not even for the loopback";

const PAST_FILTER: &str = "`network.mode = \"filtered\"`: each datagram names where it goes, in memory, which this filter cannot read; names are \
     asked for by TCP";
const OTHER_PROTOCOL: &str = "`network.mode = \"filtered\"`: the network's filter takes TCP, and Landlock knows no other protocol";
const LOCAL_NETLINK: &str = "`network.mode = \"filtered\"`: some netlink sockets send to processes of other users of this host; questions \
     about addresses and routes stay";
const ROUTED: &str = "`network.mode = \"filtered\"`: sends the first packet of a connection elsewhere than its address says";
const DEFERRED: &str =
    "`network.mode = \"filtered\"`: connects later than connect(2), which the mediator carries out";

/// Refused whatever the kernel's ABI.
const RULES: &[SyscallRule] = &[
    // Objects of the node that have no path.
    always("shmget", Answer::NoSys, SYSTEM_V),
    always("shmat", Answer::NoSys, SYSTEM_V),
    always("shmctl", Answer::NoSys, SYSTEM_V),
    always("semget", Answer::NoSys, SYSTEM_V),
    always("semop", Answer::NoSys, SYSTEM_V),
    always("semtimedop", Answer::NoSys, SYSTEM_V),
    always("semctl", Answer::NoSys, SYSTEM_V),
    always("msgget", Answer::NoSys, SYSTEM_V),
    always("msgsnd", Answer::NoSys, SYSTEM_V),
    always("msgrcv", Answer::NoSys, SYSTEM_V),
    always("msgctl", Answer::NoSys, SYSTEM_V),
    always("mq_open", Answer::NoSys, QUEUES),
    always("mq_unlink", Answer::NoSys, QUEUES),
    // Confinement that would not confine.
    always("landlock_create_ruleset", Answer::NoSys, OWN_DOMAIN),
    // Ways to another process that are no connect(2).
    on("socket", LOCAL_DATAGRAMS, Answer::NoProtocol, DATAGRAMS),
    on("socketpair", LOCAL_DATAGRAMS, Answer::NoProtocol, DATAGRAMS),
    on("sendto", fast_open(3), Answer::NoSupport, FAST_OPEN),
    on("sendmsg", fast_open(2), Answer::NoSupport, FAST_OPEN),
    on("sendmmsg", fast_open(3), Answer::NoSupport, FAST_OPEN),
    // Files that are open for reading.
    on("ioctl", int_is(1, SET_FLAGS), Answer::Perm, ATTRIBUTES),
    on("ioctl", int_is(1, SET_VERSION), Answer::Perm, ATTRIBUTES),
    on(
        "ioctl",
        int_is(1, EXT4_SET_VERSION),
        Answer::Perm,
        ATTRIBUTES,
    ),
    on("ioctl", int_is(1, SET_XATTR), Answer::Perm, ATTRIBUTES),
    on("ioctl", int_is(1, ENABLE_VERITY), Answer::Perm, ATTRIBUTES),
    on(
        "ioctl",
        int_is(1, FAT_SET_ATTRIBUTES),
        Answer::Perm,
        ATTRIBUTES,
    ),
    on(
        "ioctl",
        int_is(1, BTRFS_SET_FLAGS),
        Answer::Perm,
        ATTRIBUTES,
    ),
    on("ioctl", int_is(1, SET_ENCRYPTION), Answer::Perm, ENCRYPTION),
    on("ioctl", int_is(1, ADD_KEY), Answer::Perm, ENCRYPTION),
    on("ioctl", int_is(1, REMOVE_KEY), Answer::Perm, ENCRYPTION),
    always(
        "file_setattr",
        Answer::NoSys,
        "changes the attributes of any file by its path, and Landlock does not look at it",
    ),
    on("fcntl", int_is(1, NOTIFY), Answer::Perm, WATCH),
    // Other processes.
    always(
        "process_mrelease",
        Answer::Perm,
        "frees the memory of a dying process, of which the kernel does not ask whose it is",
    ),
    // Signals that the kernel sends for a descriptor.
    on("fcntl", int_is(1, SET_OWNER), Answer::Perm, SIGNAL_BY_FILE),
    on(
        "fcntl",
        int_is(1, SET_OWNER_EX),
        Answer::Perm,
        SIGNAL_BY_FILE,
    ),
    on("fcntl", int_is(1, SET_SIGNAL), Answer::Perm, SIGNAL_BY_FILE),
    on(
        "ioctl",
        int_is(1, FILE_SET_OWNER),
        Answer::Perm,
        SIGNAL_BY_FILE,
    ),
    on(
        "ioctl",
        int_is(1, SOCKET_SET_GROUP),
        Answer::Perm,
        SIGNAL_BY_FILE,
    ),
    on("fcntl", ASYNCHRONOUS, Answer::Perm, SIGNAL_BY_TERMINAL),
    on(
        "ioctl",
        int_is(1, FILE_ASYNC),
        Answer::Perm,
        SIGNAL_BY_TERMINAL,
    ),
];

/// Refused where the policy isolates the jail from the network.
const ISOLATED: &[SyscallRule] = &[
    on("socket", int_is(0, AF_INET), Answer::NoFamily, NETWORK),
    on("socket", int_is(0, AF_INET6), Answer::NoFamily, NETWORK),
    on("socket", int_is(0, AF_NETLINK), Answer::NoFamily, NETWORK),
];

/// Refused where the policy filters the jail's network.
const FILTERED: &[SyscallRule] = &[
    on(
        "socket",
        no_stream!(AF_INET, DATAGRAM_BITS.0, DATAGRAM_BITS.1),
        Answer::NoProtocol,
        PAST_FILTER,
    ),
    on(
        "socket",
        no_stream!(AF_INET, OTHER_BITS.0, OTHER_BITS.1),
        Answer::NoProtocol,
        OTHER_PROTOCOL,
    ),
    on(
        "socket",
        no_stream!(AF_INET6, DATAGRAM_BITS.0, DATAGRAM_BITS.1),
        Answer::NoProtocol,
        PAST_FILTER,
    ),
    on(
        "socket",
        no_stream!(AF_INET6, OTHER_BITS.0, OTHER_BITS.1),
        Answer::NoProtocol,
        OTHER_PROTOCOL,
    ),
    on(
        "socket",
        no_tcp!(AF_INET),
        Answer::NoProtocol,
        OTHER_PROTOCOL,
    ),
    on(
        "socket",
        no_tcp!(AF_INET6),
        Answer::NoProtocol,
        OTHER_PROTOCOL,
    ),
    on(
        "socket",
        When::All(&[
            int_is(0, AF_NETLINK),
            When::ArgNotIn {
                index: 2,
                values: &[0],
                width32: true,
            },
        ]),
        Answer::NoFamily,
        LOCAL_NETLINK,
    ),
    on(
        "setsockopt",
        option!(IPPROTO_IP, IP_OPTIONS),
        Answer::NoSupport,
        ROUTED,
    ),
    on(
        "setsockopt",
        option!(IPPROTO_IPV6, OLD_ROUTE),
        Answer::NoSupport,
        ROUTED,
    ),
    on(
        "setsockopt",
        option!(IPPROTO_IPV6, OLD_OPTIONS),
        Answer::NoSupport,
        ROUTED,
    ),
    on(
        "setsockopt",
        option!(IPPROTO_IPV6, ROUTE),
        Answer::NoSupport,
        ROUTED,
    ),
    on(
        "setsockopt",
        option!(SOL_SOCKET, BIND_TO_DEVICE),
        Answer::NoSupport,
        ROUTED,
    ),
    on(
        "setsockopt",
        option!(SOL_SOCKET, BIND_TO_INDEX),
        Answer::NoSupport,
        ROUTED,
    ),
    on(
        "setsockopt",
        option!(IPPROTO_TCP, FAST_OPEN_CONNECT),
        Answer::NoSupport,
        DEFERRED,
    ),
];

#[cfg(test)]
mod tests;
