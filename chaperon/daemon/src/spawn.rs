//! The only place that starts processes: real commands of Slurm's, by absolute path, with the
//! session's environment and nothing else.

#![allow(clippy::disallowed_methods, reason = "effects: starts processes")]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::iter;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::rc::Rc;
use std::time::Duration;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::{End, ToShim};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

use crate::budget::Account;
use crate::closing::{self, Received};
use crate::conn::{Conn, Event};
use crate::query_cache::QueryCache;
use crate::query_queue::Captured;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::sys;

/// How long a shim may take to read that its command was stopped.
const TELLING: Duration = Duration::from_millis(100);

/// How long a command that was asked to end may take. `srun` tells its tasks first.
const GRACE: Duration = Duration::from_secs(5);

/// The most that a captured stream may hold, in bytes: about a million lines of `squeue`.
const MOST_CAPTURED: usize = 128 << 20;

/// Bytes that a command may be ahead of its reader: the most that an ordinary user may ask for by
/// default (`pipe(7)`, `/proc/sys/fs/pipe-max-size`). With the usual 64 KiB a long answer waits
/// for the reader again and again.
const PIPE_SIZE: i32 = 1 << 20;

/// Bytes of output that are read at once, first and then.
const FIRST_PART: usize = 32 << 10;
const LONGEST_PART: usize = 256 << 10;

/// Who has this much to say in one go has more to say: what `stdio(3)` writes at once.
const FULL_WRITE: usize = 4096;

/// How long output may gather in the pipe.
const PAUSE: Duration = Duration::from_millis(1);

/// Signals that a shim hands on. Others it cannot get, or would end a command where it stands.
const HANDED_ON: [i32; 10] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
    libc::SIGTSTP,
    libc::SIGCONT,
];

/// Where a stream of a command leads.
#[derive(Debug)]
pub enum Way {
    /// Nowhere.
    Null,
    /// To or from this descriptor.
    Passed(Received),
    /// To or from the chaperon.
    Pipe,
}

impl Way {
    fn stdio(self) -> Stdio {
        match self {
            Self::Null => Stdio::null(),
            Self::Passed(fd) => fd.into_stdio(),
            Self::Pipe => Stdio::piped(),
        }
    }
}

/// A real command to start.
#[derive(Debug)]
pub struct Start {
    /// Which.
    pub command: Command,
    /// Its arguments, written by the chaperon.
    pub arguments: Vec<OsString>,
    /// Variables beside the session's.
    pub environment: Vec<(OsString, OsString)>,
    /// `umask(2)`
    pub umask: u32,
    /// Standard input.
    pub input: Way,
    /// Standard output.
    pub output: Way,
    /// Standard error.
    pub error: Way,
    /// Descriptors that it gets beside these three, under the numbers that they have here.
    pub kept: Vec<Received>,
    /// Whether Slurm's answers to queries may be others when it has run.
    pub changes: bool,
}

impl Start {
    /// A command whose output the chaperon reads.
    pub fn query(command: Command, arguments: Vec<OsString>) -> Self {
        Self {
            command,
            arguments,
            environment: Vec::new(),
            umask: 0o077,
            input: Way::Null,
            output: Way::Pipe,
            error: Way::Pipe,
            kept: Vec::new(),
            changes: command == Command::Scancel,
        }
    }

    /// The same for one that changes something.
    pub fn change(command: Command, arguments: Vec<OsString>) -> Self {
        Self {
            changes: true,
            ..Self::query(command, arguments)
        }
    }
}

/// A command that runs. Dropping it asks the command to end.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Its process id, which is its session's, too.
    pub pid: u32,
    /// The other end of [`Way::Pipe`].
    pub input: Option<ChildStdin>,
    /// The other end of [`Way::Pipe`].
    pub output: Option<ChildStdout>,
    /// The other end of [`Way::Pipe`].
    pub error: Option<ChildStderr>,
    /// Whether its end was logged.
    ended: bool,
    /// Who is told that it has changed something.
    changes: Option<Rc<QueryCache>>,
}

/// Starts a real command.
///
/// # Errors
/// The node has no such command, or it cannot be started.
pub fn start(session: &Session, start: Start) -> Result<Running, Refusal> {
    start_with(session, start, None)
}

