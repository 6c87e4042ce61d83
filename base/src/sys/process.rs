//! Processes: fork, exec, signals, limits.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{ForkResult, Pid};

/// The two sides of [`fork`].
pub enum Side {
    /// The new process.
    Child,
    /// The old one, with the pid of the new one.
    Parent(Pid),
}

/// Forks. Every caller is single-threaded (the launcher and init start no thread but one that is over, [`super::memory`]), so the
/// child may go on with the whole of its memory, locks and allocator included.
///
/// # Errors
/// What `fork(2)` answers: `EAGAIN` at a process limit, `ENOMEM`.
pub fn fork() -> io::Result<Side> {
    // SAFETY: the process has one thread, see above.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Child => Ok(Side::Child),
        ForkResult::Parent { child } => Ok(Side::Parent(child)),
    }
}

/// Ends the process at once, without destructors and `atexit` handlers of the parent's image.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit(2) takes any number and does not return.
    unsafe { libc::_exit(code) }
}

/// Sets each signal to be ignored; programs started from here inherit that.
///
/// # Errors
/// `EINVAL` for a signal that cannot be ignored.
pub fn ignore(signals: &[Signal]) -> io::Result<()> {
    signals
        .iter()
        .try_for_each(|&signal| handle(signal, SigHandler::SigIgn))
}

/// Sets what a signal does to `SIG_IGN` or `SIG_DFL`.
///
/// # Errors
/// `EINVAL` for a signal that cannot be caught, and for handlers that run code.
pub fn handle(signal: Signal, handler: SigHandler) -> io::Result<()> {
    if !matches!(handler, SigHandler::SigIgn | SigHandler::SigDfl) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: neither disposition runs code of ours.
    unsafe {
        sigaction(
            signal,
            &SigAction::new(handler, SaFlags::empty(), SigSet::empty()),
        )?
    };
    Ok(())
}

/// Sets every signal to its default and unblocks all, as a fresh login has them.
///
/// # Errors
/// What `sigprocmask(2)` answers.
pub fn default_signals() -> io::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in Signal::iterator() {
        if matches!(signal, Signal::SIGKILL | Signal::SIGSTOP) {
            continue;
        }
        // SAFETY: SIG_DFL runs no code of ours.
        unsafe { sigaction(signal, &default)? };
    }
    // Real-time signals have no names in `Signal`.
    for number in libc::SIGRTMIN()..=libc::SIGRTMAX() {
        // SAFETY: as above.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
    SigSet::empty().thread_set_mask()?;
    Ok(())
}

/// Signals that a process may be sent and survive: all but those that cannot be held back, and
/// `SIGCHLD`, which the kernel sends about children.
pub fn sendable() -> impl Iterator<Item = i32> {
    // Between the standard ones and SIGRTMIN stand two that the C library keeps to itself.
    (1..32)
        .chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
        .filter(|number| !matches!(*number, libc::SIGKILL | libc::SIGSTOP | libc::SIGCHLD))
}

/// Ignores every signal that somebody may send; programs started from here inherit that.
pub fn ignore_all() {
    for number in sendable() {
        // SAFETY: SIG_IGN runs no code of ours.
        unsafe { libc::signal(number, libc::SIG_IGN) };
    }
}

/// Sends a signal by its number, real-time signals included, to a process.
///
/// # Errors
/// What `kill(2)` answers.
pub fn send_signal(to: Pid, number: i32) -> io::Result<()> {
    // SAFETY: the call touches no memory.
    if unsafe { libc::kill(to.as_raw(), number) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Ends this process by a signal, as the command that it stood for was ended; without a core file
/// of its own. Returns if the signal does not end a process.
pub fn end_by_signal(number: i32) {
    let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
    // Pending signals of the kind that would end it otherwise stay blocked.
    // SAFETY: SIG_DFL runs no code of ours; the set is a local that sigemptyset initialises.
    unsafe {
        libc::signal(number, libc::SIG_DFL);
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, number);
        libc::kill(libc::getpid(), number);
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}

/// Replaces the process by a program. Returns only on failure.
pub fn exec(path: &CString, argv: &[CString], environment: &[CString]) -> io::Error {
    match nix::unistd::execve(path, argv, environment) {
        Ok(never) => match never {},
        Err(error) => error.into(),
    }
}

/// Replaces the process by the program that a descriptor shows, with the environment that it has
/// (`execveat(2)`). Returns only on failure.
pub fn exec_descriptor(program: impl AsFd, argv: &[CString], environment: &[CString]) -> io::Error {
    let how = nix::fcntl::AtFlags::AT_EMPTY_PATH;
    match nix::unistd::execveat(program, c"", argv, environment, how) {
        Ok(never) => match never {},
        Err(error) => error.into(),
    }
}

/// Whether an unprivileged process may create a user namespace: tried in a child that does
/// nothing else.
///
/// # Errors
/// The error that the kernel gave the child (`unshare(2)`), or the reason why there was no child.
#[allow(
    clippy::disallowed_methods,
    reason = "the write is part of setting a user namespace up, user_namespaces(7)"
)]
pub fn try_user_namespace() -> io::Result<()> {
    match fork()? {
        Side::Child => {
            let errno = match nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER) {
                // The map decides whether the namespace is of use: AppArmor's restriction lets
                // the namespace be created and then denies it every capability.
                Ok(()) => match std::fs::write("/proc/self/setgroups", "deny") {
                    Ok(()) => 0,
                    Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
                },
                Err(errno) => errno as i32,
            };
            exit_now(errno)
        }
        Side::Parent(child) => loop {
            match nix::sys::wait::waitpid(child, None) {
                Ok(nix::sys::wait::WaitStatus::Exited(_, 0)) => return Ok(()),
                Ok(nix::sys::wait::WaitStatus::Exited(_, errno)) => {
                    return Err(io::Error::from_raw_os_error(errno));
                }
                Ok(_) => return Err(io::Error::other("the trying process was killed")),
                Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        },
    }
}

