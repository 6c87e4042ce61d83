//! What stands where on the host's file systems, asked so that a dead network file system or an
//! automount without a server costs a bounded wait: file systems of this machine are looked at
//! directly, all others by a child process that can be left behind.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

pub use super::found::{Entry, Found, Kind, Look};
use super::mount_table::{Alias, MountTable};
use super::prober::Prober;
use super::walk::{Answer, MayHang, Question, Walker};

/// Questions that are under way at once; their text stays far below a socket's buffer.
const BATCH: usize = 256;

/// Listing a directory costs about as much as this many looks into it.
const WORTH_LISTING: usize = 6;

/// Answers about the host's files. The plan asks through this, so that it can be tested against a
/// tree that exists only in memory.
pub trait Files {
    /// Announces questions that will come, so that they can be answered together.
    fn prefetch(&self, paths: &[PathBuf]);
    /// What `path` leads to. `path` is absolute.
    fn look(&self, path: &Path) -> Look;
    /// The names in a directory, sorted; `None` if it cannot be listed (missing, denied, too
    /// large, no answer).
    fn entries(&self, directory: &Path) -> Option<Rc<[Entry]>>;
    /// The content of a small regular file that somebody hostile may have put there: no link is
    /// followed, a FIFO is not waited for, and what is longer than `most` bytes is `None`.
    fn small_file(&self, path: &Path, most: usize) -> Option<Vec<u8>>;
    /// Where else a directory, or something that is below it, is mounted, as [`MountTable::elsewhere`] says. `real` is a path
    /// without symbolic links.
    fn mounted_elsewhere(&self, real: &Path, besides: &[PathBuf]) -> Vec<Alias>;
}

/// The host's real files.
pub struct HostFiles {
    timeout: Cell<Duration>,
    mounts: MountTable,
    /// Directories of which a listing does not say what is missing.
    automounts: HashSet<PathBuf>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    local: Option<Walker>,
    prober: Option<Prober>,
    /// Mount points that did not answer. Each costs one wait, however many paths lie below it.
    dead: Vec<PathBuf>,
    looks: ByPath<Look>,
    entries: ByPath<Option<Rc<[Entry]>>>,
}

/// By path. The keys are plain text, which hashes ten times as fast as a `PathBuf`.
type ByPath<T> = HashMap<OsString, T, foldhash::fast::RandomState>;

impl State {
    /// Whether it follows from earlier answers that nothing stands at `path`: a directory above it is missing, or its
    /// listing lacks the next name.
    fn is_known_missing(&mut self, path: &Path, automounts: &HashSet<PathBuf>) -> bool {
        let text = path.as_os_str().as_bytes();
        let mut end = text.len();
        while let Some(slash) = memchr::memrchr(b'/', &text[..end]) {
            let directory = OsStr::from_bytes(&text[..slash.max(1)]);
            let (name, whole) = (&text[slash + 1..end], &text[..end]);
            end = slash;
            // What is not written plainly is not judged by its text.
            if matches!(name, b"" | b"." | b"..") {
                continue;
            }
            if self.looks.get(directory) == Some(&Look::Missing) {
                return true;
            }
            let real = match self.looks.get(directory) {
                Some(Look::Found(found)) => found.real.as_path(),
                _ => Path::new(directory),
            };
            if let Some(Some(entries)) = self.entries.get(directory)
                && !may_be_in(entries, name)
                // It lists what somebody has asked for, and makes the rest when it is asked for.
                && !automounts.contains(Path::new(directory))
                && !automounts.contains(real)
            {
                // Much else may be asked for below it.
                if whole.len() < text.len() {
                    let whole = OsStr::from_bytes(whole).to_owned();
                    self.looks.insert(whole, Look::Missing);
                }
                return true;
            }
        }
        false
    }
}

/// Names to which file systems answer although they list them nowhere: their snapshots (NFS of NetApp and others,
/// GPFS, CephFS, ZFS with `snapdir=hidden`).
const UNLISTED: [&[u8]; 5] = [b".snapshot", b".snapshots", b".snap", b".zfs", b"~snapshot"];

/// Whether a directory may have the name, by its sorted listing. Some file systems answer to names that they do not list,
/// and some take upper and lower case for the same (CIFS, vfat, ext4 with `casefold`).
pub fn may_be_in(entries: &[Entry], name: &[u8]) -> bool {
    let listed = entries.binary_search_by(|entry| entry.name.as_bytes().cmp(name));
    listed.is_ok()
        || UNLISTED.contains(&name)
        || !name.is_ascii()
        || entries
            .iter()
            .any(|entry| entry.name.as_bytes().eq_ignore_ascii_case(name))
}

