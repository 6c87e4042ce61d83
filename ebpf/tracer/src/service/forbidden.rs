//! Descriptors of what is forbidden, and how the probes know those files again: by the device of the
//! super block and the inode. Nothing is opened, and no path is looked up.
#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads /proc/self/fdinfo"
)]

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::stat::{SFlag, fstat, major, minor};

use super::mounts::{self, Mount};
use super::registry::File;

/// So much of a caller's table of mounts is read, in bytes: it can have made a hundred thousand mounts in a
/// namespace of its own (`fs.mount-max`).
pub const MOST_MOUNTS: u64 = 4 << 20;

/// Why the probes cannot know a file again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blind {
    /// A pipe, a socket, a process: it has no path.
    Pathless,
    /// Its file system is mounted nowhere that the caller or the tracer sees.
    Unmounted,
    /// A file system that gives one number to several files, as btrfs and bcachefs do in their subvolumes.
    Ambiguous(String),
}

impl Blind {
    /// The reason as a sentence, of so many descriptors.
    #[must_use]
    pub fn sentence(&self, count: usize) -> String {
        let files = if count == 1 { "file is" } else { "files are" };
        match self {
            Self::Pathless => format!("{count} {files} not in any directory, and not denied"),
            Self::Unmounted => format!("{count} {files} not denied: their mount is out of sight"),
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

/// What `fstat(2)` says, and in which mount it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The mount's number.
    pub mount: u64,
    /// Device and inode.
    pub file: File,
}

/// How the probes know it again.
///
/// # Errors
/// They cannot.
pub fn look(descriptor: &OwnedFd, seen: &Seen) -> Result<Found, Blind> {
    let stat = fstat(descriptor).map_err(|_| Blind::Pathless)?;
    let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
    if kind.is_empty() {
        return Err(Blind::Pathless);
    }
    let mount = mount_id(descriptor).and_then(|id| seen.0.get(&id));
    let Some(mount) = mount else {
        let file_of_a_mount = kind == SFlag::S_IFDIR || kind == SFlag::S_IFREG;
        return Err(if file_of_a_mount {
            Blind::Unmounted
        } else {
            Blind::Pathless
        });
    };
    let told = (major(stat.st_dev), minor(stat.st_dev));
    let same = told == (u64::from(mount.device.0), u64::from(mount.device.1));
    // overlayfs tells the device of a layer for a file, and the probes see its own; the inode is the same
    // (Documentation/filesystems/overlayfs.rst, "Inode properties").
    if !same && mount.kind != "overlay" {
        return Err(Blind::Ambiguous(mount.kind.clone()));
    }
    Ok(Found {
        mount: mount.id,
        file: (number(mount.device), stat.st_ino),
    })
}

/// A device as the kernel counts it (`MKDEV`, include/linux/kdev_t.h).
fn number((major, minor): (u32, u32)) -> u32 {
    major << 20 | minor
}

/// The number of the mount that a descriptor is in (`proc_pid_fdinfo(5)`).
fn mount_id(descriptor: &OwnedFd) -> Option<u64> {
    let path = format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd());
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File as Opened;
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
        look(descriptor, seen).map(|found| found.file)
    }

    fn path(path: &str, flags: OFlag) -> OwnedFd {
        open(path, flags | OFlag::O_CLOEXEC, Mode::empty()).unwrap()
    }

    #[test]
    fn a_directory_is_known_by_o_path_and_by_others() {
        let meta = std::fs::metadata("/proc").unwrap();
        let device = u32::try_from(major(meta.dev()) << 20 | minor(meta.dev())).unwrap();
        for flags in [OFlag::O_PATH, OFlag::O_RDONLY] {
            let found = file(&path("/proc", flags), &ours());
            assert_eq!(found, Ok((device, meta.ino())));
        }
        assert!(file(&path("/dev/null", OFlag::O_PATH), &ours()).is_ok());
    }

    #[test]
    fn what_has_no_path_is_not_taken() {
        let (read, _write) = nix::unistd::pipe().unwrap();
        assert_eq!(file(&read, &ours()), Err(Blind::Pathless));
        let (one, _two) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(file(&one.into(), &ours()), Err(Blind::Pathless));
        let process = crate::sys::pidfd::open(std::process::id()).unwrap();
        assert!(file(&process, &ours()).is_err());
        let epoll = nix::sys::epoll::Epoll::new(nix::sys::epoll::EpollCreateFlags::empty());
        assert!(file(&epoll.unwrap().0, &ours()).is_err());
    }

    #[test]
    fn what_is_mounted_out_of_sight_is_not_taken() {
        let root = OwnedFd::from(Opened::open("/").unwrap());
        assert_eq!(file(&root, &Seen::default()), Err(Blind::Unmounted));
    }

    #[test]
    fn a_device_that_stat_does_not_tell_is_taken_from_overlay_alone() {
        let root = OwnedFd::from(Opened::open("/").unwrap());
        let id = mount_id(&root).unwrap();
        let of = |kind: &str| {
            let mut seen = Seen::default();
            seen.add(&format!("{id} 1 0:99 / / rw - {kind} none rw"));
            file(&root, &seen)
        };
        assert_eq!(of("overlay").unwrap().0, 99);
        assert_eq!(of("btrfs"), Err(Blind::Ambiguous("btrfs".to_owned())));
    }

    #[test]
    fn a_device_is_numbered_as_the_kernel_does() {
        assert_eq!(number((8, 1)), 0x80_0001);
        assert_eq!(number((0, 0x1_2345)), 0x1_2345);
    }
}
