//! Gives a running session hosts, from outside: asks the process that keeps its rules.

use std::os::fd::{AsRawFd, OwnedFd};

use agent_sandbox_wire::network::AllowRequest;
use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, socket};
use nix::sys::stat::Mode;
use std::os::fd::AsFd;

use crate::failure::Failure;
use crate::host;
use crate::session;
use crate::sys::passing;

/// The longest answer, in bytes: a sentence about a policy.
const LONGEST_ANSWER: usize = 64 * 1024;
/// How long an answer may take, in milliseconds: files of the policy are read, sockets made.
const PATIENCE_MS: u16 = 60_000;

/// Gives hosts to a session of this user's that runs on this node, until it ends.
///
/// # Errors
/// There is no such session, its network is not filtered, or it may not have one of the hosts; none is given then.
pub fn allow(session: &str, hosts: &[String]) -> Result<()> {
    let (_, directories) = host::directories(None)?;
    let records = session::directory(nix::unistd::getuid().as_raw(), &directories.state);
    if !session::running(&records)?
        .iter()
        .any(|one| one.id == session)
    {
        return Err(
            Failure::new(format!("no session `{session}` of yours runs on this node"))
                .hint("`agent-sandbox sessions` lists those that do")
                .into(),
        );
    }
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let directory = open(&records, flags, Mode::empty())?;
    let connection = socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // By a short path: the address of a socket has 108 bytes (`unix(7)`).
    let number = directory.as_raw_fd();
    let path = format!("/proc/self/fd/{number}/{session}.{}", session::SOCKET);
    match connect(connection.as_raw_fd(), &UnixAddr::new(path.as_str())?) {
        Ok(()) => {}
        Err(Errno::ENOENT | Errno::ECONNREFUSED) => {
            return Err(
                Failure::new(format!("nobody stands by the network of session `{session}`"))
                    .hint("only with network.mode = \"filtered\" is a host given to a session that runs; its filter may have ended")
                    .into(),
            );
        }
        Err(errno) => return Err(errno).context("cannot reach the session"),
    }
    let hosts = hosts.to_vec();
    passing::send(
        &connection,
        &postcard::to_allocvec(&AllowRequest { hosts })?,
        None,
    )?;
    answer(&connection)?.map_err(|why| Failure::new(why).into())
}

fn answer(connection: &OwnedFd) -> Result<Result<(), String>> {
    let mut ready = [PollFd::new(connection.as_fd(), PollFlags::POLLIN)];
    poll(&mut ready, PollTimeout::from(PATIENCE_MS))?;
    let mut text = vec![0; LONGEST_ANSWER];
    let received = passing::receive(connection, &mut text, MsgFlags::MSG_DONTWAIT);
    let (length, _) = received.context("the session does not answer")?;
    postcard::from_bytes(&text[..length]).context("the session has ended")
}
