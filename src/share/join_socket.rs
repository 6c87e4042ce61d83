//! Where the tasks of one job on one node find each other: a directory of the node's own, with one
//! socket for each step.
//!
//! The directory is `agent-sandbox-UID` in the first of `host::NODE_LOCAL` where it can be the
//! user's alone. Below it each job of each node has a directory, and in it stand a lock file and
//! the sockets of its steps. Whatever changes there changes under the lock; all paths but the first
//! start at descriptors that were looked at, so that nobody can swap a directory in between.
//!
//! Two things keep jails away. Every plan covers the directory (see `plan::build::meeting`), and creates it
//! for that where it is missing. A cover ends when somebody outside removes the directory below it,
//! as cleaners of `/tmp` do; so each side of a connection makes sure that the other is no process in
//! a jail ([`same_user`]), and a forged directory or socket leads nowhere.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: directories, sockets and the clock"
)]

mod directory;
mod names;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, FcntlArg, Flock, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, bind, connect, socket};
use nix::sys::stat::{Mode, fstatat, mkdirat};

pub use crate::host::peer::{Peer, same_user};
use crate::own_directory::{self, Busy, id, is_at, open_below, take_lock};
use crate::sys::sockets::listen;
use directory::{address, clear, doors, living, remove};
use names::Door;
pub use names::{NodeJob, StepId};

/// How long an arrival waits for a lock, or for a place in a queue, that others hold. Both are held
/// for microseconds; longer means that somebody was stopped.
const PATIENCE: Duration = Duration::from_secs(30);
/// The first pause between two attempts; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(4);
/// Connections that wait until the server accepts them. The kernel takes fewer where
/// `net.core.somaxconn` says so (128 before Linux 5.4); who finds the queue full tries again.
const BACKLOG: i32 = 4096;
/// What an arriving task finds.
#[derive(Debug)]
pub enum Arrival {
    /// The step has a server, and this is a connection to it. It ends without an answer if the
    /// server is killed; then the task arrives once more.
    Member(OwnedFd),
    /// The step has none: this task starts it.
    First {
        /// Where others arrive; non-blocking, for [`accept`]. The server alone may hold it: while
        /// any copy is open, others wait there.
        listener: OwnedFd,
        /// The first connection to it, so that the server has a member from the beginning.
        connection: OwnedFd,
        /// The job's other steps that have servers, in the order of their beginning, for [`ask`].
        /// Of two steps, the later lists the earlier, and never both each other.
        earlier: Vec<StepId>,
        /// The right to the step's name.
        claim: Claim,
    },
}

