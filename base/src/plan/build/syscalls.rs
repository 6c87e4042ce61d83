//! The system calls that the jail refuses: each with its condition, its answer and its reason.
//!
//! This is a deny list. Compilers, MPI libraries, CUDA and agents use a large and growing part of
//! the kernel's interface, and a list of permitted calls would break them in ways that no user
//! could explain. What stands here is refused because it reaches past the jail (mounts, namespaces,
//! keyrings, the user's terminal), because its effect outlives the jail (set-user-ID files), because
//! it would get round the filter itself (io_uring), or because no program of an ordinary user needs it while it has repeatedly been a way into the
//! kernel. `docs/reference/syscalls.md` shows this table; a test keeps the two equal.
//!
//! The table is pure and knows names only; `seccomp` turns them into numbers.

mod set_id;

use crate::plan::model::syscalls::{Answer, LOW_HALF, SyscallRule, When, always, int_is, on};

/// What decides about the table: the policy, and what makes the jail.
#[derive(Clone, Copy, Debug)]
pub struct Switches {
    /// The jail may create namespaces and mount inside them (`[jail] nested`).
    pub nested: bool,
    /// The jail may use the kernel's keyrings (`[jail] keyctl`).
    pub keyctl: bool,
    /// A mediator gives directories the set-group-ID bit, and nothing else.
    pub mediated: bool,
    /// Rules that the backend adds.
    pub besides: &'static [&'static [SyscallRule]],
}

/// The rules for `switches`, in the order of the documentation. No call has two answers.
#[must_use]
pub fn rules(switches: Switches) -> Vec<SyscallRule> {
    let mut rules = [ALWAYS_REFUSED, set_id::RULES].concat();
    if !switches.mediated {
        rules.extend_from_slice(set_id::WITHOUT_MEDIATOR);
    }
    rules.extend_from_slice(match switches.nested {
        true => REFUSED_IF_NESTED,
        false => REFUSED_UNLESS_NESTED,
    });
    if !switches.keyctl {
        rules.extend_from_slice(REFUSED_UNLESS_KEYCTL);
    }
    rules.extend(switches.besides.iter().copied().flatten().cloned());
    rules
}

// Numbers of the kernel's interface, equal on x86-64 and aarch64 (`seccomp` tests those
// that libc knows). Flags of clone(2), unshare(2): include/uapi/linux/sched.h.

/// A new cgroup namespace.
const CLONE_NEWCGROUP: u64 = 0x0200_0000;
/// A new time namespace; for unshare only, in clone the bit belongs to the exit signal.
const CLONE_NEWTIME: u64 = 0x0000_0080;
/// New mount, cgroup, UTS, IPC, user, PID and network namespaces.
const CLONE_NEW_NAMESPACES: u64 =
    0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000;

/// include/uapi/asm-generic/ioctls.h.
const TIOCSTI: u64 = 0x5412;
/// include/uapi/asm-generic/ioctls.h.
const TIOCLINUX: u64 = 0x541c;
/// include/uapi/asm-generic/ioctls.h.
const TIOCCONS: u64 = 0x541d;
/// include/uapi/asm-generic/ioctls.h.
const TIOCSETD: u64 = 0x5423;

/// The ioctls of btrfs that take a `struct btrfs_ioctl_vol_args` or the second version of it, both of
/// 4096 bytes; the last eight bits number them. include/uapi/linux/btrfs.h.
const BTRFS_VOLUMES: u64 = 0x5000_9400;

/// The bits of a command of ioctl(2) that are its type and number, and those that say which way data goes:
/// include/uapi/asm-generic/ioctl.h. Sizes between them differ by a client's version.
const TYPE_AND_NUMBER: u64 = 0xffff;
const DIRECTION: u64 = 0xc000_0000;

/// One of these flags of clone(2) or unshare(2).
const fn makes(bits: u64) -> When {
    When::ArgAnyBit {
        index: 0,
        bits,
        width32: true,
    }
}

/// A command whose bits of this mask are these.
const fn command(mask: u64, equals: u64) -> When {
    When::ArgMasked {
        index: 1,
        mask,
        equals,
        width32: true,
    }
}

