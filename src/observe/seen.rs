//! What was seen of a run, in bounds: what it wrote below its home, what it looked for there, and where
//! it connected to. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};

use crate::mediate::sight::calls::Act;
use crate::plan::{Access, Mount, Step};

/// The most places of each kind that are kept; more are counted. A program of everyday life looks for
/// some hundreds, a hostile one for any number.
const MOST: usize = 4096;
/// The most bytes that the paths of each kind may take together.
const MOST_BYTES: usize = 512 * 1024;
/// The most hosts and names of hosts that are kept.
const MOST_HOSTS: usize = 256;

/// Directories that belong to no program: what one keeps there has a name of its own in them.
pub const SHARED: &[&str] = &[
    ".cache",
    ".config",
    ".local",
    ".local/share",
    ".local/state",
    ".var",
    ".var/app",
];

/// What was written at a place that one program has for itself: directly in the home, or in a directory
/// that programs share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Whether it is a directory, as far as is known.
    pub directory: bool,
    /// Whether it was there at the end.
    pub left: bool,
    /// How often it, or something in it, was written.
    pub times: u64,
}

/// Paths, as many and as long as are kept.
#[derive(Clone, Debug, Default)]
pub struct Bounded<T> {
    all: BTreeMap<PathBuf, T>,
    bytes: usize,
    /// How often a path was not kept.
    pub left_out: u64,
}

impl<T: Default> Bounded<T> {
    /// All of them, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &T)> {
        self.all.iter().map(|(path, what)| (path.as_path(), what))
    }

    /// What is known of a path.
    pub fn get(&self, path: &Path) -> Option<&T> {
        self.all.get(path)
    }

    pub(super) fn note(&mut self, path: PathBuf) -> Option<&mut T> {
        let known = self.all.contains_key(&path);
        let bytes = self.bytes + path.as_os_str().len();
        if !known && (self.all.len() >= MOST || bytes > MOST_BYTES) {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        if !known {
            self.bytes = bytes;
        }
        Some(self.all.entry(path).or_default())
    }

    /// Takes what another recorder of the same saw, and `both` where both have it. What one of them did not keep
    /// the other may have: the larger count is nearer to the truth than the sum.
    fn add(&mut self, other: Self, both: impl Fn(&mut T, T)) {
        let left_out = self.left_out.max(other.left_out);
        for (path, theirs) in other.all {
            let known = self.all.contains_key(&path);
            if let Some(ours) = self.note(path) {
                match known {
                    true => both(ours, theirs),
                    false => *ours = theirs,
                }
            }
        }
        self.left_out = self.left_out.max(left_out);
    }
}

/// What was seen. All paths are below the home.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The home by all its names.
    homes: Vec<PathBuf>,
    /// What the jail shows of the host in the home, and whether it is writable.
    shown: BTreeMap<PathBuf, bool>,
    /// The session's own directory, in which the home may stand.
    own: Option<PathBuf>,
    /// Directories that the launch made, and those above what it shows.
    made: BTreeSet<PathBuf>,
    /// Whether calls were seen, and not only what is left.
    pub calls: bool,
    /// Whether it is known what was left at the end; all of it.
    pub whole: bool,
    /// What was written.
    pub written: Bounded<Written>,
    /// The files that were written, each.
    pub files: Bounded<()>,
    /// What was looked for; whether it was opened or executed.
    pub looked: Bounded<bool>,
    /// What the jail shows read-only, and was to be written.
    pub refused: Bounded<()>,
    /// Hosts and ports.
    pub peers: BTreeSet<(IpAddr, u16)>,
    /// Names that name servers were asked about.
    pub names: BTreeSet<String>,
    /// Hosts and names that were not kept.
    pub hosts_left_out: u64,
    /// Calls of which the arguments could not be read.
    pub unread: u64,
    /// What the node's tracer has told, if it traced the run.
    pub told: Option<TrailSummary>,
}

impl Seen {
    /// Nothing, of the same run: for another recorder of it.
    #[must_use]
    pub fn other_recorder(&self) -> Self {
        Self {
            homes: self.homes.clone(),
            own: self.own.clone(),
            shown: self.shown.clone(),
            made: self.made.clone(),
            ..Self::default()
        }
    }

