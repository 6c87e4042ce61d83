//! A socket on which something outside is called: made inside, so that nothing outside can reach it; where
//! Landlock is the jail, in the session's directory, by the launcher.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, socket};
use nix::sys::stat::{Mode, umask};

use crate::sys::sockets::listen;

/// Calls that may wait until they are accepted; more are refused with `EAGAIN`. An agent that
/// starts a hundred commands at once is served.
const WAITING: i32 = 128;

/// Makes a listening socket at `path` that only the caller's uid may connect to.
///
/// # Errors
/// What `socket(2)`, `bind(2)` or `listen(2)` answer, by the name of the call.
pub fn listening(path: &Path) -> Result<OwnedFd> {
    let socket = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .context("socket(2) failed")?;
    let address = UnixAddr::new(path)?;
    // The mode of a socket is 0777 less the umask (unix(7)).
    let before = umask(Mode::from_bits_truncate(0o177));
    let bound = bind(socket.as_raw_fd(), &address);
    umask(before);
    bound.context("bind(2) failed")?;
    listen(&socket, WAITING).context("listen(2) failed")?;
    Ok(socket)
}
