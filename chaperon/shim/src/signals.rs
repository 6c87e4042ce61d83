//! Signals: which are told to the chaperon, stopping, and dying of one.

#![allow(clippy::disallowed_methods, reason = "effects: ends the process")]

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::{AsFd, BorrowedFd};

use crate::sys;
use crate::trouble::Trouble;

/// What is told to the chaperon, for the real command. Of these, the ones that the caller ignores
/// (as `nohup(1)` does) stay ignored.
const TOLD: [Signal; 10] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// Signals as something to poll.
pub(crate) struct Signals {
    caught: SigSet,
    before: SigSet,
    fd: SignalFd,
}

impl Signals {
    /// From here on signals are read, not acted upon.
    pub(crate) fn catch() -> Result<Self, Trouble> {
        let mut caught = SigSet::empty();
        for signal in TOLD {
            if !sys::ignored(signal as i32) {
                caught.add(signal);
            }
        }
        // Ignored, it would take away how a child ended (`wait(2)`).
        sys::set_default(libc::SIGCHLD);
        caught.add(Signal::SIGCHLD);
        let failed = |error| Trouble::system("cannot catch signals", error);
        let before = caught
            .thread_swap_mask(SigmaskHow::SIG_BLOCK)
            .map_err(failed)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let fd = SignalFd::with_flags(&caught, flags).map_err(failed)?;
        Ok(Self { caught, before, fd })
    }

    /// A signal that came.
    pub(crate) fn next(&self) -> Option<i32> {
        loop {
            match self.fd.read_signal() {
                Ok(signal) => return signal.and_then(|info| i32::try_from(info.ssi_signo).ok()),
                Err(Errno::EINTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// Does something that may take long while signals act as they do on any program.
    pub(crate) fn act_during<T>(&self, what: impl FnOnce() -> T) -> T {
        // Both calls fail for wrong arguments alone.
        let _ = self.caught.thread_unblock();
        let result = what();
        let _ = self.caught.thread_block();
        result
    }

    /// The mask that the caller gave the shim, for what the shim starts.
    pub(crate) fn mask_before(&self) -> SigSet {
        self.before
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Stops the process as ^Z does: not at all where nobody would let it go on (the kernel stops no
/// orphaned process group, `credentials(7)`). Returns when it goes on; `true` if `SIGCONT` waits to
/// be read.
pub(crate) fn stop() -> bool {
    // In this order: one that waits already is the same one then, and does not stop it twice.
    sys::raise(libc::SIGTSTP);
    sys::set_blocked(libc::SIGTSTP, false);
    sys::set_blocked(libc::SIGTSTP, true);
    sys::pending(libc::SIGCONT)
}

/// Ends the process by a signal, so that its caller sees which; without a core file, which would be
/// the shim's and of no use.
pub(crate) fn die(signal: i32) -> ! {
    /// What shells add to the number of a signal.
    const SHELLS: i32 = 128;
    if (1..=libc::SIGRTMAX()).contains(&signal) && signal != libc::SIGSTOP {
        sys::no_core_file();
        sys::set_default(signal);
        sys::set_blocked(signal, false);
        sys::raise(signal);
    }
    // Signals that end nobody by default.
    std::process::exit(SHELLS + signal)
}
