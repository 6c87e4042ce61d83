//! What holds a command where Landlock and the mediator are the whole jail, as data: the rules that
//! the kernel keeps, and the territory by which the mediator decides. Made by [`translate`](mod@super::translate), carried
//! out by `init` and `mediate`; neither has a choice left.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::plan::model::git::GitConfig;

/// What a Landlock rule gives on a file, or on a directory and everything below it
/// (`landlock(7)`; a right that the kernel's ABI does not know is left out of rule and domain alike).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Right {
    /// Reading files, listing directories, executing.
    Read,
    /// Reading and executing files, but not listing directories.
    ReadFiles,
    /// Everything that can be done with files and directories, but for device nodes (ABI 5).
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

/// A path, and what may be done there and below it, up to the next region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapEntry {
    /// A real path of the host.
    pub at: Vec<u8>,
    /// What may be done.
    pub reach: Permission,
    /// Whether a rule of Landlock gives it, so that the kernel can be left to judge calls there. Else
    /// (a directory that has something closed in it) the mediator carries them out. The rule is about
    /// the object that stood there ([`MediatorConfig::planned`]): of one that has taken its place (a file that
    /// an editor has renamed over it, a directory that was removed and made again) this does not hold.
    pub direct: bool,
    /// Whether the directory itself may be listed. Meaningful where Landlock does not let it be:
    /// where a rule to list it would let hidden directories below it be listed.
    pub listed: bool,
}

/// Every region, sorted by path; what stands in none is out of reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessMap {
    regions: Vec<MapEntry>,
}

impl AccessMap {
    /// Sorts the regions. Of two with the same path the later counts.
    #[must_use]
    pub fn new(mut regions: Vec<MapEntry>) -> Self {
        regions.reverse();
        regions.sort_by(|one, other| one.path().cmp(other.path()));
        regions.dedup_by(|later, first| later.path() == first.path());
        Self { regions }
    }

    /// All of them.
    #[must_use]
    pub fn regions(&self) -> &[MapEntry] {
        &self.regions
    }

    /// The region that a real path stands in: the longest whose path is the path or above it.
    #[must_use]
    pub fn region(&self, path: &Path) -> Option<&MapEntry> {
        path.ancestors().find_map(|above| {
            let at = self
                .regions
                .binary_search_by(|region| region.path().cmp(above));
            at.ok().map(|at| &self.regions[at])
        })
    }

    /// What may be done at a real path.
    #[must_use]
    pub fn reach(&self, path: &Path) -> Permission {
        self.region(path)
            .map_or(Permission::None, |region| region.reach)
    }

    /// Whether something else begins at a path or below it than what is around: then the path can be
    /// neither renamed nor removed, as a mount point cannot. What a guarded directory has in it is
    /// given one by one, and can be.
    #[must_use]
    pub fn is_pinned(&self, path: &Path) -> bool {
        let from = self.regions.partition_point(|region| region.path() < path);
        let below = self.regions[from..]
            .iter()
            .take_while(|region| region.path().starts_with(path));
        below.into_iter().any(|region| {
            let around = region.path().parent().map(|parent| self.reach(parent));
            around.unwrap_or(Permission::None) != region.reach
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

/// Which calls are handed over to the mediator besides those that always are (`connect(2)`, and what
/// changes modes, owners, times and extended attributes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedOver {
    /// Those that open for writing, make, rename, link and remove: some writable directory has
    /// something closed in it.
    pub changes: bool,
    /// Those that open a directory: some readable directory has a hidden one in it.
    pub listings: bool,
    /// Every open: some writable directory has something hidden in it, so that no rule gives what
    /// will be made there.
    pub opens: bool,
    /// Those that signal: Landlock has no scope for them (before ABI 6).
    pub signals: bool,
    /// `truncate(2)`: Landlock knows no such right (before ABI 3).
    pub truncations: bool,
    /// `execve(2)`: Slurm's own commands are in sight ([`StandIn`]).
    pub executions: bool,
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

/// How the process that becomes the command is fenced in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// Landlock's rules.
    pub rules: Vec<Rule>,
    /// The kernel's Landlock ABI, as the plan knows it.
    pub abi: i32,
    /// The filter that refuses, as `backend::seccomp` compiles it.
    pub filter: Vec<u8>,
    /// The filter that hands over.
    pub handing_over: Vec<u8>,
    /// The number of the descriptor, a `SOCK_SEQPACKET` socket, on which the listener of that filter
    /// goes to the mediator.
    pub mediator: i32,
}

/// What the mediator is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediatorConfig {
    /// By which it decides.
    pub territory: AccessMap,
    /// Landlock's rules for the mediator itself, sorted by path: those of the command, writing wherever
    /// a region has it, and listing what it lists for the command.
    pub rules: Vec<Rule>,
    /// The kernel's Landlock ABI.
    pub abi: i32,
    /// What is executed in the place of Slurm's commands, if they are in sight.
    pub stand_in: Option<StandIn>,
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

    fn region(at: &str, reach: Permission) -> MapEntry {
        MapEntry {
            at: at.into(),
            reach,
            direct: false,
            listed: false,
        }
    }

    #[test]
    fn the_deepest_region_counts_and_pins_what_is_above_it() {
        let all = AccessMap::new(vec![
            region("/p/.git/config", Permission::Read),
            region("/p", Permission::Write),
            region("/usr", Permission::Read),
            region("/p-2", Permission::None),
            region("/p/src", Permission::Write),
        ]);
        for (path, reach) in [
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
            assert_eq!(all.reach(Path::new(path)), reach, "{path}");
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
        let charge = MediatorConfig {
            territory: all,
            rules: vec![rule("/p", None), rule("/p/src", Some((1, 2)))],
            abi: 6,
            stand_in: None,
            git_config: None,
        };
        assert_eq!(charge.planned(Path::new("/p/src")), Some((1, 2)));
        for path in ["/", "/p", "/p/src/x", "/p/srd"] {
            assert_eq!(charge.planned(Path::new(path)), None, "{path}");
        }
        let twice = AccessMap::new(vec![
            region("/a", Permission::Read),
            region("/a", Permission::Write),
        ]);
        assert_eq!(twice.reach(Path::new("/a")), Permission::Write);
    }
}
