//! Commands that run to their end.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::waiting::{PATIENCE, wait_for};

/// What a process writes, read as it comes.
pub struct Drained(Receiver<Vec<u8>>);

impl Drained {
    /// All of it, once nobody can write any more.
    #[track_caller]
    pub fn all(&self) -> Vec<u8> {
        let all = self.0.recv_timeout(PATIENCE);
        all.expect("a process keeps the output open after the end")
    }
}

/// The most that is kept of what a process writes, in bytes. One that asks again and again would fill the machine's memory.
const MOST_OUTPUT: u64 = 64 << 20;

/// Reads everything that comes, up to 64 MiB, in a thread of its own.
pub fn drain(from: impl Read + Send + 'static) -> Drained {
    let (send, receive) = channel();
    thread::spawn(move || {
        let mut all = Vec::new();
        // What cannot be read is not there: the test that looks for it says so.
        let _ = from.take(MOST_OUTPUT).read_to_end(&mut all);
        let _ = send.send(all);
    });
    Drained(receive)
}

/// Waits for the end; a process that takes too long is killed, and the test with it.
#[track_caller]
pub fn wait(child: &mut Child, what: &str) -> ExitStatus {
    wait_for(what, || child.try_wait().unwrap()).unwrap_or_else(|_| {
        let _ = child.kill();
        panic!("did not end within {PATIENCE:?}: {what}")
    })
}

/// The exit code; for a process that a signal killed, the signal's number, negated.
pub fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| -status.signal().unwrap_or(0))
}

/// The state of a process, as a letter (`proc_pid_stat(5)`); none: it is gone.
pub fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
