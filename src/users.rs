//! The users of this node, and what their own files say, for root.
//!
//! A user's files are hostile to root: links, FIFOs, endless lines, a file server that is away or that knows no root. So
//! root opens none of them. A child for each user becomes that user, reads as the user's own call would, and
//! sends what it found through a pipe, of which so much is taken in so much time.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it starts processes that read users' files"
)]

mod node;

use std::fs;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Gid, Pid, Uid};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::failure::{self, Failure, one_line};
use crate::host::accounts;
use crate::sys::process::{Side, exit_now, fork};
use crate::sys::{fds, privileges};

/// What one user's files may take to be read. A home directory may have to be mounted first.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a directory may take that the caller names: it may be that of a whole cluster.
const PATIENCE_WITH_MANY: Duration = Duration::from_secs(60);
/// So many users' files are read at the same time.
const AT_ONCE: usize = 32;
/// Of one user so many bytes are taken: some 20,000 requests.
const MOST_OF_ONE: usize = 4 << 20;
/// Of all users together, in equal shares; of a directory by itself.
const MOST_OF_ALL: usize = 64 << 20;
/// A pipe holds so much, if it may, in bytes (`pipe(7)`).
const PIPE: i32 = 256 << 10;
/// What comes beside the share: the first line, with a sentence about what went wrong.
const FIRST_LINE: usize = 16 << 10;
/// A longer sentence is cut off, in characters.
const LONGEST_TROUBLE: usize = 400;
/// Memory of a child, in bytes, whatever the files hold.
const MOST_MEMORY: u64 = 512 << 20;

/// A user, with an account.
#[derive(Clone, Debug)]
pub struct User {
    /// The number.
    pub uid: u32,
    /// The name.
    pub name: String,
    account: accounts::Account,
}

impl User {
    fn of(account: accounts::Account) -> Option<Self> {
        Some(Self {
            uid: account.line.split(':').nth(2)?.parse().ok()?,
            name: account.name.clone(),
            account,
        })
    }

    /// The user's own policy file. What `XDG_CONFIG_HOME` says in the user's own shell is not known here.
    pub fn config(&self) -> PathBuf {
        let home = Path::new(&self.account.home);
        home.join(".config/agent-sandbox/config.toml")
    }

    /// Where the user's state stands. What `XDG_STATE_HOME` says in the user's own shell is not known here.
    pub fn state(&self) -> PathBuf {
        let home = Path::new(&self.account.home);
        home.join(".local/state/agent-sandbox")
    }
}

/// Of whom something is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Who has a process on this node.
    Running,
    /// Those, who is or was here as far as the node knows, and the people in `/etc/passwd`.
    Ever,
}

/// Whose files are read.
#[derive(Clone, Debug)]
pub enum Source {
    /// A user's, as that user.
    User(User),
    /// What stands in a directory that the caller names or the site keeps, as the caller.
    Directory(PathBuf),
}

impl Source {
    /// How people call it.
    pub fn name(&self) -> String {
        match self {
            Self::User(user) => user.name.clone(),
            Self::Directory(directory) => directory.display().to_string(),
        }
    }

    /// The user as whom it is read, if not as the caller.
    fn reader(&self) -> Option<&User> {
        match self {
            Self::User(user) => Some(user),
            Self::Directory(_) => None,
        }
    }

    fn share(&self, share: usize) -> usize {
        match self {
            Self::User(_) => share,
            Self::Directory(_) => MOST_OF_ALL,
        }
    }

    fn patience(&self) -> Duration {
        match self {
            Self::User(_) => PATIENCE,
            Self::Directory(_) => PATIENCE_WITH_MANY,
        }
    }
}

/// Whose files a call is about: `None` are the caller's own, read by itself. Root's call is about the users that `known` names, or
/// the one that is named.
///
/// # Errors
/// Another user is named by somebody who is not root; there is no such user.
pub fn meant(named: Option<&str>, known: Known) -> Result<Option<Vec<User>>> {
    let own = Uid::effective();
    let named = named.map(by_name).transpose()?;
    match named {
        // The kernel's map of a namespace in which all users are who they are (user_namespaces(7)).
        None if !own.is_root() || !has_all_users() => Ok(None),
        None => Ok(Some(node::users(known))),
        Some(user) if user.uid == own.as_raw() && !own.is_root() => Ok(None),
        Some(user) if own.is_root() => Ok(Some(vec![user])),
        Some(user) => Err(Failure::new(format!(
            "cannot show what user `{}` did: only root sees other users",
            user.name
        ))
        .hint("leave --user away for your own")
        .into()),
    }
}

