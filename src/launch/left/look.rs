//! The walk through a project that finds what programs outside obey. The tree was written by hostile
//! commands: every directory is opened by its name in the one before, no link is followed, nothing but
//! git's configuration is opened, and the walk ends when its time is over. What stands at its well-known place in the
//! project directory comes first, then shallow directories: no flood of other files hides it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::{FileType, Metadata};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::fstatat;
use serde::{Deserialize, Serialize};

use super::git_config::{self, ConfigLocation};
use crate::launch::ways;
use crate::plan::build::obeyed::{Care, OBEYED, Obeyed};
use crate::sys::paths::by_descriptor;

/// Entries that are looked at, of all directories together.
const MOST_ENTRIES: usize = 2_000_000;
/// Directories that wait; each has its path in memory.
const MOST_WAITING: usize = 200_000;
/// What is found of files that are only said, and of closed directories: how many, and how many bytes their paths
/// have. Nobody reads the names of more, and a record has to hold them all.
const MOST_SAID: (usize, usize) = (5000, 1 << 20);
/// The same of what is set aside. It has room of its own, so that nothing that is only said takes it.
pub(super) const MOST_SET: (usize, usize) = (20_000, 1 << 20);
/// Levels of directories. Each costs a call for every directory below it.
const DEEPEST: usize = 64;
/// Directories of git's whose files it obeys. The last two name remotes that the configuration does not
/// (gitrepository-layout(5)), and so whose hooks run at the next `git push`.
const OF_GIT: [&str; 3] = ["hooks", "remotes", "branches"];
/// A larger configuration is not read, and counts as one that names programs. Bytes.
const LARGEST_CONFIG: u64 = 1 << 20;

/// What tells that a file is another one, or changed: inode, size, and both times in nanoseconds. Nobody
/// can set the second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) inode: u64,
    pub(super) size: u64,
    pub(super) modified: (i64, i64),
    pub(super) changed: (i64, i64),
}

impl Mark {
    pub(super) fn of(is: &Metadata) -> Self {
        Self {
            inode: is.ino(),
            size: is.size(),
            modified: (is.mtime(), is.mtime_nsec()),
            changed: (is.ctime(), is.ctime_nsec()),
        }
    }

    /// Whether both are of the same content, wherever it stands: renaming changes the second time.
    pub(super) fn is_content_of(&self, other: &Self) -> bool {
        (self.inode, self.size, self.modified) == (other.inode, other.size, other.modified)
    }
}

/// A file that somebody obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObeyedFile {
    /// Who.
    pub(super) by: &'static str,
    /// What is done about it.
    pub(super) care: Care,
    pub(super) mark: Mark,
    /// Whether it is the user's, as all is that a jail makes.
    pub(super) own: bool,
}

/// What a walk found.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// By their paths below the project.
    pub(super) found: BTreeMap<PathBuf, ObeyedFile>,
    /// Directories that the user's own rights do not open.
    pub(super) closed: BTreeSet<PathBuf>,
    /// Whether there is more that is only said, or closed, than was noted.
    pub(super) more: bool,
    /// Whether it went everywhere.
    pub(super) complete: bool,
    /// It went into all directories that lie less deep than this; the project itself lies 0 deep.
    pub(super) levels: usize,
}

/// What git obeys in its own directory, and what tells that it is one.
const GITS: [&str; 9] = [
    "config",
    "config.worktree",
    "commondir",
    "hooks",
    "remotes",
    "branches",
    "HEAD",
    "objects",
    "refs",
];

/// By whom git's files are obeyed.
pub(super) const GIT: &str = "git";

/// Names of [`OBEYED`], for looking them up.
struct Names {
    /// Files with a name of one part.
    files: HashMap<&'static [u8], &'static Obeyed>,
    /// What a directory of this name makes of the names in it; an empty name stands for all.
    within: HashMap<&'static [u8], Vec<Within>>,
}

