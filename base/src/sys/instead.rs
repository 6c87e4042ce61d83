//! Another call in the place of one that waits for a listener's answer. The kernel carries out the call that
//! was made or none (`seccomp_unotify(2)`); so the thread is stopped on its way back to its
//! program, and sent to the kernel again with other registers (`ptrace(2)`). Nothing of its memory changes.

use std::io;
use std::thread;
use std::time::Duration;

/// Between two looks at whether a thread stands. On its way back to its program it does within
/// microseconds, if it gets a processor.
const LOOK: Duration = Duration::from_micros(20);
/// So often it is looked: for five seconds at least.
const MOST_LOOKS: u32 = 250_000;
/// Arguments of a call.
const ARGUMENTS: usize = 6;

/// A thread that this thread traces. It is let go when this is dropped; where that cannot be,
/// because it does not stand, when this thread ends.
#[derive(Debug)]
pub struct Traced(libc::pid_t);

impl Traced {
    /// Traces a thread, which goes on as it was (`PTRACE_SEIZE`).
    ///
    /// # Errors
    /// `EPERM` for a thread that somebody traces, and for one of a process that made itself untraceable;
    /// `ESRCH`.
    pub fn begin(thread: i32) -> io::Result<Self> {
        // SAFETY: the request takes numbers alone.
        done(unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, 0, 0) })?;
        Ok(Self(thread))
    }

    /// Has it stop before it runs another instruction of its program. In a call that a listener has
    /// taken it goes on waiting for the answer (`SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`).
    ///
    /// # Errors
    /// `ESRCH` if it is gone.
    pub fn stop(&self) -> io::Result<()> {
        // SAFETY: the request takes numbers alone.
        done(unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, self.0, 0, 0) })
    }

    /// Once it stands: has it make the call `number` with these arguments, if it comes back from the
    /// call `was`, whose first argument was `first`.
    ///
    /// # Errors
    /// `ESRCH` if it is gone, or does not come to stand; `EINVAL` if it comes from elsewhere.
    pub fn call(
        self,
        was: i64,
        first: u64,
        number: i64,
        arguments: [u64; ARGUMENTS],
    ) -> io::Result<()> {
        let mut looks = 0;
        let mut registers = loop {
            match self.registers() {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    looks += 1;
                    if looks > MOST_LOOKS || is_gone(self.0) {
                        return Err(error);
                    }
                    thread::sleep(LOOK);
                }
                registers => break registers?,
            }
        };
        if !target::repeat(&mut registers, was, first, number, arguments) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        target::forget(self.0)?;
        self.set_registers(&registers)
    }

    fn registers(&self) -> io::Result<target::Registers> {
        let mut registers = [0; target::COUNT];
        let mut part = part(&mut registers);
        // SAFETY: the kernel writes to the array alone, as far as it is long.
        done(unsafe { libc::ptrace(libc::PTRACE_GETREGSET, self.0, NT_PRSTATUS, &raw mut part) })?;
        Ok(registers)
    }

    fn set_registers(&self, registers: &target::Registers) -> io::Result<()> {
        let mut registers = *registers;
        let mut part = part(&mut registers);
        // SAFETY: the kernel reads the array alone, as far as it is long.
        done(unsafe { libc::ptrace(libc::PTRACE_SETREGSET, self.0, NT_PRSTATUS, &raw mut part) })
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // SAFETY: the request takes numbers alone.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0, 0) };
    }
}

/// The general registers, include/uapi/linux/elf.h.
const NT_PRSTATUS: libc::c_int = 1;

fn part(registers: &mut target::Registers) -> libc::iovec {
    libc::iovec {
        iov_base: registers.as_mut_ptr().cast(),
        iov_len: size_of_val(registers),
    }
}

fn done(answer: libc::c_long) -> io::Result<()> {
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Whether there is no such thread any more. Signal 0 is none.
fn is_gone(thread: libc::pid_t) -> bool {
    // SAFETY: the call touches no memory.
    unsafe { libc::syscall(libc::SYS_tkill, thread, 0) < 0 }
}

#[cfg(target_arch = "x86_64")]
mod target {
    //! `struct user_regs_struct`, arch/x86/include/asm/user_64.h.

    use std::io;

    pub(super) const COUNT: usize = 27;
    pub(super) type Registers = [u64; COUNT];

    const RAX: usize = 10;
    const ORIG_RAX: usize = 15;
    const RIP: usize = 16;
    /// rdi, rsi, rdx, r10, r8, r9 (`syscall(2)`).
    const ARGUMENTS: [usize; super::ARGUMENTS] = [14, 13, 12, 7, 9, 8];
    /// Bytes of the instruction `syscall`. Entries of other ABIs are refused by the filter.
    const INSTRUCTION: u64 = 2;

    /// Goes back to before the instruction, for another call.
    pub(super) fn repeat(
        registers: &mut Registers,
        was: i64,
        first: u64,
        number: i64,
        arguments: [u64; super::ARGUMENTS],
    ) -> bool {
        if registers[ORIG_RAX] != was.cast_unsigned() || registers[ARGUMENTS[0]] != first {
            return false;
        }
        registers[RIP] = registers[RIP].wrapping_sub(INSTRUCTION);
        registers[RAX] = number.cast_unsigned();
        // It is in no call: nothing is to be begun again.
        registers[ORIG_RAX] = u64::MAX;
        for (register, argument) in ARGUMENTS.into_iter().zip(arguments) {
            registers[register] = argument;
        }
        true
    }

    #[allow(clippy::unnecessary_wraps, reason = "it can fail elsewhere")]
    pub(super) fn forget(_thread: libc::pid_t) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(target_arch = "aarch64")]
mod target {
    //! `struct user_pt_regs`, arch/arm64/include/uapi/asm/ptrace.h: x0 to x30, sp, pc, pstate.

    use std::io;

    pub(super) const COUNT: usize = 34;
    pub(super) type Registers = [u64; COUNT];

    /// The number of the call (`syscall(2)`).
    const NUMBER: usize = 8;
    const PC: usize = 32;
    /// Bytes of an instruction.
    const INSTRUCTION: u64 = 4;
    /// The number of the call that a thread is in, include/uapi/linux/elf.h.
    const NT_ARM_SYSTEM_CALL: libc::c_int = 0x404;

    /// Goes back to before the instruction, for another call. x0 has the result by now, so that the first
    /// argument cannot be compared.
    pub(super) fn repeat(
        registers: &mut Registers,
        was: i64,
        _first: u64,
        number: i64,
        arguments: [u64; super::ARGUMENTS],
    ) -> bool {
        if registers[NUMBER] != was.cast_unsigned() {
            return false;
        }
        registers[PC] = registers[PC].wrapping_sub(INSTRUCTION);
        registers[NUMBER] = number.cast_unsigned();
        for (register, argument) in registers.iter_mut().zip(arguments) {
            *register = argument;
        }
        true
    }

    /// It is in no call: nothing is to be begun again.
    pub(super) fn forget(thread: libc::pid_t) -> io::Result<()> {
        let mut none: libc::c_int = -1;
        let mut part = libc::iovec {
            iov_base: (&raw mut none).cast(),
            iov_len: size_of::<libc::c_int>(),
        };
        // SAFETY: the kernel reads the number alone.
        super::done(unsafe {
            libc::ptrace(
                libc::PTRACE_SETREGSET,
                thread,
                NT_ARM_SYSTEM_CALL,
                &raw mut part,
            )
        })
    }
}
