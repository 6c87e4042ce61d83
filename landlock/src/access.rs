//! What confines a command where Landlock and the mediator are the whole jail, as data: the rules that
//! the kernel enforces, and the access map by which the mediator decides. [`translate`](mod@super::translate) makes both;
//! [`restrict`](super::restrict) and [`mediator`](super::mediator) carry them out and have no choice left.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use agent_sandbox_base::plan::model::git::GitConfig;

/// The first ABI with rights about TCP (`landlock(7)`).
pub const NETWORK: i32 = 4;

/// What a Landlock rule allows on a file, or on a directory and everything below it
/// (`landlock(7)`; a right that the kernel's ABI does not know is left out of rule and domain alike).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Right {
    /// Reading files, listing directories, executing.
    Read,
    /// Reading and executing files, but not listing directories.
    ReadFiles,
    /// Everything that can be done with files and directories, except with device nodes (ABI 5).
    Write,
    /// Reading, writing and `ioctl(2)` of one device node.
    Device,
}

/// A Landlock rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// A real path of the host.
    pub path: Vec<u8>,
    /// Device and inode that must be found there; `None` for what is made by this launch.
    pub id: Option<(u64, u64)>,
    /// What it gives.
    pub right: Right,
}

/// What the mediator lets be done somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Permission {
    /// Nothing: it is hidden, or was never given.
    None,
    /// Reading, which Landlock sees to; nothing is changed.
    Read,
    /// What this jail made there itself, and nothing else (`/dev/shm`): it may make files, and change
    /// and remove those that it made.
    Own,
    /// Everything.
    Write,
}

/// A path, and what may be done there and below it, up to the next entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapEntry {
    /// A real path of the host.
    pub at: Vec<u8>,
    /// What may be done.
    pub permission: Permission,
    /// Whether a rule of Landlock gives the permission, so that the kernel can judge calls there. Without one
    /// (in a directory that has something closed in it) the mediator carries them out. The rule belongs to
    /// the object that stood there ([`MediatorConfig::planned`]), and not to one that took its place later: a file that
    /// an editor renamed over it, or a directory that was removed and made again.
    pub direct: bool,
    /// Whether the directory itself may be listed. Meaningful where Landlock does not let it be:
    /// where a rule to list it would let hidden directories below it be listed.
    pub listed: bool,
}

/// Every entry, sorted by path; nothing may be done at what falls under none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessMap {
    entries: Vec<MapEntry>,
}

impl AccessMap {
    /// Sorts the entries. Of two with the same path the later counts.
    #[must_use]
    pub fn new(mut entries: Vec<MapEntry>) -> Self {
        entries.reverse();
        entries.sort_by(|one, other| one.path().cmp(other.path()));
        entries.dedup_by(|later, first| later.path() == first.path());
        Self { entries }
    }

    /// All of them.
    #[must_use]
    pub fn entries(&self) -> &[MapEntry] {
        &self.entries
    }

    /// The entry that a real path falls under: the longest whose path is the path or above it.
    #[must_use]
    pub fn entry(&self, path: &Path) -> Option<&MapEntry> {
        path.ancestors().find_map(|above| {
            let at = self
                .entries
                .binary_search_by(|entry| entry.path().cmp(above));
            at.ok().map(|at| &self.entries[at])
        })
    }

    /// What may be done at a real path.
    #[must_use]
    pub fn permission(&self, path: &Path) -> Permission {
        self.entry(path)
            .map_or(Permission::None, |entry| entry.permission)
    }

    /// Whether the permission changes at a path or below it. Such a path can be neither renamed nor removed, like a
    /// mount point. Entries of a guarded directory that have its own permission can be.
    #[must_use]
    pub fn is_pinned(&self, path: &Path) -> bool {
        let from = self.entries.partition_point(|entry| entry.path() < path);
        let below = self.entries[from..]
            .iter()
            .take_while(|entry| entry.path().starts_with(path));
        below.into_iter().any(|entry| {
            let around = entry.path().parent().map(|parent| self.permission(parent));
            around.unwrap_or(Permission::None) != entry.permission
        })
    }
}

impl Rule {
    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }
}

impl MapEntry {
    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.at))
    }
}

