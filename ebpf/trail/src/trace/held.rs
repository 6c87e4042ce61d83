//! The command, held until its trace has begun: this program, started once more, waits for a word and
//! becomes the command. So the trace begins with the command's own start, and nothing of it is missed.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: starts processes, and becomes one"
)]

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};

use crate::fault::{CANNOT_EXECUTE, FAILED, Fault, NOT_FOUND};

/// The first argument of a process that is held.
pub const HELD: &str = "held";
/// The word by which it goes on.
const GO: &[u8] = b"go";

/// A command that has not begun.
#[derive(Debug)]
pub struct Held {
    /// The process that will be it.
    pub child: Child,
    /// Closed without a word, it ends.
    line: OwnedFd,
}

impl Held {
    /// Starts the process that waits.
    ///
    /// # Errors
    /// What `socketpair(2)` or `fork(2)` answer.
    pub fn new(program: &Path, words: &[OsString]) -> io::Result<Self> {
        let (line, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        // It alone is to be inherited, and this process has one thread.
        fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty()))?;
        let child = Command::new("/proc/self/exe")
            .arg(HELD)
            .arg(theirs.as_raw_fd().to_string())
            .arg(program)
            .args(words)
            .spawn()?;
        Ok(Self { child, line })
    }

    /// Lets it become the command.
    ///
    /// # Errors
    /// It is gone.
    pub fn go(self) -> io::Result<Child> {
        send(self.line.as_raw_fd(), GO, MsgFlags::MSG_NOSIGNAL)?;
        Ok(self.child)
    }

    /// Ends it; it has never been the command.
    pub fn give_up(self) {
        let Self { mut child, line } = self;
        drop(line);
        // It ends by itself, at once.
        let _ = child.wait();
    }
}

/// The other side: waits, and becomes the command. It returns only what went wrong; nothing is said where
/// the command was given up.
pub fn wait(arguments: &[OsString]) -> Result<u8, Fault> {
    let [line, program, name, rest @ ..] = arguments else {
        return Err(Fault::new("this is no command of its own"));
    };
    let Some(line) = line.to_str().and_then(|text| text.parse::<RawFd>().ok()) else {
        return Err(Fault::new("this is no command of its own"));
    };
    let mut word = [0; 8];
    let length = loop {
        match recv(line, &mut word, MsgFlags::empty()) {
            Err(Errno::EINTR) => {}
            Err(_) => break 0,
            Ok(length) => break length,
        }
    };
    if &word[..length] != GO {
        return Ok(FAILED);
    }
    // The command does not get it.
    let _ = nix::unistd::close(line);
    Err(become_it(program, name, rest))
}

fn become_it(program: &OsStr, name: &OsStr, rest: &[OsString]) -> Fault {
    let error = Command::new(program).arg0(name).args(rest).exec();
    let code = match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => CANNOT_EXECUTE,
    };
    Fault::new(format!("cannot execute `{}`: {error}", name.display())).code(code)
}
