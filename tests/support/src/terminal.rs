//! A terminal with somebody at it: types, and waits for what appears.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};

use crate::process::{code, wait};
use crate::waiting::PATIENCE;

/// The quickest that a person is.
const REACTION: Duration = Duration::from_millis(200);

/// A terminal, and the command at it, which ends with it.
pub struct Terminal {
    master: File,
    name: String,
    child: Child,
    seen: Vec<u8>,
    /// Where the unread part of `seen` begins.
    at: usize,
    /// Whether a command may be on its way from or to the foreground.
    pressed: bool,
}

impl Terminal {
    /// Starts a command as the session leader of a new terminal.
    #[track_caller]
    pub fn start(command: &Command) -> Self {
        // Close-on-exec from the start: tests run side by side, and a copy of the master in another
        // test's child would keep this terminal from ever hanging up.
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let master = posix_openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname_r(&master).unwrap();
        let slave = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlag::O_NOCTTY.bits())
            .open(&name)
            .unwrap();
        resize(&name, 24, 80);
        let end = || Stdio::from(slave.try_clone().unwrap());
        let mut leader = Command::new("setsid");
        leader
            .arg("--ctty")
            .arg(command.get_program())
            .args(command.get_args())
            .env_clear();
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                leader.env(name, value);
            }
        }
        if let Some(cwd) = command.get_current_dir() {
            leader.current_dir(cwd);
        }
        let child = leader
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        Self {
            master: File::from(OwnedFd::from(master)),
            name,
            child,
            seen: Vec::new(),
            at: 0,
            pressed: false,
        }
    }

    /// Types these keys.
    pub fn send(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line. A command that is just being stopped may take the first letter of it otherwise.
    pub fn line(&mut self, text: &str) {
        if self.pressed {
            thread::sleep(REACTION);
        }
        self.send(&format!("{text}\r"));
    }

    /// Presses a key. Not at the same instant as the last thing happened: a shell that is about to
    /// start or continue a job may then miss it, with or without a jail.
    fn key(&mut self, key: &str) {
        thread::sleep(REACTION);
        self.pressed = true;
        self.send(key);
    }

    /// Presses ^C.
    pub fn interrupt(&mut self) {
        self.key("\x03");
    }

    /// Presses ^\.
    pub fn quit(&mut self) {
        self.key("\x1c");
    }

    /// Presses ^Z.
    pub fn suspend(&mut self) {
        self.key("\x1a");
    }

    /// Waits until this text appears behind what was seen before, and takes it as seen.
    #[track_caller]
    pub fn expect(&mut self, text: &str) {
        let found = self.appears(text, PATIENCE);
        assert!(
            found,
            "`{}` did not appear; on the screen:\n{}",
            text.escape_debug(),
            self.screen()
        );
    }

    /// ^Z until the shell says `Stopped`: one that comes while the job is being continued may be lost.
    pub fn stop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            self.suspend();
            if self.appears("Stopped", Duration::from_secs(1)) {
                return;
            }
        }
        panic!(
            "the job did not stop within {PATIENCE:?}; on the screen:\n{}",
            self.screen()
        );
    }

    /// Whether a text appears in time; what comes next is read from behind it.
    fn appears(&mut self, text: &str, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        loop {
            let unread = &self.seen[self.at..];
            if let Some(found) = unread
                .windows(text.len())
                .position(|part| part == text.as_bytes())
            {
                self.at += found + text.len();
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if !self.read(left) {
                return false;
            }
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

    /// All that has appeared.
    pub fn screen(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Changes the size of the window, as a terminal emulator does.
    pub fn resize(&self, rows: u16, columns: u16) {
        thread::sleep(REACTION);
        resize(&self.name, rows, columns);
    }

    /// The window is closed: the last descriptors of the terminal's other side.
    pub fn hang_up(&mut self) {
        self.master = File::open("/dev/null").unwrap();
    }

    /// Waits for the end of the command; its exit code.
    #[track_caller]
    pub fn end(mut self) -> i32 {
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

fn resize(name: &str, rows: u16, columns: u16) {
    let done = Command::new("stty")
        .args([
            "-F",
            name,
            "rows",
            &rows.to_string(),
            "cols",
            &columns.to_string(),
        ])
        .status();
    assert!(done.unwrap().success());
}

/// A shell with job control on a terminal, whose prompt is `(outer) `.
pub fn shell(mut command: Command) -> Terminal {
    command.env("PS1", "(outer) ");
    let mut bash = Command::new("bash");
    bash.args(["--noprofile", "--norc", "--noediting", "-i"]);
    bash.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    bash.current_dir(command.get_current_dir().unwrap());
    let mut terminal = Terminal::start(&bash);
    terminal.expect("(outer) ");
    terminal
}
