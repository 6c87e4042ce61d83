//! Sockets, with addresses as the bytes that a caller wrote (`sockaddr(3type)`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// An option of level `SOL_SOCKET` whose value is an `int`, of the descriptor with this number.
///
/// # Errors
/// `EBADF` if nothing is open under that number, `ENOTSOCK` if it is no socket, `ENOPROTOOPT` for an
/// option that there is not.
pub fn option(number: RawFd, option: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the call writes at most `length` bytes to `value`, which is as long.
    let done = unsafe {
        libc::getsockopt(
            number,
            libc::SOL_SOCKET,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    answer(done)?;
    Ok(value)
}

/// What a TCP connection is in (`TCP_ESTABLISHED` and so on, include/net/tcp_states.h): the first byte of `struct tcp_info`.
///
/// # Errors
/// `ENOPROTOOPT` or `EOPNOTSUPP` for a socket of another protocol.
pub fn tcp_state(socket: impl AsFd) -> io::Result<u8> {
    let mut state = 0u8;
    let mut length = size_of::<u8>() as libc::socklen_t;
    // SAFETY: the call writes at most `length` bytes to `state`, which is as long.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut state).cast(),
            &raw mut length,
        )
    };
    answer(done)?;
    Ok(state)
}

/// `connect(2)` to an address in bytes, of which the kernel makes what it can.
///
/// # Errors
/// What `connect(2)` answers; `EINVAL` for more than 128 bytes.
pub fn connect(socket: impl AsFd, address: &[u8]) -> io::Result<()> {
    let length = length(address)?;
    // SAFETY: the kernel reads `length` bytes, which is how long the address is.
    let done =
        unsafe { libc::connect(socket.as_fd().as_raw_fd(), address.as_ptr().cast(), length) };
    answer(done)
}

/// `bind(2)` to an address in bytes.
///
/// # Errors
/// What `bind(2)` answers; `EINVAL` for more than 128 bytes.
pub fn bind(socket: impl AsFd, address: &[u8]) -> io::Result<()> {
    let length = length(address)?;
    // SAFETY: the kernel reads `length` bytes, which is how long the address is.
    let done = unsafe { libc::bind(socket.as_fd().as_raw_fd(), address.as_ptr().cast(), length) };
    answer(done)
}

/// `listen(2)`, for at most `waiting` connections that nobody has accepted yet. The kernel takes fewer
/// where `net.core.somaxconn` says so. nix's own call refuses more than the `SOMAXCONN` of the C
/// library, which is no limit of the kernel's: 4096 in glibc, 128 in musl.
///
/// # Errors
/// What `listen(2)` answers.
pub fn listen(socket: impl AsFd, waiting: libc::c_int) -> io::Result<()> {
    // SAFETY: the call touches no memory.
    answer(unsafe { libc::listen(socket.as_fd().as_raw_fd(), waiting) })
}

/// The length of an address, which the kernel bounds in the same way.
fn length(address: &[u8]) -> io::Result<libc::socklen_t> {
    if address.len() > size_of::<libc::sockaddr_storage>() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok(address.len() as libc::socklen_t)
}

fn answer(done: libc::c_int) -> io::Result<()> {
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, socket};

    use super::*;

    /// musl's is 128, whatever the kernel allows.
    #[test]
    fn more_may_wait_than_a_c_library_thinks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        nix::sys::socket::bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        for waiting in [0, 128, 4096, libc::c_int::MAX] {
            listen(&listener, waiting).unwrap();
        }
        #[allow(clippy::disallowed_methods, reason = "a test")]
        let connected: Vec<_> = (0..200).map(|_| UnixStream::connect(&path)).collect();
        assert!(connected.iter().all(Result::is_ok));
        assert!(listen(std::io::stdin(), 1).is_err());
    }
}