/// What became of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was stopped by this signal.
    Stopped(i32),
    /// It was stopped, and has been continued.
    Continued,
    /// It returned this code.
    Exited(i32),
    /// This signal ended it; real-time signals, which have no name in [`Signal`], included.
    Killed(i32),
}

/// Lets a child go that asked to be traced by its parent (`PTRACE_TRACEME`) and is stopped for that:
/// nobody here traces, and it would stand for ever. It goes on as if it were not traced, without
/// what would stop it, and with any other signal. `false` if it is stopped as processes are by
/// job control.
fn let_go(child: libc::pid_t, signal: i32) -> bool {
    let stops = [
        libc::SIGTRAP,
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
    ];
    let passed_on = if stops.contains(&signal) { 0 } else { signal };
    // SAFETY: PTRACE_DETACH takes numbers alone. Of a process that is no tracee it answers ESRCH.
    let done = unsafe { libc::ptrace(libc::PTRACE_DETACH, child, 0, passed_on) };
    done == 0
}

/// What became of some child, without waiting for it (`waitpid(2)`).
///
/// # Errors
/// `ECHILD` without children.
pub fn next_change() -> io::Result<Option<(Pid, Change)>> {
    change(-1, libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED)
}

/// Waits for the end of some child, those included that other processes left to this one.
///
/// # Errors
/// `ECHILD` without children, `EINTR`.
pub fn wait_for_any() -> io::Result<(Pid, Change)> {
    change(-1, libc::__WALL)?.ok_or_else(|| io::Error::from_raw_os_error(libc::ECHILD))
}

/// What became of one child, without waiting for it.
///
/// # Errors
/// `ECHILD` if it is none of this process's.
pub fn end_of(child: Pid) -> io::Result<Option<Change>> {
    let end = change(child.as_raw(), libc::WNOHANG | libc::__WALL)?;
    Ok(end.map(|(_, change)| change))
}

fn change(child: libc::pid_t, how: libc::c_int) -> io::Result<Option<(Pid, Change)>> {
    loop {
        let mut status = 0;
        // SAFETY: the call writes one int, to which it gets a pointer.
        let pid = unsafe { libc::waitpid(child, &mut status, how) };
        let change = match pid {
            0 => return Ok(None),
            -1 => return Err(io::Error::last_os_error()),
            _ if libc::WIFSTOPPED(status) => {
                let signal = libc::WSTOPSIG(status);
                if let_go(pid, signal) {
                    continue;
                }
                Change::Stopped(signal)
            }
            _ if libc::WIFCONTINUED(status) => Change::Continued,
            _ if libc::WIFSIGNALED(status) => Change::Killed(libc::WTERMSIG(status)),
            _ => Change::Exited(libc::WEXITSTATUS(status)),
        };
        return Ok(Some((Pid::from_raw(pid), change)));
    }
}

/// What a child has used, with everything for which it or one of its own has waited (`getrusage(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Processor time, of users and system.
    pub cpu: Duration,
    /// The most that any single process had in memory, in bytes.
    pub largest: u64,
}

/// How a child ended and what it has used; `waits` for that, or answers `None` while it runs (`wait4(2)`).
///
/// # Errors
/// `ECHILD` if it is none of this process's.
pub fn spent_by(child: Pid, waits: bool) -> io::Result<Option<(Change, Usage)>> {
    let how = libc::__WALL | if waits { 0 } else { libc::WNOHANG };
    loop {
        let mut status = 0;
        // SAFETY: numbers of the system's, of which each may be 0.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the call writes one int and one rusage, to which it gets pointers.
        match unsafe { libc::wait4(child.as_raw(), &mut status, how, &mut usage) } {
            0 => return Ok(None),
            -1 => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
            _ => {
                let change = match libc::WIFSIGNALED(status) {
                    true => Change::Killed(libc::WTERMSIG(status)),
                    false => Change::Exited(libc::WEXITSTATUS(status)),
                };
                let cpu = time(usage.ru_utime) + time(usage.ru_stime);
                let largest = u64::try_from(usage.ru_maxrss).unwrap_or(0) * KIBIBYTE;
                return Ok(Some((change, Usage { cpu, largest })));
            }
        }
    }
}