impl HostFiles {
    /// Answers about this host; one path may take `timeout`.
    pub fn new(timeout: Duration) -> Self {
        let mounts = MountTable::read();
        Self {
            timeout: Cell::new(timeout),
            automounts: mounts.automounts(),
            mounts,
            state: RefCell::default(),
        }
    }

    /// The mounts of this process.
    pub fn mounts(&self) -> &MountTable {
        &self.mounts
    }

    /// Whether nothing was mounted or unmounted since the mounts were read.
    pub fn mounts_hold(&self) -> bool {
        self.mounts == MountTable::read()
    }

    /// The same, with the mounts as they are now and without any answer.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self::new(self.timeout.get())
    }

    /// From now on one path may take `timeout`.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout.set(timeout);
    }

    /// Asks all questions, in order; `None` where there was no answer in time.
    fn ask(&self, questions: Vec<Question>) -> Vec<Option<Answer>> {
        let mut answers: Vec<Option<Answer>> = Vec::with_capacity(questions.len());
        let mut elsewhere: Vec<(usize, PathBuf, Question)> = Vec::new();
        {
            let mut state = self.state.borrow_mut();
            let walker = state
                .local
                .get_or_insert_with(|| Walker::local(&self.mounts));
            for question in questions {
                match walker.answer(&question) {
                    Ok(answer) => answers.push(Some(answer)),
                    Err(MayHang(mount)) => {
                        elsewhere.push((answers.len(), mount, question));
                        answers.push(None);
                    }
                }
            }
        }
        for batch in elsewhere.chunks(BATCH) {
            self.ask_elsewhere(batch, &mut answers);
        }
        answers
    }

    /// Asks the looking process. Many questions at once first, for that is fast. Where the answers
    /// stay away they are asked again one by one, so that only what hangs goes without an answer.
    fn ask_elsewhere(&self, batch: &[(usize, PathBuf, Question)], answers: &mut [Option<Answer>]) {
        let questions: Vec<&Question> = batch.iter().map(|(.., question)| question).collect();
        if self.state.borrow().dead.is_empty()
            && let Some(all) = self.ask_together(&questions)
        {
            for ((at, ..), answer) in batch.iter().zip(all) {
                answers[*at] = Some(answer);
            }
            return;
        }
        for (at, mount, question) in batch {
            if self.state.borrow().dead.contains(mount) {
                continue;
            }
            match self.ask_together(&[question]) {
                Some(mut all) => answers[*at] = all.pop(),
                None => self.state.borrow_mut().dead.push(mount.clone()),
            }
        }
    }

    fn ask_together(&self, questions: &[&Question]) -> Option<Vec<Answer>> {
        let mut state = self.state.borrow_mut();
        let mut prober = match state.prober.take() {
            Some(prober) => prober,
            // Without a process there is no bounded wait, so there is no answer.
            None => Prober::start().ok()?,
        };
        let deadline = Instant::now() + self.timeout.get();
        let answers = prober
            .send(questions)
            .ok()
            .and_then(|()| prober.receive(deadline));
        match answers {
            Some(answers) if answers.len() == questions.len() => {
                state.prober = Some(prober);
                Some(answers)
            }
            _ => {
                prober.abandon();
                None
            }
        }
    }
}

impl Files for HostFiles {
    fn prefetch(&self, paths: &[PathBuf]) {
        let mut elsewhere: Vec<&PathBuf> = Vec::new();
        {
            let mut state = self.state.borrow_mut();
            let walker = state.local.take();
            let mut walker = walker.unwrap_or_else(|| Walker::local(&self.mounts));
            for path in paths {
                if state.looks.contains_key(path.as_os_str()) {
                    continue;
                }
                let look = match state.is_known_missing(path, &self.automounts) {
                    true => Look::Missing,
                    false => match walker.look(path) {
                        Ok(look) => look,
                        Err(MayHang(_)) => {
                            elsewhere.push(path);
                            continue;
                        }
                    },
                };
                state.looks.insert(path.clone().into(), look);
            }
            state.local = Some(walker);
        }
        elsewhere.sort_unstable();
        elsewhere.dedup();
        let questions = elsewhere.iter().map(|path| Question::Look((*path).clone()));
        let answers = self.ask(questions.collect());
        let mut state = self.state.borrow_mut();
        for (path, answer) in elsewhere.into_iter().zip(answers) {
            let look = match answer {
                Some(Answer::Look(look)) => look,
                _ => Look::Hung,
            };
            state.looks.insert(path.clone().into(), look);
        }
    }