/// A name in a directory of another name, whether all below it counts, and what it is.
type Within = (&'static [u8], bool, &'static Obeyed);

impl Names {
    fn new() -> Self {
        let mut names = Self {
            files: HashMap::new(),
            within: HashMap::new(),
        };
        for one in OBEYED {
            let (parts, everything) = one.parts();
            match (parts.as_slice(), everything) {
                ([name], false) => {
                    names.files.insert(name.as_bytes(), one);
                }
                ([name], true) => names.put(name, "", true, one),
                ([first, second, ..], all) => names.put(first, second, all, one),
                ([], _) => {}
            }
        }
        names
    }

    fn put(&mut self, first: &'static str, second: &'static str, all: bool, one: &'static Obeyed) {
        let entry = (second.as_bytes(), all, one);
        self.within.entry(first.as_bytes()).or_default().push(entry);
    }
}

/// A directory that waits.
#[derive(Default)]
struct Waiting {
    path: PathBuf,
    depth: usize,
    /// What makes all that is in it obeyed.
    inside: Option<(&'static str, Care)>,
    /// What the name of this directory makes of the names in it.
    named: OsString,
}

/// Looks through a project, `most` long, and as long before that at the well-known places.
pub(super) fn through(project: &OwnedFd, most: Duration) -> Seen {
    let mut walk = Walk {
        project,
        until: Instant::now() + most,
        names: Names::new(),
        entries: 0,
        first: VecDeque::new(),
        waiting: VecDeque::new(),
        rooms: (MOST_SAID, MOST_SET),
        seen: Seen {
            complete: true,
            levels: usize::MAX,
            ..Seen::default()
        },
    };
    walk.well_known();
    walk.until = Instant::now() + most;
    walk.waiting.push_back(Waiting::default());
    while let Some(next) = walk.next() {
        if walk.is_over() {
            walk.missed(next.depth);
            break;
        }
        walk.directory(&next);
    }
    let rest = walk.first.iter().chain(&walk.waiting);
    if let Some(depth) = rest.map(|one| one.depth).min() {
        walk.missed(depth);
    }
    walk.seen
}

/// Opens a directory below the project, with `O_PATH`.
pub(super) fn below(project: &OwnedFd, path: &Path) -> nix::Result<OwnedFd> {
    let mut held = project.try_clone().map_err(|_| Errno::EMFILE)?;
    for name in path.iter() {
        held = ways::enter(&held, name)?;
    }
    Ok(held)
}

struct Walk<'a> {
    project: &'a OwnedFd,
    until: Instant,
    names: Names,
    entries: usize,
    /// What is set aside is looked for there, before all others.
    first: VecDeque<Waiting>,
    waiting: VecDeque<Waiting>,
    /// What can still be noted: of what is only said, and of what is set aside.
    rooms: ((usize, usize), (usize, usize)),
    seen: Seen,
}

/// An entry of a directory.
struct Entry {
    name: OsString,
    kind: FileType,
}

