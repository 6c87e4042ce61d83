//! A terminal with somebody at it: types, and waits for what appears.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::unistd::ttyname;

use crate::world::{PATIENCE, code, wait};

pub(crate) struct Terminal {
    master: File,
    // Kept open, so that the terminal outlives its programs' own ends of it.
    slave: OwnedFd,
    child: Child,
    seen: Vec<u8>,
    /// Where the unread part of `seen` begins.
    at: usize,
}

impl Terminal {
    /// Starts a command as the session leader of a new terminal.
    #[track_caller]
    pub(crate) fn start(command: &Command) -> Self {
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(Some(&size), None).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut leader = Command::new("setsid");
        leader.arg("--ctty").arg(command.get_program()).args(command.get_args()).env_clear();
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                leader.env(name, value);
            }
        }
        if let Some(cwd) = command.get_current_dir() {
            leader.current_dir(cwd);
        }
        let child = leader.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        Self {
            master: File::from(pty.master),
            slave: pty.slave,
            child,
            seen: Vec::new(),
            at: 0,
        }
    }

    pub(crate) fn send(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line.
    pub(crate) fn line(&mut self, text: &str) {
        self.send(&format!("{text}\r"));
    }

    pub(crate) fn interrupt(&mut self) {
        self.send("\x03");
    }

    pub(crate) fn suspend(&mut self) {
        self.send("\x1a");
    }

    /// Waits until this text appears behind what was seen before, and takes it as seen.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let unread = &self.seen[self.at..];
            if let Some(found) = unread.windows(text.len()).position(|part| part == text.as_bytes()) {
                self.at += found + text.len();
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(self.read(left), "`{}` did not appear; on the screen:\n{}", text.escape_debug(), self.screen());
        }
    }

    /// Reads what is there; `false` if nothing came in time.
    fn read(&mut self, within: Duration) -> bool {
        let wait = PollTimeout::try_from(within).unwrap_or(PollTimeout::ZERO);
        let mut ready = [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
        if !matches!(poll(&mut ready, wait), Ok(1..)) {
            return false;
        }
        let mut buffer = [0; 4096];
        match self.master.read(&mut buffer) {
            Ok(length @ 1..) => {
                self.seen.extend_from_slice(&buffer[..length]);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Changes the size of the window, as a terminal emulator does.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        let name = ttyname(&self.slave).unwrap();
        let done = Command::new("stty")
            .arg("-F")
            .arg(name)
            .args(["rows", &rows.to_string(), "cols", &columns.to_string()])
            .status();
        assert!(done.unwrap().success());
    }

    /// The window is closed: the last descriptors of the terminal's other side.
    pub(crate) fn hang_up(&mut self) {
        self.master = File::open("/dev/null").unwrap();
    }

    /// Waits for the end of the command; its exit code.
    #[track_caller]
    pub(crate) fn end(mut self) -> i32 {
        // Somebody has to read what is still being printed.
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() && Instant::now() < deadline {
            self.read(Duration::from_millis(10));
        }
        let screen = self.screen();
        code(wait(&mut self.child, &screen))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A shell with job control on a terminal, whose prompt is `(outer) `.
pub(crate) fn shell(mut command: Command) -> Terminal {
    command.env("PS1", "(outer) ");
    let mut bash = Command::new("bash");
    bash.args(["--noprofile", "--norc", "--noediting", "-i"]);
    bash.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    bash.current_dir(command.get_current_dir().unwrap());
    bash.process_group(0);
    let mut terminal = Terminal::start(&bash);
    terminal.expect("(outer) ");
    terminal
}
