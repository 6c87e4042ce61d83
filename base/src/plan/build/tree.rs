//! The file system of the jail while it is being planned: one step for each place. The order of
//! places is the order of mounting, so that what stands deeper always comes later and nothing can
//! cover what was decided for a path below it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::host::files::{Entry, Files, Found, Kind, Look};
use crate::plan::model::hides::{Hidden, Hides};
use crate::plan::model::{Access, Mount, Step, Why};

/// Why a directory is bound to its own place.
pub const PINNED: Why =
    Why::Every("kept in its place, for something below it is hidden or read-only");

/// A directory with more entries than this is not taken apart to leave one of them out; the hidden
/// one is covered instead. Each entry costs a mount, about 40 µs.
const MOST_PARTS: usize = 64;
/// The same for the home directory and the directories in it, where absence matters more.
const MOST_PARTS_IN_HOME: usize = 2000;

/// Steps by their place.
#[derive(Debug, Default)]
pub struct Tree {
    steps: BTreeMap<Key, Step>,
}

/// A path's bytes with NUL, which none holds, for each slash: bytes in this form have the order of paths, and compare in a tenth
/// of the time. The root has none.
type Key = Vec<u8>;

fn key(path: &Path) -> Key {
    let mut text = path.as_os_str().as_bytes().to_vec();
    let parts = text.split(|&byte| byte == b'/').skip(1);
    if parts.into_iter().any(|part| matches!(part, b"" | b".")) {
        text = path
            .components()
            .collect::<PathBuf>()
            .into_os_string()
            .into_vec();
    }
    if text == b"/" {
        text.clear();
    }
    for byte in &mut text {
        if *byte == b'/' {
            *byte = 0;
        }
    }
    text
}

/// The key of the directory above.
fn above(key: &[u8]) -> Option<&[u8]> {
    memchr::memrchr(0, key).map(|slash| &key[..slash])
}

/// Whether a key is that of a path at or below another.
fn is_below(key: &[u8], above: &[u8]) -> bool {
    key.strip_prefix(above)
        .is_some_and(|rest| matches!(rest, [] | [0, ..]))
}

impl Tree {
    /// Puts something at a place, over what stood there.
    pub fn put(&mut self, at: impl Into<PathBuf>, mount: Mount, why: Why) {
        let at = at.into();
        self.steps.insert(key(&at), Step { at, mount, why });
    }

    /// Puts something at a place where nothing stands yet.
    pub fn put_if_free(&mut self, at: &Path, mount: Mount, why: Why) {
        let at = at.to_path_buf();
        self.steps
            .entry(key(&at))
            .or_insert(Step { at, mount, why });
    }

    /// Binds a path of the host to its own place. Of two wishes for one place the wider wins.
    pub fn bind(&mut self, found: &Found, access: Access, why: Why) {
        self.bind_at(&found.real, found, access, why);
    }

    /// As [`Tree::bind`], to another place.
    pub fn bind_at(&mut self, at: &Path, found: &Found, access: Access, why: Why) {
        if let Some(Mount::Bind { access: old, .. }) = self.at(at)
            && *old >= access
        {
            return;
        }
        let mount = Mount::Bind {
            from: found.real.clone(),
            access,
            id: found.id,
        };
        self.put(at, mount, why);
    }

    /// Binds every directory between a path and the writable bind above it to its own place, too.
    /// A directory that is no mount point could be renamed, and with it what is mounted below it;
    /// a later launch would look for the path in vain. Binds in `apart` will be taken apart, which
    /// makes mount points of these directories anyway.
    pub fn pin(&mut self, files: &dyn Files, path: &Path, apart: &[PathBuf]) {
        // All the way up: a read-only bind in between keeps nothing above itself in place.
        let between: Vec<PathBuf> = path
            .ancestors()
            .skip(1)
            .filter(|above| !self.holds(above) && self.access(above) == Some(Access::Write))
            .filter(|above| {
                self.over(above)
                    .is_some_and(|(over, _)| apart.iter().all(|at| at != over))
            })
            .map(Path::to_path_buf)
            .collect();
        for directory in between {
            if let Look::Found(found) = files.look(&directory) {
                self.bind(&found, Access::Write, PINNED);
            }
        }
    }

    /// Takes the right to write away from the bind at a place.
    pub fn make_readable(&mut self, at: &Path, reason: Why) {
        if let Some(Step {
            mount: Mount::Bind { access, .. },
            why,
            ..
        }) = self.steps.get_mut(&key(at))
        {
            *access = Access::Read;
            *why = reason;
        }
    }

    /// Takes the step at a place away.
    pub fn remove(&mut self, at: &Path) {
        self.steps.remove(&key(at));
    }

    /// What stands exactly there.
    fn at(&self, at: &Path) -> Option<&Mount> {
        self.steps.get(&key(at)).map(|step| &step.mount)
    }

