//! The second program of a Landlock jail: it hands calls over to the mediator.
//!
//! It stands beside the program of [`super::compile`] and begins with the same entry, so that calls
//! of another ABI get ENOSYS from either. An errno is stricter than a handing over: what the table
//! refuses stays refused.
//!
//! The rest looks the number up in a balanced tree of ranges. Most numbers end in a plain "allow"
//! without a look at an argument; the kernel finds these out when the program is installed and runs
//! nothing for them later (Linux 5.11, kernel/seccomp.c, `seccomp_cache_prepare`).

use std::collections::BTreeMap;

use seccompiler::sock_filter;

use super::{
    JUMP_EQUAL, JUMP_SET, NR_OFFSET, SECCOMP_RET_ALLOW, bytes, entry, jump, jump_always, load, ret,
};
use crate::backend::landlock::access::HandedOver;

/// BPF_JMP | BPF_JGE | BPF_K, include/uapi/linux/bpf_common.h.
const JUMP_NOT_LESS: u16 = 0x35;

/// `TIOCGPTPEER`, include/uapi/asm-generic/ioctls.h: asks for the other side of a new terminal.
const PEER: u32 = libc::TIOCGPTPEER as u32;

pub(super) const HAND_OVER: sock_filter = ret(libc::SECCOMP_RET_USER_NOTIF);
const ALLOW: sock_filter = ret(SECCOMP_RET_ALLOW);

/// What is done with a call once its number is known: instructions that end in a verdict, whatever
/// way is taken through them.
pub(super) type Verdict = Vec<sock_filter>;

/// The program as the bytes of a `struct sock_filter` array in this machine's layout.
#[must_use]
pub fn program(which: HandedOver) -> Vec<u8> {
    watching(which, &[])
}

/// The same for a run that is watched: these calls are handed over besides, whatever their arguments.
#[must_use]
pub fn watching(which: HandedOver, watched: &[i64]) -> Vec<u8> {
    let mut verdicts = verdicts(which);
    let watched = watched.iter().filter_map(|&one| u32::try_from(one).ok());
    verdicts.extend(watched.map(|number| (number, vec![HAND_OVER])));
    let mut program = entry();
    program.push(load(NR_OFFSET));
    program.extend(tree(&ranges(&verdicts)));
    program.iter().flat_map(bytes).collect()
}

/// The numbers of calls that are not simply allowed.
fn verdicts(which: HandedOver) -> BTreeMap<u32, Verdict> {
    let mut all = BTreeMap::new();
    let mut add = |numbers: &[i64], verdict: &Verdict| {
        // Every number of a call is small and above 0 (kernel/seccomp.c takes them as `int`).
        let numbers = numbers.iter().filter_map(|&one| u32::try_from(one).ok());
        all.extend(numbers.map(|number| (number, verdict.clone())));
    };
    let hand_over = vec![HAND_OVER];
    add(&[libc::SYS_connect], &hand_over);
    add(MODES, &hand_over);
    add(target::MODES, &hand_over);
    add(&[libc::SYS_ioctl], &if_int(1, PEER));
    add(OF_ONE_PROCESS, &unless_zero(0));
    // Group 0 is the process's own.
    add(&[libc::SYS_setpgid], &unless_zero(1));
    add(&[libc::SYS_setpriority], &unless_self(PRIO_PROCESS));
    add(&[libc::SYS_ioprio_set], &unless_self(IOPRIO_WHO_PROCESS));
    if which.changes {
        add(CHANGES, &hand_over);
        add(target::CHANGES, &hand_over);
    }
    if which.changes || which.opens {
        add(target::CREATES, &hand_over);
    }
    if which.changes || which.truncations {
        add(&[libc::SYS_truncate], &hand_over);
    }
    if which.executions {
        add(&[libc::SYS_execve], &hand_over);
    }
    if which.signals {
        add(SIGNALS, &hand_over);
    }
    let flags = opening(which);
    for &(number, index) in [(libc::SYS_openat, 2)].iter().chain(target::OPENS) {
        match flags {
            None => add(&[number], &hand_over),
            Some(0) => {}
            Some(bits) => add(&[number], &if_bits(index, bits, HAND_OVER)),
        }
    }
    all
}

/// The flags of `open(2)` with any of which it is handed over; `None`: always.
fn opening(which: HandedOver) -> Option<u32> {
    let mut bits = 0;
    if which.changes {
        bits |= libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | UNNAMED;
    }
    if which.truncations {
        // It empties the file even when it is opened for reading.
        bits |= libc::O_TRUNC;
    }
    if which.listings {
        bits |= libc::O_DIRECTORY;
    }
    (!which.opens).then_some(bits.cast_unsigned())
}

/// This answer if any of the bits is set in the argument.
pub(super) fn if_bits(index: u32, bits: u32, answer: sock_filter) -> Verdict {
    vec![
        load(argument(index)),
        jump(JUMP_SET, bits, 0, 1),
        answer,
        ALLOW,
    ]
}

