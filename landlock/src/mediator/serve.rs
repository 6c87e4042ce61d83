//! Takes calls from the listener and answers them, on as many threads as wait for something.
//!
//! A thread that has taken a call sees to it that another waits for the next before it answers: what
//! it does may take its time (a connection, a pipe that nobody reads), and may need another call of
//! the jail to come to its end. A panic would end the mediator, so nothing here may.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::unistd::gettid;

use super::context::{Answer, Context};
use super::{commands, connect, modes, open, processes, terminals, tree, watch};
use agent_sandbox_base::mediate::caller::Caller;
use agent_sandbox_base::mediate::sight;
use agent_sandbox_base::sys::notify::{self, Buffers, Call, NATIVE_ARCH};
use agent_sandbox_base::sys::{process, threads};

/// The most threads that answer at a time; further calls wait until one is free.
const MOST_THREADS: usize = 128;
/// How many threads stay when there is nothing to do.
const IDLE_THREADS: usize = 3;
/// The stack of a thread, in bytes: a handler goes deep nowhere and keeps buffers on the heap.
const STACK: usize = 256 * 1024;
/// With more calls than these in progress, a thread checks at intervals whether their callers are still there.
const BUSY_THREADS: usize = 4;
/// The interval.
const LOOK: Duration = Duration::from_millis(250);

// Numbers that libc does not name on every architecture yet, and which are the same on all of them
// (scripts/syscall.tbl).

const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;

/// Who answers a call.
type Handler = fn(&Context, &Caller) -> Answer;

/// The handler of a call by its number; `None` for one that the filter does not hand over.
pub fn handler(number: i32) -> Option<Handler> {
    let handler: Handler = match i64::from(number) {
        libc::SYS_connect => connect::connect,
        libc::SYS_listen => connect::listen,
        libc::SYS_execve => commands::execute,
        libc::SYS_ioctl => terminals::peer,
        libc::SYS_openat => open::open,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open | libc::SYS_creat => open::open,
        libc::SYS_bind => connect::bind,
        libc::SYS_mkdirat
        | libc::SYS_mknodat
        | libc::SYS_symlinkat
        | libc::SYS_linkat
        | libc::SYS_renameat
        | libc::SYS_renameat2
        | libc::SYS_unlinkat
        | libc::SYS_truncate => tree::change,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir
        | libc::SYS_mknod
        | libc::SYS_symlink
        | libc::SYS_link
        | libc::SYS_rename
        | libc::SYS_unlink
        | libc::SYS_rmdir => tree::change,
        libc::SYS_fchmod
        | libc::SYS_fchmodat
        | FCHMODAT2
        | libc::SYS_fchown
        | libc::SYS_fchownat
        | libc::SYS_utimensat
        | libc::SYS_setxattr
        | libc::SYS_lsetxattr
        | libc::SYS_fsetxattr
        | SETXATTRAT
        | libc::SYS_removexattr
        | libc::SYS_lremovexattr
        | libc::SYS_fremovexattr
        | REMOVEXATTRAT => modes::change,
        libc::SYS_inotify_add_watch => watch::watch,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod
        | libc::SYS_chown
        | libc::SYS_lchown
        | libc::SYS_utime
        | libc::SYS_utimes
        | libc::SYS_futimesat => modes::change,
        libc::SYS_kill
        | libc::SYS_tkill
        | libc::SYS_tgkill
        | libc::SYS_rt_sigqueueinfo
        | libc::SYS_rt_tgsigqueueinfo
        | libc::SYS_pidfd_send_signal => processes::signal,
        libc::SYS_setpgid => processes::join_group,
        libc::SYS_prlimit64
        | libc::SYS_setpriority
        | libc::SYS_ioprio_set
        | libc::SYS_sched_setaffinity
        | libc::SYS_sched_setscheduler
        | libc::SYS_sched_setparam
        | libc::SYS_sched_setattr => processes::change,
        _ => return None,
    };
    Some(handler)
}

/// Starts the threads that answer the calls of a listener.
///
/// # Errors
/// What `clone(2)` answers for the first of them.
pub fn serve(context: Arc<Context>, listener: OwnedFd) -> io::Result<()> {
    // An older kernel takes a little longer.
    let _ = notify::wake_on_the_same_processor(&listener);
    threads::become_interruptible()?;
    let crew = Arc::new(Crew {
        context,
        listener: Arc::new(listener),
        shift: Mutex::default(),
        crowded: Condvar::new(),
    });
    crew.shift().total = 1;
    crew.shift().idle = 1;
    begin(&crew, work)?;
    // Without it a thread whose caller is gone may wait for long.
    let _ = begin(&crew, |crew| crew.watch());
    Ok(())
}

fn begin(crew: &Arc<Crew>, act: fn(&Arc<Crew>)) -> io::Result<()> {
    let crew = Arc::clone(crew);
    thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || act(&crew))?;
    Ok(())
}

/// The threads, and what they share.
struct Crew {
    context: Arc<Context>,
    listener: Arc<OwnedFd>,
    shift: Mutex<Shift>,
    /// More are at work than [`BUSY_THREADS`].
    crowded: Condvar,
}

/// Who does what.
#[derive(Default)]
struct Shift {
    /// Threads in all.
    total: usize,
    /// Those that wait for a call.
    idle: usize,
    /// Those that answer one: the call and the thread.
    busy: Vec<(u64, i32)>,
}

