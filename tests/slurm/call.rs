//! A script on one side of the jail: how it is started, bounded in time, and what it said.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use agent_sandbox_support::process::code;
use agent_sandbox_support::process::{Drained, drain};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::world::{PATIENCE, Side, World, until};

/// Tests that run side by side submit more than one person does. Those that are about it say a limit of their own.
const UNPACED: [&str; 4] = [
    "--set",
    "slurm.limits.submissions_per_minute=0",
    "--set",
    "slurm.limits.submissions_per_day=0",
];

/// A call that is being put together.
pub(crate) struct Call<'a> {
    world: &'a World,
    side: Side,
    before: Vec<OsString>,
    options: Vec<OsString>,
    words: Vec<OsString>,
    cwd: PathBuf,
    variables: Vec<(OsString, OsString)>,
    patience: Duration,
}

impl<'a> Call<'a> {
    pub(crate) fn new(world: &'a World, side: Side, script: &str) -> Self {
        Self {
            world,
            side,
            before: Vec::new(),
            options: UNPACED.map(OsString::from).to_vec(),
            words: ["/bin/bash", "-c", script].map(OsString::from).to_vec(),
            cwd: world.place(side),
            variables: Vec::new(),
            patience: PATIENCE,
        }
    }

    /// Another command than a script.
    pub(crate) fn words<S: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.words = words.into_iter().map(|w| w.as_ref().to_owned()).collect();
        self
    }

    /// What starts the launcher, or outside the command: `salloc` and its options.
    pub(crate) fn started_by(mut self, words: &[&str]) -> Self {
        self.before = words.iter().map(OsString::from).collect();
        self
    }

    /// One more option of the launcher's; without effect outside.
    pub(crate) fn option(mut self, option: impl AsRef<OsStr>) -> Self {
        self.options.push(option.as_ref().to_owned());
        self
    }

    /// A key of the policy.
    pub(crate) fn set(self, assignment: &str) -> Self {
        self.option("--set").option(assignment)
    }

    pub(crate) fn variable(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// As the user, in the directory of its side.
    pub(crate) fn command(&self) -> Command {
        let cluster = self.world.cluster;
        let before = self.before.iter().map(OsString::as_os_str);
        let mut command = match self.side {
            Side::Inside => {
                let launcher = cluster.launcher.as_os_str();
                let whole: Vec<&OsStr> = before.chain([launcher]).collect();
                let mut command = cluster.command(self.world.user, whole[0]);
                command.args(&whole[1..]);
                command.args(crate::chosen::options());
                command.arg("-q").args(&self.options).arg("--");
                command.args(self.words.iter().map(|word| {
                    let word = word.to_str().expect("scripts are text");
                    self.world.with_real_home(word)
                }));
                command
            }
            Side::Outside => {
                let words = self.words.iter().map(OsString::as_os_str);
                let whole: Vec<&OsStr> = before.chain(words).collect();
                let mut command = cluster.command(self.world.user, whole[0]);
                command.args(&whole[1..]);
                command
            }
        };
        command.current_dir(&self.cwd).envs(self.variables.clone());
        command
    }

    /// For a terminal, which it gets as its own: what is opened there belongs to the user.
    pub(crate) fn at_terminal(&self) -> Command {
        let inner = self.command();
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", r#"chown "$0" "$(tty)" && exec "$@""#])
            .arg(self.world.user.uid.to_string())
            .arg(inner.get_program())
            .args(inner.get_args());
        command.env_clear();
        for (name, value) in inner.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command.current_dir(&self.cwd);
        command
    }

    /// Starts it, with pipes and in a process group of its own.
    #[track_caller]
    pub(crate) fn start(self) -> Running {
        let mut command = self.command();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let stdout = drain(child.stdout.take().unwrap());
        let stderr = drain(child.stderr.take().unwrap());
        Running {
            child,
            stdout,
            stderr,
            patience: self.patience,
            what: format!("{:?}: {:?}", self.side, self.words),
        }
    }

    /// Runs it to its end.
    #[track_caller]
    pub(crate) fn run(self) -> Output {
        self.start().end()
    }
}

/// The same command where a directory is seen in place of another one.
pub(crate) fn in_place(directory: &Path, at: &Path, inner: &Command) -> Command {
    let mut command = Command::new("/usr/bin/unshare");
    command
        .args(["--mount", "--propagation", "slave", "--", "/bin/sh", "-c"])
        .arg(r#"mount --bind "$1" "$2" && shift 2 && exec "$@""#)
        .arg("sh")
        .args([directory, at])
        .arg(inner.get_program())
        .args(inner.get_args())
        .env_clear()
        .envs(
            inner
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
    if let Some(directory) = inner.get_current_dir() {
        command.current_dir(directory);
    }
    command
}

/// A call that runs.
pub(crate) struct Running {
    child: Child,
    stdout: Drained,
    stderr: Drained,
    patience: Duration,
    what: String,
}

impl Running {
    /// Its first process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// Waits until something holds that happens while it runs. If it ends first, that is the failure, with what it said.
    #[track_caller]
    pub(crate) fn until(mut self, what: &str, mut holds: impl FnMut() -> bool) -> Self {
        let mut ended = false;
        until(what, || {
            ended = ended || self.child.try_wait().unwrap().is_some();
            ended || holds()
        });
        if ended && !holds() {
            panic!("{what} did not happen: {}", self.end());
        }
        self
    }

    /// A signal to it alone.
    pub(crate) fn signal(&self, signal: Signal) {
        nix::sys::signal::kill(self.pid(), signal).unwrap();
    }

    /// Waits for its end; what takes too long is killed, and the test with it.
    #[track_caller]
    pub(crate) fn end(mut self) -> Output {
        let deadline = Instant::now() + self.patience;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                let _ = killpg(self.pid(), Signal::SIGKILL);
                let _ = self.child.wait();
                let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                panic!(
                    "did not end within {:?}: {}\n-- stdout:\n{}\n-- stderr:\n{}",
                    self.patience,
                    self.what,
                    text(self.stdout.all()),
                    text(self.stderr.all())
                );
            }
            thread::sleep(Duration::from_millis(4));
        };
        let mut stderr = self.stderr.all();
        if crate::chosen::is_landlock() {
            stderr = without_what_is_lacking(&stderr);
        }
        Output {
            code: code(status),
            stdout: self.stdout.all(),
            stderr,
        }
    }
}

/// Standard error without the line in which the launcher says, before the command starts, that a jail
/// of Landlock's is weaker.
fn without_what_is_lacking(stderr: &[u8]) -> Vec<u8> {
    let lines = stderr.split_inclusive(|byte| *byte == b'\n');
    let others =
        lines.skip_while(|line| line.starts_with(b"agent-sandbox: weaker jail: Landlock, "));
    others.flatten().copied().collect()
}

/// How a call ended and what it said.
#[derive(Clone)]
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Output {
    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// It ended with 0.
    #[track_caller]
    pub(crate) fn good(self) -> Self {
        assert_eq!(self.code, 0, "{self}");
        self
    }

    /// Standard output without white space at its ends.
    pub(crate) fn word(&self) -> String {
        self.out().trim().to_owned()
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "exit code {}\n-- stdout:\n{}\n-- stderr:\n{}",
            self.code,
            self.out(),
            self.err()
        )
    }
}
