//! The processes below the mediator, as `/proc` shows them (`proc_pid_stat(5)`).
//!
//! Whatever the jail starts stays below the mediator, which is a subreaper: a process whose parent
//! has ended gets it for a parent. A process outside never comes below it.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it reads /proc"
)]

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;

use agent_sandbox_base::sys::process;

/// The longest chain of parents that is followed. The kernel lets processes nest deeper, but no program that
/// works does.
const LONGEST_CHAIN: usize = 4096;

/// What is known of a process. A number with the same start is the same process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its parent.
    pub(super) parent: i32,
    /// Its process group.
    pub(super) group: i32,
    /// When it began, in the kernel's clock ticks since the machine did.
    pub(super) start: u64,
}

/// Looks at a process, or at the process of a thread.
///
/// # Errors
/// `ESRCH` if there is none with this number.
pub(super) fn entry(number: i32) -> io::Result<Entry> {
    let gone = || io::Error::from_raw_os_error(libc::ESRCH);
    let text = fs::read(format!("/proc/{number}/stat")).map_err(|_| gone())?;
    parse(&text).ok_or_else(gone)
}

/// The name of the program, in brackets, may hold any byte.
fn parse(text: &[u8]) -> Option<Entry> {
    let end = text.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    // The first behind the name is field 3.
    let mut fields = rest.split_ascii_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let start = fields.nth(16)?.parse().ok()?;
    Some(Entry {
        parent,
        group,
        start,
    })
}

/// A process held by a descriptor, so that no other can take its place unnoticed.
#[derive(Debug)]
pub(super) struct Held {
    /// The process.
    pub(super) descriptor: OwnedFd,
    /// Its number.
    pub(super) number: i32,
}

impl Held {
    /// Holds the process with this number.
    ///
    /// # Errors
    /// `ESRCH` if there is none; `EINVAL` or `ENOENT` for a thread that is not the first of its process.
    pub(super) fn new(number: i32) -> io::Result<Self> {
        Ok(Self {
            descriptor: process::descriptor_of(Pid::from_raw(number))?,
            number,
        })
    }

    /// Whether the process lives. As long as it does its number is its own.
    pub(super) fn is_alive(&self) -> bool {
        let mut asked = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut asked, PollTimeout::ZERO), Ok(0))
    }
}

/// Whether the process with this number stands below `root`. It is to be held meanwhile, or the
/// answer may be about another.
///
/// The chain of parents is gone through twice: a parent that ends on the way leaves its children to
/// another, and its number may become another's.
pub(super) fn is_below(number: i32, root: i32) -> bool {
    match chain(number, root) {
        Some(first) => chain(number, root) == Some(first),
        None => false,
    }
}

/// The numbers from a process up to `root`; `None` if they do not lead there.
fn chain(number: i32, root: i32) -> Option<Vec<i32>> {
    let mut chain = Vec::new();
    let mut at = number;
    while at != root {
        if at <= 1 || chain.len() >= LONGEST_CHAIN {
            return None;
        }
        chain.push(at);
        at = entry(at).ok()?.parent;
    }
    (!chain.is_empty()).then_some(chain)
}

/// The threads of a process; none if it is gone.
pub(super) fn threads(process: i32) -> Vec<i32> {
    numbers(Path::new(&format!("/proc/{process}/task")))
}

/// Whether a thread is one of the process of another.
pub(super) fn share_a_process(one: i32, other: i32) -> bool {
    Path::new(&format!("/proc/{one}/task/{other}")).exists()
}

/// The number of the process of a thread.
///
/// # Errors
/// `ESRCH`.
pub(super) fn process_of(thread: i32) -> io::Result<i32> {
    let gone = || io::Error::from_raw_os_error(libc::ESRCH);
    let text = fs::read_to_string(format!("/proc/{thread}/status")).map_err(|_| gone())?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tgid:"));
    let number = lines.next().and_then(|text| text.trim().parse().ok());
    number.ok_or_else(gone)
}

/// The process behind one of this process's descriptors.
///
/// # Errors
/// `EBADF` for a descriptor of something else, `ESRCH` for a process that has ended.
pub(super) fn behind(descriptor: i32) -> io::Result<i32> {
    let bad = || io::Error::from_raw_os_error(libc::EBADF);
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).map_err(|_| bad())?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Pid:"));
    let number: i32 = lines
        .next()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(bad)?;
    // -1 when it is over, 0 when it is in a pid namespace outside.
    if number > 0 {
        Ok(number)
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// Whether a process bears what the mediator and everything below it do, and cannot lay down:
/// `no_new_privs` (`proc_pid_status(5)`).
pub(super) fn is_of_a_jail(number: i32) -> bool {
    let text = fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
    let mut lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("NoNewPrivs:"));
    lines.next().is_some_and(|text| text.trim() == "1")
}

/// Every process below `root`, but for those that are spared and what stands below them. Some that
/// came or went meanwhile may be missing.
pub(super) fn below(root: i32, spared: &dyn Fn(i32) -> bool) -> Vec<i32> {
    // Kernels without CONFIG_PROC_CHILDREN do not say who the children of a process are.
    let tree = match children(root) {
        Some(_) => None,
        None => Some(whole_tree()),
    };
    let mut seen = HashSet::from([root]);
    let (mut found, mut open) = (Vec::new(), vec![root]);
    while let Some(at) = open.pop() {
        let children = match &tree {
            None => children(at).unwrap_or_default(),
            Some(tree) => tree.get(&at).cloned().unwrap_or_default(),
        };
        for child in children {
            if seen.insert(child) && !spared(child) {
                found.push(child);
                open.push(child);
            }
        }
    }
    found
}

/// The children of all threads of a process; `None` if the kernel does not say.
fn children(process: i32) -> Option<Vec<i32>> {
    let mut all = Vec::new();
    let mut known = false;
    for thread in threads(process) {
        if let Ok(text) = fs::read_to_string(format!("/proc/{process}/task/{thread}/children")) {
            known = true;
            all.extend(
                text.split_ascii_whitespace()
                    .filter_map(|n| n.parse::<i32>().ok()),
            );
        }
    }
    known.then_some(all)
}

/// All processes by their parents.
fn whole_tree() -> BTreeMap<i32, Vec<i32>> {
    let mut tree: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for number in numbers(Path::new("/proc")) {
        if let Ok(entry) = entry(number) {
            tree.entry(entry.parent).or_default().push(number);
        }
    }
    tree
}

fn numbers(directory: &Path) -> Vec<i32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_says_nothing() {
        let text = b"7 (a) S 1 2 (3) S 5 6 7 8 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9\n";
        let expected = Entry {
            parent: 5,
            group: 6,
            start: 4711,
        };
        assert_eq!(parse(text), Some(expected));
        for bad in [&b""[..], b"7 (a", b"7 (a) S", b"7 (a) S x 1"] {
            assert_eq!(parse(bad), None);
        }
    }

    #[test]
    fn both_ways_to_the_children_lead_to_the_same() {
        let own = std::process::id().cast_signed();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let number = child.id().cast_signed();
        assert!(is_below(number, own));
        assert!(!is_below(own, own) && !is_below(1, own) && !is_below(own, number));
        assert_eq!(entry(number).unwrap().parent, own);
        assert!(whole_tree()[&own].contains(&number));
        assert!(below(own, &|_| false).contains(&number));
        assert!(!below(own, &|one| one == number).contains(&number));
        assert!(!is_of_a_jail(number));
        let held = Held::new(number).unwrap();
        assert!(held.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!held.is_alive() && !is_below(number, own));
    }
}
