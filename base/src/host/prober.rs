//! A child process that stats paths on file systems which may not answer. When one path hangs, the
//! launcher abandons the child and goes on.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use serde::Serialize;

use super::walk::{Answer, Question, Walker};
use crate::sys::process::{Side, exit_now, fork};

/// No frame is longer: a listing of the largest directory, or a batch of answers with long paths.
const LONGEST_FRAME: usize = 6 << 20;

/// The child, from the launcher's side.
pub struct Prober {
    stream: UnixStream,
    child: Pid,
}

impl Prober {
    /// Forks the child.
    ///
    /// # Errors
    /// A limit of processes or descriptors is reached.
    pub fn start() -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        match fork()? {
            Side::Child => {
                drop(ours);
                serve(theirs);
                exit_now(0)
            }
            Side::Parent(child) => Ok(Self {
                stream: ours,
                child,
            }),
        }
    }

    /// Asks.
    ///
    /// # Errors
    /// The child is gone.
    pub fn send(&mut self, questions: &[&Question]) -> io::Result<()> {
        let mut text = Vec::new();
        put_frame(&mut text, questions)?;
        self.stream.write_all(&text)
    }

    /// The answers; `None` if they are not there by the deadline, or if the process is gone.
    pub fn receive(&mut self, deadline: Instant) -> Option<Vec<Answer>> {
        let mut head = [0; 4];
        self.fill(&mut head, deadline)?;
        let length = u32::from_le_bytes(head) as usize;
        if length > LONGEST_FRAME {
            return None;
        }
        let mut body = vec![0; length];
        self.fill(&mut body, deadline)?;
        postcard::from_bytes(&body).ok()
    }

    fn fill(&mut self, buffer: &mut [u8], deadline: Instant) -> Option<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = PollTimeout::try_from(left + Duration::from_millis(1)).ok()?;
            match poll(
                &mut [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)],
                wait,
            ) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(nix::errno::Errno::EINTR) => continue,
                Err(_) => return None,
            }
            match self.stream.read(&mut buffer[filled..]).ok()? {
                0 => return None,
                count => filled += count,
            }
        }
        Some(())
    }

    /// Leaves a process that hangs in the kernel behind: SIGKILL takes effect when it wakes.
    pub fn abandon(self) {
        let _ = kill(self.child, Signal::SIGKILL);
        let _ = waitpid(self.child, Some(WaitPidFlag::WNOHANG));
    }

    /// Ends an idle child: it cannot hang in the kernel, as it has no question to answer. It is not left to read the end of its
    /// socket, for whatever was forked meanwhile holds a copy of the other end.
    pub fn finish(self) {
        let _ = kill(self.child, Signal::SIGKILL);
        let _ = waitpid(self.child, None);
    }
}

fn put_frame<T: Serialize + ?Sized>(into: &mut Vec<u8>, value: &T) -> io::Result<()> {
    let body = postcard::to_allocvec(value).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    into.extend_from_slice(&length.to_le_bytes());
    into.extend_from_slice(&body);
    Ok(())
}

/// The probing process: answers until its socket ends.
fn serve(mut stream: UnixStream) {
    let mut walker = Walker::everywhere();
    loop {
        let mut head = [0; 4];
        if stream.read_exact(&mut head).is_err() {
            return;
        }
        let mut body = vec![0; u32::from_le_bytes(head) as usize];
        if stream.read_exact(&mut body).is_err() {
            return;
        }
        let Ok(questions) = postcard::from_bytes::<Vec<Question>>(&body) else {
            return;
        };
        let answers: Vec<Answer> = questions
            .iter()
            .filter_map(|question| walker.answer(question).ok())
            .collect();
        let mut text = Vec::new();
        if put_frame(&mut text, &answers).is_err() || stream.write_all(&text).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Prober;

    #[test]
    fn a_child_ends_whatever_else_was_forked_meanwhile() {
        let first = Prober::start().unwrap();
        let second = Prober::start().unwrap();
        let child = first.child;
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            first.finish();
            done.send(())
        });
        let patience = std::time::Duration::from_secs(10);
        assert!(ended.recv_timeout(patience).is_ok(), "{child} stays");
        second.finish();
    }
}
