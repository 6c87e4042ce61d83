//! How the real `srun` is started: program, so that it can become no other program.
//!
//! Slurm's PMI-2 server lets a task ask for more processes (`cmd=spawn` on the descriptor that
//! `PMI_FD` names). The task's slurmstepd hands the wish on to the step's `srun`, which forks and
//! executes another `srun` with the task's words: a step that the chaperon never saw, outside of every
//! jail (Slurm's `src/plugins/mpi/pmi2/spawn.c`). `srun` listens for it, and for other messages of that
//! plugin which nobody has to authenticate, on a TCP port of all interfaces.
//!
//! So `srun` runs under a seccomp filter of its own. It may fork: it does for a process that ends the
//! step when `srun` is killed, and where Slurm hands out its configuration itself. It may not execute
//! a program, make temporary files (several commands at once would be written to one in /tmp), or
//! touch other processes' memory; none of this is anything that it does for a step. Sockets,
//! threads and the files that it opens stay as they are.
//!
//! The filter must be there before the program is, so it has to let one `execve(2)` pass. It knows it by
//! two words that stand where the kernel does not look (the call has three arguments, the filter
//! sees six), random and forgotten with the memory of the process that made the call.

use std::ffi::{CString, OsStr, OsString, c_char};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::ptr;

/// A program to become, and the filter that holds from then on.
#[derive(Debug)]
pub(crate) struct FilteredProgram {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    mark: [u64; 2],
    filter: Vec<libc::sock_filter>,
}

impl FilteredProgram {
    /// A program with its arguments, the first of which is its own name, and its environment.
    ///
    /// # Errors
    /// One of them has a NUL in it; the kernel gives no random numbers (`getrandom(2)`).
    pub(crate) fn new(
        path: &OsStr,
        arguments: impl IntoIterator<Item = OsString>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> io::Result<Self> {
        let entries = environment.into_iter().map(|(name, value)| {
            let mut entry = name;
            entry.push("=");
            entry.push(value);
            text(entry)
        });
        let mark = [random()?, random()?];
        Ok(Self {
            path: text(path.to_owned())?,
            arguments: arguments.into_iter().map(text).collect::<io::Result<_>>()?,
            environment: entries.collect::<io::Result<_>>()?,
            mark,
            filter: filter(mark),
        })
    }

    /// What [`FilteredProgram::enter`] needs, laid out before the fork: after it nothing may be allocated.
    pub(crate) fn prepare(self) -> Prepared {
        let list = |texts: &[CString]| {
            let pointers = texts.iter().map(|text| text.as_ptr());
            pointers.chain([ptr::null()]).collect()
        };
        Prepared {
            arguments: list(&self.arguments),
            environment: list(&self.environment),
            program: self,
        }
    }
}

/// A [`FilteredProgram`] program, with the two lists of pointers that `execve(2)` takes.
pub(crate) struct Prepared {
    program: FilteredProgram,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
}

// SAFETY: the pointers lead to texts on the heap that `program` owns and nobody changes.
#[allow(unsafe_code)]
unsafe impl Send for Prepared {}
// SAFETY: as above; all access is by shared reference.
#[allow(unsafe_code)]
unsafe impl Sync for Prepared {}

impl Prepared {
    /// Installs the filter, and becomes the program. It is called between fork and exec; it allocates
    /// nothing.
    ///
    /// # Errors
    /// What `prctl(2)` and `execve(2)` answer. It only returns with an error.
    #[allow(unsafe_code)]
    pub(crate) fn enter(&self) -> io::Error {
        let program = libc::sock_fprog {
            // Some forty instructions: no truncation.
            len: self.program.filter.len() as u16,
            filter: self.program.filter.as_ptr().cast_mut(),
        };
        let [first, second] = self.program.mark;
        // SAFETY: prctl(2) reads the filter, which lives in `self`; execve(2) reads a path and two
        // lists that end with null, all in `self`. The surplus arguments are numbers.
        unsafe {
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                ) != 0
            {
                return io::Error::last_os_error();
            }
            libc::syscall(
                libc::SYS_execve,
                self.program.path.as_ptr(),
                self.arguments.as_ptr(),
                self.environment.as_ptr(),
                first,
                second,
            );
        }
        io::Error::last_os_error()
    }
}

