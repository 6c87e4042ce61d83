//! What the node's tracer recorded of a run, taken from its trail. Pure.
//!
//! The trail is root's, and what it says was done was done, or asked for. What the run chose (paths, addresses) is
//! taken as bytes of a hostile program, as the other recorder takes them.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use agent_sandbox_events::record::{self, Header, Open, Operation, Peer, REDACTED, Record, What};
use agent_sandbox_events::text;

use super::seen::{self, Seen, TrailSummary};
use crate::mediate::sight::calls::Act;

/// The link to its root that each process has: a longer name of everything.
const ROOT: &str = "/proc/self/root";
/// The most sentences of a trail's header that are kept, and kinds of operations.
const MOST_TOLD: usize = 32;
/// Operations on names, and what is done at the first and the second path of each if it succeeds. What is removed
/// was there before.
const NAMES: [(&str, Act, Act); 8] = [
    ("link", Act::Look, Act::Write),
    ("rename", Act::Write, Act::Write),
    ("symlink", Act::Write, Act::Look),
    ("mkdir", Act::MakeDirectory, Act::Look),
    ("mknod", Act::Write, Act::Look),
    ("truncate", Act::Write, Act::Look),
    ("unlink", Act::Look, Act::Look),
    ("rmdir", Act::Look, Act::Look),
];

/// The trace of a run, as its launch began it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traced {
    /// The session's id.
    pub session: String,
    /// The trace's id on this node.
    pub trace: u32,
    /// The process that it began with, by which the jail is built or mediated.
    pub first: u32,
}

/// Says which entry of `files.hide` hides a path, if one does.
pub type Hidden<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// A trail that is read.
pub struct Reading<'a> {
    traced: &'a Traced,
    hidden: Hidden<'a>,
    seen: Seen,
    told: TrailSummary,
    /// Of which node and when it began; of others of that name nothing is taken.
    begun: Option<(String, f64)>,
    next: u64,
}

impl<'a> Reading<'a> {
    /// Begins; `seen` has seen nothing of the run yet.
    #[must_use]
    pub fn new(traced: &'a Traced, seen: Seen, hidden: Hidden<'a>) -> Self {
        Self {
            traced,
            hidden,
            seen,
            told: TrailSummary::default(),
            begun: None,
            next: 1,
        }
    }

