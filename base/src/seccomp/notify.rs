//! The second program of a step with ranks: it hands over the calls that make local sockets, so that a
//! trusted process makes them in a network namespace where no abstract name of the host exists.
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

use super::program::{AUDIT_ARCH, Filter, HAND_OVER, Test, Verdict, Width, int_is, refused};

/// `SOCK_TYPE_MASK`, include/linux/net.h: the part of a socket's type that is not a flag.
const TYPE_MASK: u64 = 0xf;
const AF_UNIX: u32 = libc::AF_UNIX.cast_unsigned();

/// The program as the bytes of a `struct sock_filter` array in this machine's layout.
#[must_use]
pub fn program() -> Vec<u8> {
    let mut filter = Filter::default();
    add_to(&mut filter);
    filter.compile()
}

/// Adds the two calls to a filter.
pub fn add_to(filter: &mut Filter) {
    let local = int_is(0, AF_UNIX);
    filter.set(libc::SYS_socket, Verdict::on(local, HAND_OVER));
    let of_kind = |kind: i32| Test::Masked(1, Width::Low, TYPE_MASK, kind.unsigned_abs().into());
    // Of SOCK_RAW the kernel makes a datagram socket.
    let datagrams = [libc::SOCK_DGRAM, libc::SOCK_RAW].map(of_kind);
    let verdict = datagrams
        .iter()
        .fold(Verdict::default(), |verdict, datagram| {
            verdict.case(&[local, *datagram], refused(libc::EPROTONOSUPPORT))
        });
    filter.set(libc::SYS_socketpair, verdict);
}

/// A local socket that a task asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketCall {
    /// The second argument of `socket(2)`: type and flags.
    pub kind: i32,
    /// The third argument of `socket(2)`.
    pub protocol: i32,
}

impl SocketCall {
    /// Whether the descriptor shall be closed on exec. The other flag, `SOCK_NONBLOCK`, belongs to
    /// the socket and not to the descriptor.
    #[must_use]
    pub fn close_on_exec(self) -> bool {
        self.kind & libc::SOCK_CLOEXEC != 0
    }
}

/// What a call that was handed over asks for; `None` if it is none that [`program`] hands over.
#[must_use]
pub fn asked(arch: u32, number: i32, arguments: &[u64; 6]) -> Option<SocketCall> {
    // The kernel takes the three as `int` and drops the high halves.
    let int = |index: usize| arguments[index] as u32;
    let is_ours = arch == AUDIT_ARCH && i64::from(number) == libc::SYS_socket && int(0) == AF_UNIX;
    is_ours.then(|| SocketCall {
        kind: int(1).cast_signed(),
        protocol: int(2).cast_signed(),
    })
}