fn text(value: OsString) -> io::Result<CString> {
    CString::new(value.into_vec()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[allow(unsafe_code)]
fn random() -> io::Result<u64> {
    let mut bytes = [0_u8; 8];
    // SAFETY: the kernel writes at most as many bytes as there are.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != bytes.len() as isize {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::from_ne_bytes(bytes))
}

/// AUDIT_ARCH_X86_64, AUDIT_ARCH_AARCH64 (include/uapi/linux/audit.h).
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// The bit that x32 numbers have on x86-64 (`__X32_SYSCALL_BIT`, arch/x86/include/uapi/asm/unistd.h).
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// Offsets in `struct seccomp_data` (include/uapi/linux/seccomp.h).
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

/// Refused with EPERM. `execve` is not here: see [`filter`].
const REFUSED: [libc::c_long; 5] = [
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
];

/// Answered with ENOSYS, as on a kernel that does not have it: its flags cannot be seen.
const UNSEEN: libc::c_long = libc::SYS_openat2;

/// Flags of `open(2)` that only somebody asks for who makes a new file and no other, and the calls with
/// the position of their flags.
const NEW_FILE: u32 = (libc::O_EXCL | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u32;
const OPENS: &[(libc::c_long, u32)] = &[
    (libc::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
];

/// The program for the kernel. Each call's part ends with an answer, or jumps over to the next part.
fn filter(mark: [u64; 2]) -> Vec<libc::sock_filter> {
    let mut program = vec![
        load(ARCH),
        equal(ARCHITECTURE, 1, 0),
        refuse(libc::ENOSYS),
        load(NUMBER),
    ];
    #[cfg(target_arch = "x86_64")]
    program.extend([at_least(X32, 0, 1), refuse(libc::ENOSYS)]);
    let refused = REFUSED.map(|call| (call, libc::EPERM));
    for (call, errno) in refused.into_iter().chain([(UNSEEN, libc::ENOSYS)]) {
        program.extend([equal(call as u32, 0, 1), refuse(errno)]);
    }
    for &(call, argument) in OPENS {
        let (low, _) = argument_words(argument);
        program.extend([
            equal(call as u32, 0, 4),
            load(low),
            any_bit(NEW_FILE, 0, 1),
            refuse(libc::EPERM),
            allow(),
        ]);
    }
    // What is left of execve(2): all words of the mark, or no.
    let words: Vec<(u32, u32)> = (3..)
        .zip(mark)
        .flat_map(|(argument, value)| {
            let (low, high) = argument_words(argument);
            [(low, value as u32), (high, (value >> 32) as u32)]
        })
        .collect();
    program.push(equal(libc::SYS_execve as u32, 1, 0));
    program.push(allow());
    for (offset, value) in words {
        program.extend([load(offset), equal(value, 1, 0), refuse(libc::EPERM)]);
    }
    program.push(allow());
    program
}

/// Offsets of the low and the high word of an argument.
const fn argument_words(number: u32) -> (u32, u32) {
    let first = ARGUMENTS + 8 * number;
    if cfg!(target_endian = "little") {
        (first, first + 4)
    } else {
        (first + 4, first)
    }
}

const fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

/// Loads a word of `struct seccomp_data`.
const fn load(offset: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)
}

/// Skips `yes` instructions if the word is `value`, `no` if it is not.
const fn equal(value: u32, yes: u8, no: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, yes, no, value)
}

/// The same for a word that is not smaller.
#[cfg(target_arch = "x86_64")]
const fn at_least(value: u32, yes: u8, no: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, yes, no, value)
}

/// The same for a word that has one of these bits.
const fn any_bit(bits: u32, yes: u8, no: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, yes, no, bits)
}

const fn allow() -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW)
}

const fn refuse(errno: i32) -> libc::sock_filter {
    let answer = libc::SECCOMP_RET_ERRNO | errno.unsigned_abs();
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, answer)
}

#[cfg(test)]
mod tests;