/// BEEGFS_IOC_CREATE_FILE, _V2, _V3 and MKFILE_STRIPEHINTS: _IOW('f', 21, 28, 29, 27), BeeGFS 8, beegfs_client.h. The first has the type and
/// number of FS_IOC_GET_ENCRYPTION_POLICY, which asks and is refused as well.
const BEEGFS: &str = "BeeGFS makes files and links by the number of a directory, in any of the user's, whatever is mounted how";
/// LL_IOC_LMV_SETSTRIPE (240), LL_IOC_REMOVE_ENTRY and LL_IOC_RMFID (242): Lustre 2.16, lustre_user.h.
const LUSTRE: &str = "Lustre makes directories, and removes files by name or number, through what is open for reading alone, also on a read-only mount; `lfs mkdir` and `lfs rmfid` work outside";
/// OCFS2_IOC_REFLINK: fs/ocfs2/ocfs2_ioctl.h.
const OCFS2_REFLINK: u64 = 0x4018_6f04;
const OCFS2: &str = "OCFS2 copies files by path";
/// VIOC_SYSCALL and VIOC_SYSCALL32 without the size: OpenAFS 1.8, src/afs/LINUX/osi_ioctl.c.
const VIOC_SYSCALL: u64 = 0x4000_4301;
const AFS: &str = "OpenAFS's own calls, by a file in `/proc`: they give out the user's tokens and change access lists";

/// Personalities that change no memory protection: Linux (0), a 32-bit `uname` (8), the two with a
/// 2.6 version number (0x20000), each without and with ADDR_NO_RANDOMIZE (0x40000), and the query
/// (0xffffffff). include/uapi/linux/personality.h.
const HARMLESS_PERSONALITIES: &[u64] = &[
    0x0000_0000,
    0x0000_0008,
    0x0002_0000,
    0x0002_0008,
    0x0004_0000,
    0x0004_0008,
    0x0006_0000,
    0x0006_0008,
    0xffff_ffff,
];

/// AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: include/linux/socket.h.
const SOCKET_FAMILIES: &[u64] = &[1, 2, 10, AF_NETLINK];
/// include/linux/socket.h.
const AF_NETLINK: u64 = 16;
/// include/uapi/linux/netlink.h.
const NETLINK_XFRM: u64 = 6;
/// include/uapi/linux/netlink.h.
const NETLINK_NETFILTER: u64 = 12;
/// include/linux/net.h: the part of a socket's type that is not a flag, and the type that the kernel
/// turns into AF_PACKET whatever the family says.
const SOCK_TYPE_MASK: u64 = 0xf;
/// include/linux/net.h.
const SOCK_PACKET: u64 = 10;

const IO_URING: &str = "io_uring carries out other calls without passing this filter, and has been a steady source of \
     kernel holes; libraries fall back to ordinary calls";
const KEXEC: &str = "loads another kernel";
const MODULE: &str = "changes the code of the running kernel";
const SWAP: &str = "changes the memory of the whole node";
const CLOCK: &str = "sets the clock of the whole node";
const QUOTA: &str = "reads and sets the disk quotas of every user, the site's business; `quota` and `lfs quota` for \
     network file systems do not use it";
const PORTS: &str = "gives access to the hardware's I/O ports";
const OBSOLETE: &str = "obsolete: no current C library calls it, and old code in the kernel is where holes stay unseen";
const FAMILY: &str = "only unix, IPv4, IPv6 and netlink sockets are for programs on a cluster; the other families reach past \
     the jail (vsock: the hypervisor) or load rarely used kernel code (AF_ALG, RDS, TIPC, Bluetooth, …)";
const OLD_PACKET: &str = "the old name of AF_PACKET, which reads the node's raw network traffic";
const PACKET_FILTER: &str = "configures the kernel's packet filter (nftables): useless without privilege, and from a nested \
     namespace the most used way to take over the kernel";
const IPSEC: &str = "configures the kernel's IPsec: useless without privilege, and from a nested namespace a known way to \
     take over the kernel";

/// PERF_FLAG_PID_CGROUP: include/uapi/linux/perf_event.h.
const PERF_FLAG_PID_CGROUP: u64 = 4;
const PROFILE: &str = "where `kernel.perf_event_paranoid` is 0 or less, samples registers and stacks of whatever runs on a \
     processor, other users' programs and those outside of the jail; programs of the jail can be measured";

