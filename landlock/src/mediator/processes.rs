//! `kill(2), prlimit(2), sched_setaffinity(2) and their kin`: calls on other processes of the user,
//! which Landlock does not judge.
//!
//! What a process does to itself the kernel judges: a process keeps its own number as long as it
//! waits for the answer, so nothing can be put in its place. Everything else is done by the mediator,
//! to processes of the jail alone. It has no more rights over them than they have over each other:
//! the same user and no capability.
//!
//! Limits and scheduling go by numbers, since the kernel takes no descriptor there. The process is
//! held and found alive right before: its number could be another's only if all numbers were used up
//! between two instructions. Signals go by descriptors where the kernel has them; a signal comes from
//! the mediator then, unless it is queued with a value.

use std::io;
use std::os::fd::AsRawFd;

use nix::unistd::{getpid, getuid};

use super::context::{Answer, Context};
use super::family::{self, Held};
use agent_sandbox_base::mediate::caller::Caller;
use agent_sandbox_base::sys::remote::{self, Queued};

/// As many bytes of a mask of processors as are read: the kernel has no more than 8192 (`NR_CPUS`).
const LONGEST_MASK: usize = 1024;
/// `PRIO_*`, include/uapi/linux/resource.h; libc's have another type with each C library.
const PRIO_PROCESS: i32 = 0;
const PRIO_PGRP: i32 = 1;
const PRIO_USER: i32 = 2;
/// `IOPRIO_WHO_*`, include/uapi/linux/ioprio.h.
const IO_PROCESS: i32 = 1;
const IO_GROUP: i32 = 2;
const IO_USER: i32 = 3;
/// `SCHED_ATTR_SIZE_VER0`, include/uapi/linux/sched/types.h.
const SHORTEST_SCHEDULING: u32 = 48;
/// `struct sched_attr` is never longer than the smallest page (kernel/sched/syscalls.c).
const LONGEST_SCHEDULING: u32 = 4096;

/// Answers calls that signal.
pub fn signal(context: &Context, caller: &Caller) -> Answer {
    answered(send(context, caller).map(|()| 0))
}

/// Answers calls that set limits, priorities and scheduling.
pub fn change(context: &Context, caller: &Caller) -> Answer {
    answered(set(context, caller).map(|()| 0))
}

/// Answers `setpgid(2)`. The kernel signals whole process groups by itself: for keys of the terminal, for
/// use of it from the background, and when a group is orphaned. So a process of the jail joins none
/// that is another job's of the session. Both numbers are in registers, which nobody can change
/// while the call waits, and the kernel goes on with what was judged.
pub fn join_group(context: &Context, caller: &Caller) -> Answer {
    let (process, group) = (caller.int(0), caller.int(1));
    let makes =
        || -> Result<bool, Stop> { Ok(group <= 0 || group == process || is_own(caller, group)?) };
    let joins = || -> Result<bool, Stop> {
        let begun_with = family::entry(context.attendant.as_raw())?.group;
        Ok(group == begun_with || !group_of(context, caller, group)?.is_empty())
    };
    answered(match makes().and_then(|own| Ok(own || joins()?)) {
        Ok(true) => Err(Stop::Own),
        Ok(false) => fails(libc::EPERM),
        Err(stop) => Err(stop),
    })
}

/// Why a call is not carried out.
enum Stop {
    /// It is about the caller itself.
    Own,
    Fails(i32),
}

