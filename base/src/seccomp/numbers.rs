//! Names and numbers of system calls.

use super::error::SeccompError;

/// The call's number on this architecture; `None` if the architecture lacks it.
///
/// # Errors
///
/// [`SeccompError::UnknownSyscall`] for a name that is known neither way: a call that the table
/// names is never left out in silence.
pub fn number(name: &'static str) -> Result<Option<i64>, SeccompError> {
    let mut known = NUMBERS.iter().chain(RECENT_NUMBERS).chain(target::NUMBERS);
    // The length first: it alone tells most of them apart.
    let length = LIBC_PREFIX.len() + name.len();
    if let Some((_, number)) = known
        .find(|(known, _)| known.len() == length && known.strip_prefix(LIBC_PREFIX) == Some(name))
    {
        return Ok(Some(*number));
    }
    match target::LACKING.iter().any(|(lacking, _)| *lacking == name) {
        true => Ok(None),
        false => Err(SeccompError::UnknownSyscall(name)),
    }
}

/// The calls of the table that this architecture does not have, each with the reason.
#[must_use]
pub fn lacking() -> &'static [(&'static str, &'static str)] {
    target::LACKING
}

/// The names of all calls that this architecture has and the table may name.
pub fn names() -> impl Iterator<Item = &'static str> {
    let known = NUMBERS.iter().chain(RECENT_NUMBERS).chain(target::NUMBERS);
    known.filter_map(|(name, _)| name.strip_prefix(LIBC_PREFIX))
}

/// Names and numbers of calls, from libc's constants.
macro_rules! numbers {
    ($($constant:ident)*) => { &[$((stringify!($constant), libc::$constant)),*] };
}

/// What libc's constants put before a call's name.
const LIBC_PREFIX: &str = "SYS_";

/// The calls that every supported architecture has.
const NUMBERS: &[(&str, i64)] = numbers! {
    SYS_acct SYS_add_key SYS_bpf SYS_chroot SYS_clock_settime SYS_clone SYS_clone3 SYS_delete_module
    SYS_fanotify_init SYS_fchmod SYS_fchmodat SYS_fcntl SYS_finit_module SYS_fsconfig SYS_fsmount
    SYS_fsopen SYS_fspick SYS_init_module SYS_io_uring_enter SYS_io_uring_register SYS_io_uring_setup
    SYS_ioctl SYS_kcmp SYS_kexec_load SYS_keyctl SYS_landlock_create_ruleset SYS_lookup_dcookie
    SYS_mknodat SYS_mount
    SYS_mount_setattr SYS_move_mount SYS_mq_open SYS_mq_unlink SYS_msgctl SYS_msgget SYS_msgrcv
    SYS_msgsnd SYS_nfsservctl SYS_open_by_handle_at SYS_open_tree SYS_openat SYS_openat2 SYS_perf_event_open
    SYS_personality SYS_pivot_root SYS_process_mrelease SYS_quotactl SYS_quotactl_fd SYS_reboot
    SYS_request_key SYS_semctl SYS_semget SYS_semop SYS_semtimedop SYS_sendmmsg SYS_sendmsg SYS_sendto
    SYS_setns SYS_setsockopt SYS_settimeofday SYS_shmat SYS_shmctl SYS_shmget SYS_socket SYS_socketpair SYS_swapoff
    SYS_swapon SYS_syslog SYS_umount2 SYS_unshare SYS_userfaultfd SYS_vhangup
};

/// The calls of [`NUMBERS`]'s kind that libc does not name on every architecture yet; one number for
/// all of them.
const RECENT_NUMBERS: &[(&str, i64)] = &[
    // Linux 6.6, include/uapi/asm-generic/unistd.h.
    ("SYS_fchmodat2", 452),
    // Linux 6.15, scripts/syscall.tbl.
    ("SYS_open_tree_attr", 467),
    // Linux 6.17, scripts/syscall.tbl.
    ("SYS_file_setattr", 469),
];

#[cfg(target_arch = "x86_64")]
mod target {
    pub(super) const NUMBERS: &[(&str, i64)] = numbers! {
        SYS__sysctl SYS_chmod SYS_creat SYS_ioperm SYS_iopl SYS_kexec_file_load SYS_mknod
        SYS_modify_ldt SYS_open SYS_sysfs SYS_uselib SYS_ustat
    };
    pub(super) const LACKING: &[(&str, &str)] = &[];
}

#[cfg(target_arch = "aarch64")]
mod target {
    pub(super) const NUMBERS: &[(&str, i64)] = &[
        // libc for musl does not name it; include/uapi/asm-generic/unistd.h.
        ("SYS_kexec_file_load", 294),
        ("SYS_ptrace", libc::SYS_ptrace),
    ];
    pub(super) const LACKING: &[(&str, &str)] = &[
        ("_sysctl", OLDER),
        ("chmod", OLDER),
        ("creat", OLDER),
        ("ioperm", "I/O ports exist on x86 only"),
        ("iopl", "I/O ports exist on x86 only"),
        ("mknod", OLDER),
        ("modify_ldt", "memory segments exist on x86 only"),
        ("open", OLDER),
        ("sysfs", OLDER),
        ("uselib", OLDER),
        ("ustat", OLDER),
    ];
    const OLDER: &str = "older than the architecture: its call table never had it";
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("agent-sandbox knows the system calls of x86_64 and aarch64 only");
