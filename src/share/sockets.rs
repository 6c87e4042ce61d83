//! The socket maker of a step with ranks: a trusted process outside that makes the step's local sockets.
//!
//! Abstract names of local sockets belong to a network namespace, path names do not (`unix(7)`,
//! `network_namespaces(7)`). The tasks of a step stay in the host's network and would reach the
//! abstract names of every program on the node. So their `socket(AF_UNIX, …)` is handed over
//! ([`crate::seccomp::notify`]) to the maker, which lives in a network namespace of its own
//! and puts the socket that it made into the caller. Tasks with the same maker reach each other's
//! abstract names, and no others; path names work as ever.
//!
//! What is the caller's stays the caller's: `SO_PEERCRED` and the owner of a bound path are taken
//! when the caller connects, listens or binds; the socket's owner is the maker's user, which is the
//! same. What differs from a socket of the host's network:
//!
//! - Questions about network interfaces that are asked on a *local* socket (`netdevice(7)`) see the
//!   maker's namespace, in which there is a loopback interface only. The C library's
//!   `if_nametoindex(3)` asks so; `getifaddrs(3)` and `if_nameindex(3)` do not.
//! - A signal handler without `SA_RESTART` can interrupt `socket(2)` (`EINTR`) until the maker has
//!   taken the call up.
//! - `net.unix.max_dgram_qlen` and `net.core.somaxconn` are the kernel's defaults, 10 and 4096.
//!
//! Without the maker `socket(2)` answers `ENOSYS` for local sockets: nothing opens when it dies.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{MsgFlags, Shutdown, shutdown};
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, chdir, getpid};

use crate::seccomp::notify::asked;
use crate::sys::notify::{Buffers, can_give, give, unix_socket};
use crate::sys::process::{Side, exit_now, fork, ignore_all};
use crate::sys::{fds, passing, privileges};

/// The only message to the maker; the listener comes with it.
const SERVE: u8 = b's';
/// The maker's only message: it is ready.
const READY: u8 = b'r';

/// A running socket maker. Ends with this value, and with the process that started it.
#[derive(Debug)]
pub struct Maker {
    command: OwnedFd,
    pid: Pid,
    /// Who started it. A process that it forks has a copy of this value, whose end means nothing.
    starter: Pid,
}

impl Maker {
    /// Starts the maker and waits until it is ready; see [`Self::begin`].
    ///
    /// # Errors
    /// See [`Self::begin`] and [`Self::wait_for_ready`].
    pub fn start() -> io::Result<Self> {
        let maker = Self::begin(None)?;
        maker.wait_for_ready()?;
        Ok(maker)
    }

    /// Starts the maker. The caller stands outside of every jail: who owns the user namespace of a
    /// network could look into it (`user_namespaces(7)`). Calls that are none of its own go to the mediator at
    /// the other end of `relay` ([`crate::backend::bubblewrap::mediator::Standby::relayed`]).
    ///
    /// # Errors
    /// What `socketpair(2)` or `fork(2)` answer.
    pub fn begin(relay: Option<OwnedFd>) -> io::Result<Self> {
        let (command, maker) = passing::pair()?;
        let starter = getpid();
        let pid = match fork()? {
            Side::Child => {
                drop(command);
                live(maker, relay, starter)
            }
            Side::Parent(pid) => pid,
        };
        drop((maker, relay));
        // From here on dropping it ends the child.
        Ok(Self {
            command,
            pid,
            starter,
        })
    }

    /// Waits until it is ready.
    ///
    /// # Errors
    /// What the kernel answered to the maker: `EPERM` where users may not create user namespaces
    /// (sysctl or AppArmor) and `ENOSPC` at a limit of `user.max_user_namespaces` or
    /// `user.max_net_namespaces` among others. Without a maker there can be no step with ranks.
    pub fn wait_for_ready(&self) -> io::Result<()> {
        let mut said = [0; size_of::<i32>()];
        let length = loop {
            match passing::receive(&self.command, &mut said, MsgFlags::empty()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => break received?.0,
            }
        };
        match said.get(..length) {
            Some([READY]) => Ok(()),
            Some(errno) if errno.len() == said.len() => {
                Err(io::Error::from_raw_os_error(i32::from_ne_bytes(said)))
            }
            _ => Err(io::Error::other(
                "the socket maker ended before it was ready",
            )),
        }
    }

    /// Lets the maker answer the calls that come from this listener, until no process is left under
    /// its filter. Calls made before this one wait for their answer.
    ///
    /// # Errors
    /// `EINVAL` or `ENOTTY` for something else than the listener of a filter and on kernels before
    /// Linux 5.14; `EPIPE` if the maker is gone.
    pub fn serve(&self, listener: OwnedFd) -> io::Result<()> {
        can_give(&listener)?;
        passing::send(&self.command, &[SERVE], Some(listener.as_fd()))
    }

    /// The maker's process, a child of the one that started it. Who waits for every child alike will
    /// find it there too.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Ends the maker and waits for its end. Tasks that are left get `ENOSYS` from then on.
    pub fn end(self) {
        drop(self);
    }
}

