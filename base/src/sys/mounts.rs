//! Mounts (`mount(2)`, `open_tree(2)`, `mount_setattr(2)`, `move_mount(2)`). All but [`detached`] and [`can_be_cloned`] are
//! for a process with `CAP_SYS_ADMIN` in the user namespace that owns its mount namespace.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2, readlink};
use nix::mount::{MsFlags, mount};
use nix::sys::socket::MsgFlags;
use nix::sys::stat::{FileStat, SFlag, fstat};
use nix::sys::wait::waitpid;
use nix::unistd::{AccessFlags, access, fchdir};
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags};

use super::namespaces::{self, Kind};
use super::{passing, process};

/// What of a proc acts on the whole machine, and is the machine's root's to write (`proc(5)`).
const OF_THE_MACHINE: [&str; 4] = ["sys", "sysrq-trigger", "irq", "bus"];

/// Cuts the mount tree off from the one that it was copied from: nothing that is mounted there later
/// arrives here, and the other way round.
///
/// # Errors
/// What `mount(2)` answers.
pub fn make_private() -> io::Result<()> {
    plain(None, Path::new("/"), MsFlags::MS_REC | MsFlags::MS_PRIVATE)
}

/// Mounts a proc of the caller's pid namespace over `path`. What of it acts on the whole machine is
/// covered read-only if the caller's real ids may write to it, as bubblewrap's `--proc` does.
///
/// # Errors
/// What `mount(2)` answers: `EPERM` also if the mount namespace shows no whole proc already
/// (`mount_namespaces(7)`), or if the pid namespace is not owned by the caller's user namespace.
pub fn proc_at(path: &Path) -> io::Result<()> {
    let restricted = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), path, Some("proc"), restricted, None::<&Path>)?;
    for name in OF_THE_MACHINE {
        let path = path.join(name);
        match access(&path, AccessFlags::W_OK) {
            Ok(()) => {}
            Err(Errno::EACCES | Errno::ENOENT | Errno::EROFS) => continue,
            Err(errno) => return Err(errno.into()),
        }
        plain(Some(&path), &path, MsFlags::MS_BIND)?;
        let read_only = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        plain(None, &path, read_only | restricted)?;
    }
    Ok(())
}

/// Mounts an empty tmpfs over `path`: at most `size` bytes, its root with the permissions `mode`
/// and the caller's ids.
///
/// # Errors
/// `EINVAL` for a size of 0, which tmpfs takes for none; what `mount(2)` answers.
pub fn tmpfs_at(path: &Path, size: u64, mode: u32) -> io::Result<()> {
    if size == 0 || mode > 0o7777 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let options = format!("mode={mode:04o},size={size}");
    mount(
        Some("tmpfs"),
        path,
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some(options.as_str()),
    )?;
    Ok(())
}

/// What a mount of [`detached`] lets count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lets {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
    /// The one device that it shows.
    Device,
}

/// A mount that shows what the descriptor `source` does, without what is mounted below it,
/// and is in no mount tree yet: for [`attach`], also by a process in another mount namespace. It
/// gives nobody more rights than `source`, and lets no set-id bit count.
///
/// An ordinary user may do this: it is made by a child in a user and a mount namespace of its own.
/// No ids need to be mapped there. Needs Linux 5.12, and a `/proc`.
///
/// # Errors
/// What the calls answer: `EINVAL` for a directory with mounts below it, since without them it
/// would show what they hide; `ESTALE` if a source that is no directory is no longer under its
/// name; `ENOSYS` on an older kernel; what `unshare(2)` answers where user namespaces are not to
/// be had.
pub fn detached(source: BorrowedFd<'_>, lets: Lets) -> io::Result<OwnedFd> {
    let (ours, theirs) = passing::pair()?;
    match process::fork()? {
        process::Side::Child => {
            let sent = match clone_away(source, lets) {
                Ok(clone) => passing::send(&theirs, &0i32.to_ne_bytes(), Some(clone.as_fd())),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(libc::EIO);
                    passing::send(&theirs, &errno.to_ne_bytes(), None)
                }
            };
            process::exit_now(i32::from(sent.is_err()))
        }
        process::Side::Parent(child) => {
            drop(theirs);
            let mut answer = [0; size_of::<i32>()];
            let received = loop {
                match passing::receive(&ours, &mut answer, MsgFlags::empty()) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    received => break received,
                }
            };
            // ECHILD: somebody who has children reaped without waiting; the answer tells all.
            while waitpid(child, None) == Err(Errno::EINTR) {}
            match (received?, i32::from_ne_bytes(answer)) {
                ((4, Some(clone)), 0) => Ok(clone),
                ((4, None), errno) if errno != 0 => Err(io::Error::from_raw_os_error(errno)),
                _ => Err(io::Error::other(
                    "the process that makes a mount was killed",
                )),
            }
        }
    }
}