/// Levels of options: SOL_IP and SOL_IPV6, include/linux/socket.h.
const SOL_IP: u64 = 0;
const SOL_IPV6: u64 = 41;
const OLD_FILTER: &str = "configures the kernel's older packet filters (iptables, arptables, ebtables): from a nested namespace a \
     known way to take over the kernel";

/// F_SETLEASE and F_SETDELEG (Linux 6.19): include/uapi/linux/fcntl.h.
const SET_LEASE: u64 = 1024;
const SET_DELEGATION: u64 = 1040;
const LEASE: &str = "holds up the programs outside that open the same file";

/// Refused whatever the policy says.
const ALWAYS_REFUSED: &[SyscallRule] = &[
    // Ways round the filter.
    always("io_uring_setup", Answer::NoSys, IO_URING),
    always("io_uring_enter", Answer::NoSys, IO_URING),
    always("io_uring_register", Answer::NoSys, IO_URING),
    always("clone3", Answer::NoSys, CLONE3),
    // Its kernel judges the first argument that the call began with, and carries out what a tracer put in its place
    // (`syscall_get_arguments` in arch/arm64/include/asm/syscall.h: `orig_x0`).
    #[cfg(target_arch = "aarch64")]
    always(
        "ptrace",
        Answer::Perm,
        "on aarch64 a tracer changes the first argument of a call behind the filter",
    ),
    // The user's terminal, which the jail shares.
    on(
        "ioctl",
        int_is(1, TIOCSTI),
        Answer::Perm,
        "TIOCSTI types into the user's terminal: the shell outside would run it",
    ),
    on(
        "ioctl",
        int_is(1, TIOCLINUX),
        Answer::Perm,
        "TIOCLINUX pastes into the user's console: the shell outside would run it",
    ),
    on(
        "ioctl",
        int_is(1, TIOCCONS),
        Answer::Perm,
        "TIOCCONS diverts the messages of the node's console",
    ),
    on(
        "ioctl",
        int_is(1, TIOCSETD),
        Answer::Perm,
        "TIOCSETD changes how the user's terminal treats its line, also after the jail has ended, and \
         loads rarely used kernel code",
    ),
    always("vhangup", Answer::Perm, "hangs up the user's terminal"),
    on("fcntl", int_is(1, SET_LEASE), Answer::Perm, LEASE),
    on("fcntl", int_is(1, SET_DELEGATION), Answer::Perm, LEASE),
    // Files past the mounts.
    always(
        "open_by_handle_at",
        Answer::Perm,
        "opens files by number instead of by path, and so files that the jail does not show",
    ),
    on(
        "ioctl",
        When::ArgMasked {
            index: 1,
            mask: LOW_HALF & !0xff,
            equals: BTRFS_VOLUMES,
            width32: true,
        },
        Answer::Perm,
        "BTRFS_IOC_SNAP_CREATE and its kin make, copy and remove whole subvolumes of btrfs: before Linux 6.8 \
         any open file was enough to copy its subvolume, with all that the jail hides there",
    ),
    on(
        "ioctl",
        command(TYPE_AND_NUMBER | DIRECTION, 0x4000_6615),
        Answer::Perm,
        BEEGFS,
    ),
    on(
        "ioctl",
        command(TYPE_AND_NUMBER | DIRECTION, 0x4000_661b),
        Answer::Perm,
        BEEGFS,
    ),
    // 28 and 29.
    on(
        "ioctl",
        command(TYPE_AND_NUMBER & !1 | DIRECTION, 0x4000_661c),
        Answer::Perm,
        BEEGFS,
    ),
    // 240 and 242.
    on(
        "ioctl",
        command(TYPE_AND_NUMBER & !2, 0x66f0),
        Answer::Perm,
        LUSTRE,
    ),
    on("ioctl", int_is(1, OCFS2_REFLINK), Answer::Perm, OCFS2),
    // With an argument of four or eight bytes.
    on(
        "ioctl",
        command(LOW_HALF & !0x000c_0000, VIOC_SYSCALL),
        Answer::Perm,
        AFS,
    ),
    // Sockets past the network policy.
    on(
        "socket",
        When::ArgNotIn {
            index: 0,
            values: SOCKET_FAMILIES,
            width32: true,
        },
        Answer::NoFamily,
        FAMILY,
    ),
    on(
        "socket",
        When::ArgMasked {
            index: 1,
            mask: SOCK_TYPE_MASK,
            equals: SOCK_PACKET,
            width32: true,
        },
        Answer::NoFamily,
        OLD_PACKET,
    ),
    on(
        "socket",
        When::All(&[int_is(0, AF_NETLINK), int_is(2, NETLINK_NETFILTER)]),
        Answer::NoFamily,
        PACKET_FILTER,
    ),
    on(
        "socket",
        When::All(&[int_is(0, AF_NETLINK), int_is(2, NETLINK_XFRM)]),
        Answer::NoFamily,
        IPSEC,
    ),
    on(
        "socketpair",
        When::ArgNotIn {
            index: 0,
            values: SOCKET_FAMILIES,
            width32: true,
        },
        Answer::NoFamily,
        FAMILY,
    ),
    on(
        "socketpair",
        When::ArgMasked {
            index: 1,
            mask: SOCK_TYPE_MASK,
            equals: SOCK_PACKET,
            width32: true,
        },
        Answer::NoFamily,
        OLD_PACKET,
    ),
    // Programs outside.
    on(
        "perf_event_open",
        int_is(1, LOW_HALF),
        Answer::Perm,
        PROFILE,
    ),
    on(
        "perf_event_open",
        When::ArgAnyBit {
            index: 4,
            bits: PERF_FLAG_PID_CGROUP,
            width32: true,
        },
        Answer::Perm,
        PROFILE,
    ),
    // Kernel interfaces that a jailed program has no use for.
    always(
        "bpf",
        Answer::Perm,
        "loads programs into the kernel; ordinary users may not, and should not begin here",
    ),
    always(
        "userfaultfd",
        Answer::Perm,
        "holds the kernel in the middle of a call for as long as the caller likes: the helper of most kernel exploits",
    ),
    always(
        "fanotify_init",
        Answer::Perm,
        "watches the file accesses of other programs; inotify stays for watching one's own files",
    ),
    always(
        "kcmp",
        Answer::Perm,
        "tells which kernel objects two processes share, and with that how the kernel's memory is ordered",
    ),
    on(
        "personality",
        When::ArgNotIn {
            index: 0,
            values: HARMLESS_PERSONALITIES,
            width32: true,
        },
        Answer::Perm,
        "other personalities switch off memory protection (executable data, a mapped page 0); asking, \
         `setarch`'s uname modes and debuggers' fixed addresses stay",
    ),
    // The node.
    always("kexec_load", Answer::Perm, KEXEC),
    always("kexec_file_load", Answer::Perm, KEXEC),
    always("init_module", Answer::Perm, MODULE),
    always("finit_module", Answer::Perm, MODULE),
    always("delete_module", Answer::Perm, MODULE),
    always("reboot", Answer::Perm, "stops or restarts the node"),
    always("swapon", Answer::Perm, SWAP),
    always("swapoff", Answer::Perm, SWAP),
    always(
        "acct",
        Answer::Perm,
        "switches the node's process accounting on and off",
    ),
    always("clock_settime", Answer::Perm, CLOCK),
    always("settimeofday", Answer::Perm, CLOCK),
    always(
        "syslog",
        Answer::Perm,
        "reads the kernel's log, which names other users' programs and gives away kernel addresses",
    ),
    always("quotactl", Answer::Perm, QUOTA),
    always("quotactl_fd", Answer::Perm, QUOTA),
    always("iopl", Answer::Perm, PORTS),
    always("ioperm", Answer::Perm, PORTS),
    // Leftovers.
    always(
        "modify_ldt",
        Answer::NoSys,
        "sets up 16- and 32-bit memory segments, which 64-bit programs do not use; a repeated source of kernel holes",
    ),
    always("lookup_dcookie", Answer::NoSys, OBSOLETE),
    always("_sysctl", Answer::NoSys, OBSOLETE),
    always("nfsservctl", Answer::NoSys, OBSOLETE),
    always("uselib", Answer::NoSys, OBSOLETE),
    always("ustat", Answer::NoSys, OBSOLETE),
    always("sysfs", Answer::NoSys, OBSOLETE),
];

