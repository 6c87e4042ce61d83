//! Places to meet that no test shares with another, and processes.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use agent_sandbox::share::join_socket::{Arrival, Claim, JoinDirectories, NodeJob, StepId};
use agent_sandbox::sys::process::{self, Side};
use agent_sandbox_support::waiting::PATIENCE;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use tempfile::TempDir;

/// A forked process has every descriptor of this one, those of other tests too; so one test runs at
/// a time.
static TURN: Mutex<()> = Mutex::new(());

/// Two directories in which the user's directory may stand.
pub(crate) struct World {
    directory: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl World {
    pub(crate) fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(|broken| broken.into_inner());
        let directory = tempfile::tempdir().unwrap();
        let world = Self {
            directory,
            _turn: turn,
        };
        for parent in world.parents() {
            std::fs::create_dir(&parent).unwrap();
            mode(&parent, 0o700);
        }
        world
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn parents(&self) -> Vec<PathBuf> {
        ["first", "second"]
            .map(|name| self.path().join(name))
            .to_vec()
    }

    /// The user's directory in one of the parents.
    pub(crate) fn base(&self, parent: usize) -> PathBuf {
        self.parents()[parent].join(format!("agent-sandbox-{}", uid()))
    }

    pub(crate) fn job(&self) -> PathBuf {
        self.base(0).join("n1.7")
    }

    pub(crate) fn join_directories(&self) -> JoinDirectories {
        self.patient(PATIENCE)
    }

    pub(crate) fn patient(&self, patience: Duration) -> JoinDirectories {
        JoinDirectories::at(uid(), self.parents(), patience)
    }

    /// Arrives and is the first.
    #[track_caller]
    pub(crate) fn first(&self, step: StepId) -> First {
        First::of(self.join_directories().arrive(&place(7), step).unwrap()).unwrap()
    }

    /// Arrives and is not.
    #[track_caller]
    pub(crate) fn member(&self, step: StepId) -> OwnedFd {
        match self.join_directories().arrive(&place(7), step).unwrap() {
            Arrival::Member(connection) => connection,
            first => panic!("{first:?}"),
        }
    }

    /// The names in a directory, sorted; none if it does not exist.
    pub(crate) fn names(&self, directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).into_iter().flatten();
        let mut all: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        all.sort();
        all
    }
}

/// What the first one has.
#[derive(Debug)]
pub(crate) struct First {
    pub(crate) listener: OwnedFd,
    pub(crate) connection: OwnedFd,
    pub(crate) earlier: Vec<StepId>,
    pub(crate) claim: Claim,
}

impl First {
    pub(crate) fn of(arrival: Arrival) -> Result<Self, OwnedFd> {
        match arrival {
            Arrival::Member(connection) => Err(connection),
            Arrival::First {
                listener,
                connection,
                earlier,
                claim,
            } => Ok(Self {
                listener,
                connection,
                earlier,
                claim,
            }),
        }
    }
}

pub(crate) fn uid() -> u32 {
    nix::unistd::getuid().as_raw()
}

pub(crate) fn place(job: u32) -> NodeJob {
    NodeJob {
        node: "n1".into(),
        job,
    }
}

pub(crate) fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Whether something can be read, or its end, within a time.
pub(crate) fn readable(fd: impl AsFd, within_ms: u16) -> bool {
    let mut one = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut one, within_ms).unwrap() > 0
}

/// A forked process, and a line to it. Killed at the end.
pub(crate) struct Child {
    pub(crate) pid: Pid,
    pub(crate) line: UnixStream,
}

impl Child {
    /// Forks; the process ends with `body`, and with the thread that forked it.
    pub(crate) fn new(body: impl FnOnce(&mut UnixStream)) -> Self {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        match process::fork().unwrap() {
            Side::Parent(pid) => Self { pid, line: ours },
            Side::Child => {
                drop(ours);
                let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
                let caught =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&mut theirs)));
                process::exit_now(i32::from(caught.is_err()))
            }
        }
    }

    pub(crate) fn say(&mut self, byte: u8) {
        self.line.write_all(&[byte]).unwrap();
    }

    pub(crate) fn hear(&mut self) -> u8 {
        hear(&mut self.line).unwrap()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = kill(self.pid, Signal::SIGKILL);
        let _ = waitpid(self.pid, None);
    }
}

/// The next byte of a line.
pub(crate) fn hear(line: &mut UnixStream) -> io::Result<u8> {
    line.set_read_timeout(Some(PATIENCE))?;
    let mut byte = [0];
    line.read_exact(&mut byte)?;
    Ok(byte[0])
}
