//! Runs programs to their end, several at once, each for a bounded time and with bounded output.
//! The launcher has one thread, so this is one loop around `poll(2)`.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::sys::process;

/// What is read of one stream, in bytes; the rest is thrown away. An examination has a tenth of it.
pub(crate) const LONGEST_OUTPUT: usize = 256 << 10;
/// How long a program may take to end by itself when it is told to.
const GRACE: Duration = Duration::from_secs(2);
/// What ends this program by itself: with it ends what it started.
const ENDING: [Signal; 4] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
];

/// A program to run.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Absolute path and arguments.
    pub(crate) words: Vec<OsString>,
    /// Its whole environment.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Its current directory, if it is another one.
    pub(crate) cwd: Option<PathBuf>,
    /// How long it may take.
    pub(crate) patience: Duration,
}

/// How one ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It returned this code.
    Code(i32),
    /// A signal ended it, by its number.
    Signal(i32),
    /// It took too long, and was ended.
    Late,
    /// It could not be started.
    NotStarted(String),
}

/// What came of one.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) end: End,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) took: Duration,
}

impl Ran {
    /// Whether it returned 0.
    pub(crate) fn good(&self) -> bool {
        self.end == End::Code(0)
    }

    /// The first line that it wrote to standard output.
    pub(crate) fn first_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.stdout);
        text.lines().next().map(|line| line.trim().to_owned())
    }

    /// Why it is not good, in one line: its own words, or how it ended.
    pub(crate) fn why(&self) -> String {
        match &self.end {
            End::NotStarted(why) => return why.clone(),
            End::Late => return "it did not end in time".to_owned(),
            End::Code(_) | End::Signal(_) => {}
        }
        let text = String::from_utf8_lossy(&self.stderr);
        let said = text.lines().map(str::trim).find(|line| !line.is_empty());
        match (said, &self.end) {
            (Some(line), _) => line.to_owned(),
            (None, End::Signal(number)) => format!("signal {number} ended it"),
            (None, End::Code(code)) => format!("it returned {code} without a word"),
            (None, _) => String::new(),
        }
    }
}

/// Signals that would end this program are held while this lives: what was started is ended first.
pub(crate) struct Held {
    signals: SignalFd,
    caught: Option<i32>,
}

impl Held {
    /// Holds them.
    ///
    /// # Errors
    /// What `sigprocmask(2)` or `signalfd(2)` answer.
    pub(crate) fn new() -> Result<Self> {
        let failed = "cannot hold signals back";
        let mut set = SigSet::empty();
        ENDING.into_iter().for_each(|signal| set.add(signal));
        set.thread_block().context(failed)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&set, flags).context(failed)?;
        Ok(Self {
            signals,
            caught: None,
        })
    }

    /// The signal that came, if one did.
    pub(crate) fn caught(&mut self) -> Option<i32> {
        while let Ok(Some(info)) = self.signals.read_signal() {
            self.caught = i32::try_from(info.ssi_signo).ok().or(self.caught);
        }
        self.caught
    }
}

/// Runs programs, so many at once, and answers in their order. After a signal that ends this program
/// no further one is started, and those that run are ended.
pub(crate) fn all(held: &mut Held, programs: &[Program], at_once: usize) -> Vec<Ran> {
    let mut answers: Vec<Option<Ran>> = programs.iter().map(|_| None).collect();
    let mut running: Vec<Running> = Vec::new();
    let mut next = 0;
    loop {
        let stopped = held.caught().is_some();
        while next < programs.len() && running.len() < at_once.max(1) {
            match start(next, &programs[next], stopped) {
                Ok(one) => running.push(one),
                Err(ran) => answers[next] = Some(ran),
            }
            next += 1;
        }
        if running.is_empty() {
            break;
        }
        if stopped {
            running.iter_mut().for_each(Running::tell_to_end);
        }
        wait(held, &running);
        running.retain_mut(|one| match one.go_on() {
            None => true,
            Some(ran) => {
                answers[one.number] = Some(ran);
                false
            }
        });
    }
    answers.into_iter().flatten().collect()
}

/// One that runs.
struct Running {
    number: usize,
    child: Child,
    /// Readable when it has ended.
    ended: Option<OwnedFd>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    out: Vec<u8>,
    err: Vec<u8>,
    since: Instant,
    until: Instant,
    late: bool,
    told: Option<Instant>,
}

