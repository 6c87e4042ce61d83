//! Cgroups that callers name by their ids.
#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads /proc/self/mountinfo and the cgroup file system"
)]

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};

use super::mounts;
use crate::sys::handle;

/// So many directories are looked at for one id, where that takes looking: about 0.1 s.
const MOST_DIRECTORIES: u32 = 10_000;

/// So many are known at a time: more than there are traces.
const MOST_KNOWN: usize = 8192;

/// The cgroup2 file system of this node.
#[derive(Debug)]
pub struct Cgroups {
    mount: OwnedFd,
    point: PathBuf,
    /// Where cgroups were found, from the mount's root. A cgroup keeps its name as long as there is one.
    known: BTreeMap<u64, PathBuf>,
    /// Directories that were looked at since the last time that somebody asked.
    looked_at: u32,
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
        Ok(Self {
            mount,
            point,
            known: BTreeMap::new(),
            looked_at: 0,
        })
    }

    /// The cgroup of this id; none if there is none (any more).
    ///
    /// With `CAP_DAC_READ_SEARCH` the kernel says where it is; without it the directories are gone through.
    ///
    /// # Errors
    /// It cannot be looked up.
    pub fn get(&mut self, id: u64) -> io::Result<Option<Cgroup>> {
        if let Some(path) = self.known.get(&id) {
            let found = self.at(path, id);
            if found.is_none() {
                self.known.remove(&id);
            }
            return Ok(found);
        }
        let path = match handle::cgroup(self.mount.as_fd(), id) {
            Ok(directory) => {
                // Ids are the numbers of inodes where those have 64 bits; elsewhere nothing is found.
                if fstat(&directory)?.st_ino != id {
                    return Ok(None);
                }
                std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))?
            }
            Err(error) if error.raw_os_error() == Some(Errno::ESTALE as i32) => return Ok(None),
            Err(error) if error.raw_os_error() == Some(Errno::EPERM as i32) => {
                match self.look_for(id) {
                    Some(path) => path,
                    None => return Ok(None),
                }
            }
            Err(error) => return Err(error),
        };
        let Ok(below) = path.strip_prefix(&self.point) else {
            return Ok(None);
        };
        let found = self.at(below, id);
        if found.is_some() {
            // Users make cgroups, name them once, and remove them.
            if self.known.len() >= MOST_KNOWN {
                self.known.clear();
            }
            self.known.insert(id, below.to_owned());
        }
        Ok(found)
    }

    /// Directories that have been looked at, and none from here on.
    pub fn take_looked_at(&mut self) -> u32 {
        std::mem::take(&mut self.looked_at)
    }

    /// The cgroup there, if it is that one.
    fn at(&self, below: &Path, id: u64) -> Option<Cgroup> {
        let meta = std::fs::symlink_metadata(self.point.join(below)).ok()?;
        (meta.is_dir() && meta.ino() == id).then(|| Cgroup {
            owner: meta.uid(),
            path: Path::new("/").join(below),
        })
    }

    /// Goes through the directories, outer ones first.
    fn look_for(&mut self, id: u64) -> Option<PathBuf> {
        let mut left = MOST_DIRECTORIES;
        let mut queue = VecDeque::from([self.point.clone()]);
        while let Some(directory) = queue.pop_front() {
            left = left.checked_sub(1)?;
            self.looked_at += 1;
            let meta = std::fs::symlink_metadata(&directory);
            if meta.is_ok_and(|meta| meta.ino() == id) {
                return Some(directory);
            }
            let entries = std::fs::read_dir(&directory)
                .into_iter()
                .flatten()
                .flatten();
            let directories =
                entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            queue.extend(directories.map(|entry| entry.path()));
        }
        None
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
        let mut cgroups = match Cgroups::find() {
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

    #[test]
    fn a_cgroup_is_found_without_the_right_to_open_it_by_its_id() {
        let mut cgroups = match Cgroups::find() {
            Ok(cgroups) => cgroups,
            Err(error) => return println!("not checked: cgroups by looking for them: {error}"),
        };
        let directories = || {
            let entries = std::fs::read_dir(&cgroups.point).unwrap().flatten();
            entries.filter(|entry| entry.file_type().unwrap().is_dir())
        };
        let Some(below) = directories().next() else {
            return println!("not checked: cgroups by looking for them: there is but one");
        };
        let id = below.metadata().unwrap().ino();
        assert_eq!(cgroups.look_for(id), Some(below.path()));
        assert!(cgroups.take_looked_at() > 1);
        assert_eq!(cgroups.look_for(u64::MAX), None);
        // One that is known and has gone is not another one.
        cgroups.known.insert(u64::MAX, below.file_name().into());
        assert_eq!(cgroups.get(u64::MAX).unwrap(), None);
        assert!(cgroups.known.is_empty());
    }
}
