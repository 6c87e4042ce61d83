//! Interrupting a thread of this process that waits in a system call.

use std::io;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::getpid;

use super::remote;

/// What interrupts: nobody else in this program uses it. Whoever may send it from outside can
/// interrupt as well.
const INTERRUPTS: Signal = Signal::SIGUSR1;

/// Lets [`interrupt`] reach the threads of this process.
///
/// # Errors
/// What `sigaction(2)` or `sigprocmask(2)` answer.
pub fn become_interruptible() -> io::Result<()> {
    extern "C" fn nothing(_signal: libc::c_int) {}
    // Without SA_RESTART the call that waits fails.
    let action = SigAction::new(
        SigHandler::Handler(nothing),
        SaFlags::empty(),
        SigSet::empty(),
    );
    // SAFETY: the handler does nothing.
    unsafe { sigaction(INTERRUPTS, &action)? };
    let mut one = SigSet::empty();
    one.add(INTERRUPTS);
    one.thread_unblock()?;
    Ok(())
}

/// Interrupts a thread of this process by its number: what it waits for fails with `EINTR`.
///
/// # Errors
/// `ESRCH` if there is none.
pub fn interrupt(thread: i32) -> io::Result<()> {
    remote::signal_thread(getpid().as_raw(), thread, INTERRUPTS as i32, None)
}
