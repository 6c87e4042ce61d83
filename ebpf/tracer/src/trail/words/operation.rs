//! What an operation is about, in words. Which number is what, `ebpf/probes/events.h` says.

use agent_sandbox_events::raw::OPERATIONS;

use super::{Flags, address, flags, named, signal};

/// `CLONE_NEW*` (`namespaces(7)`).
const NAMESPACES: &Flags = &[
    (0x0000_0080, "CLONE_NEWTIME"),
    (0x0002_0000, "CLONE_NEWNS"),
    (0x0200_0000, "CLONE_NEWCGROUP"),
    (0x0400_0000, "CLONE_NEWUTS"),
    (0x0800_0000, "CLONE_NEWIPC"),
    (0x1000_0000, "CLONE_NEWUSER"),
    (0x2000_0000, "CLONE_NEWPID"),
    (0x4000_0000, "CLONE_NEWNET"),
];

/// `PTRACE_MODE_*` (`ptrace(2)`, "Ptrace access mode checking").
const PTRACE_MODES: &Flags = &[
    (0x01, "PTRACE_MODE_READ"),
    (0x02, "PTRACE_MODE_ATTACH"),
    (0x04, "PTRACE_MODE_NOAUDIT"),
    (0x08, "PTRACE_MODE_FSCREDS"),
    (0x10, "PTRACE_MODE_REALCREDS"),
];

/// `LSM_SETID_*` (`include/linux/security.h`), as the calls that make them.
const SET_USER: &Flags = &[
    (1, "setuid"),
    (2, "setreuid"),
    (4, "setresuid"),
    (8, "setfsuid"),
];

/// The same of groups.
const SET_GROUP: &Flags = &[
    (1, "setgid"),
    (2, "setregid"),
    (4, "setresgid"),
    (8, "setfsgid"),
];

/// `MS_*` (`mount(2)`).
const MOUNT: &Flags = &[
    (1, "MS_RDONLY"),
    (1 << 1, "MS_NOSUID"),
    (1 << 2, "MS_NODEV"),
    (1 << 3, "MS_NOEXEC"),
    (1 << 4, "MS_SYNCHRONOUS"),
    (1 << 5, "MS_REMOUNT"),
    (1 << 6, "MS_MANDLOCK"),
    (1 << 7, "MS_DIRSYNC"),
    (1 << 8, "MS_NOSYMFOLLOW"),
    (1 << 10, "MS_NOATIME"),
    (1 << 11, "MS_NODIRATIME"),
    (1 << 12, "MS_BIND"),
    (1 << 13, "MS_MOVE"),
    (1 << 14, "MS_REC"),
    (1 << 15, "MS_SILENT"),
    (1 << 16, "MS_POSIXACL"),
    (1 << 17, "MS_UNBINDABLE"),
    (1 << 18, "MS_PRIVATE"),
    (1 << 19, "MS_SLAVE"),
    (1 << 20, "MS_SHARED"),
    (1 << 21, "MS_RELATIME"),
    (1 << 23, "MS_I_VERSION"),
    (1 << 24, "MS_STRICTATIME"),
    (1 << 25, "MS_LAZYTIME"),
];

/// Flags of `umount2(2)`.
const UMOUNT: &Flags = &[
    (1, "MNT_FORCE"),
    (2, "MNT_DETACH"),
    (4, "MNT_EXPIRE"),
    (8, "UMOUNT_NOFOLLOW"),
];

/// `RENAME_*` (`rename(2)`).
const RENAME: &Flags = &[
    (1, "RENAME_NOREPLACE"),
    (2, "RENAME_EXCHANGE"),
    (4, "RENAME_WHITEOUT"),
];

/// Flags of `userfaultfd(2)`.
const USERFAULTFD: &Flags = &[
    (1, "UFFD_USER_MODE_ONLY"),
    (libc::O_NONBLOCK as u64, "O_NONBLOCK"),
    (libc::O_CLOEXEC as u64, "O_CLOEXEC"),
];