impl Walk<'_> {
    /// Looks for each name that is set aside at its place in the project directory, without listing that directory,
    /// and into the directories of such files there.
    fn well_known(&mut self) {
        // git's come first: it is started most.
        let mut names = vec![(".git", GITS.to_vec())];
        for one in OBEYED.iter().filter(|one| one.care != Care::Said) {
            let (parts, _) = one.parts();
            match names.iter_mut().find(|(first, _)| *first == parts[0]) {
                Some((_, within)) => within.extend(parts.get(1)),
                None => names.push((parts[0], parts[1..].to_vec())),
            }
        }
        let firsts: Vec<&str> = names.iter().map(|(first, _)| *first).collect();
        let there = self.named(&Waiting::default(), &firsts);
        names.retain(|(first, _)| there.iter().any(|name| name == first));
        for (first, within) in names {
            let at = Waiting {
                path: first.into(),
                depth: 1,
                inside: None,
                named: first.into(),
            };
            self.named(&at, &within);
        }
        self.first
            .make_contiguous()
            .sort_by_key(|one| one.named != "hooks");
        while let Some(next) = self.first.pop_front() {
            if self.is_over() {
                break;
            }
            self.directory(&next);
        }
        // All of them are found again.
        self.first.clear();
        self.waiting.clear();
    }

    /// Looks for some names in a directory; which of them are there.
    fn named(&mut self, at: &Waiting, names: &[&str]) -> Vec<OsString> {
        let Ok(held) = below(self.project, &at.path) else {
            return Vec::new();
        };
        let around = PathBuf::from(by_descriptor(&held));
        let entry = |name: &&str| {
            let is = std::fs::symlink_metadata(around.join(name)).ok()?;
            Some(Entry {
                name: name.into(),
                kind: is.file_type(),
            })
        };
        let all: Vec<Entry> = names.iter().filter_map(entry).collect();
        self.entries(at, &held, &all);
        all.into_iter().map(|entry| entry.name).collect()
    }

    /// The directory that is next.
    fn next(&mut self) -> Option<Waiting> {
        self.first.pop_front().or_else(|| self.waiting.pop_front())
    }

    /// Whether as much was looked at as may be.
    fn is_over(&self) -> bool {
        Instant::now() > self.until || self.entries > MOST_ENTRIES || self.rooms.1.0 == 0
    }

    fn directory(&mut self, at: &Waiting) {
        let held = match below(self.project, &at.path) {
            Ok(held) => held,
            Err(Errno::EACCES) => return self.is_closed(at.path.clone()),
            // Somebody removed or replaced it.
            Err(_) => return,
        };
        let Some(list) = listed(&held) else {
            return self.is_closed(at.path.clone());
        };
        let mut all = Vec::new();
        for entry in list.flatten() {
            self.entries += 1;
            if self.entries > MOST_ENTRIES || Instant::now() > self.until {
                self.missed(at.depth);
                break;
            }
            if let Ok(kind) = entry.file_type() {
                let name = entry.file_name();
                all.push(Entry { name, kind });
            }
        }
        self.entries(at, &held, &all);
    }

    /// Looks at entries of a directory.
    fn entries(&mut self, at: &Waiting, held: &OwnedFd, all: &[Entry]) {
        let has = |name: &str| all.iter().any(|entry| entry.name == name);
        let is_repository = has("objects") && has("refs");
        for entry in all {
            let path = || at.path.join(&entry.name);
            if entry.kind.is_dir() {
                if !is_of_objects(at, held, entry) {
                    self.enter(at, &entry.name, path(), is_repository);
                }
                continue;
            }
            let mut obeyed = self.obeyed(at, entry);
            // Wherever it stands: `.git` of a directory that an editor has may lead to it.
            let set = obeyed.is_some_and(|(_, care)| care == Care::Set);
            if !set
                && is_gits(entry, is_repository, &has)
                && self.names_programs(held, entry, &at.path)
            {
                obeyed = Some((GIT, Care::Set));
            }
            if let Some((by, care)) = obeyed {
                self.note(held, entry, path(), by, care);
                if care != Care::Said && self.rooms.1.0 == 0 {
                    return self.missed(at.depth);
                }
            }
        }
    }

    fn enter(&mut self, at: &Waiting, name: &OsStr, path: PathBuf, is_repository: bool) {
        if at.depth == DEEPEST {
            // What is moved up from there later was not known either.
            return self.is_closed(path);
        }
        if self.first.len() + self.waiting.len() >= MOST_WAITING {
            return self.missed(at.depth + 1);
        }
        let mut inside = at.inside;
        if is_repository && OF_GIT.iter().any(|one| name == *one) {
            inside = Some((GIT, Care::Set));
        }
        // `.claude/agents/`, or `.copilot/`.
        let mut below = |around: &OsStr, name: &OsStr| {
            for (named, all, one) in self
                .names
                .within
                .get(around.as_bytes())
                .into_iter()
                .flatten()
            {
                if *all && *named == name.as_bytes() {
                    inside = Some((one.by, one.care));
                }
            }
        };
        below(&at.named, name);
        below(name, OsStr::new(""));
        let waiting = Waiting {
            path,
            depth: at.depth + 1,
            inside,
            named: name.to_owned(),
        };
        let within = self.names.within.get(name.as_bytes()).into_iter().flatten();
        let mut within = within.map(|(_, _, one)| one.care);
        let first = inside.is_some_and(|(_, care)| care == Care::Set)
            || within.any(|care| care == Care::Set);
        match first {
            true => self.first.push_back(waiting),
            false => self.waiting.push_back(waiting),
        }
    }

    /// Directories that lie so deep were not all looked into.
    fn missed(&mut self, depth: usize) {
        self.seen.complete = false;
        self.seen.levels = self.seen.levels.min(depth);
    }

    fn is_closed(&mut self, path: PathBuf) {
        if !self.seen.closed.contains(&path) {
            match take(&mut self.rooms.0, &path) {
                true => _ = self.seen.closed.insert(path),
                false => self.seen.more = true,
            }
        }
    }

    /// Who obeys an entry that is no directory, by its name: of several, the one with the most care.
    fn obeyed(&self, at: &Waiting, entry: &Entry) -> Option<(&'static str, Care)> {
        let name = entry.name.as_bytes();
        if name.ends_with(super::ASIDE.as_bytes()) {
            return None;
        }
        let sample = |by: &str| by == GIT && at.named == "hooks" && name.ends_with(b".sample");
        let inside = at.inside.filter(|(by, _)| !sample(by));
        let file = self.names.files.get(name).map(|one| (one.by, one.care));
        let around = self.names.within.get(at.named.as_bytes());
        let link = entry.kind.is_symlink();
        let around = around.into_iter().flatten();
        let around = around.filter(|(named, all, _)| *named == name && (link || !all));
        let around = around.map(|(_, _, one)| (one.by, one.care));
        // A link in the place of a directory whose files are obeyed.
        let first = self.names.within.get(name).filter(|_| link);
        let strictest = first.and_then(|all| all.iter().max_by_key(|(_, _, one)| one.care));
        let instead = strictest.map(|one| (one.2.by, Care::Set));
        let all = inside.into_iter().chain(file).chain(around).chain(instead);
        all.max_by_key(|(_, care)| *care)
    }

    /// Whether git's configuration there names programs, or cannot be read.
    fn names_programs(&self, held: &OwnedFd, entry: &Entry, git: &Path) -> bool {
        if OF_GIT.iter().any(|one| entry.name == *one) {
            // A link, or a file, in the place of the directory.
            return entry.kind.is_symlink();
        }
        let file = ways::regular(held, &entry.name, OFlag::O_RDONLY);
        let Ok(Some(file)) = file else { return true };
        if [".git", "commondir"].iter().any(|name| entry.name == *name) {
            let text = file.content(LARGEST_CONFIG);
            let text = text.ok().flatten().unwrap_or_default();
            let text = text.strip_suffix(b"\n").unwrap_or(&text);
            return match entry.name == "commondir" {
                // Of another work tree: it is in `.git/worktrees/NAME`.
                true => text != b"../..",
                false => !self.is_of_modules(text, git),
            };
        }
        let place = ConfigLocation {
            project: self.project,
            git,
        };
        match file.content(LARGEST_CONFIG) {
            Ok(Some(text)) => !git_config::is_harmless(&text, &place),
            _ => true,
        }
    }

    /// Whether a file `.git` (gitrepository-layout(5)) leads where git keeps submodules and further work trees: there
    /// the walk finds what git obeys. Elsewhere, as among git's objects, it does not look.
    fn is_of_modules(&self, text: &[u8], around: &Path) -> bool {
        let Some(target) = text.strip_prefix(b"gitdir: ") else {
            return false;
        };
        let target = Path::new(OsStr::from_bytes(target));
        let project = std::fs::read_link(by_descriptor(self.project)).unwrap_or_default();
        let target = match target.strip_prefix(&project) {
            Ok(below) => below.to_owned(),
            Err(_) if target.is_absolute() => return false,
            Err(_) => around.join(target),
        };
        let mut at = PathBuf::new();
        for part in target.components() {
            match part {
                Component::Normal(name) => at.push(name),
                Component::ParentDir if at.pop() => {}
                Component::CurDir => {}
                _ => return false,
            }
        }
        let parts: Vec<&OsStr> = at.iter().collect();
        let keeps =
            |pair: &[&OsStr]| pair[0] == ".git" && (pair[1] == "modules" || pair[1] == "worktrees");
        // A link on the way leads elsewhere.
        parts.windows(2).any(keeps)
            && !parts.iter().any(|part| *part == "objects")
            && matches!(below(self.project, &at), Ok(_) | Err(Errno::ENOENT))
    }

    fn note(&mut self, held: &OwnedFd, entry: &Entry, path: PathBuf, by: &'static str, care: Care) {
        if self.seen.found.contains_key(&path) {
            return;
        }
        let at = Path::new(&by_descriptor(held)).join(&entry.name);
        let Ok(is) = std::fs::symlink_metadata(at) else {
            return;
        };
        let is_said = care == Care::Said;
        let room = match is_said {
            true => &mut self.rooms.0,
            false => &mut self.rooms.1,
        };
        if !take(room, &path) {
            self.seen.more |= is_said;
            return;
        }
        let found = ObeyedFile {
            by,
            care,
            mark: Mark::of(&is),
            own: is.uid() == nix::unistd::getuid().as_raw(),
        };
        self.seen.found.insert(path, found);
    }
}

