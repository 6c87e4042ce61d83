//! A program of ours that is started when somebody inside calls it for the first time: the chaperon, the ssh agent. A session that
//! never asks for it never has one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::Result;

use super::companion::{Companion, Program};

/// One that runs, or that will when it is needed.
#[derive(Debug)]
pub struct OnCall {
    program: Program,
    verb: &'static str,
    /// What it is given before its socket: its order, first of all.
    given: Option<Vec<OwnedFd>>,
    listener: Option<OwnedFd>,
    log: PathBuf,
    running: Option<Companion>,
}

impl OnCall {
    /// The program with a verb, and what it is given. What it has to say goes into the file `log`.
    ///
    /// # Errors
    /// The program cannot be opened.
    pub(super) fn new(
        program: PathBuf,
        verb: &'static str,
        given: Vec<OwnedFd>,
        log: PathBuf,
    ) -> Result<Self> {
        Ok(Self {
            program: Program::hold(program)?,
            verb,
            given: Some(given),
            listener: None,
            log,
            running: None,
        })
    }

    /// Takes the socket on which calls from inside arrive.
    pub fn listening(&mut self, listener: OwnedFd) {
        if self.given.is_some() {
            self.listener = Some(listener);
        }
    }

    /// What becomes readable when somebody inside calls, as long as it was not started.
    pub fn waiting(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// Starts it; it takes the calls from now on. Does nothing without a socket, or if it was started before: what is known of a
    /// session is told once.
    ///
    /// # Errors
    /// What `socketpair(2)` or `fork(2)` answer. The socket is closed then, so that callers get an
    /// error instead of waiting.
    pub fn start(&mut self) -> io::Result<()> {
        let (Some(given), Some(listener)) = (self.given.take(), self.listener.take()) else {
            return Ok(());
        };
        let (life, theirs) = UnixStream::pair()?;
        let theirs = OwnedFd::from(theirs);
        let all: Vec<&OwnedFd> = given.iter().chain([&listener, &theirs]).collect();
        self.running = Some(Companion::start(
            &self.program,
            self.verb,
            &all,
            life.into(),
            &self.log,
            || Ok(()),
        )?);
        Ok(())
    }

    /// Its process, once it runs.
    pub(super) fn process(&self) -> Option<u32> {
        self.running.as_ref().map(Companion::process)
    }

    /// Ends it and waits for its end, for a bounded time.
    pub fn end(&mut self) {
        self.listener = None;
        if let Some(running) = self.running.take() {
            running.end();
        }
    }
}

impl Drop for OnCall {
    fn drop(&mut self) {
        self.end();
    }
}
