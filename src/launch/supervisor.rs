//! Stands by a running jail: passes signals and job control on, and says how it ended.
//!
//! The launcher, bubblewrap and the command are in one process group, as a plain command would be
//! in it alone. Keys of the terminal (^C, ^\, ^Z, hang-up) reach the command from the kernel; the
//! launcher ignores these, and stops itself only when init says that the command has stopped.
//! Signals that other processes send to the launcher are handed to the command.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{MsgFlags, recv, send};

use crate::handoff::{End, LONGEST_DATAGRAM, Report, Request};
use crate::sys::process;

/// Signals that end a process or mean something to it: handed on when a process sent them.
const HANDED_ON: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGCONT,
];
/// Signals that stop a process; which of them stops the command, the command decides.
const STOPPING: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];
/// What bubblewrap may say before it is cut off; it says one line.
const LONGEST_COMPLAINT: u64 = 16 * 1024;

/// How a launch went.
#[derive(Debug)]
pub enum Outcome {
    /// The command ran and ended.
    Ended(End),
    /// The command could not be executed: an `errno` of `execve(2)`.
    NotExecuted(i32),
    /// Init found the jail not to be as planned.
    Refused(String),
    /// bubblewrap did not get as far as init; its own words.
    NoJail(String),
}

/// Holds back the signals that [`supervise`] handles. Programs started from here on ignore those
/// that the terminal sends, so that bubblewrap outlives ^C as long as the command does.
///
/// # Errors
/// What `sigprocmask(2)` or `sigaction(2)` answer.
pub fn hold_signals() -> io::Result<()> {
    let mut held = held();
    held.remove(Signal::SIGCHLD);
    held.thread_block()?;
    let ignored: Vec<Signal> = HANDED_ON
        .into_iter()
        .filter(|&signal| signal != Signal::SIGCONT)
        .chain(STOPPING)
        .collect();
    process::ignore(&ignored)
}

fn held() -> SigSet {
    let mut held = SigSet::empty();
    for signal in HANDED_ON
        .into_iter()
        .chain(STOPPING)
        .chain([Signal::SIGCHLD])
    {
        held.add(signal);
    }
    held
}

/// Waits until the jail is over.
///
/// # Errors
/// What `signalfd(2)`, `poll(2)` or `waitpid(2)` answer.
pub fn supervise(mut bwrap: Child, control: OwnedFd, complaint: UnixStream) -> io::Result<Outcome> {
    let held = held();
    held.thread_block()?;
    let signals = SignalFd::with_flags(&held, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut complaint = Some(complaint);
    let mut outcome = None;
    loop {
        // bubblewrap may have ended before its signal was held back.
        if bwrap.try_wait()?.is_some() {
            while let Some(report) = receive(&control, MsgFlags::MSG_DONTWAIT) {
                // The command was started, however soon it was over.
                if matches!(report, Report::Ready) {
                    complaint = None;
                }
                note(&mut outcome, &control, &signals, report)?;
            }
            break;
        }
        let mut ready = [
            PollFd::new(control.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let (reported, signalled) = (
            ready[0].any().unwrap_or(false),
            ready[1].any().unwrap_or(false),
        );
        if signalled {
            hand_on(&control, &signals)?;
        }
        if reported {
            match receive(&control, MsgFlags::MSG_DONTWAIT) {
                Some(report) => {
                    if matches!(report, Report::Ready) {
                        complaint = None;
                    }
                    note(&mut outcome, &control, &signals, report)?;
                }
                None => {
                    // Init is gone; bubblewrap follows.
                    bwrap.wait()?;
                    break;
                }
            }
        }
    }
    Ok(outcome.unwrap_or_else(|| match complaint {
        Some(pipe) => Outcome::NoJail(read_complaint(pipe)),
        // Killed with everything in it: by the kernel's out-of-memory killer, or by an administrator.
        None => Outcome::Ended(End::Signal(Signal::SIGKILL as i32)),
    }))
}

fn note(
    outcome: &mut Option<Outcome>,
    control: &OwnedFd,
    signals: &SignalFd,
    report: Report,
) -> io::Result<()> {
    match report {
        Report::Ready => {}
        Report::Refused(reason) => *outcome = Some(Outcome::Refused(reason)),
        Report::NotExecuted { errno } => *outcome = Some(Outcome::NotExecuted(errno)),
        Report::Stopped(signal) => stop_like_the_command(control, signals, signal)?,
        // The end of a command that was never executed is no end.
        Report::Ended(end) if outcome.is_none() => *outcome = Some(Outcome::Ended(end)),
        Report::Ended(_) => {}
    }
    Ok(())
}

fn receive(control: &OwnedFd, flags: MsgFlags) -> Option<Report> {
    let mut buffer = [0; LONGEST_DATAGRAM];
    loop {
        match recv(control.as_raw_fd(), &mut buffer, flags) {
            // Init ended with a request unread. The kernel says so once (unix(7)); what init sent
            // before is still there.
            Err(Errno::ECONNRESET | Errno::EINTR) => {}
            Ok(0) | Err(_) => return None,
            Ok(length) => return postcard::from_bytes(&buffer[..length]).ok(),
        }
    }
}

fn request(control: &OwnedFd, signal: i32) {
    if let Ok(text) = postcard::to_allocvec(&Request::Signal(signal)) {
        // A jail that is already over needs no signal.
        let _ = send(control.as_raw_fd(), &text, MsgFlags::MSG_NOSIGNAL);
    }
}

/// Hands on what processes sent. What the kernel sent (the terminal's keys) went to the whole
/// process group, the command included.
fn hand_on(control: &OwnedFd, signals: &SignalFd) -> io::Result<()> {
    while let Some(info) = signals.read_signal()? {
        let number = i32::try_from(info.ssi_signo).unwrap_or(0);
        // But a terminal that is closed tells the session's leader alone, which may be the launcher.
        let from_kernel = info.ssi_code == libc::SI_KERNEL && number != libc::SIGHUP;
        if HANDED_ON.iter().any(|&signal| signal as i32 == number) && !from_kernel {
            request(control, number);
        }
    }
    Ok(())
}

/// The command has stopped: so does the launcher, by the same signal, and the shell sees it. What
/// continues the launcher continues the command.
fn stop_like_the_command(control: &OwnedFd, signals: &SignalFd, signal: i32) -> io::Result<()> {
    let signal = Signal::try_from(signal).unwrap_or(Signal::SIGSTOP);
    let mut one = SigSet::empty();
    one.add(signal);
    if signal != Signal::SIGSTOP {
        process::handle(signal, SigHandler::SigDfl)?;
        // One that is pending would stop the launcher a second time.
        hand_on(control, signals)?;
        raise(signal)?;
        one.thread_unblock()?;
        one.thread_block()?;
        process::handle(signal, SigHandler::SigIgn)?;
    } else {
        raise(signal)?;
    }
    request(control, Signal::SIGCONT as i32);
    Ok(())
}

fn read_complaint(pipe: UnixStream) -> String {
    let mut text = Vec::new();
    // Everything that bubblewrap wrote is in the socket by now; whoever holds the other end open
    // must not keep the launcher waiting.
    let _ = pipe.set_nonblocking(true);
    let _ = pipe.take(LONGEST_COMPLAINT).read_to_end(&mut text);
    String::from_utf8_lossy(&text).trim().to_owned()
}
