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

use crate::chaperon::{PATIENCE, ShimDirectory};

/// The quickest that a person is.
const REACTION: Duration = Duration::from_millis(200);

/// A shell with job control, whose prompt is `(outer) `, and in which `$SHIM` is the shim.
pub(crate) struct Terminal {
    master: File,
    name: String,
    child: Child,
    /// What appeared and was not yet expected.
    unread: Vec<u8>,
}

impl Terminal {
    pub(crate) fn start(place: &ShimDirectory) -> Self {
        // Close-on-exec from the start: tests run side by side.
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let master = posix_openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname_r(&master).unwrap();
        let slave = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open(&name)
            .unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        let shim = place.shim();
        let child = Command::new("setsid")
            .args([
                "--ctty",
                "bash",
                "--noprofile",
                "--norc",
                "--noediting",
                "-i",
            ])
            .envs(
                shim.get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .env("SHIM", shim.get_program())
            .env("PS1", "(outer) ")
            .current_dir(place.dir.path())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let mut terminal = Self {
            master: File::from(OwnedFd::from(master)),
            name,
            child,
            unread: Vec::new(),
        };
        terminal.expect("(outer) ");
        terminal
    }

    /// Types a line; a command that is just being stopped may take the first letter of it otherwise.
    pub(crate) fn line(&mut self, text: &str) {
        thread::sleep(REACTION);
        self.master
            .write_all(format!("{text}\r").as_bytes())
            .unwrap();
    }

    /// Presses a key, not at the same instant as the last thing happened.
    pub(crate) fn key(&mut self, key: u8) {
        thread::sleep(REACTION);
        self.master.write_all(&[key]).unwrap();
    }

    /// Waits until this text appears behind what was seen before.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self
                .unread
                .windows(text.len())
                .position(|part| part == text.as_bytes());
            if let Some(found) = found {
                self.unread.drain(..found + text.len());
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                self.read(left),
                "`{text}` did not appear; on the screen:\n{}",
                String::from_utf8_lossy(&self.unread)
            );
        }
    }

    fn read(&mut self, within: Duration) -> bool {
        let wait = PollTimeout::try_from(within).unwrap_or(PollTimeout::ZERO);
        let mut ready = [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
        if !matches!(poll(&mut ready, wait), Ok(1..)) {
            return false;
        }
        let mut buffer = [0; 4096];
        match self.master.read(&mut buffer) {
            Ok(length @ 1..) => {
                self.unread.extend_from_slice(&buffer[..length]);
                true
            }
            _ => false,
        }
    }

    /// Changes the size of the window, once: stty tells of each number that it sets.
    pub(crate) fn resize(&self) {
        let done = Command::new("stty")
            .args(["-F", &self.name, "rows", "44"])
            .status();
        assert!(done.unwrap().success());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
