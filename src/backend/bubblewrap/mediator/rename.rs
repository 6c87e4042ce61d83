//! `rename(2)` of git's lock to a configuration that is read-only inside. Every other rename is the
//! kernel's: the mount protects the file itself, so that a path which changes after it was looked at wins
//! nothing.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;

use super::{Mediator, subject};
use crate::mediate::arguments::paths_of;
use crate::mediate::attributes::Subject;
use crate::mediate::caller::Caller;
use crate::mediate::git_config::replace;
use crate::mediate::resolve::{FOLLOW, PathArgument};

/// Whether a call gives a file another name.
pub(super) fn is(number: i32) -> bool {
    match i64::from(number) {
        libc::SYS_renameat | libc::SYS_renameat2 => true,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename => true,
        _ => false,
    }
}

impl Mediator {
    /// Carries the call out; `None`: the kernel judges it.
    pub(super) fn rename(&self, caller: &Caller) -> Option<Result<(), Errno>> {
        let config = self.terms.git_config.as_ref()?;
        let (from, to) = paths_of(caller);
        let flags = match i64::from(caller.call.number) {
            libc::SYS_renameat2 => caller.int(4),
            _ => 0,
        };
        let (directory, argument) = to?;
        let to = caller.path(caller.argument(argument)).ok()?;
        // The others cost one look at the caller's memory.
        if flags != 0 || !replace::is_name(&to) {
            return None;
        }
        let (to, name) = hold(caller, directory, &to)?;
        let (directory, argument) = from?;
        let from = caller.path(caller.argument(argument)).ok()?;
        let (lock, from) = hold(caller, directory, &from)?;
        self.may_change(&lock).ok()?;
        replace::replace(caller, (&lock, from), (&to, name), config)
    }
}

/// The directory that a path ends in, in the caller's root, and the name there.
fn hold<'a>(caller: &Caller, directory: i32, path: &'a [u8]) -> Option<(OwnedFd, &'a OsStr)> {
    let end = path
        .iter()
        .rposition(|&byte| byte == b'/')
        .map_or(0, |at| at + 1);
    let (parent, name) = path.split_at(end);
    let path = if parent.is_empty() { b"." } else { parent };
    let given = PathArgument { directory, path };
    let held = subject::hold(caller, Subject::Path(given, FOLLOW)).ok()?;
    Some((held, OsStr::from_bytes(name)))
}
