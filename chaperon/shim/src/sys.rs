//! The only unsafe code of the shim: thin wrappers around system calls, each of which states why it
//! is sound. Nothing here decides anything.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::SigSet;

/// Standard input.
pub(crate) const INPUT: RawFd = 0;
/// Standard output.
pub(crate) const OUTPUT: RawFd = 1;
/// Standard error.
pub(crate) const ERROR: RawFd = 2;

/// One of the three standard descriptors.
pub(crate) fn standard(number: RawFd) -> BorrowedFd<'static> {
    debug_assert!((INPUT..=ERROR).contains(&number));
    // SAFETY: the three are open for the whole life of the process. Rust's runtime opens /dev/null
    // in place of those that were closed, before `main`, and nothing here closes them.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// Whether the process ignores the signal, which it does if its caller did (`execve(2)`).
pub(crate) fn ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action the call only fills the structure, which lives long enough; all
    // zero is a valid value of it should the call fail.
    let action = unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Gives the signal its default action.
pub(crate) fn set_default(signal: i32) {
    // SAFETY: SIG_DFL runs no code of ours; a number that is no signal answers EINVAL.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Blocks or lets through one signal, real-time signals included.
pub(crate) fn set_blocked(signal: i32, blocked: bool) {
    let how = if blocked {
        libc::SIG_BLOCK
    } else {
        libc::SIG_UNBLOCK
    };
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sigemptyset(3) makes the set valid before anything reads it; sigaddset(3) refuses
    // numbers that are no signals; the process has one thread.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::sigprocmask(how, set.as_ptr(), std::ptr::null_mut());
    }
}

/// Whether the signal came and is blocked.
pub(crate) fn pending(signal: i32) -> bool {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sigemptyset(3) makes the set valid, sigpending(2) fills it, sigismember(3) reads it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigpending(set.as_mut_ptr());
        libc::sigismember(set.as_ptr(), signal) == 1
    }
}

/// Sends the process a signal.
pub(crate) fn raise(signal: i32) {
    // SAFETY: the call touches no memory; a number that is no signal answers EINVAL.
    unsafe { libc::raise(signal) };
}

/// Sends a child a signal. The caller has not waited for it, so that the number is still its.
pub(crate) fn send(child: i32, signal: i32) {
    // SAFETY: the call touches no memory.
    unsafe { libc::kill(child, signal) };
}

/// Gives the program that is started this signal mask.
pub(crate) fn start_with_mask(command: &mut Command, mask: SigSet) {
    let set = move || mask.thread_set_mask().map_err(Into::into);
    // SAFETY: between fork and exec the closure makes one system call, which is async-signal-safe,
    // and allocates nothing: an error of nix's is a number.
    unsafe { command.pre_exec(set) };
}

/// From now on the process leaves no core file.
pub(crate) fn no_core_file() {
    // SAFETY: PR_SET_DUMPABLE changes a flag of the process (prctl(2)).
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
}
