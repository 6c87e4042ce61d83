//! Files that the chaperon wants read or opened: with the rights and the view of the caller.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use agent_sandbox_wire::frame::PART;
use agent_sandbox_wire::message::{How, Source};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, stat};
use nix::unistd::read;

use crate::signals::Signals;
use crate::sys;

/// The mode of new files, less the umask, as `open(2)` takes it.
const MODE: Mode = Mode::from_bits_truncate(0o666);

/// A file that is being read.
pub(crate) struct Reader {
    /// `None`: standard input.
    file: Option<OwnedFd>,
    left: u64,
}

impl Reader {
    /// Opens without waiting: a FIFO waits for its writer in `poll(2)`, with everything else.
    ///
    /// # Errors
    /// What `open(2)` answers.
    pub(crate) fn open(source: &Source, most: u64) -> nix::Result<Self> {
        let file = match source {
            Source::Input => None,
            Source::File(path) => Some(open(
                path.as_slice(),
                OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC,
                Mode::empty(),
            )?),
        };
        // The one more shows that there was more.
        let left = most.saturating_add(1);
        Ok(Self { file, left })
    }

    /// The next part, of a file that polled as readable; `None` at the end.
    ///
    /// # Errors
    /// What `read(2)` answers.
    pub(crate) fn part(&mut self) -> nix::Result<Option<Vec<u8>>> {
        let mut part = vec![0; usize::try_from(self.left).map_or(PART, |left| left.min(PART))];
        if part.is_empty() {
            return Ok(None);
        }
        match read(self.fd(), &mut part) {
            Ok(0) => Ok(None),
            Ok(bytes) => {
                part.truncate(bytes);
                self.left -= bytes as u64;
                Ok(Some(part))
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(Some(Vec::new())),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file
            .as_ref()
            .map_or_else(|| sys::standard(sys::INPUT), AsFd::as_fd)
    }
}

/// Opens a file for the real command.
///
/// # Errors
/// What `open(2)` answers.
pub(crate) fn open_for(path: &[u8], how: How, signals: &Signals) -> nix::Result<OwnedFd> {
    let flags = match how {
        How::Read => OFlag::O_RDONLY,
        How::Truncate => OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC,
        How::Append => OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_APPEND,
    };
    let open = || open(path, flags | OFlag::O_NOCTTY | OFlag::O_CLOEXEC, MODE);
    let fifo =
        stat(path).is_ok_and(|file| file.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFIFO.bits());
    if fifo {
        // It waits for its other end, and ^C must reach it there.
        signals.act_during(open)
    } else {
        match open() {
            // As srun does it since Slurm 23.02 (`mkdirpath` in launch.c). Older ones give up here.
            Err(Errno::ENOENT) if how != How::Read => {
                let above = Path::new(OsStr::from_bytes(path)).parent();
                // Why it cannot be made, the second try says.
                let _ =
                    above.map(|above| DirBuilder::new().recursive(true).mode(0o755).create(above));
                open()
            }
            opened => opened,
        }
    }
}