/// The unit of `ru_maxrss` (`getrusage(2)`).
const KIBIBYTE: u64 = 1024;

fn time(value: libc::timeval) -> Duration {
    let seconds = u64::try_from(value.tv_sec).unwrap_or(0);
    let micros = u64::try_from(value.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// A descriptor of a process, which becomes readable when the process has ended (`pidfd_open(2)`,
/// Linux 5.3).
///
/// # Errors
/// What `pidfd_open(2)` answers.
pub fn descriptor_of(process: Pid) -> io::Result<OwnedFd> {
    // SAFETY: the call touches no memory.
    let number = unsafe { libc::syscall(libc::SYS_pidfd_open, process.as_raw(), 0) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    let number = RawFd::try_from(number).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Waits for the end of a child.
///
/// # Errors
/// `ECHILD` if it is none of this process's.
pub fn wait(child: Pid) -> io::Result<Change> {
    use nix::sys::wait::WaitStatus;
    loop {
        match nix::sys::wait::waitpid(child, None) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(Change::Exited(code)),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(Change::Killed(signal as i32)),
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Gives memory that the allocator keeps for later back to the kernel (`malloc_trim(3)`).
pub fn release_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Gives back the pages of the program and its libraries that are only read, for a process that waits from now on: they
/// come again from the page cache when they are needed (`madvise(2)`, `MADV_DONTNEED`). They are most of what a launcher
/// has in memory.
pub fn release_text() {
    // SAFETY: the callback keeps to what `dl_iterate_phdr(3)` gives it, and unwinds nowhere.
    unsafe {
        libc::dl_iterate_phdr(Some(release_segments), std::ptr::null_mut());
    }
}

/// Gives back the segments of one object into which nothing is ever written: relocations are in others.
extern "C" fn release_segments(
    object: *mut libc::dl_phdr_info,
    _: libc::size_t,
    _: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the linker passes a description that is valid during this call, with that many headers.
    let (base, headers) = unsafe {
        let object = &*object;
        let headers = std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
        (object.dlpi_addr as usize, headers)
    };
    // SAFETY: it only asks.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0);
    let only_read = |one: &&libc::Elf64_Phdr| {
        one.p_type == libc::PT_LOAD && one.p_flags & libc::PF_W == 0 && page.is_power_of_two()
    };
    for segment in headers.iter().filter(only_read) {
        let start = base + segment.p_vaddr as usize;
        let end = (start + segment.p_memsz as usize) & !(page - 1);
        let start = start.next_multiple_of(page);
        // SAFETY: these pages are of a file and equal to it, so that what comes back is what was there. A failure
        // changes nothing.
        unsafe {
            let length = end.saturating_sub(start);
            libc::madvise(start as *mut libc::c_void, length, libc::MADV_DONTNEED);
        }
    }
    0
}

/// The shared libraries of this process, and its dynamic linker, by the paths by which they were found (`dl_iterate_phdr(3)`);
/// none of a static program.
pub fn libraries() -> Vec<PathBuf> {
    unsafe extern "C" fn note(
        object: *mut libc::dl_phdr_info,
        _size: libc::size_t,
        found: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: the C library hands an object of its own over, and what was given below: a list that nobody else uses.
        let (object, found) = unsafe { (&*object, &mut *found.cast::<Vec<PathBuf>>()) };
        if !object.dlpi_name.is_null() {
            // SAFETY: the name of an object ends with a zero and stays as long as the object.
            let name = unsafe { CStr::from_ptr(object.dlpi_name) };
            let name = Path::new(OsStr::from_bytes(name.to_bytes()));
            if name.is_absolute() {
                found.push(name.to_owned());
            }
        }
        0
    }
    let mut found: Vec<PathBuf> = Vec::new();
    // SAFETY: the function keeps nothing that it is handed.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut found).cast()) };
    found
}

/// Landlock's ABI version (`landlock_create_ruleset(2)`, `LANDLOCK_CREATE_RULESET_VERSION`);
/// 0 where the kernel has none or it is switched off.
pub fn landlock_abi() -> i32 {
    const LANDLOCK_CREATE_RULESET_VERSION: libc::c_uint = 1;
    // SAFETY: with a null attribute, size 0 and this flag the call only reports a number.
    let abi = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    i32::try_from(abi).unwrap_or(0).max(0)
}