/// `IORING_SETUP_*` (`io_uring_setup(2)`).
const IO_URING: &Flags = &[
    (1, "IORING_SETUP_IOPOLL"),
    (1 << 1, "IORING_SETUP_SQPOLL"),
    (1 << 2, "IORING_SETUP_SQ_AFF"),
    (1 << 3, "IORING_SETUP_CQSIZE"),
    (1 << 4, "IORING_SETUP_CLAMP"),
    (1 << 5, "IORING_SETUP_ATTACH_WQ"),
    (1 << 6, "IORING_SETUP_R_DISABLED"),
    (1 << 7, "IORING_SETUP_SUBMIT_ALL"),
    (1 << 8, "IORING_SETUP_COOP_TASKRUN"),
    (1 << 9, "IORING_SETUP_TASKRUN_FLAG"),
    (1 << 10, "IORING_SETUP_SQE128"),
    (1 << 11, "IORING_SETUP_CQE32"),
    (1 << 12, "IORING_SETUP_SINGLE_ISSUER"),
    (1 << 13, "IORING_SETUP_DEFER_TASKRUN"),
    (1 << 14, "IORING_SETUP_NO_MMAP"),
    (1 << 15, "IORING_SETUP_REGISTERED_FD_ONLY"),
    (1 << 16, "IORING_SETUP_NO_SQARRAY"),
    (1 << 17, "IORING_SETUP_HYBRID_IOPOLL"),
];

/// What was to be done to something forbidden (`FORBIDDEN_*` in `events.h`), by number.
const FORBIDDEN: [&str; 11] = [
    "unlink",
    "rmdir",
    "create",
    "mkdir",
    "mknod",
    "symlink",
    "change of mode, owner, size or times",
    "extended attributes",
    "watch",
    "descriptor received",
    "unix socket",
];

/// Commands of `bpf(2)`, by number (`enum bpf_cmd` of Linux 6.12).
const BPF: [&str; 37] = [
    "BPF_MAP_CREATE",
    "BPF_MAP_LOOKUP_ELEM",
    "BPF_MAP_UPDATE_ELEM",
    "BPF_MAP_DELETE_ELEM",
    "BPF_MAP_GET_NEXT_KEY",
    "BPF_PROG_LOAD",
    "BPF_OBJ_PIN",
    "BPF_OBJ_GET",
    "BPF_PROG_ATTACH",
    "BPF_PROG_DETACH",
    "BPF_PROG_TEST_RUN",
    "BPF_PROG_GET_NEXT_ID",
    "BPF_MAP_GET_NEXT_ID",
    "BPF_PROG_GET_FD_BY_ID",
    "BPF_MAP_GET_FD_BY_ID",
    "BPF_OBJ_GET_INFO_BY_FD",
    "BPF_PROG_QUERY",
    "BPF_RAW_TRACEPOINT_OPEN",
    "BPF_BTF_LOAD",
    "BPF_BTF_GET_FD_BY_ID",
    "BPF_TASK_FD_QUERY",
    "BPF_MAP_LOOKUP_AND_DELETE_ELEM",
    "BPF_MAP_FREEZE",
    "BPF_BTF_GET_NEXT_ID",
    "BPF_MAP_LOOKUP_BATCH",
    "BPF_MAP_LOOKUP_AND_DELETE_BATCH",
    "BPF_MAP_UPDATE_BATCH",
    "BPF_MAP_DELETE_BATCH",
    "BPF_LINK_CREATE",
    "BPF_LINK_UPDATE",
    "BPF_LINK_GET_FD_BY_ID",
    "BPF_LINK_GET_NEXT_ID",
    "BPF_ENABLE_STATS",
    "BPF_ITER_CREATE",
    "BPF_LINK_DETACH",
    "BPF_PROG_BIND_MAP",
    "BPF_TOKEN_CREATE",
];

/// Operations of `keyctl(2)`, by number (Linux 6.12).
const KEYCTL: [&str; 33] = [
    "KEYCTL_GET_KEYRING_ID",
    "KEYCTL_JOIN_SESSION_KEYRING",
    "KEYCTL_UPDATE",
    "KEYCTL_REVOKE",
    "KEYCTL_CHOWN",
    "KEYCTL_SETPERM",
    "KEYCTL_DESCRIBE",
    "KEYCTL_CLEAR",
    "KEYCTL_LINK",
    "KEYCTL_UNLINK",
    "KEYCTL_SEARCH",
    "KEYCTL_READ",
    "KEYCTL_INSTANTIATE",
    "KEYCTL_NEGATE",
    "KEYCTL_SET_REQKEY_KEYRING",
    "KEYCTL_SET_TIMEOUT",
    "KEYCTL_ASSUME_AUTHORITY",
    "KEYCTL_GET_SECURITY",
    "KEYCTL_SESSION_TO_PARENT",
    "KEYCTL_REJECT",
    "KEYCTL_INSTANTIATE_IOV",
    "KEYCTL_INVALIDATE",
    "KEYCTL_GET_PERSISTENT",
    "KEYCTL_DH_COMPUTE",
    "KEYCTL_PKEY_QUERY",
    "KEYCTL_PKEY_ENCRYPT",
    "KEYCTL_PKEY_DECRYPT",
    "KEYCTL_PKEY_SIGN",
    "KEYCTL_PKEY_VERIFY",
    "KEYCTL_RESTRICT_KEYRING",
    "KEYCTL_MOVE",
    "KEYCTL_CAPABILITIES",
    "KEYCTL_WATCH_KEY",
];