/// Which calls are handed over to the mediator in addition to those that always are (`connect(2)`, and what
/// changes modes, owners, times and extended attributes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedOver {
    /// Calls that open for writing, make, rename, link and remove: a writable directory has
    /// something closed in it.
    pub changes: bool,
    /// Calls that open a directory: a readable directory has a hidden one in it.
    pub listings: bool,
    /// Every open: a writable directory has something hidden in it, so that no rule covers what
    /// will be made there.
    pub opens: bool,
    /// Calls that signal: Landlock has no scope for them (before ABI 6).
    pub signals: bool,
    /// `truncate(2)`: Landlock knows no such right (before ABI 3).
    pub truncations: bool,
    /// `execve(2)`: Slurm's own commands are in sight ([`StandIn`]).
    pub executions: bool,
    /// `listen(2)`: the network is filtered, and nobody outside of the jail may connect to it.
    pub listens: bool,
}

/// What is executed in the place of Slurm's own commands, which stay in sight at their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StandIn {
    /// The names of the commands, sorted.
    pub names: Vec<Vec<u8>>,
    /// Device and inode of each that is in sight, sorted.
    pub commands: Vec<(u64, u64)>,
    /// The real path of what stands in for all of them.
    pub program: Vec<u8>,
}

impl StandIn {
    /// Whether it is the name of a command.
    #[must_use]
    pub fn is_name(&self, name: &[u8]) -> bool {
        let found = self
            .names
            .binary_search_by(|known| known.as_slice().cmp(name));
        found.is_ok()
    }

    /// Whether it is a command.
    #[must_use]
    pub fn stands_for(&self, id: (u64, u64)) -> bool {
        self.commands.binary_search(&id).is_ok()
    }
}

/// What the mediator is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediatorConfig {
    /// By which it decides.
    pub access_map: AccessMap,
    /// Landlock's rules for the mediator itself, sorted by path: those of the command, writing wherever
    /// an entry gives it, and listing what it lists for the command.
    pub rules: Vec<Rule>,
    /// The kernel's Landlock ABI.
    pub abi: i32,
    /// What is executed in the place of Slurm's commands, if they are in sight.
    pub stand_in: Option<StandIn>,
    /// The places in which alone it opens directories for listing, if there are others (`files.no_walk`).
    pub listed: Option<Vec<PathBuf>>,
    /// The configuration of git that it writes, if there is one.
    pub git_config: Option<GitConfig>,
}

impl MediatorConfig {
    /// Device and inode of the object that the rule at exactly this path is about; `None`: there is no
    /// such rule, or it is about what this launch made itself.
    #[must_use]
    pub fn planned(&self, at: &Path) -> Option<(u64, u64)> {
        let from = self.rules.partition_point(|rule| rule.path() < at);
        let rule = self.rules.get(from).filter(|rule| rule.path() == at);
        rule.and_then(|rule| rule.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at: &str, permission: Permission) -> MapEntry {
        MapEntry {
            at: at.into(),
            permission,
            direct: false,
            listed: false,
        }
    }

    #[test]
    fn the_deepest_region_counts_and_pins_what_is_above_it() {
        let all = AccessMap::new(vec![
            entry("/p/.git/config", Permission::Read),
            entry("/p", Permission::Write),
            entry("/usr", Permission::Read),
            entry("/p-2", Permission::None),
            entry("/p/src", Permission::Write),
        ]);
        for (path, permission) in [
            ("/p", Permission::Write),
            ("/p/.git/index", Permission::Write),
            ("/p/.git/config", Permission::Read),
            ("/p/.git/config/x", Permission::Read),
            ("/p/.git/config.lock", Permission::Write),
            ("/p-2/x", Permission::None),
            ("/usr/bin", Permission::Read),
            ("/", Permission::None),
            ("/etc", Permission::None),
        ] {
            assert_eq!(all.permission(Path::new(path)), permission, "{path}");
        }
        for (path, pinned) in [
            ("/p", true),
            ("/p/.git", true),
            ("/p/.git/config", true),
            ("/p/.git/config.lock", false),
            ("/p/src", false),
            ("/", true),
            ("/usr/bin", false),
        ] {
            assert_eq!(all.is_pinned(Path::new(path)), pinned, "{path}");
        }
        let rule = |path: &str, id| Rule {
            path: path.into(),
            id,
            right: Right::Read,
        };
        let config = MediatorConfig {
            access_map: all,
            rules: vec![rule("/p", None), rule("/p/src", Some((1, 2)))],
            abi: 6,
            stand_in: None,
            listed: None,
            git_config: None,
        };
        assert_eq!(config.planned(Path::new("/p/src")), Some((1, 2)));
        for path in ["/", "/p", "/p/src/x", "/p/srd"] {
            assert_eq!(config.planned(Path::new(path)), None, "{path}");
        }
        let twice = AccessMap::new(vec![
            entry("/a", Permission::Read),
            entry("/a", Permission::Write),
        ]);
        assert_eq!(twice.permission(Path::new("/a")), Permission::Write);
    }
}
