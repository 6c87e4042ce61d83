//! What stands where on the host's file systems, asked so that a dead network file system or an
//! automount without a server costs a bounded wait: file systems of this machine are looked at
//! directly, all others by a child process that can be left behind.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use super::found::{Entry, Found, Kind, Look};
use super::mount_table::MountTable;
use super::prober::Prober;
use super::walk::{Answer, MayHang, Question, Walker};

/// Questions that are under way at once; their text stays far below a socket's buffer.
const BATCH: usize = 256;

/// Answers about the host's files. The plan asks through this, so that it can be tested against a
/// tree that exists only in memory.
pub trait Files {
    /// Announces questions that will come, so that they can be answered together.
    fn prefetch(&self, paths: &[PathBuf]);
    /// What `path` leads to. `path` is absolute.
    fn look(&self, path: &Path) -> Look;
    /// The names in a directory, sorted; `None` if it cannot be listed (missing, denied, too
    /// large, no answer).
    fn entries(&self, directory: &Path) -> Option<Vec<Entry>>;
    /// The content of a small regular file that somebody hostile may have put there: no link is
    /// followed, a FIFO is not waited for, and what is longer than `most` bytes is `None`.
    fn small_file(&self, path: &Path, most: usize) -> Option<Vec<u8>>;
}

/// The host's real files.
pub struct HostFiles {
    timeout: Cell<Duration>,
    mounts: MountTable,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    local: Option<Walker>,
    prober: Option<Prober>,
    /// Mount points that did not answer. Each costs one wait, however many paths lie below it.
    dead: Vec<PathBuf>,
    /// By path. The keys are plain text, which hashes ten times as fast as a `PathBuf`.
    looks: HashMap<OsString, Look>,
    entries: HashMap<OsString, Option<Vec<Entry>>>,
}

impl State {
    /// Whether a listing that is already there shows that nothing stands at `path`.
    fn lists_without(&self, path: &Path) -> bool {
        let mut below = path;
        for directory in path.ancestors().skip(1) {
            if let (Some(Some(entries)), Some(name)) =
                (self.entries.get(directory.as_os_str()), below.file_name())
            {
                let found = entries
                    .binary_search_by(|entry| entry.name.as_bytes().cmp(name.as_bytes()))
                    .is_ok();
                if !found {
                    return true;
                }
            }
            below = directory;
        }
        false
    }
}

impl HostFiles {
    /// Answers about this host; one path may take `timeout`.
    pub fn new(timeout: Duration) -> Self {
        Self {
            timeout: Cell::new(timeout),
            mounts: MountTable::read(),
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
        let mut unknown: Vec<&PathBuf> = Vec::new();
        {
            let mut state = self.state.borrow_mut();
            let mut asked = HashSet::new();
            for path in paths {
                if state.looks.contains_key(path.as_os_str()) || !asked.insert(path.as_os_str()) {
                    continue;
                }
                let parent = path.parent().map(Path::as_os_str);
                let no_parent =
                    parent.is_some_and(|parent| state.looks.get(parent) == Some(&Look::Missing));
                if no_parent || state.lists_without(path) {
                    state.looks.insert(path.clone().into(), Look::Missing);
                } else {
                    unknown.push(path);
                }
            }
        }
        let questions: Vec<Question> = unknown
            .iter()
            .map(|path| Question::Look((*path).clone()))
            .collect();
        let answers = self.ask(questions);
        let mut state = self.state.borrow_mut();
        for (path, answer) in unknown.into_iter().zip(answers) {
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

    fn entries(&self, directory: &Path) -> Option<Vec<Entry>> {
        {
            let state = self.state.borrow();
            if let Some(entries) = state.entries.get(directory.as_os_str()) {
                return entries.clone();
            }
            let missing = matches!(state.looks.get(directory.as_os_str()), Some(Look::Missing));
            if missing || state.lists_without(directory) {
                return None;
            }
        }
        let entries = match self
            .ask(vec![Question::Entries(directory.to_path_buf())])
            .pop()
        {
            Some(Some(Answer::Entries(entries))) => entries,
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
}

impl Drop for HostFiles {
    fn drop(&mut self) {
        if let Some(prober) = self.state.borrow_mut().prober.take() {
            prober.finish();
        }
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
        all.into_iter()
            .find(|entry| Some(entry.name.as_os_str()) == path.file_name())
    });
    entry.is_none_or(|entry| entry.kind == Kind::Link)
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