/// In the child of [`detached`]: leaves its namespaces and clones the mount.
fn clone_away(source: BorrowedFd<'_>, lets: Lets) -> io::Result<OwnedFd> {
    let wanted = fstat(source)?;
    let is_directory = wanted.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits();
    // Only mounts of the own mount namespace can be cloned, and a descriptor goes on showing the old
    // one. A working directory, though, moves to the copy.
    let clone = if is_directory {
        fchdir(source)?;
        namespaces::leave(&[Kind::User, Kind::Mount])?;
        open_tree(None, c".")?
    } else {
        let name = readlink(format!("/proc/self/fd/{}", source.as_raw_fd()).as_str())?;
        namespaces::leave(&[Kind::User, Kind::Mount])?;
        // The name has no link in it; who puts one there now gets nothing. Nor does who puts another
        // file there.
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let again = openat2(nix::fcntl::AT_FDCWD, Path::new(&name), how)?;
        if !same_file(&fstat(&again)?, &wanted) {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        open_tree(Some(again.as_fd()), c"")?
    };
    if !same_file(&fstat(&clone)?, &wanted) {
        return Err(io::Error::from_raw_os_error(libc::ESTALE));
    }
    restrict(clone.as_fd(), lets, libc::MS_PRIVATE, 0)?;
    Ok(clone)
}

/// Whether the kernel can clone and restrict a tree of mounts at once (`mount_setattr(2)`, Linux 5.12), for who has the right.
#[must_use]
pub fn can_be_cloned() -> bool {
    // SAFETY: the call finds no attributes of the size 0, and reads none.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            -1,
            c"".as_ptr(),
            0,
            std::ptr::null::<u8>(),
            0,
        )
    };
    done < 0 && Errno::last() == Errno::EINVAL
}

/// What stands at the absolute path `from`, with all that is mounted below it: in no mount tree yet, for [`attach_to`], also by a
/// process in another mount namespace. No link is followed. Of each of these mounts no set-id bit counts, and no more
/// than `lets`; what is mounted below them later still arrives.
///
/// # Errors
/// What the calls answer: `ELOOP` if a link stands in the path or at its end.
pub fn tree_of(from: &Path, lets: Lets) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    let place = openat2(nix::fcntl::AT_FDCWD, from, how)?;
    if fstat(&place)?.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFLNK.bits() {
        return Err(Errno::ELOOP.into());
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let clone = rustix::mount::open_tree(&place, c"", flags)?;
    restrict(clone.as_fd(), lets, 0, libc::AT_RECURSIVE)?;
    Ok(clone)
}