    /// A line of a trail: a record if it is whole, and ours.
    pub fn line(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(record) => self.record(&record),
            Err(_) => self.leave_out(1),
        }
    }

    /// So many lines did not come.
    pub fn leave_out(&mut self, lines: u64) {
        self.told.unread = self.told.unread.saturating_add(lines);
    }

    /// Whether its last record was read.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.told.ended
    }

    /// What was seen in all; `trouble` is why there is no more of it.
    #[must_use]
    pub fn finish(mut self, trouble: Option<String>) -> Seen {
        self.told.trouble = trouble.filter(|_| !self.told.ended);
        self.seen.told = Some(self.told);
        self.seen
    }

    fn record(&mut self, record: &Record) {
        let of = &record.trail;
        let same = of.session.as_deref() == Some(&self.traced.session)
            && of.trace == self.traced.trace
            && of.job.is_none();
        if !same || self.told.ended {
            return;
        }
        if let What::Header(header) = &record.what {
            let begun = (of.node.clone(), header.began);
            let known = self.begun.get_or_insert_with(|| begun.clone());
            if *known == begun {
                self.header(header);
            }
        }
        // A trail begins with its header; one that does not is of another.
        let other = |(node, _): &(String, f64)| *node != of.node;
        if self.begun.as_ref().is_none_or(other) {
            return;
        }
        let missing = record.seq.saturating_sub(self.next);
        self.told.removed = self.told.removed.saturating_add(missing);
        self.next = record.seq.saturating_add(1).max(self.next);
        self.told.lost = self.told.lost.max(record.lost);
        match &record.what {
            What::Open(open) => self.open(open),
            What::Exec(exec) => {
                let act = match went(&exec.verdict) {
                    true => Act::Open,
                    false => Act::Look,
                };
                self.place(&exec.path, &exec.verdict, act);
            }
            What::Connect(peer) => self.peer(peer),
            What::Operation(operation) => self.operation(operation),
            What::Away(_) => self.told.away = true,
            What::End(end) => {
                self.told.skipped = end.skipped;
                self.told.ended = true;
            }
            What::Header(_) | What::Fork(_) | What::Exit(_) | What::Listen(_) | What::Lost(_) => {}
        }
    }

    fn header(&mut self, header: &Header) {
        header.object.clone_into(&mut self.told.object);
        header.kernel.clone_into(&mut self.told.kernel);
        self.told.blind = header.blind.iter().take(MOST_TOLD).cloned().collect();
    }

    fn open(&mut self, open: &Open) {
        let has = |words: &[&str]| {
            open.access
                .iter()
                .any(|word| words.contains(&word.as_str()))
        };
        let act = if has(&["path"]) {
            Act::Look
        } else if has(&["temporary"]) {
            // The file has no name; the directory is opened.
            Act::Open
        } else if has(&["write", "create", "truncate"]) {
            Act::Write
        } else {
            Act::Open
        };
        self.place(&open.path, &open.verdict, act);
    }

    fn operation(&mut self, operation: &Operation) {
        let row = NAMES.iter().find(|row| row.0 == operation.operation);
        if let Some((name, first, second)) = row {
            if let Some(path) = &operation.path {
                self.place(path, &operation.verdict, *first);
            }
            // Where a symbolic link leads is text, and need not be a path.
            if let (Some(path), true) = (&operation.other, *name != "symlink") {
                self.place(path, &operation.verdict, *second);
            }
            return;
        }
        // How the jail is held up is nothing that the run did.
        if operation.actor.pid == self.traced.first {
            return;
        }
        if let Some(path) = &operation.path {
            self.deny(path, &operation.verdict);
        }
        let key = (operation.operation.clone(), in_words(&operation.verdict));
        if self.told.operations.len() < MOST_TOLD || self.told.operations.contains_key(&key) {
            let count = self.told.operations.entry(key).or_default();
            *count = count.saturating_add(operation.verdict.count);
        }
    }

    fn peer(&mut self, peer: &Peer) {
        if let Ok(address) = peer.address.parse::<SocketAddr>() {
            self.seen.note_peer(address.ip(), address.port());
        }
    }

    /// Something is done at a path.
    fn place(&mut self, path: &str, verdict: &record::Verdict, act: Act) {
        let Some(path) = self.deny(path, verdict) else {
            return;
        };
        match act {
            Act::Write | Act::MakeDirectory if !went(verdict) => self.seen.note_unwritten(&path),
            act => self.seen.note_times(&path, act, verdict.count),
        }
    }

    /// Notes it if it was denied, or is hidden; the path, if it is one.
    fn deny(&mut self, path: &str, verdict: &record::Verdict) -> Option<PathBuf> {
        let Some(path) = placed(path, verdict) else {
            self.told.unplaced = self.told.unplaced.saturating_add(1);
            return None;
        };
        // A call that has not run was answered by somebody else: Landlock's mediator does so with every open.
        let answered = verdict.by.as_deref() == Some("seccomp")
            && !matches!(verdict.error.as_deref(), Some("EACCES" | "EPERM" | "EROFS"));
        let denied = matches!(verdict.verdict.as_str(), "denied" | "would_deny") && !answered;
        // What is hidden in the home is found among what was looked for.
        let looks = !denied && !self.seen.is_in_home(&path);
        let hidden = if denied || looks {
            (self.hidden)(&path)
        } else {
            None
        };
        if (denied || hidden.is_some())
            && !self.seen.is_own(&path)
            && let Some(entry) = self.told.denied.note(path.clone())
        {
            entry.times = entry.times.saturating_add(verdict.count);
            entry.hidden = hidden;
            entry.how = in_words(verdict);
        }
        Some(path)
    }
}

/// Whether it happened.
fn went(verdict: &record::Verdict) -> bool {
    matches!(verdict.verdict.as_str(), "allowed" | "would_deny")
}

fn in_words(verdict: &record::Verdict) -> String {
    let mut words = match verdict.verdict.as_str() {
        "would_deny" => "let through, and the tracer would deny it".to_owned(),
        other => other.to_owned(),
    };
    if let (Some(by), true) = (&verdict.by, verdict.verdict == "denied") {
        words.push_str(" by ");
        words.push_str(&by.replace('_', " "));
    }
    if let Some(error) = &verdict.error {
        words.push_str(&format!(" ({error})"));
    }
    words
}

/// A path as it was, if it is all there and absolute: with `..` worked off, and without the link to the root that each
/// process has, for what sees only calls has names as the program wrote them.
fn placed(path: &str, verdict: &record::Verdict) -> Option<PathBuf> {
    let cut = |weak: &String| weak == "truncated" || weak == "tail";
    if path.contains(REDACTED) || verdict.weak.iter().any(cut) {
        return None;
    }
    let path = PathBuf::from(OsString::from_vec(text::unescape(path)?));
    if !path.is_absolute() {
        return None;
    }
    let mut path = path;
    loop {
        // First the link: `..` behind it is that of the root.
        while let Ok(below) = path.strip_prefix(ROOT) {
            path = Path::new("/").join(below);
        }
        path = seen::plain(&path);
        if !path.starts_with(ROOT) {
            return Some(path);
        }
    }
}

#[cfg(test)]
mod tests;
