//! Calls on files that are held open, by descriptors that may be `O_PATH` ones (`open(2)`). The
//! kernel gives such a file to calls that take a path under `/proc/self/fd/NUMBER`, which is no
//! name that is looked up but the file itself (`proc_pid_fd(5)`).

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat, openat2, readlink};
use nix::sys::stat::Mode;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use rustix::buffer::spare_capacity;
use rustix::fs::{self, RenameFlags, XattrFlags};

/// The path by which calls reach the file of a descriptor of this process.
#[must_use]
pub fn by_descriptor(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// Holds what a path leads to, with `O_PATH`. Links are followed, also the last; but those of a
/// `/proc` that are no text lead nowhere. Needs Linux 5.6.
///
/// # Errors
/// What `openat2(2)` answers: `ELOOP` also for such a link.
pub fn pin(start: impl AsFd, path: &[u8]) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(start, path, how)
}

/// The bits of open flags that say what a file is open for (`open(2)`). musl's `O_ACCMODE` holds
/// `O_PATH` as well.
pub const ACCESS_MODE: OFlag = OFlag::O_WRONLY.union(OFlag::O_RDWR);

/// Opens what a path leads to with `O_PATH` and more `flags`. Not by the standard library, whose
/// `custom_flags` leave out what `O_ACCMODE` holds, and so this one with musl.
///
/// # Errors
/// What `open(2)` answers.
pub fn path_only<P: NixPath + ?Sized>(path: &P, flags: OFlag) -> io::Result<File> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | flags;
    Ok(File::from(open(path, flags, Mode::empty())?))
}

/// Holds what stands at a path without any link in it, with `O_PATH`. Needs Linux 5.6.
///
/// # Errors
/// What `openat2(2)` answers: `ELOOP` if there is a link.
pub fn pin_plain<P: NixPath + ?Sized>(path: &P) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(nix::fcntl::AT_FDCWD, path, how)
}

/// Holds what a path leads to in a root directory, with `O_PATH`: absolute paths and links begin there,
/// and nothing leads above it. Links of a `/proc` that are no text lead nowhere; the last is followed
/// if `follow`. Needs Linux 5.6.
///
/// # Errors
/// What `openat2(2)` answers.
pub fn pin_in_root(root: impl AsFd, path: &[u8], follow: bool) -> nix::Result<OwnedFd> {
    let mut flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    flags.set(OFlag::O_NOFOLLOW, !follow);
    let how = OpenHow::new()
        .flags(flags)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    open_in_root(&root, path, how)
}

/// The same for a path without any link in it.
///
/// # Errors
/// What `openat2(2)` answers: `ELOOP` if there is a link.
pub fn pin_plain_in_root(root: impl AsFd, path: &[u8]) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS);
    open_in_root(&root, path, how)
}

/// How often a path with `..` is tried: whoever renames without end keeps nobody for longer.
const TRIES: usize = 1000;

/// Where anything on the machine is renamed or mounted meanwhile, the kernel cannot tell that `..` stays in the root, and wants to
/// be asked again (openat2(2), `EAGAIN`).
fn open_in_root(root: impl AsFd, path: &[u8], how: OpenHow) -> nix::Result<OwnedFd> {
    for _ in 1..TRIES {
        match openat2(&root, path, how) {
            Err(Errno::EAGAIN) => {}
            answer => return answer,
        }
    }
    openat2(root, path, how)
}

/// Holds an entry of a directory, with `O_PATH`: a link itself, not what it leads to. `name` is one
/// part of a path.
///
/// # Errors
/// What `openat(2)` answers.
pub fn pin_entry<P: NixPath + ?Sized>(directory: impl AsFd, name: &P) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(directory, name, flags, Mode::empty())
}

/// The path of the file of a descriptor, as the kernel knows it now. See `proc_pid_fd(5)` for what
/// it says of files that have none.
///
/// # Errors
/// What `readlink(2)` answers: `ENAMETOOLONG` if it is 4096 bytes (`PATH_MAX`) or longer.
pub fn path_of(fd: impl AsFd) -> nix::Result<OsString> {
    readlink(by_descriptor(fd).as_str())
}

/// Opens the file of a descriptor again, with other flags. Access is checked anew.
///
/// # Errors
/// What `open(2)` answers.
pub fn open_again(fd: impl AsFd, flags: OFlag, mode: Mode) -> nix::Result<OwnedFd> {
    open(by_descriptor(fd).as_str(), flags, mode)
}

/// Whether a file is one of a `/proc` (`proc(5)`).
///
/// # Errors
/// What `fstatfs(2)` answers.
pub fn is_of_proc(fd: impl AsFd) -> nix::Result<bool> {
    Ok(fstatfs(fd)?.filesystem_type() == PROC_SUPER_MAGIC)
}

