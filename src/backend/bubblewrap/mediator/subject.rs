//! What a call is about, resolved in the caller's own root.
//!
//! Whatever comes out of here was opened by a path that begins in the caller's root, without links
//! that are no text. So its mount is one of the caller's mount namespace, whichever descriptors the caller was
//! given. A path that begins elsewhere becomes one from the root by the name of that place; if another
//! takes the name meanwhile, the caller gets that one, which is as much the caller's.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::sys::stat::fstat;

use crate::mediate::attributes::{self, Subject};
use crate::mediate::caller::Caller;
use crate::mediate::resolve::{errno, id};
use crate::sys::paths;

/// By these names the C library reaches a descriptor where a call takes none (fchmodat(3)).
const OWN_DESCRIPTORS: [&[u8]; 2] = [b"/proc/self/fd/", b"/dev/fd/"];

/// Holds it, with `O_PATH`.
///
/// # Errors
/// What `openat2(2)` answers; `ESTALE` if a descriptor's file is not at its path in the caller's root.
pub(super) fn hold(caller: &Caller, subject: Subject<'_>) -> Result<OwnedFd, Errno> {
    let root = caller.root().map_err(|error| errno(&error))?;
    let (given, how) = match subject {
        Subject::Descriptor(number) => return again(&root, attributes::usable(caller, number)?),
        Subject::Path(given, how) => (given, how),
    };
    let start = || {
        let start = match given.directory {
            libc::AT_FDCWD => caller.directory(),
            number => caller.descriptor(number),
        };
        start.map_err(|error| errno(&error))
    };
    if given.path.is_empty() {
        return match how.empty {
            true => again(&root, start()?),
            false => Err(Errno::ENOENT),
        };
    }
    if let (Some(number), true) = (own_descriptor(given.path), how.follow) {
        let fd = caller.descriptor(number).map_err(|error| errno(&error))?;
        return again(&root, fd);
    }
    if given.path.starts_with(b"/") {
        return paths::pin_in_root(&root, given.path, how.follow);
    }
    let start = start()?;
    let mut path = paths::path_of(&start)?.as_bytes().to_vec();
    if !path.starts_with(b"/") {
        return Err(Errno::ENOTDIR);
    }
    path.push(b'/');
    path.extend_from_slice(given.path);
    paths::pin_in_root(&root, &path, how.follow)
}

/// The file of a descriptor, opened again by its path.
fn again(root: &OwnedFd, fd: OwnedFd) -> Result<OwnedFd, Errno> {
    let path = paths::path_of(&fd)?;
    if !path.as_bytes().starts_with(b"/") {
        return Err(Errno::ESTALE);
    }
    let found = paths::pin_plain_in_root(root, path.as_bytes())?;
    match id(&fstat(&found)?) == id(&fstat(&fd)?) {
        true => Ok(found),
        false => Err(Errno::ESTALE),
    }
}

/// The number of the caller's descriptor that a path means.
fn own_descriptor(path: &[u8]) -> Option<i32> {
    let digits = OWN_DESCRIPTORS
        .iter()
        .find_map(|name| path.strip_prefix(*name))?;
    let number: i32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (number >= 0 && number.to_string().as_bytes() == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::own_descriptor;

    #[test]
    fn a_descriptor_is_named_by_its_number_alone() {
        for (path, number) in [
            ("/proc/self/fd/5", Some(5)),
            ("/dev/fd/0", Some(0)),
            ("/proc/self/fd/5/x", None),
            ("/proc/self/fd/05", None),
            ("/proc/self/fd/-1", None),
            ("/proc/self/fd/", None),
            ("/proc/1/fd/5", None),
            ("proc/self/fd/5", None),
        ] {
            assert_eq!(own_descriptor(path.as_bytes()), number, "{path}");
        }
    }
}