impl AsFd for Maker {
    /// To be polled only: reports `POLLHUP` when the maker has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.command.as_fd()
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        if getpid() != self.starter {
            return;
        }
        // Not closed only: a child that the caller forked since may hold the same socket.
        let _ = shutdown(self.command.as_raw_fd(), Shutdown::Both);
        while waitpid(self.pid, None) == Err(Errno::EINTR) {}
    }
}

/// The maker's life, from the fork on.
fn live(command: OwnedFd, relay: Option<OwnedFd>, parent: Pid) -> ! {
    ignore_all();
    // Away from the numbers of the standard streams, which a parent without them may have given it.
    let away = |fd: &OwnedFd| {
        fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(3))
            .map_err(io::Error::from)
            .and_then(fds::inherited)
    };
    let (Ok(command), Ok(relay)) = (away(&command), relay.as_ref().map(away).transpose()) else {
        exit_now(1)
    };
    match settle(&command, relay.as_ref(), parent) {
        Ok(buffers) => {
            if passing::send(&command, &[READY], None).is_ok() {
                work(&command, relay.as_ref(), buffers);
            }
            exit_now(0)
        }
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            let _ = passing::send(&command, &errno.to_ne_bytes(), None);
            exit_now(1)
        }
    }
}

/// Leaves everything of the parent's behind and enters the namespaces.
fn settle(command: &OwnedFd, relay: Option<&OwnedFd>, parent: Pid) -> io::Result<Buffers> {
    let buffers = Buffers::new()?;
    let kept = [Some(command), relay].into_iter().flatten();
    fds::close_all_but(&kept.map(AsRawFd::as_raw_fd).collect::<Vec<_>>())?;
    // The standard streams stay open, so that no listener gets a number to which messages go.
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    for number in 0..=2 {
        fds::become_standard(&null, number)?;
    }
    drop(null);
    chdir("/")?;
    // One descriptor for each task.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
    // Making sockets needs no right in the new namespaces, in which it holds all.
    privileges::drop_all()?;
    // After the change of credentials, which resets both (prctl(2)).
    prctl::set_dumpable(false)?;
    privileges::end_with_parent(Some(parent))?;
    Ok(buffers)
}

/// Answers calls until the other end of `command` is closed.
fn work(command: &OwnedFd, relay: Option<&OwnedFd>, mut buffers: Buffers) {
    let mut listeners: Vec<OwnedFd> = Vec::new();
    loop {
        let mut polled: Vec<PollFd<'_>> = std::iter::once(command)
            .chain(&listeners)
            .map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN))
            .collect();
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR | Errno::EAGAIN) => continue,
            Err(_) => return,
        }
        let mut reported = polled
            .iter()
            .map(|fd| fd.revents().unwrap_or(PollFlags::POLLERR))
            .collect::<Vec<_>>()
            .into_iter();
        let from_command = reported.next().unwrap_or(PollFlags::POLLERR);
        let mut reported = reported.chain(std::iter::repeat(PollFlags::empty()));
        listeners.retain(|listener| {
            let events = reported.next().unwrap_or(PollFlags::empty());
            if events.contains(PollFlags::POLLIN) {
                return answer(&mut buffers, listener, relay).is_ok();
            }
            // POLLHUP: no process is left under the filter.
            events.is_empty()
        });
        if from_command.contains(PollFlags::POLLIN) {
            match adopt(command) {
                Ok(Some(listener)) => listeners.push(listener),
                Ok(None) => {}
                Err(_) => return,
            }
        } else if !from_command.is_empty() {
            return;
        }
    }
}

/// The listener that has come, `None` for anything else.
///
/// # Errors
/// When the other end is closed.
fn adopt(command: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut message = [0];
    match passing::receive(command, &mut message, MsgFlags::MSG_DONTWAIT) {
        Ok((1, listener)) if message == [SERVE] => Ok(listener),
        Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(None),
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::EMSGSIZE) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Answers the call that `poll(2)` has reported.
///
/// # Errors
/// When the listener is of no use any more.
fn answer(buffers: &mut Buffers, listener: &OwnedFd, relay: Option<&OwnedFd>) -> io::Result<()> {
    let call = match buffers.receive(listener) {
        Err(error) if has_left(&error) => return Ok(()),
        call => call?,
    };
    let wanted = asked(call.arch, call.number, &call.arguments);
    if let (None, Some(relay)) = (wanted, relay) {
        // A mediator that is too busy, or gone, is none.
        return match passing::send_now(relay, &call.bytes(), Some(listener.as_fd())) {
            Ok(()) => Ok(()),
            Err(_) => match buffers.refuse(listener, call.id, libc::ENOSYS) {
                Err(error) if !has_left(&error) => Err(error),
                _ => Ok(()),
            },
        };
    }
    let made = wanted
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))
        .and_then(|asked| {
            let socket = unix_socket(asked.kind, asked.protocol)?;
            give(listener, call.id, socket.as_fd(), asked.close_on_exec())
        });
    let refused = match made {
        Ok(()) => return Ok(()),
        Err(error) if has_left(&error) => return Ok(()),
        Err(error) => buffers.refuse(
            listener,
            call.id,
            error.raw_os_error().unwrap_or(libc::ENOSYS),
        ),
    };
    match refused {
        Err(error) if !has_left(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Whether the caller was killed or interrupted while the maker was at work.
fn has_left(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ESRCH | libc::EINTR)
    )
}
