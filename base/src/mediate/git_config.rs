//! The configuration of a repository, which programs inside may change where nothing of it makes git
//! run anything: git's own syntax, and what of a new text is written.
//!
//! What comes from inside is taken apart into entries as git takes it apart (`config.c`), judged, and
//! written anew. Bytes are copied only where the text outside had the same ones already, so that what
//! the user wrote keeps its form. Syntax and keys: git-config(1).

pub mod replace;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt::{self, Write};

/// An entry of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// `section.subsection.key`, as `git config --list` has it.
    pub name: String,
    /// `None` for a key alone, which stands for yes.
    pub value: Option<String>,
}

/// A part of a text.
#[derive(Debug)]
enum Part {
    Space,
    Comment,
    /// The beginning of the names that follow.
    Header(String),
    Entry(Entry),
}

/// Why a text is not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// One of the two is no configuration, or one that this parser leaves to git.
    Unusual,
    /// This key may run programs, or changes what git does otherwise.
    Key(String),
    /// This key may not have this value.
    Value(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusual => f.write_str("it is not in a form that git writes"),
            Self::Key(name) => write!(
                f,
                "`{}` may only be changed outside the jail",
                name.escape_debug()
            ),
            Self::Value(name) => {
                write!(
                    f,
                    "`{}` may get such a value only outside the jail",
                    name.escape_debug()
                )
            }
        }
    }
}

/// Keys that run nothing and lead nowhere, whatever their value, without a subsection.
const FREE: &[&str] = &[
    "branch.autosetupmerge",
    "branch.autosetuprebase",
    "fetch.prune",
    "init.defaultbranch",
    "lfs.repositoryformatversion",
    "merge.conflictstyle",
    "pull.ff",
    "pull.rebase",
    "push.autosetupremote",
    "push.default",
    "push.followtags",
    "remote.pushdefault",
    "rerere.enabled",
    "user.email",
    "user.name",
];

/// The same with a subsection, but that some take certain values alone ([`is_value`]).
const FREE_BELOW: &[&str] = &[
    "branch.description",
    "branch.gh-merge-base",
    "branch.github-pr-owner-number",
    "branch.merge",
    "branch.pushremote",
    "branch.rebase",
    "branch.remote",
    "branch.vscode-merge-base",
    "lfs.access",
    "lfs.locksverify",
    "remote.fetch",
    "remote.gh-resolved",
    "remote.prune",
    "remote.prunetags",
    "remote.pushurl",
    "remote.skipdefaultupdate",
    "remote.skipfetchall",
    "remote.tagopt",
    "remote.url",
    "submodule.active",
    "submodule.url",
];

impl Entry {
    /// Section, subsection and key. Only a subsection has dots in it.
    #[must_use]
    pub fn parts(&self) -> (&str, Option<&str>, &str) {
        let (section, rest) = self.name.split_once('.').unwrap_or((&self.name, ""));
        match rest.rsplit_once('.') {
            Some((subsection, key)) => (section, Some(subsection), key),
            None => (section, None, rest),
        }
    }

    /// The name without the subsection, and whether there is one.
    #[must_use]
    pub fn kind(&self) -> (String, bool) {
        let (section, subsection, key) = self.parts();
        (format!("{section}.{key}"), subsection.is_some())
    }

    /// Whether it may be changed from inside.
    #[must_use]
    pub fn is_free(&self) -> bool {
        let (kind, below) = self.kind();
        let list = if below { FREE_BELOW } else { FREE };
        list.contains(&kind.as_str())
    }
}

/// The entries of a configuration; `None` if it is none, or has zeros or carriage returns in it.
#[must_use]
pub fn entries(text: &[u8]) -> Option<Vec<Entry>> {
    let parts = parts(std::str::from_utf8(text).ok()?)?.into_iter();
    let entries = parts.filter_map(|(part, _)| match part {
        Part::Entry(entry) => Some(entry),
        _ => None,
    });
    Some(entries.collect())
}

