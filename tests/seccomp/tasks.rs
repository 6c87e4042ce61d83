//! Children under the filter that hands local sockets over, and what they need to try.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use agent_sandbox::seccomp::notify;
use agent_sandbox::share::sockets::Maker;
use agent_sandbox::sys::privileges;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept, bind, listen, socket,
};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

pub(crate) const KINDS: [SockType; 2] = [SockType::Stream, SockType::SeqPacket];

/// Takes the filter and hands its listener to the maker.
pub(crate) fn enter(maker: &Maker) {
    privileges::no_new_privileges().expect("no_new_privs");
    let listener = privileges::filter_with_listener(&notify::program()).expect("a listener");
    maker.serve(listener).expect("the maker takes the listener");
}

/// Runs `body` in a child.
pub(crate) fn child(body: impl FnOnce()) -> Pid {
    // SAFETY: the child runs `body` and leaves by `_exit`. glibc makes its allocator usable after
    // fork; no other lock of the parent's threads is taken.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Child => {
            let done = catch_unwind(AssertUnwindSafe(body));
            // SAFETY: ends the child at once; nothing of the parent's is run or flushed.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        ForkResult::Parent { child } => child,
    }
}

pub(crate) fn task(maker: &Maker, body: impl FnOnce()) -> Pid {
    child(|| {
        enter(maker);
        body();
    })
}

pub(crate) fn succeeds(child: Pid) {
    assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
}

pub(crate) fn in_task(body: impl FnOnce()) {
    let maker = Maker::start().expect("a maker");
    succeeds(task(&maker, body));
    maker.end();
}

/// A name that no other test has.
pub(crate) fn name(of: &str) -> Vec<u8> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("agent-sandbox-test-{of}-{}-{number}", std::process::id()).into_bytes()
}

pub(crate) fn abstract_address(name: &[u8]) -> UnixAddr {
    UnixAddr::new_abstract(name).expect("a short name")
}

pub(crate) fn unix(kind: SockType) -> nix::Result<OwnedFd> {
    socket(AddressFamily::Unix, kind, SockFlag::empty(), None)
}

/// A socket of `kind` at `address`, listening unless it takes datagrams.
pub(crate) fn bound(kind: SockType, address: &UnixAddr) -> OwnedFd {
    let socket = unix(kind).expect("a socket");
    bind(socket.as_raw_fd(), address).expect("bind");
    if kind != SockType::Datagram {
        listen(&socket, Backlog::new(8).expect("a backlog")).expect("listen");
    }
    socket
}

pub(crate) fn accepted(listener: &OwnedFd) -> OwnedFd {
    let fd = accept(listener.as_raw_fd()).expect("accept");
    // SAFETY: the kernel has just made it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

pub(crate) fn result(value: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: a descriptor that the kernel has just made.
    Errno::result(value).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `socket(2)` with arguments as they come.
pub(crate) fn raw_socket(domain: u64, kind: u64, protocol: u64) -> Result<OwnedFd, Errno> {
    // SAFETY: the call touches no memory.
    result(unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) } as c_int)
}

pub(crate) fn raw_pair(domain: u64, kind: u64) -> Result<(OwnedFd, OwnedFd), Errno> {
    let mut pair = [-1_i32; 2];
    // SAFETY: the kernel writes two numbers.
    let done = unsafe { libc::syscall(libc::SYS_socketpair, domain, kind, 0, &mut pair) };
    Errno::result(done)?;
    Ok((
        result(pair[0]).expect("a socket"),
        result(pair[1]).expect("a socket"),
    ))
}