/// Sets the times of the file of a descriptor, a link itself included: last access and last change,
/// `None` for now. Needs Linux 5.8.
///
/// # Errors
/// What `utimensat(2)` answers.
pub fn set_times(fd: impl AsFd, times: Option<[libc::timespec; 2]>) -> nix::Result<()> {
    let times = times
        .as_ref()
        .map_or(std::ptr::null(), |times| times.as_ptr());
    // The C library's function refuses the flag where it does not know it; the kernel judges it.
    // SAFETY: the call reads an empty path, and two times unless the pointer is null.
    let done = unsafe {
        libc::syscall(
            libc::SYS_utimensat,
            fd.as_fd().as_raw_fd(),
            c"".as_ptr(),
            times,
            AtFlags::AT_EMPTY_PATH.bits(),
        )
    };
    Errno::result(done).map(drop)
}

/// Sets an extended attribute of the file of a descriptor; `flags` are `XATTR_CREATE` or
/// `XATTR_REPLACE`.
///
/// # Errors
/// What `setxattr(2)` answers.
pub fn set_attribute(fd: impl AsFd, name: &CStr, value: &[u8], flags: i32) -> nix::Result<()> {
    let flags = XattrFlags::from_bits_retain(flags.cast_unsigned());
    fs::setxattr(by_descriptor(fd), name, value, flags).map_err(errno)
}

/// An extended attribute of the file of a descriptor.
///
/// # Errors
/// What `getxattr(2)` answers: `ENODATA` if there is none.
pub fn attribute(fd: impl AsFd, name: &CStr) -> nix::Result<Vec<u8>> {
    /// `XATTR_SIZE_MAX`, include/uapi/linux/limits.h.
    const LONGEST: usize = 64 * 1024;
    let mut value = Vec::with_capacity(LONGEST);
    fs::getxattr(by_descriptor(fd), name, spare_capacity(&mut value)).map_err(errno)?;
    Ok(value)
}

/// Removes an extended attribute of the file of a descriptor.
///
/// # Errors
/// What `removexattr(2)` answers.
pub fn remove_attribute(fd: impl AsFd, name: &CStr) -> nix::Result<()> {
    fs::removexattr(by_descriptor(fd), name).map_err(errno)
}

/// Whether a directory says what rights new files in it have (`acl(5)`): then no umask counts there
/// (`umask(2)`).
pub fn has_default_acl(directory: impl AsFd) -> bool {
    let length = fs::getxattr_query(by_descriptor(directory), c"system.posix_acl_default");
    length.is_ok_and(|length| length > 0)
}

/// Watches the file of a descriptor by an `inotify(7)` instance; the number of the watch.
///
/// # Errors
/// What `inotify_add_watch(2)` answers: `EINVAL` if the first is no such instance.
pub fn watch(instance: impl AsFd, fd: impl AsFd, mask: u32) -> nix::Result<i32> {
    let path = CString::new(by_descriptor(fd)).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the call reads a string that ends with a zero.
    let watch =
        unsafe { libc::inotify_add_watch(instance.as_fd().as_raw_fd(), path.as_ptr(), mask) };
    Errno::result(watch)
}

/// Gives a file another name, relative to directories; `flags` are `RENAME_*`.
///
/// # Errors
/// What `renameat2(2)` answers.
pub fn rename(
    from: impl AsFd,
    old: &OsStr,
    to: impl AsFd,
    new: &OsStr,
    flags: u32,
) -> nix::Result<()> {
    let flags = RenameFlags::from_bits_retain(flags);
    fs::renameat_with(from, old, to, new, flags).map_err(errno)
}

/// An error of rustix's as nix has it.
fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests")]

    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn renames_elsewhere_keep_nobody_from_a_path() {
        let place = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| place.path().join(name));
        fs::create_dir_all(place.path().join("a/b")).unwrap();
        fs::write(&one, "").unwrap();
        let root = fs::File::open(place.path()).unwrap();
        let over = AtomicBool::new(false);
        let (raced, refused) = thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    fs::rename(&one, &other).unwrap();
                    fs::rename(&other, &one).unwrap();
                }
            });
            let how = OpenHow::new()
                .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
                .resolve(ResolveFlag::RESOLVE_IN_ROOT);
            let (mut raced, mut refused) = (0, Vec::new());
            for _ in 0..20_000 {
                let once = openat2(&root, &b"a/../a/b/.."[..], how);
                raced += usize::from(once.is_err_and(|errno| errno == Errno::EAGAIN));
                refused.extend(pin_in_root(&root, b"a/../a/b/..", true).err());
            }
            // Before anything can fail: the other thread goes on until then.
            over.store(true, Ordering::Relaxed);
            (raced, refused)
        });
        assert_eq!(refused, []);
        // On a machine with one processor nothing need have happened at the same time.
        println!("{raced} of 20000 had to be asked again");
    }
}
