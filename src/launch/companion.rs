//! A program of ours that stands beside the jail for as long as the launcher does.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{Shutdown, shutdown};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, setsid};

use crate::env_vars;
use crate::failure;
use crate::logging;
use crate::sys::process::{self, Side};
use crate::sys::{fds, paths};

/// How long a chaperon may take to end before it is killed, in milliseconds. It ends at once, unless an
/// `sbatch` of its own is about to get a job: that has 6 s.
const PATIENCE_MS: u16 = 8000;
/// A larger log is begun anew, in bytes.
const LARGEST_LOG: u64 = 1 << 20;

/// A program of this installation, held open: an upgrade puts another one at its path, and a session goes on with those that it
/// began with.
#[derive(Debug)]
pub(super) struct Program {
    path: PathBuf,
    file: OwnedFd,
}

impl Program {
    /// Holds what stands at a path.
    ///
    /// # Errors
    /// What `open(2)` answers.
    pub(super) fn hold(path: PathBuf) -> Result<Self> {
        let file = paths::path_only(&path, OFlag::empty())
            .with_context(|| format!("cannot open `{}`", path.display()))?
            .into();
        Ok(Self { path, file })
    }
}

/// The program, running.
#[derive(Debug)]
pub(super) struct Companion {
    pid: Pid,
    /// It ends when the launcher's end is closed.
    life: OwnedFd,
}

impl Companion {
    /// Starts a program with a verb and the numbers of descriptors that it is given, the last of which is the other end of `life`.
    /// What it has to say goes into the file `log`. Its process does `first` before it becomes the program.
    ///
    /// # Errors
    /// What `fork(2)` answers, or opening its standard streams.
    pub(super) fn start(
        program: &Program,
        verb: &str,
        given: &[&OwnedFd],
        life: OwnedFd,
        log_file: &Path,
        first: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Self> {
        let log = log(log_file)?;
        let null = OpenOptions::new().read(true).open("/dev/null")?;
        let numbers: Vec<String> = given.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
        let name = program.path.file_name().unwrap_or_default().as_bytes();
        let path = CString::new(program.path.as_os_str().as_bytes())?;
        let words = [name, verb.as_bytes()].into_iter();
        let argv: Vec<CString> = words
            .chain(numbers.iter().map(String::as_bytes))
            .map(CString::new)
            .collect::<Result<_, _>>()?;
        let filter = logging::filter().map(|filter| format!("{}={filter}", env_vars::LOG));
        let environment: Vec<CString> = filter.map(CString::new).transpose()?.into_iter().collect();
        match process::fork()? {
            Side::Child => {
                let become_it = || -> io::Result<()> {
                    // Away from the terminal, whose keys are for the command inside.
                    setsid()?;
                    process::default_signals()?;
                    fds::become_standard(&null, 0)?;
                    fds::become_standard(&log, 1)?;
                    fds::become_standard(&log, 2)?;
                    given.iter().try_for_each(fds::inheritable)?;
                    first()?;
                    let held = process::exec_descriptor(&program.file, &argv, &environment);
                    // The interpreter of a script finds none behind a descriptor that is closed by then (execveat(2)).
                    Err(match held.raw_os_error() {
                        Some(libc::ENOENT) => process::exec(&path, &argv, &environment),
                        _ => held,
                    })
                };
                if let Err(error) = become_it() {
                    failure::say(&format!("agent-sandbox: {verb}: {error}\n"));
                }
                process::exit_now(127)
            }
            Side::Parent(pid) => {
                let (program, log) = (program.path.display(), log_file.display());
                tracing::info!(target: "chaperon", %pid, %program, %log, "started");
                Ok(Self { pid, life })
            }
        }
    }

    /// Its process.
    pub(super) fn process(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// The launcher's end.
    pub(super) fn life(&self) -> &OwnedFd {
        &self.life
    }

    /// Tells it to end.
    pub(super) fn leave(&self) {
        let _ = shutdown(self.life.as_raw_fd(), Shutdown::Write);
    }

    /// Ends it and waits for its end, for a bounded time.
    pub(super) fn end(self) {
        self.leave();
        let Self { pid, life } = self;
        // The other end is the program's alone: it is closed when the process is gone.
        let mut gone = [PollFd::new(life.as_fd(), PollFlags::POLLIN)];
        while let Err(Errno::EINTR) = poll(&mut gone, PollTimeout::from(PATIENCE_MS)) {}
        if gone[0].revents().is_none_or(|events| events.is_empty()) {
            let _ = kill(pid, Signal::SIGKILL);
        }
        while let Err(Errno::EINTR) = waitpid(pid, None::<WaitPidFlag>) {}
        tracing::info!(target: "chaperon", %pid, "ended");
    }
}

/// The file for what the chaperon has to say; `/dev/null` where there can be none.
fn log(path: &Path) -> io::Result<OwnedFd> {
    let open = || -> io::Result<std::fs::File> {
        if let Some(directory) = path.parent() {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)?;
        }
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)?;
        if file.metadata()?.len() > LARGEST_LOG {
            file.set_len(0)?;
        }
        Ok(file)
    };
    match open() {
        Ok(file) => Ok(file.into()),
        Err(_) => Ok(OpenOptions::new().write(true).open("/dev/null")?.into()),
    }
}
