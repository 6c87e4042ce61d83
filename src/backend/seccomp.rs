//! The table of refused calls, compiled for the kernel: one classic BPF program for
//! `bwrap --seccomp FD`.
//!
//! The program is, in this order:
//!
//! 1. a hand-written entry: ENOSYS for a foreign architecture and, on x86-64, for x32 numbers;
//! 2. for each answer, the program that `seccompiler` builds from the rules with that answer, without
//!    its own check of the architecture (which would kill) and, but for the last, without its final
//!    `RET ALLOW`, so that a number it does not know falls through to the next;
//! 3. the last `RET ALLOW`.
//!
//! Within `seccompiler`'s program for a call whose number matches and whose arguments do not stands
//! another `RET ALLOW`, in the middle. For a call with rules for two answers it would let pass what a
//! later part refuses. So all rules of such a call but those for its last answer stand in parts of
//! their own, ahead of the others, in which every `RET ALLOW` is a jump to the next part. Where
//! conditions of both hold, the answer that [`Answer`] names first is given.

pub mod group;
pub mod mediated;
pub mod notify;
pub mod watched;

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

use crate::plan::model::syscalls::{Answer, SyscallRule, When};

/// The longest program that the kernel takes (BPF_MAXINSNS, include/uapi/linux/bpf_common.h).
pub const MAX_INSTRUCTIONS: usize = 4096;

/// Size of one instruction in bytes (`struct sock_filter`, include/uapi/linux/filter.h).
pub const INSTRUCTION_BYTES: usize = 8;

