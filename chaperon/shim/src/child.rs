//! The command that the chaperon has run inside the jail, as salloc runs a shell. It stays in the
//! shim's process group: a terminal's signals reach both, and a shell's job control sees one job.

#![allow(clippy::disallowed_methods, reason = "effects: starts a process")]

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use agent_sandbox_wire::message::End;
use nix::errno::Errno;
use nix::sys::signal::SigSet;
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

use crate::sys;

/// The shell of those who name none, and of scripts that do.
const SHELL: &str = "/bin/sh";

/// What a child does.
pub(crate) enum State {
    /// It runs.
    Runs,
    /// It was stopped.
    Stopped,
    /// It is over.
    Over(End),
}

/// A child.
pub(crate) struct Child {
    pid: Pid,
    /// The terminal's settings, if it was the shim's when the child began.
    terminal: Option<Termios>,
}

impl Child {
    /// Starts it with the shim's streams and environment, and these entries set.
    ///
    /// # Errors
    /// Why it cannot be started.
    pub(crate) fn start(
        argv: &[Vec<u8>],
        environment: &[Vec<u8>],
        mask: SigSet,
    ) -> Result<Self, Errno> {
        let terminal = if owns_terminal() {
            tcgetattr(sys::standard(sys::INPUT)).ok()
        } else {
            None
        };
        let own_shell;
        let (program, arguments) = match argv {
            [program, arguments @ ..] => (OsStr::from_bytes(program), arguments),
            [] => {
                own_shell = shell();
                (own_shell.as_os_str(), argv)
            }
        };
        let mut command = Command::new(program);
        command.args(arguments.iter().map(|argument| OsStr::from_bytes(argument)));
        let started = match spawn(&mut command, environment, mask) {
            // A script without an interpreter line is the shell's (`execvp(3)`).
            Err(Errno::ENOEXEC) => {
                let mut command = Command::new(SHELL);
                command.arg(program);
                command.args(arguments.iter().map(|argument| OsStr::from_bytes(argument)));
                spawn(&mut command, environment, mask)
            }
            started => started,
        };
        Ok(Self {
            pid: started?,
            terminal,
        })
    }

    /// What it does now. Once it is over, it is not asked again.
    pub(crate) fn state(&self) -> State {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
        match waitpid(self.pid, Some(flags)) {
            Ok(WaitStatus::Exited(_, code)) => State::Over(End::Code(code)),
            Ok(WaitStatus::Signaled(_, signal, _)) => State::Over(End::Signal(signal as i32)),
            Ok(WaitStatus::Stopped(..)) => State::Stopped,
            Ok(_) | Err(Errno::EINTR) => State::Runs,
            // nix has no word for real-time signals; the child is over.
            Err(_) => State::Over(End::FAILURE),
        }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: i32) {
        sys::send(self.pid.as_raw(), signal);
    }

    /// Puts the terminal back as it was.
    pub(crate) fn restore_terminal(&self) {
        let Some(settings) = &self.terminal else {
            return;
        };
        let input = sys::standard(sys::INPUT);
        // Both calls stop a process in the background otherwise (`tcsetpgrp(3)`).
        sys::set_blocked(libc::SIGTTOU, true);
        // A shell that was killed did not give the terminal back. If it is anybody else's, the
        // caller's shell has taken it, and it is not ours to take.
        if tcgetpgrp(input) == Ok(self.pid) {
            let _ = tcsetpgrp(input, getpgrp());
        }
        if owns_terminal() {
            let _ = tcsetattr(input, SetArg::TCSADRAIN, settings);
        }
        sys::set_blocked(libc::SIGTTOU, false);
    }
}

/// Whether standard input is a terminal with this process group in its foreground.
fn owns_terminal() -> bool {
    tcgetpgrp(sys::standard(sys::INPUT)) == Ok(getpgrp())
}

fn shell() -> OsString {
    match std::env::var_os("SHELL") {
        Some(shell) if !shell.is_empty() => shell,
        _ => SHELL.into(),
    }
}

fn spawn(command: &mut Command, environment: &[Vec<u8>], mask: SigSet) -> Result<Pid, Errno> {
    sys::start_with_mask(command, mask);
    for entry in environment {
        let end = entry.iter().position(|&byte| byte == b'=');
        // An entry without a name would make the standard library panic.
        if let Some(end) = end.filter(|&end| end > 0) {
            let (name, value) = (&entry[..end], &entry[end + 1..]);
            command.env(OsStr::from_bytes(name), OsStr::from_bytes(value));
        }
    }
    let child = command.spawn().map_err(|error| errno(&error))?;
    i32::try_from(child.id())
        .map(Pid::from_raw)
        .map_err(|_| Errno::EOVERFLOW)
}

/// NUL in an argument is the one error without a number.
fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EINVAL, Errno::from_raw)
}