fn has_all_users() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Whether a directory is one that root alone can change. `None`: there is nothing.
pub fn is_roots_alone(directory: &Path) -> Option<bool> {
    let there = fs::symlink_metadata(directory).ok()?;
    Some(there.is_dir() && there.uid() == 0 && there.mode() & 0o022 == 0)
}

/// A directory of records that is named has to be one: a name that is spelt wrong would hold none.
///
/// # Errors
/// It is none, or cannot be looked at.
pub fn must_be_directory(directory: &Path) -> Result<()> {
    let there = fs::metadata(directory).context("cannot be read")?;
    ensure!(there.is_dir(), "is no directory");
    Ok(())
}

/// A path without links.
///
/// # Errors
/// It is not there, or cannot be looked at.
pub fn real_path(path: &Path) -> io::Result<PathBuf> {
    fs::canonicalize(path)
}

/// The user of that name or number.
///
/// # Errors
/// There is none, or the user database cannot be asked.
pub fn by_name(word: &str) -> Result<User> {
    let account = match (accounts::named(word)?, word.parse()) {
        (None, Ok(uid)) => accounts::account(Uid::from_raw(uid))?,
        (found, _) => found,
    };
    let user = account.and_then(User::of);
    Ok(user.ok_or_else(|| Failure::new(format!("--user: there is no user `{word}`")))?)
}

fn complain(whose: &str, what: &str) {
    let what: String = what.chars().take(LONGEST_TROUBLE).collect();
    failure::say(&format!(
        "agent-sandbox: {}\n",
        one_line(&format!("{whose}: {what}"))
    ));
}

/// What a child sends before the things themselves, which are a line each.
#[derive(Debug, Deserialize, Serialize)]
struct Head {
    /// Why there is nothing.
    trouble: Option<String>,
    /// Things for which there was no room.
    left_out: usize,
}

/// What `read` finds in the files of each of these users, who must be all that are meant; it runs as that user and puts the
/// newest last. Of whom something cannot be read, it is said on standard error; of one user alone it is an error.
///
/// # Errors
/// A limit of processes or descriptors is reached; see above.
pub fn read<T: Serialize + DeserializeOwned>(
    users: Vec<User>,
    read: impl Fn(&User) -> Result<Vec<T>>,
) -> Result<Vec<(User, Vec<T>)>> {
    let lines = |source: &Source, _: usize| {
        let Source::User(user) = source else {
            return Ok(Vec::new());
        };
        // A name that is no text is none of ours.
        let lines = |thing: &T| serde_json::to_vec(thing).ok();
        let lines: Vec<Vec<u8>> = read(user)?.iter().filter_map(lines).collect();
        Ok(lines.join(&b'\n'))
    };
    let found = read_lines(users.into_iter().map(Source::User).collect(), lines)?;
    let things = |text: &[u8]| {
        let lines = text.split(|&byte| byte == b'\n');
        lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    };
    let found = found.into_iter().filter_map(|(source, text)| match source {
        Source::User(user) => Some((user, things(&text))),
        Source::Directory(_) => None,
    });
    Ok(found.collect())
}

/// The same of sources, as one text of lines, for which `read` is told how much room there is, in bytes. The line that it puts last
/// always has room.
///
/// # Errors
/// As [`read`].
pub fn read_lines(
    sources: Vec<Source>,
    read: impl Fn(&Source, usize) -> Result<Vec<u8>>,
) -> Result<Vec<(Source, Vec<u8>)>> {
    let users = sources.iter().filter(|one| matches!(one, Source::User(_)));
    let share = MOST_OF_ONE.min(MOST_OF_ALL / users.count().max(1));
    let alone = sources.len() == 1;
    let mut all = Vec::new();
    for some in sources.chunks(AT_ONCE) {
        let mut children = Vec::new();
        for source in some {
            let share = source.share(share);
            let child = Child::start(source.reader(), source.patience(), share, || {
                read(source, share)
            });
            children.push(child.context("cannot start a process")?);
        }
        take(&mut children);
        for (source, child) in some.iter().zip(children) {
            match child.end().and_then(parsed) {
                Ok((left_out, lines)) => {
                    if left_out > 0 {
                        let hint = match (alone, source) {
                            (false, Source::User(_)) => "; --user shows more of one",
                            _ => "",
                        };
                        complain(
                            &source.name(),
                            &format!("{left_out} more are left out, the oldest{hint}"),
                        );
                    }
                    all.push((source.clone(), lines));
                }
                Err(trouble) if alone => {
                    let trouble: String = trouble.chars().take(LONGEST_TROUBLE).collect();
                    let whose = match source {
                        Source::User(user) => format!("user `{}`", user.name),
                        Source::Directory(path) => format!("`{}`", path.display()),
                    };
                    return Err(Failure::new(format!("{whose}: {trouble}")).into());
                }
                Err(trouble) => complain(&source.name(), &trouble),
            }
        }
    }
    Ok(all)
}

