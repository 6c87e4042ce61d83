//! A cgroup of a session's own (cgroups(7), version 2), where the user has a part of the tree that they may
//! change: below `systemd --user`, mostly. It gives what is traced a name that stays when processes come and go, limits
//! what a session may take of its node, and counts what it took. Where it is for the name or the numbers alone, nothing
//! depends on it, and nobody is told that there is none.

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
/// The limit of what a cgroup may have in swap.
pub(super) const SWAP: &str = "memory.swap.max";
/// As many processes are moved at most: those that make the jail, before anything of it runs.
const MOST_MOVED: usize = 16;
/// No file of `/proc` that is read here is longer, in bytes.
const LONGEST: u64 = 1 << 20;

/// What a cgroup is made for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The directory below which it is made.
    parent: PathBuf,
    /// Files of it, and what is written into each.
    settings: Vec<(&'static str, String)>,
    /// Whether nothing may run outside of it.
    pub required: bool,
}

/// What the processes of a cgroup took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Processors' time; `None`: not known.
    pub cpu: Option<Duration>,
    /// The most memory at one time, in bytes; `None`: not known (before Linux 5.19, or not counted).
    pub peak: Option<u64>,
    /// How many processes the kernel ended because there was no memory left.
    pub memory_kills: u64,
}

impl Wanted {
    /// One in which these controllers are there, with these settings.
    ///
    /// # Errors
    /// There is no part of the tree that the user may change in which they are. Completes "no cgroup of its own: …".
    pub fn limiting(
        controllers: &[&'static str],
        settings: Vec<(&'static str, String)>,
    ) -> Result<Self, String> {
        Ok(Self {
            parent: with_controllers(controllers)?,
            settings,
            required: true,
        })
    }

    /// One that counts, as far as that is possible here.
    ///
    /// # Errors
    /// There is no part of the tree that the user may change.
    pub fn counting() -> io::Result<Self> {
        Ok(Self {
            parent: with_controllers(&["memory"]).or_else(|_| own())?,
            settings: Vec::new(),
            required: false,
        })
    }
}

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

    /// The same of one that is made for something.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wanted(wanted: &Wanted, session: &str, process: u32) -> io::Result<Self> {
        sweep(&wanted.parent);
        let group = Self::make(&wanted.parent, session)?;
        for (file, value) in &wanted.settings {
            let written = fs::OpenOptions::new()
                .write(true)
                .open(group.path.join(file))
                .and_then(|mut file| file.write_all(value.as_bytes()));
            match written {
                // A kernel without swap has no limit of it.
                Err(error) if *file == SWAP && error.kind() == io::ErrorKind::NotFound => {}
                written => written
                    .map_err(|error| io::Error::new(error.kind(), format!("{file}: {error}")))?,
            }
        }
        group.take(process)?;
        Ok(group)
    }

    fn below(parent: &Path, session: &str, process: u32) -> io::Result<Self> {
        let group = Self::make(parent, session)?;
        group.take(process)?;
        Ok(group)
    }

    fn make(parent: &Path, session: &str) -> io::Result<Self> {
        let path = parent.join(format!("{PREFIX}{session}"));
        fs::DirBuilder::new().mode(0o755).create(&path)?;
        let id = fs::symlink_metadata(&path)?.ino();
        Ok(Self { path, id })
    }

    /// What its processes took until now.
    pub fn taken(&self) -> Taken {
        let read = |name: &str| fs::read_to_string(self.path.join(name)).unwrap_or_default();
        Taken {
            cpu: field(&read("cpu.stat"), "usage_usec").map(Duration::from_micros),
            peak: read("memory.peak").trim().parse().ok(),
            memory_kills: field(&read("memory.events"), "oom_kill").unwrap_or(0),
        }
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

/// Whether systemd's manager of the caller's own services listens (`systemd --user`, by its private socket). It makes scopes
/// that are the user's own, also for what runs in a login that is not.
pub(super) fn user_manager() -> bool {
    let uid = nix::unistd::geteuid();
    let socket = PathBuf::from(format!("/run/user/{uid}/systemd/private"));
    fs::symlink_metadata(socket).is_ok_and(|meta| meta.uid() == uid.as_raw())
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

/// The nearest cgroup around this process below which the user may make others that have these controllers. One with
/// processes of its own can give none to those below it (cgroup-v2.rst of the kernel's documentation, "No Internal
/// Process Constraint").
fn with_controllers(wanted: &[&'static str]) -> Result<PathBuf, String> {
    let mut at = own().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "there are no cgroups of version 2 here".to_owned(),
        _ => "the cgroup of this login belongs to the system".to_owned(),
    })?;
    let uid = nix::unistd::geteuid().as_raw();
    let has = |at: &Path, file: &str| {
        let text = fs::read_to_string(at.join(file)).unwrap_or_default();
        let all: Vec<&str> = text.split_whitespace().collect();
        wanted.iter().all(|name| all.contains(name))
    };
    loop {
        if has(&at, "cgroup.subtree_control") {
            return Ok(at);
        }
        let is_empty =
            fs::read_to_string(at.join("cgroup.procs")).is_ok_and(|text| text.is_empty());
        if is_empty && has(&at, "cgroup.controllers") {
            let plus: Vec<String> = wanted.iter().map(|name| format!("+{name}")).collect();
            if fs::write(at.join("cgroup.subtree_control"), plus.join(" ")).is_ok() {
                return Ok(at);
            }
        }
        // Processes move only within what is the user's.
        let mine = |path: &Path| fs::symlink_metadata(path).is_ok_and(|meta| meta.uid() == uid);
        let writable = |path: &Path| access(&path.join("cgroup.procs"), AccessFlags::W_OK).is_ok();
        if !at.pop() || !mine(&at) || !writable(&at) {
            return Err(format!(
                "none that this user may change has the controllers {}",
                wanted.join(", ")
            ));
        }
    }
}

/// A number of a file with a name and a number in each line.
fn field(text: &str, name: &str) -> Option<u64> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let (_, number) = lines.into_iter().find(|(found, _)| *found == name)?;
    number.trim().parse().ok()
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