    /// Takes what another recorder saw, beside what it told of itself.
    pub fn add(&mut self, other: Self) {
        if !self.calls {
            // What is left was counted as written once; now it is known how often.
            for written in self.written.all.values_mut() {
                written.times = 0;
            }
        }
        self.written.add(other.written, |ours, theirs| {
            // What stood there at the end says best what it is.
            ours.directory |= theirs.directory && !ours.left;
            ours.times = ours.times.max(theirs.times);
        });
        self.files.add(other.files, |(), ()| {});
        self.looked
            .add(other.looked, |ours, theirs| *ours |= theirs);
        self.refused.add(other.refused, |(), ()| {});
        let left_out = self.hosts_left_out.max(other.hosts_left_out);
        for (host, port) in other.peers {
            self.note_peer(host, port);
        }
        self.hosts_left_out = self.hosts_left_out.max(left_out);
        self.told = other.told;
    }

    /// A run begins in a jail of these steps, in a home of these names.
    pub fn begin<'a>(&mut self, steps: &[Step], homes: impl IntoIterator<Item = &'a Path>) {
        self.homes = homes.into_iter().map(Path::to_path_buf).collect();
        self.homes.sort_unstable();
        self.homes.dedup();
        for step in steps {
            let Some(below) = self.below(&step.at) else {
                continue;
            };
            self.made
                .extend(below.ancestors().skip(1).map(Path::to_path_buf));
            match &step.mount {
                Mount::Tmpfs { .. } | Mount::Directory { .. } => {
                    self.made.insert(below);
                }
                mount => {
                    let access = Access::Write;
                    let writable =
                        matches!(mount, Mount::Bind { access: given, .. } if *given == access);
                    self.shown.insert(below, writable);
                }
            }
        }
    }

    /// The home stands in a directory of the session's own.
    pub fn stands_in(&mut self, own: &Path) {
        self.own = Some(own.to_owned());
    }

    /// Whether a path is the session's own, or above that.
    pub(super) fn is_own(&self, path: &Path) -> bool {
        let own = self.own.as_deref();
        own.is_some_and(|own| path.starts_with(own) || own.starts_with(path))
    }

    /// Something is done at a path, which is absolute.
    pub fn note(&mut self, path: &Path, act: Act) {
        self.note_times(path, act, 1);
    }

    /// So many times.
    pub(super) fn note_times(&mut self, path: &Path, act: Act, times: u64) {
        let Some(below) = self.below(path) else {
            return;
        };
        if let Some((at, writable)) = self.shown_around(&below) {
            if matches!(act, Act::Write | Act::MakeDirectory) && !writable {
                let _ = self.refused.note(at);
            }
            return;
        }
        match act {
            Act::Look | Act::Open => {
                if self.is_nobodys(&below) {
                    return;
                }
                if let Some(opened) = self.looked.note(below) {
                    *opened |= act == Act::Open;
                }
            }
            Act::Write | Act::MakeDirectory => {
                self.write(below, act == Act::MakeDirectory, times);
            }
        }
    }

    /// Something could not be written at a path: the jail may show that read-only; else it was looked for.
    pub(super) fn note_unwritten(&mut self, path: &Path) {
        let shown = self.below(path).and_then(|below| self.shown_around(&below));
        match shown {
            Some(_) => self.note(path, Act::Write),
            None => self.note(path, Act::Open),
        }
    }

    /// Whether a path lies below the home.
    pub(super) fn is_in_home(&self, path: &Path) -> bool {
        self.below(path).is_some()
    }

    /// Something stands in the home at the end; `below` it.
    pub fn note_left(&mut self, below: &Path, directory: bool) {
        let below = plain(below);
        if self.is_nobodys(&below) || self.shown_around(&below).is_some() {
            return;
        }
        let Some(root) = root(&below) else {
            return;
        };
        let is_root = root == below;
        if !self.calls && !directory {
            let _ = self.files.note(below);
        }
        let times = u64::from(!self.calls && (!directory || is_root));
        if let Some(written) = self.written.note(root) {
            written.left = true;
            written.times = written.times.saturating_add(times);
            // What is seen now counts more than what was called.
            written.directory = if is_root { directory } else { true };
        }
    }

    /// Something is connected to.
    pub fn note_peer(&mut self, host: IpAddr, port: u16) {
        // Addresses are compared by connecting to no port, which sends nothing (RFC 6724).
        if port == 0 || self.peers.contains(&(host, port)) {
            return;
        }
        if self.peers.len() < MOST_HOSTS {
            self.peers.insert((host, port));
        } else {
            self.hosts_left_out = self.hosts_left_out.saturating_add(1);
        }
    }

    /// A name server is asked about a name.
    pub fn note_name(&mut self, name: String) {
        if self.names.contains(&name) {
            return;
        }
        if self.names.len() < MOST_HOSTS {
            self.names.insert(name);
        } else {
            self.hosts_left_out = self.hosts_left_out.saturating_add(1);
        }
    }

    fn write(&mut self, below: PathBuf, directory: bool, times: u64) {
        if self.is_nobodys(&below) {
            return;
        }
        let Some(root) = root(&below) else {
            return;
        };
        let is_root = root == below;
        if !directory {
            let _ = self.files.note(below);
        }
        if let Some(written) = self.written.note(root) {
            written.directory |= directory || !is_root;
            written.times = written.times.saturating_add(times);
        }
    }

    /// A path as it is below the home, without dots; `None` outside of it.
    fn below(&self, path: &Path) -> Option<PathBuf> {
        let path = plain(path);
        // The longest name: one may stand in another.
        let mut homes = self.homes.iter().rev();
        homes
            .find_map(|home| path.strip_prefix(home).ok())
            .map(Path::to_path_buf)
    }

    /// What the jail shows of the host at a path or above it, and whether it is writable.
    fn shown_around(&self, below: &Path) -> Option<(PathBuf, bool)> {
        let around = below
            .ancestors()
            .find_map(|at| self.shown.get_key_value(at));
        around.map(|(at, writable)| (at.clone(), *writable))
    }

    /// Whether it is the home, a directory that programs share, or one that the launch made.
    fn is_nobodys(&self, below: &Path) -> bool {
        below.as_os_str().is_empty()
            || SHARED.iter().any(|shared| below == Path::new(shared))
            || self.made.contains(below)
    }
}

