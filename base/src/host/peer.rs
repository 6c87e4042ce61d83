//! Who is at the other end of a connection between processes of one user, of which some are in jails.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: reads the status of processes"
)]

use std::io::{self, Read};
use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

/// The longest status of a process that is read, in bytes.
const LONGEST_STATUS: u64 = 64 * 1024;

/// Who made a connection, or listens at its other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process id, as seen from here.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
}

/// Makes sure that the process at the other end is the user's and in no jail.
///
/// Who it is was noted when it called `connect(2)`, at the other end when it called `listen(2)`
/// (`SO_PEERCRED`, `unix(7)`); see `Claim::keep` of join sockets. A jail has a pid namespace of its own, so its
/// processes have more than one number in `NSpid` (`proc_pid_status(5)`, Linux 4.1).
///
/// # Errors
/// `NotFound` if the process has ended; `PermissionDenied` if it is somebody else's or in a jail;
/// what `getsockopt(2)` or reading `/proc` answer.
pub fn same_user(connection: impl AsFd, uid: u32) -> io::Result<Peer> {
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    let credentials = getsockopt(&connection, PeerCredentials)?;
    let peer = Peer {
        pid: credentials.pid(),
        uid: credentials.uid(),
    };
    if peer.uid != uid {
        return refused(format!("process {} is of user {}", peer.pid, peer.uid));
    }
    if peer.pid <= 0 {
        return refused("the process is of another pid namespace".to_owned());
    }
    let mut status = String::new();
    std::fs::File::open(format!("/proc/{}/status", peer.pid))
        .and_then(|file| file.take(LONGEST_STATUS).read_to_string(&mut status))
        .map_err(|error| match error.raw_os_error() {
            // It may end between opening and reading.
            Some(libc::ESRCH) => io::ErrorKind::NotFound.into(),
            _ => error,
        })?;
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
    let owner = value("Uid:").and_then(|all| all.split_whitespace().next());
    if owner.and_then(|owner| owner.parse().ok()) != Some(uid) {
        return refused(format!("process {} is of another user by now", peer.pid));
    }
    match value("NSpid:").map(|numbers| numbers.split_whitespace().count()) {
        Some(1) => Ok(peer),
        _ => refused(format!("process {} is inside a jail", peer.pid)),
    }
}
