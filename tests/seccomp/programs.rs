//! What programs need works: threads, processes, debuggers, memory, ordinary sockets.

use std::ffi::c_int;
use std::process::Command;

#[cfg(not(target_arch = "aarch64"))]
use nix::sys::wait::{WaitStatus, waitpid};
#[cfg(not(target_arch = "aarch64"))]
use nix::unistd::{ForkResult, fork};

use crate::harness::{
    HIGH_BIT, KEYCTL, NESTED, Outcome, STRICT, call, errno, pointer, under, unsigned,
};

#[test]
fn threads_and_programs_start() {
    let work = || {
        let thread = std::thread::spawn(|| std::thread::current().id());
        let thread = thread.join().is_ok();
        // The C library's posix_spawn, then fork and exec (for the sake of the working directory).
        let spawned = Command::new("true")
            .status()
            .is_ok_and(|status| status.success());
        let forked = Command::new("true")
            .current_dir("/")
            .status()
            .is_ok_and(|status| status.success());
        i64::from(thread) + i64::from(spawned) + i64::from(forked)
    };
    for switches in [STRICT, NESTED, KEYCTL] {
        assert_eq!(under(switches, work), Outcome::Returned(3), "{switches:?}");
    }
}

// On aarch64 it is refused: there it would be a way past the filter.
#[cfg(not(target_arch = "aarch64"))]
#[test]
fn a_debugger_traces_and_reads_its_child() {
    static MARK: i64 = 0x5eed_cafe;
    let trace = || {
        // SAFETY: as in `after`: the tracee leaves by `_exit`.
        let child = match unsafe { fork() }.expect("fork") {
            ForkResult::Child => {
                // SAFETY: asks to be traced, stops, and ends.
                unsafe {
                    libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                    libc::raise(libc::SIGSTOP);
                    libc::_exit(0)
                }
            }
            ForkResult::Parent { child } => child,
        };
        let stopped = matches!(waitpid(child, None), Ok(WaitStatus::Stopped(..)));
        let address = std::ptr::from_ref(&MARK);
        // SAFETY: reads a word of the tracee, in which MARK has the address that it has here.
        let peeked = unsafe { libc::ptrace(libc::PTRACE_PEEKDATA, child.as_raw(), address, 0) };
        let mut copy = 0_i64;
        let there = [libc::iovec {
            iov_base: address.cast_mut().cast(),
            iov_len: size_of::<i64>(),
        }];
        let here = [libc::iovec {
            iov_base: (&raw mut copy).cast(),
            iov_len: size_of::<i64>(),
        }];
        // SAFETY: `here` describes `copy`, `there` is read only.
        let read = unsafe {
            libc::process_vm_readv(child.as_raw(), here.as_ptr(), 1, there.as_ptr(), 1, 0)
        };
        // SAFETY: lets the stopped tracee run to its end.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, child.as_raw(), 0, 0) };
        let ended = matches!(waitpid(child, None), Ok(WaitStatus::Exited(_, 0)));
        let seen = stopped && peeked == MARK && read == 8 && copy == MARK && ended;
        i64::from(seen)
    };
    assert_eq!(under(STRICT, trace), Outcome::Returned(1));
}

#[test]
fn anonymous_and_shared_memory_works() {
    let memory = || {
        let file = call(libc::SYS_memfd_create, &[pointer(c"test"), 0]);
        if file < 0 {
            return file;
        }
        let segment = call(libc::SYS_shmget, &[0, 4096, 0o600]);
        if segment < 0 {
            return segment;
        }
        call(
            libc::SYS_shmctl,
            &[segment as u64, libc::IPC_RMID as u64, 0],
        )
    };
    assert_eq!(under(STRICT, memory), Outcome::Returned(0));
}

/// A socket, closed with the child; 0 if it was made.
fn socket(family: c_int, kind: c_int, protocol: c_int, high: u64) -> i64 {
    let arguments = [
        unsigned(family) | high,
        unsigned(kind) | high,
        unsigned(protocol) | high,
    ];
    call(libc::SYS_socket, &arguments).min(0)
}