/// The place that a program has for itself, in which a path lies; `None` for one that programs share.
#[must_use]
pub fn root(below: &Path) -> Option<PathBuf> {
    let shared = SHARED.iter().map(Path::new);
    let around = shared.filter(|shared| below.starts_with(shared));
    let depth = around.map(|shared| shared.components().count()).max();
    let count = depth.unwrap_or(0) + 1;
    let root: PathBuf = below.components().take(count).collect();
    (root.components().count() == count).then_some(root)
}

/// Works `.` and `..` off in the text: for a recorder that is near enough.
pub(super) fn plain(path: &Path) -> PathBuf {
    let mut all = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                all.pop();
            }
            Component::CurDir => {}
            other => all.push(other),
        }
    }
    all
}

/// What a trail says about itself: its object, its gaps, and what no other recorder sees.
#[derive(Clone, Debug, Default)]
pub struct TrailSummary {
    /// The tracer's object; empty if there is no header.
    pub object: String,
    /// The kernel.
    pub kernel: String,
    /// What the object cannot see, a sentence each.
    pub blind: Vec<String>,
    /// Events that were lost.
    pub lost: u64,
    /// Records that are not there, by their numbers.
    pub removed: u64,
    /// Lines that were left out, or are no records.
    pub unread: u64,
    /// Opens that were left out, as only some are recorded.
    pub skipped: u64,
    /// Whether the tracer was away meanwhile.
    pub away: bool,
    /// Names that lead to no place: relative, cut off, or with a secret in them.
    pub unplaced: u64,
    /// Whether it was read to its end.
    pub ended: bool,
    /// Why it was not.
    pub trouble: Option<String>,
    /// What was denied, or is hidden and was asked for, with absolute paths.
    pub denied: Bounded<Denied>,
    /// Operations and how they went, with how often.
    pub operations: BTreeMap<(String, String), u64>,
}

/// Something that was asked for in vain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denied {
    /// How often.
    pub times: u64,
    /// The entry of `files.hide` that hides it.
    pub hidden: Option<String>,
    /// How it went, in words.
    pub how: String,
}