fn same_file(one: &FileStat, other: &FileStat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// `open_tree(2)`: clones the one mount that `at`, or the working directory, is on.
fn open_tree(at: Option<BorrowedFd<'_>>, path: &CStr) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    Ok(rustix::mount::open_tree(at.unwrap_or(CWD), path, flags)?)
}

/// `mount_setattr(2)` on a mount, or on all of a tree (`AT_RECURSIVE`): no set-id bits, perhaps no devices and no writing.
fn restrict(
    clone: BorrowedFd<'_>,
    lets: Lets,
    propagation: libc::c_ulong,
    flags: libc::c_int,
) -> io::Result<()> {
    let set = libc::MOUNT_ATTR_NOSUID
        | match lets {
            Lets::Read => libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_RDONLY,
            Lets::Write => libc::MOUNT_ATTR_NODEV,
            Lets::Device => 0,
        };
    // SAFETY: it is made of numbers, for all of which 0 means no change.
    let mut attributes: libc::mount_attr = unsafe { std::mem::zeroed() };
    attributes.attr_set = set;
    attributes.propagation = propagation;
    // SAFETY: the call reads an empty path and attributes of the size stated.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            clone.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes the mount at `at` read-only, and none below it (`mount_setattr(2)`, Linux 5.12).
///
/// # Errors
/// `EINVAL` where nothing is mounted at `at`, or something else covers it.
pub fn make_read_only(at: &Path) -> io::Result<()> {
    let at = std::ffi::CString::new(at.as_os_str().as_bytes())?;
    // SAFETY: it is made of numbers, for all of which 0 means no change.
    let mut attributes: libc::mount_attr = unsafe { std::mem::zeroed() };
    attributes.attr_set = libc::MOUNT_ATTR_RDONLY;
    // SAFETY: the call reads a path that ends with a zero and attributes of the size stated.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            at.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Puts a mount made by [`detached`] over `at`, a directory over a directory, another file over a
/// file. No link is followed in the last part of `at`.
///
/// # Errors
/// What `move_mount(2)` (Linux 5.2) answers.
pub fn attach(clone: impl AsFd, at: &Path) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(rustix::mount::move_mount(clone, c"", CWD, at, flags)?)
}

/// Puts a mount made by [`tree_of`] over what a descriptor shows.
///
/// # Errors
/// What `move_mount(2)` (Linux 5.2) answers.
pub fn attach_to(clone: impl AsFd, at: impl AsFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(clone, c"", at, c"", flags)?)
}

/// Shows a terminal, cloned by [`detached`], as `/dev/console` in a `/dev` that bubblewrap made: there
/// `ttyname(3)` finds its name. The file below it is made where there is none.
///
/// # Errors
/// What `mount(2)`, `open(2)` or `move_mount(2)` answer.
#[allow(
    clippy::disallowed_methods,
    reason = "makes the file that a mount needs below it"
)]
pub fn console(terminal: impl AsFd) -> io::Result<()> {
    let (dev, console) = (Path::new("/dev"), Path::new("/dev/console"));
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    if !console.exists() {
        plain(None, dev, flags)?;
        let made = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o000)
            .open(console)
            // What is open for writing keeps a mount from becoming read-only.
            .map(drop);
        plain(None, dev, flags | MsFlags::MS_RDONLY)?;
        made?;
    }
    attach(terminal, console)
}