    /// Whether something stands exactly there.
    pub fn holds(&self, at: &Path) -> bool {
        self.steps.contains_key(&key(at))
    }

    /// The innermost step at or above a path.
    pub fn over(&self, path: &Path) -> Option<(&Path, &Mount)> {
        let key = key(path);
        std::iter::successors(Some(key.as_slice()), |key| above(key))
            .find_map(|key| self.steps.get(key))
            .map(|step| (step.at.as_path(), &step.mount))
    }

    /// What a bind gives at a path; `None` where no bind shows it.
    pub fn access(&self, path: &Path) -> Option<Access> {
        match self.over(path)? {
            (_, Mount::Bind { access, .. }) => Some(*access),
            _ => None,
        }
    }

    /// The places and accesses of all binds.
    pub fn binds(&self) -> Vec<(PathBuf, Access)> {
        self.steps
            .values()
            .filter_map(|step| match &step.mount {
                Mount::Bind { access, .. } => Some((step.at.clone(), *access)),
                _ => None,
            })
            .collect()
    }

    /// The places of all binds, what they show, and their accesses.
    pub fn sources(&self) -> Vec<(PathBuf, PathBuf, Access)> {
        self.steps
            .values()
            .filter_map(|step| match &step.mount {
                Mount::Bind { from, access, .. } => Some((step.at.clone(), from.clone(), *access)),
                _ => None,
            })
            .collect()
    }

    /// Whether something stands strictly below a place.
    pub fn has_below(&self, at: &Path) -> bool {
        let key = key(at);
        let mut behind = self
            .steps
            .range::<[u8], _>((Bound::Excluded(key.as_slice()), Bound::Unbounded));
        behind.next().is_some_and(|(next, _)| is_below(next, &key))
    }

    /// Takes a kept place away, and what stands below it by another name than its own.
    pub fn remove_kept(&mut self, at: &Path) {
        let place = key(at);
        self.steps.remove(&place);
        self.steps.retain(|below, step| match &step.mount {
            Mount::Bind { from, .. } => *from == step.at || !is_below(below, &place),
            _ => true,
        });
    }

    /// How many files are covered.
    pub fn covers(&self) -> usize {
        let covered = |step: &&Step| matches!(step.mount, Mount::HideFile);
        self.steps.values().filter(covered).count()
    }

    /// Drops binds that the next bind above gives already.
    pub fn prune(&mut self) {
        let redundant: Vec<PathBuf> = self
            .sources()
            .into_iter()
            .filter(|(at, from, access)| self.gives(at, from, *access))
            .map(|(at, ..)| at)
            .collect();
        for at in redundant {
            self.remove(&at);
        }
    }

    /// Whether the bind above a place shows the same there.
    fn gives(&self, at: &Path, shown: &Path, as_much: Access) -> bool {
        let above = at.parent().and_then(|parent| self.over(parent));
        let Some((above, Mount::Bind { from, access, .. })) = above else {
            return false;
        };
        let below = at.strip_prefix(above);
        *access == as_much && below.is_ok_and(|below| from.join(below) == shown)
    }

    /// Names the directories above each step that no mount brings along, with the usual mode;
    /// bubblewrap would make them with that of what stands in them.
    pub fn name_parents(&mut self) {
        let mut missing: Vec<PathBuf> = Vec::new();
        // In this order what stands around a step comes before it: these, the innermost last.
        let mut around: Vec<(&[u8], bool)> = Vec::new();
        for (key, step) in &self.steps {
            while around.pop_if(|(above, _)| !is_below(key, above)).is_some() {}
            let (innermost, brings) = around.last().copied().unwrap_or((&[], false));
            if !brings {
                let between = std::iter::successors(above(key), |key| above(key));
                let unnamed = between.take_while(|above| *above != innermost).count();
                let directories = step.at.ancestors().skip(1).take(unnamed);
                missing.extend(directories.map(Path::to_path_buf));
            }
            let brings = matches!(
                step.mount,
                Mount::Bind { .. } | Mount::Kept { .. } | Mount::Dev | Mount::Proc
            );
            around.push((key, brings));
        }
        for above in missing {
            let why = Why::Every("a directory above something inside");
            self.put(above, Mount::Directory { mode: 0o755 }, why);
        }
    }

    /// All steps, in order.
    pub fn into_steps(self) -> Vec<Step> {
        self.steps.into_values().collect()
    }
}

/// Leaves hidden files out of the binds.
pub struct Concealer<'a> {
    /// To list directories.
    pub files: &'a dyn Files,
    /// What is hidden.
    pub hides: &'a Hides,
    /// The real paths of the caller's homes.
    pub homes: &'a [PathBuf],
    /// Places where a file must not come into being on the host, though there is none now; their
    /// directories are taken apart where they came from `home.mode = "write"`.
    pub keep_absent: &'a [PathBuf],
    /// What the jail has of its own; directories around it are taken apart, so that nothing is mounted
    /// in one of the host's.
    pub kept: &'a [PathBuf],
}