/// The operation's name. One that is not known has its number.
pub(in crate::trail) fn name(what: u32) -> String {
    named(&OPERATIONS, what.into(), "operation")
}

/// What it is about, apart from its paths; empty if there is nothing to say.
pub(in crate::trail) fn detail(what: u32, numbers: [u64; 3]) -> String {
    let [first, second, third] = numbers;
    let operation = usize::try_from(what).ok().and_then(|at| OPERATIONS.get(at));
    match operation.copied().unwrap_or_default() {
        "ptrace" => with(format!("process {first}"), &flags(second, PTRACE_MODES)),
        "setuid" => with(format!("{first}, was {second}"), &flags(third, SET_USER)),
        "setgid" => with(format!("{first}, was {second}"), &flags(third, SET_GROUP)),
        "mount" => flags(first, MOUNT),
        "umount" => flags(first, UMOUNT),
        "unshare" => flags(first, NAMESPACES),
        "setns" => with(format!("descriptor {first}"), &flags(second, NAMESPACES)),
        // Numbers from 3 on have changed between kernels (LOADING_*, include/linux/fs.h).
        "module_load" => named(&["unknown", "firmware", "kernel module"], first, "kind"),
        "bpf" => named(&BPF, first, "command"),
        "keyctl" => key(first, second),
        "kill" => format!("process {first}, {}", signal(second)),
        "process_vm" => with(format!("process {first}"), call(second)),
        "rename" => flags(first, RENAME),
        "chmod" => format!("mode {first:04o}"),
        "mkdir" => format!("mode {:04o}", first & 0o7777),
        "mknod" => node(first, second),
        "raw_socket" => {
            let family = u16::try_from(first).map_or_else(|_| first.to_string(), address::family);
            let kind = u16::try_from(second).map_or_else(|_| second.to_string(), address::kind);
            format!("{family}, {kind}, protocol {third}")
        }
        "userfaultfd" => flags(first, USERFAULTFD),
        "io_uring" => with(format!("{first} entries"), &flags(second, IO_URING)),
        "other_user" => match second {
            2 => format!("group {first}"),
            3 => "capabilities of its program".to_owned(),
            _ => format!("user {first}"),
        },
        "forbidden" => named(&FORBIDDEN, first, "kind"),
        // pivot_root, memfd_exec, link, unlink, rmdir, symlink, user_namespace: their name and their paths say all.
        _ => String::new(),
    }
}

/// What `mknod(2)` makes, by its type; of a device the numbers as they are given to it.
fn node(mode: u64, device: u64) -> String {
    let major = device >> 8 & 0xfff;
    let minor = device & 0xff | device >> 12 & 0xf_ff00;
    match mode >> 12 & 0xf {
        1 => "pipe".to_string(),
        2 => format!("character device {major}:{minor}"),
        6 => format!("block device {major}:{minor}"),
        12 => "socket".to_string(),
        _ => "file".to_string(),
    }
}

fn with(text: String, more: &str) -> String {
    if more.is_empty() {
        return text;
    }
    format!("{text}, {more}")
}

/// A system call that the numbers of operations name; numbers are this machine's.
fn call(number: u64) -> &'static str {
    match libc::c_long::try_from(number).unwrap_or(-1) {
        libc::SYS_process_vm_readv => "process_vm_readv",
        libc::SYS_process_vm_writev => "process_vm_writev",
        libc::SYS_process_madvise => "process_madvise",
        libc::SYS_pidfd_getfd => "pidfd_getfd",
        libc::SYS_kcmp => "kcmp",
        libc::SYS_keyctl => "keyctl",
        libc::SYS_add_key => "add_key",
        libc::SYS_request_key => "request_key",
        _ => "",
    }
}

