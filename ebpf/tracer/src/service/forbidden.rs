//! Descriptors of what is forbidden, and how the probes know those files again: by the device of the
//! super block and the inode. Nothing is opened, and no path is looked up.
#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads /proc/self/fdinfo"
)]

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::stat::{fstat, major, minor};

use super::mounts::{self, Mount};
use super::registry::File;

/// So much of a caller's table of mounts is read, in bytes: it can have made a hundred thousand mounts in a
/// namespace of its own (`fs.mount-max`).
pub const MOST_MOUNTS: u64 = 4 << 20;

/// Why the probes cannot know a file again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blind {
    /// It is opened: what that means is up to its file system, also when it is closed.
    Opened,
    /// A pipe, a socket, a process: it has no path.
    Pathless,
    /// Its file system is mounted nowhere that the caller or the tracer sees.
    Unmounted,
    /// Its file system could ask a server that does not answer, and the kernel does not tell the number otherwise
    /// (before Linux 5.14).
    Remote(String),
    /// A file system that gives one number to several files, as btrfs and bcachefs do in their subvolumes.
    Ambiguous(String),
}

impl Blind {
    /// The reason as a sentence, of so many descriptors.
    #[must_use]
    pub fn sentence(&self, count: usize) -> String {
        let files = if count == 1 { "file is" } else { "files are" };
        match self {
            Self::Opened => {
                format!("{count} {files} not denied: opened, and not with O_PATH")
            }
            Self::Pathless => format!("{count} {files} not in any directory, and not denied"),
            Self::Unmounted => format!("{count} {files} not denied: their mount is out of sight"),
            Self::Remote(kind) => {
                format!("{count} {files} not denied: {kind} could keep the tracer waiting")
            }
            Self::Ambiguous(kind) => {
                format!("{count} {files} not denied: on {kind} several files have the same number")
            }
        }
    }
}

/// The mounts by their numbers: those of the tracer, and those of the caller.
#[derive(Debug, Default)]
pub struct Seen(BTreeMap<u64, Mount>);

impl Seen {
    /// Adds a table of mounts.
    pub fn add(&mut self, mountinfo: &str) {
        self.0
            .extend(mounts::parse(mountinfo).map(|mount| (mount.id, mount)));
    }
}

/// File systems that answer `fstat(2)` by themselves. Others ask: a server, a process of a user's (FUSE), what
/// lies below them (overlayfs). That can take for ever, and whoever sends the descriptor decides on it.
const LOCAL: [&str; 14] = [
    "bcachefs", "btrfs", "cgroup2", "devtmpfs", "ext2", "ext3", "ext4", "f2fs", "proc", "squashfs",
    "sysfs", "tmpfs", "vfat", "xfs",
];

/// A file as the probes know it, and the mount that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountedFile {
    /// The mount's number.
    pub mount: u64,
    /// Device and inode.
    pub file: File,
}

/// How the probes know it again.
///
/// # Errors
/// They cannot.
pub fn identify(descriptor: &OwnedFd, seen: &Seen) -> Result<MountedFile, Blind> {
    let number = descriptor.as_raw_fd();
    let flags = fcntl(descriptor, FcntlArg::F_GETFL).unwrap_or(0);
    if flags & libc::O_PATH == 0 {
        return Err(Blind::Opened);
    }
    let info = fd_info(descriptor).ok_or(Blind::Pathless)?;
    let Some(mount) = seen.0.get(&info.mount) else {
        // The path's text alone: nothing is asked. Pipes and the like are `pipe:[7]`.
        let text = std::fs::read_link(format!("/proc/self/fd/{number}"));
        let path = text.is_ok_and(|text| text.has_root());
        return Err(if path {
            Blind::Unmounted
        } else {
            Blind::Pathless
        });
    };
    let device = self::number(mount.device);
    let found = |inode| MountedFile {
        mount: mount.id,
        file: (device, inode),
    };
    if !LOCAL.contains(&mount.kind.as_str()) {
        // Mount and inode as the kernel has them are what the probes see.
        let inode = info
            .inode
            .ok_or_else(|| Blind::Remote(mount.kind.clone()))?;
        return Ok(found(inode));
    }
    let stat = fstat(descriptor).map_err(|_| Blind::Pathless)?;
    let device_seen = (major(stat.st_dev), minor(stat.st_dev));
    if device_seen != (u64::from(mount.device.0), u64::from(mount.device.1)) {
        return Err(Blind::Ambiguous(mount.kind.clone()));
    }
    Ok(found(stat.st_ino))
}

/// A device as the kernel counts it (`MKDEV`, include/linux/kdev_t.h).
fn number((major, minor): (u32, u32)) -> u32 {
    major << 20 | minor
}