    fn look(&self, path: &Path) -> Look {
        if let Some(look) = self.state.borrow().looks.get(path.as_os_str()) {
            return look.clone();
        }
        self.prefetch(&[path.to_path_buf()]);
        self.state
            .borrow()
            .looks
            .get(path.as_os_str())
            .cloned()
            .unwrap_or(Look::Hung)
    }

    fn entries(&self, directory: &Path) -> Option<Rc<[Entry]>> {
        {
            let mut state = self.state.borrow_mut();
            if let Some(entries) = state.entries.get(directory.as_os_str()) {
                return entries.clone();
            }
            let missing = matches!(state.looks.get(directory.as_os_str()), Some(Look::Missing));
            if missing || state.is_known_missing(directory, &self.automounts) {
                return None;
            }
        }
        let entries = match self
            .ask(vec![Question::Entries(directory.to_path_buf())])
            .pop()
        {
            Some(Some(Answer::Entries(entries))) => entries.map(Rc::from),
            _ => None,
        };
        self.state
            .borrow_mut()
            .entries
            .insert(directory.into(), entries.clone());
        entries
    }

    fn small_file(&self, path: &Path, most: usize) -> Option<Vec<u8>> {
        match self
            .ask(vec![Question::SmallFile(path.to_path_buf(), most)])
            .pop()
        {
            Some(Some(Answer::SmallFile(content))) => content,
            _ => None,
        }
    }

    fn mounted_elsewhere(&self, real: &Path, besides: &[PathBuf]) -> Vec<Alias> {
        self.mounts.elsewhere(real, besides)
    }
}

impl Drop for HostFiles {
    fn drop(&mut self) {
        if let Some(prober) = self.state.borrow_mut().prober.take() {
            prober.finish();
        }
    }
}

/// Lists directories in which many of these names stand, the outer ones first: what a listing lacks needs no look.
pub fn list_what_many_name<'a>(files: &dyn Files, paths: impl Iterator<Item = &'a Path>) {
    let mut named: HashMap<&OsStr, usize, foldhash::fast::RandomState> = HashMap::default();
    for path in paths {
        let directory = split(path).map_or(path.as_os_str(), |(directory, _)| directory);
        *named.entry(directory).or_default() += 1;
    }
    let many = named
        .into_iter()
        .filter(|(_, count)| *count >= WORTH_LISTING);
    let mut many: Vec<&OsStr> = many.map(|(directory, _)| directory).collect();
    many.sort_by_key(|directory| directory.len());
    for directory in many {
        files.entries(Path::new(directory));
    }
}

/// The directory and the name of an absolute path, as [`Path::parent`] and [`Path::file_name`] say. A plan asks it of
/// hundreds of paths, most of which are written plainly.
pub fn split(path: &Path) -> Option<(&OsStr, &OsStr)> {
    let text = path.as_os_str().as_bytes();
    let slash = memchr::memrchr(b'/', text)?;
    let (above, name) = (&text[..slash], &text[slash + 1..]);
    if matches!(name, b"" | b"." | b"..") || above.ends_with(b"/") || above.ends_with(b"/.") {
        return Some((path.parent()?.as_os_str(), path.file_name()?));
    }
    let above = if above.is_empty() { b"/" } else { above };
    Some((OsStr::from_bytes(above), OsStr::from_bytes(name)))
}

/// Whether a path is another one or lies below it, as [`Path::starts_with`] says. A plan asks it thousands of times, of paths
/// most of which differ in a letter of their first names: then they are not taken apart.
pub fn lies_in(path: &Path, above: &Path) -> bool {
    let [path_text, above_text] = [path, above].map(|path| path.as_os_str().as_bytes());
    let mut pairs = path_text.iter().zip(above_text);
    match pairs.find(|(one, other)| one != other) {
        // Up to here they are taken apart alike. Neither a slash nor a dot: each has another name here.
        Some((one, other)) if ![one, other].iter().any(|byte| matches!(byte, b'/' | b'.')) => false,
        _ => path.starts_with(above),
    }
}

/// `path` with the longest existing beginning replaced by its real path.
pub fn real_as_far_as_it_exists(files: &dyn Files, path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let Look::Found(found) = files.look(above) {
            return join_rest(&found.real, above, path);
        }
    }
    path.to_path_buf()
}

