//! The socket on which the chaperon is called: made inside, so that nothing outside can reach it; where
//! Landlock is the jail, in the session's directory, by the launcher.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use nix::sys::stat::{Mode, umask};

/// Calls that may wait until they are accepted; more are refused with `EAGAIN`. An agent that
/// starts a hundred commands at once is served.
const WAITING: i32 = 128;

/// Makes a listening socket at `path` that only the caller's uid may connect to.
///
/// # Errors
/// What `socket(2)`, `bind(2)` or `listen(2)` answer.
pub fn listening(path: &Path) -> nix::Result<OwnedFd> {
    let socket = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let address = UnixAddr::new(path)?;
    // The mode of a socket is 0777 less the umask (unix(7)).
    let before = umask(Mode::from_bits_truncate(0o177));
    let bound = bind(socket.as_raw_fd(), &address);
    umask(before);
    bound?;
    listen(&socket, Backlog::new(WAITING)?)?;
    Ok(socket)
}