/// Rules that cannot be compiled. All of them are mistakes in the table, none depends on the host.
#[derive(Debug, thiserror::Error)]
pub enum SeccompError {
    /// The name is neither a call of this architecture nor in the list of those it lacks.
    #[error("`{0}` is no system call that this program knows")]
    UnknownSyscall(&'static str),
    /// The call has a rule without a condition beside others.
    #[error("`{0}` is refused always, its other rules never count")]
    NeverCounts(&'static str),
    /// A condition that holds never, or only by mistake.
    #[error("a condition for `{0}` makes no sense: {1:?}")]
    Condition(&'static str, When),
    /// More instructions than the kernel takes.
    #[error("the seccomp program has {0} instructions, the kernel takes {MAX_INSTRUCTIONS}")]
    TooLong(usize),
    /// `seccompiler` built something else than this module takes apart.
    #[error("seccompiler built a program of an unknown layout for the answer {0}")]
    Layout(Answer),
    /// `seccompiler` refused the rules.
    #[error("cannot compile the rules with the answer {answer}")]
    Compile {
        /// The answer of the group of rules.
        answer: Answer,
        /// What `seccompiler` says.
        source: BackendError,
    },
}

/// Compiles `rules` to the bytes of a `struct sock_filter` array in this machine's layout. What no
/// rule refuses is allowed.
///
/// # Errors
///
/// See [`SeccompError`]: a table that this module cannot honour in full is refused.
pub fn compile(rules: &[SyscallRule]) -> Result<Vec<u8>, SeccompError> {
    let mut program = entry();
    let (first, last) = by_answer(rules)?;
    let parts = first.into_iter().map(|part| (part, true));
    let parts = parts.chain(last.into_iter().map(|part| (part, false)));
    for ((answer, calls), goes_on) in parts {
        let filter = SeccompFilter::new(
            calls,
            SeccompAction::Allow,
            SeccompAction::Errno(errno(answer)),
            target::SECCOMPILER,
        );
        let part = filter
            .and_then(BpfProgram::try_from)
            .map_err(|source| SeccompError::Compile { answer, source })?;
        let part = without_frame(&part).ok_or(SeccompError::Layout(answer))?;
        match goes_on {
            true => program.extend(going_on(part)),
            false => program.extend_from_slice(part),
        }
    }
    program.push(ret(SECCOMP_RET_ALLOW));
    if program.len() > MAX_INSTRUCTIONS {
        return Err(SeccompError::TooLong(program.len()));
    }
    Ok(program.iter().flat_map(bytes).collect())
}

/// The call's number on this architecture; `None` if the architecture lacks it.
///
/// # Errors
///
/// [`SeccompError::UnknownSyscall`] for a name that is known neither way: a call that the table
/// names is never left out in silence.
pub fn number(name: &'static str) -> Result<Option<i64>, SeccompError> {
    let mut known = NUMBERS.iter().chain(RECENT_NUMBERS).chain(target::NUMBERS);
    if let Some((_, number)) =
        known.find(|(known, _)| known.strip_prefix(LIBC_PREFIX) == Some(name))
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

/// A call's rules in `seccompiler`'s terms; none stands for "always".
type Calls = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls by the answer that their rules give.
type Groups = BTreeMap<Answer, Calls>;

/// The rules grouped by answer: those of calls that have a later answer as well, and all the others.
fn by_answer(rules: &[SyscallRule]) -> Result<(Groups, Groups), SeccompError> {
    let mut last_answers = BTreeMap::new();
    let mut unconditional = BTreeMap::new();
    for rule in rules {
        let last = last_answers.entry(rule.name).or_insert(rule.answer);
        *last = rule.answer.max(*last);
        // One that always holds would swallow the others.
        let always = rule.when == When::Always;
        if unconditional
            .insert(rule.name, always)
            .is_some_and(|before| before || always)
        {
            return Err(SeccompError::NeverCounts(rule.name));
        }
    }
    let (mut first, mut last) = (Groups::new(), Groups::new());
    for rule in rules {
        let Some(number) = number(rule.name)? else {
            continue;
        };
        let groups = match last_answers.get(rule.name) {
            Some(answer) if *answer != rule.answer => &mut first,
            _ => &mut last,
        };
        let calls = groups.entry(rule.answer).or_default();
        calls.entry(number).or_default().extend(conditions(rule)?);
    }
    Ok((first, last))
}

/// The alternatives under which `rule` holds; none for a rule that always does.
fn conditions(rule: &SyscallRule) -> Result<Vec<SeccompRule>, SeccompError> {
    if rule.when == When::Always {
        return Ok(Vec::new());
    }
    let nonsense = || SeccompError::Condition(rule.name, rule.when);
    let alternatives = alternatives(rule.when).ok_or_else(nonsense)?;
    alternatives
        .into_iter()
        .map(|all| SeccompRule::new(all).map_err(|_| nonsense()))
        .collect()
}

/// `when` as alternatives of conditions that hold together; `None` if it makes no sense.
fn alternatives(when: When) -> Option<Vec<Vec<SeccompCondition>>> {
    let condition = |index, width32, operator, value: u64| {
        let length = if width32 {
            SeccompCmpArgLen::Dword
        } else {
            SeccompCmpArgLen::Qword
        };
        SeccompCondition::new(index, length, operator, value).ok()
    };
    let visible = |width32: bool, value: u64| !width32 || u32::try_from(value).is_ok();
    match when {
        When::Always => None,
        When::ArgMasked {
            index,
            mask,
            equals,
            width32,
        } => {
            if mask == 0 || equals & !mask != 0 || !visible(width32, mask) {
                return None;
            }
            Some(vec![vec![condition(
                index,
                width32,
                SeccompCmpOp::MaskedEq(mask),
                equals,
            )?]])
        }
        When::ArgAnyBit {
            index,
            bits,
            width32,
        } => {
            if bits == 0 || !visible(width32, bits) {
                return None;
            }
            (0..u64::BITS)
                .map(|bit| 1_u64 << bit)
                .filter(|bit| bits & bit != 0)
                .map(|bit| {
                    Some(vec![condition(
                        index,
                        width32,
                        SeccompCmpOp::MaskedEq(bit),
                        bit,
                    )?])
                })
                .collect()
        }
        When::ArgNotIn {
            index,
            values,
            width32,
        } => {
            if values.is_empty() || !values.iter().all(|value| visible(width32, *value)) {
                return None;
            }
            let all: Option<Vec<_>> = values
                .iter()
                .map(|value| condition(index, width32, SeccompCmpOp::Ne, *value))
                .collect();
            Some(vec![all?])
        }
        When::All([]) => None,
        When::All(conditions) => {
            let mut combined = vec![Vec::new()];
            for condition in conditions {
                let alternatives = alternatives(*condition)?;
                combined = combined
                    .iter()
                    .flat_map(|before| {
                        alternatives
                            .iter()
                            .map(|next| [before.as_slice(), next].concat())
                    })
                    .collect();
            }
            Some(combined)
        }
    }
}

/// The errno of an answer.
fn errno(answer: Answer) -> u32 {
    let errno = match answer {
        Answer::Perm => libc::EPERM,
        Answer::NoSys => libc::ENOSYS,
        Answer::NoFamily => libc::EAFNOSUPPORT,
        Answer::NoProtocol => libc::EPROTONOSUPPORT,
        Answer::NoSupport => libc::EOPNOTSUPP,
    };
    errno.unsigned_abs()
}

// Instructions: include/uapi/linux/bpf_common.h, offsets: struct seccomp_data and return values,
// include/uapi/linux/seccomp.h.

/// BPF_LD | BPF_W | BPF_ABS: load a word of `struct seccomp_data`.
const LOAD: u16 = 0x20;
/// BPF_JMP | BPF_JEQ | BPF_K.
const JUMP_EQUAL: u16 = 0x15;
/// BPF_JMP | BPF_JA.
const JUMP_ALWAYS: u16 = 0x05;
/// BPF_JMP | BPF_JSET | BPF_K.
const JUMP_SET: u16 = 0x45;
/// BPF_RET | BPF_K.
const RETURN: u16 = 0x06;
/// Offset of `nr` in bytes.
const NR_OFFSET: u32 = 0;
/// Offset of `arch` in bytes.
const ARCH_OFFSET: u32 = 4;
/// Let the call through.
const SECCOMP_RET_ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

const fn load(offset: u32) -> sock_filter {
    sock_filter {
        code: LOAD,
        jt: 0,
        jf: 0,
        k: offset,
    }
}

const fn ret(value: u32) -> sock_filter {
    sock_filter {
        code: RETURN,
        jt: 0,
        jf: 0,
        k: value,
    }
}

const fn jump(code: u16, value: u32, if_true: u8, if_false: u8) -> sock_filter {
    sock_filter {
        code,
        jt: if_true,
        jf: if_false,
        k: value,
    }
}

const fn jump_always(left_out: u32) -> sock_filter {
    sock_filter {
        code: JUMP_ALWAYS,
        jt: 0,
        jf: 0,
        k: left_out,
    }
}

/// The head of the program: calls of another ABI get ENOSYS, before any rule looks at a number.
fn entry() -> BpfProgram {
    let no_such_call = ret(libc::SECCOMP_RET_ERRNO | errno(Answer::NoSys));
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
    let mut entry = vec![
        load(ARCH_OFFSET),
        jump(JUMP_EQUAL, target::AUDIT_ARCH, 1, 0),
        no_such_call.clone(),
    ];
    #[cfg(target_arch = "x86_64")]
    entry.extend([
        load(NR_OFFSET),
        // -1 is no x32 call but how a tracer (strace, gdb) makes the kernel skip one: let it pass.
        jump(JUMP_EQUAL, u32::MAX, 2, 0),
        jump(JUMP_SET, target::X32_SYSCALL_BIT, 0, 1),
        no_such_call,
    ]);
    entry
}

/// `seccompiler`'s program without its check of the architecture in front and without the `RET ALLOW`
/// at the end; `None` if it does not look like that. A jump to that last instruction then reaches
/// whatever comes next.
fn without_frame(program: &[sock_filter]) -> Option<&[sock_filter]> {
    let check = [
        load(ARCH_OFFSET),
        jump(JUMP_EQUAL, target::AUDIT_ARCH, 1, 0),
        ret(libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let (last, rest) = program.strip_prefix(check.as_slice())?.split_last()?;
    let complete = *last == ret(SECCOMP_RET_ALLOW) && *rest.first()? == load(NR_OFFSET);
    complete.then_some(rest)
}

/// A part in which what no rule refuses goes on to the next part.
fn going_on(part: &[sock_filter]) -> impl Iterator<Item = sock_filter> {
    part.iter().enumerate().map(|(at, instruction)| {
        if *instruction != ret(SECCOMP_RET_ALLOW) {
            return instruction.clone();
        }
        // A jump counts the instructions that it leaves out; no program is longer than a `u32` says.
        let left_out = part.len() - at - 1;
        jump_always(u32::try_from(left_out).unwrap_or(u32::MAX))
    })
}

/// An instruction as the kernel reads it.
fn bytes(instruction: &sock_filter) -> [u8; INSTRUCTION_BYTES] {
    let mut bytes = [0; INSTRUCTION_BYTES];
    bytes[..2].copy_from_slice(&instruction.code.to_ne_bytes());
    bytes[2] = instruction.jt;
    bytes[3] = instruction.jf;
    bytes[4..].copy_from_slice(&instruction.k.to_ne_bytes());
    bytes
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
    SYS_msgsnd SYS_nfsservctl SYS_open_by_handle_at SYS_open_tree SYS_openat SYS_openat2
    SYS_personality SYS_pivot_root SYS_process_mrelease SYS_quotactl SYS_quotactl_fd SYS_reboot
    SYS_request_key SYS_semctl SYS_semget SYS_semop SYS_semtimedop SYS_sendmmsg SYS_sendmsg SYS_sendto
    SYS_setns SYS_settimeofday SYS_shmat SYS_shmctl SYS_shmget SYS_socket SYS_socketpair SYS_swapoff
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
    use super::TargetArch;

    pub(super) const SECCOMPILER: TargetArch = TargetArch::x86_64;
    /// AUDIT_ARCH_X86_64, include/uapi/linux/audit.h.
    pub(super) const AUDIT_ARCH: u32 = 0xc000_003e;
    /// `__X32_SYSCALL_BIT`, arch/x86/include/uapi/asm/unistd.h. x32 has the same AUDIT_ARCH.
    pub(super) const X32_SYSCALL_BIT: u32 = 0x4000_0000;
    pub(super) const NUMBERS: &[(&str, i64)] = numbers! {
        SYS__sysctl SYS_chmod SYS_creat SYS_ioperm SYS_iopl SYS_kexec_file_load SYS_mknod
        SYS_modify_ldt SYS_open SYS_sysfs SYS_uselib SYS_ustat
    };
    pub(super) const LACKING: &[(&str, &str)] = &[];
}

#[cfg(target_arch = "aarch64")]
mod target {
    use super::TargetArch;

    pub(super) const SECCOMPILER: TargetArch = TargetArch::aarch64;
    /// AUDIT_ARCH_AARCH64, include/uapi/linux/audit.h.
    pub(super) const AUDIT_ARCH: u32 = 0xc000_00b7;
    /// libc for musl does not name it; include/uapi/asm-generic/unistd.h.
    pub(super) const NUMBERS: &[(&str, i64)] = &[("SYS_kexec_file_load", 294)];
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

#[cfg(test)]
mod tests;