/// What a child sent, which may be anything: how much is left out, and its lines.
fn parsed(mut text: Vec<u8>) -> Result<(usize, Vec<u8>), String> {
    let end = text.iter().position(|&byte| byte == b'\n');
    let head = serde_json::from_slice(&text[..end.unwrap_or(text.len())]);
    text.drain(..end.map_or(text.len(), |end| end + 1));
    match head.ok() {
        None => Err("the process that reads the user's files ended before it answered".to_owned()),
        Some(Head {
            trouble: Some(trouble),
            ..
        }) => Err(trouble),
        Some(Head { left_out, .. }) => Ok((left_out, text)),
    }
}

/// A process that reads one user's files.
struct Child {
    pid: Pid,
    /// Closed when that was all.
    from: Option<PipeReader>,
    text: Vec<u8>,
    /// No more is taken of it, in bytes.
    most: usize,
    patience: Duration,
    trouble: Option<String>,
}

impl Child {
    fn start(
        reader: Option<&User>,
        patience: Duration,
        share: usize,
        read: impl FnOnce() -> Result<Vec<u8>>,
    ) -> io::Result<Self> {
        let (from, mut to) = io::pipe()?;
        // Fewer turns; a system without room for it has the usual size.
        let _ = fcntl(&from, FcntlArg::F_SETPIPE_SZ(PIPE));
        let parent = nix::unistd::getpid();
        match fork()? {
            Side::Child => {
                let found = become_reader(reader, patience, parent, to.as_raw_fd());
                let (head, lines) = sent(found.and_then(|()| read()), share);
                // The parent says what went wrong if nothing arrives.
                let _ = to.write_all(&head).and_then(|()| to.write_all(&lines));
                exit_now(0)
            }
            Side::Parent(pid) => Ok(Self {
                pid,
                from: Some(from),
                text: Vec::new(),
                most: share + FIRST_LINE,
                patience,
                trouble: None,
            }),
        }
    }

    /// Takes what is there to be read, up to so many bytes in all.
    fn take(&mut self) {
        let mut buffer = [0; 256 << 10];
        let count = match self.from.as_mut().map(|from| from.read(&mut buffer)) {
            Some(Ok(count)) => count,
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => return,
            _ => 0,
        };
        self.text.extend_from_slice(&buffer[..count]);
        if self.text.len() > self.most {
            self.trouble = Some("the process that reads the user's files says too much".to_owned());
        }
        if count == 0 || self.trouble.is_some() {
            self.from = None;
        }
    }

    /// Its whole text. One that hangs in the kernel is left behind: SIGKILL takes effect when it wakes.
    fn end(self) -> Result<Vec<u8>, String> {
        let _ = kill(self.pid, Signal::SIGKILL);
        let _ = waitpid(self.pid, Some(WaitPidFlag::WNOHANG));
        match self.trouble {
            Some(trouble) => Err(trouble),
            None => Ok(self.text),
        }
    }
}

