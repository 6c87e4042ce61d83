//! What the network's filter of a job refuses, on its way into the job's output.

use std::io::{PipeReader, Read};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Supervisor;

/// Bytes of what a filter says that are handed on at a time: they fit into one message to init.
const MOST_SAID: usize = 8 << 10;

impl Supervisor<'_> {
    /// Hands on what the network's filter says, where Slurm's words go: in a step that is the launcher's own standard error.
    pub(super) fn tell_refused(&mut self) {
        let mut text = vec![0; MOST_SAID];
        let read = self
            .company
            .refused
            .as_mut()
            .map(|said| said.read(&mut text));
        match read {
            Some(Ok(length @ 1..)) => text.truncate(length),
            // There is no filter, or it has ended.
            _ => {
                self.company.refused = None;
                return;
            }
        }
        match self.company.announcements {
            Some(_) => self.say(text),
            None => self.writer.say(&String::from_utf8_lossy(&text)),
        }
    }

    /// What it has said and nobody has handed on, when the jail is over.
    pub(super) fn tell_what_is_refused_yet(&mut self) {
        let waits = |said: &PipeReader| {
            let mut ready = [PollFd::new(said.as_fd(), PollFlags::POLLIN)];
            poll(&mut ready, PollTimeout::ZERO) == Ok(1)
        };
        while self.company.refused.as_ref().is_some_and(waits) {
            self.tell_refused();
        }
    }
}
