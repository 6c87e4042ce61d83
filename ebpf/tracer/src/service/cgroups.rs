//! Cgroups that callers name by their ids.
#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads /proc/self/mountinfo and the cgroup file system"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};

use super::mounts;
use crate::sys::handle;

/// The cgroup2 file system of this node.
#[derive(Debug)]
pub struct Cgroups {
    mount: OwnedFd,
    point: PathBuf,
}

/// A cgroup that there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Whose directory it is.
    pub owner: u32,
    /// Where it is, from the root of that file system.
    pub path: PathBuf,
}

impl Cgroups {
    /// Finds the file system.
    ///
    /// # Errors
    /// It is not mounted, or cannot be opened.
    pub fn find() -> io::Result<Self> {
        let text = std::fs::read_to_string("/proc/self/mountinfo")?;
        let mut all = mounts::parse(&text);
        let whole = all.find(|mount| mount.kind == "cgroup2" && mount.root == "/");
        let point = whole.ok_or(io::ErrorKind::NotFound)?.point;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mount = open(&point, flags, Mode::empty())?;
        Ok(Self { mount, point })
    }

    /// The cgroup of this id; none if there is none (any more).
    ///
    /// # Errors
    /// It cannot be looked up: that needs `CAP_DAC_READ_SEARCH`.
    pub fn get(&self, id: u64) -> io::Result<Option<Cgroup>> {
        let directory = match handle::cgroup(self.mount.as_fd(), id) {
            Ok(directory) => directory,
            Err(error) if error.raw_os_error() == Some(Errno::ESTALE as i32) => return Ok(None),
            Err(error) => return Err(error),
        };
        let stat = fstat(&directory)?;
        let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let path = std::fs::read_link(link)?;
        let Ok(below) = path.strip_prefix(&self.point) else {
            return Ok(None);
        };
        // Ids are the numbers of inodes where those have 64 bits; elsewhere nothing is found.
        let sound = stat.st_ino == id;
        Ok(sound.then(|| Cgroup {
            owner: stat.st_uid,
            path: Path::new("/").join(below),
        }))
    }
}

impl Cgroup {
    /// Whether a process that is in that cgroup is in this one or below.
    #[must_use]
    pub fn holds(&self, of_process: &Path) -> bool {
        of_process.starts_with(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_cgroup_holds_what_is_below_it() {
        let cgroup = Cgroup {
            owner: 0,
            path: PathBuf::from("/a/b"),
        };
        assert!(cgroup.holds(Path::new("/a/b")));
        assert!(cgroup.holds(Path::new("/a/b/c")));
        assert!(!cgroup.holds(Path::new("/a/bc")));
        assert!(!cgroup.holds(Path::new("/a")));
        assert!(!cgroup.holds(Path::new("/../a/b/c")));
    }

    #[test]
    fn a_cgroup_is_found_by_its_id() {
        let cgroups = match Cgroups::find() {
            Ok(cgroups) => cgroups,
            Err(error) => return println!("not checked: cgroups by id: {error}"),
        };
        let root = std::fs::metadata(&cgroups.point).unwrap();
        match cgroups.get(root.ino()) {
            Err(error) => println!("not checked: cgroups by id: {error}"),
            Ok(found) => {
                let found = found.unwrap();
                assert_eq!(found.path, Path::new("/"));
                assert_eq!(found.owner, root.uid());
                assert_eq!(cgroups.get(u64::MAX).unwrap(), None);
                assert_eq!(cgroups.get(0).unwrap(), None);
            }
        }
    }
}
