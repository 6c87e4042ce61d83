//! The users of this node, and what their own files say, for root.
//!
//! A user's files are hostile to root: links, FIFOs, endless lines, a file server that is away or that knows no root. So
//! root opens none of them. A child for each user becomes that user, reads as the user's own call would, and
//! sends what it found through a pipe, of which so much is taken in so much time.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it starts processes that read users' files"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Gid, Pid, Uid};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::failure::{self, Failure, one_line};
use crate::host::{self, accounts};
use crate::sys::process::{Side, exit_now, fork};
use crate::sys::{fds, privileges};

/// What one user's files may take to be read. A home directory may have to be mounted first.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many users' files are read at the same time.
const AT_ONCE: usize = 32;
/// Of more users nothing is read: each costs a process.
const MOST_USERS: usize = 4096;
/// Of one user so many bytes are taken: some 20,000 requests.
const MOST_OF_ONE: usize = 4 << 20;
/// Of all users together, in equal shares.
const MOST_OF_ALL: usize = 64 << 20;
/// What comes beside the share: the first line, with a sentence about what went wrong.
const FIRST_LINE: usize = 16 << 10;
/// A longer sentence is cut off, in characters.
const LONGEST_TROUBLE: usize = 400;
/// Memory of a child, in bytes, whatever the files hold.
const MOST_MEMORY: u64 = 512 << 20;
/// Below it people have their own accounts nowhere (`UID_MIN`, login.defs(5)).
const FIRST_PERSON: u32 = 1000;
/// `nobody`, wherever it has its old number.
const NOBODY: u32 = 65534;
/// Where the tracer keeps a directory for each user unless its configuration says otherwise.
const TRAILS: &str = "/var/lib/agent-sandbox/trails";

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
        None => Ok(Some(of_node(known))),
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

fn of_node(known: Known) -> Vec<User> {
    let mut all: BTreeMap<u32, User> = BTreeMap::new();
    let mut uids: BTreeSet<u32> = entries("/proc")
        .filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit())
        .filter_map(|entry| Some(fs::symlink_metadata(entry.path()).ok()?.uid()))
        .collect();
    if known == Known::Ever {
        let number = |name: &str| name.parse::<u32>().ok();
        for directory in ["/run/user", TRAILS] {
            uids.extend(entries(directory).filter_map(|entry| number(entry.file_name().to_str()?)));
        }
        // Anybody may make a directory there, with anybody's number in its name.
        uids.extend(
            host::NODE_LOCAL
                .into_iter()
                .flat_map(entries)
                .filter_map(|entry| {
                    let uid = entry.metadata().ok()?.uid();
                    (entry.file_name() == *host::join_directory_name(uid)).then_some(uid)
                }),
        );
        let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let people = text
            .lines()
            .filter_map(accounts::Account::of_line)
            .filter_map(User::of);
        let people = people.filter(|user| user.uid >= FIRST_PERSON && user.uid != NOBODY);
        all.extend(people.map(|user| (user.uid, user)));
    }
    for uid in uids {
        // One without an account has no home; containers have many.
        match accounts::account(Uid::from_raw(uid)) {
            Ok(account) => all.extend(account.and_then(User::of).map(|user| (uid, user))),
            Err(error) => complain(&format!("user {uid}"), &format!("{error:#}")),
        }
    }
    if all.len() > MOST_USERS {
        complain(
            "--user",
            &format!(
                "there are {} users; only the first {MOST_USERS} are shown",
                all.len()
            ),
        );
    }
    all.into_values().take(MOST_USERS).collect()
}

fn entries(directory: &str) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(directory).into_iter().flatten().flatten()
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
    let share = MOST_OF_ONE.min(MOST_OF_ALL / users.len().max(1));
    let alone = users.len() == 1;
    let mut all = Vec::new();
    for some in users.chunks(AT_ONCE) {
        let mut children = Vec::new();
        for user in some {
            children.push(Child::start(user, share, &read).context("cannot start a process")?);
        }
        take(&mut children, share + FIRST_LINE);
        for (user, child) in some.iter().zip(children) {
            match child.end().and_then(|text| parsed(&text)) {
                Ok((left_out, things)) => {
                    if left_out > 0 {
                        let hint = if alone {
                            ""
                        } else {
                            "; --user shows more of one"
                        };
                        complain(
                            &user.name,
                            &format!("{left_out} more are left out, the oldest{hint}"),
                        );
                    }
                    all.push((user.clone(), things));
                }
                Err(trouble) if alone => {
                    let trouble: String = trouble.chars().take(LONGEST_TROUBLE).collect();
                    return Err(Failure::new(format!("user `{}`: {trouble}", user.name)).into());
                }
                Err(trouble) => complain(&user.name, &trouble),
            }
        }
    }
    Ok(all)
}