/// What does not answer on the way to a path: the real path cannot be told, for a link may stand there.
pub fn stalled_on_the_way(files: &dyn Files, path: &Path) -> Option<PathBuf> {
    let mut stalled = None;
    for above in path.ancestors() {
        match files.look(above) {
            Look::Found(_) => break,
            Look::Hung => stalled = Some(above.to_path_buf()),
            _ => {}
        }
    }
    stalled
}

/// Whether what does not answer is, or may be, a symbolic link: its directory knows without asking it.
pub fn may_be_a_link(files: &dyn Files, path: &Path) -> bool {
    let entry = path.parent().and_then(|parent| {
        let all = files.entries(parent)?;
        let found = all
            .iter()
            .find(|entry| Some(entry.name.as_os_str()) == path.file_name());
        found.map(|entry| entry.kind)
    });
    entry.is_none_or(|kind| kind == Kind::Link)
}

/// The symbolic links on the way to the part of a path that exists.
pub fn links_as_far_as_it_exists(files: &dyn Files, path: &Path) -> Vec<PathBuf> {
    path.ancestors()
        .find_map(|above| match files.look(above) {
            Look::Found(found) => Some(found.links.into_iter().map(|(at, _)| at).collect()),
            _ => None,
        })
        .unwrap_or_default()
}

fn join_rest(real: &Path, above: &Path, path: &Path) -> PathBuf {
    match path.strip_prefix(above) {
        Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
        _ => real.to_path_buf(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_as_the_standard_library_does_it() {
        for text in [
            "/", "/a", "/a/b", "/a/", "/a//b", "/a//b/", "/a/./b", "/a/.", "/a/..", "/./a", "//a",
            "/a/b..", "/a/.b", "a", "a/b", "", "..",
        ] {
            let path = Path::new(text);
            let name = path.file_name();
            let parts = name.and_then(|name| Some((path.parent()?.as_os_str(), name)));
            // A relative name stands in no directory.
            let parts = parts.filter(|(above, _)| !above.is_empty());
            assert_eq!(split(path), parts, "{text}");
        }
    }

    #[test]
    fn a_path_lies_in_another_as_the_standard_library_says() {
        let all = [
            "/", "", "/a", "/a/", "/a/b", "/a//b", "/a/./b", "/a/../b", "/a.", "/a./b", "/ab",
            "/ab/c", "//a", "/./a", "a", "a/b", "./a", "/b", "/a/b/c", "/a/bc", "/a/.b", "/a/..b",
            "/.", "/..", "/a/.", "/a/..", "/a/b.", "/a/b/.c",
        ];
        for (path, above) in all.iter().flat_map(|path| all.map(|above| (path, above))) {
            let (path, above) = (Path::new(path), Path::new(above));
            assert_eq!(
                lies_in(path, above),
                path.starts_with(above),
                "{path:?} in {above:?}"
            );
        }
    }

    /// Snapshots are there and listed nowhere, and with `casefold` `.SSH` is `.ssh`.
    #[test]
    fn what_a_listing_may_leave_out_is_looked_at() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap();
        std::fs::write(real.join(".SSH"), "").unwrap();
        let files = HostFiles::new(Duration::from_secs(2));
        assert_eq!(files.entries(&real).map(|all| all.len()), Some(1));
        for name in [".ssh", ".snapshot", ".zfs", "schlüssel"] {
            std::fs::write(real.join(name), "").unwrap();
            let look = files.look(&real.join(name));
            assert!(matches!(look, Look::Found(_)), "{name}: {look:?}");
        }
    }

    #[test]
    fn what_a_listing_lacks_is_missing_but_where_an_automounter_makes_it() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap();
        let mut files = HostFiles::new(Duration::from_secs(2));
        assert_eq!(files.entries(&real).as_deref(), Some([].as_slice()));
        std::fs::create_dir_all(real.join("made/later")).unwrap();
        assert_eq!(files.look(&real.join("made")), Look::Missing);
        assert_eq!(files.look(&real.join("made/later")), Look::Missing);
        files = files.anew();
        files.automounts.insert(real.clone());
        files.entries(&real);
        std::fs::create_dir(real.join("asked")).unwrap();
        assert!(matches!(files.look(&real.join("asked")), Look::Found(_)));
        assert!(matches!(
            files.look(&real.join("made/later")),
            Look::Found(_)
        ));
        // Written otherwise it is walked.
        let dotted = real.join("made/../asked");
        assert!(matches!(files.look(&dotted), Look::Found(_)));
    }
}