/// Takes what all of them send, until all have ended or the time is over. One that is slow takes nothing from the others.
fn take(children: &mut [Child]) {
    let begun = Instant::now();
    loop {
        for child in children.iter_mut().filter(|child| child.from.is_some()) {
            if begun.elapsed() >= child.patience {
                let seconds = child.patience.as_secs();
                child.trouble = Some(format!("the files could not be read within {seconds} s"));
                child.from = None;
            }
        }
        let mut open: Vec<&mut Child> = children
            .iter_mut()
            .filter(|child| child.from.is_some())
            .collect();
        let Some(patience) = open.iter().map(|child| child.patience).min() else {
            return;
        };
        let left = patience.saturating_sub(begun.elapsed());
        let mut fds: Vec<PollFd> = open
            .iter()
            .filter_map(|child| Some(PollFd::new(child.from.as_ref()?.as_fd(), PollFlags::POLLIN)))
            .collect();
        let wait =
            PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::ZERO);
        let ready: Vec<bool> = match poll(&mut fds, wait) {
            Err(Errno::EINTR) => continue,
            _ => fds.iter().map(|fd| fd.any().unwrap_or(false)).collect(),
        };
        for (child, ready) in open.iter_mut().zip(ready) {
            if ready {
                child.take();
            }
        }
    }
}

/// In the child: goes on as that user, if it is about one, holding nothing of root's but the pipe.
fn become_reader(reader: Option<&User>, patience: Duration, parent: Pid, pipe: i32) -> Result<()> {
    let user = match reader {
        Some(user) => Some((user, accounts::groups_of(&user.account)?)),
        None => None,
    };
    let nothing = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    for number in 0..3 {
        fds::become_standard(&nothing, number)?;
    }
    drop(nothing);
    fds::close_all_but(&[pipe])?;
    let seconds = patience.as_secs();
    setrlimit(Resource::RLIMIT_AS, MOST_MEMORY, MOST_MEMORY)?;
    setrlimit(Resource::RLIMIT_CPU, seconds, seconds)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    if let Some((user, groups)) = user {
        privileges::become_user(
            Uid::from_raw(user.uid),
            Gid::from_raw(user.account.gid),
            &groups,
        )
        .with_context(|| format!("cannot become user `{}`", user.name))?;
    }
    privileges::end_with_parent(Some(parent))?;
    Ok(())
}

/// A child's answer: its first line, and of the newest lines, which stand last, as many as have room.
fn sent(found: Result<Vec<u8>>, share: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut lines, trouble) = match found {
        Ok(lines) => (lines, None),
        Err(error) => (Vec::new(), Some(format!("{error:#}"))),
    };
    let mut left_out = 0;
    if let Some(over) = lines.len().checked_sub(share).filter(|over| *over > 0) {
        // The end of the line that is cut.
        let end = lines[over - 1..].iter().position(|&byte| byte == b'\n');
        let end = end.map_or(lines.len(), |end| over + end);
        left_out = lines[..end].split(|&byte| byte == b'\n').count() - 1;
        lines.drain(..end);
    }
    let trouble = trouble.map(|text| text.chars().take(LONGEST_TROUBLE).collect());
    let mut head = serde_json::to_vec(&Head { trouble, left_out }).unwrap_or_default();
    if !lines.is_empty() {
        head.push(b'\n');
    }
    (head, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(found: Result<Vec<u8>>, share: usize) -> Result<(usize, Vec<u8>), String> {
        let (head, lines) = sent(found, share);
        parsed([head, lines].concat())
    }

    #[test]
    fn the_newest_have_room() {
        let all: Vec<Vec<u8>> = (10..100).map(|n: u32| n.to_string().into_bytes()).collect();
        let newest = all[80..].join(&b'\n');
        let all = all.join(&b'\n');
        for share in [29, 30, 31] {
            assert_eq!(answer(Ok(all.clone()), share), Ok((80, newest.clone())));
        }
        assert_eq!(answer(Ok(all.clone()), all.len()), Ok((0, all.clone())));
        assert_eq!(answer(Ok(all), 1), Ok((89, Vec::new())));
        assert_eq!(answer(Ok(Vec::new()), 1), Ok((0, Vec::new())));
        let none = answer(Err(anyhow::anyhow!("x\n{{}}")), 30);
        assert_eq!(none, Err("x\n{}".to_owned()));
    }

    #[test]
    fn what_is_no_answer_is_none() {
        for text in ["", "\n\n", "{}", "[1]\n1\n", "{\"trouble\":null}\n1"] {
            let answer = parsed(text.as_bytes().to_vec());
            assert!(answer.is_err() || text == "{\"trouble\":null}\n1");
        }
        let odd = b"{\"trouble\":null,\"left_out\":0}\n1\n\"x\"\n\xff\n2\n";
        assert_eq!(parsed(odd.to_vec()), Ok((0, odd[30..].to_vec())));
    }
}
