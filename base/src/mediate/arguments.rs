//! Where calls that make, move and remove files have their paths.

use super::caller::Caller;

/// Where a call has a path: the descriptor that it begins at, and the argument.
pub type Argument = Option<(i32, usize)>;

/// Where a call has its paths.
pub fn paths_of(caller: &Caller) -> (Argument, Argument) {
    let here = |argument| Some((libc::AT_FDCWD, argument));
    let at = |directory, argument| Some((caller.int(directory), argument));
    match i64::from(caller.call.number) {
        libc::SYS_renameat2 | libc::SYS_renameat | libc::SYS_linkat => (at(0, 1), at(2, 3)),
        libc::SYS_symlinkat => (here(0), at(1, 2)),
        libc::SYS_mkdirat | libc::SYS_mknodat | libc::SYS_unlinkat => (at(0, 1), None),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename | libc::SYS_link | libc::SYS_symlink => (here(0), here(1)),
        _ => (here(0), None),
    }
}