/// The same for a command that may get a job: it writes its process id into the file of its intent, and
/// keeps that open.
///
/// # Errors
/// See [`start`].
pub fn start_with(
    session: &Session,
    start: Start,
    intent: Option<&File>,
) -> Result<Running, Refusal> {
    let name = start.command;
    let path = session.command(name).ok_or_else(|| {
        Refusal::mistake(format!("this node has no {name}"))
            .hint("the directories of the policy's `slurm.directories` were searched")
    })?;
    let path = OsStr::from_bytes(path);
    let options = tracing::enabled!(target: "slurm", tracing::Level::DEBUG)
        .then(|| options(&start.arguments));
    let failed = |error: io::Error| Refusal::mistake(format!("cannot start {name}: {error}"));
    let mut environment: BTreeMap<OsString, OsString> = session
        .environment()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    environment.extend(start.environment);
    // salloc runs the chaperon's own program; the rest have nobody outside who speaks to them.
    let filtered = match name {
        Command::Srun => {
            let own_name = OsString::from(name.name());
            let arguments = iter::once(own_name).chain(start.arguments.iter().cloned());
            Some(sys::FilteredProgram::new(path, arguments, environment.clone()).map_err(failed)?)
        }
        _ => None,
    };
    let mut command = tokio::process::Command::new(Path::new(path));
    command
        .arg0(name.name())
        .args(&start.arguments)
        .env_clear()
        .envs(environment)
        .current_dir("/")
        .stdin(start.input.stdio())
        .stdout(start.output.stdio())
        .stderr(start.error.stdio());
    let kept = start.kept.iter().map(AsRawFd::as_raw_fd).collect();
    let intent = intent.map(AsRawFd::as_raw_fd);
    sys::detach(&mut command, start.umask, kept, intent, filtered);
    let spawned = command.spawn();
    // It holds the streams that the shim sent.
    closing::later(command);
    let mut child = spawned.map_err(failed)?;
    let changes = start.changes.then(|| Rc::clone(&session.query_cache));
    if let Some(cache) = &changes {
        cache.change();
    }
    let pid = child.id().unwrap_or(0);
    tracing::debug!(target: "slurm", %name, path = %path.display(), pid, options, "command started");
    Ok(Running {
        pid,
        input: child.stdin.take(),
        output: child.stdout.take(),
        error: child.stderr.take(),
        ended: false,
        changes,
        child,
    })
}

/// The long options among the words that the chaperon wrote, without their values.
fn options(words: &[OsString]) -> String {
    let options = words.iter().filter_map(|word| {
        let word = word.to_str()?;
        let option = word.split('=').next()?;
        option.starts_with("--").then_some(option)
    });
    options.collect::<Vec<_>>().join(" ")
}

impl Running {
    /// Hands a signal of the shim's on, if it is one that shims hand on. `SIGTSTP` becomes
    /// `SIGSTOP`: the default action of the former does nothing in a process group without a
    /// terminal (`setpgid(2)`, orphaned process groups).
    pub fn signal(&self, number: i32) {
        if !HANDED_ON.contains(&number) {
            return;
        }
        self.send(if number == libc::SIGTSTP {
            libc::SIGSTOP
        } else {
            number
        });
    }

    fn send(&self, number: i32) {
        if let (Ok(signal), Some(pid)) = (Signal::try_from(number), self.child.id()) {
            // One that has just ended needs no signal; it is not reaped yet, so the pid is its own.
            let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
        }
    }

    /// Sends it a signal that ends it, also if it is stopped.
    pub fn end_with(&self, number: i32) {
        self.signal(libc::SIGCONT);
        self.signal(number);
    }

    fn tell_change(&self) {
        if let Some(cache) = &self.changes {
            cache.change();
        }
    }

    /// Waits for its end. Cancel-safe.
    pub async fn wait(&mut self) -> End {
        let end = match self.child.wait().await {
            Ok(status) => end(status),
            Err(_) => End::FAILURE,
        };
        if !std::mem::replace(&mut self.ended, true) {
            tracing::debug!(target: "slurm", pid = self.pid, ?end, "command ended");
            self.tell_change();
        }
        end
    }

    /// Waits for its end, hands signals of the shim on, and ends it when the shim is gone.
    pub async fn attend(&mut self, conn: &mut Conn) -> End {
        loop {
            tokio::select! {
                end = self.wait() => return end,
                event = conn.event() => {
                    if let Some(end) = self.heed(event, conn).await {
                        return end;
                    }
                }
            }
        }
    }

    /// Hands a signal of the shim's on, and ends the command if the shim is gone: how it ended then.
    pub async fn heed(&mut self, event: Event, conn: &Conn) -> Option<End> {
        match event {
            Event::Signal(number) => {
                self.signal(number);
                if number == libc::SIGTSTP {
                    // The shim waits for it, and stops without it as well.
                    let told = conn.send(&ToShim::Stopped);
                    let _ = tokio::time::timeout(TELLING, told).await;
                }
                None
            }
            Event::Gone => {
                self.terminate().await;
                Some(End::Signal(libc::SIGHUP))
            }
        }
    }