fn start(number: usize, program: &Program, stopped: bool) -> std::result::Result<Running, Ran> {
    let not_started = |why: String| Ran {
        end: End::NotStarted(why),
        stdout: Vec::new(),
        stderr: Vec::new(),
        took: Duration::ZERO,
    };
    let Some((path, arguments)) = program.words.split_first().filter(|_| !stopped) else {
        return Err(not_started("a signal ended agent-sandbox".to_owned()));
    };
    let mut command = Command::new(path);
    command
        .args(arguments)
        .env_clear()
        .envs(
            program
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(cwd) = &program.cwd {
        command.current_dir(cwd);
    }
    let mut child = command
        .spawn()
        .map_err(|error| not_started(format!("cannot start `{}`: {error}", path.display())))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    for stream in [
        stdout.as_ref().map(AsFd::as_fd),
        stderr.as_ref().map(AsFd::as_fd),
    ]
    .into_iter()
    .flatten()
    {
        let _ = fcntl(stream, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
    }
    let since = Instant::now();
    Ok(Running {
        number,
        ended: pid(&child).and_then(|pid| process::descriptor_of(pid).ok()),
        child,
        stdout,
        stderr,
        out: Vec::new(),
        err: Vec::new(),
        since,
        until: since + program.patience,
        late: false,
        told: None,
    })
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().map(Pid::from_raw)
}

/// Waits until something can be read, somebody has ended, or some time is over.
fn wait(held: &Held, running: &[Running]) {
    // Without descriptors of processes (Linux before 5.3) it is looked again.
    const LOOK_AGAIN: Duration = Duration::from_millis(20);
    let now = Instant::now();
    let mut rest = Duration::from_secs(1);
    let mut ready = vec![PollFd::new(held.signals.as_fd(), PollFlags::POLLIN)];
    for one in running {
        let streams = [
            one.ended.as_ref().map(AsFd::as_fd),
            one.stdout.as_ref().map(AsFd::as_fd),
            one.stderr.as_ref().map(AsFd::as_fd),
        ];
        let readable = streams.into_iter().flatten();
        ready.extend(readable.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let until = one.told.map_or(one.until, |told| told + GRACE);
        rest = rest.min(until.saturating_duration_since(now));
        if one.ended.is_none() {
            rest = rest.min(LOOK_AGAIN);
        }
    }
    let rest = rest + Duration::from_millis(1);
    match poll(
        &mut ready,
        PollTimeout::try_from(rest).unwrap_or(PollTimeout::MAX),
    ) {
        Ok(_) | Err(Errno::EINTR) => {}
        // Nothing can be waited for; the next look does not come at once.
        Err(_) => std::thread::sleep(LOOK_AGAIN),
    }
}

impl Running {
    fn tell_to_end(&mut self) {
        if self.told.is_none() {
            self.told = Some(Instant::now());
            if let Some(pid) = pid(&self.child) {
                let _ = kill(pid, Signal::SIGTERM);
            }
        }
    }

    /// Reads what there is; what came of it, if it is over.
    fn go_on(&mut self) -> Option<Ran> {
        let now = Instant::now();
        if now >= self.until {
            self.late = true;
            self.tell_to_end();
        }
        if self.told.is_some_and(|told| now >= told + GRACE) {
            let _ = self.child.kill();
        }
        let status = self.child.try_wait();
        // Read after the end was seen: nothing is missed. Who inherited the streams is not waited for.
        read(&mut self.stdout, &mut self.out);
        read(&mut self.stderr, &mut self.err);
        let end = match status {
            Ok(None) => return None,
            Ok(Some(_)) if self.late => End::Late,
            Ok(Some(status)) => end(status),
            Err(error) => End::NotStarted(error.to_string()),
        };
        Some(Ran {
            end,
            stdout: std::mem::take(&mut self.out),
            stderr: std::mem::take(&mut self.err),
            took: self.since.elapsed(),
        })
    }
}

fn end(status: ExitStatus) -> End {
    match status.code() {
        Some(code) => End::Code(code),
        None => End::Signal(status.signal().unwrap_or(0)),
    }
}

/// Reads what a stream has now, and closes it at its end.
fn read<T: Read>(stream: &mut Option<T>, into: &mut Vec<u8>) {
    let mut buffer = [0; 16 << 10];
    while let Some(open) = stream {
        match open.read(&mut buffer) {
            Ok(0) => *stream = None,
            Ok(length) => {
                let room = LONGEST_OUTPUT.saturating_sub(into.len());
                into.extend_from_slice(&buffer[..length.min(room)]);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
            Err(_) => *stream = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, patience: Duration) -> Program {
        Program {
            words: ["/bin/sh", "-c", script].map(OsString::from).to_vec(),
            environment: Vec::new(),
            cwd: None,
            patience,
        }
    }

    #[test]
    fn ends_output_and_time_are_bounded() {
        let long = Duration::from_secs(30);
        let programs = [
            sh("echo out; echo err >&2; exit 3", long),
            sh("yes | head -c 9000000", long),
            sh("exec sleep 60", Duration::from_millis(50)),
            sh("kill -9 $$", long),
            // Who is left behind with the streams is not waited for.
            sh("sleep 60 & echo left; echo $!", long),
            Program {
                words: vec!["/nonexistent/program".into()],
                ..sh("", long)
            },
        ];
        let since = Instant::now();
        let mut held = Held::new().unwrap();
        let ran = all(&mut held, &programs, 2);
        assert!(since.elapsed() < long, "{:?}", since.elapsed());
        assert_eq!(ran[0].end, End::Code(3));
        assert_eq!(
            (ran[0].stdout.as_slice(), ran[0].why()),
            (&b"out\n"[..], "err".to_owned())
        );
        assert_eq!(
            (ran[1].stdout.len(), &ran[1].end),
            (LONGEST_OUTPUT, &End::Code(0))
        );
        assert_eq!(ran[2].end, End::Late);
        assert_eq!(ran[3].end, End::Signal(9));
        let said = String::from_utf8(ran[4].stdout.clone()).unwrap();
        let left: i32 = said.lines().nth(1).unwrap().parse().unwrap();
        assert_eq!(ran[4].first_line().as_deref(), Some("left"));
        kill(Pid::from_raw(left), Signal::SIGKILL).unwrap();
        assert!(
            matches!(&ran[5].end, End::NotStarted(why) if why.contains("/nonexistent/program"))
        );
    }
}
