//! Sorts what was seen into what a profile may give and what its reader has to decide. Pure. What is
//! given is at most what was seen, below the home, and nothing that the policy hides or protects.

use std::ffi::OsStr;
use std::path::{Component, Path};

use crate::config::agent::HomePath;
use crate::observe::seen::Denied;
use crate::observe::seen::{Bounded, Seen, Written};
use crate::policy::PathSpec;

/// The most entries of a list in the file: more are not read by anybody.
const MOST: usize = 40;
/// As many paths are asked the host about: each may be one on a file system that takes its time.
const MOST_JUDGED: u32 = 1000;
/// The longest path in the file, in characters.
const LONGEST: usize = 400;
/// Where caches stand.
const CACHES: &str = ".cache";

/// What stands at a path on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    /// Nothing.
    Nothing,
    /// A file.
    File,
    /// A directory.
    Directory,
    /// Something else, or nobody knows.
    Other,
}

/// What the policy and the host say of a path.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The entry of `files.hide` that hides it.
    pub hidden: Option<String>,
    /// The entry of `home.protect` that keeps it from being written.
    pub protected: Option<String>,
    /// What stands there on the host.
    pub stands: Stands,
}

/// An entry: the path as a policy writes it, or as near as text comes to it, and a remark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `~/…`
    pub path: String,
    /// What is to know of it; may be empty.
    pub note: String,
}

/// Entries, as many as are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Those that are.
    pub all: Vec<Entry>,
    /// How many are not.
    pub left_out: u64,
}

impl Listed {
    fn add(&mut self, path: String, note: impl Into<String>) {
        if self.all.len() < MOST {
            let note = note.into();
            self.all.push(Entry { path, note });
        } else {
            self.left_out += 1;
        }
    }

    /// How many there are in all.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.all.len() as u64 + self.left_out
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// What was seen, sorted. The first three are given; the rest are comments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sorted {
    /// Directories of its state.
    pub directories: Listed,
    /// Files of its state, directly in the home.
    pub files: Listed,
    /// Files that it read and that exist on the host.
    pub read: Listed,
    /// What it may keep a login in.
    pub logins: Listed,
    /// What it only read in the directories of its state, and the host has.
    pub settings: Listed,
    /// What the policy hides.
    pub hidden: Listed,
    /// What the policy keeps from being written, or shows to nobody by itself.
    pub protected: Listed,
    /// Caches.
    pub caches: Listed,
    /// Written, and not given for the reason that the remark says.
    pub unsure: Listed,
    /// Looked for; the host has it.
    pub there: Listed,
    /// Looked for; the host has none either.
    pub missing: Listed,
    /// Tried to write what the jail shows read-only.
    pub refused: Listed,
    /// What was denied, or is hidden outside of the home, with absolute paths.
    pub denied: Listed,
    /// What no policy can name.
    pub unnamed: Listed,
    /// How many places were written and were gone at the end.
    pub gone: u64,
    /// What the recorder itself did not keep, and what was too much to be judged.
    pub not_kept: u64,
}

impl Sorted {
    /// Sorts.
    #[must_use]
    pub fn new(seen: &Seen, judge: &dyn Fn(&Path) -> Judgement) -> Self {
        let mut sorted = Self {
            not_kept: [
                seen.written.left_out,
                seen.looked.left_out,
                seen.refused.left_out,
                seen.hosts_left_out,
            ]
            .iter()
            .fold(0, |sum, one| sum.saturating_add(*one)),
            ..Self::default()
        };
        let mut given = Vec::new();
        for (root, written) in seen.written.iter() {
            if sorted.sort_written(root, written, seen.whole, judge) {
                given.push(root);
            }
        }
        let is_given = |path: &Path| given.iter().any(|root| path.starts_with(root));
        for (file, ()) in seen.files.iter() {
            if is_given(file) && sounds_secret(file) {
                sorted.sort_login(file, judge);
            }
        }
        let mut judged = 0;
        for (path, &opened) in seen.looked.iter() {
            let written = seen.files.get(path).is_some();
            if is_given(path) {
                let roots = &seen.written;
                if !written && roots.get(path).is_none() && sorted.settings.all.len() < MOST {
                    sorted.sort_setting(path, judge);
                }
            } else if !written && !is_in(path, &seen.written) {
                judged += 1;
                match judged <= MOST_JUDGED {
                    true => sorted.sort_looked(path, opened, judge),
                    false => sorted.not_kept += 1,
                }
            }
        }
        for (path, ()) in seen.refused.iter() {
            sorted.refused.add(shown(path), "");
        }
        if let Some(told) = &seen.told {
            sorted.not_kept = sorted.not_kept.saturating_add(told.denied.left_out);
            // What is hidden first: there may be more of the rest than is shown.
            let all = || told.denied.iter();
            let hidden = all().filter(|(_, denied)| denied.hidden.is_some());
            for (path, denied) in hidden.chain(all().filter(|(_, denied)| denied.hidden.is_none()))
            {
                sorted.denied.add(cut(path), in_vain(denied));
            }
        }
        sorted
    }

