//! The second program of a rank room: it hands over the calls that make local sockets, so that a
//! trusted process makes them in a network namespace where no abstract name of the host exists.
//!
//! It stands beside the program of [`super::compile`] and begins with the same entry, so that calls
//! of another ABI get ENOSYS from either. The kernel takes the strictest answer of all programs, and
//! an errno is stricter than a handing over: what the table refuses stays refused.
//!
//! # What a task can make without the maker
//!
//! `socketpair(2)` stays the kernel's for streams and sequenced packets. Their ends belong to the
//! network namespace of the task and are connected for good (net/unix/af_unix.c): `connect(2)`
//! answers EISCONN, `listen(2)` EINVAL; `sendmsg(2)` with an address answers EISCONN on a stream and
//! ignores the address on sequenced packets. They can take an abstract name of the host with
//! `bind(2)`, at which nobody can be reached: whoever connects to it is refused. An end of a pair of
//! datagram sockets can send anywhere, so that pair is refused.
//!
//! `accept(2)` gives a socket of the namespace of whoever connected, connected for good as well.

use std::collections::BTreeMap;

use seccompiler::sock_filter;

use super::mediated::{HAND_OVER, Verdict, ranges, tree};
use super::{JUMP_EQUAL, NR_OFFSET, SECCOMP_RET_ALLOW, bytes, entry, jump, load, ret, target};

/// `SOCK_TYPE_MASK`, include/linux/net.h: the part of a socket's type that is not a flag.
const TYPE_MASK: u32 = 0xf;
/// BPF_ALU | BPF_AND | BPF_K, include/uapi/linux/bpf_common.h.
const AND: u16 = 0x54;
const AF_UNIX: u32 = libc::AF_UNIX.cast_unsigned();

/// The program as the bytes of a `struct sock_filter` array in this machine's layout.
#[must_use]
pub fn program() -> Vec<u8> {
    let mut program = entry();
    program.push(load(NR_OFFSET));
    program.extend(tree(&ranges(&verdicts())));
    program.iter().flat_map(bytes).collect()
}

/// What is done with the two calls.
pub(super) fn verdicts() -> BTreeMap<u32, Verdict> {
    let allow = ret(SECCOMP_RET_ALLOW);
    // A jump counts the instructions that it leaves out.
    let socket = vec![
        load(argument(0)),
        jump(JUMP_EQUAL, AF_UNIX, 1, 0),
        allow.clone(),
        HAND_OVER,
    ];
    let socketpair = vec![
        load(argument(0)),
        jump(JUMP_EQUAL, AF_UNIX, 0, 4),
        load(argument(1)),
        and(TYPE_MASK),
        jump(JUMP_EQUAL, libc::SOCK_DGRAM.cast_unsigned(), 2, 0),
        // The kernel makes a datagram socket of it.
        jump(JUMP_EQUAL, libc::SOCK_RAW.cast_unsigned(), 1, 0),
        allow,
        ret(libc::SECCOMP_RET_ERRNO | libc::EPROTONOSUPPORT.cast_unsigned()),
    ];
    BTreeMap::from([
        (number(libc::SYS_socket), socket),
        (number(libc::SYS_socketpair), socketpair),
    ])
}

/// A local socket that a task asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The second argument of `socket(2)`: type and flags.
    pub kind: i32,
    /// The third argument of `socket(2)`.
    pub protocol: i32,
}

impl Asked {
    /// Whether the descriptor shall be closed on exec. The other flag, `SOCK_NONBLOCK`, belongs to
    /// the socket and not to the descriptor.
    #[must_use]
    pub fn close_on_exec(self) -> bool {
        self.kind & libc::SOCK_CLOEXEC != 0
    }
}

/// What a call that was handed over asks for; `None` if it is none that [`program`] hands over.
#[must_use]
pub fn asked(arch: u32, number: i32, arguments: &[u64; 6]) -> Option<Asked> {
    // The kernel takes the three as `int` and drops the high halves.
    let int = |index: usize| arguments[index] as u32;
    let is_ours =
        arch == target::AUDIT_ARCH && i64::from(number) == libc::SYS_socket && int(0) == AF_UNIX;
    is_ours.then(|| Asked {
        kind: int(1).cast_signed(),
        protocol: int(2).cast_signed(),
    })
}

/// The number of a call, all of which are small.
const fn number(call: libc::c_long) -> u32 {
    assert!(call >= 0 && call < 1 << 16);
    call as u32
}

/// Offset of the low half of an argument in `struct seccomp_data`, in bytes. Both architectures
/// have it first.
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

const fn and(value: u32) -> sock_filter {
    sock_filter {
        code: AND,
        jt: 0,
        jf: 0,
        k: value,
    }
}