/// Takes the next connection that waits at a listener, close-on-exec; `None` if none does.
///
/// # Errors
/// What `accept(2)` answers.
pub fn accept(listener: impl AsFd) -> io::Result<Option<OwnedFd>> {
    // The type of the socket does not matter to accept(2).
    let listener = UnixListener::from(listener.as_fd().try_clone_to_owned()?);
    loop {
        match listener.accept() {
            Ok((connection, _)) => return Ok(Some(connection.into())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Arrives at a step of a job on this node: joins it, or claims it. Waits a bounded time.
///
/// # Errors
/// There is no directory that is the user's alone; somebody holds the lock, or leaves the queue
/// full; a server is none of ours.
pub fn arrive(uid: u32, place: &NodeJob, step: StepId) -> Result<Arrival> {
    JoinDirectories::of(uid).arrive(place, step)
}

/// Connects to another step of the job: `None` if it has no server any more.
///
/// # Errors
/// As [`arrive`].
pub fn ask(uid: u32, place: &NodeJob, step: StepId) -> Result<Option<OwnedFd>> {
    JoinDirectories::of(uid).ask(place, step)
}

/// Where the user's tasks on this node meet.
#[derive(Clone, Debug)]
pub struct JoinDirectories {
    uid: u32,
    /// Directories in which the user's directory may stand, best first.
    parents: Vec<PathBuf>,
    patience: Duration,
}

/// A job's directory, locked.
struct Locked {
    base: OwnedFd,
    directory: OwnedFd,
    _lock: Flock<OwnedFd>,
}

impl JoinDirectories {
    /// That of the user with this id.
    pub fn of(uid: u32) -> Self {
        Self::at(uid, own_directory::parents(), PATIENCE)
    }

    /// The same in other directories, and with other patience.
    pub fn at(uid: u32, parents: Vec<PathBuf>, patience: Duration) -> Self {
        Self {
            uid,
            parents,
            patience,
        }
    }

    /// See [`arrive`].
    ///
    /// # Errors
    /// See [`arrive`].
    pub fn arrive(&self, place: &NodeJob, step: StepId) -> Result<Arrival> {
        let name = place.name()?;
        self.patiently(|| {
            let locked = match self.lock(&name)? {
                Ok(locked) => locked,
                Err(busy) => return Ok(Err(busy)),
            };
            let doors = locked.living()?;
            for door in doors.iter().filter(|door| door.step == step) {
                match self.knock(&locked.directory, door)? {
                    Knock::Answered(connection) => return Ok(Ok(Arrival::Member(connection))),
                    Knock::Full => return Ok(Err(full(door.step))),
                    Knock::Gone => locked.remove(&door.name())?,
                }
            }
            self.begin(locked, &name, step, &doors).map(Ok)
        })
    }

    /// See [`ask`].
    ///
    /// # Errors
    /// See [`ask`].
    pub fn ask(&self, place: &NodeJob, step: StepId) -> Result<Option<OwnedFd>> {
        let name = place.name()?;
        self.patiently(|| {
            let directory = match open_below(&self.base(&name)?, &name) {
                Ok(directory) => directory,
                Err(Errno::ENOENT) => return Ok(Ok(None)),
                Err(errno) => {
                    return Err(errno).context(format!("cannot open the job's directory `{name}`"));
                }
            };
            for door in doors(&directory)?.iter().filter(|door| door.step == step) {
                match self.knock(&directory, door)? {
                    Knock::Answered(connection) => return Ok(Ok(Some(connection))),
                    Knock::Full => return Ok(Err(full(step))),
                    Knock::Gone => {}
                }
            }
            Ok(Ok(None))
        })
    }

    /// Tries until something else than `Busy` comes of it, or patience ends.
    fn patiently<T>(
        &self,
        mut attempt: impl FnMut() -> Result<std::result::Result<T, Busy>>,
    ) -> Result<T> {
        let end = Instant::now() + self.patience;
        let mut pause = FIRST_PAUSE;
        loop {
            match attempt()? {
                Ok(done) => return Ok(done),
                Err(Busy(why)) if Instant::now() >= end => {
                    bail!("waited {} s: {why}", self.patience.as_secs())
                }
                Err(_) => {}
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Claims a step that has no server.
    fn begin(&self, locked: Locked, name: &str, step: StepId, doors: &[Door]) -> Result<Arrival> {
        directory::sweep(&locked.base, name);
        let last = doors.last().map_or(0, |door| door.order);
        let door = Door {
            order: last.saturating_add(1),
            step,
        };
        let failed = |call: &str| {
            format!("cannot open the step {step} in the job's directory `{name}`: {call} failed")
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
            .with_context(|| failed("socket(2)"))?;
        let address = address(&locked.directory, &door.name())?;
        bind(listener.as_raw_fd(), &address).with_context(|| failed("bind(2)"))?;
        listen(&listener, BACKLOG).with_context(|| failed("listen(2)"))?;
        let found = fstatat(
            &locked.directory,
            door.name().as_str(),
            AtFlags::AT_SYMLINK_NOFOLLOW,
        )
        .with_context(|| failed("fstatat(2)"))?;
        let Knock::Answered(connection) = self.knock(&locked.directory, &door)? else {
            bail!("the step {step} in the job's directory `{name}` does not answer");
        };
        Ok(Arrival::First {
            listener,
            connection,
            earlier: doors
                .iter()
                .filter(|other| other.step != step)
                .map(|other| other.step)
                .collect(),
            claim: Claim {
                directories: self.clone(),
                directory: locked.directory,
                base: locked.base,
                name: name.to_owned(),
                door,
                id: id(&found),
            },
        })
    }

    /// Connects without waiting, and looks who is there.
    fn knock(&self, directory: &OwnedFd, door: &Door) -> Result<Knock> {
        let failed =
            |call: &str| format!("cannot connect to the step {}: {call} failed", door.step);
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
            .with_context(|| failed("socket(2)"))?;
        match connect(socket.as_raw_fd(), &address(directory, &door.name())?) {
            Ok(()) => {}
            Err(Errno::EAGAIN) => return Ok(Knock::Full),
            Err(Errno::ECONNREFUSED | Errno::ENOENT) => return Ok(Knock::Gone),
            Err(errno) => return Err(errno).with_context(|| failed("connect(2)")),
        }
        match same_user(&socket, self.uid) {
            Ok(_) => {}
            // It listened and has ended; the server may be about to say that it listens now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Knock::Full),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot trust the step {}", door.step));
            }
        }
        fcntl(&socket, FcntlArg::F_SETFL(OFlag::empty())).with_context(|| failed("fcntl(2)"))?;
        Ok(Knock::Answered(socket))
    }

    /// The user's directory, in which the job's is or will be.
    fn base(&self, name: &str) -> Result<OwnedFd> {
        own_directory::open_for(self.uid, &self.parents, name).map_err(|reasons| {
            anyhow::anyhow!("the tasks of a job have no place to meet on this node: {reasons}")
        })
    }

    /// Locks a job's directory, which is made if it is missing.
    fn lock(&self, name: &str) -> Result<std::result::Result<Locked, Busy>> {
        let changing = || Ok(Err(Busy(format!("`{name}` keeps being removed"))));
        let base = self.base(name)?;
        match mkdirat(&base, name, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(Errno::ENOENT) => return changing(),
            Err(errno) => {
                return Err(errno).context(format!("cannot make the job's directory `{name}`"));
            }
        }
        let directory = match open_below(&base, name) {
            Ok(directory) => directory,
            Err(Errno::ENOENT) => return changing(),
            Err(errno) => {
                return Err(errno).context(format!("cannot open the job's directory `{name}`"));
            }
        };
        own_directory::own(self.uid, &directory)
            .map_err(|why| anyhow::anyhow!("the job's directory `{name}` {why}"))?;
        let lock = match take_lock(&directory) {
            Ok(Ok(lock)) => lock,
            Ok(Err(busy)) => return Ok(Err(busy)),
            // Removed since it was opened, by a server that ended.
            Err(error) if error.downcast_ref() == Some(&Errno::ENOENT) => return changing(),
            Err(error) => return Err(error),
        };
        // The directory may have been removed, and made again, since it was opened.
        if !is_at(&base, name, &directory) {
            return changing();
        }
        Ok(Ok(Locked {
            base,
            directory,
            _lock: lock,
        }))
    }
}

/// What became of an attempt to connect.
enum Knock {
    Answered(OwnedFd),
    /// The server has not accepted others yet.
    Full,
    /// Nobody listens.
    Gone,
}

impl Locked {
    /// The sockets at which somebody listens, in order. The others are removed.
    fn living(&self) -> Result<Vec<Door>> {
        living(&self.directory)
    }

    fn remove(&self, name: &str) -> Result<()> {
        remove(&self.directory, name)
    }
}

/// The server's right to its step's name. Dropped without [`Claim::retire`], it leaves a socket
/// behind, which the next arrival finds dead once the listener is closed.
#[derive(Debug)]
pub struct Claim {
    directories: JoinDirectories,
    base: OwnedFd,
    directory: OwnedFd,
    name: String,
    door: Door,
    /// Device and inode of the socket's file.
    id: (u64, u64),
}

impl Claim {
    /// Says that it is the calling process that listens. To be called by a server that was forked
    /// from the process that arrived, before that may end: who connects looks at the process that
    /// called `listen(2)` last.
    ///
    /// # Errors
    /// What `listen(2)` answers.
    pub fn keep(&self, listener: impl AsFd) -> io::Result<()> {
        listen(&listener, BACKLOG)
    }

    /// How many steps of the job came before this one on this node, at least.
    pub fn order(&self) -> u64 {
        self.door.order
    }

    /// The numbers of the descriptors that it holds, for who closes all others.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.base.as_raw_fd(), self.directory.as_raw_fd()]
    }

    /// Ends the step, unless somebody waits at its door: then that connection is the answer, and
    /// the server goes on. After `None` the server closes the listener; nobody can have come
    /// between the question and the end of the name.
    ///
    /// # Errors
    /// Somebody holds the lock, or the socket cannot be removed. The server may end all the same:
    /// what waits at its door gets no answer and arrives once more.
    pub fn retire(&self, listener: impl AsFd) -> Result<Option<OwnedFd>> {
        self.directories.patiently(|| {
            let lock = match take_lock(&self.directory) {
                Ok(Ok(lock)) => Some(lock),
                Ok(Err(busy)) => return Ok(Err(busy)),
                // Somebody removed the directory; then nobody can come any more.
                Err(error) if error.downcast_ref() == Some(&Errno::ENOENT) => None,
                Err(error) => return Err(error),
            };
            let waiting = accept(&listener).context("cannot look for waiting tasks")?;
            if waiting.is_some() || lock.is_none() {
                return Ok(Ok(waiting));
            }
            let name = self.door.name();
            let found = fstatat(&self.directory, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
            if found.is_ok_and(|found| id(&found) == self.id) {
                remove(&self.directory, &name)?;
            }
            clear(&self.base, &self.name, &self.directory);
            Ok(Ok(None))
        })
    }
}

fn full(step: StepId) -> Busy {
    Busy(format!(
        "the namespace server of the step {step} accepts nobody"
    ))
}