#[test]
fn ordinary_sockets_are_made_and_odd_families_are_not() {
    const SOCK_PACKET: c_int = 10;
    use libc::{SOCK_CLOEXEC, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, SOCK_STREAM};
    for (family, kind, protocol) in [
        (libc::AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
        (libc::AF_UNIX, SOCK_DGRAM, 0),
        (libc::AF_INET, SOCK_STREAM, 0),
        (libc::AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0),
        (libc::AF_NETLINK, SOCK_RAW, libc::NETLINK_ROUTE),
    ] {
        let result = under(STRICT, || socket(family, kind, protocol, 0));
        assert_eq!(result, Outcome::Returned(0), "family {family}");
    }
    // As the kernel has it, which may be without IPv6, RDMA or udev.
    for (family, kind, protocol) in [
        (libc::AF_INET6, SOCK_STREAM, 0),
        (libc::AF_NETLINK, SOCK_RAW, libc::NETLINK_RDMA),
        (libc::AF_NETLINK, SOCK_RAW, libc::NETLINK_KOBJECT_UEVENT),
        (libc::AF_NETLINK, SOCK_RAW, libc::NETLINK_SOCK_DIAG),
    ] {
        let result = under(STRICT, || socket(family, kind, protocol, 0));
        assert_eq!(
            result,
            under(None, || socket(family, kind, protocol, 0)),
            "family {family}"
        );
    }
    for high in [0, HIGH_BIT] {
        for (family, kind, protocol) in [
            (libc::AF_VSOCK, SOCK_STREAM, 0),
            (libc::AF_ALG, SOCK_SEQPACKET, 0),
            (libc::AF_PACKET, SOCK_RAW, 0),
            (libc::AF_BLUETOOTH, SOCK_RAW, 0),
            (libc::AF_RDS, SOCK_SEQPACKET, 0),
            (libc::AF_TIPC, SOCK_STREAM, 0),
            (libc::AF_INET, SOCK_PACKET, 0),
            (libc::AF_INET, SOCK_PACKET | SOCK_CLOEXEC, 0),
            (libc::AF_NETLINK, SOCK_RAW, libc::NETLINK_NETFILTER),
            (libc::AF_NETLINK, SOCK_RAW, libc::NETLINK_XFRM),
        ] {
            let result = under(NESTED, || socket(family, kind, protocol, high));
            assert_eq!(
                result,
                errno(libc::EAFNOSUPPORT),
                "family {family}, type {kind}"
            );
        }
    }
}

/// An event (`perf_event_open(2)`) of the first published size: the task's clock, outside of the kernel.
fn measure(process: u64, processor: u64, flags: u64) -> i64 {
    const SOFTWARE: u64 = 1;
    const TASK_CLOCK: u64 = 1;
    const EXCLUDE_KERNEL_AND_HYPERVISOR: u64 = 0b11 << 5;
    let attributes = [
        SOFTWARE | 64 << 32,
        TASK_CLOCK,
        0,
        0,
        0,
        EXCLUDE_KERNEL_AND_HYPERVISOR,
        0,
        0,
    ];
    let arguments = [pointer(&attributes), process, processor, u64::MAX, flags];
    call(libc::SYS_perf_event_open, &arguments).min(0)
}

#[test]
fn a_profiler_measures_tasks_and_no_processors() {
    let own = || measure(0, u64::MAX, 0);
    assert_eq!(under(STRICT, own), under(None, own));
    for (process, processor, flags) in [(u64::MAX, 0, 0), (0xffff_ffff, 0, 8), (0, 0, 4)] {
        let other = || measure(process, processor, flags);
        assert_eq!(under(STRICT, other), errno(libc::EPERM), "flags {flags}");
        assert_ne!(
            under(None, other),
            errno(libc::EPERM),
            "of the kernel's own"
        );
    }
}

#[test]
fn debuggers_fix_addresses_and_nobody_makes_data_executable() {
    const ASK: u64 = 0xffff_ffff;
    let personality = |value: u64| move || call(libc::SYS_personality, &[value]).min(0);
    for value in [ASK, 0, unsigned(libc::ADDR_NO_RANDOMIZE)] {
        assert_eq!(
            under(STRICT, personality(value)),
            Outcome::Returned(0),
            "{value:#x}"
        );
    }
    for value in [
        libc::READ_IMPLIES_EXEC,
        libc::MMAP_PAGE_ZERO,
        libc::ADDR_COMPAT_LAYOUT,
    ] {
        let value = unsigned(value);
        assert_eq!(
            under(None, personality(value)),
            Outcome::Returned(0),
            "{value:#x}"
        );
        for value in [value, value | HIGH_BIT] {
            assert_eq!(
                under(STRICT, personality(value)),
                errno(libc::EPERM),
                "{value:#x}"
            );
        }
    }
}