    /// How many entries are in no list.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        let lists = [
            &self.directories,
            &self.files,
            &self.read,
            &self.logins,
            &self.settings,
            &self.hidden,
            &self.protected,
            &self.caches,
            &self.unsure,
            &self.there,
            &self.missing,
            &self.refused,
            &self.denied,
            &self.unnamed,
        ];
        let listed = lists.iter().map(|list| list.left_out);
        listed.fold(self.not_kept, u64::saturating_add)
    }

    /// Whether it is given.
    fn sort_written(
        &mut self,
        root: &Path,
        written: &Written,
        whole: bool,
        judge: &dyn Fn(&Path) -> Judgement,
    ) -> bool {
        let path = match named(root) {
            Ok(path) => path,
            Err(why) => {
                self.unnamed.add(shown(root), why);
                return false;
            }
        };
        let judged = judge(root);
        if let Some(rule) = judged.hidden {
            self.hidden
                .add(path, format!("written; files.hide has {rule}"));
            return false;
        }
        if let Some(rule) = judged.protected {
            self.protected
                .add(path, format!("written; home.protect has {rule}"));
            return false;
        }
        if root.starts_with(CACHES) {
            self.caches.add(path, times(written.times));
            return false;
        }
        if whole && !written.left {
            self.gone += 1;
            return false;
        }
        let why_not = if !is_dotted(root) {
            Some("without a dot: rather data than what a program keeps for itself")
        } else if !written.directory && root.components().count() > 1 {
            Some("a single file in a directory that programs share")
        } else if written.directory && judged.stands == Stands::File
            || !written.directory && judged.stands == Stands::Directory
        {
            Some("yours is of another kind, file or directory")
        } else {
            None
        };
        if let Some(why) = why_not {
            self.unsure.add(path, why);
            return false;
        }
        let note = match judged.stands {
            Stands::Nothing => times(written.times),
            _ => format!("{}; you have one", times(written.times)),
        };
        let list = match written.directory {
            true => &mut self.directories,
            false => &mut self.files,
        };
        let room = list.all.len() < MOST;
        list.add(path, note);
        room
    }

    fn sort_login(&mut self, file: &Path, judge: &dyn Fn(&Path) -> Judgement) {
        if let Ok(path) = named(file) {
            let note = match judge(file).hidden {
                Some(rule) => format!("written; files.hide has {rule}"),
                None => "written; by its name it may be a login".to_owned(),
            };
            self.logins.add(path, note);
        }
    }

    fn sort_setting(&mut self, path: &Path, judge: &dyn Fn(&Path) -> Judgement) {
        let judged = judge(path);
        let plain = judged.hidden.is_none() && judged.stands == Stands::File;
        if let (true, Ok(named)) = (plain && !sounds_secret(path), named(path)) {
            self.settings.add(named, "looked for, never written");
        }
    }

    fn sort_looked(&mut self, path: &Path, opened: bool, judge: &dyn Fn(&Path) -> Judgement) {
        let named = match named(path) {
            Ok(named) => named,
            Err(why) => return self.unnamed.add(shown(path), why),
        };
        let judged = judge(path);
        let did = if opened { "opened" } else { "looked for" };
        if let Some(rule) = judged.hidden {
            return self
                .hidden
                .add(named, format!("{did}; files.hide has {rule}"));
        }
        match judged.stands {
            Stands::Nothing => self.missing.add(named, did),
            _ if judged.protected.is_some() => {
                let note = "what runs by itself when you log in often holds tokens";
                self.protected.add(named, format!("{did}; {note}"));
            }
            Stands::File if opened && is_dotted(path) && !sounds_secret(path) => {
                self.read.add(named, "opened");
            }
            Stands::File if sounds_secret(path) => {
                self.there
                    .add(named, format!("{did}; by its name it may be a secret"));
            }
            Stands::Directory => self.there.add(named, format!("{did}; a directory")),
            _ => self.there.add(named, did),
        }
    }
}

fn times(count: u64) -> String {
    match count {
        0 | 1 => "written once".to_owned(),
        count => format!("written {count} times"),
    }
}

/// The path as a policy writes it. The error is why none can.
fn named(below: &Path) -> Result<String, &'static str> {
    let text = below.to_str().ok_or("no UTF-8")?;
    let written = format!("~/{text}");
    if written.chars().count() > LONGEST {
        return Err("too long");
    }
    // Nothing that a reader does not see.
    if crate::failure::visible(&written) != written {
        return Err("characters that are not seen");
    }
    HomePath::parse(&written)?;
    let spec = PathSpec::parse(&written).map_err(|_| "no policy can name it")?;
    match spec.is_in_home() {
        true => Ok(written),
        false => Err("not below the home"),
    }
}

/// A path as near as text comes to it.
fn shown(below: &Path) -> String {
    format!("~/{}", cut(below))
}

fn cut(path: &Path) -> String {
    let text = path.to_string_lossy();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

/// What was asked for and not had.
fn in_vain(denied: &Denied) -> String {
    let times = match denied.times {
        0 | 1 => String::new(),
        count => format!(", {count} times"),
    };
    match &denied.hidden {
        Some(rule) => format!("asked for{times}: hidden, not given; files.hide has {rule}"),
        None => format!("asked for{times}: {}", denied.how),
    }
}

/// Whether something was written at the path, or at one above it that a program has for itself.
fn is_in(path: &Path, written: &Bounded<Written>) -> bool {
    path.ancestors().any(|above| written.get(above).is_some())
}

/// Whether its first name begins with a dot, as those of what programs keep do.
fn is_dotted(below: &Path) -> bool {
    match below.components().next() {
        Some(Component::Normal(name)) => name.as_encoded_bytes().starts_with(b"."),
        _ => false,
    }
}

/// Whether a file's name is one under which secrets are kept.
fn sounds_secret(path: &Path) -> bool {
    const WORDS: &[&str] = &[
        "auth", "cookie", "cred", "key", "login", "passw", "secret", "session", "token",
    ];
    let name = path.file_name().map(OsStr::to_string_lossy);
    let name = name.map(|name| name.to_ascii_lowercase());
    name.is_some_and(|name| WORDS.iter().any(|word| name.contains(word)))
}
