//! A cgroup of a session's own (cgroups(7), version 2), where the user has a part of the tree that they may
//! change: below `systemd --user`, mostly. It gives what is traced a name that stays when processes come and go;
//! nothing depends on it, as the tracer's marks do not. Where there can be none nobody is told.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::unistd::{AccessFlags, access};

use crate::host::mount_table;

/// How its name begins.
const PREFIX: &str = "agent-sandbox-";
/// An empty one that is older was left by a launcher that was killed.
const LEFT: Duration = Duration::from_secs(60);
/// How often, and how long between, the removal waits for the last processes to be gone.
const ATTEMPTS: u32 = 5;
/// See [`ATTEMPTS`].
const BETWEEN: Duration = Duration::from_millis(4);
/// As many processes are moved at most: those that make the jail, before anything of it runs.
const MOST_MOVED: usize = 16;
/// No file of `/proc` that is read here is longer, in bytes.
const LONGEST: u64 = 1 << 20;

/// A cgroup that was made. It is removed when this is dropped, if nothing is left in it.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    id: u64,
}

impl Group {
    /// Makes one for a session and moves a process there, with all that it has started.
    ///
    /// # Errors
    /// There is no part of the tree that the user may change, or the kernel refuses.
    pub fn of_session(session: &str, process: u32) -> io::Result<Self> {
        let own = own()?;
        sweep(&own);
        Self::below(&own, session, process)
    }

    fn below(parent: &Path, session: &str, process: u32) -> io::Result<Self> {
        let path = parent.join(format!("{PREFIX}{session}"));
        fs::DirBuilder::new().mode(0o755).create(&path)?;
        let id = fs::symlink_metadata(&path)?.ino();
        let group = Self { path, id };
        group.take(process)?;
        Ok(group)
    }

    /// Moves a process there, with all that it has started. The first move on a node that was quiet takes until every
    /// processor has noticed (some 20 ms); those right behind it are quick.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take(&self, process: u32) -> io::Result<()> {
        let procs = self.path.join("cgroup.procs");
        let mut processes = fs::OpenOptions::new().write(true).open(procs)?;
        let mut waiting = vec![process];
        for _ in 0..MOST_MOVED {
            let Some(pid) = waiting.pop() else { break };
            processes.write_all(pid.to_string().as_bytes())?;
            let children = text(&format!("/proc/{pid}/task/{pid}/children"))?;
            let children = children.split_ascii_whitespace();
            waiting.extend(children.filter_map(|pid| pid.parse::<u32>().ok()));
        }
        Ok(())
    }

    /// Its id: the inode number of its directory.
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..ATTEMPTS {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(BETWEEN);
                }
                _ => return,
            }
        }
    }
}

/// The directory of this process's cgroup, if the user may make others below it and move processes there.
fn own() -> io::Result<PathBuf> {
    let groups = text("/proc/self/cgroup")?;
    let mounts = text("/proc/self/mountinfo")?;
    let path = directory(&groups, &mounts).ok_or(io::ErrorKind::NotFound)?;
    let uid = nix::unistd::geteuid().as_raw();
    if fs::symlink_metadata(&path)?.uid() != uid {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    access(&path.join("cgroup.procs"), AccessFlags::W_OK)?;
    Ok(path)
}

/// Where the cgroup stands that `/proc/PID/cgroup` names (cgroups(7)).
fn directory(groups: &str, mounts: &str) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    // One that shows a part of the tree alone is none that a path of the whole leads into.
    let mount = mount_table::place_of(mounts.as_bytes(), "cgroup2")?;
    let below = path.strip_prefix('/')?;
    (!below.split('/').any(|part| part == "..")).then(|| mount.join(below))
}

/// Removes what launchers left that were killed. One with processes in it cannot be removed (rmdir(2)).
fn sweep(own: &Path) {
    let old = |path: &Path| {
        let made = fs::symlink_metadata(path).and_then(|meta| meta.modified());
        made.is_ok_and(|made| {
            SystemTime::now()
                .duration_since(made)
                .is_ok_and(|age| age > LEFT)
        })
    };
    for entry in fs::read_dir(own).into_iter().flatten().flatten() {
        let ours = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX));
        if ours && old(&entry.path()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn text(path: &str) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const MOUNTS: &str = "25 1 0:22 / /proc rw - proc proc rw\n\
        30 24 0:26 /part /sys/fs/part rw shared:4 - cgroup2 cgroup2 rw\n\
        31 24 0:26 / /sys/fs/cgroup\\040x rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_directory_of_a_cgroup_is_below_the_mount_of_the_whole_tree() {
        let at = |groups: &str| directory(groups, MOUNTS);
        let user = "1:name=systemd:/x\n0::/user.slice/user@7.service/app.slice\n";
        let expected = "/sys/fs/cgroup x/user.slice/user@7.service/app.slice";
        assert_eq!(at(user), Some(expected.into()));
        assert_eq!(at("0::/\n"), Some("/sys/fs/cgroup x/".into()));
        assert_eq!(at("0::/../elsewhere\n"), None);
        assert_eq!(at("1:cpu:/x\n"), None);
        assert_eq!(
            directory(user, "25 1 0:22 / /proc rw - proc proc rw\n"),
            None
        );
    }
}