const MOUNT: &str = "changes what is mounted where, and so what the jail hides; `jail.nested = true` permits it inside \
     namespaces of the program's own";
const ROOT: &str = "changes the root directory, and so what the jail hides; `jail.nested = true` permits it inside \
     namespaces of the program's own";
const NAMESPACE: &str = "a program in a namespace of its own holds privileges there, and with them reaches much more of the \
     kernel; `jail.nested = true` permits it";
const CLONE3: &str =
    "hides its flags from this filter; the C library falls back to clone, whose flags are checked";

/// Refused unless the policy permits namespaces inside the jail.
const REFUSED_UNLESS_NESTED: &[SyscallRule] = &[
    on(
        "clone",
        makes(CLONE_NEW_NAMESPACES),
        Answer::Perm,
        NAMESPACE,
    ),
    on(
        "unshare",
        makes(CLONE_NEW_NAMESPACES | CLONE_NEWTIME),
        Answer::Perm,
        NAMESPACE,
    ),
    always("setns", Answer::Perm, NAMESPACE),
    always("mount", Answer::Perm, MOUNT),
    always("umount2", Answer::Perm, MOUNT),
    always("pivot_root", Answer::Perm, ROOT),
    always("chroot", Answer::Perm, ROOT),
    always("open_tree", Answer::Perm, MOUNT),
    always("open_tree_attr", Answer::Perm, MOUNT),
    always("move_mount", Answer::Perm, MOUNT),
    always("fsopen", Answer::Perm, MOUNT),
    always("fsconfig", Answer::Perm, MOUNT),
    always("fsmount", Answer::Perm, MOUNT),
    always("fspick", Answer::Perm, MOUNT),
    always("mount_setattr", Answer::Perm, MOUNT),
];