fn key(number: u64, operation: u64) -> String {
    match call(number) {
        "keyctl" => named(&KEYCTL, operation & 0xffff_ffff, "operation"),
        "" => format!("system call {number}"),
        name => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn said(operation: &str, numbers: [u64; 3]) -> String {
        let what = OPERATIONS
            .iter()
            .position(|name| *name == operation)
            .unwrap();
        detail(u32::try_from(what).unwrap(), numbers)
    }

    fn number(call: libc::c_long) -> u64 {
        u64::try_from(call).unwrap()
    }

    #[test]
    fn operations_are_said_in_words() {
        let keyctl = number(libc::SYS_keyctl);
        let rows = [
            (
                "ptrace",
                [17, 0x12, 0],
                "process 17, PTRACE_MODE_ATTACH|PTRACE_MODE_REALCREDS",
            ),
            ("ptrace", [17, 0, 0], "process 17"),
            ("setuid", [0, 1000, 1], "0, was 1000, setuid"),
            ("setgid", [5, 6, 4], "5, was 6, setresgid"),
            ("mount", [4097, 0, 0], "MS_RDONLY|MS_BIND"),
            ("umount", [2, 0, 0], "MNT_DETACH"),
            ("pivot_root", [0; 3], ""),
            ("unshare", [0x1002_0000, 0, 0], "CLONE_NEWNS|CLONE_NEWUSER"),
            ("setns", [5, 0x4000_0000, 0], "descriptor 5, CLONE_NEWNET"),
            ("memfd_exec", [0; 3], ""),
            ("module_load", [2, 0, 0], "kernel module"),
            ("module_load", [9, 0, 0], "kind 9"),
            ("bpf", [5, 0, 0], "BPF_PROG_LOAD"),
            ("bpf", [36, 0, 0], "BPF_TOKEN_CREATE"),
            ("bpf", [99, 0, 0], "command 99"),
            ("keyctl", [keyctl, 11, 0], "KEYCTL_READ"),
            ("keyctl", [number(libc::SYS_add_key), 11, 0], "add_key"),
            ("keyctl", [99_999, 0, 0], "system call 99999"),
            ("kill", [1, 15, 0], "process 1, SIGTERM"),
            (
                "process_vm",
                [3, number(libc::SYS_process_vm_writev), 0],
                "process 3, process_vm_writev",
            ),
            ("link", [0; 3], ""),
            ("rename", [2, 0, 0], "RENAME_EXCHANGE"),
            ("chmod", [0o4755, 0, 0], "mode 4755"),
            ("raw_socket", [17, 3, 3], "packet, raw, protocol 3"),
            ("userfaultfd", [1, 0, 0], "UFFD_USER_MODE_ONLY"),
            ("io_uring", [8, 2, 0], "8 entries, IORING_SETUP_SQPOLL"),
            ("user_namespace", [0; 3], ""),
            ("other_user", [0, 1, 0], "user 0"),
            ("other_user", [42, 2, 0], "group 42"),
            ("other_user", [0, 3, 0], "capabilities of its program"),
            ("forbidden", [0, 0, 0], "unlink"),
            ("unlink", [0; 3], ""),
            ("rmdir", [0; 3], ""),
            ("mkdir", [0o40755, 0, 0], "mode 0755"),
            ("mknod", [0o10600, 0, 0], "pipe"),
            ("mknod", [0o140755, 0, 0], "socket"),
            ("mknod", [0o20600, 0x103, 0], "character device 1:3"),
            ("mknod", [0o60600, 0x10_0801, 0], "block device 8:257"),
            ("mknod", [0o644, 0, 0], "file"),
            ("symlink", [0; 3], ""),
        ];
        for (operation, numbers, words) in rows {
            assert_eq!(said(operation, numbers), words, "{operation}");
        }
        // Each operation has a row.
        for operation in OPERATIONS {
            assert!(rows.iter().any(|row| row.0 == operation), "{operation}");
        }
    }

    proptest! {
        #[test]
        fn no_numbers_panic(what in 0_u32..40, numbers in any::<[u64; 3]>()) {
            let _ = (name(what), detail(what, numbers));
        }
    }
}
