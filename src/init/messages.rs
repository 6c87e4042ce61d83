//! Slurm's own messages, written to the job's standard error. The file may be one that nobody
//! reads (a FIFO), so a child of init's writes; init waits for nothing.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use nix::unistd::Pid;

use crate::sys::process;

/// Bytes that may wait. Slurm says a few lines in the life of a job.
const MOST: usize = 64 << 10;

/// What is said and not written yet.
#[derive(Debug, Default)]
pub(super) struct Messages {
    file: Option<File>,
    waiting: Vec<u8>,
    writer: Option<Pid>,
}

impl Messages {
    /// The file is open.
    pub(super) fn opened(&mut self, file: OwnedFd) {
        self.file = Some(file.into());
        self.write();
    }

    /// Adds a text; what is too much is left out.
    pub(super) fn say(&mut self, text: &[u8]) {
        let room = MOST.saturating_sub(self.waiting.len()).min(text.len());
        self.waiting.extend_from_slice(&text[..room]);
        self.write();
    }

    /// A child of init's ended.
    pub(super) fn ended(&mut self, pid: Pid) {
        if self.writer == Some(pid) {
            self.writer = None;
            self.write();
        }
    }

    /// Whether something is being written.
    pub(super) fn is_busy(&self) -> bool {
        self.writer.is_some()
    }

    fn write(&mut self) {
        let Some(file) = &mut self.file else { return };
        if self.writer.is_some() || self.waiting.is_empty() {
            return;
        }
        match process::fork() {
            Ok(process::Side::Child) => {
                let _ = file.write_all(&self.waiting);
                process::exit_now(0)
            }
            Ok(process::Side::Parent(pid)) => {
                self.writer = Some(pid);
                self.waiting.clear();
            }
            // At a limit of processes Slurm's words are lost; the job goes on.
            Err(_) => self.waiting.clear(),
        }
    }
}