/// What is written in the place of the text `old` when somebody inside wants it to be `new`.
///
/// # Errors
/// See [`Refusal`].
pub fn rewrite(old: &[u8], new: &[u8]) -> Result<String, Refusal> {
    let read = |text| {
        let text = std::str::from_utf8(text).ok()?;
        parts(text)
    };
    let (Some(before), Some(after)) = (read(old), read(new)) else {
        return Err(Refusal::Unusual);
    };
    let (before, after_entries) = (Known::of(&before), Known::of(&after));
    if before.held != after_entries.held {
        return Err(Refusal::Key(before.first_difference(&after_entries)));
    }
    let remotes: HashSet<&str> = (after_entries.all.iter())
        .filter_map(|entry| match entry.parts() {
            // git takes none that begins with a slash for a name.
            ("remote", Some(name), "url")
                if name.starts_with(|c: char| c.is_ascii_alphanumeric()) =>
            {
                Some(name)
            }
            _ => None,
        })
        .collect();
    let is_gone = |entry: &&&Entry| match entry.parts() {
        ("remote", name @ Some(_), "url") => {
            let has = |one: &&Entry| one.parts() == ("remote", name, "url");
            !after_entries.all.iter().any(has)
        }
        _ => false,
    };
    // Where no remote has a name, git takes the name for a path.
    if let Some(gone) = before.all.iter().find(is_gone) {
        return Err(Refusal::Key(gone.name.clone()));
    }
    let mut text = String::new();
    for (part, bytes) in &after {
        match part {
            Part::Space => text.push_str(bytes),
            // What somebody inside has to say to the user is no comment of git's.
            Part::Comment if !before.bytes.contains(&("", *bytes)) => {}
            Part::Header(base) if !before.bytes.contains(&(base.as_str(), *bytes)) => {
                text.push_str(&header(base));
            }
            Part::Comment | Part::Header(_) => text.push_str(bytes),
            Part::Entry(entry) if before.bytes.contains(&(entry.name.as_str(), *bytes)) => {
                text.push_str(bytes);
            }
            Part::Entry(entry) => {
                if !before.has(entry) && !is_value(entry, &remotes) {
                    return Err(Refusal::Value(entry.name.clone()));
                }
                text.push_str(&line(entry, bytes));
            }
        }
    }
    // It means what was judged, or it is not written.
    let written = entries(text.as_bytes());
    let same = written.is_some_and(|written| written.iter().eq(after_entries.all));
    if same {
        Ok(text)
    } else {
        Err(Refusal::Unusual)
    }
}

/// What a text has.
struct Known<'a> {
    all: Vec<&'a Entry>,
    /// What may not be changed: names and bytes, in their order.
    held: Vec<(&'a str, &'a str)>,
    /// The bytes of everything, with the name of what they mean.
    bytes: HashSet<(&'a str, &'a str)>,
}

impl<'a> Known<'a> {
    fn of(parts: &'a [(Part, &'a str)]) -> Self {
        let mut known = Self {
            all: Vec::new(),
            held: Vec::new(),
            bytes: HashSet::new(),
        };
        for (part, bytes) in parts {
            let name = match part {
                Part::Space => continue,
                Part::Comment => "",
                Part::Header(base) => base,
                Part::Entry(entry) => {
                    known.all.push(entry);
                    if !entry.is_free() {
                        known.held.push((&entry.name, bytes));
                    }
                    &entry.name
                }
            };
            known.bytes.insert((name, bytes));
        }
        known
    }

    /// Whether the user has given this value to this key, if of another remote or branch: then both may
    /// have been renamed. A helper of the user's own stays where it is.
    fn has(&self, entry: &Entry) -> bool {
        let is_helper = entry
            .value
            .as_ref()
            .is_some_and(|value| value.contains("::"));
        let known = |one: &&Entry| {
            one.value == entry.value
                && (one.name == entry.name || !is_helper && one.kind() == entry.kind())
        };
        self.all.iter().any(known) && entry.parts().1.is_none_or(is_plain_name)
    }

    /// The name of what was changed.
    fn first_difference(&self, after: &Self) -> String {
        let only = |these: &Self, those: &Self| {
            let missing = these.held.iter().find(|one| !those.held.contains(one));
            missing.map(|(name, _)| (*name).to_owned())
        };
        let moved = || {
            let pairs = self.held.iter().zip(&after.held);
            let first = pairs.into_iter().find(|(one, other)| one != other);
            let longer = || self.held.last().or(after.held.last());
            let name = first.map(|(one, _)| one).or_else(longer);
            name.map_or_else(String::new, |(name, _)| (*name).to_owned())
        };
        only(after, self)
            .or_else(|| only(self, after))
            .unwrap_or_else(moved)
    }
}