/// What `/proc/self/fdinfo` says about a descriptor. Reading it asks no server.
struct FdInfo {
    mount: u64,
    inode: Option<u64>,
}

/// The mount that a descriptor is in, and its inode (`proc_pid_fdinfo(5)`; the inode since Linux 5.14).
fn fd_info(descriptor: &OwnedFd) -> Option<FdInfo> {
    let path = format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd());
    let text = std::fs::read_to_string(path).ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some(FdInfo {
        mount: field("mnt_id:")?,
        inode: field("ino:"),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use nix::fcntl::{OFlag, open};
    use nix::sys::stat::Mode;

    use super::*;

    fn ours() -> Seen {
        let mut seen = Seen::default();
        seen.add(&std::fs::read_to_string("/proc/self/mountinfo").unwrap());
        seen
    }

    fn file(descriptor: &OwnedFd, seen: &Seen) -> Result<File, Blind> {
        identify(descriptor, seen).map(|found| found.file)
    }

    fn path(path: &str, flags: OFlag) -> OwnedFd {
        open(path, flags | OFlag::O_CLOEXEC, Mode::empty()).unwrap()
    }

    #[test]
    fn a_directory_is_known_by_o_path_and_not_if_it_is_opened() {
        let meta = std::fs::metadata("/proc").unwrap();
        let device = u32::try_from(major(meta.dev()) << 20 | minor(meta.dev())).unwrap();
        let found = file(&path("/proc", OFlag::O_PATH), &ours());
        assert_eq!(found, Ok((device, meta.ino())));
        let found = file(&path("/proc", OFlag::O_RDONLY), &ours());
        assert_eq!(found, Err(Blind::Opened));
        assert!(file(&path("/dev/null", OFlag::O_PATH), &ours()).is_ok());
    }

    #[test]
    fn what_has_no_path_is_not_taken() {
        let (read, _write) = nix::unistd::pipe().unwrap();
        let (one, _two) = std::os::unix::net::UnixStream::pair().unwrap();
        let process = crate::sys::pidfd::open(std::process::id()).unwrap();
        let epoll = nix::sys::epoll::Epoll::new(nix::sys::epoll::EpollCreateFlags::empty());
        for opened in [&read, &one.into(), &process, &epoll.unwrap().0] {
            assert_eq!(file(opened, &ours()), Err(Blind::Opened));
            // The same, as a path to it that is not opened.
            let again = format!("/proc/self/fd/{}", opened.as_raw_fd());
            assert!(file(&path(&again, OFlag::O_PATH), &ours()).is_err());
        }
        let again = format!("/proc/self/fd/{}", read.as_raw_fd());
        let found = file(&path(&again, OFlag::O_PATH), &ours());
        assert_eq!(found, Err(Blind::Pathless));
    }

    #[test]
    fn what_is_mounted_out_of_sight_is_not_taken() {
        let root = path("/", OFlag::O_PATH);
        assert_eq!(file(&root, &Seen::default()), Err(Blind::Unmounted));
    }

    #[test]
    fn a_device_that_stat_does_not_tell_is_taken_from_overlay_alone() {
        let root = path("/", OFlag::O_PATH);
        let id = fd_info(&root).unwrap().mount;
        let of = |kind: &str| {
            let mut seen = Seen::default();
            seen.add(&format!("{id} 1 0:99 / / rw - {kind} none rw"));
            file(&root, &seen)
        };
        assert_eq!(of("overlay").unwrap().0, 99);
        assert_eq!(of("btrfs"), Err(Blind::Ambiguous("btrfs".to_owned())));
    }

    #[test]
    fn what_could_keep_the_tracer_waiting_is_not_asked() {
        let root = path("/", OFlag::O_PATH);
        let info = fd_info(&root).unwrap();
        let inode = info.inode.unwrap();
        // The mount's device is another one than the file's own: who asked the file would see it.
        for kind in [
            "fuse",
            "fuse.sshfs",
            "fuseblk",
            "nfs4",
            "lustre",
            "overlay",
            "unheard_of",
        ] {
            let mut seen = Seen::default();
            seen.add(&format!("{} 1 0:99 / / rw - {kind} none rw", info.mount));
            assert_eq!(file(&root, &seen), Ok((99, inode)), "{kind}");
        }
        let sentence = Blind::Remote("nfs4".to_owned()).sentence(2);
        assert_eq!(
            sentence,
            "2 files are not denied: nfs4 could keep the tracer waiting"
        );
    }

    #[test]
    fn a_device_is_numbered_as_the_kernel_does() {
        assert_eq!(number((8, 1)), 0x80_0001);
        assert_eq!(number((0, 0x1_2345)), 0x1_2345);
    }
}