    /// Asks it to end, and ends it.
    pub async fn terminate(&mut self) {
        self.signal(libc::SIGCONT);
        self.signal(libc::SIGTERM);
        if tokio::time::timeout(GRACE, self.wait()).await.is_err() {
            self.send(libc::SIGKILL);
            let _ = self.wait().await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.id().is_some() {
            self.tell_change();
            self.signal(libc::SIGCONT);
            self.signal(libc::SIGTERM);
        }
    }
}

fn end(status: ExitStatus) -> End {
    match status.signal() {
        Some(signal) => End::Signal(signal),
        None => End::Code(status.code().unwrap_or(1)),
    }
}

/// Runs a command to its end and keeps what it says. `input` is its standard input.
///
/// # Errors
/// It cannot be started, or says more than is kept.
pub async fn capture(session: &Session, wish: Start, input: &[u8]) -> Result<Captured, Refusal> {
    let mut output = Vec::new();
    let keep = |part: &[u8]| output.extend_from_slice(part);
    let (end, error, account) = relay(session, wish, input, keep).await?;
    Ok(Captured {
        end,
        output,
        error,
        account: Some(account),
    })
}

/// Runs a command to its end and hands its standard output on, part by part as it comes; gives its
/// standard error, and the account that both are on.
///
/// # Errors
/// It cannot be started, or says more than is kept.
pub async fn relay(
    session: &Session,
    mut wish: Start,
    input: &[u8],
    tell: impl FnMut(&[u8]),
) -> Result<(End, Vec<u8>, Rc<Account>), Refusal> {
    let name = wish.command;
    if !input.is_empty() {
        wish.input = Way::Pipe;
    }
    let mut account = session.answers.account();
    let mut running = start(session, wish)?;
    let (stdin, stdout, stderr) = (
        running.input.take(),
        running.output.take(),
        running.error.take(),
    );
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A command that does not read to the end says why.
            let _ = stdin.write_all(input).await;
        }
    };
    let (_, output, error) = tokio::join!(
        feed,
        read_parts(stdout, &mut running, tell, &mut account),
        read_all(stderr)
    );
    let failed = |error: io::Error| Refusal::mistake(format!("cannot read from {name}: {error}"));
    let (output, error) = (output.map_err(failed)??, error.map_err(failed)?);
    if output > MOST_CAPTURED || error.len() > MOST_CAPTURED {
        return Err(
            Refusal::mistake(format!("{name} says more than {} MiB", MOST_CAPTURED >> 20))
                .hint("ask for less at a time"),
        );
    }
    account.more(error.len()).await?;
    Ok((running.wait().await, error, Rc::new(account)))
}

async fn read_all(from: Option<ChildStderr>) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    if let Some(from) = from {
        from.take(MOST_CAPTURED as u64 + 1)
            .read_to_end(&mut all)
            .await?;
    }
    Ok(all)
}

/// Reads a command's output to its end, at most one part more than is kept, and says how much it
/// was. While a long answer is being printed the pipe is not watched, for that would wake the
/// chaperon each time that the command writes; it is emptied every [`PAUSE`].
async fn read_parts(
    from: Option<ChildStdout>,
    running: &mut Running,
    mut tell: impl FnMut(&[u8]),
    account: &mut Account,
) -> io::Result<Result<usize, Refusal>> {
    let Some(from) = from else { return Ok(Ok(0)) };
    // Watching it ends here; reading it does not wait.
    let from = from.into_owned_fd()?;
    fcntl(&from, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    // Beyond what the kernel grants (`fcntl(2)`), an answer only takes longer.
    let _ = fcntl(&from, FcntlArg::F_SETPIPE_SZ(PIPE_SIZE));
    let mut from = File::from(from);
    let mut sum = 0;
    let mut part = vec![0; FIRST_PART];
    loop {
        let mut filled = 0;
        let over = loop {
            match from.read(&mut part[filled..]) {
                Ok(0) => break filled < part.len(),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        if filled > 0 {
            sum += filled;
            if sum <= MOST_CAPTURED {
                if let Err(refusal) = account.more(filled).await {
                    return Ok(Err(refusal));
                }
                tell(&part[..filled]);
            }
        }
        if over || sum > MOST_CAPTURED {
            return Ok(Ok(sum));
        }
        if filled == part.len() {
            // There is more: others get their turn, and the next part may be longer.
            part.resize(LONGEST_PART, 0);
            tokio::task::yield_now().await;
        } else if filled >= FULL_WRITE {
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                _ = running.wait() => {}
            }
        } else {
            let watched = Receiver::from_owned_fd(from.into())?;
            watched.readable().await?;
            from = File::from(watched.into_nonblocking_fd()?);
        }
    }
}