impl Crew {
    fn shift(&self) -> MutexGuard<'_, Shift> {
        self.shift.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread has taken a call. Whether another thread is needed, which is counted already.
    fn took(&self, call: u64, thread: i32) -> bool {
        let mut shift = self.shift();
        shift.idle = shift.idle.saturating_sub(1);
        shift.busy.push((call, thread));
        if shift.busy.len() > BUSY_THREADS {
            self.crowded.notify_one();
        }
        let needed = shift.idle == 0 && shift.total < MOST_THREADS;
        if needed {
            shift.total += 1;
            shift.idle += 1;
        }
        needed
    }

    /// The thread that was counted did not come to be.
    fn missed(&self) {
        let mut shift = self.shift();
        shift.total = shift.total.saturating_sub(1);
        shift.idle = shift.idle.saturating_sub(1);
    }

    /// A thread has answered its call. Whether it is to wait for another.
    fn answered(&self, call: u64) -> bool {
        let mut shift = self.shift();
        if let Some(at) = shift.busy.iter().position(|(id, _)| *id == call) {
            shift.busy.swap_remove(at);
        }
        let stays = shift.idle < IDLE_THREADS;
        if stays {
            shift.idle += 1;
        } else {
            shift.total = shift.total.saturating_sub(1);
        }
        stays
    }

    /// Interrupts threads whose callers are gone, when many are at work.
    fn watch(&self) {
        loop {
            let mut shift = self.shift();
            while shift.busy.len() <= BUSY_THREADS {
                shift = match self.crowded.wait(shift) {
                    Ok(shift) => shift,
                    Err(poisoned) => poisoned.into_inner(),
                };
            }
            // Under the lock: a thread that has answered meanwhile is not in the list.
            for (call, thread) in &shift.busy {
                if notify::still_waits(&*self.listener, *call).is_err() {
                    let _ = threads::interrupt(*thread);
                }
            }
            drop(shift);
            thread::sleep(LOOK);
        }
    }
}

/// The life of a thread.
fn work(crew: &Arc<Crew>) {
    let Ok(mut buffers) = Buffers::new() else {
        return crew.missed();
    };
    let thread = gettid().as_raw();
    loop {
        let call = match buffers.receive(&*crew.listener) {
            Ok(call) => call,
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::ENOENT) if !notify::is_deserted(&*crew.listener) => continue,
                // No process is left under the filter: the end of the jail is near.
                Some(libc::ENOENT) => return crew.missed(),
                // With nobody who listens calls would wait for ever. Without the mediator they fail.
                _ => process::exit_now(1),
            },
        };
        if crew.took(call.id, thread) && begin(crew, work).is_err() {
            crew.missed();
        }
        answer(crew, &mut buffers, call);
        if !crew.answered(call.id) {
            return;
        }
    }
}

/// Answers a call. Who is gone meanwhile needs no answer.
fn answer(crew: &Crew, buffers: &mut Buffers, call: Call) {
    let listener = &*crew.listener;
    let refuse = |buffers: &mut Buffers, errno| {
        let _ = buffers.refuse(listener, call.id, errno);
    };
    match decide(crew, call) {
        Answer::Redirect(redirect) => {
            let own = Arc::clone(&crew.listener);
            // What a thread still traces at its end is let go by that.
            let redirect = thread::Builder::new().stack_size(STACK).spawn(move || {
                let caller = Caller::new(call, Arc::clone(&own));
                let buffers = Buffers::new();
                buffers
                    .and_then(|mut buffers| redirect.carry_out(&mut buffers, &*own, &caller))
                    .is_ok()
            });
            let is_led = redirect.is_ok_and(|redirect| redirect.join().unwrap_or(false));
            if !is_led && buffers.let_go_on(listener, call.id).is_err() {
                refuse(buffers, libc::ENOSYS);
            }
        }
        Answer::Done(value) => {
            let _ = buffers.complete(listener, call.id, value);
        }
        Answer::Fail(errno) => refuse(buffers, errno),
        Answer::Give {
            file,
            close_on_exec,
        } => {
            let put = notify::put(listener, call.id, file.as_fd(), close_on_exec);
            // Nobody but the caller has the file when it goes on: else what it writes, closes and
            // executes would be busy (`ETXTBSY`) and a pipe that it closes open for a while.
            drop(file);
            match put {
                Ok(number) => {
                    let _ = buffers.complete(listener, call.id, number.into());
                }
                Err(error) => refuse(buffers, error.raw_os_error().unwrap_or(libc::EIO)),
            }
        }
        Answer::Kernel => {
            if buffers.let_go_on(listener, call.id).is_err() {
                refuse(buffers, libc::ENOSYS);
            }
        }
    }
}

fn decide(crew: &Crew, call: Call) -> Answer {
    // The filter lets no foreign call through, and no caller is in a pid namespace outside of this
    // process's.
    if call.arch != NATIVE_ARCH || call.thread <= 0 {
        return Answer::Fail(libc::ENOSYS);
    }
    let caller = Caller::new(call, Arc::clone(&crew.listener));
    let recorder = crew.context.recorder.as_ref();
    if let Some(recorder) = recorder {
        sight::tell(recorder, &caller);
    }
    match handler(call.number) {
        Some(handler) => handler(&crew.context, &caller),
        // Without a recorder it would not have been handed over.
        None if recorder.is_some() && sight::is_watched(call.number) => Answer::Kernel,
        None => Answer::Fail(libc::ENOSYS),
    }
}
