//! A launcher that is stopped: like its command, or by somebody. What is due is done nevertheless.

use std::io;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigEvent, SigHandler, SigSet, SigevNotify, Signal, raise};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;

use super::Supervisor;
use crate::handoff::Request;
use crate::sys::process;

/// How often a launcher that should look after something is continued: it may be stopped anew between looking and setting the
/// next time.
const AGAIN: Duration = Duration::from_secs(1);

/// Signals that stop a process; which of them stops the command, the command decides.
pub(super) const STOPPING: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// The signals that are read, of those that are held back: what stops is ignored, or waits for its time.
pub(super) fn read(mut held: SigSet, by_slurm: bool) -> SigSet {
    if !by_slurm {
        STOPPING.into_iter().for_each(|signal| held.remove(signal));
    }
    held
}

/// A timer of the kernel's that continues this process.
pub(super) fn timer() -> io::Result<Timer> {
    let signal = SigevNotify::SigevSignal {
        signal: Signal::SIGCONT,
        si_value: 0,
    };
    Ok(Timer::new(ClockId::CLOCK_MONOTONIC, SigEvent::new(signal))?)
}

impl Supervisor<'_> {
    /// Has the kernel continue the launcher when something is due: a command can stop itself, and with it who waits for its time.
    pub(super) fn set_timer(&mut self) -> io::Result<()> {
        if let (Some(timer), Some(at)) = (&mut self.timer, self.company.deadline.next()) {
            let rest = at.saturating_duration_since(Instant::now());
            // None at all would be never.
            let rest = rest.max(Duration::from_millis(1));
            let when = Expiration::IntervalDelayed(rest.into(), AGAIN.into());
            timer.set(when, TimerSetTimeFlags::empty())?;
        }
        Ok(())
    }

    pub(super) fn command_has_stopped(&mut self, number: i32) -> io::Result<()> {
        self.stops = self.stops.wrapping_add(1);
        // Nobody waits for a job to stop, and what goes on is told to go on. Where time is up the command is being ended.
        if self.company.by_slurm || self.company.deadline.over().is_some() {
            return Ok(());
        }
        self.is_about_to_stop(Signal::try_from(number).unwrap_or(Signal::SIGSTOP))
    }

    /// The command has stopped, and so does the launcher, by the same signal: the shell sees it. But not where the command has been
    /// continued since. Init is asked for that when the signal waits to be delivered already: what continues the process group
    /// from then on takes the signal back (signal(7): SIGCONT discards stop signals that are pending).
    pub(super) fn is_about_to_stop(&mut self, signal: Signal) -> io::Result<()> {
        let asked = self.stopping.replace(signal);
        if let Some(other) = asked.filter(|&other| other != signal) {
            self.take_back(other)?;
        }
        if asked.is_none() {
            // From here on the launcher's own timer continues it for what is due alone.
            self.company.deadline.rests();
            self.set_timer()?;
        }
        if signal != Signal::SIGSTOP {
            process::handle(signal, SigHandler::SigDfl)?;
            raise(signal)?;
        }
        // One question at a time: a command that stops over and over fills no socket with them.
        if asked.is_none() {
            self.request(&Request::Stands);
        }
        Ok(())
    }

    /// Ignores a signal again that stops, also one that is pending.
    fn take_back(&self, signal: Signal) -> io::Result<()> {
        if signal != Signal::SIGSTOP {
            process::handle(signal, SigHandler::SigIgn)?;
        }
        Ok(())
    }

    /// Stops the launcher, if the command stands and has time left. What continues the launcher continues the command, unless the
    /// launcher has something to do.
    pub(super) fn stop_like_the_command(&mut self, stands: bool) -> io::Result<()> {
        let Some(signal) = self.stopping.take() else {
            return Ok(());
        };
        if !stands || self.company.deadline.over().is_some() {
            self.company.deadline.goes_on(Instant::now());
            return self.take_back(signal);
        }
        tracing::debug!(target: "launch", %signal, "stopped like the command");
        if signal == Signal::SIGSTOP {
            raise(signal)?;
        } else {
            let mut one = SigSet::empty();
            one.add(signal);
            one.thread_unblock()?;
            one.thread_block()?;
            self.take_back(signal)?;
        }
        let now = Instant::now();
        if self.company.deadline.next().is_some_and(|at| at <= now) {
            self.stopped = Some(signal);
        } else {
            self.company.deadline.goes_on(now);
            self.request(&Request::Continue(self.stops));
        }
        Ok(())
    }
}
