//! The second filter of a jail that Landlock makes: which calls are handed over to the mediator.

use super::access::HandedOver;
use agent_sandbox_base::seccomp::program::{Filter, HAND_OVER, Test, Verdict, Width, int_is};

/// `TIOCGPTPEER`, include/uapi/asm-generic/ioctls.h: asks for the other side of a new terminal.
const PEER: u32 = libc::TIOCGPTPEER as u32;

/// The program as the bytes of a `struct sock_filter` array in this machine's layout.
#[must_use]
pub fn program(which: HandedOver) -> Vec<u8> {
    watching(which, &[])
}

/// The same for a run that is watched: these calls are handed over besides, whatever their arguments.
#[must_use]
pub fn watching(which: HandedOver, watched: &[i64]) -> Vec<u8> {
    let hand_over = Verdict::always(HAND_OVER);
    let mut filter = filter(which);
    filter.set_all(watched, &hand_over);
    filter.compile()
}

/// The calls that are not simply allowed.
fn filter(which: HandedOver) -> Filter {
    let mut filter = Filter::default();
    let hand_over = Verdict::always(HAND_OVER);
    let on = |test| Verdict::on(test, HAND_OVER);
    let unless_zero = |index| on(Test::NotIn(index, Width::Low, &[0]));
    filter.set(libc::SYS_connect, hand_over.clone());
    filter.set_all(MODES, &hand_over);
    filter.set_all(target::MODES, &hand_over);
    filter.set(libc::SYS_ioctl, on(int_is(1, PEER)));
    // Process 0 is the caller, and group 0 its own.
    filter.set_all(OF_ONE_PROCESS, &unless_zero(0));
    filter.set(libc::SYS_setpgid, unless_zero(1));
    filter.set(libc::SYS_setpriority, unless_self(PRIO_PROCESS));
    filter.set(libc::SYS_ioprio_set, unless_self(IOPRIO_WHO_PROCESS));
    if which.changes {
        filter.set_all(CHANGES, &hand_over);
        filter.set_all(target::CHANGES, &hand_over);
    }
    if which.changes || which.opens {
        filter.set_all(target::CREATES, &hand_over);
    }
    if which.changes || which.truncations {
        filter.set(libc::SYS_truncate, hand_over.clone());
    }
    if which.executions {
        filter.set(libc::SYS_execve, hand_over.clone());
    }
    if which.listens {
        filter.set(libc::SYS_listen, hand_over.clone());
    }
    if which.signals {
        filter.set_all(SIGNALS, &hand_over);
    }
    let flags = opening(which);
    for &(number, index) in [(libc::SYS_openat, 2)].iter().chain(target::OPENS) {
        match flags {
            None => filter.set(number, hand_over.clone()),
            Some(0) => {}
            Some(bits) => filter.set(number, on(Test::AnyBit(index, Width::Low, bits.into()))),
        }
    }
    filter
}

/// Handed over unless the first argument says that the second is a process, and this says that it is
/// the caller.
fn unless_self(process: u64) -> Verdict {
    Verdict::on(Test::NotIn(0, Width::Low, &[process]), HAND_OVER)
        .case(&[Test::NotIn(1, Width::Low, &[0])], HAND_OVER)
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

/// `O_TMPFILE` without `O_DIRECTORY`, which it includes (`__O_TMPFILE`,
/// include/uapi/asm-generic/fcntl.h).
const UNNAMED: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

/// `PRIO_PROCESS`, include/uapi/linux/resource.h; libc's has another type with each C library.
const PRIO_PROCESS: u64 = 0;

/// `IOPRIO_WHO_PROCESS`, include/uapi/linux/ioprio.h.
const IOPRIO_WHO_PROCESS: u64 = 1;

// Numbers that libc does not name on every architecture yet, and which are the same on all of them
// (scripts/syscall.tbl).

const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
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
    pub(super) const OPENS: &[(i64, u8)] = &[(libc::SYS_open, 1)];
}

#[cfg(target_arch = "aarch64")]
mod target {
    pub(super) const MODES: &[i64] = &[];
    pub(super) const CHANGES: &[i64] = &[];
    pub(super) const CREATES: &[i64] = &[];
    pub(super) const OPENS: &[(i64, u8)] = &[];
}
