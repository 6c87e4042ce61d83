//! A terminal with somebody at it: a pseudo-terminal, and as much of an emulator as says what is on the
//! screen.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::termios::{LocalFlags, tcgetattr};

use crate::fake::PATIENCE;

pub(crate) struct Terminal {
    master: File,
    name: String,
    child: Child,
    /// All that was written to it.
    pub(crate) raw: Vec<u8>,
    size: (u16, u16),
}

impl Terminal {
    /// Starts a command as the session leader of a new terminal of 24 rows and 80 columns.
    #[track_caller]
    pub(crate) fn start(command: &Command) -> Self {
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
        set_size(&name, 24, 80);
        let end = || Stdio::from(slave.try_clone().unwrap());
        let mut leader = Command::new("setsid");
        leader
            .arg("--ctty")
            .arg("--wait")
            .arg(command.get_program())
            .args(command.get_args())
            .env_clear();
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                leader.env(name, value);
            }
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
            raw: Vec::new(),
            size: (24, 80),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this text is on the screen.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str) {
        self.wait_for(&format!("`{text}` to appear"), |screen| {
            screen.contains(text)
        });
    }

    /// Waits until this text is not on the screen.
    #[track_caller]
    pub(crate) fn expect_gone(&mut self, text: &str) {
        self.wait_for(&format!("`{text}` to go"), |screen| !screen.contains(text));
    }

    #[track_caller]
    fn wait_for(&mut self, what: &str, holds: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if holds(&screen) {
                return;
            }
            assert!(
                Instant::now() < deadline && self.read(Duration::from_secs(1)) != Some(0),
                "waited for {what}; on the screen:\n{screen}\n{:?}",
                String::from_utf8_lossy(&self.raw)
            );
        }
    }

    /// Waits until these bytes were written.
    #[track_caller]
    pub(crate) fn expect_raw(&mut self, bytes: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.wrote(bytes) {
            assert!(Instant::now() < deadline, "{bytes:?} was not written");
            self.read(Duration::from_millis(100));
        }
    }

    /// Waits until these bytes were written last.
    #[track_caller]
    pub(crate) fn expect_last(&mut self, bytes: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.raw.ends_with(bytes.as_bytes()) {
            assert!(Instant::now() < deadline, "{bytes:?} was not written last");
            self.read(Duration::from_millis(100));
        }
    }

    pub(crate) fn wrote(&self, bytes: &str) -> bool {
        self.raw
            .windows(bytes.len())
            .any(|part| part == bytes.as_bytes())
    }

    /// Reads what is there: so many bytes; none: nothing came in time.
    fn read(&mut self, within: Duration) -> Option<usize> {
        let wait = PollTimeout::try_from(within).unwrap_or(PollTimeout::ZERO);
        let mut ready = [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
        if !matches!(poll(&mut ready, wait), Ok(1..)) {
            return None;
        }
        let mut buffer = [0; 4096];
        let length = self.master.read(&mut buffer).unwrap_or(0);
        self.raw.extend_from_slice(&buffer[..length]);
        Some(length)
    }

    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        set_size(&self.name, rows, columns);
        self.size = (rows, columns);
        // What was drawn before is of another size.
        self.raw.clear();
    }

    /// What is on the screen.
    pub(crate) fn screen(&self) -> String {
        let (rows, columns) = self.size;
        let mut screen = Screen {
            cells: vec![vec![' '; usize::from(columns)]; usize::from(rows)],
            at: (0, 0),
        };
        screen.write(&String::from_utf8_lossy(&self.raw));
        let rows: Vec<String> = screen
            .cells
            .into_iter()
            .map(|row| row.into_iter().collect::<String>().trim_end().to_owned())
            .collect();
        rows.join("\n")
    }

    /// Whether the terminal is as a shell expects it: lines, echo, the first screen, a cursor.
    pub(crate) fn is_given_back(&self) -> bool {
        let modes = tcgetattr(&self.master).unwrap().local_flags;
        let last = |on: &str, off: &str| {
            let at = |bytes: &str| {
                let mut windows = self.raw.windows(bytes.len());
                windows.rposition(|part| part == bytes.as_bytes())
            };
            at(off) > at(on)
        };
        modes.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
            && last("\x1b[?1049h", "\x1b[?1049l")
            && last("\x1b[?25l", "\x1b[?25h")
    }

    /// Waits for the end of the command; its exit code as a shell tells it.
    #[track_caller]
    pub(crate) fn end(&mut self) -> i32 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                while matches!(self.read(Duration::from_millis(20)), Some(1..)) {}
                return status
                    .code()
                    .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
            }
            assert!(
                Instant::now() < deadline,
                "it does not end:\n{}",
                self.screen()
            );
            // Somebody has to read what is still being printed.
            self.read(Duration::from_millis(10));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_size(name: &str, rows: u16, columns: u16) {
    let (rows, columns) = (rows.to_string(), columns.to_string());
    let done = Command::new("stty")
        .args(["-F", name, "rows", &rows, "cols", &columns])
        .status();
    assert!(done.unwrap().success());
    // Not at the same instant as the next thing happens.
    thread::sleep(Duration::from_millis(50));
}

/// The sequences that ratatui's backend writes: cursor positions and erasing; colours are skipped.
struct Screen {
    cells: Vec<Vec<char>>,
    at: (usize, usize),
}

impl Screen {
    fn write(&mut self, text: &str) {
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                '\x1b' if rest.peek() == Some(&'[') => {
                    rest.next();
                    let mut numbers = String::new();
                    for c in rest.by_ref() {
                        if c.is_ascii_alphabetic() {
                            self.control(c, &numbers);
                            break;
                        }
                        numbers.push(c);
                    }
                }
                // A string that is none of the screen's, up to its end.
                '\x1b' if rest.peek() == Some(&']') => {
                    while let Some(c) = rest.next() {
                        if c == '\x07' || c == '\x1b' && rest.next() == Some('\\') {
                            break;
                        }
                    }
                }
                '\r' => self.at.1 = 0,
                '\n' => self.at.0 += 1,
                c if !c.is_control() => {
                    let (row, column) = self.at;
                    if let Some(cell) = self.cells.get_mut(row).and_then(|row| row.get_mut(column))
                    {
                        *cell = c;
                    }
                    self.at.1 += 1;
                }
                _ => {}
            }
        }
    }

    fn control(&mut self, last: char, numbers: &str) {
        let number = |at: usize| -> usize {
            let text = numbers.split(';').nth(at).unwrap_or_default();
            text.parse().unwrap_or(1)
        };
        match (last, numbers) {
            ('H', _) => self.at = (number(0) - 1, number(1) - 1),
            ('J', "2" | "3") | ('h', "?1049") => {
                for row in &mut self.cells {
                    row.fill(' ');
                }
            }
            _ => {}
        }
    }
}
