//! The numbers of system calls that the probes know, compared with those that this program is compiled with.

use std::collections::BTreeMap;

/// The table of the architecture: what a call is named, and its number.
fn table() -> BTreeMap<&'static str, &'static str> {
    let header = include_str!("../../../probes/calls.h");
    let begin = if cfg!(target_arch = "x86_64") {
        "#if defined(__TARGET_ARCH_x86)"
    } else {
        "#else"
    };
    let (_, ours) = header.split_once(begin).expect("a part for each");
    let (_, rows) = ours.split_once("#define CALLS(X)").expect("a table");
    let (rows, _) = rows.split_once("\n#").expect("an end");
    rows.split("X(")
        .filter_map(|row| row.split_once(", "))
        .filter_map(|(name, rest)| Some((name, rest.split_once(", ")?.0)))
        .collect()
}

macro_rules! compare {
    ($table:ident: $($name:literal $number:ident)*) => {
        $(assert_eq!($table.remove($name), Some(libc::$number.to_string().as_str()), $name);)*
    };
}

#[test]
fn the_probes_have_this_machines_numbers() {
    let mut table = table();
    #[cfg(target_arch = "x86_64")]
    compare! { table:
        "open" SYS_open "creat" SYS_creat "link" SYS_link "rename" SYS_rename "chmod" SYS_chmod
        "unlink" SYS_unlink "rmdir" SYS_rmdir "mkdir" SYS_mkdir "mknod" SYS_mknod "symlink" SYS_symlink
    }
    compare! { table:
        "openat" SYS_openat "openat2" SYS_openat2 "open_by_handle_at" SYS_open_by_handle_at
        "execve" SYS_execve "execveat" SYS_execveat
        "connect" SYS_connect "sendto" SYS_sendto "sendmsg" SYS_sendmsg "sendmmsg" SYS_sendmmsg
        "listen" SYS_listen "socket" SYS_socket "bind" SYS_bind "ptrace" SYS_ptrace
        "setuid" SYS_setuid "setgid" SYS_setgid "setreuid" SYS_setreuid "setregid" SYS_setregid
        "setresuid" SYS_setresuid "setresgid" SYS_setresgid "setfsuid" SYS_setfsuid "setfsgid" SYS_setfsgid
        "mount" SYS_mount "umount2" SYS_umount2 "pivot_root" SYS_pivot_root "move_mount" SYS_move_mount
        "unshare" SYS_unshare "setns" SYS_setns
        "init_module" SYS_init_module "finit_module" SYS_finit_module "kexec_load" SYS_kexec_load "bpf" SYS_bpf
        "add_key" SYS_add_key "request_key" SYS_request_key "keyctl" SYS_keyctl
        "kill" SYS_kill "tkill" SYS_tkill "tgkill" SYS_tgkill "rt_sigqueueinfo" SYS_rt_sigqueueinfo
        "rt_tgsigqueueinfo" SYS_rt_tgsigqueueinfo "pidfd_send_signal" SYS_pidfd_send_signal
        "process_vm_readv" SYS_process_vm_readv "process_vm_writev" SYS_process_vm_writev
        "linkat" SYS_linkat "renameat" SYS_renameat "renameat2" SYS_renameat2
        "fchmod" SYS_fchmod "fchmodat" SYS_fchmodat "truncate" SYS_truncate
        "unlinkat" SYS_unlinkat "mkdirat" SYS_mkdirat "mknodat" SYS_mknodat "symlinkat" SYS_symlinkat
        "userfaultfd" SYS_userfaultfd "io_uring_setup" SYS_io_uring_setup
    }
    // What not every libc names, and what 32-bit programs alone have: the number is none.
    table.retain(|name, number| {
        !matches!(*name, "fchmodat2" | "kexec_file_load") && !number.starts_with("OLD(")
    });
    assert!(table.is_empty(), "not compared: {table:?}");
}