/// Whether a free key may get this value from inside. `remotes` are those that have an address.
fn is_value(entry: &Entry, remotes: &HashSet<&str>) -> bool {
    let (kind, _) = entry.kind();
    let Some(value) = entry.value.as_deref() else {
        return false;
    };
    let is_text = |c: char| !c.is_control() || kind == "branch.description" && "\n\t".contains(c);
    if !value.chars().all(is_text) || !entry.parts().1.is_none_or(is_plain_name) {
        return false;
    }
    match kind.as_str() {
        "branch.description" | "user.name" => true,
        "remote.tagopt" => ["--tags", "--no-tags"].contains(&value),
        "remote.url" | "remote.pushurl" | "submodule.url" => is_address(value),
        // A name that no remote has is an address to git, or a path.
        "branch.remote" | "branch.pushremote" | "remote.pushdefault" => {
            value == "." || remotes.contains(value) || is_address(value)
        }
        // The user's own branches are not for the next `git fetch` to overwrite.
        "remote.fetch" => {
            let to = value.rsplit_once(':').map_or("refs/tags/", |(_, to)| to);
            let is_free = to.starts_with("refs/remotes/") || to.starts_with("refs/tags/");
            is_free && !value.starts_with('-')
        }
        _ => !value.starts_with('-'),
    }
}

/// Whether a remote or a branch may get this name.
fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('-') && !name.chars().any(char::is_control)
}

/// Whether an address is one of another host by a transport that git has built in. Not a path: at its
/// end may stand a repository with hooks that the next `git push` runs.
fn is_address(value: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~:/?&=+,@%".contains(c);
    if !value.chars().all(plain) || value.contains("::") {
        return false;
    }
    let schemes = ["https://", "http://", "ssh://", "git://"];
    let host = match schemes.iter().find_map(|one| value.strip_prefix(one)) {
        Some(rest) => rest.split('/').next(),
        // `user@host:path`
        None => match value.split_once(':') {
            Some((host, path))
                if !host.contains('/') && !path.starts_with('-') && !path.starts_with("//") =>
            {
                Some(host)
            }
            _ => None,
        },
    };
    // ssh(1) would take it for an option.
    let is_name = |name: &str| name.starts_with(|c: char| c.is_ascii_alphanumeric());
    host.is_some_and(|host| host.split('@').all(is_name))
}

/// A header as git writes it.
fn header(base: &str) -> String {
    match base.split_once('.') {
        None => format!("[{base}]"),
        Some((section, subsection)) => {
            let quoted = subsection.replace('\\', "\\\\").replace('"', "\\\"");
            format!("[{section} \"{quoted}\"]")
        }
    }
}