impl TrailSummary {
    /// What keeps it from being complete, a sentence each; none if it is.
    #[must_use]
    pub fn gaps(&self) -> Vec<String> {
        let mut all = Vec::new();
        let counts = [
            (self.lost, "events were lost"),
            (self.removed, "records are not there any more"),
            (self.unread, "records could not be read"),
            (
                self.skipped,
                "opens were left out, as only some are recorded",
            ),
        ];
        for (count, what) in counts {
            if count > 0 {
                all.push(format!("{count} {what}"));
            }
        }
        if self.away {
            all.push("the tracer was away for a while".to_owned());
        }
        match &self.trouble {
            Some(trouble) => all.push(trouble.clone()),
            None if !self.ended => all.push("the trail has no end yet".to_owned()),
            None => {}
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        Seen {
            homes: vec!["/home/ada".into()],
            shown: [(".gitconfig".into(), false), ("work/p".into(), true)].into(),
            made: [PathBuf::new(), "work".into()].into(),
            calls: true,
            ..Seen::default()
        }
    }

    fn note(seen: &mut Seen, path: &str, act: Act) {
        seen.note(Path::new(path), act);
    }

    #[test]
    fn what_a_program_has_for_itself_is_found() {
        for (below, expected) in [
            (".a", Some(".a")),
            (".a/b/c", Some(".a")),
            (".config", None),
            (".config/x", Some(".config/x")),
            (".config/x/y/z", Some(".config/x")),
            (".local/share", None),
            (".local/share/x/y", Some(".local/share/x")),
            (".local/bin/x", Some(".local/bin")),
            ("", None),
        ] {
            assert_eq!(
                root(Path::new(below)),
                expected.map(PathBuf::from),
                "{below}"
            );
        }
    }

    #[test]
    fn thousands_of_files_in_one_place_are_one_place() {
        let mut seen = seen();
        for number in 0..10_000 {
            note(&mut seen, &format!("/home/ada/.a/{number}/x"), Act::Write);
            note(&mut seen, &format!("/home/ada/{number}"), Act::Look);
        }
        assert_eq!(seen.written.iter().count(), 1);
        let written = seen.written.get(Path::new(".a")).expect("the place");
        assert_eq!((written.directory, written.times), (true, 10_000));
        assert_eq!(seen.looked.iter().count(), MOST);
        assert_eq!(seen.looked.left_out, 10_000 - MOST as u64);
        for number in 0..1000 {
            let long = format!("/home/ada/.b/{}{number}", "x".repeat(4000));
            note(&mut seen, &long, Act::Open);
            note(&mut seen, &long, Act::Write);
        }
        assert!(seen.looked.bytes <= MOST_BYTES && seen.files.bytes <= MOST_BYTES);
    }

    #[test]
    fn what_the_jail_shows_is_not_the_programs_own() {
        let mut seen = seen();
        for path in [
            "/home/ada",
            "/home/ada/work",
            "/home/ada/work/p/x",
            "/etc/x",
        ] {
            note(&mut seen, path, Act::Open);
            note(&mut seen, path, Act::Write);
        }
        note(&mut seen, "/home/ada/.gitconfig", Act::Open);
        note(&mut seen, "/home/ada/.config", Act::MakeDirectory);
        assert_eq!(seen.written.iter().count() + seen.looked.iter().count(), 0);
        note(&mut seen, "/home/ada/./x/../.gitconfig", Act::Write);
        assert!(seen.refused.get(Path::new(".gitconfig")).is_some());
        // Of another, whose name begins alike.
        note(&mut seen, "/home/adam/.a/x", Act::Write);
        assert_eq!(seen.written.iter().count(), 0);
    }

    #[test]
    fn what_is_left_says_what_it_is() {
        let mut seen = seen();
        note(&mut seen, "/home/ada/.a", Act::Write);
        note(&mut seen, "/home/ada/.gone", Act::Write);
        seen.note_left(Path::new(".a"), true);
        seen.note_left(Path::new(".b/c"), false);
        seen.note_left(Path::new("work"), true);
        let written = |path: &str| seen.written.get(Path::new(path)).copied();
        assert!(written(".a").is_some_and(|a| a.directory && a.left));
        assert!(written(".b").is_some_and(|b| b.directory && b.left));
        assert!(written(".gone").is_some_and(|gone| !gone.left));
        assert_eq!(written("work"), None);
    }

    #[test]
    fn hosts_are_bounded() {
        let mut seen = seen();
        for number in 0..1000u16 {
            seen.note_peer(IpAddr::from([127, 0, 0, 1]), number);
            seen.note_name(format!("{number}.example.org"));
        }
        assert_eq!(
            (seen.peers.len(), seen.names.len()),
            (MOST_HOSTS, MOST_HOSTS)
        );
        assert_eq!(seen.hosts_left_out, 999 + 1000 - 2 * MOST_HOSTS as u64);
    }
}
