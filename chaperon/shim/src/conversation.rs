//! The conversation with the chaperon: one loop that sleeps until there is something to do.

use std::time::{Duration, Instant};

use agent_sandbox_wire::frame::{FrameError, LONGEST};
use agent_sandbox_wire::message::{Call, End, FromShim, Stream, ToShim};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::child::{Child, State};
use crate::files::{self, Reader};
use crate::link::{Link, With};
use crate::look;
use crate::signals::{self, Signals};
use crate::streams::Outgoing;
use crate::trouble::Trouble;

/// How long the chaperon may take to stop the real command. It takes far less where the machine is
/// not overloaded.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// A conversation after the greeting.
pub(crate) struct Conversation {
    name: &'static str,
    link: Link,
    signals: Signals,
    /// Output that is being written; no message is looked at before it is.
    output: Option<Outgoing>,
    reader: Option<Reader>,
    child: Option<Child>,
    /// The chaperon was told of a stop, and may tell it back.
    stop_told: bool,
    /// When to stop at the latest: the real command stops first, for it reads from the terminal that
    /// the caller's shell takes back then.
    stop_by: Option<Instant>,
    /// Standard output and error that cannot be written.
    broken: [bool; 2],
}

impl Conversation {
    /// Sends the call.
    pub(crate) fn begin(name: &'static str, link: Link, call: Call) -> Result<Self, Trouble> {
        let mut conversation = Self {
            name,
            link,
            signals: Signals::catch()?,
            output: None,
            reader: None,
            child: None,
            stop_told: false,
            stop_by: None,
            broken: [false; 2],
        };
        let call = FromShim::Call(call);
        conversation
            .link
            .queue(&call, With::Standard)
            .map_err(|error| match error {
                FrameError::TooLong(bytes) => Trouble::new(format!(
                    "arguments and environment are too long: {bytes} bytes; {LONGEST} may be sent"
                )),
                error => Trouble::new(error.to_string()),
            })?;
        Ok(conversation)
    }

    /// Does what the chaperon asks for until it says how to end.
    pub(crate) fn hold(mut self) -> Result<End, Trouble> {
        let end = self.converse();
        if let Some(child) = self.child.take() {
            // The session is over for it, as when a terminal is closed.
            child.signal(libc::SIGHUP);
            child.signal(libc::SIGCONT);
            child.restore_terminal();
        }
        match end? {
            End::SUCCESS if self.broken.contains(&true) => Ok(End::FAILURE),
            end => Ok(end),
        }
    }

    fn converse(&mut self) -> Result<End, Trouble> {
        loop {
            while self.output.is_none() {
                match self.link.next()? {
                    Some(ToShim::End(end)) => return Ok(end),
                    Some(message) => self.carry_out(message)?,
                    None if self.link.ended() => {
                        return Err(Trouble::new("the chaperon ended before the command did"));
                    }
                    None => break,
                }
            }
            self.link.flush();
            if let Some(end) = self.sleep()? {
                return Ok(end);
            }
        }
    }

    fn carry_out(&mut self, message: ToShim) -> Result<(), Trouble> {
        match message {
            ToShim::Fetch { .. } if self.reader.is_some() => return Err(confused()),
            ToShim::Run { .. } if self.child.is_some() => return Err(confused()),
            ToShim::Fetch { source, most } => match Reader::open(&source, most) {
                Ok(reader) => self.reader = Some(reader),
                Err(error) => self.tell(&FromShim::Failed(error as i32)),
            },
            ToShim::Open { path, how } => match files::open_for(&path, how, &self.signals) {
                Ok(file) => self.tell_with(&FromShim::Opened, With::File(file)),
                Err(error) => self.tell(&FromShim::Failed(error as i32)),
            },
            ToShim::Look { directory, file } => {
                self.tell(&look::look(&directory, file.as_deref()));
            }
            ToShim::Output { stream, bytes } => {
                if !self.broken[place(stream)] {
                    self.output = Some(Outgoing::new(stream, bytes));
                }
            }
            ToShim::Run { argv, environment } => {
                match Child::start(&argv, &environment, self.signals.mask_before()) {
                    Ok(child) => self.child = Some(child),
                    Err(error) => self.tell(&FromShim::Failed(error as i32)),
                }
            }
            ToShim::Stopped if self.stop_told => {
                self.stop_told = false;
                if self.stop_by.is_some() {
                    self.stop();
                }
            }
            ToShim::Stopped => self.stop(),
            ToShim::Signal(signal) => {
                if let Some(child) = &self.child {
                    child.signal(signal);
                }
            }
            ToShim::End(_) => {}
        }
        Ok(())
    }

