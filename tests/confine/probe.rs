//! The inside half: what runs in the jail, and how it tells what happened.
//!
//! The attack runs before `main`, for `main` belongs to the test harness, which would start threads
//! and know nothing of our arguments.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io::Write;
use std::panic::catch_unwind;

use nix::errno::Errno;

/// A name and the function behind it, which gets the words after the name.
pub(crate) type Attack = (&'static str, fn(&[String]));

/// The word that makes this executable a probe.
pub(crate) const WORD: &str = "attack";
/// The last line of a report. A probe that was cut off has none.
pub(crate) const END: &str = "the end";

#[used]
#[unsafe(link_section = ".init_array")]
static ENTER: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = enter;

/// Called by the C library before `main`, with the arguments of `main` (glibc and musl do so).
extern "C" fn enter(count: c_int, words: *const *const c_char, _environment: *const *const c_char) {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: `words` are the process's arguments: `count` pointers to strings that live as long as
    // the process.
    let word = |at: usize| unsafe { CStr::from_ptr(*words.add(at)) };
    if count < 3 || word(1).to_bytes() != WORD.as_bytes() {
        return;
    }
    let words: Vec<String> = (2..count)
        .map(|at| word(at).to_string_lossy().into_owned())
        .collect();
    let ran = catch_unwind(|| {
        let attack = crate::ATTACKS
            .iter()
            .flat_map(|table| table.iter())
            .find(|(name, _)| *name == words[0]);
        let Some((_, attack)) = attack else {
            panic!("no attack `{}`", words[0]);
        };
        attack(&words[1..]);
        println!("{END}");
        let _ = std::io::stdout().flush();
    });
    // SAFETY: ends the probe before the test harness begins.
    unsafe { libc::_exit(if ran.is_ok() { 0 } else { 101 }) }
}

/// Reports one fact. Keys are words; a value stays on one line.
pub(crate) fn tell(key: &str, value: impl std::fmt::Display) {
    let value = value.to_string();
    println!("{key}={}", value.escape_default());
    let _ = std::io::stdout().flush();
}

/// Reports what a system call answered.
pub(crate) fn tell_call(key: &str, result: i64) {
    tell(key, outcome(result));
}

/// `ok`, or the name of the error.
pub(crate) fn outcome(result: i64) -> String {
    match result {
        -1 => format!("{:?}", Errno::last()),
        _ => "ok".to_owned(),
    }
}

/// The name of an error of the standard library.
pub(crate) fn name(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => format!("{:?}", Errno::from_raw(errno)),
        None => format!("{:?}", error.kind()),
    }
}

/// A path for the kernel.
pub(crate) fn c(text: &str) -> CString {
    CString::new(text).expect("no NUL in a path")
}

/// A system call that takes numbers and pointers.
pub(crate) fn syscall(number: i64, arguments: &[u64]) -> i64 {
    let mut a = [0u64; 6];
    a[..arguments.len()].copy_from_slice(arguments);
    // SAFETY: attacks pass pointers to live memory, or addresses that the kernel refuses to touch.
    unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) }
}

/// The address of something, for [`syscall`].
pub(crate) fn address<T: ?Sized>(of: &T) -> u64 {
    std::ptr::from_ref(of).cast::<u8>() as u64
}

/// Runs `then` in a child and waits for it. Attacks that change the process for good use this.
pub(crate) fn in_child(then: impl FnOnce()) -> c_int {
    let _ = std::io::stdout().flush();
    // SAFETY: a probe has one thread, so the child may do whatever the parent may.
    match unsafe { libc::fork() } {
        0 => {
            let ran = catch_unwind(std::panic::AssertUnwindSafe(then));
            let _ = std::io::stdout().flush();
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(if ran.is_ok() { 0 } else { 101 }) }
        }
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        child => {
            let mut status = 0;
            // SAFETY: waits for the child just made.
            unsafe { libc::waitpid(child, &mut status, 0) };
            status
        }
    }
}
