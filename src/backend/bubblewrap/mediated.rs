//! The second filter of a bubblewrap jail: it hands over the calls with which people work in
//! directories of a group, which the jail's user namespace lacks the ids for, or which the first
//! would have to refuse because it cannot tell a directory from a file.

use crate::seccomp::notify;
use crate::seccomp::program::{Action, Filter, HAND_OVER, Test, Verdict, Width, refused};

// Numbers that libc does not name on every architecture yet, and which are the same on all of them
// (scripts/syscall.tbl).

const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
/// `getxattrat(2)` (Linux 6.13): the same number everywhere, scripts/syscall.tbl.
const GETXATTRAT: i64 = 464;

/// The bit that `chmod g+s` gives (inode(7)).
const SET_GROUP_ID: u64 = 0o2000;

/// The calls that give a mode, and the argument with it.
const MODES: &[(i64, u8)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
];

/// The calls that give an owner, and the argument with the user; the group follows.
const OWNERS: &[(i64, u8)] = &[(libc::SYS_fchown, 1), (libc::SYS_fchownat, 2)];

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
    pub(super) const MODES: &[(i64, u8)] = &[(libc::SYS_chmod, 1)];
    pub(super) const OWNERS: &[(i64, u8)] = &[(libc::SYS_chown, 1), (libc::SYS_lchown, 1)];
}

#[cfg(target_arch = "aarch64")]
mod older {
    pub(super) const RENAMES: &[i64] = &[];
    pub(super) const MODES: &[(i64, u8)] = &[];
    pub(super) const OWNERS: &[(i64, u8)] = &[];
}

/// The programs as the bytes of a `struct sock_filter` array in this machine's layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// Hands the calls over.
    pub handing_over: Vec<u8>,
    /// The same with those that make local sockets, for rank rooms ([`notify`]): a process has
    /// one program that hands over.
    pub with_sockets: Vec<u8>,
    /// Refuses what the first program leaves to the mediator, where no program can hand over.
    pub refusing: Vec<u8>,
}

/// The programs for a jail that maps these ids and no others. `renames`: one of them may be for the
/// mediator.
#[must_use]
pub fn programs(uid: u32, gid: u32, renames: bool) -> Programs {
    let mut handed_over = filter(uid, gid);
    if renames {
        let hand_over = Verdict::always(HAND_OVER);
        handed_over.set_all(RENAMES, &hand_over);
        handed_over.set_all(older::RENAMES, &hand_over);
    }
    let mut with_sockets = handed_over.clone();
    notify::add_to(&mut with_sockets);
    Programs {
        handing_over: handed_over.compile(),
        with_sockets: with_sockets.compile(),
        refusing: modes(refused(libc::EPERM)).compile(),
    }
}

/// What is done with the modes that have the bit.
fn modes(answer: Action) -> Filter {
    let mut all = Filter::default();
    for &(number, index) in MODES.iter().chain(older::MODES) {
        let has_bit = Test::AnyBit(index, Width::Low, SET_GROUP_ID);
        all.set(number, Verdict::on(has_bit, answer));
    }
    all
}

fn filter(uid: u32, gid: u32) -> Filter {
    let mut all = modes(HAND_OVER);
    for &(number, index) in OWNERS.iter().chain(older::OWNERS) {
        all.set(number, unless_own(index, uid, gid));
    }
    all.set_all(SETS, &Verdict::always(HAND_OVER));
    all.set_all(
        GETS,
        &Verdict::on(Test::NotIn(3, Width::Full, &[0]), HAND_OVER),
    );
    all
}

/// Handed over unless user and group, from this argument on, are the jail's own or stay. The kernel takes ids as 32
/// bits.
fn unless_own(index: u8, uid: u32, gid: u32) -> Verdict {
    const STAYS: u64 = u32::MAX as u64;
    let [user, group] = [uid, gid].map(|own| [STAYS, u64::from(own)]);
    Verdict::on(Test::NotIn(index, Width::Low, &user), HAND_OVER)
        .case(&[Test::NotIn(index + 1, Width::Low, &group)], HAND_OVER)
}
