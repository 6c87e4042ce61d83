//! Stands by the command: reaps, passes signals on, and listens to the launcher.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::MsgFlags;
use nix::unistd::Pid;

use super::control::{Control, FAILED};
use super::copies::Copies;
use super::keep::REAPED_AT_ONCE;
use super::messages::Messages;
use crate::handoff::{End, Report, Request};
use crate::sys::process::Change;
use crate::sys::{passing, process};

/// How long the launcher may take to hand over Slurm's last words, and a file to take them.
const LEAVE: Duration = Duration::from_millis(300);

/// Init, once the command runs.
pub(super) struct Attendance<'a> {
    control: &'a Control,
    signals: &'a SignalFd,
    command: Pid,
    by_slurm: bool,
    /// Whether the jail has no pid namespace of its own.
    without_pid_namespace: bool,
    copies: Copies,
    said: Messages,
    /// Where the child passes the standard error that it opened.
    errors: Option<OwnedFd>,
    /// What the launcher asked for before the command was started.
    early: Vec<Request>,
    /// Whether nothing is known to have happened to a child since.
    reaped: bool,
    /// How often the command has stopped.
    stops: u32,
    /// Whether it stands in the last of these stops.
    stands: bool,
    /// How the command ended.
    end: Option<End>,
    /// Until when the launcher may say something after that, and it be written.
    leave: Option<Instant>,
    /// Whether the launcher has nothing more to say.
    told_all: bool,
}

impl<'a> Attendance<'a> {
    pub(super) fn new(
        control: &'a Control,
        signals: &'a SignalFd,
        command: Pid,
        by_slurm: bool,
    ) -> Self {
        Self {
            control,
            signals,
            command,
            by_slurm,
            without_pid_namespace: false,
            copies: Copies::default(),
            said: Messages::default(),
            errors: None,
            early: Vec::new(),
            reaped: true,
            stops: 0,
            stands: false,
            end: None,
            leave: None,
            told_all: !by_slurm,
        }
    }

    pub(super) fn without_pid_namespace(mut self, without: bool) -> Self {
        self.without_pid_namespace = without;
        self
    }

    pub(super) fn with_errors(mut self, errors: Option<OwnedFd>) -> Self {
        self.errors = errors;
        self
    }

    pub(super) fn with_early(mut self, early: Vec<Request>) -> Self {
        self.early = early;
        self
    }

    /// Waits for the command, for everything that is re-parented to it, and for the launcher; the
    /// answer is the exit code.
    pub(super) fn run(mut self) -> i32 {
        for request in std::mem::take(&mut self.early) {
            self.act(request);
        }
        loop {
            if let (Some(end), true) = (self.end, self.may_leave()) {
                return end.exit_code().into();
            }
            let errors = self.errors.as_ref().unwrap_or(&self.control.0);
            let mut ready = [
                PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.control.0.as_fd(), PollFlags::POLLIN),
                PollFd::new(errors.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut ready, self.timeout()) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return FAILED,
            }
            let [signalled, asked, opened] = ready.map(|one| one.any().unwrap_or(false));
            if opened && self.errors.is_some() {
                self.opened();
            }
            if signalled {
                self.note_signals();
            }
            if signalled || !self.reaped {
                self.reap();
            }
            // The launcher is gone: so is the jail.
            if asked && !self.answer() {
                return FAILED;
            }
            for number in self.copies.due(Instant::now()) {
                let _ = process::send_signal(self.command, number);
            }
        }
    }

    fn may_leave(&self) -> bool {
        let over = self.leave.is_none_or(|until| Instant::now() >= until);
        over || (self.told_all && !self.said.is_busy())
    }

    fn timeout(&self) -> PollTimeout {
        if !self.reaped {
            return PollTimeout::ZERO;
        }
        let until = self.copies.next().into_iter().chain(self.leave).min();
        match until {
            None => PollTimeout::NONE,
            // Rounded up: at the end of the wait the moment has come.
            Some(until) => until
                .saturating_duration_since(Instant::now())
                .checked_add(Duration::from_millis(1))
                .and_then(|rest| PollTimeout::try_from(rest).ok())
                .unwrap_or(PollTimeout::MAX),
        }
    }

    /// Takes the standard error that the child opened.
    fn opened(&mut self) {
        let mut buffer = [0; 1];
        if let Some(errors) = self.errors.take()
            && let Ok((_, Some(file))) =
                passing::receive(&errors, &mut buffer, MsgFlags::MSG_DONTWAIT)
        {
            self.said.opened(file);
        }
    }

    fn note_signals(&mut self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            let number = i32::try_from(info.ssi_signo).unwrap_or(0);
            // Processes outside of the jail have no pid in it; where there is no pid namespace, those
            // inside cannot signal this process.
            let outside = self.without_pid_namespace || info.ssi_pid == 0;
            if self.by_slurm && number != libc::SIGCHLD && outside {
                self.copies.seen(number, Instant::now());
            }
        }
    }

    fn reap(&mut self) {
        // Some at a time: a command that stops and goes on without end must not keep init from its launcher's requests.
        for _ in 0..REAPED_AT_ONCE {
            // The end of the loop is that there is no news, or that there are no children.
            let Ok(Some((pid, change))) = process::next_change() else {
                self.reaped = true;
                return;
            };
            let end = match change {
                _ if pid != self.command => {
                    self.said.ended(pid);
                    continue;
                }
                Change::Stopped(signal) => {
                    self.stops = self.stops.wrapping_add(1);
                    self.stands = true;
                    self.control.send(&Report::Stopped(signal));
                    continue;
                }
                Change::Continued => {
                    self.stands = false;
                    continue;
                }
                Change::Exited(code) => End::Code(code),
                Change::Killed(signal) => End::Signal(signal),
            };
            self.control.send(&Report::Ended(end));
            self.end = Some(end);
            if self.by_slurm {
                self.leave = Some(Instant::now() + LEAVE);
            }
        }
        self.reaped = false;
    }

    /// Does what the launcher asks for; `false` if it is gone.
    fn answer(&mut self) -> bool {
        match self.control.receive() {
            Some(request) => self.act(request),
            None => return false,
        }
        true
    }

    /// Continues the command if that is what whoever continued the launcher meant. A shell has continued the whole process
    /// group; at a terminal ^Z may have stopped that again by now, and whoever continued the command alone would leave it
    /// waiting for children that stand.
    fn go_on(&mut self, stops: u32) {
        self.reap();
        if self.stands && self.stops == stops && self.end.is_none() {
            let _ = process::send_signal(self.command, libc::SIGCONT);
        }
    }

    fn act(&mut self, request: Request) {
        match request {
            // It has gone on.
            Request::Go => {}
            // The command's pid may be another process's by now.
            Request::Signal(_) if self.end.is_some() => {}
            Request::Signal(number) if self.by_slurm => {
                self.copies.handed_on(number, Instant::now());
            }
            Request::Signal(number) => {
                let _ = process::send_signal(self.command, number);
            }
            Request::Continue(stops) => self.go_on(stops),
            Request::Stands => {
                self.reap();
                let stands = self.stands && self.end.is_none();
                self.control.send(&Report::Stands(stands));
            }
            Request::Say(text) => self.said.say(&text),
            Request::Leave => self.told_all = true,
        }
    }
}
