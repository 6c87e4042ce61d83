//! Ways round the filter: other entrances to the same calls, tracers, filters on top.

#[cfg(target_arch = "x86_64")]
use crate::harness::Outcome;
use crate::harness::{Filter, STRICT, call, declare, errno, under};

#[test]
fn io_uring_is_not_there() {
    let setup = || call(libc::SYS_io_uring_setup, &[8, 0]);
    assert_eq!(under(STRICT, setup), errno(libc::ENOSYS));
    if under(None, setup) != errno(libc::EFAULT) {
        declare("this kernel has io_uring switched off by itself");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn i386_calls_are_not_there() {
    /// getpid by the 32-bit entry of a 64-bit process.
    fn getpid() -> i64 {
        const I386_GETPID: i64 = 20;
        let result: i64;
        // SAFETY: getpid has no arguments and touches no memory; old kernels clear r8 to r11 here.
        unsafe {
            std::arch::asm!(
                "int 0x80",
                inlateout("rax") I386_GETPID => result,
                lateout("r8") _, lateout("r9") _, lateout("r10") _, lateout("r11") _,
            );
        }
        i64::from(result as i32)
    }
    match under(None, getpid) {
        Outcome::Returned(1..) => assert_eq!(under(STRICT, getpid), errno(libc::ENOSYS)),
        plain => {
            declare("this kernel has no 32-bit calls");
            let filtered = under(STRICT, getpid);
            assert!(
                filtered == plain || filtered == errno(libc::ENOSYS),
                "{filtered:?}"
            );
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn x32_calls_are_not_there() {
    const X32: i64 = 0x4000_0000;
    // x32 has numbers of its own from 512 (ioctl is 514), the others are x86-64's.
    for number in [libc::SYS_getpid, libc::SYS_mount, libc::SYS_ioctl, 514, 520] {
        assert_eq!(
            under(STRICT, || call(X32 | number, &[])),
            errno(libc::ENOSYS),
            "{number}"
        );
    }
    if under(None, || call(X32 | libc::SYS_getpid, &[])) == errno(libc::ENOSYS) {
        declare("this kernel has no x32 calls");
    }
}

/// There the kernel judges the argument that a call began with, and a tracer puts another one behind it.
#[cfg(target_arch = "aarch64")]
#[test]
fn nothing_is_traced_where_a_tracer_could_change_an_argument() {
    let traceme = || call(libc::SYS_ptrace, &[u64::from(libc::PTRACE_TRACEME)]);
    assert_eq!(under(STRICT, traceme), errno(libc::EPERM));
}

/// A tracer that swaps the number of a call under the filter gets the filter's answer for the new one.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_tracer_cannot_swap_in_a_refused_call() {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use agent_sandbox::plan::build::syscalls::Switches;
    use nix::sys::signal::{Signal, kill};
    use nix::sys::wait::waitpid;
    use nix::unistd::{ForkResult, Pid, fork, pipe, write};

    /// What the tracee's getppid(8, 0) returns when its tracer makes `instead` of it.
    fn swapped(switches: Option<Switches>, instead: i64) -> Outcome {
        under(None, || {
            let mut filter = switches.map(Filter::new);
            let (read, written): (OwnedFd, OwnedFd) = pipe().expect("a pipe");
            // SAFETY: as in `after`: the tracee leaves by `_exit`.
            match unsafe { fork() }.expect("fork") {
                ForkResult::Child => {
                    // SAFETY: asks to be traced by the parent, no memory is involved.
                    unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
                    if let Some(filter) = &mut filter {
                        filter.install();
                    }
                    let _ = kill(Pid::this(), Signal::SIGSTOP);
                    let result = call(libc::SYS_getppid, &[8, 0]);
                    let _ = write(&written, &result.to_ne_bytes());
                    // SAFETY: ends the tracee.
                    unsafe { libc::_exit(0) }
                }
                ForkResult::Parent { child } => {
                    trace(child, instead);
                    let mut value = [0; size_of::<i64>()];
                    File::from(read)
                        .read_exact(&mut value)
                        .expect("the tracee's report");
                    i64::from_ne_bytes(value)
                }
            }
        })
    }

    /// Runs the tracee to its getppid and puts `instead` in its place.
    fn trace(tracee: Pid, instead: i64) {
        let wait = || waitpid(tracee, None).expect("the tracee's stop");
        wait();
        loop {
            // SAFETY: the tracee is stopped; `registers` is large enough for what the kernel writes.
            unsafe {
                let mut registers: libc::user_regs_struct = std::mem::zeroed();
                libc::ptrace(libc::PTRACE_SYSCALL, tracee.as_raw(), 0, 0);
                wait();
                libc::ptrace(libc::PTRACE_GETREGS, tracee.as_raw(), 0, &mut registers);
                if registers.orig_rax == libc::SYS_getppid as u64 {
                    registers.orig_rax = instead as u64;
                    libc::ptrace(libc::PTRACE_SETREGS, tracee.as_raw(), 0, &registers);
                    libc::ptrace(libc::PTRACE_DETACH, tracee.as_raw(), 0, 0);
                    return;
                }
            }
        }
    }

    assert_eq!(
        swapped(STRICT.into(), libc::SYS_io_uring_setup),
        errno(libc::ENOSYS)
    );
    assert_eq!(
        swapped(STRICT.into(), libc::SYS_vhangup),
        errno(libc::EPERM)
    );
    let allowed = swapped(STRICT.into(), libc::SYS_getpgrp);
    assert!(matches!(allowed, Outcome::Returned(1..)), "{allowed:?}");
    assert_eq!(
        swapped(STRICT.into(), -1),
        errno(libc::ENOSYS),
        "a call that the tracer skips"
    );
}

/// A program's own, second filter comes on top and softens nothing.
#[test]
fn a_second_filter_adds_and_takes_nothing_away() {
    const RETURN: u16 = 0x06;
    let call = || {
        let allow = libc::sock_filter {
            code: RETURN,
            jt: 0,
            jf: 0,
            k: libc::SECCOMP_RET_ALLOW,
        };
        Filter(vec![allow]).install();
        call(libc::SYS_io_uring_setup, &[8, 0])
    };
    assert_eq!(under(STRICT, call), errno(libc::ENOSYS));
}