/// Takes room for a path, if there is any; else none is left.
pub(super) fn take(room: &mut (usize, usize), path: &Path) -> bool {
    let left = (
        room.0.checked_sub(1),
        room.1.checked_sub(path.as_os_str().len()),
    );
    let (Some(count), Some(bytes)) = left else {
        *room = (0, 0);
        return false;
    };
    *room = (count, bytes);
    true
}

/// The entries of a directory. One that can be searched and not listed is obeyed all the same, by names that everybody
/// knows: where it is the user's own it is opened for that long.
fn listed(held: &OwnedFd) -> Option<std::fs::ReadDir> {
    let path = by_descriptor(held);
    if let Ok(list) = std::fs::read_dir(&path) {
        return Some(list);
    }
    let mode = std::fs::metadata(&path).ok()?.mode() & 0o7777;
    if mode & 0o100 == 0 {
        // Nothing in it is found by its name either.
        return None;
    }
    ways::set_mode(held, mode | 0o400).ok()?;
    let list = std::fs::read_dir(&path);
    let _ = ways::set_mode(held, mode);
    list.ok()
}

/// Whether a directory is one of the 256 in which git has its objects: named by two digits, without directories in it.
fn is_of_objects(at: &Waiting, held: &OwnedFd, entry: &Entry) -> bool {
    let name = entry.name.as_bytes();
    if at.named != "objects" || name.len() != 2 || !name.iter().all(u8::is_ascii_hexdigit) {
        return false;
    }
    let is = fstatat(held, name, AtFlags::AT_SYMLINK_NOFOLLOW);
    is.is_ok_and(|is| is.st_nlink == 2)
}

/// Whether git may run something because of this entry of a directory.
fn is_gits(entry: &Entry, is_repository: bool, has: &impl Fn(&str) -> bool) -> bool {
    match entry.name.as_bytes() {
        b"config" | b"hooks" | b"remotes" | b"branches" => is_repository,
        b"config.worktree" | b"commondir" => has("HEAD"),
        b".git" => true,
        _ => false,
    }
}
