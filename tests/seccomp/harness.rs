//! A child that installs the compiled program, makes a call, and reports what the kernel answered.

use std::ffi::c_int;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use agent_sandbox::plan::build::syscalls::{Switches, rules};
use agent_sandbox::plan::model::syscalls::{Answer, Arguments};
use agent_sandbox::policy::NetworkMode;
use agent_sandbox::seccomp::{INSTRUCTION_BYTES, compile};
use agent_sandbox_landlock::refused::besides;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork, pipe, write};

pub(crate) const STRICT: Switches = Switches {
    nested: false,
    keyctl: false,
    mediated: false,
    besides: &[],
};
pub(crate) const NESTED: Switches = Switches {
    nested: true,
    keyctl: false,
    mediated: false,
    besides: &[],
};
pub(crate) const KEYCTL: Switches = Switches {
    nested: false,
    keyctl: true,
    mediated: false,
    besides: &[],
};

/// Where Landlock makes the jail.
pub(crate) const LANDLOCK: Switches = Switches {
    besides: besides(NetworkMode::Open),
    ..STRICT
};
/// The same without a network.
pub(crate) const ISOLATED: Switches = Switches {
    besides: besides(NetworkMode::Isolated),
    ..STRICT
};
/// The same with a network that is filtered.
pub(crate) const FILTERED: Switches = Switches {
    besides: besides(NetworkMode::Filtered),
    ..STRICT
};

/// A bit that the kernel ignores in an `int` argument.
pub(crate) const HIGH_BIT: u64 = 1 << 32;

/// What became of a child.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The value that the child's function returned: a call's result, or its errno negated.
    Returned(i64),
    /// The signal that ended the child.
    Died(nix::sys::signal::Signal),
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Returned(value @ -4095..0) => {
                let errno = c_int::try_from(-value).map(nix::errno::Errno::from_raw);
                write!(f, "{errno:?}")
            }
            Self::Returned(value) => write!(f, "{value}"),
            Self::Died(signal) => write!(f, "{signal}"),
        }
    }
}

pub(crate) const fn errno(code: c_int) -> Outcome {
    Outcome::Returned(-(code as i64))
}

pub(crate) fn answer(answer: Answer) -> Outcome {
    errno(match answer {
        Answer::Perm => libc::EPERM,
        Answer::NoSys => libc::ENOSYS,
        Answer::NoFamily => libc::EAFNOSUPPORT,
        Answer::NoProtocol => libc::EPROTONOSUPPORT,
        Answer::NoSupport => libc::EOPNOTSUPP,
    })
}

/// A compiled program, ready to be installed by a child, which must not allocate before that.
pub(crate) struct Filter(pub(crate) Vec<libc::sock_filter>);

impl Filter {
    pub(crate) fn new(switches: Switches) -> Self {
        let bytes = compile(&rules(switches)).expect("the rules compile");
        let instruction = |raw: &[u8]| libc::sock_filter {
            code: u16::from_ne_bytes([raw[0], raw[1]]),
            jt: raw[2],
            jf: raw[3],
            k: u32::from_ne_bytes([raw[4], raw[5], raw[6], raw[7]]),
        };
        Self(bytes.chunks(INSTRUCTION_BYTES).map(instruction).collect())
    }

    /// Puts the calling thread under the program, as bwrap does it.
    pub(crate) fn install(&mut self) {
        let program = libc::sock_fprog {
            len: self
                .0
                .len()
                .try_into()
                .expect("a program below 65536 instructions"),
            filter: self.0.as_mut_ptr(),
        };
        // SAFETY: `program` describes the vector's memory, which the kernel copies during the call.
        let installed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
        };
        assert!(
            installed,
            "cannot install the filter: {}",
            std::io::Error::last_os_error()
        );
    }
}

/// Runs `prepare` in a child, then installs the filter, then runs `call` with what `prepare` made.
pub(crate) fn after<T>(
    switches: Option<Switches>,
    prepare: impl FnOnce() -> T,
    call: impl FnOnce(T) -> i64,
) -> Outcome {
    let mut filter = switches.map(Filter::new);
    let (read, written): (OwnedFd, OwnedFd) = pipe().expect("a pipe");
    // SAFETY: the child runs `prepare` and `call` and leaves by `_exit`. glibc makes its allocator
    // usable after fork; no other lock of the parent's threads is taken.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Child => {
            let result = catch_unwind(AssertUnwindSafe(|| {
                let prepared = prepare();
                if let Some(filter) = &mut filter {
                    filter.install();
                }
                call(prepared)
            }));
            if let Ok(value) = result {
                let _ = write(&written, &value.to_ne_bytes());
            }
            // SAFETY: ends the child at once; nothing of the parent's is run or flushed.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            drop(written);
            let mut value = [0; size_of::<i64>()];
            let reported = File::from(read).read_exact(&mut value);
            match waitpid(child, None).expect("the child's end") {
                WaitStatus::Exited(_, _) if reported.is_ok() => {
                    Outcome::Returned(i64::from_ne_bytes(value))
                }
                WaitStatus::Signaled(_, signal, _) => Outcome::Died(signal),
                other => panic!("the child reported nothing: {other:?}"),
            }
        }
    }
}

/// Runs `call` in a child under the filter, or without one.
pub(crate) fn under(switches: impl Into<Option<Switches>>, call: impl FnOnce() -> i64) -> Outcome {
    after(switches.into(), || (), |()| call())
}

/// The call itself: its result, or the errno negated.
pub(crate) fn raw(number: i64, a: &Arguments) -> i64 {
    // SAFETY: callers pass pointers to live memory or addresses that the kernel refuses to touch.
    let result = unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) };
    result_of(result)
}

pub(crate) fn result_of(result: i64) -> i64 {
    match result {
        -1 => -i64::from(nix::errno::Errno::last_raw()),
        _ => result,
    }
}

pub(crate) fn call(number: i64, arguments: &[u64]) -> i64 {
    let mut six = [0; 6];
    six[..arguments.len()].copy_from_slice(arguments);
    raw(number, &six)
}

pub(crate) fn unsigned(value: c_int) -> u64 {
    u64::from(value.unsigned_abs())
}

pub(crate) fn pointer<T: ?Sized>(to: &T) -> u64 {
    std::ptr::from_ref(to).cast::<u8>() as u64
}

/// Says what this kernel cannot show, so that a test that proves less does not look like a whole one.
pub(crate) fn declare(what: &str) {
    println!("DECLARED: {what}");
}