/// Covers what stands at `/dev/console`, if anything, with `/dev/null`.
///
/// # Errors
/// What `mount(2)` answers.
pub fn no_console() -> io::Result<()> {
    let console = Path::new("/dev/console");
    match plain(Some(Path::new("/dev/null")), console, MsFlags::MS_BIND) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// `mount(2)` without a type and options.
fn plain(source: Option<&Path>, target: &Path, flags: MsFlags) -> io::Result<()> {
    mount(source, target, None::<&Path>, flags, None::<&Path>)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests")]

    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use nix::sys::statvfs::{FsFlags, statvfs};

    use super::super::namespaces::tests::{expect, in_child, map_own_ids, refused};
    use super::*;

    /// Leaves user and mount namespace (and those given), with the own ids mapped to themselves:
    /// the files of a tmpfs need ids.
    fn alone(also: &[Kind]) -> io::Result<()> {
        let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
        namespaces::leave(&[&[Kind::User, Kind::Mount], also].concat())?;
        map_own_ids(uid.as_raw(), gid.as_raw())?;
        make_private()
    }

    fn shown(path: &Path) -> OwnedFd {
        nix::fcntl::open(
            path,
            OFlag::O_PATH | OFlag::O_CLOEXEC,
            nix::sys::stat::Mode::empty(),
        )
        .unwrap()
    }

    fn flags(path: &Path) -> io::Result<FsFlags> {
        Ok(statvfs(path)?.flags())
    }

    #[test]
    fn a_tmpfs_has_its_size_and_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        in_child(|| {
            alone(&[])?;
            expect(
                refused(tmpfs_at(path, 0, 0o700)) == Some(libc::EINVAL),
                "no limit",
            )?;
            expect(
                refused(tmpfs_at(path, 4096, 0o10000)) == Some(libc::EINVAL),
                "no mode",
            )?;
            tmpfs_at(path, 1 << 20, 0o1750)?;
            let root = fs::metadata(path)?;
            expect(root.permissions().mode() & 0o7777 == 0o1750, "another mode")?;
            expect(
                root.uid() == nix::unistd::geteuid().as_raw(),
                "another owner",
            )?;
            expect(
                flags(path)?.contains(FsFlags::ST_NOSUID | FsFlags::ST_NODEV),
                "set-id bits or devices",
            )?;
            fs::write(path.join("fits"), vec![0; 1 << 19])?;
            let full = fs::write(path.join("does not"), vec![0; 1 << 20]);
            expect(refused(full) == Some(libc::ENOSPC), "no limit")
        });
        assert_eq!(fs::read_dir(path).unwrap().count(), 0);
    }

    #[test]
    fn a_proc_shows_the_pid_namespace_and_nothing_of_the_machine_to_write() {
        in_child(|| {
            alone(&[Kind::Pid])?;
            in_child(|| {
                proc_at(Path::new("/proc"))?;
                expect(
                    fs::read_link("/proc/self")?.as_os_str() == "1",
                    "another pid namespace",
                )?;
                let restricted = FsFlags::ST_NOSUID | FsFlags::ST_NODEV | FsFlags::ST_NOEXEC;
                expect(
                    flags(Path::new("/proc"))?.contains(restricted),
                    "unrestricted",
                )?;
                for name in OF_THE_MACHINE {
                    let path = Path::new("/proc").join(name);
                    expect(access(&path, AccessFlags::W_OK).is_err(), name)?;
                }
                Ok(())
            });
            Ok(())
        });
    }

    #[test]
    fn without_the_right_nothing_is_mounted() {
        in_child(|| {
            namespaces::leave(&[Kind::User])?;
            // The mount namespace is still that of the user namespace above.
            expect(refused(make_private()) == Some(libc::EPERM), "private")?;
            let path = Path::new("/tmp");
            expect(
                refused(tmpfs_at(path, 4096, 0o700)) == Some(libc::EPERM),
                "tmpfs",
            )?;
            expect(refused(proc_at(path)) == Some(libc::EPERM), "proc")
        });
    }

    #[test]
    fn a_detached_directory_is_attached_in_another_mount_namespace() {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(source.path().join("file"), "content").unwrap();
        for read_only in [true, false] {
            let clone = detached(
                shown(source.path()).as_fd(),
                if read_only { Lets::Read } else { Lets::Write },
            )
            .unwrap();
            in_child(|| {
                alone(&[])?;
                attach(&clone, target.path())?;
                let inside = target.path().join("file");
                expect(fs::read(&inside)? == b"content", "another content")?;
                let written = refused(fs::write(&inside, "content"));
                let expected = read_only.then_some(libc::EROFS);
                expect(written == expected, &format!("writing: {written:?}"))?;
                expect(
                    flags(target.path())?.contains(FsFlags::ST_NOSUID | FsFlags::ST_NODEV),
                    "set-id bits or devices",
                )?;
                // What is attached stays attached.
                expect(
                    refused(attach(&clone, target.path())).is_some(),
                    "attached twice",
                )
            });
            assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_detached_file_is_attached_over_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let (source, target) = (directory.path().join("a"), directory.path().join("b"));
        fs::write(&source, "source").unwrap();
        fs::write(&target, "target").unwrap();
        let clone = detached(shown(&source).as_fd(), Lets::Read).unwrap();
        in_child(|| {
            alone(&[])?;
            expect(
                refused(attach(&clone, directory.path())).is_some(),
                "over a directory",
            )?;
            attach(&clone, &target)?;
            expect(fs::read(&target)? == b"source", "another content")?;
            expect(
                refused(fs::write(&target, "x")) == Some(libc::EROFS),
                "written",
            )
        });
        assert_eq!(fs::read(&target).unwrap(), b"target");
    }

    #[test]
    fn a_file_that_was_replaced_is_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "first").unwrap();
        let first = shown(&path);
        fs::rename(&path, directory.path().join("moved")).unwrap();
        // The kernel knows under which name it is now.
        detached(first.as_fd(), Lets::Read).unwrap();
        fs::remove_file(directory.path().join("moved")).unwrap();
        fs::write(directory.path().join("moved (deleted)"), "second").unwrap();
        assert_eq!(
            refused(detached(first.as_fd(), Lets::Read)),
            Some(libc::ESTALE)
        );
    }

    #[test]
    fn what_mounts_hide_is_not_shown() {
        // /proc at least is mounted below it.
        let whole = shown(Path::new("/"));
        assert_eq!(
            refused(detached(whole.as_fd(), Lets::Read)),
            Some(libc::EINVAL)
        );
    }
}