/// An option of IPv4's or IPv6's, of a pair of which the first replaces a table and the second sets its counters.
const fn table(level: u64, mask: u64, first: u64) -> [When; 2] {
    let option = When::ArgMasked {
        index: 2,
        mask: LOW_HALF & !mask,
        equals: first,
        width32: true,
    };
    [int_is(1, level), option]
}

const CGROUPS: &str = "who owns a cgroup namespace may mount the cgroups; files of the session's cgroup are the user's, and with them \
     limits are changed, and processes outside are ended";

/// Refused where a program may make namespaces of its own, and be root in them.
const REFUSED_IF_NESTED: &[SyscallRule] = &[
    on("clone", makes(CLONE_NEWCGROUP), Answer::Perm, CGROUPS),
    on("unshare", makes(CLONE_NEWCGROUP), Answer::Perm, CGROUPS),
    // include/uapi/linux/netfilter_ipv4/ip_tables.h: 64; netfilter_arp/arp_tables.h: 96.
    on(
        "setsockopt",
        When::All(&table(SOL_IP, 0x21, 64)),
        Answer::NoSupport,
        OLD_FILTER,
    ),
    // include/uapi/linux/netfilter_bridge/ebtables.h.
    on(
        "setsockopt",
        When::All(&table(SOL_IP, 1, 128)),
        Answer::NoSupport,
        OLD_FILTER,
    ),
    // include/uapi/linux/netfilter_ipv6/ip6_tables.h.
    on(
        "setsockopt",
        When::All(&table(SOL_IPV6, 1, 64)),
        Answer::NoSupport,
        OLD_FILTER,
    ),
];

const KEYRING: &str = "keyrings hold Kerberos tickets and other secrets, belong to the user and not to the jail, and no mount \
     hides them; `jail.keyctl = true` permits it";

/// Refused unless the policy permits keyrings.
const REFUSED_UNLESS_KEYCTL: &[SyscallRule] = &[
    always("keyctl", Answer::NoSys, KEYRING),
    always("add_key", Answer::NoSys, KEYRING),
    always("request_key", Answer::NoSys, KEYRING),
];

#[cfg(test)]
mod tests;
