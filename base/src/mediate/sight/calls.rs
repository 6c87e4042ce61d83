//! The calls that are watched, and where each has its paths. Pure.

use libc::c_long;
use serde::{Deserialize, Serialize};

/// What a call does at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Asks whether it is there, or what it is.
    Look,
    /// Opens it for reading, executes it, connects to it.
    Open,
    /// Makes or changes a file.
    Write,
    /// Makes a directory.
    MakeDirectory,
}

/// From where a relative path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// From the current directory.
    Current,
    /// From the directory of this descriptor, which may be `AT_FDCWD`.
    Descriptor(i32),
}

/// A path of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathInMemory {
    /// From where it begins.
    pub from: From,
    /// Where it stands in the caller's memory.
    pub address: u64,
    /// What is done there.
    pub act: Act,
}

/// What a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// A path.
    PathInMemory(PathInMemory),
    /// An address to connect to, and its length.
    Peer(u64, u64),
    /// A message: where it stands, its length, and the address that it goes to with the length of that.
    Message([u64; 4]),
    /// Many messages (`struct mmsghdr`): where they stand, and how many they are.
    Messages(u64, u64),
    /// Nothing.
    Nothing,
}

/// The calls that are handed over. `openat2(2)` is not among them, for the jail refuses it; `sendmsg(2)`
/// is not, for the process that becomes the command passes the listener on by it.
pub const WATCHED: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    FACCESSAT2,
    libc::SYS_readlinkat,
    libc::SYS_chdir,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_truncate,
    libc::SYS_connect,
    libc::SYS_sendto,
    libc::SYS_sendmmsg,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
];

/// `faccessat2(2)`, which libc does not name on every architecture yet: the same number on all of them
/// (scripts/syscall.tbl, Linux 5.8).
const FACCESSAT2: i64 = 439;

/// What a call is about, by its number and arguments. Numbers are those of this program's own
/// architecture.
#[must_use]
pub fn about(number: i32, arguments: &[u64; 6]) -> About {
    let [first, second, third, fourth, fifth, sixth] = *arguments;
    let number = c_long::from(number);
    let one = About::PathInMemory;
    let at = |directory: u64, address, act| PathInMemory {
        // The kernel takes descriptors as `int`.
        from: From::Descriptor((directory as u32).cast_signed()),
        address,
        act,
    };
    let here = |address, act| PathInMemory {
        from: From::Current,
        address,
        act,
    };
    match number {
        libc::SYS_openat => one(at(first, second, opened(third))),
        libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_faccessat
        | FACCESSAT2
        | libc::SYS_readlinkat => one(at(first, second, Act::Look)),
        libc::SYS_chdir => one(here(first, Act::Look)),
        libc::SYS_execve => one(here(first, Act::Open)),
        libc::SYS_execveat => one(at(first, second, Act::Open)),
        libc::SYS_mkdirat => one(at(first, second, Act::MakeDirectory)),
        libc::SYS_mknodat => one(at(first, second, Act::Write)),
        libc::SYS_symlinkat => one(at(second, third, Act::Write)),
        // What was there before is written as well, and what is gone at the end is not found then.
        libc::SYS_linkat | libc::SYS_renameat | libc::SYS_renameat2 => {
            one(at(third, fourth, Act::Write))
        }
        libc::SYS_truncate => one(here(first, Act::Write)),
        libc::SYS_connect => About::Peer(second, third),
        libc::SYS_sendto => About::Message([second, third, fifth, sixth]),
        libc::SYS_sendmmsg => About::Messages(second, third),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => one(here(first, opened(second))),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_stat | libc::SYS_lstat | libc::SYS_access | libc::SYS_readlink => {
            one(here(first, Act::Look))
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat | libc::SYS_mknod => one(here(first, Act::Write)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir => one(here(first, Act::MakeDirectory)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_symlink | libc::SYS_link | libc::SYS_rename => one(here(second, Act::Write)),
        _ => About::Nothing,
    }
}

/// What opening with these flags does (`open(2)`).
fn opened(flags: u64) -> Act {
    let flags = (flags as u32).cast_signed();
    let has = |flag: i32| flags & flag == flag;
    if has(libc::O_PATH) {
        return Act::Look;
    }
    if has(libc::O_TMPFILE) {
        // The path is a directory, and the file in it has no name yet.
        return Act::Open;
    }
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    match writes || has(libc::O_CREAT) || has(libc::O_TRUNC) {
        true => Act::Write,
        false => Act::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_watched_call_is_about_something() {
        for &number in WATCHED {
            let number = i32::try_from(number).expect("a small number");
            assert_ne!(about(number, &[0; 6]), About::Nothing, "{number}");
        }
        assert_eq!(about(-1, &[0; 6]), About::Nothing);
        // By these the listener travels, and the jail refuses.
        for number in [libc::SYS_sendmsg, libc::SYS_openat2] {
            assert!(!WATCHED.contains(&number));
        }
    }

    #[test]
    fn flags_say_what_opening_does() {
        for (flags, act) in [
            (libc::O_RDONLY | libc::O_DIRECTORY, Act::Open),
            (libc::O_RDONLY | libc::O_CREAT, Act::Write),
            (libc::O_RDONLY | libc::O_TRUNC, Act::Write),
            (libc::O_WRONLY, Act::Write),
            (libc::O_RDWR, Act::Write),
            (libc::O_PATH | libc::O_WRONLY, Act::Look),
            (libc::O_TMPFILE | libc::O_RDWR, Act::Open),
        ] {
            let arguments = [
                libc::AT_FDCWD as u64,
                7,
                u64::from(flags.cast_unsigned()),
                0,
                0,
                0,
            ];
            let number = i32::try_from(libc::SYS_openat).expect("a small number");
            let place = PathInMemory {
                from: From::Descriptor(libc::AT_FDCWD),
                address: 7,
                act,
            };
            assert_eq!(
                about(number, &arguments),
                About::PathInMemory(place),
                "{flags:o}"
            );
        }
    }

    #[test]
    fn a_rename_writes_the_new_name() {
        let number = i32::try_from(libc::SYS_renameat2).expect("a small number");
        let new = PathInMemory {
            from: From::Descriptor(4),
            address: 20,
            act: Act::Write,
        };
        assert_eq!(
            about(number, &[3, 10, 4, 20, 0, 0]),
            About::PathInMemory(new)
        );
    }
}