/// An entry as git writes it, without the end of the line; its key in the letters of `bytes`, which begin
/// with it.
fn line(entry: &Entry, bytes: &str) -> String {
    let (_, _, key) = entry.parts();
    let key = bytes.get(..key.len()).unwrap_or(key);
    let Some(value) = &entry.value else {
        return key.to_owned();
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~:/+*@,%^=".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        return format!("{key} = {value}");
    }
    let mut text = format!("{key} = \"");
    for c in value.chars() {
        let _ = match c {
            '\\' | '"' => write!(text, "\\{c}"),
            '\n' => text.write_str("\\n"),
            '\t' => text.write_str("\\t"),
            c => text.write_char(c),
        };
    }
    text.push('"');
    text
}

/// Takes a text apart; `None` where git sees an error, and for zeros and carriage returns.
fn parts(text: &str) -> Option<Vec<(Part, &str)>> {
    if text.contains(['\0', '\r']) {
        return None;
    }
    let mut reader = Reader { text, at: 0 };
    let mut base: Option<String> = None;
    let mut all = Vec::new();
    while let Some(first) = reader.peek() {
        let start = reader.at;
        let part = match first {
            ' ' | '\t' | '\n' => {
                reader.skip(|c| " \t\n".contains(c));
                Part::Space
            }
            '#' | ';' => {
                reader.skip(|c| c != '\n');
                Part::Comment
            }
            '[' => {
                let name = reader.header()?;
                base = Some(name.clone());
                Part::Header(name)
            }
            _ => Part::Entry(reader.entry(base.as_deref()?)?),
        };
        all.push((part, text.get(start..reader.at)?));
    }
    Some(all)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at..)?.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn skip(&mut self, what: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&what) {
            self.next();
        }
    }

    /// `[section]`, `[section "subsection"]` or the older `[section.subsection]`.
    fn header(&mut self) -> Option<String> {
        self.next()?;
        let mut base = String::new();
        loop {
            match self.next()? {
                ']' if base.is_empty() => return None,
                ']' => return Some(base),
                ' ' | '\t' => break,
                c if is_of_key(c) || c == '.' => base.push(c.to_ascii_lowercase()),
                _ => return None,
            }
        }
        self.skip(|c| " \t".contains(c));
        if base.is_empty() || self.next()? != '"' {
            return None;
        }
        base.push('.');
        loop {
            match self.next()? {
                '\n' => return None,
                '"' => break,
                '\\' => base.push(self.next().filter(|&c| c != '\n')?),
                c => base.push(c),
            }
        }
        (self.next()? == ']').then_some(base)
    }

    /// A key, and its value up to the end of the line.
    fn entry(&mut self, base: &str) -> Option<Entry> {
        let start = self.at;
        self.skip(is_of_key);
        let key = self.text.get(start..self.at)?.to_ascii_lowercase();
        if !key.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return None;
        }
        self.skip(|c| " \t".contains(c));
        let value = match self.peek() {
            None | Some('\n') => None,
            Some('=') => {
                self.next();
                Some(self.value()?)
            }
            Some(_) => return None,
        };
        Some(Entry {
            name: format!("{base}.{key}"),
            value,
        })
    }

    fn value(&mut self) -> Option<String> {
        let (mut value, mut space, mut quoted) = (String::new(), String::new(), false);
        while let Some(c) = self.peek().filter(|&c| c != '\n') {
            self.next();
            if !quoted && (c == ' ' || c == '\t') {
                // Between words it counts, around them not.
                if !value.is_empty() {
                    space.push(c);
                }
                continue;
            }
            if !quoted && (c == '#' || c == ';') {
                self.skip(|c| c != '\n');
                break;
            }
            value.push_str(&std::mem::take(&mut space));
            match c {
                '"' => quoted = !quoted,
                '\\' => match self.next()? {
                    // It goes on in the next line.
                    '\n' => {}
                    't' => value.push('\t'),
                    'b' => value.push('\u{8}'),
                    'n' => value.push('\n'),
                    c @ ('\\' | '"') => value.push(c),
                    _ => return None,
                },
                c => value.push(c),
            }
        }
        (!quoted).then_some(value)
    }
}

/// Whether a key may have it in its name.
fn is_of_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-'
}
