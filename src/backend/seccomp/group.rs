//! The second program of a bubblewrap jail: it hands over the calls with which people work in
//! directories of a group, which the jail's user namespace lacks the ids for, or which the first
//! program would have to refuse because it cannot tell a directory from a file.
//!
//! It begins with the same entry as the program of [`super::compile`], so that calls of another ABI get
//! ENOSYS from either. An errno is stricter than a handing over: what the table refuses stays
//! refused. Calls that are handed over under no argument do not run it (Linux 5.11).

use std::collections::BTreeMap;

use super::mediated::{FCHMODAT2, HAND_OVER, SETXATTRAT, Verdict, if_bits, ranges, tree};
use super::{JUMP_EQUAL, NR_OFFSET, SECCOMP_RET_ALLOW, bytes, entry, jump, load, notify, ret};

/// `getxattrat(2)` (Linux 6.13): the same number everywhere, scripts/syscall.tbl.
const GETXATTRAT: i64 = 464;

/// The bit that `chmod g+s` gives (inode(7)).
const SET_GROUP_ID: u32 = 0o2000;

/// The calls that give a mode, and the argument with it.
const MODES: &[(i64, u32)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
];

/// The calls that give an owner, and the argument with the user; the group follows.
const OWNERS: &[(i64, u32)] = &[(libc::SYS_fchown, 1), (libc::SYS_fchownat, 2)];

/// The calls that set an attribute, whose name is in memory.
const SETS: &[i64] = &[
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SETXATTRAT,
    GETXATTRAT,
];

/// The calls that get one. Without room for the value, argument 3, they ask for its length alone, which
/// has no ids in it: `ls -l` does so for every file.
const GETS: &[i64] = &[libc::SYS_getxattr, libc::SYS_lgetxattr, libc::SYS_fgetxattr];

/// The calls that give a file another name.
const RENAMES: &[i64] = &[libc::SYS_renameat, libc::SYS_renameat2];

#[cfg(target_arch = "x86_64")]
mod older {
    pub(super) const RENAMES: &[i64] = &[libc::SYS_rename];
    pub(super) const MODES: &[(i64, u32)] = &[(libc::SYS_chmod, 1)];
    pub(super) const OWNERS: &[(i64, u32)] = &[(libc::SYS_chown, 1), (libc::SYS_lchown, 1)];
}

#[cfg(target_arch = "aarch64")]
mod older {
    pub(super) const RENAMES: &[i64] = &[];
    pub(super) const MODES: &[(i64, u32)] = &[];
    pub(super) const OWNERS: &[(i64, u32)] = &[];
}

/// The programs as the bytes of a `struct sock_filter` array in this machine's layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// Hands the calls over.
    pub handing_over: Vec<u8>,
    /// The same with those that make local sockets, for rank rooms ([`super::notify`]): a process has
    /// one program that hands over.
    pub with_sockets: Vec<u8>,
    /// Refuses what the first program leaves to the mediator, where no program can hand over.
    pub refusing: Vec<u8>,
}

/// The programs for a jail that maps these ids and no others. `renames`: one of them may be for the
/// mediator.
#[must_use]
pub fn programs(uid: u32, gid: u32, renames: bool) -> Programs {
    let mut handed_over = verdicts(uid, gid);
    if renames {
        let numbers = RENAMES.iter().chain(older::RENAMES).copied();
        let numbers = numbers.filter_map(|number| u32::try_from(number).ok());
        handed_over.extend(numbers.map(|number| (number, vec![HAND_OVER])));
    }
    let mut with_sockets = handed_over.clone();
    with_sockets.extend(notify::verdicts());
    Programs {
        handing_over: program(&handed_over),
        with_sockets: program(&with_sockets),
        refusing: program(&modes(ret(
            libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()
        ))),
    }
}

fn program(verdicts: &BTreeMap<u32, Verdict>) -> Vec<u8> {
    let mut program = entry();
    program.push(load(NR_OFFSET));
    program.extend(tree(&ranges(verdicts)));
    program.iter().flat_map(bytes).collect()
}

/// What is done with the modes that have the bit.
fn modes(answer: seccompiler::sock_filter) -> BTreeMap<u32, Verdict> {
    let mut all = BTreeMap::new();
    for &(number, index) in MODES.iter().chain(older::MODES) {
        let verdict = if_bits(index, SET_GROUP_ID, answer.clone());
        all.extend(u32::try_from(number).ok().map(|number| (number, verdict)));
    }
    all
}

fn verdicts(uid: u32, gid: u32) -> BTreeMap<u32, Verdict> {
    let mut all = modes(HAND_OVER);
    let mut add = |number: i64, verdict: Verdict| {
        all.extend(u32::try_from(number).ok().map(|number| (number, verdict)));
    };
    for &(number, index) in OWNERS.iter().chain(older::OWNERS) {
        add(number, unless_own(index, uid, gid));
    }
    for &number in SETS {
        add(number, vec![HAND_OVER]);
    }
    for &number in GETS {
        add(number, unless_empty(3));
    }
    all
}

/// Handed over unless user and group, from this argument on, are the jail's own or stay.
fn unless_own(index: u32, uid: u32, gid: u32) -> Verdict {
    const STAYS: u32 = u32::MAX;
    vec![
        load(low_half(index)),
        jump(JUMP_EQUAL, STAYS, 1, 0),
        jump(JUMP_EQUAL, uid, 0, 3),
        load(low_half(index + 1)),
        jump(JUMP_EQUAL, STAYS, 2, 0),
        jump(JUMP_EQUAL, gid, 1, 0),
        HAND_OVER,
        ret(SECCOMP_RET_ALLOW),
    ]
}

/// Handed over unless the argument, a length, is 0 in all of its 64 bits.
fn unless_empty(index: u32) -> Verdict {
    vec![
        load(low_half(index)),
        jump(JUMP_EQUAL, 0, 0, 2),
        load(low_half(index) + 4),
        jump(JUMP_EQUAL, 0, 1, 0),
        HAND_OVER,
        ret(SECCOMP_RET_ALLOW),
    ]
}

/// Offset of the low half of an argument in `struct seccomp_data`, in bytes. Both architectures have
/// it first. The kernel takes modes and ids as 32 bits or fewer, and drops the other half.
const fn low_half(index: u32) -> u32 {
    16 + 8 * index
}