impl Concealer<'_> {
    /// Works on every bind. `taken_apart` says which writable binds may be taken apart (those that
    /// `home.mode` made); all other writable ones keep their directory whole, and hidden files
    /// below them are covered.
    pub fn conceal(&self, tree: &mut Tree, taken_apart: &dyn Fn(&Path) -> bool) {
        for (at, access) in tree.binds() {
            let apart = taken_apart(&at);
            let inside = at
                .parent()
                .is_some_and(|parent| tree.access(parent).is_some());
            if inside || (access == Access::Write && !apart) {
                // Inside another bind, a directory that is taken apart would show what lies under it.
                self.cover(tree, &at, access);
            } else {
                self.take_apart(tree, &at, access);
            }
        }
    }

    fn below<'b>(&'b self, at: &'b Path) -> impl Iterator<Item = &'b Hidden> {
        self.hides.below(at)
    }

    fn needs_work(&self, at: &Path, access: Access) -> bool {
        self.below(at)
            .any(|hidden| hidden.readable || access == Access::Write)
            || (access == Access::Write
                && self
                    .keep_absent
                    .iter()
                    .any(|path| path != at && path.starts_with(at)))
            || self
                .kept
                .iter()
                .any(|path| path != at && path.starts_with(at))
    }

    /// Replaces a bind by one for each entry that is not hidden.
    fn take_apart(&self, tree: &mut Tree, at: &Path, access: Access) {
        if !self.needs_work(at, access) {
            return;
        }
        let Some(why) = tree.steps.get(&key(at)).map(|step| step.why.clone()) else {
            return;
        };
        let in_home = self.homes.iter().any(|home| at.starts_with(home));
        let most = if in_home {
            MOST_PARTS_IN_HOME
        } else {
            MOST_PARTS
        };
        let entries = match self.files.entries(at) {
            Some(entries) if entries.len() <= most => entries,
            _ => {
                self.cover(tree, at, access);
                return;
            }
        };
        tree.put(at, Mount::Directory { mode: 0o755 }, why.clone());
        let children: Vec<PathBuf> = entries.iter().map(|entry| at.join(&entry.name)).collect();
        self.files.prefetch(&children);
        for (entry, child) in entries.iter().zip(&children) {
            if self.place(tree, entry, child, access, &why) {
                self.take_apart(tree, child, access);
            }
        }
    }

    /// Gives one entry of a directory; whether a directory was bound.
    pub fn place(
        &self,
        tree: &mut Tree,
        entry: &Entry,
        child: &Path,
        access: Access,
        why: &Why,
    ) -> bool {
        if tree.holds(child) || self.hides.rule_for(child).is_some() {
            return false;
        }
        match entry.kind {
            Kind::Link => {
                if let Some(target) = &entry.target {
                    let target = target.clone();
                    tree.put(child, Mount::Link { target }, why.clone());
                }
                false
            }
            Kind::Directory | Kind::File => {
                let Look::Found(found) = self.files.look(child) else {
                    return false;
                };
                let directory = found.kind == Kind::Directory;
                if found.real != child || !(found.readable || directory) {
                    return false;
                }
                tree.bind(&found, access, why.clone());
                directory
            }
            // A socket is somebody's service and a device node belongs below /dev.
            Kind::Device | Kind::Other | Kind::Hung => false,
        }
    }

    /// Covers what is hidden below a bind that stays whole.
    fn cover(&self, tree: &mut Tree, at: &Path, access: Access) {
        let covered: Vec<(PathBuf, Mount, Why)> = self
            .below(at)
            .filter(|hidden| tree.over(&hidden.path).is_some_and(|(over, _)| over == at))
            .filter_map(|hidden| {
                let mount = match hidden.kind {
                    Kind::Directory => Mount::HideDirectory,
                    Kind::File | Kind::Device | Kind::Other => Mount::HideFile,
                    // The link itself says only a path; what it leads to is hidden on its own.
                    Kind::Link => return None,
                    // Left as it is; `check` then refuses the plan.
                    Kind::Hung => return None,
                };
                // What the caller cannot read needs no cover, unless its mode could be changed.
                (hidden.readable || access == Access::Write).then(|| {
                    (
                        hidden.path.clone(),
                        mount,
                        Why::rule("files.hide", &hidden.rule),
                    )
                })
            })
            .collect();
        for (path, mount, why) in covered {
            // Inside a directory that is covered already there is nothing left to cover.
            let inside = path
                .ancestors()
                .skip(1)
                .any(|above| matches!(tree.at(above), Some(Mount::HideDirectory)));
            if !inside {
                tree.pin(self.files, &path, &[]);
                tree.put(path, mount, why);
            }
        }
    }
}