type Done = Result<(), Stop>;

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Fails(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

fn answered(done: Result<i64, Stop>) -> Answer {
    match done {
        Ok(value) => Answer::Done(value),
        Err(Stop::Own) => Answer::Kernel,
        Err(Stop::Fails(errno)) => Answer::Fail(errno),
    }
}

fn fails<T>(errno: i32) -> Result<T, Stop> {
    Err(Stop::Fails(errno))
}

/// A process of the jail, or the thread of one, found by a number.
struct Member {
    /// The number that was asked for.
    thread: i32,
    /// The process.
    held: Held,
}

/// Finds a process of the jail by the number of it or of one of its threads.
fn member(context: &Context, caller: &Caller, thread: i32) -> Result<Member, Stop> {
    if thread <= 0 {
        return fails(libc::ESRCH);
    }
    // A thread of the caller's own process, which is of the jail: the cheap case.
    let sibling = family::share_a_process(caller.call.thread, thread);
    let process = if sibling {
        caller.group()?
    } else {
        family::process_of(thread)?
    };
    let held = Held::new(process)?;
    if !sibling {
        let mediator = getpid().as_raw();
        let of_jail = process != context.attendant.as_raw() && family::is_below(process, mediator);
        if !of_jail {
            return fails(libc::EPERM);
        }
    }
    // The process kept its number until here, and so its thread was its.
    if !held.is_alive() || !family::share_a_process(process, thread) {
        return fails(libc::ESRCH);
    }
    Ok(Member { thread, held })
}

/// Whether a number is that of the caller's thread or process. Both keep it while the call waits.
fn is_own(caller: &Caller, number: i32) -> Result<bool, Stop> {
    Ok(number == caller.call.thread || (number > 0 && number == caller.group()?))
}

/// Every process of the jail.
fn members(context: &Context) -> Vec<i32> {
    let mediator = getpid().as_raw();
    let mut all = family::below(mediator, &|_| false);
    all.retain(|&number| number != context.attendant.as_raw());
    all
}

/// Those of a process group; `0`: of the caller's.
fn group_of(context: &Context, caller: &Caller, group: i32) -> Result<Vec<i32>, Stop> {
    let group = match group {
        0 => family::entry(caller.call.thread)?.group,
        group => group,
    };
    let mut all = members(context);
    all.retain(|&number| family::entry(number).is_ok_and(|entry| entry.group == group));
    Ok(all)
}

/// Does something to each. It is a success if it was one somewhere.
fn each(
    context: &Context,
    caller: &Caller,
    numbers: &[i32],
    mut act: impl FnMut(&Member) -> io::Result<()>,
) -> Done {
    let mut end = fails(libc::ESRCH);
    for &number in numbers {
        let done = member(context, caller, number).and_then(|member| Ok(act(&member)?));
        if end.is_err() && (done.is_ok() || matches!(end, Err(Stop::Fails(libc::ESRCH)))) {
            end = done;
        }
    }
    end
}

fn set(context: &Context, caller: &Caller) -> Done {
    match i64::from(caller.call.number) {
        libc::SYS_prlimit64 => set_limit(context, caller),
        libc::SYS_setpriority => {
            let who = match caller.int(0) {
                PRIO_PROCESS => Who::Process,
                PRIO_PGRP => Who::Group,
                PRIO_USER => Who::User,
                _ => return fails(libc::EINVAL),
            };
            let nice = caller.int(2);
            set_each(context, caller, who, &|thread| {
                remote::set_nice(thread, nice)
            })
        }
        libc::SYS_ioprio_set => {
            let who = match caller.int(0) {
                IO_PROCESS => Who::Process,
                IO_GROUP => Who::Group,
                IO_USER => Who::User,
                _ => return fails(libc::EINVAL),
            };
            let priority = caller.int(2);
            set_each(context, caller, who, &|thread| {
                remote::set_io_priority(thread, priority)
            })
        }
        _ => schedule(context, caller),
    }
}

/// Whom a priority is set for.
enum Who {
    Process,
    Group,
    User,
}

/// Sets a priority for one thread, or for every thread of many processes.
fn set_each(
    context: &Context,
    caller: &Caller,
    who: Who,
    set: &dyn Fn(i32) -> io::Result<()>,
) -> Done {
    let number = caller.int(1);
    let processes = match who {
        Who::Process => {
            let member = another(context, caller, number)?;
            return Ok(set(member.thread)?);
        }
        Who::Group => group_of(context, caller, number)?,
        Who::User => {
            if number != 0 && number.cast_unsigned() != getuid().as_raw() {
                return fails(libc::EPERM);
            }
            members(context)
        }
    };
    each(context, caller, &processes, |member| {
        let mut done = Ok(());
        for thread in family::threads(member.held.number) {
            if member.held.is_alive() {
                done = done.and(set(thread));
            }
        }
        done
    })
}

/// The process or thread with this number, if it is not the caller itself.
fn another(context: &Context, caller: &Caller, number: i32) -> Result<Member, Stop> {
    if number == 0 || number == caller.call.thread {
        return Err(Stop::Own);
    }
    if number < 0 {
        return fails(libc::ESRCH);
    }
    member(context, caller, number)
}

fn set_limit(context: &Context, caller: &Caller) -> Done {
    let number = caller.int(0);
    // Limits are those of a process, so any of its threads is the caller itself.
    if is_own(caller, number)? {
        return Err(Stop::Own);
    }
    let member = another(context, caller, number)?;
    let (new, old) = (caller.argument(2), caller.argument(3));
    let new = match new {
        0 => None,
        address => {
            let [soft, hard] = words(caller, address)?;
            Some((soft, hard))
        }
    };
    let resource = caller.int(1).cast_unsigned();
    let (soft, hard) = remote::limit(member.thread, resource, new)?;
    if old != 0 {
        let mut bytes = soft.to_ne_bytes().to_vec();
        bytes.extend(hard.to_ne_bytes());
        caller.write(old, &bytes)?;
    }
    Ok(())
}

fn words<const N: usize>(caller: &Caller, address: u64) -> Result<[u64; N], Stop> {
    let bytes = caller.read(address, N * size_of::<u64>())?;
    let (read, _) = bytes.as_chunks::<8>();
    let mut words = [0; N];
    for (to, from) in words.iter_mut().zip(read) {
        *to = u64::from_ne_bytes(*from);
    }
    Ok(words)
}

fn int(caller: &Caller, address: u64) -> Result<i32, Stop> {
    let mut bytes = [0; size_of::<i32>()];
    caller.read_into(address, &mut bytes)?;
    Ok(i32::from_ne_bytes(bytes))
}

fn schedule(context: &Context, caller: &Caller) -> Done {
    let number = caller.int(0);
    if number < 0 {
        return fails(libc::EINVAL);
    }
    let member = another(context, caller, number)?;
    let thread = member.thread;
    match i64::from(caller.call.number) {
        libc::SYS_sched_setaffinity => {
            // The kernel takes the length as `unsigned int`.
            let length = caller.int(1).cast_unsigned() as usize;
            let mut bytes = [0; LONGEST_MASK];
            let read = bytes.get_mut(..length).unwrap_or_default();
            if length > LONGEST_MASK {
                caller.read_into(caller.argument(2), &mut bytes)?;
            } else {
                caller.read_into(caller.argument(2), read)?;
            }
            let (chunks, _) = bytes.as_chunks::<8>();
            let mut mask = [0u64; LONGEST_MASK / 8];
            for (to, from) in mask.iter_mut().zip(chunks) {
                *to = u64::from_ne_bytes(*from);
            }
            remote::set_affinity(thread, &mask)?;
        }
        libc::SYS_sched_setscheduler => {
            let policy = caller.int(1);
            if policy < 0 || caller.argument(2) == 0 {
                return fails(libc::EINVAL);
            }
            remote::set_scheduler(thread, Some(policy), int(caller, caller.argument(2))?)?;
        }
        libc::SYS_sched_setparam => {
            if caller.argument(1) == 0 {
                return fails(libc::EINVAL);
            }
            remote::set_scheduler(thread, None, int(caller, caller.argument(1))?)?;
        }
        libc::SYS_sched_setattr => set_attributes(caller, thread)?,
        _ => return fails(libc::ENOSYS),
    }
    Ok(())
}

/// `sched_setattr(2)`: a structure that says how long it is, and that may only be longer than the
/// kernel's with zeroes.
fn set_attributes(caller: &Caller, thread: i32) -> Done {
    let address = caller.argument(1);
    let flags = caller.int(2).cast_unsigned();
    if address == 0 || flags != 0 {
        return fails(libc::EINVAL);
    }
    let length = match int(caller, address)?.cast_unsigned() {
        0 => SHORTEST_SCHEDULING,
        length @ SHORTEST_SCHEDULING..=LONGEST_SCHEDULING => length,
        _ => return fails(libc::E2BIG),
    };
    let bytes = caller.read(address, length as usize)?;
    let (known, unknown) = bytes
        .split_at_checked(remote::SCHEDULING_BYTES)
        .unwrap_or((&bytes, &[]));
    if unknown.iter().any(|&byte| byte != 0) {
        return fails(libc::E2BIG);
    }
    let mut attributes = [0; remote::SCHEDULING_BYTES];
    for (to, from) in attributes.iter_mut().zip(known) {
        *to = *from;
    }
    remote::set_scheduling(thread, attributes, flags)?;
    Ok(())
}

fn send(context: &Context, caller: &Caller) -> Done {
    let (first, second) = (caller.int(0), caller.int(1));
    match i64::from(caller.call.number) {
        libc::SYS_kill => kill(context, caller, first, second),
        libc::SYS_rt_sigqueueinfo => {
            if is_own(caller, first)? {
                return Err(Stop::Own);
            }
            let queued = queued(caller, caller.argument(2))?;
            let to = member(context, caller, first)?;
            Ok(remote::signal(&to.held.descriptor, second, Some(queued))?)
        }
        libc::SYS_tkill => {
            if first == caller.call.thread {
                return Err(Stop::Own);
            }
            signal_thread(context, caller, None, (first, second), None)
        }
        libc::SYS_tgkill => {
            let number = caller.int(2);
            if is_own(caller, first)? {
                return Err(Stop::Own);
            }
            signal_thread(context, caller, Some(first), (second, number), None)
        }
        libc::SYS_rt_tgsigqueueinfo => {
            let number = caller.int(2);
            if is_own(caller, first)? {
                return Err(Stop::Own);
            }
            let queued = queued(caller, caller.argument(3))?;
            signal_thread(context, caller, Some(first), (second, number), Some(queued))
        }
        libc::SYS_pidfd_send_signal => signal_descriptor(context, caller),
        _ => fails(libc::ENOSYS),
    }
}

fn kill(context: &Context, caller: &Caller, to: i32, number: i32) -> Done {
    if is_own(caller, to)? {
        return Err(Stop::Own);
    }
    let all = match to {
        1.. => {
            let member = member(context, caller, to)?;
            return Ok(remote::signal(&member.held.descriptor, number, None)?);
        }
        // Every process but the one that calls.
        -1 => {
            let own = caller.group()?;
            let mut all = members(context);
            all.retain(|&one| one != own);
            all
        }
        i32::MIN => return fails(libc::ESRCH),
        _ => group_of(context, caller, -to)?,
    };
    each(context, caller, &all, |member| {
        remote::signal(&member.held.descriptor, number, None)
    })
}

/// Sends a signal to a thread, which is one of `process` if that is said.
fn signal_thread(
    context: &Context,
    caller: &Caller,
    process: Option<i32>,
    (thread, number): (i32, i32),
    queued: Option<Queued>,
) -> Done {
    if thread <= 0 || process.is_some_and(|process| process <= 0) {
        return fails(libc::EINVAL);
    }
    let member = member(context, caller, thread)?;
    let found = member.held.number;
    if process.is_some_and(|process| process != found) {
        return fails(libc::ESRCH);
    }
    // Both numbers have to be right, or nobody is signalled.
    Ok(remote::signal_thread(found, thread, number, queued)?)
}

fn signal_descriptor(context: &Context, caller: &Caller) -> Done {
    let number = caller.int(1);
    // What flags there are came with kernels that need no mediator for signals, but for few.
    if caller.int(3) != 0 {
        return fails(libc::EINVAL);
    }
    let queued = match caller.argument(2) {
        0 => None,
        address => Some(queued(caller, address)?),
    };
    // A copy: under the caller's number there may be another process at once.
    let copy = caller.descriptor(caller.int(0))?;
    let process = family::behind(copy.as_raw_fd())?;
    if process != caller.group()? {
        member(context, caller, process)?;
    }
    Ok(remote::signal(&copy, number, queued)?)
}

/// What is sent along with a signal. Only a process itself may send what the kernel sends, and that
/// is none of the mediator's.
fn queued(caller: &Caller, address: u64) -> Result<Queued, Stop> {
    // siginfo_t: number, errno, code; sender, user; value (include/uapi/asm-generic/siginfo.h).
    let [_, code, _, value] = words(caller, address)?;
    // The code is the first half of its word on both architectures, which are little-endian.
    let code = (code as u32).cast_signed();
    if code >= 0 || code == libc::SI_TKILL {
        return fails(libc::EPERM);
    }
    Ok(Queued {
        sender: caller.group()?,
        user: getuid().as_raw(),
        value,
    })
}