/// What a child sent, which may be anything.
fn parsed<T: DeserializeOwned>(text: &[u8]) -> Result<(usize, Vec<T>), String> {
    let mut lines = text.split(|&byte| byte == b'\n');
    let head = lines
        .next()
        .and_then(|line| serde_json::from_slice(line).ok());
    match head {
        None => Err("the process that reads the user's files ended before it answered".to_owned()),
        Some(Head {
            trouble: Some(trouble),
            ..
        }) => Err(trouble),
        Some(Head { left_out, .. }) => {
            let things = lines.filter_map(|line| serde_json::from_slice(line).ok());
            Ok((left_out, things.collect()))
        }
    }
}

/// A process that reads one user's files.
struct Child {
    pid: Pid,
    /// Closed when that was all.
    from: Option<PipeReader>,
    text: Vec<u8>,
    trouble: Option<String>,
}

impl Child {
    fn start<T: Serialize>(
        user: &User,
        share: usize,
        read: &impl Fn(&User) -> Result<Vec<T>>,
    ) -> io::Result<Self> {
        let (from, mut to) = io::pipe()?;
        let parent = nix::unistd::getpid();
        match fork()? {
            Side::Child => {
                let found = become_user(user, parent, to.as_raw_fd()).and_then(|()| read(user));
                // The parent says what went wrong if nothing arrives.
                let _ = to.write_all(&sent(found, share));
                exit_now(0)
            }
            Side::Parent(pid) => Ok(Self {
                pid,
                from: Some(from),
                text: Vec::new(),
                trouble: None,
            }),
        }
    }

    /// Takes what is there to be read, up to so many bytes in all.
    fn take(&mut self, most: usize) {
        let mut buffer = [0; 64 << 10];
        let count = match self.from.as_mut().map(|from| from.read(&mut buffer)) {
            Some(Ok(count)) => count,
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => return,
            _ => 0,
        };
        self.text.extend_from_slice(&buffer[..count]);
        if self.text.len() > most {
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
fn take(children: &mut [Child], most: usize) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut open: Vec<&mut Child> = children
            .iter_mut()
            .filter(|child| child.from.is_some())
            .collect();
        if open.is_empty() {
            return;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            for child in open {
                let seconds = PATIENCE.as_secs();
                child.trouble = Some(format!(
                    "the user's files could not be read within {seconds} s"
                ));
            }
            return;
        }
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
                child.take(most);
            }
        }
    }
}

/// In the child: goes on as that user, holding nothing of root's but the pipe.
fn become_user(user: &User, parent: Pid, pipe: i32) -> Result<()> {
    let groups = accounts::groups_of(&user.account)?;
    let nothing = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    for number in 0..3 {
        fds::become_standard(&nothing, number)?;
    }
    drop(nothing);
    fds::close_all_but(&[pipe])?;
    let seconds = PATIENCE.as_secs();
    setrlimit(Resource::RLIMIT_AS, MOST_MEMORY, MOST_MEMORY)?;
    setrlimit(Resource::RLIMIT_CPU, seconds, seconds)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    privileges::become_user(
        Uid::from_raw(user.uid),
        Gid::from_raw(user.account.gid),
        &groups,
    )
    .with_context(|| format!("cannot become user `{}`", user.name))?;
    privileges::end_with_parent(Some(parent))?;
    Ok(())
}

/// A child's answer: of the newest things, which stand last, as many as have room.
fn sent<T: Serialize>(found: Result<Vec<T>>, share: usize) -> Vec<u8> {
    let (things, trouble) = match found {
        Ok(things) => (things, None),
        Err(error) => (Vec::new(), Some(format!("{error:#}"))),
    };
    let mut room = share;
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for thing in things.iter().rev() {
        // A name that is no text is none of ours.
        let Ok(line) = serde_json::to_vec(thing) else {
            continue;
        };
        match room.checked_sub(line.len() + 1) {
            Some(left) => room = left,
            None => break,
        }
        lines.push(line);
    }
    let left_out = things.len() - lines.len();
    let trouble = trouble.map(|text| text.chars().take(LONGEST_TROUBLE).collect());
    lines.push(serde_json::to_vec(&Head { trouble, left_out }).unwrap_or_default());
    lines.reverse();
    lines.join(&b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_have_room() {
        let all: Vec<u32> = (10..100).collect();
        let text = sent(Ok(all), 30);
        assert_eq!(parsed(&text), Ok((80, (90..100).collect::<Vec<u32>>())));
        let none = sent::<u32>(Err(anyhow::anyhow!("x\n{{}}")), 30);
        assert_eq!(parsed::<u32>(&none), Err("x\n{}".to_owned()));
    }

    #[test]
    fn what_is_no_answer_is_none() {
        for text in ["", "\n\n", "{}", "[1]\n1\n", "{\"trouble\":null}\n1"] {
            let text = text.as_bytes();
            assert!(parsed::<u32>(text).is_err() || text == b"{\"trouble\":null}\n1");
        }
        let odd = b"{\"trouble\":null,\"left_out\":0}\n1\n\"x\"\n\xff\n2\n";
        assert_eq!(parsed::<u32>(odd), Ok((0, vec![1, 2])));
    }
}
