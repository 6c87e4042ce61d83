//! `ioctl(2)` with `TIOCGPTPEER`: the other side of a new pseudo-terminal. Landlock asks for a right
//! on its path, which is in a directory where the user's other terminals are and cannot be known
//! before. Whoever holds the master has the terminal, so it is given; by its path it is not, for its
//! number is another's one day.

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{SFlag, fstat, major, minor};

use super::context::{Answer, Context};
use agent_sandbox_base::mediate::caller::Caller;
use agent_sandbox_base::sys::{paths, terminals};

/// `TTYAUX_MAJOR` and the number of `/dev/ptmx` (include/uapi/linux/major.h, drivers/tty/pty.c): every
/// open master is a file of this device.
const MASTER: (u64, u64) = (5, 2);

/// Answers the call.
pub fn peer(_context: &Context, caller: &Caller) -> Answer {
    let answer = || -> nix::Result<Answer> {
        let of_system =
            |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
        let master = caller.descriptor(caller.int(0)).map_err(of_system)?;
        // The command means something else to other devices.
        let found = fstat(&master)?;
        let device = (major(found.st_rdev), minor(found.st_rdev));
        let is_device = found.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFCHR.bits();
        if !is_device || device != MASTER {
            return Err(Errno::ENOTTY);
        }
        let asked = OFlag::from_bits_truncate(caller.int(2));
        let kept = paths::ACCESS_MODE | OFlag::O_NONBLOCK;
        // No terminal becomes the mediator's.
        let flags = (asked & kept) | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let file = terminals::peer(&master, flags.bits()).map_err(of_system)?;
        Ok(Answer::Give {
            file,
            close_on_exec: asked.contains(OFlag::O_CLOEXEC),
        })
    };
    answer().unwrap_or_else(Answer::from)
}