/// Handed over if the argument is this, as an `int`.
fn if_int(index: u32, value: u32) -> Verdict {
    vec![
        load(argument(index)),
        jump(JUMP_EQUAL, value, 0, 1),
        HAND_OVER,
        ALLOW,
    ]
}

/// Handed over if the argument, of which 0 means the caller, is another.
fn unless_zero(index: u32) -> Verdict {
    vec![
        load(argument(index)),
        jump(JUMP_EQUAL, 0, 1, 0),
        HAND_OVER,
        ALLOW,
    ]
}

/// Handed over unless the first argument says that the second is a process, and this says that it is
/// the caller.
fn unless_self(process: u32) -> Verdict {
    vec![
        load(argument(0)),
        jump(JUMP_EQUAL, process, 0, 2),
        load(argument(1)),
        jump(JUMP_EQUAL, 0, 1, 0),
        HAND_OVER,
        ALLOW,
    ]
}

/// A verdict, and the number from which it holds, up to the next.
pub(super) type Range = (u32, Verdict);

/// All numbers, as ranges with one verdict each. The first begins with 0.
pub(super) fn ranges(verdicts: &BTreeMap<u32, Verdict>) -> Vec<Range> {
    let mut ranges: Vec<Range> = vec![(0, vec![ALLOW])];
    let mut from = |start: u32, verdict: &Verdict| match ranges.last_mut() {
        Some((last, held)) if *last == start => *held = verdict.clone(),
        Some((_, held)) if held == verdict => {}
        _ => ranges.push((start, verdict.clone())),
    };
    for (number, verdict) in verdicts {
        from(*number, verdict);
        if !verdicts.contains_key(&(number + 1)) {
            from(number + 1, &vec![ALLOW]);
        }
    }
    ranges
}

/// Instructions that find the range of the number that is loaded, and do as it says.
pub(super) fn tree(ranges: &[Range]) -> Verdict {
    let (below, above) = ranges.split_at(ranges.len() / 2);
    let Some((start, verdict)) = above.first() else {
        return Vec::new();
    };
    if below.is_empty() {
        return verdict.clone();
    }
    let below = tree(below);
    // A conditional jump leaves out 255 instructions at most.
    let mut found = match u8::try_from(below.len()) {
        Ok(length) => vec![jump(JUMP_NOT_LESS, *start, length, 0)],
        Err(_) => vec![
            jump(JUMP_NOT_LESS, *start, 0, 1),
            // The kernel takes 4096 instructions in all.
            jump_always(below.len() as u32),
        ],
    };
    found.extend(below);
    found.extend(tree(above));
    found
}

/// Offset of the low half of an argument in `struct seccomp_data`, in bytes. Both architectures have
/// it first. The kernel takes every argument that is looked at here as an `int`, and drops the other
/// half.
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

/// `O_TMPFILE` without `O_DIRECTORY`, which it includes (`__O_TMPFILE`,
/// include/uapi/asm-generic/fcntl.h).
const UNNAMED: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

/// `PRIO_PROCESS`, include/uapi/linux/resource.h; libc's has another type with each C library.
const PRIO_PROCESS: u32 = 0;

/// `IOPRIO_WHO_PROCESS`, include/uapi/linux/ioprio.h.
const IOPRIO_WHO_PROCESS: u32 = 1;

// Numbers that libc does not name on every architecture yet, and which are the same on all of them
// (scripts/syscall.tbl).

pub(super) const FCHMODAT2: i64 = 452;
pub(super) const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;

/// What changes modes, owners, times and extended attributes, and what watches: Landlock has no right
/// for it.
const MODES: &[i64] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    REMOVEXATTRAT,
    libc::SYS_inotify_add_watch,
];

/// What changes a process that the first argument names.
const OF_ONE_PROCESS: &[i64] = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
];

/// What changes directories. `bind(2)` makes a socket in one.
const CHANGES: &[i64] = &[
    libc::SYS_bind,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
];

const SIGNALS: &[i64] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
];

/// The calls that only older architectures have; `OPENS` with the place of their flags.
#[cfg(target_arch = "x86_64")]
mod target {
    pub(super) const MODES: &[i64] = &[
        libc::SYS_chmod,
        libc::SYS_chown,
        libc::SYS_lchown,
        libc::SYS_utime,
        libc::SYS_utimes,
        libc::SYS_futimesat,
    ];
    pub(super) const CHANGES: &[i64] = &[
        libc::SYS_mkdir,
        libc::SYS_mknod,
        libc::SYS_symlink,
        libc::SYS_link,
        libc::SYS_rename,
        libc::SYS_unlink,
        libc::SYS_rmdir,
    ];
    pub(super) const CREATES: &[i64] = &[libc::SYS_creat];
    pub(super) const OPENS: &[(i64, u32)] = &[(libc::SYS_open, 1)];
}

#[cfg(target_arch = "aarch64")]
mod target {
    pub(super) const MODES: &[i64] = &[];
    pub(super) const CHANGES: &[i64] = &[];
    pub(super) const CREATES: &[i64] = &[];
    pub(super) const OPENS: &[(i64, u32)] = &[];
}