    /// Waits for something to happen, and does what there is to do about it.
    fn sleep(&mut self) -> Result<Option<End>, Trouble> {
        let mut link = PollFlags::empty();
        link.set(PollFlags::POLLIN, self.output.is_none());
        link.set(PollFlags::POLLOUT, self.link.has_queue());
        // A file waits until its last part was sent, output until it can be written.
        let reader = self.reader.as_ref().filter(|_| !self.link.has_queue());
        let mut polled = Vec::with_capacity(4);
        polled.push(PollFd::new(self.signals.fd(), PollFlags::POLLIN));
        // A connection that ended polls as ready for ever: it is left out when nobody asks.
        let at_link = push(
            &mut polled,
            (!link.is_empty()).then(|| (self.link.fd(), link)),
        );
        let at_output = push(
            &mut polled,
            self.output
                .as_ref()
                .map(|output| (output.fd(), PollFlags::POLLOUT)),
        );
        let at_reader = push(
            &mut polled,
            reader.map(|reader| (reader.fd(), PollFlags::POLLIN)),
        );
        let patience = self.stop_by.map_or(PollTimeout::NONE, |until| {
            // Rounded up: at the end of the wait the moment has come.
            let rest = until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            PollTimeout::try_from(rest).unwrap_or(PollTimeout::ZERO)
        });
        match poll(&mut polled, patience) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(Trouble::system("cannot wait for the chaperon", error)),
        }
        let ready = |at: Option<usize>| {
            at.and_then(|at| polled[at].revents())
                .unwrap_or(PollFlags::empty())
        };
        let (link, output, reader) = (ready(at_link), ready(at_output), ready(at_reader));
        drop(polled);
        while let Some(signal) = self.signals.next() {
            if let Some(end) = self.heed(signal) {
                return Ok(Some(end));
            }
        }
        if self.stop_by.is_some_and(|until| Instant::now() >= until) {
            self.stop();
        }
        if self.output.is_none() && !link.is_empty() {
            self.link.fill();
        }
        if !output.is_empty()
            && let Some(end) = self.write()
        {
            return Ok(Some(end));
        }
        if !reader.is_empty() {
            self.read();
        }
        Ok(None)
    }

    fn write(&mut self) -> Option<End> {
        let output = self.output.as_mut()?;
        match output.advance() {
            Ok(false) => return None,
            Ok(true) => {}
            Err(Errno::EPIPE) => return Some(End::Signal(libc::SIGPIPE)),
            Err(error) => {
                let stream = output.stream();
                self.broken[place(stream)] = true;
                let name = match stream {
                    Stream::Output => "output",
                    Stream::Error => "error",
                };
                Trouble::system(&format!("cannot write standard {name}"), error).report(self.name);
            }
        }
        self.output = None;
        None
    }

    fn read(&mut self) {
        let Some(reader) = &mut self.reader else {
            return;
        };
        let message = match reader.part() {
            Ok(Some(part)) if part.is_empty() => return,
            Ok(Some(part)) => FromShim::Content(part),
            Ok(None) => FromShim::ContentEnds,
            Err(error) => FromShim::Failed(error as i32),
        };
        if !matches!(message, FromShim::Content(_)) {
            self.reader = None;
        }
        self.tell(&message);
    }

    /// Does what a signal asks for; `Some` if that is to end at once.
    fn heed(&mut self, signal: i32) -> Option<End> {
        match (signal, &self.child) {
            (libc::SIGCHLD, Some(child)) => match child.state() {
                State::Runs => {}
                // The user wants the caller's shell back.
                State::Stopped => self.stop(),
                State::Over(end) => {
                    child.restore_terminal();
                    self.child = None;
                    self.tell(&FromShim::RunEnded(end));
                }
            },
            (libc::SIGCHLD, None) => {}
            // The terminal is the child's, and sent it the same.
            (libc::SIGINT | libc::SIGQUIT | libc::SIGWINCH, Some(_)) => {}
            (libc::SIGTSTP, Some(_)) => self.stop(),
            (libc::SIGCONT, Some(child)) => child.signal(libc::SIGCONT),
            (libc::SIGTSTP, None) => {
                self.tell(&FromShim::Signal(signal));
                self.stop_told = true;
                self.stop_by.get_or_insert(Instant::now() + STOP_PATIENCE);
            }
            (_, child) => {
                if let (libc::SIGTERM, Some(child)) = (signal, child) {
                    child.signal(signal);
                }
                self.tell(&FromShim::Signal(signal));
                // The chaperon's answer stands behind output that nobody takes.
                let deadly = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
                if self.output.is_some() && deadly.contains(&signal) {
                    self.link.flush();
                    return Some(End::Signal(signal));
                }
            }
        }
        None
    }

    /// Stops. Whoever lets it go on lets the real command, or the child, go on.
    fn stop(&mut self) {
        self.stop_by = None;
        self.link.flush();
        let told_to_go_on = signals::stop();
        match &self.child {
            // At once: SIGCONT reaches a group one by one, and a child that is still stopped would
            // look as if it had stopped anew.
            Some(child) => child.signal(libc::SIGCONT),
            // It was not stopped, so that no SIGCONT came.
            None if !told_to_go_on => self.tell(&FromShim::Signal(libc::SIGCONT)),
            None => {}
        }
    }

    fn tell(&mut self, message: &FromShim) {
        self.tell_with(message, With::Nothing);
    }

    fn tell_with(&mut self, message: &FromShim, with: With) {
        // Nothing after the call comes near the longest frame.
        let _ = self.link.queue(message, with);
    }
}

fn push<'a>(
    polled: &mut Vec<PollFd<'a>>,
    wanted: Option<(std::os::fd::BorrowedFd<'a>, PollFlags)>,
) -> Option<usize> {
    let (fd, flags) = wanted?;
    polled.push(PollFd::new(fd, flags));
    Some(polled.len() - 1)
}

fn place(stream: Stream) -> usize {
    match stream {
        Stream::Output => 0,
        Stream::Error => 1,
    }
}

fn confused() -> Trouble {
    Trouble::new("the chaperon asked for two things at once")
}
